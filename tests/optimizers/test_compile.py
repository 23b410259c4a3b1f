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
    """A scripted model that stores every turn as a fact, and answers "the marker": rightly."""

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


def changed_prompts(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names of the predictors whose states differ."""
    return {name for name in before if before[name] != after[name]}


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
def test_a_compile_of_a_stage_changes_only_the_prompts_of_this_stage(
    scripted, always_right, make_history, stage, expected
):
    """Memory-R2 has three prompts: two write memories, and one reads them to answer."""
    program = new_memory_r2()
    states_before = predictor_states(program)
    examples = questions_on_turns(make_history(4), ["D1:2", "D2:5", "D4:1"])

    compiled = compile_on(scripted(always_right), program, examples, stage=stage)

    assert changed_prompts(states_before, predictor_states(compiled)) == expected
    # `compiled` is a copy: the program itself is not changed.
    assert predictor_states(program) == states_before


def test_the_demos_of_writing_prompts_show_sessions_with_the_evidence_of_a_question(
    scripted, always_right, make_history
):
    """The history has eight sessions. The evidence of the questions is in D2, D4 and D7.

    A demo of a prompt that writes is one of its calls. Calls about other sessions helped nobody.
    """
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


class RightTheSecondTime:
    """A model that answers each question wrongly the first time, and rightly the second time."""

    def __init__(self, fact_replies: Any) -> None:
        self.fact_replies = fact_replies
        self.answered_questions: list[str] = []

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any]:
        reply = self.fact_replies(kind, text, n)
        if kind in ("facts", "operations"):
            return reply

        question = text.rsplit("question-", 1)[1][:3]
        self.answered_questions.append(question)
        is_second_time = self.answered_questions.count(question) > 1
        return {**reply, "answer": "the marker" if is_second_time else "wrong"}


@pytest.mark.parametrize(
    ("rounds", "demo_count", "writings"),
    [
        pytest.param(1, 0, 1, id="one round"),
        pytest.param(2, 2, 2, id="two rounds"),
    ],
)
def test_a_second_round_writes_the_memory_anew_and_asks_questions_again(
    scripted, fact_replies, make_history, rounds, demo_count, writings
):
    """A call becomes a demo only if the answer is right, which needs a second round here.

    To write the memory takes two calls for operations, one for each half of the only session.
    """
    lm = scripted(RightTheSecondTime(fact_replies))
    examples = questions_on_turns(make_history(1), ["D1:2", "D1:5"])
    settings = {"max_rounds": rounds, "max_labeled_demos": 0}

    compiled = compile_on(lm, new_memory_r2(), examples, settings=settings)

    assert len(bootstrapped_demos(compiled, "task.answer")) == demo_count
    assert lm.engine.calls["operations"] == 2 * writings


def test_unanswerable_questions_are_not_trained_on(scripted, always_right, make_history):
    """LoCoMo's questions of category 5 have no answer in the history, and its score omits them.

    Every question names its category, as in "question-5-0".
    """
    history = make_history(1)
    answerable = questions_on_turns(history, ["D1:1"] * 2, category="4")
    unanswerable = questions_on_turns(history, ["D1:1"] * 6, category="5")
    lm = scripted(always_right)

    compiled = compile_on(lm, new_turn_rag(), [*answerable, *unanswerable])

    assert len(lm.engine.prompts) > 0
    for _, prompt in lm.engine.prompts:
        assert "question-5" not in prompt
    for demo in compiled.task.answer.demos:
        assert "question-5" not in demo.question


def test_a_compile_on_unanswerable_questions_alone_is_refused(scripted, always_right, make_history):
    """LoCoMo's questions of category 5 have no answer in the history, and its score omits them."""
    unanswerable = questions_on_turns(make_history(1), ["D1:1"] * 3, category="5")

    with pytest.raises(UserError, match="training questions that count for the score, there are 0"):
        compile_on(scripted(always_right), new_turn_rag(), unanswerable)


def answer_only_question_1(kind: str, text: str, n: int) -> dict[str, str]:
    """Script a model that is right about question 4-1 alone."""
    question = text.rsplit("## question", 1)[1]
    return {"answer": "the marker" if "question-4-1" in question else "a stone"}


def test_a_call_with_a_wrong_answer_does_not_become_a_demo(scripted, make_history):
    """The right answer to all four questions is "the marker". The model knows it for 4-1 alone."""
    lm = scripted(answer_only_question_1)
    examples = questions_on_turns(make_history(1), ["D1:1"] * 4)
    only_demos_of_calls = {"max_labeled_demos": 0}

    compiled = compile_on(lm, new_turn_rag(), examples, settings=only_demos_of_calls)

    (demo,) = compiled.task.answer.demos
    assert demo.question == "Who saw Oslo with 1, of question-4-1?"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param({"auto": "huge"}, "auto = 'huge': Input should be 'light'", id="a word"),
        pytest.param({"use_merge": "no"}, "use_merge = 'no'", id="a text for a boolean"),
        pytest.param(
            {"sampling_strategy": "PxNSampling(2, 3)"},
            r"it takes an object in Python, .*Gepa\(extra=",
            id="a text for an object",
        ),
        pytest.param(
            {"stop_callbacks": ["NoImprovementStopper(5)"]},
            r"it takes an object in Python, .*Gepa\(extra=",
            id="a text for an object in a list",
        ),
        pytest.param(
            {"acceptance_criterion": "any"},
            "or 'strict_improvement', or 'improvement_or_equal'",
            id="a word for a rule",
        ),
        pytest.param(
            {"max_metric_calls": "many"},
            "max_metric_calls = 'many': Input should be a valid integer",
            id="a text for a number",
        ),
        pytest.param(
            {"max_metric_calls": 0}, "max_metric_calls = 0: it is 1 or more", id="no calls"
        ),
        pytest.param(
            {"max_metric_calls": 9, "auto": "light"},
            "takes one of auto, max_metric_calls",
            id="two budgets",
        ),
        pytest.param({"use_wandb": True}, "no setting 'use_wandb'", id="an unknown name"),
    ],
)
def test_a_wrong_setting_of_gepa_is_refused_before_any_call(
    scripted, always_right, make_history, settings, problem
):
    """GEPA is an optimizer of another library, which would notice some of this only later."""
    lm = scripted(always_right)
    examples = questions_on_turns(make_history(1), ["D1:1"] * 6)

    with pytest.raises(UserError, match=problem):
        compile_on(lm, new_turn_rag(), examples, optimizer="gepa", settings=settings)

    assert lm.engine.prompts == []


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        pytest.param(
            {"optimizer": "bootstrap", "settings": {"max_rounds": True}},
            "max_rounds = True: Input should be",
            id="a boolean for a number",
        ),
        pytest.param(
            {"optimizer": "better-together", "settings": {"strategy": "knn -> nothing"}},
            "nothing",
            id="a sequence with an unknown optimizer",
        ),
        pytest.param(
            {"optimizer": "better-together", "settings": {"strategy": "knn -> better-together"}},
            "cannot hold itself",
            id="a sequence within itself",
        ),
        pytest.param(
            {"optimizer": "finetune"}, "cannot fine-tune", id="a model that cannot be trained"
        ),
    ],
)
def test_an_optimizer_that_cannot_work_is_refused_before_any_call(
    scripted, always_right, make_history, config, problem
):
    """The optimizer `better-together` runs a sequence of others, as its setting says."""
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
        lm = scripted(always_right)
        examples = questions_on_turns(make_history(4), ["D1:1"] * 6)
        with pytest.raises(UserError, match="arguments are noted"):
            compile_on(lm, new_turn_rag(), examples, optimizer="gepa", settings=settings)
        return arguments

    return compile_with_gepa


def test_settings_are_passed_to_the_library_gepa(arguments_of_gepa):
    """In Python a setting may be an object of the library, such as a rule when to stop."""
    arguments = arguments_of_gepa(
        reflection_minibatch_size=2,
        sampling_strategy=PxNSampling(2, n=3),
        stop_callbacks=[NoImprovementStopper(5)],
    )

    assert arguments["reflection_minibatch_size"] == 2
    assert arguments["sampling_strategy"].p == 2
    assert arguments["sampling_strategy"].n == 3
    assert isinstance(arguments["stop_callbacks"][0], NoImprovementStopper)
    # The default of a setting that is not given.
    assert arguments["max_metric_calls"] == 10


@pytest.fixture
def seeds_of_mipro(monkeypatch) -> list[int]:
    """The seeds by which DSPy's optimizer MIPRO draws. Each compile ends there with an error."""
    seeds: list[int] = []

    def note_seed(teleprompter: Any, number: int) -> None:
        seeds.append(number)
        raise UserError("seed is noted")

    monkeypatch.setattr(dspy.MIPROv2, "_set_random_seeds", note_seed)
    return seeds


@pytest.mark.parametrize("seed", [0, 3])
def test_mipro_draws_by_the_seed_of_the_run(
    scripted, always_right, make_history, seeds_of_mipro, seed
):
    """DSPy takes a seed of 0 for none and then draws by 9, so it is not enough to pass the seed."""
    examples = questions_on_turns(make_history(4), ["D1:1"] * 6)

    with pytest.raises(UserError, match="seed is noted"):
        compile_on(scripted(always_right), new_turn_rag(), examples, optimizer="mipro", seed=seed)

    assert seeds_of_mipro == [seed]


class StopAtOnce:
    """A rule by which GEPA stops before its first proposal."""

    def __call__(self, state: Any) -> bool:
        return True


@pytest.fixture
def warnings_of_gepa(
    scripted, always_right, make_history, caplog
) -> Callable[[int, int | None], list[str]]:
    """A function that compiles with GEPA, and returns our warnings.

    Its arguments are the setting `max_metric_calls`, and the limit of calls of the run.
    """

    def compile_with_gepa(max_metric_calls: int, max_calls: int | None) -> list[str]:
        lm = scripted(always_right, guard=BudgetGuard(Limits(max_calls=max_calls)))
        examples = questions_on_turns(make_history(4), ["D1:1"] * 6)
        settings = {"max_metric_calls": max_metric_calls, "stop_callbacks": [StopAtOnce()]}
        compile_on(lm, new_turn_rag(), examples, optimizer="gepa", settings=settings)
        return [record.getMessage() for record in caplog.records if record.name == "mempiler"]

    return compile_with_gepa


@pytest.mark.parametrize(
    ("max_metric_calls", "max_calls", "warning"),
    [
        pytest.param(
            8, None, "one proposal at most (max_metric_calls = 8 with 2 questions", id="one"
        ),
        pytest.param(2, None, "no proposal (max_metric_calls = 2", id="none"),
        pytest.param(
            99, 9, "one proposal at most (the 9 calls that are left", id="one, by the run's limit"
        ),
    ],
)
def test_the_user_is_warned_if_the_budget_of_gepa_is_too_small_for_two_proposals(
    warnings_of_gepa, max_metric_calls, max_calls, warning
):
    """GEPA proposes prompts and scores them. With one proposal it hardly finds a better one.

    Its budget is `max_metric_calls` answers, or the calls that the limit of the run leaves.
    """
    (message,) = warnings_of_gepa(max_metric_calls, max_calls)

    assert warning in message


@pytest.mark.parametrize(
    ("max_metric_calls", "max_calls"),
    [pytest.param(9, None, id="9 answers"), pytest.param(99, 10, id="10 calls of the run")],
)
def test_the_user_is_not_warned_if_the_budget_of_gepa_is_just_enough_for_two_proposals(
    warnings_of_gepa, max_metric_calls, max_calls
):
    assert warnings_of_gepa(max_metric_calls, max_calls) == []


def test_what_an_optimizer_of_dspy_leaves_in_a_program_is_removed(make_history):
    """An optimizer may leave a model with its key, other programs, and whole histories."""
    program = new_memory_r2()
    compiled = program.staged("read")
    compiled.set_lm(dspy.LM("openai/x", api_key="sk-secret"))
    compiled.candidate_programs = ["left by an optimizer"]
    compiled.task.answer.demos = [
        dspy.Example(question="What?", answer="this"),
        dspy.Example(history=make_history(1)),
    ]

    cleaned = clean_program(compiled, program)

    assert [predictor.lm for predictor in cleaned.all_predictors().values()] == [None] * 3
    assert not hasattr(cleaned, "candidate_programs")
    assert [demo.question for demo in cleaned.task.answer.demos] == ["What?"]
    # While the stage "read" was compiled, only the prompt that answers could be seen.
    names = {name for name, _ in cleaned.named_predictors()}
    assert names == {"method.writer.extract_facts", "method.writer.manage", "task.answer"}


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


def holds_start_program(out: Path) -> bool:
    """Return whether a folder holds the program as it was before the compile."""
    is_compiled = bool(read_manifest(out).optimizer)
    has_demos = any(predictor.demos for predictor in load(out).all_predictors().values())
    return not is_compiled and not has_demos


def dies_after(answered_calls: int) -> Callable[[int, str], str | None]:
    """Return a script for a stub server that dies after it has answered so many calls."""

    def answer_or_die(request_number: int, prompt: str) -> str | None:
        return "dead" if request_number > answered_calls else None

    return answer_or_die


def number_of_questions(evaluation: dict[str, Any]) -> int:
    """Return how many questions were asked, those outside the headline score included."""
    return sum(category["n"] for category in evaluation["by"].values())


def answer_of(out: Path, history: Any) -> str:
    """Return what the program in a folder answers to a question, with the offline engine."""
    with dspy.context(lm=language_model("offline")):
        return load(out)(history=history, question="Who saw Quito?").answer


@each_optimizer
def test_if_the_endpoint_dies_while_the_optimizer_runs_the_start_program_is_saved(
    stub, mempiler_cli, tmp_path, optimizer
):
    """Four calls score the start program. The endpoint dies three calls later.

    The exit code 3 says that the endpoint is gone, and the message how to resume the run.
    """
    server = stub(dies_after(4 + 3))

    command = mempiler_cli(server, *compile_command(optimizer, tmp_path / "out"), threads=2)

    assert command.code == 3
    assert command.out == ""
    assert command.resumable_run
    assert server.answered == 4 + 3
    assert holds_start_program(tmp_path / "out")


def calls_of_compile(server: Any, mempiler_cli: Any, folder: Path) -> int:
    """Compile with the optimizer `bootstrap`, and return how many calls it took.

    The last eight calls answer test questions: four with the start program, four with the new one.
    """
    mempiler_cli(server, *compile_command("bootstrap", folder))
    return server.answered


def test_if_the_endpoint_dies_before_the_test_questions_the_start_program_is_saved(
    stub, mempiler_cli, tmp_path
):
    """The last eight calls of a compile answer test questions. The endpoint dies just before."""
    out = tmp_path / "out"
    all_calls = calls_of_compile(stub(), mempiler_cli, tmp_path / "healthy")
    server = stub(dies_after(all_calls - 8 - 1))

    command = mempiler_cli(server, *compile_command("bootstrap", out))

    assert command.code == 3
    assert command.out == ""
    assert server.answered == all_calls - 8 - 1
    assert holds_start_program(out)


def test_if_the_endpoint_dies_at_a_test_question_no_program_is_saved(stub, mempiler_cli, tmp_path):
    """The last eight calls of a compile answer test questions. Only three of them are answered.

    So one of four test questions to the start program has no answer, which is more than
    `--max-failure-rate` allows: the run is broken.
    """
    out = tmp_path / "out"
    all_calls = calls_of_compile(stub(), mempiler_cli, tmp_path / "healthy")
    server = stub(dies_after(all_calls - 8 + 3))

    command = mempiler_cli(server, *compile_command("bootstrap", out))

    assert command.code == 4
    assert command.out == ""
    assert server.answered == all_calls - 8 + 3
    assert not out.exists()


def scored_programs(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the scores of all programs on the test questions: start, new and refused program."""
    evaluations = [result["before"], result["after"]]
    if result["refused_candidate"] is not None:
        evaluations.append(result["refused_candidate"]["test"])
    return evaluations


@each_optimizer_that_asks
def test_a_budget_that_ends_the_optimizer_leaves_enough_calls_to_score_its_program(
    stub, mempiler_cli, make_history, tmp_path, optimizer
):
    """The limit of 18 calls leaves two to the optimizer.

    Four calls score the start program on the dev questions. Then twelve are reserved: four to score
    the new program on these, and four each to score both programs on the test questions.
    """
    out = tmp_path / "out"
    server = stub()

    command = mempiler_cli(server, *compile_command(optimizer, out, "--max-calls", "18"), threads=4)

    assert command.code == 0
    result = command.printed_json
    assert result["stopped"] == "max-calls 18, less what scoring needs"
    assert len(server.texts) <= 18
    assert server.answered == len(server.texts)
    for evaluation in scored_programs(result):
        assert number_of_questions(evaluation) == 4
        assert evaluation["failures"] == 0
    assert answer_of(out, make_history(2))


@pytest.mark.parametrize(
    ("optimizer", "max_calls", "scored_test_questions"),
    [
        ("mipro", 3, 0),
        ("mipro", 6, 2),
        pytest.param("labeled", 6, 0, marks=pytest.mark.slow),
        pytest.param("knn", 6, 0, marks=pytest.mark.slow),
    ],
)
def test_a_budget_that_ends_the_scoring_leaves_the_start_program(
    stub, mempiler_cli, make_history, tmp_path, optimizer, max_calls, scored_test_questions
):
    """The first four calls score the start program on the dev questions.

    Of six calls none is left to `mipro`, so the last two answer test questions with the start
    program. `labeled` and `knn` need no calls, so the last two answer dev questions with theirs.
    """
    out = tmp_path / "out"
    server = stub()
    options = ["--adapter", "chat", "--max-calls", str(max_calls)]

    command = mempiler_cli(server, *compile_command(optimizer, out, *options))

    assert command.code == 0
    assert len(server.texts) == max_calls
    result = command.printed_json
    assert result["stopped"] == f"max-calls {max_calls}"
    assert number_of_questions(result["before"]) == scored_test_questions
    assert result["promoted"] is False
    assert holds_start_program(out)
    assert answer_of(out, make_history(2))


def test_a_compile_with_a_budget_of_0_calls_is_broken(stub, mempiler_cli, tmp_path):
    """Nothing was evaluated."""
    server = stub()
    options = ["--adapter", "chat", "--max-calls", "0"]

    command = mempiler_cli(server, *compile_command("mipro", tmp_path / "out", *options))

    assert command.code == 4
    assert server.texts == []
    assert holds_start_program(tmp_path / "out")
