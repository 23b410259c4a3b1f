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
from mempiler.optimizers.call_bounds import CallBounds
from mempiler.optimizers.compile import CompileConfig, compile_program, plan_job
from mempiler.optimizers.history import CandidateHistory
from mempiler.programs.program import MemoryProgram
from mempiler.records import Session, Turn
from mempiler.runs.api import make_compilation

from ..command_line import RunCommand
from .marker_model import MarkerModel

TRAIN_TOPICS = ("jazz", "bread", "chess", "Lisbon", "tulips", "whales", "clocks", "kites")
DEV_TOPICS = ("soups", "trains", "novels", "rivers", "candles", "maps", "shoes", "owls")

ONE_TURN_OF_ANY_SPEAKER: dict[str, Any] = {"k": 1, "search.speaker": 0}
"""Settings with which a search recalls one turn, Bob's: the weight of the speaker is 0."""


def tuning_of_speaker(**changes: Any) -> SettingsSearch:
    """Return an optimizer that tries ten weights of the speaker, so that the evidence is recalled.

    `changes` gives other settings of the optimizer.
    """
    settings: dict[str, Any] = {
        "objective": "evidence_recall",
        "names": ["search.speaker"],
        "num_trials": 10,
        **changes,
    }
    return SettingsSearch(**settings)


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
    """Return an empty record of what an optimizer tries."""
    return CandidateHistory(language_model().meter)


def recalled_ids(program: MemoryProgram, question: dspy.Example) -> list[str]:
    """Return the ids of the recalled turns: "ann" is the evidence, and "bob" is not."""
    return [hit.id for hit in program.recall_for(question).context.hits]


def test_the_search_finds_a_weight_of_the_speaker_with_which_the_evidence_is_recalled() -> None:
    """The evidence is Ann's turn. With a weight of 0 Bob's is recalled, who uses the same words."""
    program = build("turn-rag", **{"k": 1, "search.speaker": 0})
    assert recalled_ids(program, QUESTIONS[0]) == ["bob"]

    tuned = compile_settings(program, tuning_of_speaker(objective="evidence_recall"))

    assert recalled_ids(tuned, QUESTIONS[0]) == ["ann"]
    assert tuned.config["search"]["speaker"] > 0
    assert program.config["search"]["speaker"] == 0


def test_the_objective_support_needs_no_answers_of_a_model() -> None:
    """`support` looks for the answer in what is recalled. At first Bob's turn is, not Ann's."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)

    tuned = compile_settings(program, tuning_of_speaker(objective="support"))

    assert recalled_ids(tuned, QUESTIONS[0]) == ["ann"]


def test_a_setting_whose_change_gains_nothing_gets_its_old_value_back() -> None:
    """No question names a month or a year, so only a weight of the speaker helps."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = tuning_of_speaker(names=["search.month", "search.speaker", "search.year"])

    tuned = compile_settings(program, optimizer)

    speaker_weight = tuned.config["search"]["speaker"]
    assert speaker_weight > 0
    assert tuned.config == build("turn-rag", k=1, **{"search.speaker": speaker_weight}).config


# How much may be recalled.


def test_by_default_no_more_is_recalled_than_with_the_starting_settings() -> None:
    """The start recalls one turn, without the evidence. Two turns would hold it, but cost more."""
    program = build("turn-rag", **{"k": 1, "search.speaker": 0})

    tuned = compile_settings(program, tuning_of_speaker(names=["k"]))

    assert tuned.config["k"] == 1


def test_starting_settings_that_recall_more_than_max_context_tokens_are_replaced() -> None:
    """The start recalls two turns of about fifteen tokens each, and 20 tokens are allowed."""
    program = build("turn-rag", k=2)
    optimizer = tuning_of_speaker(names=["k"], num_trials=20, max_context_tokens=20)

    tuned = compile_settings(program, optimizer)

    assert tuned.config["k"] == 1


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param("settings", id="the name of the optimizer"),
        pytest.param(SettingsSearch(num_trials=7), id="an optimizer object"),
    ],
)
def test_the_option_max_context_tokens_of_a_compile_is_a_setting_of_the_search(
    optimizer: str | SettingsSearch,
) -> None:
    compile_config = make_compilation(optimizer, max_context_tokens=500)

    search = compile_config.make_optimizer()

    assert isinstance(search, SettingsSearch)
    assert search.max_context_tokens == 500
    assert compile_config.recorded_settings()["max_context_tokens"] == 500


def test_the_option_max_context_tokens_replaces_the_setting_of_the_same_name() -> None:
    """The settings may come from a configuration file, and the option from the command line."""
    settings = {"max_context_tokens": 500, "num_trials": 7}

    compile_config = make_compilation("settings", settings, max_context_tokens=300)

    assert compile_config.settings == {"max_context_tokens": 300, "num_trials": 7}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--max-context-tokens", "500"], id="option"),
        pytest.param(["--config", "run.toml"], id="configuration file"),
    ],
)
def test_max_context_tokens_is_refused_with_an_optimizer_that_tunes_no_settings(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    """The default optimizer is `bootstrap`."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[optimizer]\nmax_context_tokens = 500\n")

    code, _, err = cli("compile", "turn-rag", "--benchmark", "locomo", *options)

    assert code == 2
    assert "max_context_tokens: bootstrap does not limit what is recalled" in err
    assert "take --optimizer settings" in err


# Several objectives.


@pytest.mark.parametrize("cost", ["context_tokens", "search_milliseconds"])
def test_a_candidate_that_costs_more_is_kept_beside_the_start_if_it_scores_better(
    cost: Any,
) -> None:
    """The start recalls one turn, without the evidence. Two turns hold it, and cost more tokens."""
    program = build("turn-rag", **{"k": 1, "search.speaker": 0})
    optimizer = tuning_of_speaker(costs=[cost], names=["k"], num_trials=20, max_context_tokens=200)
    history = new_history()

    compile_settings(program, optimizer, history=history)

    start, *others = history.frontier
    best = max(others, key=lambda point: point.score)
    assert start.score == 0.0
    assert best.score == 1.0
    assert best.settings["k"] > 1
    assert best.on_frontier
    assert start.prompt_tokens is not None
    assert best.prompt_tokens is not None
    assert best.prompt_tokens > start.prompt_tokens
    assert (best.search_milliseconds is not None) == (cost == "search_milliseconds")


# The prompts and the writing.


def test_a_search_for_settings_keeps_the_prompts_that_were_compiled_before() -> None:
    """An earlier compile has given the prompt the instruction "Say one name."."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    (predictor,) = program.predictors()
    predictor.signature = predictor.signature.with_instructions("Say one name.")

    tuned = compile_settings(program, tuning_of_speaker())

    (tuned_predictor,) = tuned.predictors()
    assert tuned_predictor.signature.instructions == "Say one name."
    assert tuned.config != program.config


def bounds_of(program: MemoryProgram, optimizer: SettingsSearch) -> CallBounds:
    """Return how often a search on the eight questions writes memories and answers, at most."""
    with dspy.context(lm=language_model()):
        benchmark = Benchmark.from_examples(QUESTIONS)
        job = plan_job(program, benchmark, QUESTIONS, CompileConfig.of_object(optimizer))
        return optimizer.call_bounds(job)


def test_memories_are_written_once_if_only_settings_of_the_search_are_tuned() -> None:
    """To see whether the evidence is recalled, no question has to be answered."""
    program = build("turn-rag", **ONE_TURN_OF_ANY_SPEAKER)
    optimizer = SettingsSearch(objective="evidence_recall", num_trials=10)

    bounds = bounds_of(program, optimizer)

    assert bounds.memory_writings.high == 1
    assert bounds.answers.high == 0


def test_memories_are_written_for_every_trial_if_a_setting_of_the_writer_is_tuned() -> None:
    """The memory of `recursive-summary` is a summary, whose length is the setting `max_words`.

    The search tries the start and ten other values, and at the end it tries to undo the change.
    """
    program = build("recursive-summary")
    optimizer = SettingsSearch(names=["max_words"], num_trials=10)

    bounds = bounds_of(program, optimizer)

    trials = 1 + 10 + 1
    assert bounds.memory_writings.high == trials
    assert bounds.answers.high == trials * len(QUESTIONS)


# What is refused before anything is paid.


@pytest.mark.parametrize(
    ("method", "optimizer", "message"),
    [
        pytest.param(
            "turn-rag",
            SettingsSearch(names=["kk"]),
            "names: 'kk' is no setting of turn-rag that can be tuned; these can: k, hybrid",
            id="an unknown setting",
        ),
        pytest.param(
            "pgr",
            SettingsSearch(names=["strategy"]),
            "names: 'strategy' is no setting of pgr that can be tuned",
            id="a setting that changes a prompt",
        ),
        pytest.param(
            "no-memory",
            SettingsSearch(),
            "no-memory has no setting that can be tuned; choose another method",
            id="a method without settings",
        ),
        pytest.param(
            "recursive-summary",
            SettingsSearch(),
            r"settings that change how memories are written \(max_words.*names=\['max_words'\]",
            id="a method with settings of the writer alone",
        ),
        pytest.param(
            "turn-rag",
            SettingsSearch(costs=["search_milliseconds"]),
            "costs = 'search_milliseconds': the time of a search is never the same twice",
            id="a cost in time beside paid answers",
        ),
        pytest.param(
            "turn-rag",
            SettingsSearch(num_trials=0),
            "num_trials = 0: it is 1 or more",
            id="no trials",
        ),
    ],
)
def test_a_search_that_cannot_work_is_refused(
    method: str, optimizer: SettingsSearch, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        compile_settings(build(method), optimizer)


def test_evidence_recall_cannot_be_maximized_if_no_question_names_its_evidence() -> None:
    without_evidence = [question_about("jazz", evidence_ids=())]
    optimizer = SettingsSearch(objective="evidence_recall")

    with pytest.raises(UserError, match="no training question names its evidence"):
        compile_settings(build("turn-rag"), optimizer, without_evidence)


class UsersModule(dspy.Module):
    """A module of a user's that answers without a memory of ours."""

    def forward(self, history: Any, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer="Monk")


def test_a_module_of_the_users_has_no_settings_that_can_be_tuned() -> None:
    with pytest.raises(UserError, match="a system of your own has no settings that can be tuned"):
        mempiler.compile(
            UsersModule(),
            trainset=QUESTIONS,
            valset=DEV_QUESTIONS,
            optimizer="settings",
            lm="offline",
            progress=False,
        )


# A whole run.


def tune(**options: Any) -> mempiler.CompileResult:
    """Tune `search.speaker`, which is 0 at the start, in a whole run without a model."""
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
def tuned_run() -> mempiler.CompileResult:
    """The result of a run that tunes `search.speaker`, which is 0 in the start program."""
    return tune()


def test_a_tuned_program_that_scores_better_on_the_dev_questions_is_kept_with_its_settings(
    tuned_run: mempiler.CompileResult,
) -> None:
    """Without an objective, the search maximizes the metric of the run, here `support`.

    The metric looks for the answer in what is recalled, and asks no model. Ann's turn has it.
    """
    assert tuned_run.promoted
    assert tuned_run.before.score == 0.0
    assert tuned_run.after.score == 1.0
    assert tuned_run.usage["calls"]["task"] == 0
    (note,) = tuned_run.optimizer_problems.notes
    assert note.startswith("settings: search.speaker 0.0 -> ")
    loaded = load(tuned_run.folder)
    assert loaded.config == tuned_run.program.config
    assert recalled_ids(loaded, DEV_QUESTIONS[0]) == ["ann"]


def test_a_resumed_run_comes_to_the_same_settings(tuned_run: mempiler.CompileResult) -> None:
    resumed = tune(resume=tuned_run.run.name)

    assert resumed.program.config == tuned_run.program.config
    assert resumed.frontier == tuned_run.frontier


def test_the_page_of_the_run_shows_all_values_that_were_tried(
    tuned_run: mempiler.CompileResult,
) -> None:
    page = (tuned_run.run / "report.html").read_text(encoding="utf-8")

    tried = [point.settings["search.speaker"] for point in tuned_run.frontier if point.settings]
    assert tried
    for value in tried:
        assert f"search.speaker = {value}" in page


def test_a_search_that_reaches_the_limit_of_calls_keeps_the_best_values_so_far(
    compile_turn_rag: Any,
) -> None:
    """The calls suffice to score the start on the training questions, but not a second trial.

    That trial must not count, since the missing answers would make it look worse than it is.
    """
    optimizer = SettingsSearch(names=["k"], num_trials=10)

    result = compile_turn_rag(MarkerModel(), optimizer, max_calls=60)

    assert result.stopped
    (note,) = result.optimizer_problems.notes
    assert note == "settings: nothing was better than the starting values (sets tried: 1)"
