"""The optimizer `settings` finds better values of a method's settings, and keeps its prompts.

In the questions of this file, Ann and Bob each say one sentence with the same words. A question
asks what Ann said. A search by words finds Bob's sentence first: it comes after Ann's, and takes a
share of her score. With a weight of 3 or so for the speaker, `search.speaker`, Ann's comes first.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import Benchmark, History, build, load
from mempiler.engines.lm import language_model
from mempiler.errors import UserError
from mempiler.optimizers import SettingsSearch
from mempiler.optimizers.compile import CompileConfig, compile_program, plan_job
from mempiler.optimizers.history import CandidateHistory
from mempiler.programs.program import MemoryProgram
from mempiler.records import Session, Turn
from mempiler.runs.api import make_compilation

from ..command_line import RunCommand
from .marker_model import MarkerModel

TRAIN_TOPICS = ("jazz", "bread", "chess", "Lisbon", "tulips", "whales", "clocks", "kites")
DEV_TOPICS = ("soups", "trains", "novels", "rivers", "candles", "maps", "shoes", "owls")

ONE_TURN_OF_ANY_SPEAKER = {"k": 1, "search.speaker": 0}
"""Settings with which a search recalls one turn, Bob's: the weight of the speaker is 0."""


def question_about(topic: str, **changes: Any) -> dspy.Example:
    """Return a question whose evidence is Ann's turn, the first of the session."""
    ann = Turn(id="ann", speaker="Ann", text=f"Bob, my favourite of {topic} is Monk.")
    bob = Turn(id="bob", speaker="Bob", text=f"Ann, my favourite of {topic} is Duke.")
    fields = {
        "id": topic,
        "history": History(id=topic, items=(Session(id="s1", turns=(ann, bob)),)),
        "question": f"What did Ann say about {topic}?",
        "answer": "Monk",
        "evidence_ids": ("ann",),
        **changes,
    }
    return dspy.Example(**fields).with_inputs("history", "question", "evidence_ids")


QUESTIONS = [question_about(topic) for topic in TRAIN_TOPICS]
DEV_QUESTIONS = [question_about(topic) for topic in DEV_TOPICS]


def compile_settings(
    program: MemoryProgram,
    optimizer: SettingsSearch,
    questions: Sequence[dspy.Example] = QUESTIONS,
    history: CandidateHistory | None = None,
) -> MemoryProgram:
    """Return the program that the optimizer makes with the offline engine."""
    with dspy.context(lm=language_model()):
        config = CompileConfig.of_object(optimizer)
        benchmark = Benchmark.from_examples(questions)
        return compile_program(program, benchmark, questions, config, history=history)


def new_history() -> CandidateHistory:
    return CandidateHistory(language_model().meter)


def recalled_ids(program: MemoryProgram, question: dspy.Example) -> list[str]:
    """Return the ids of the recalled turns: "ann" is the evidence, and "bob" is not."""
    return [hit.id for hit in program.recall_for(question).context.hits]


def test_it_finds_the_value_with_which_the_evidence_is_recalled() -> None:
    """The evidence is Ann's turn. At first Bob's is recalled, who uses the same words."""
    program = build("turn-rag", k=1, **{"search.speaker": 0})
    assert recalled_ids(program, QUESTIONS[0]) == ["bob"]
    optimizer = SettingsSearch(objective="evidence_recall", names=["search.speaker"], num_trials=10)

    tuned = compile_settings(program, optimizer)

    assert recalled_ids(tuned, QUESTIONS[0]) == ["ann"]
    assert tuned.config["search"]["speaker"] > 0
    assert program.config["search"]["speaker"] == 0


def test_the_metric_is_its_objective_by_default() -> None:
    """The metric `support` looks for the answer in what is recalled, and asks no model."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    with dspy.context(lm=language_model()):
        config = CompileConfig.of_object(SettingsSearch(names=["search.speaker"], num_trials=10))
        benchmark = Benchmark.from_examples(QUESTIONS, metric="support")
        tuned = compile_program(program, benchmark, QUESTIONS, config)

    assert recalled_ids(tuned, QUESTIONS[0]) == ["ann"]


def test_support_can_be_its_objective_where_the_metric_needs_answers() -> None:
    """`support` looks for the answer in what is recalled. At first Bob's turn is, not Ann's."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(objective="support", names=["search.speaker"], num_trials=10)

    tuned = compile_settings(program, optimizer)

    assert recalled_ids(tuned, QUESTIONS[0]) == ["ann"]


def test_a_change_that_gains_nothing_is_undone() -> None:
    """No question names a month or a year, so only a weight of the speaker helps."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(
        objective="evidence_recall",
        names=["search.month", "search.speaker", "search.year"],
        num_trials=10,
    )

    tuned = compile_settings(program, optimizer)

    speaker_weight = tuned.config["search"]["speaker"]
    assert speaker_weight > 0
    assert tuned.config == build("turn-rag", k=1, **{"search.speaker": speaker_weight}).config


def test_equal_seeds_find_equal_values() -> None:
    """Both searches have the default seed."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(objective="evidence_recall", names=["search.speaker"], num_trials=10)

    first = compile_settings(program, optimizer)
    second = compile_settings(program, optimizer)

    assert first.config["search"]["speaker"] > 0
    assert first.config == second.config


# How much may be recalled.


def test_no_more_is_recalled_than_with_the_starting_settings() -> None:
    """With `k` = 2 both turns, and so the evidence, would be recalled. The start has `k` = 1."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(objective="evidence_recall", names=["k"], num_trials=10)

    assert compile_settings(program, optimizer).config["k"] == 1


def test_max_context_tokens_lets_more_be_recalled() -> None:
    """The start recalls one turn. Two turns take about thirty tokens, and 200 are allowed."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(
        objective="evidence_recall", names=["k"], num_trials=10, max_context_tokens=200
    )

    tuned = compile_settings(program, optimizer)

    assert set(recalled_ids(tuned, QUESTIONS[0])) == {"ann", "bob"}


def test_starting_settings_that_recall_too_much_are_replaced() -> None:
    """A turn takes about fifteen tokens, and the starting settings recall both."""
    program = build("turn-rag", k=2)
    optimizer = SettingsSearch(
        objective="evidence_recall", names=["k"], num_trials=20, max_context_tokens=20
    )

    assert compile_settings(program, optimizer).config["k"] == 1


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param("settings", id="name"),
        pytest.param(SettingsSearch(num_trials=7), id="object"),
    ],
)
def test_max_context_tokens_of_a_compile_is_the_limit_of_the_search(
    optimizer: str | SettingsSearch,
) -> None:
    compile_config = make_compilation(optimizer, max_context_tokens=500)

    search = compile_config.make_optimizer()

    assert isinstance(search, SettingsSearch)
    assert search.max_context_tokens == 500
    assert compile_config.recorded_settings()["max_context_tokens"] == 500


def test_max_context_tokens_decides_over_the_setting_of_a_file() -> None:
    settings = {"max_context_tokens": 500, "num_trials": 7}

    compile_config = make_compilation("settings", settings, max_context_tokens=300)

    assert compile_config.settings == {"max_context_tokens": 300, "num_trials": 7}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--max-context-tokens", "500"], id="option"),
        pytest.param(["--config", "run.toml"], id="file"),
    ],
)
def test_max_context_tokens_is_refused_with_another_optimizer(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[optimizer]\nmax_context_tokens = 500\n")

    code, _, err = cli("compile", "turn-rag", "--benchmark", "locomo", *options)

    assert code == 2
    assert "max_context_tokens: bootstrap does not limit what is recalled" in err
    assert "take --optimizer settings" in err


# Several objectives.


@pytest.mark.parametrize("cost", ["context_tokens", "search_milliseconds"])
def test_costs_count_beside_the_score(cost: Any) -> None:
    """The start recalls one turn, without the evidence. Two turns hold it, and cost more tokens."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(
        objective="evidence_recall",
        costs=[cost],
        names=["k"],
        num_trials=20,
        max_context_tokens=200,
    )
    history = new_history()

    compile_settings(program, optimizer, history=history)

    start, *others = history.frontier
    assert start.number == 0
    assert start.settings == {}
    assert start.score == 0.0
    best = max(others, key=lambda point: point.score)
    assert best.on_frontier
    assert best.score == 1.0
    assert best.settings["k"] > 1
    assert best.prompt_tokens is not None
    assert start.prompt_tokens is not None
    assert best.prompt_tokens > start.prompt_tokens
    assert (best.search_milliseconds is not None) == (cost == "search_milliseconds")


# The prompts and the writing.


def test_compiled_prompts_stay() -> None:
    """The settings are tuned of a program whose prompt has the instruction "Say one name."."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    (predictor,) = program.predictors()
    predictor.signature = predictor.signature.with_instructions("Say one name.")
    optimizer = SettingsSearch(objective="evidence_recall", names=["search.speaker"], num_trials=10)

    tuned = compile_settings(program, optimizer)

    (tuned_predictor,) = tuned.predictors()
    assert tuned_predictor.signature.instructions == "Say one name."
    assert tuned.config != program.config


def test_memories_are_written_once_if_only_the_reading_is_tuned() -> None:
    """The bounds say how often memories are written at most, and how many answers are asked for.

    The recall of evidence needs no answers.
    """
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(objective="evidence_recall", num_trials=10)

    with dspy.context(lm=language_model()):
        benchmark = Benchmark.from_examples(QUESTIONS)
        job = plan_job(program, benchmark, QUESTIONS, CompileConfig.of_object(optimizer))
        bounds = optimizer.call_bounds(job)

    assert bounds.memory_writings.high == 1
    assert bounds.answers.high == 0


def test_memories_are_written_for_every_trial_if_a_setting_of_the_writer_is_named() -> None:
    """`max_words` is the length of the summary that is the memory of this method."""
    program = build("recursive-summary")
    optimizer = SettingsSearch(names=["max_words"], num_trials=10)

    with dspy.context(lm=language_model()):
        benchmark = Benchmark.from_examples(QUESTIONS)
        job = plan_job(program, benchmark, QUESTIONS, CompileConfig.of_object(optimizer))
        bounds = optimizer.call_bounds(job)

    # The start, ten trials, and one to undo the only change, with eight questions each.
    assert bounds.memory_writings.high == 1 + 10 + 1
    assert bounds.answers.high == (1 + 10 + 1) * 8


# What is refused before anything is paid.


@pytest.mark.parametrize(
    ("method", "optimizer", "questions", "message"),
    [
        pytest.param(
            "turn-rag",
            SettingsSearch(names=["kk"]),
            QUESTIONS,
            "names: 'kk' is no setting of turn-rag that can be tuned; these can: k, hybrid",
            id="unknown name",
        ),
        pytest.param(
            "pgr",
            SettingsSearch(names=["strategy"]),
            QUESTIONS,
            "names: 'strategy' is no setting of pgr that can be tuned",
            id="setting that changes a prompt",
        ),
        pytest.param(
            "no-memory",
            SettingsSearch(),
            QUESTIONS,
            "no-memory has no setting that can be tuned; choose another method",
            id="no settings",
        ),
        pytest.param(
            "recursive-summary",
            SettingsSearch(),
            QUESTIONS,
            r"settings that change how memories are written \(max_words.*names=\['max_words'\]",
            id="settings of the writer alone",
        ),
        pytest.param(
            "turn-rag",
            SettingsSearch(objective="evidence_recall"),
            [question_about("jazz", evidence_ids=())],
            "objective = 'evidence_recall': no training question names its evidence",
            id="no evidence",
        ),
        pytest.param(
            "turn-rag",
            SettingsSearch(costs=["search_milliseconds"]),
            QUESTIONS,
            "costs = 'search_milliseconds': the time of a search is never the same twice",
            id="times beside answers",
        ),
        pytest.param(
            "turn-rag",
            SettingsSearch(num_trials=0),
            QUESTIONS,
            "num_trials = 0: it is 1 or more",
            id="no trials",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    method: str, optimizer: SettingsSearch, questions: Sequence[dspy.Example], message: str
) -> None:
    """`names` are the settings to tune, and `objective` is what the search maximizes."""
    with pytest.raises(UserError, match=message):
        compile_settings(build(method), optimizer, questions)


class AnswersItself(dspy.Module):
    """A module of a user's that answers without a memory of ours."""

    def forward(self, history: Any, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer="Monk")


def test_settings_of_a_module_of_the_user_are_refused() -> None:
    """The program is a module of the user's, without a memory of ours."""
    with pytest.raises(UserError, match="a system of your own has no settings that can be tuned"):
        mempiler.compile(
            AnswersItself(),
            trainset=QUESTIONS,
            valset=DEV_QUESTIONS,
            optimizer="settings",
            lm="offline",
            progress=False,
        )


# A whole run.


def tune(**options: Any) -> mempiler.CompileResult:
    """Tune `search.speaker` by the words of the answer in what is recalled."""
    return mempiler.compile(
        build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER),
        trainset=QUESTIONS,
        valset=DEV_QUESTIONS,
        metric="support",
        optimizer=SettingsSearch(names=["search.speaker"], num_trials=10),
        lm="offline",
        min_n=8,
        progress=False,
        **options,
    )


@pytest.fixture(scope="module")
def result() -> mempiler.CompileResult:
    """The result of a run that tunes `search.speaker`, which is 0 in the program before."""
    return tune()


def test_a_tuned_program_is_kept_by_the_dev_questions_and_loads_with_its_settings(
    result: mempiler.CompileResult,
) -> None:
    """In the dev questions, too, Ann's turn is the evidence."""
    assert result.promoted
    assert result.before.score == 0.0
    assert result.after.score == 1.0
    assert result.usage["calls"]["task"] == 0
    (note,) = result.optimizer_problems.notes
    assert note.startswith("settings: search.speaker 0.0 -> ")
    loaded = load(result.folder)
    assert loaded.config == result.program.config
    assert recalled_ids(loaded, DEV_QUESTIONS[0]) == ["ann"]


def test_a_resumed_run_comes_to_the_same_program(result: mempiler.CompileResult) -> None:
    """A run keeps what it has tried."""
    resumed = tune(resume=result.run.name)

    assert resumed.program.config == result.program.config
    assert resumed.frontier == result.frontier


def test_the_page_of_the_run_shows_the_settings_of_each_candidate(
    result: mempiler.CompileResult,
) -> None:
    """The page lists all values of `search.speaker` that were tried."""
    page = (result.run / "report.html").read_text(encoding="utf-8")

    points = [point for point in result.frontier if point.settings]
    assert points
    for point in points:
        assert f"search.speaker = {point.settings['search.speaker']}" in page


def test_a_limit_ends_the_search_with_the_best_values_so_far(compile_turn_rag: Any) -> None:
    """The calls suffice for the start on the training questions, and not for a second trial.

    A trial whose calls were refused would count the missing answers as wrong.
    """
    optimizer = SettingsSearch(names=["k"], num_trials=10)

    result = compile_turn_rag(MarkerModel(), optimizer, max_calls=60)

    assert result.stopped
    (note,) = result.optimizer_problems.notes
    assert note == "settings: nothing was better than the starting values (sets tried: 1)"
