"""Instructions that copy training questions, and prompts that grow too long, are refused and counted."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import UserError, build, load
from mempiler.engines.embedders import embedder
from mempiler.optimizers.prompt_rules import PromptRules, drop_demos_beyond_growth, prompt_tokens
from mempiler.runs.compile_result import OptimizerProblems

from ..runs.evaluations import own_questions, script_models
from .test_proposals import BETTER, SETTINGS, Model, each_optimizer

TAIL = "as it was told on the very first day of that long summer"
"""The end of two training questions: more than eight words."""
TOLD = ("0-6", "4-7")
"""The ids of these two questions."""
COPY = f"{BETTER} The fact, {TAIL.upper()}!"
LONG = BETTER + " Think of every marker that anybody has ever named, one after the other." * 200

# MIPROv2 asks for summaries first, which are no instructions.
BAD_ANSWERS = {"gepa": 1, "simba": 1, "mipro": 8}
"""How many answers of the prompt model are bad, by the optimizer; 4 for others."""


class Proposing(Model):
    """Proposes a bad instruction at first, as often as it is told, and then a good one."""

    def __init__(self, bad: str, times: int) -> None:
        super().__init__(broken=0)
        self.bad, self.times, self.shown = bad, times, 0

    def __call__(self, kind: str, text: str, system: str, heat: float) -> dict[str, Any] | str:
        if kind == "answer":
            self.shown += self.bad[-60:] in system
            last = text.rsplit("[[ ## question ## ]]", 1)[1].replace(f" {TAIL}", "")
            return super().__call__(kind, f"[[ ## question ## ]]{last}", system, heat)
        reply = super().__call__(kind, text, system, heat)
        if self.proposals > self.times:
            return reply
        bad = json.dumps(reply).replace(BETTER, self.bad)
        return json.loads(bad)


@pytest.fixture
def compile_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Any) -> Any:
    """`compile_with(name, model, **options)` compiles turn-rag on six users' questions; two of them end in `TAIL`."""
    data = Path(own_questions(tmp_path))
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for row in rows:
        if row["id"] in TOLD:
            row["question"] = row["question"].replace("?", f" {TAIL}?")
    data.write_text("\n".join(map(json.dumps, rows)))

    def run(optimizer: Any, model: Model, **options: Any) -> Any:
        engine = scripted(
            lambda kind, text, n: model(kind, text, engine.system, engine.heat)
        ).engine
        script_models(monkeypatch, engine)
        settings: dict[str, Any] = {}
        for setting in SETTINGS.get(optimizer, []) if isinstance(optimizer, str) else []:
            key, _, value = setting.partition("=")
            settings[key] = int(value) if value.isdecimal() else value
        shared = {
            "benchmark": "jsonl",
            "data": data,
            "lm": "scripted/test",
            "train": 16,
            "threads": 1,
            "min_n": 8,
        }
        shared |= {"optimizer_set": settings} if settings else {}
        return mempiler.compile(
            "turn-rag", optimizer=optimizer, progress=False, **{**shared, **options}
        )

    return run


@each_optimizer
def test_a_proposal_that_copies_a_training_question_is_asked_for_again(
    compile_with, tmp_path, name
):
    model = Proposing(COPY, BAD_ANSWERS.get(name, 4))
    result = compile_with(name, model, out=tmp_path / "out")
    problems = result.optimizer_problems
    assert problems.refused_copies > 0
    assert problems.failure is None
    assert problems.unreadable_answers == 0
    assert model.shown == 0
    assert result.promoted
    assert BETTER in load(tmp_path / "out").task.answer.signature.instructions
    assert result.to_dict()["optimizer"]["refused_copies"] == problems.refused_copies
    assert "refused for repeating training questions or answers" in str(result)


@each_optimizer
def test_proposals_that_are_all_copies_are_given_up(compile_with, name):
    model = Proposing(COPY, times=1000)
    result = compile_with(name, model)
    problems = result.optimizer_problems
    assert problems.refused_copies > 0
    assert problems.abandoned_proposals > 0
    # COPRO has nothing to go on with.
    assert problems.failure == (
        "a proposal could not be read" if name in ("copro", "better-together") else None
    )
    assert model.shown == 0


@each_optimizer
def test_a_prompt_that_grows_too_long_is_not_asked_with(compile_with, tmp_path, name):
    model = Proposing(LONG, BAD_ANSWERS.get(name, 4))
    # Optimizers that propose instructions for a prompt with demos need room for these.
    growth = 1.5 if name in ("gepa", "copro", "simba") else 6.0
    result = compile_with(name, model, max_prompt_growth=growth, out=tmp_path / "out")
    assert result.optimizer_problems.refused_long > 0
    assert result.optimizer_problems.failure is None
    assert model.shown == 0
    start = build("turn-rag", embedder=embedder())
    assert prompt_tokens(load(tmp_path / "out")) <= growth * prompt_tokens(start)


def test_demos_are_dropped_from_the_end_until_the_prompts_fit(compile_with):
    model = Proposing(BETTER, times=0)
    settings = {"max_labeled_demos": 8}
    free = compile_with("labeled", model, optimizer_set=settings, force=True)
    bounded = compile_with(
        "labeled", model, optimizer_set=settings, force=True, max_prompt_growth=3
    )
    assert len(free.program.task.answer.demos) == 8
    demos = bounded.program.task.answer.demos
    assert 0 < len(demos) < 8
    assert [demo.question for demo in demos] == [
        demo.question for demo in free.program.task.answer.demos
    ][: len(demos)]
    assert (
        f"task.answer: {len(demos)} of 8 demos fit --max-prompt-growth 3"
        in bounded.optimizer_problems.notes
    )
    assert bounded.optimizer_problems.refused_long == 0


@dataclass(frozen=True, kw_only=True)
class Scoring(mempiler.optimizers.Optimizer):
    """Scores the start with another instruction, and returns the start."""

    name = "scoring"
    changes_in_program = "nothing"
    cost_description = "one training set"

    text: str = ""

    def run(self, job: Any) -> Any:
        candidate = Fixed(self.text).compile(job.student.deepcopy(), trainset=[])
        dspy.Evaluate(devset=list(job.train), metric=job.metric_views.score, num_threads=1)(
            candidate
        )
        dspy.Evaluate(devset=list(job.train)[:2], metric=job.metric_views.score, num_threads=1)(
            candidate
        )
        return job.student


@pytest.mark.parametrize(("text", "counts"), [(LONG, (0, 1)), (COPY, (1, 0)), (BETTER, (0, 0))])
def test_a_refused_candidate_costs_no_call_and_is_counted_once(compile_with, text, counts):
    model = Proposing(text, times=0)
    result = compile_with(Scoring(text=text), model, max_prompt_growth=1.5)
    problems = result.optimizer_problems
    assert (problems.refused_copies, problems.refused_long) == counts
    # 16 training questions.
    assert model.shown == (16 + 2 if text == BETTER else 0)
    assert [candidate.score for candidate in result.candidates] == (
        [1.0, 1.0] if text == BETTER else []
    )


class Fixed(dspy.teleprompt.Teleprompter):
    """Gives every program the same instruction, and scores nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def compile(self, student: Any, *, trainset: Any, **_: Any) -> Any:
        signature = student.task.answer.signature
        student.task.answer.signature = signature.with_instructions(self.text)
        return student


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LONG, r"times as long as those of the start (--max-prompt-growth is 1.5)"),
        (COPY, "An instruction has 8 or more words in a row of a training question or answer"),
    ],
    ids=["long", "copy"],
)
def test_a_refused_program_is_neither_scored_nor_promoted_unless_by_force(
    compile_with, text, reason
):
    model = Proposing(text, times=0)
    refused = compile_with(lambda metric: Fixed(text), model, max_prompt_growth=1.5)
    assert not refused.promoted
    assert reason in refused.rejection_reason
    assert refused.dev[1] is None
    assert model.shown == 0
    forced = compile_with(lambda metric: Fixed(text), model, max_prompt_growth=1.5, force=True)
    assert forced.promoted
    assert model.shown > 0
    assert reason in forced.statement()


def test_words_of_the_start_and_seven_words_in_a_row_are_no_copy():
    start = build("turn-rag", embedder=embedder())
    own = start.task.answer.signature.instructions
    example = dspy.Example(
        question=f"One two three four five six seven? {own}", answer="8 9 10 11 12 13 14 15"
    )
    rules = PromptRules(start, [example.with_inputs("question")])
    assert rules.refuse_proposal(f"Begin. {own}") is None
    assert rules.refuse_proposal("One, two, three, four, five, six, seven.") is None
    assert rules.refuse_proposal("Say: 8 9 10 11 12 13 14 15") == "copy"
    assert rules.copies == 1


def test_the_lines_on_what_was_refused_name_candidates_too_and_know_the_singular():
    one = OptimizerProblems(
        "gepa", unreadable_answers=1, abandoned_proposals=1, refused_copies=1, refused_long=1
    ).lines("run-1")
    assert [line.split(" for ")[0] for line in one] == [
        "1 answer of the prompt LM could not be read; `mempiler show run-1 --failed` shows some",
        "1 proposal or candidate was refused",
        "1 proposal or candidate was refused",
        "1 proposal was given up; --resume run-1 tries again",
    ]
    two = OptimizerProblems("gepa", refused_copies=2, refused_long=3).lines("run-1")
    assert two[0].startswith(
        "2 proposals or candidates were refused for repeating training questions"
    )
    assert (
        two[1]
        == "3 proposals or candidates were refused for being longer than --max-prompt-growth allows"
    )


def rules_for(*questions: str) -> PromptRules:
    examples = [dspy.Example(question=question).with_inputs("question") for question in questions]
    return PromptRules(build("turn-rag", embedder=embedder()), examples)


def test_words_that_many_questions_share_state_the_task_and_are_no_copy():
    form = "Which of these things did the user mention first, the"
    questions = [
        f"{form} {word} of the neighbour's aunt in Lisbon?" for word in ("dog", "cat", "car")
    ]
    rules = rules_for(*questions)
    assert rules.refuse_proposal(f"You are asked: {form} one thing or the other?") is None
    assert rules.refuse_proposal(questions[0]) == "copy"
    # Of two questions it might be chance.
    assert rules_for(*questions[:2]).refuse_proposal(form) == "copy"


def knn_program(pool: int, nearest: int) -> Any:
    """A program whose answers show the nearest of some demos, of about 20 tokens each but for a long one."""
    program = build("turn-rag", embedder=embedder())
    for number in range(pool):
        words = "word " * (200 if number == 0 else 2)
        demo = dspy.Example(
            context="", question=f"Fact {number}? {words}", answer=f"marker {number}"
        )
        program.task.answer.demos.append(demo)
    program.task.answer.nearest = nearest
    return program


def test_a_predictor_that_chooses_its_demos_keeps_them_all_and_shows_fewer():
    start = build("turn-rag", embedder=embedder())
    program = knn_program(pool=12, nearest=8)
    rules = PromptRules(start, max_growth=4)
    notes = drop_demos_beyond_growth(program, rules)
    predictor = program.task.answer
    assert 0 < predictor.nearest < 8
    assert len(predictor.demos) == 12
    assert prompt_tokens(program) <= 4 * prompt_tokens(start)
    assert notes == [
        f"task.answer: {predictor.nearest} of 8 nearest demos fit --max-prompt-growth 4"
    ]
    assert drop_demos_beyond_growth(program, rules) == []


def test_a_predictor_that_chooses_from_demos_of_which_none_fits_keeps_none():
    program = knn_program(pool=12, nearest=8)
    drop_demos_beyond_growth(
        program, PromptRules(build("turn-rag", embedder=embedder()), max_growth=1)
    )
    assert program.task.answer.demos == []


def test_demos_that_no_prompt_shows_are_not_counted():
    program = knn_program(pool=6, nearest=8)
    program.task.answer.nearest = None
    # Of another predictor: without an input or an output of this one.
    foreign = [dspy.Example(dialogue="Hi.", facts="None.") for _ in range(50)]
    program.task.answer.demos = [*program.task.answer.demos, *foreign]
    tokens = prompt_tokens(program)
    rules = PromptRules(program, max_growth=1)
    del program.task.answer.demos[6:]
    assert tokens == prompt_tokens(program)
    program.task.answer.demos = [
        *program.task.answer.demos,
        dspy.Example(question="One more?", answer="Yes."),
        *foreign,
    ]
    assert drop_demos_beyond_growth(program, rules) == [
        "task.answer: 6 of 7 demos fit --max-prompt-growth 1"
    ]
    assert len(program.task.answer.demos) == 6


def test_a_file_sets_the_growth_and_the_run_writes_it_into_its_own(cli, tmp_path):
    (tmp_path / "run.toml").write_text(
        '[data]\nbenchmark = "locomo"\ntrain = 8\n[optimizer]\nname = "labeled"\nmax_prompt_growth = 3.0\n'
    )
    code, out, _ = cli("compile", "turn-rag", "--config", str(tmp_path / "run.toml"), "--json")
    assert code == 0
    found = json.loads(out)
    assert any("demos fit --max-prompt-growth 3" in note for note in found["optimizer"]["notes"])
    _, shown, _ = cli("show", found["run"], "--config")
    assert "max_prompt_growth = 3.0" in shown
    code, _, err = cli(
        "compile", "turn-rag", "--config", str(tmp_path / "run.toml"), "--max-prompt-growth", "0.5"
    )
    assert code == 2
    assert "0.5 is not in the range x>=1" in err


@pytest.mark.parametrize("words", [["--max-prompt-growth", "inf"], ["--config", "run.toml"]])
def test_an_infinite_growth_is_refused_on_the_command_line_and_in_a_file(
    cli, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[optimizer]\nmax_prompt_growth = inf\n")
    code, _, err = cli(
        "compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", *words
    )
    assert code == 2
    assert "max_prompt_growth: got inf; expected a finite number of 1 or more" in err


@pytest.mark.parametrize("growth", [0.5, float("nan"), float("inf"), 10**400, "2", True])
def test_a_growth_that_is_no_finite_number_of_one_or_more_is_refused(compile_with, growth):
    model = Model(broken=0)
    with pytest.raises(
        UserError, match=r"max_prompt_growth: got .*; expected a finite number of 1 or more"
    ):
        compile_with("labeled", model, max_prompt_growth=growth)
    assert model.answers == 0
