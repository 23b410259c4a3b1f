"""Optimizers survive unreadable proposals; what they compile answers alike once it is loaded.

Some optimizers ask a model, the prompt LM, to propose better instructions. The `MarkerModel` of
these tests proposes `BETTER`, with which it answers all questions rightly, or text that cannot be
read. The start is the program before the compile. A better program is promoted: it replaces the
start.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import mempiler
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import build, load, save
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.errors import BrokenRunError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.compile import CompileConfig, compile_program
from mempiler.optimizers.optimizer import Optimizer

from ..runs.evaluations import RecordingEngine
from .marker_model import BETTER, MarkerModel, each_proposing_optimizer

STOPPING_OPTIMIZERS = ("copro", "better-together")
"""Optimizers that end if no proposal can be read; better-together begins with copro."""


def instructions_of(folder: Path) -> str:
    """Return the instructions of the answer prompt of a saved program."""
    return load(folder).task.answer.signature.instructions


@each_proposing_optimizer
def test_an_optimizer_finds_the_better_instruction_although_some_proposals_are_unreadable(
    compile_turn_rag, tmp_path, optimizer
):
    """The first three of ten proposals are unreadable. The others are `BETTER`.

    With `BETTER`, the model answers all questions rightly.
    """
    out = tmp_path / "out"
    model = MarkerModel(unreadable_in_ten=3)

    result = compile_turn_rag(model, optimizer, out=out)

    assert BETTER in instructions_of(out)
    assert result.promoted, result.rejection_reason
    assert result.after.score == 1.0
    assert result.usage["calls"]["prompt"] == model.proposals
    assert model.unreadable_proposals > 0
    assert result.optimizer_problems.failure is None
    assert result.optimizer_problems.unreadable_answers >= model.unreadable_proposals - 1


@each_proposing_optimizer
def test_a_compile_with_some_unreadable_proposals_is_resumed_without_a_call(
    compile_turn_rag, tmp_path, optimizer
):
    """The resumed run takes all answers and proposals of the model from the first one.

    Only a proposal that was given up, after several unreadable answers, is asked for again.
    """
    out = tmp_path / "out"
    first = compile_turn_rag(MarkerModel(unreadable_in_ten=3), optimizer, out=out)
    model_of_resumed_run = MarkerModel(unreadable_in_ten=3)

    resumed = compile_turn_rag(model_of_resumed_run, optimizer, out=out, resume=first.run.name)

    assert first.after.score == 1.0
    assert resumed.after.score == 1.0
    if not first.optimizer_problems.abandoned_proposals:
        assert model_of_resumed_run.answers == 0
        assert model_of_resumed_run.proposals == 0


@each_proposing_optimizer
def test_if_no_proposal_can_be_read_the_start_program_is_kept(
    compile_turn_rag, tmp_path, cli, optimizer
):
    """The result says how many proposals were unreadable, and a command shows some of them."""
    out = tmp_path / "out"
    model = MarkerModel(unreadable_in_ten=10)

    result = compile_turn_rag(model, optimizer, out=out)

    assert BETTER not in instructions_of(out)
    assert model.proposals > 0
    assert result.usage["calls"]["prompt"] == model.proposals
    problems = result.to_dict()["optimizer"]
    assert problems["unreadable"] > 0
    assert problems["given_up"] > 0
    stops = optimizer in STOPPING_OPTIMIZERS
    assert problems["ended"] == ("a proposal could not be read" if stops else None)
    assert_unreadable_answers_are_shown(cli, result)


def assert_unreadable_answers_are_shown(cli: Any, result: mempiler.CompileResult) -> None:
    """Check that a run keeps some of the unreadable answers, and that a command shows them."""
    examples = result.to_dict()["optimizer"]["examples"]
    assert len(examples) > 0

    _, out, _ = cli("show", str(result.run), "--failed")

    assert out.count("prompt LM, unreadable answer to ") == len(examples)
    first_text = " ".join(examples[0]["text"].split())
    assert first_text[:400] in out


@each_proposing_optimizer
def test_a_compile_without_a_readable_proposal_asks_for_new_ones_when_it_is_resumed(
    compile_turn_rag, tmp_path, optimizer
):
    """At first no proposal can be read. When the run is resumed, the model proposes `BETTER`."""
    out = tmp_path / "out"
    first = compile_turn_rag(MarkerModel(unreadable_in_ten=10), optimizer, out=out)
    readable_model = MarkerModel(unreadable_in_ten=0)

    resumed = compile_turn_rag(readable_model, optimizer, out=out, resume=first.run.name)

    assert readable_model.proposals > 0
    assert resumed.optimizer_problems.failure is None
    assert resumed.promoted, resumed.rejection_reason
    assert BETTER in instructions_of(out)


@each_proposing_optimizer
def test_a_program_that_was_not_promoted_is_promoted_by_resuming_its_run_with_force(
    compile_turn_rag, optimizer
):
    """A verdict takes 20 dev questions, so with four of them no program is promoted.

    The user wants the program of that run, so nothing is asked anew. Without `force`, a resumed run
    would ask again for proposals that were given up.
    """
    options: dict[str, Any] = {"dev": 4, "min_n": 20}
    first = compile_turn_rag(MarkerModel(unreadable_in_ten=7), optimizer, **options)
    assert not first.promoted
    if optimizer not in STOPPING_OPTIMIZERS:
        assert first.optimizer_problems.abandoned_proposals > 0
    model_of_resumed_run = MarkerModel(unreadable_in_ten=7)

    forced = compile_turn_rag(
        model_of_resumed_run, optimizer, resume=first.run.name, force=True, **options
    )

    assert forced.promoted is True
    assert model_of_resumed_run.answers == 0
    assert model_of_resumed_run.proposals == 0
    assert first.rejected_evaluation is not None
    assert forced.after.score == first.rejected_evaluation.score


class RefusingModel(MarkerModel):
    """A model whose server refuses all requests for proposals."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def propose(self, kind: str) -> str | dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InvalidRequestError("flagged"), id="flagged by a content filter"),
        pytest.param(ContextLengthError("too long"), id="too long"),
    ],
)
@pytest.mark.parametrize(
    "optimizer", ["mipro", pytest.param("infer-rules", marks=pytest.mark.slow)]
)
def test_an_optimizer_goes_on_if_the_server_refuses_all_requests_for_proposals(
    compile_turn_rag, optimizer, error
):
    result = compile_turn_rag(RefusingModel(error), optimizer)

    assert result.optimizer_problems.failure is None
    assert result.optimizer_problems.abandoned_proposals > 0


class BrokenError(Exception):
    """Stands for a fault in an optimizer."""


def score_on_training_questions(job: Any, program: Any) -> None:
    """Score a candidate as optimizers do."""
    evaluate = dspy.Evaluate(devset=list(job.train), metric=job.metric_views.score, num_threads=1)
    evaluate(program)


class BreakingOptimizer(Optimizer):
    """An optimizer that scores the start, a better program and the start again, and then breaks."""

    name = "breaking"
    changes_in_program = "instructions"
    cost_description = "three training sets"

    def run(self, job: Any) -> Any:
        better = job.student.deepcopy()
        answer = better.task.answer
        answer.signature = answer.signature.with_instructions(
            f"{answer.signature.instructions} {BETTER}"
        )
        score_on_training_questions(job, job.student)
        score_on_training_questions(job, better)
        score_on_training_questions(job, job.student)
        raise BrokenError("two\nlines")


class EarlyBreakingOptimizer(Optimizer):
    """An optimizer that scores the start, and then breaks."""

    name = "early-breaking"
    changes_in_program = "nothing"
    cost_description = "one training set"

    def run(self, job: Any) -> Any:
        score_on_training_questions(job, job.student)
        raise BrokenError


def test_an_optimizer_that_raises_an_error_leaves_its_best_candidate(compile_turn_rag, tmp_path):
    """`BreakingOptimizer` has scored the start and a better program before it raises.

    The result says what happened, and how to try again.
    """
    out = tmp_path / "out"
    model = MarkerModel()

    result = compile_turn_rag(model, BreakingOptimizer(), out=out)

    result.refuse_broken()  # raises an error if the run is broken
    assert BETTER in instructions_of(out)
    text = " ".join(str(result).split())
    assert (
        "BreakingOptimizer failed (BrokenError: two lines): "
        "the run went on with its best candidate so far; "
        f"--resume {result.run.name} tries again"
    ) in text
    assert f"LM calls, whole run: {model.answers} task; " in text


def test_a_run_whose_optimizer_raised_an_error_is_resumed_without_a_call(
    compile_turn_rag, tmp_path
):
    """The optimizer raises the error again in the same place."""
    out = tmp_path / "out"
    first = compile_turn_rag(MarkerModel(), BreakingOptimizer(), out=out)
    model_of_resumed_run = MarkerModel()

    resumed = compile_turn_rag(
        model_of_resumed_run, BreakingOptimizer(), out=out, resume=first.run.name
    )

    assert resumed.optimizer_problems.failure == "BrokenError: two lines"
    assert resumed.optimizer_problems.has_rescued_program is True
    assert resumed.promoted is True
    assert resumed.usage["calls"]["task"] == 0
    assert model_of_resumed_run.answers == 0
    record = json.loads((resumed.run / "run.json").read_text())
    assert record["status"] == "stopped"


def test_a_run_is_broken_if_its_optimizer_raises_an_error_before_it_has_changed_anything(
    compile_turn_rag, tmp_path
):
    """`EarlyBreakingOptimizer` has scored only the start program before it raises."""
    out = tmp_path / "out"

    result = compile_turn_rag(MarkerModel(), EarlyBreakingOptimizer(), out=out)

    text = " ".join(str(result).split())
    assert "EarlyBreakingOptimizer failed (BrokenError): the run went on with the start" in text
    assert BETTER not in instructions_of(out)
    with pytest.raises(BrokenRunError, match="nothing was compiled"):
        result.refuse_broken()


SETTINGS_OF_SAVED_PROGRAMS: dict[str, dict[str, Any]] = {
    "bootstrap-random": {"num_candidate_programs": 1, "max_tries": 6},
    "mipro": {"num_candidates": 3, "num_trials": 2, "max_tries": 6},
    "copro": {"breadth": 2, "depth": 1},
    "simba": {"bsize": 6, "num_candidates": 2, "max_steps": 1},
    "gepa": {"max_metric_calls": 20},
    "infer-rules": {"num_candidates": 1, "max_tries": 6},
    "better-together": {"strategy": "bootstrap -> knn"},
    "settings": {"num_trials": 4},
}
"""Settings that keep optimizers small; others have their defaults."""

METHODS_AND_OPTIMIZERS = [
    *(("turn-rag", name) for name in sorted(set(OPTIMIZERS) - {"finetune"})),
    ("memory-r2", "bootstrap"),
]


class UserQuestions(NamedTuple):
    """Questions of a benchmark about one conversation."""

    benchmark: Benchmark
    train: list[dspy.Example]
    test: list[dspy.Example]


@pytest.fixture(scope="module")
def questions() -> UserQuestions:
    """Fifteen questions of LoCoMo's sample about one conversation: 12 to train on, 3 to test."""
    locomo = benchmark("locomo")
    examples = [
        example
        for example in locomo.examples
        if locomo.group(example) == "sample-1" and locomo.in_headline(example)
    ]
    return UserQuestions(locomo, train=examples[:12], test=examples[12:15])


def small_config(optimizer: str) -> CompileConfig:
    """Return the configuration of a compile with settings that keep the optimizer small."""
    return CompileConfig(optimizer, settings=SETTINGS_OF_SAVED_PROGRAMS.get(optimizer), threads=4)


@pytest.mark.parametrize(("method", "optimizer"), METHODS_AND_OPTIMIZERS)
def test_a_loaded_program_answers_as_the_compiled_program_that_was_saved(
    questions, tmp_path, method, optimizer
):
    program = build(method, embedder=embedder())

    with dspy.context(lm=language_model(), disable_history=True, trace=None):
        compiled = compile_program(
            program, questions.benchmark, questions.train, small_config(optimizer)
        )
        save(compiled, tmp_path / "saved")
        loaded = load(tmp_path / "saved")

        assert len(questions.test) == 3
        for example in questions.test:
            answer = compiled(**example.inputs()).answer
            assert loaded(**example.inputs()).answer == answer


def long_texts_without_evidence(examples: list[dspy.Example]) -> list[str]:
    """Return the longer texts of a history in which no question has its evidence."""
    evidence_ids: set[str] = set()
    for example in examples:
        evidence_ids.update(example.evidence_ids)

    texts: list[str] = []
    for turn_id, (turn, _) in examples[0].history.turns.items():
        if turn_id not in evidence_ids and len(turn.text) > 30:
            texts.append(turn.text)
    return texts


def prompts_for_proposals(questions: UserQuestions, method: str, optimizer: str) -> list[str]:
    """Compile a method; return the prompts in which the optimizer asked for proposals."""
    engine = RecordingEngine()
    prompt_lm = MeteredLM(
        "offline/x", Metering(role="prompt"), engine=engine, temperature=0.0, cache=False
    )
    program = build(method, embedder=embedder())
    with dspy.context(lm=language_model(), disable_history=True, trace=None):
        compile_program(
            program, questions.benchmark, questions.train, small_config(optimizer), prompt_lm
        )
    return engine.prompts


@pytest.mark.parametrize(("method", "optimizer"), METHODS_AND_OPTIMIZERS)
def test_no_prompt_for_a_proposal_shows_the_whole_history_of_a_training_question(
    questions, method, optimizer
):
    """A history may be very long.

    A prompt may show some turns, such as the evidence of a question. If it showed most of the
    turns that are evidence of no question, it would show the history.
    """
    other_texts = long_texts_without_evidence(questions.train)
    assert len(other_texts) > 10

    prompts = prompts_for_proposals(questions, method, optimizer)

    if optimizer in ("mipro", "copro", "gepa"):
        assert prompts
    for prompt in prompts:
        shown_texts = [text for text in other_texts if text in prompt]
        assert len(shown_texts) < len(other_texts) / 2
        # Nor may a prompt show a history as Python prints it.
        assert "turns=(" not in prompt
