"""Compiling: demos of the right calls, refused settings, endpoints that die, and spent budgets.

A compile lets an optimizer change the prompts of a program, which consists of predictors: each has
a prompt. The program before is the start. Its stage "write" are the predictors that write memories,
and "read" the other ones. The optimizer learns from training questions. Then dev questions decide
whether the new program replaces the start, and test questions measure both.

A demo is an example that a prompt shows. The default optimizer, `bootstrap`, copies demos from
calls of the program that led to a right answer (bootstrapped demos), and makes others of training
questions and their gold answers (labelled demos).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import gepa as gepa_package
import pytest
from gepa.strategies.proposal_sampling import PxNSampling
from gepa.utils.stop_condition import NoImprovementStopper
from mempiler import UserError, build, load
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.optimizers.compile import CompileConfig, clean_program, compile_program
from mempiler.programs.program import MemoryProgram
from mempiler.programs.state import dump_predictor
from mempiler.runs.manifest import read_manifest

from ..runs.evaluations import locomo
from .conftest import PLACES, SMALL_SETTINGS, question_about, setting_options

WRITERS = {"method.writer.extract_facts", "method.writer.manage"}
"""The writing predictors of Memory-R2."""
READERS = {"task.answer"}


def new_memory_r2() -> MemoryProgram:
    """Return Memory-R2, which writes each session of six turns in two chunks."""
    return build("memory-r2", embedder=embedder(), chunk_turns=3)


def new_turn_rag() -> MemoryProgram:
    """Return Turn RAG."""
    return build("turn-rag", embedder=embedder())


def questions_on_turns(
    history: Any, turn_ids: Sequence[str], category: str = "4"
) -> list[dspy.Example]:
    """Return a question about each of these turns; its gold answer is always "the marker".

    The first question of category 4 ends in "of question-4-0?", and the second one in
    "of question-4-1?".
    """
    examples: list[dspy.Example] = []
    for number, turn_id in enumerate(turn_ids):
        place = PLACES[int(turn_id[1]) % 8]
        text = f"Who saw {place} with {turn_id[3]}, of question-{category}-{number}?"
        example_id = f"{history.id}:{category}:{number}"
        examples.append(
            question_about(
                history, turn_id, category, id=example_id, answer="the marker", question=text
            )
        )
    return examples


def compile_on(
    lm: Any, program: MemoryProgram, examples: Sequence[dspy.Example], **config: Any
) -> MemoryProgram:
    """Compile a program on training questions; `config` has the fields of a CompileConfig."""
    with dspy.context(lm=lm):
        return compile_program(program, locomo(examples), examples, CompileConfig(**config))


@pytest.fixture
def always_right(fact_replies: Any) -> Callable[[str, str, int], dict[str, Any]]:
    """A scripted model that stores every turn as a fact, and answers every question rightly."""

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "facts":
            return fact_replies(kind, text, n)
        if kind == "operations":
            # The request itself stands behind its demos.
            request = text[text.rindex("[[ ## session_date ## ]]") :]
            return fact_replies(kind, request, n)
        return {**fact_replies(kind, text, n), "answer": "the marker"}

    return reply


def predictor_states(program: MemoryProgram) -> dict[str, Any]:
    """Return the instructions and demos of all predictors by name."""
    return {
        name: dump_predictor(predictor).model_dump()
        for name, predictor in program.all_predictors().items()
    }


def bootstrapped_demos(program: MemoryProgram, name: str) -> list[Any]:
    """Return the demos of a predictor that come from its own calls."""
    return [demo for demo in program.all_predictors()[name].demos if demo.get("augmented")]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("write", {"method.writer.extract_facts", "method.writer.manage"}),
        ("read", {"task.answer"}),
        ("all", {"method.writer.extract_facts", "method.writer.manage", "task.answer"}),
    ],
    ids=["write", "read", "all"],
)
def test_a_stage_changes_its_predictors_and_no_other(
    scripted, always_right, make_history, stage, expected
):
    """Memory-R2 has three predictors: two write memories, and one answers."""
    program = new_memory_r2()
    states_before = predictor_states(program)
    examples = questions_on_turns(make_history(4), ["D1:2", "D2:5", "D4:1"])

    compiled = compile_on(scripted(always_right), program, examples, stage=stage)

    states_after = predictor_states(compiled)
    changed = {name for name in states_before if states_before[name] != states_after[name]}
    assert changed == expected
    # `compiled` is a copy: the program itself is not changed.
    assert predictor_states(program) == states_before


def test_writing_demos_come_from_the_sessions_of_the_answered_facts(
    scripted, always_right, make_history
):
    """The history has eight sessions, D1 to D8; the questions are about turns of D2, D4 and D7."""
    evidence = ["D2:5", "D4:1", "D7:3"]
    examples = questions_on_turns(make_history(8), evidence)

    compiled = compile_on(scripted(always_right), new_memory_r2(), examples, stage="write")

    extraction_demos = bootstrapped_demos(compiled, "method.writer.extract_facts")
    assert len(extraction_demos) == 3
    for demo in extraction_demos:
        assert any(f"[{turn_id}]" in demo.dialogue for turn_id in evidence)

    management_demos = bootstrapped_demos(compiled, "method.writer.manage")
    assert len(management_demos) == 3
    for demo in management_demos:
        turns_of_facts = {fact.turn_id for fact in demo.new_facts}
        assert turns_of_facts.intersection(evidence)


@pytest.mark.parametrize(
    ("rounds", "demo_count", "write_calls"),
    [
        # A memory takes two calls of the manager, one for each chunk.
        pytest.param(1, 0, 2, id="one round"),
        pytest.param(2, 2, 4, id="two rounds"),
    ],
)
def test_a_second_round_writes_the_memory_anew_and_tries_again(
    scripted, fact_replies, make_history, rounds, demo_count, write_calls
):
    """The model answers each question wrongly the first time, and rightly the second time.

    A call becomes a demo only if the answer is right.
    """
    answered_questions: list[str] = []

    def reply_rightly_the_second_time(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind in ("facts", "operations"):
            return fact_replies(kind, text, n)
        question = text.rsplit("question-", 1)[1][:3]
        answered_questions.append(question)
        is_second_time = answered_questions.count(question) > 1
        answer = "the marker" if is_second_time else "wrong"
        return {**fact_replies(kind, text, n), "answer": answer}

    lm = scripted(reply_rightly_the_second_time)
    examples = questions_on_turns(make_history(1), ["D1:2", "D1:5"])
    settings = {"max_rounds": rounds, "max_labeled_demos": 0}

    compiled = compile_on(lm, new_memory_r2(), examples, settings=settings)

    assert len(bootstrapped_demos(compiled, "task.answer")) == demo_count
    assert lm.engine.calls["operations"] == write_calls


def test_adversarial_questions_are_not_trained_on(scripted, always_right, make_history):
    """Questions of LoCoMo's category 5 have no answer in the history, and do not count."""
    history = make_history(1)
    answerable = questions_on_turns(history, ["D1:1"] * 2, category="4")
    adversarial = questions_on_turns(history, ["D1:1"] * 6, category="5")
    lm = scripted(always_right)

    compiled = compile_on(lm, new_turn_rag(), [*answerable, *adversarial])

    assert len(lm.engine.prompts) > 0
    for _, prompt in lm.engine.prompts:
        assert "question-5" not in prompt
    for demo in compiled.task.answer.demos:
        assert "question-5" not in demo.question


def test_adversarial_questions_alone_are_refused(scripted, always_right, make_history):
    """Adversarial questions have category 5. They do not count for the score of LoCoMo."""
    adversarial = questions_on_turns(make_history(1), ["D1:1"] * 3, category="5")

    with pytest.raises(UserError, match="training questions that count for the score, there are 0"):
        compile_on(scripted(always_right), new_turn_rag(), adversarial)


def test_answers_below_the_threshold_become_no_demos(scripted, make_history):
    """A call becomes a demo if its answer is right, which is "the marker" for every question.

    Of the questions 4-0 to 4-3 the model answers only 4-1 rightly.
    """

    def answer_only_question_1(kind: str, text: str, n: int) -> dict[str, str]:
        question = text.rsplit("## question", 1)[1]
        return {"answer": "the marker" if "question-4-1" in question else "a stone"}

    lm = scripted(answer_only_question_1)
    examples = questions_on_turns(make_history(1), ["D1:1"] * 4)
    only_from_calls = {"max_labeled_demos": 0}

    compiled = compile_on(lm, new_turn_rag(), examples, settings=only_from_calls)

    (demo,) = compiled.task.answer.demos
    assert demo.question == "Who saw Oslo with 1, of question-4-1?"


def gepa(**settings: Any) -> dict[str, Any]:
    """Return the fields of a CompileConfig for GEPA with some settings."""
    return {"optimizer": "gepa", "settings": settings}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"settings": {"max_rounds": True}}, "max_rounds = True: Input should be"),
        (gepa(auto="huge"), "auto = 'huge': Input should be 'light'"),
        (gepa(use_merge="no"), "use_merge = 'no'"),
        (
            gepa(sampling_strategy="PxNSampling(2, 3)"),
            r"it takes an object in Python, .*Gepa\(extra=",
        ),
        (
            gepa(stop_callbacks=["NoImprovementStopper(5)"]),
            r"it takes an object in Python, .*Gepa\(extra=",
        ),
        (gepa(acceptance_criterion="any"), "or 'strict_improvement', or 'improvement_or_equal'"),
        (
            gepa(max_metric_calls="many"),
            "max_metric_calls = 'many': Input should be a valid integer",
        ),
        (gepa(max_metric_calls=0), "max_metric_calls = 0: it is 1 or more"),
        (gepa(max_metric_calls=9, auto="light"), "takes one of auto, max_metric_calls"),
        ({"optimizer": "better-together", "settings": {"strategy": "knn -> nothing"}}, "nothing"),
        (gepa(use_wandb=True), "no setting 'use_wandb'"),
        ({"optimizer": "finetune"}, "cannot fine-tune"),
        (
            {"optimizer": "better-together", "settings": {"strategy": "knn -> better-together"}},
            "cannot hold itself",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_any_call(
    scripted, always_right, make_history, config, problem
):
    """Most cases have a wrong setting of GEPA, an optimizer of another library."""
    lm = scripted(always_right)
    examples = questions_on_turns(make_history(1), ["D1:1"] * 6)

    with pytest.raises(UserError, match=problem):
        compile_on(lm, new_turn_rag(), examples, **config)

    assert lm.engine.prompts == []


@pytest.fixture
def arguments_of_gepa(
    scripted, always_right, make_history, monkeypatch
) -> Callable[..., dict[str, Any]]:
    """A function that compiles with settings of GEPA; returns what the library is called with.

    The library is replaced, so that it does nothing.
    """

    def compile_with_gepa(**settings: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {}

        def note_arguments(**named: Any) -> None:
            arguments.update(named)
            raise UserError("arguments are noted")

        monkeypatch.setattr(gepa_package, "optimize", note_arguments)
        examples = questions_on_turns(make_history(4), ["D1:1"] * 6)
        with pytest.raises(UserError, match="arguments are noted"):
            compile_on(scripted(always_right), new_turn_rag(), examples, **gepa(**settings))
        return arguments

    return compile_with_gepa


def test_settings_reach_gepa(arguments_of_gepa):
    """GEPA is an optimizer of another library."""
    arguments = arguments_of_gepa(reflection_minibatch_size=2, use_merge=False)

    assert arguments["reflection_minibatch_size"] == 2
    assert arguments["use_merge"] is False
    # The default of the setting that is not given.
    assert arguments["max_metric_calls"] == 10


def test_objects_reach_gepa(arguments_of_gepa):
    """In Python a setting may be an object of the library, such as a rule when to stop."""
    arguments = arguments_of_gepa(
        sampling_strategy=PxNSampling(2, n=3),
        stop_callbacks=[NoImprovementStopper(5)],
        acceptance_criterion="improvement_or_equal",
    )

    assert arguments["sampling_strategy"].p == 2
    assert arguments["sampling_strategy"].n == 3
    (stopper,) = arguments["stop_callbacks"]
    assert isinstance(stopper, NoImprovementStopper)
    assert arguments["acceptance_criterion"] == "improvement_or_equal"


@pytest.mark.parametrize("seed", [0, 9, 3])
def test_mipro_draws_by_the_seed_of_the_run(
    scripted, always_right, make_history, monkeypatch, seed
):
    """MIPRO is an optimizer of DSPy that tries random combinations."""
    seeds: list[int] = []

    def note_seed(teleprompter: Any, number: int) -> None:
        seeds.append(number)
        raise UserError("seed is noted")

    # DSPy takes a seed of 0 for none and then draws by 9, so it is not enough to pass the seed.
    monkeypatch.setattr(dspy.MIPROv2, "_set_random_seeds", note_seed)
    examples = questions_on_turns(make_history(4), ["D1:1"] * 6)

    with pytest.raises(UserError, match="seed is noted"):
        compile_on(scripted(always_right), new_turn_rag(), examples, optimizer="mipro", seed=seed)

    assert seeds == [seed]


class StopAtOnce:
    """A rule by which GEPA stops before its first proposal."""

    def __call__(self, state: Any) -> bool:
        return True


@pytest.fixture
def warnings_of_gepa(
    scripted, always_right, make_history, caplog
) -> Callable[[int, int | None], list[str]]:
    """A function that compiles with GEPA, and returns our warnings.

    Its arguments are the setting `max_metric_calls`, and the limit of the run.
    """

    def compile_with_gepa(max_metric_calls: int, max_calls: int | None) -> list[str]:
        lm = scripted(always_right, guard=BudgetGuard(Limits(max_calls=max_calls)))
        examples = questions_on_turns(make_history(4), ["D1:1"] * 6)
        config = gepa(max_metric_calls=max_metric_calls, stop_callbacks=[StopAtOnce()])
        compile_on(lm, new_turn_rag(), examples, **config)
        return [record.getMessage() for record in caplog.records if record.name == "mempiler"]

    return compile_with_gepa


@pytest.mark.parametrize(
    ("max_metric_calls", "max_calls", "expected"),
    [
        (8, None, "one proposal at most (max_metric_calls = 8 with 2 questions"),
        (2, None, "no proposal (max_metric_calls = 2"),
        (99, 9, "one proposal at most (the 9 calls that are left"),
    ],
)
def test_gepa_warns_of_a_budget_for_one_proposal_or_none(
    warnings_of_gepa, max_metric_calls, max_calls, expected
):
    """GEPA proposes prompts and scores them. With one proposal it hardly finds a better one.

    Its budget is `max_metric_calls` answers, or the calls that the limit of the run leaves.
    """
    (warning,) = warnings_of_gepa(max_metric_calls, max_calls)
    assert expected in warning


@pytest.mark.parametrize(("max_metric_calls", "max_calls"), [(9, None), (99, 10)])
def test_gepa_does_not_warn_of_a_budget_for_two_proposals(
    warnings_of_gepa, max_metric_calls, max_calls
):
    """One answer less would be enough for one proposal only."""
    assert warnings_of_gepa(max_metric_calls, max_calls) == []


def test_what_an_optimizer_leaves_in_a_program_is_removed(make_history):
    """An optimizer of DSPy's may leave a model, odd demos, and other programs in it."""
    program = new_memory_r2()
    compiled = program.staged("read")
    compiled.set_lm(dspy.LM("openai/x", api_key="sk-secret"))
    compiled.task.answer.demos = [
        dspy.Example(question="What?", answer="this"),
        # A demo must not hold a whole history.
        dspy.Example(history=make_history(1)),
    ]
    compiled.candidate_programs = ["left by an optimizer"]

    cleaned = clean_program(compiled, program)

    assert not hasattr(cleaned, "candidate_programs")
    assert [predictor.lm for predictor in cleaned.all_predictors().values()] == [None] * 3
    assert [demo.question for demo in cleaned.task.answer.demos] == ["What?"]
    # It is no longer limited to a stage.
    assert {name for name, _ in cleaned.named_predictors()} == WRITERS | READERS


FAST_OPTIMIZERS = ("bootstrap", "gepa")


def for_each_optimizer(*names: str) -> pytest.MarkDecorator:
    """Run a test with each optimizer; with most of them it is slow."""
    cases: list[Any] = []
    for name in names:
        marks = [] if name in FAST_OPTIMIZERS else [pytest.mark.slow]
        cases.append(pytest.param(name, marks=marks))
    return pytest.mark.parametrize("optimizer", cases)


each_optimizer = for_each_optimizer(*SMALL_SETTINGS)
each_optimizer_that_asks = for_each_optimizer(
    *(name for name in SMALL_SETTINGS if name not in ("labeled", "knn"))
)


def compile_command(optimizer: str, out: Path, *more_options: str) -> list[str]:
    """Return the command that compiles Turn RAG into a folder."""
    return [
        *("compile", "turn-rag"),
        *("--optimizer", optimizer),
        *("--out", str(out)),
        *setting_options(SMALL_SETTINGS[optimizer]),
        *more_options,
    ]


def holds_uncompiled_program(out: Path) -> bool:
    """Return whether a folder holds the program as it was before the compile."""
    is_compiled = bool(read_manifest(out).optimizer)
    has_demos = any(predictor.demos for predictor in load(out).all_predictors().values())
    return not is_compiled and not has_demos


def number_of_questions(evaluation: dict[str, Any]) -> int:
    """Return how many questions were asked, those outside the headline score included."""
    return sum(category["n"] for category in evaluation["by"].values())


def answer_of(out: Path, history: Any) -> str:
    """Return what the program in a folder answers to a question, with the offline engine."""
    with dspy.context(lm=language_model("offline")):
        return load(out)(history=history, question="Who saw Quito?").answer


@each_optimizer
def test_if_the_endpoint_dies_during_the_optimizer_the_start_is_saved(
    stub, mempiler_cli, tmp_path, optimizer
):
    """Exit code 3 says that the endpoint is gone."""
    # Four calls score the start, and the optimizer makes three more.
    server = stub(lambda n, text: "dead" if n > 4 + 3 else None)

    command = mempiler_cli(server, *compile_command(optimizer, tmp_path / "out"), threads=2)

    assert command.code == 3
    assert command.out == ""
    assert command.resumable_run  # the message says how to resume it
    assert server.answered == 7
    assert holds_uncompiled_program(tmp_path / "out")


def calls_of_compile(server: Any, mempiler_cli: Any, folder: Path) -> int:
    """Compile with the optimizer `bootstrap`, and return how many calls it took."""
    mempiler_cli(server, *compile_command("bootstrap", folder))
    return server.answered


def test_if_the_endpoint_dies_before_the_test_questions_no_result_is_printed(
    stub, mempiler_cli, tmp_path
):
    """The last eight calls answer test questions: four of the start, four of the new program.

    The server dies one call before them.
    """
    out = tmp_path / "out"
    all_calls = calls_of_compile(stub(), mempiler_cli, tmp_path / "healthy")
    answered_calls = all_calls - 4 - 4 - 1
    server = stub(lambda n, text: "dead" if n > answered_calls else None)

    command = mempiler_cli(server, *compile_command("bootstrap", out))

    assert command.code == 3
    assert command.out == ""
    assert server.answered == answered_calls
    assert holds_uncompiled_program(out)


def test_if_the_endpoint_dies_at_the_last_test_question_of_the_start_no_result_is_printed(
    stub, mempiler_cli, tmp_path
):
    """The last eight calls answer test questions: four of the start, four of the new program.

    The server answers only the first three of them.
    """
    out = tmp_path / "out"
    all_calls = calls_of_compile(stub(), mempiler_cli, tmp_path / "healthy")
    answered_calls = all_calls - 4 - 4 + 3
    server = stub(lambda n, text: "dead" if n > answered_calls else None)

    command = mempiler_cli(server, *compile_command("bootstrap", out))

    # One of four test questions without an answer is more than `--max-failure-rate` allows.
    assert command.code == 4
    assert command.out == ""
    assert server.answered == answered_calls
    assert not out.exists()


@each_optimizer_that_asks
def test_a_budget_that_ends_the_optimizer_still_gives_a_scored_program(
    stub, mempiler_cli, make_history, tmp_path, optimizer
):
    """Of the 18 calls, four score the start on the dev questions, and twelve are reserved.

    Four of these score the new program there, and eight both programs on the test questions. So two
    are left to the optimizer.
    """
    out = tmp_path / "out"
    server = stub()

    command = mempiler_cli(server, *compile_command(optimizer, out, "--max-calls", "18"), threads=4)

    assert command.code == 0
    result = command.printed_json
    assert result["stopped"] == "max-calls 18, less what scoring needs"
    assert len(server.texts) <= 18
    assert server.answered == len(server.texts)

    evaluations = [result["before"], result["after"]]
    if result["refused_candidate"] is not None:
        # What is reserved is enough to score a refused program, too.
        evaluations.append(result["refused_candidate"]["test"])
    for evaluation in evaluations:
        assert number_of_questions(evaluation) == 4
        assert evaluation["failures"] == 0
    assert answer_of(out, make_history(2))


@pytest.mark.parametrize(
    ("optimizer", "max_calls", "scored_questions"),
    [
        ("mipro", 0, 0),
        ("mipro", 3, 0),
        ("mipro", 6, 2),
        pytest.param("labeled", 6, 0, marks=pytest.mark.slow),
        pytest.param("knn", 6, 0, marks=pytest.mark.slow),
    ],
)
def test_a_budget_that_ends_the_scoring_is_kept_exactly(
    stub, mempiler_cli, make_history, tmp_path, optimizer, max_calls, scored_questions
):
    """The first four calls score the start on the dev questions.

    `scored_questions` are the test questions that it was asked. `labeled` and `knn` compile without
    a call, and spend the rest on dev.
    """
    out = tmp_path / "out"
    server = stub()
    options = ["--adapter", "chat", "--max-calls", str(max_calls)]

    command = mempiler_cli(server, *compile_command(optimizer, out, *options))

    # Without any call nothing was evaluated.
    assert command.code == (4 if max_calls == 0 else 0)
    assert len(server.texts) == max_calls
    result = command.printed_json
    assert result["stopped"] == f"max-calls {max_calls}"
    assert number_of_questions(result["before"]) == scored_questions
    assert result["promoted"] is False
    assert holds_uncompiled_program(out)
    assert answer_of(out, make_history(2))
