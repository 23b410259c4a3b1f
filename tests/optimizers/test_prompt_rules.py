"""Proposed instructions must not copy training questions, and prompts must not grow too long.

Optimizers ask a model to propose instructions. One that copies a question would know its answer,
and score too well. A user may limit the growth: with `max_prompt_growth` 3, prompts may be three
times as long as those of the start, the program before the compile.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import UserError, build, load
from mempiler.engines.embedders import embedder
from mempiler.optimizers.prompt_rules import PromptRules, drop_demos_beyond_growth, prompt_tokens
from mempiler.programs.program import MemoryProgram
from mempiler.runs.compile_result import OptimizerProblems

from ..runs.evaluations import own_questions
from .marker_model import BETTER, MarkerModel, each_proposing_optimizer, proposal

TAIL = "as it was told on the very first day of that long summer"
"""The end of two training questions: more than eight words."""
IDS_WITH_TAIL = ("0-6", "4-7")
"""The ids of these two questions."""
COPY = f"{BETTER} The fact, {TAIL.upper()}!"
"""An instruction that copies words of training questions."""
LONG = BETTER + " Think of every marker that anybody has ever named, one after the other." * 200
"""An instruction that is many times as long as that of the start."""


class BadProposer(MarkerModel):
    """A model that proposes a bad instruction at first, and then `BETTER`.

    With `BETTER` it answers every question rightly.

    Args:
        bad_instruction: What it proposes at first.
        bad_proposals: How many proposals are bad.
    """

    def __init__(self, bad_instruction: str, bad_proposals: int) -> None:
        super().__init__()
        self.bad_instruction = bad_instruction
        self.bad_proposals = bad_proposals
        self.answers_with_bad_instruction = 0

    def propose(self, kind: str) -> str | dict[str, Any]:
        if self.proposals <= self.bad_proposals:
            return proposal(kind, self.bad_instruction)
        return proposal(kind, BETTER)

    def answer(self, text: str) -> str | dict[str, Any]:
        if self.bad_instruction[-60:] in self.engine.system:
            self.answers_with_bad_instruction += 1
        return super().answer(text.replace(f" {TAIL}", ""))


def bad_proposals_of(optimizer: str) -> int:
    """Return how many proposals are bad, so that the optimizer meets them but also good ones."""
    if optimizer in ("gepa", "simba"):
        return 1
    if optimizer == "mipro":
        # It asks for summaries first, which are no instructions.
        return 8
    return 4


@pytest.fixture
def questions_file(tmp_path: Path) -> str:
    """A file with questions about six users; two of them end in `TAIL`."""
    path = Path(own_questions(tmp_path))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["id"] in IDS_WITH_TAIL:
            row["question"] = row["question"].replace("?", f" {TAIL}?")
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def new_turn_rag() -> MemoryProgram:
    """Return the program that the compiles start from."""
    return build("turn-rag", embedder=embedder())


@each_proposing_optimizer
def test_a_proposal_that_copies_a_training_question_is_asked_for_again(
    compile_turn_rag, tmp_path, optimizer
):
    """The model proposes copies at first, and then `BETTER`, with which all answers are right."""
    out = tmp_path / "out"
    model = BadProposer(COPY, bad_proposals_of(optimizer))

    result = compile_turn_rag(model, optimizer, out=out)

    assert BETTER in load(out).task.answer.signature.instructions
    assert result.promoted
    assert model.answers_with_bad_instruction == 0
    problems = result.optimizer_problems
    assert problems.refused_copies > 0
    assert problems.failure is None
    assert problems.unreadable_answers == 0


@each_proposing_optimizer
def test_proposals_that_are_all_copies_of_a_training_question_are_given_up(
    compile_turn_rag, optimizer
):
    """Most optimizers go on without a proposal. COPRO cannot."""
    model = BadProposer(COPY, bad_proposals=1000)

    result = compile_turn_rag(model, optimizer)

    problems = result.optimizer_problems
    assert problems.refused_copies > 0
    assert problems.abandoned_proposals > 0
    assert model.answers_with_bad_instruction == 0
    is_copro = optimizer in ("copro", "better-together")  # which begins with copro
    assert problems.failure == ("a proposal could not be read" if is_copro else None)


@each_proposing_optimizer
def test_no_question_is_asked_with_a_prompt_that_has_grown_too_long(
    compile_turn_rag, tmp_path, optimizer
):
    """The model proposes a very long instruction at first, and then `BETTER`.

    Three optimizers may make prompts 1.5 times as long. The others also add demos, so they may make
    them six times as long.
    """
    out = tmp_path / "out"
    model = BadProposer(LONG, bad_proposals_of(optimizer))
    growth = 1.5 if optimizer in ("gepa", "copro", "simba") else 6.0

    result = compile_turn_rag(model, optimizer, max_prompt_growth=growth, out=out)

    assert result.optimizer_problems.refused_long > 0
    assert result.optimizer_problems.failure is None
    assert model.answers_with_bad_instruction == 0
    assert prompt_tokens(load(out)) <= growth * prompt_tokens(new_turn_rag())


def test_the_last_demos_of_a_prompt_are_dropped_if_it_has_grown_too_long(compile_turn_rag):
    """Demos, the examples in a prompt, make it longer. The optimizer `labeled` makes eight."""
    options: dict[str, Any] = {"optimizer_set": {"max_labeled_demos": 8}, "force": True}

    unlimited = compile_turn_rag(MarkerModel(), "labeled", **options)
    limited = compile_turn_rag(MarkerModel(), "labeled", max_prompt_growth=3, **options)

    all_questions = [demo.question for demo in unlimited.program.task.answer.demos]
    questions_left = [demo.question for demo in limited.program.task.answer.demos]
    number_left = len(questions_left)
    assert len(all_questions) == 8
    assert 0 < number_left < 8
    assert questions_left == all_questions[:number_left]
    note = f"task.answer: {number_left} of 8 demos fit --max-prompt-growth 3"
    assert note in limited.optimizer_problems.notes
    # No program was refused for its length.
    assert limited.optimizer_problems.refused_long == 0


def with_instruction(program: Any, instruction: str) -> Any:
    """Give the answer prompt of a program an instruction, and return the program."""
    answer = program.task.answer
    answer.signature = answer.signature.with_instructions(instruction)
    return program


@dataclass(frozen=True, kw_only=True)
class ScoringOptimizer(mempiler.optimizers.Optimizer):
    """An optimizer that scores a candidate with an instruction twice, and returns the start."""

    name = "scoring"
    changes_in_program = "nothing"
    cost_description = "one training set and two questions"

    instruction: str = ""

    def run(self, job: Any) -> Any:
        candidate = with_instruction(job.student.deepcopy(), self.instruction)
        questions = list(job.train)
        for devset in (questions, questions[:2]):
            evaluate = dspy.Evaluate(devset=devset, metric=job.metric_views.score, num_threads=1)
            evaluate(candidate)
        return job.student


@pytest.mark.parametrize(
    ("instruction", "refused_copies", "refused_long"),
    [pytest.param(LONG, 0, 1, id="too long"), pytest.param(COPY, 1, 0, id="a copy")],
)
def test_a_refused_candidate_costs_no_call_and_is_counted_once(
    compile_turn_rag, instruction, refused_copies, refused_long
):
    """The optimizer scores the same candidate twice: on all training questions, and on two."""
    model = BadProposer(instruction, bad_proposals=0)
    optimizer = ScoringOptimizer(instruction=instruction)

    result = compile_turn_rag(model, optimizer, max_prompt_growth=1.5)

    assert result.optimizer_problems.refused_copies == refused_copies
    assert result.optimizer_problems.refused_long == refused_long
    assert model.answers_with_bad_instruction == 0
    assert len(result.candidates) == 0


class FixedInstruction(dspy.teleprompt.Teleprompter):
    """A teleprompter that gives every program the same instruction, and scores nothing."""

    def __init__(self, instruction: str) -> None:
        self.instruction = instruction

    # DSPy passes further arguments to some teleprompters.
    def compile(self, student: Any, *, trainset: Any, **_: Any) -> Any:
        return with_instruction(student, self.instruction)


def always_write(instruction: str) -> Callable[[Any], FixedInstruction]:
    """Return an optimizer, a function as users give it, whose programs have an instruction."""

    def make_teleprompter(metric: Any) -> FixedInstruction:
        return FixedInstruction(instruction)

    return make_teleprompter


each_refused_instruction = pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        pytest.param(
            LONG,
            "times as long as those of the start (--max-prompt-growth is 1.5)",
            id="too long",
        ),
        pytest.param(
            COPY,
            "An instruction has 8 or more words in a row of a training question or answer",
            id="a copy",
        ),
    ],
)


@each_refused_instruction
def test_a_program_with_a_refused_instruction_is_neither_scored_nor_promoted(
    compile_turn_rag, instruction, reason
):
    """`dev` has the scores of the start program and of the new one on the dev questions."""
    model = BadProposer(instruction, bad_proposals=0)

    result = compile_turn_rag(model, always_write(instruction), max_prompt_growth=1.5)

    assert not result.promoted
    assert reason in result.rejection_reason
    assert model.answers_with_bad_instruction == 0
    _, new_program_on_dev = result.dev
    assert new_program_on_dev is None


@each_refused_instruction
def test_a_program_with_a_refused_instruction_is_promoted_by_force(
    compile_turn_rag, instruction, reason
):
    model = BadProposer(instruction, bad_proposals=0)

    result = compile_turn_rag(model, always_write(instruction), max_prompt_growth=1.5, force=True)

    assert result.promoted
    assert model.answers_with_bad_instruction > 0
    assert reason in result.statement()


def rules_for(*examples: dspy.Example) -> PromptRules:
    """Return the rules for compiling Turn RAG on training questions."""
    return PromptRules(new_turn_rag(), [example.with_inputs("question") for example in examples])


def test_words_that_the_prompt_had_before_may_stay_although_a_training_question_has_them():
    """By chance, a training question has the words of the instruction before the compile."""
    instruction_before = new_turn_rag().task.answer.signature.instructions
    rules = rules_for(dspy.Example(question=f"Well? {instruction_before}", answer="Yes."))

    assert rules.refuse_proposal(f"Begin. {instruction_before}") is None


def test_eight_words_in_a_row_of_a_training_question_or_answer_are_a_copy_and_seven_are_not():
    rules = rules_for(
        dspy.Example(question="One two three four five six seven?", answer="1 2 3 4 5 6 7 8")
    )

    assert rules.refuse_proposal("One, two, three, four, five, six, seven.") is None
    assert rules.refuse_proposal("Say: 1 2 3 4 5 6 7 8") == "copy"
    assert rules.copies == 1


SHARED_WORDS = "Which of these things did the user mention first, the"
ABOUT_DOG = dspy.Example(question=f"{SHARED_WORDS} dog of the neighbour's aunt in Lisbon?")
ABOUT_CAT = dspy.Example(question=f"{SHARED_WORDS} cat of the neighbour's aunt in Lisbon?")
ABOUT_COW = dspy.Example(question=f"{SHARED_WORDS} cow of the neighbour's aunt in Lisbon?")


def test_words_that_three_training_questions_share_may_be_copied():
    """Words of three questions probably say what the task is, and give no answer away.

    The rest of a question, e.g. about the dog, must still not be copied.
    """
    rules = rules_for(ABOUT_DOG, ABOUT_CAT, ABOUT_COW)

    assert rules.refuse_proposal(f"You are asked: {SHARED_WORDS} one thing or the other?") is None
    assert rules.refuse_proposal(ABOUT_DOG.question) == "copy"


def test_words_that_only_two_training_questions_share_may_not_be_copied():
    """Two questions may share some words by chance."""
    rules = rules_for(ABOUT_DOG, ABOUT_CAT)

    assert rules.refuse_proposal(SHARED_WORDS) == "copy"


def test_a_result_says_how_often_its_optimizer_met_each_problem():
    """The problems are unreadable answers, copies, long prompts, and abandoned proposals."""
    problems = OptimizerProblems(
        "gepa", unreadable_answers=1, abandoned_proposals=1, refused_copies=2, refused_long=3
    )

    unreadable, copies, long, given_up = problems.lines("run-1")

    assert unreadable.startswith("1 answer of the prompt LM could not be read")
    assert "`mempiler show run-1 --failed`" in unreadable
    assert copies.startswith(
        "2 proposals or candidates were refused for repeating training questions"
    )
    assert long == (
        "3 proposals or candidates were refused for being longer than --max-prompt-growth allows"
    )
    assert given_up == "1 proposal was given up; --resume run-1 tries again"


def program_with_demos(number_of_demos: int, nearest: int | None = None) -> MemoryProgram:
    """Return a program whose answer prompt shows demos.

    The demos take about 20 tokens each; the first one takes ten times as many.

    Args:
        number_of_demos: How many demos the predictor has.
        nearest: How many of them a prompt shows: those that are most like its question. By default
            it shows all.
    """
    program = new_turn_rag()
    for number in range(number_of_demos):
        padding = "word " * (200 if number == 0 else 2)
        demo = dspy.Example(
            context="", question=f"Fact {number}? {padding}", answer=f"marker {number}"
        )
        program.task.answer.demos.append(demo)
    program.task.answer.nearest = nearest
    return program


DEMO_OF_ANOTHER_PROMPT = dspy.Example(dialogue="Hi.", facts="None.")
"""A demo that a prompt for answers does not show, since it lacks its fields."""


def test_a_prompt_that_chooses_its_demos_keeps_all_of_them_and_shows_fewer():
    """The prompt has twelve demos, and shows the eight that are most like the question.

    With a growth of 4, prompts may be four times as long as those of the start without demos.
    """
    start = new_turn_rag()
    program = program_with_demos(12, nearest=8)
    rules = PromptRules(start, max_growth=4)

    notes = drop_demos_beyond_growth(program, rules)

    answer = program.task.answer
    assert len(answer.demos) == 12
    assert 0 < answer.nearest < 8
    assert prompt_tokens(program) <= 4 * prompt_tokens(start)
    assert notes == [f"task.answer: {answer.nearest} of 8 nearest demos fit --max-prompt-growth 4"]
    # Now all that are shown fit, so a second look changes nothing.
    assert drop_demos_beyond_growth(program, rules) == []


def test_a_prompt_that_chooses_its_demos_keeps_none_if_none_fits():
    """With a growth of 1, prompts must not be longer than those of the start without demos."""
    program = program_with_demos(12, nearest=8)

    drop_demos_beyond_growth(program, PromptRules(new_turn_rag(), max_growth=1))

    assert program.task.answer.demos == []


def test_demos_that_a_prompt_does_not_show_do_not_count_for_its_length():
    """A demo of another prompt has none of the fields of this one, so DSPy leaves it out."""
    program = program_with_demos(6)
    tokens = prompt_tokens(program)

    program.task.answer.demos += [DEMO_OF_ANOTHER_PROMPT] * 50

    assert prompt_tokens(program) == tokens


def test_demos_that_a_prompt_does_not_show_are_not_counted_among_those_that_fit():
    """The start shows six demos. With a growth of 1, a seventh does not fit."""
    program = program_with_demos(6)
    program.task.answer.demos += [DEMO_OF_ANOTHER_PROMPT] * 50
    rules = PromptRules(program, max_growth=1)
    seventh_demo = dspy.Example(question="One more?", answer="Yes.")
    program.task.answer.demos.insert(6, seventh_demo)

    notes = drop_demos_beyond_growth(program, rules)

    assert notes == ["task.answer: 6 of 7 demos fit --max-prompt-growth 1"]
    assert len(program.task.answer.demos) == 6


@pytest.fixture
def config_file_with_growth_3(tmp_path: Path) -> str:
    """A configuration file with `max_prompt_growth = 3.0`, for the optimizer `labeled`."""
    path = tmp_path / "run.toml"
    path.write_text(
        """
        [data]
        benchmark = "locomo"
        train = 8

        [optimizer]
        name = "labeled"
        max_prompt_growth = 3.0
        """
    )
    return str(path)


def test_a_configuration_file_limits_the_growth_and_the_run_records_it(
    cli, config_file_with_growth_3
):
    """The optimizer `labeled` makes more demos than fit a prompt of three times the length."""
    exit_code, stdout, stderr = cli(
        "compile", "turn-rag", "--config", config_file_with_growth_3, "--json"
    )
    assert exit_code == 0, stderr

    result = json.loads(stdout)
    notes = "\n".join(result["optimizer"]["notes"])
    assert "demos fit --max-prompt-growth 3" in notes
    _, recorded_config, _ = cli("show", result["run"], "--config")
    assert "max_prompt_growth = 3.0" in recorded_config


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--max-prompt-growth", "inf"], id="option"),
        pytest.param(["--config", "run.toml"], id="configuration file"),
    ],
)
def test_an_infinite_growth_is_refused_by_the_command_line(cli, tmp_path, monkeypatch, options):
    """`max_prompt_growth` is how many times as long prompts may become as they were."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[optimizer]\nmax_prompt_growth = inf\n")

    exit_code, _, stderr = cli(
        "compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", *options
    )

    assert exit_code == 2
    assert "max_prompt_growth: got inf; expected a finite number of 1 or more" in stderr


@pytest.mark.parametrize("growth", [0.5, float("nan"), float("inf"), 10**400, "2", True])
def test_a_growth_that_is_no_finite_number_of_one_or_more_is_refused(compile_turn_rag, growth):
    """`max_prompt_growth` is how many times as long prompts may become as they were."""
    model = MarkerModel()

    with pytest.raises(
        UserError, match=r"max_prompt_growth: got .*; expected a finite number of 1 or more"
    ):
        compile_turn_rag(model, "labeled", max_prompt_growth=growth)

    assert model.answers == 0
