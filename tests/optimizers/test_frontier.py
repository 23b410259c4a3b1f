"""GEPA weighs the score against the tokens of prompts; its candidates are recorded and drawn.

GEPA is an optimizer. A model proposes instructions to it, and each makes a candidate: a program
with this instruction. Candidates are scored on five questions, the valset. A candidate is on the
frontier if no other one is as good in score and tokens, and better in one of them. `frontier_type`
says by what GEPA compares candidates; all types but "instance" count tokens.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import CompileResult
from mempiler.engines.embedders import embedder
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.optimizers.compile import CompileConfig, plan_job
from mempiler.optimizers.frontier import FrontierPoint, mark_frontier

from ..runs.evaluations import locomo, own_questions, questions_about
from ..scripted_engine import ScriptedEngine
from .marker_model import fact_number

LONG = "Name the marker. " + "Think of every word that was said about markers, one by one. " * 20
"""An instruction of 1,200 characters, which is about 300 tokens."""
SHORT = "Name the marker, or say <b>no idea</b>."


class LengthModel:
    """A scripted model that knows all answers with the long instruction, and else every second one.

    It proposes the long and the short instruction by turns.
    """

    def __init__(self) -> None:
        self.engine: Any = None
        """The engine that asks the model; it knows the system prompt."""
        self.proposals = 0

    def __call__(self, kind: str, text: str, n: int) -> str | dict[str, str]:
        if kind == "new_instruction":
            self.proposals += 1
            instruction = LONG if self.proposals % 2 == 1 else SHORT
            return json.dumps({"new_instruction": instruction})
        return self.answer(text)

    def answer(self, text: str) -> str | dict[str, str]:
        """Answer a question, by the instruction in the system prompt."""
        fact = fact_number(text)
        if self.has_long_instruction() or int(fact[-1]) < 4:
            return {"answer": f"marker {fact}"}
        return {"answer": "no idea"}

    def has_long_instruction(self) -> bool:
        """Return whether the model is asked with the long instruction."""
        return LONG.strip() in self.engine.system


class UnreadableOnValset(LengthModel):
    """A model that cannot be read after it has answered three questions with the long instruction.

    GEPA asks three questions to try a new instruction, and then those of the valset. So the model
    answers none of the valset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answered_prompts: set[str] = set()

    def answer(self, text: str) -> str | dict[str, str]:
        if self.has_long_instruction() and text not in self.answered_prompts:
            if len(self.answered_prompts) == 3:
                return "I would rather not say."
            self.answered_prompts.add(text)
        return super().answer(text)


class WholePromptEngine(ScriptedEngine):
    """A scripted engine that counts the tokens of whole prompts, instructions included."""

    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        _, user_prompt = self.prompts[-1]
        input_tokens = len(self.system + user_prompt) // 4
        return replace(response, usage=replace(response.usage, input_tokens=input_tokens))


@pytest.fixture
def compile_with_gepa(tmp_path: Path) -> Callable[..., CompileResult]:
    """A function that compiles Turn RAG with GEPA and a scripted model on six users' questions."""
    questions_file = own_questions(tmp_path)

    def run(
        model: LengthModel | None = None, frontier_type: str = "instance", **options: Any
    ) -> CompileResult:
        model = model or LengthModel()
        model.engine = WholePromptEngine(model)
        lm = MeteredLM(
            "scripted/test",
            Metering(),
            engine=model.engine,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )
        gepa = mempiler.optimizers.Gepa(max_metric_calls=40, frontier_type=frontier_type)
        return mempiler.compile(
            "turn-rag",
            benchmark="jsonl",
            data=questions_file,
            optimizer=gepa,
            lm=lm,
            train=16,
            threads=1,
            min_n=8,
            progress=False,
            **options,
        )

    return run


def candidate_with(words: str, result: CompileResult) -> FrontierPoint:
    """Return the first candidate with an instruction that has some words."""
    candidates = [point for point in result.frontier if words in str(point.instructions)]
    return candidates[0]


@pytest.mark.parametrize(
    "frontier_type",
    [
        "objective",
        pytest.param("hybrid", marks=pytest.mark.slow),
        pytest.param("cartesian", marks=pytest.mark.slow),
    ],
)
def test_gepa_keeps_both_a_candidate_with_a_high_score_and_one_with_short_prompts(
    compile_with_gepa, frontier_type
):
    """With the short instruction of the start program, the model answers half of the questions.

    It proposes a long instruction of about 300 tokens, with which it answers all questions.
    """
    result = compile_with_gepa(frontier_type=frontier_type)

    start = result.frontier[0]
    long_candidate = candidate_with("every word", result)
    assert start.score < 1.0
    assert long_candidate.score == 1.0
    assert 100 < long_candidate.prompt_tokens - start.prompt_tokens < 320
    assert start.on_frontier
    assert long_candidate.on_frontier
    # The start has the number 0, and the long candidate was made of it.
    assert start.parents == ()
    assert long_candidate.parents == (0,)


@pytest.mark.parametrize(
    "frontier_type",
    [
        "instance",
        "objective",
        pytest.param("hybrid", marks=pytest.mark.slow),
        pytest.param("cartesian", marks=pytest.mark.slow),
    ],
)
def test_gepa_goes_on_after_a_candidate_that_gave_no_readable_answer(
    compile_with_gepa, frontier_type
):
    """Without any answer on the valset, the tokens of the candidate's prompts are not known."""
    result = compile_with_gepa(UnreadableOnValset(), frontier_type=frontier_type)

    assert result.optimizer_problems.failure is None
    (unreadable,) = [point for point in result.frontier if point.prompt_tokens is None]
    assert unreadable.score == 0.0
    assert unreadable.n == 5
    assert not unreadable.on_frontier
    assert "every word" in str(unreadable.instructions)


def scores_and_instructions(frontier: Sequence[FrontierPoint]) -> list[tuple[Any, ...]]:
    """Return what a candidate is known by: its score, the tokens of its prompts, instructions."""
    return [(point.score, point.prompt_tokens, point.instructions) for point in frontier]


def test_a_limit_that_ends_gepa_leaves_the_candidates_that_were_fully_scored(compile_with_gepa):
    """The whole compile takes more than 48 calls, so the limit ends it on the way."""
    complete = compile_with_gepa()

    limited = compile_with_gepa(max_calls=48)

    assert limited.stopped is not None
    number_left = len(limited.frontier)
    assert 0 < number_left < len(complete.frontier)
    assert scores_and_instructions(limited.frontier) == scores_and_instructions(
        complete.frontier[:number_left]
    )


def test_the_candidates_of_gepa_are_recorded_in_the_run(compile_with_gepa):
    """The start program is number 0, and the others follow."""
    result = compile_with_gepa()

    record = json.loads((result.run / "run.json").read_text())
    recorded_frontier = record["result"]["frontier"]
    assert recorded_frontier == json.loads(json.dumps(result.to_dict()["frontier"]))
    assert len(recorded_frontier) > 1
    numbers = [point["number"] for point in recorded_frontier]
    assert numbers == list(range(len(result.frontier)))


def test_the_page_of_a_compile_draws_each_candidate_of_gepa(compile_with_gepa):
    """Each point of the chart is a link to the instructions of a candidate.

    Among others, the model proposes "Name the marker, or say <b>no idea</b>."; the page must show
    the tag as text.
    """
    result = compile_with_gepa()

    page = (result.run / "report.html").read_text()
    drawn_numbers = re.findall(r'<a href="#candidate-(\d+)" aria-label=', page)
    assert drawn_numbers == [str(point.number) for point in result.frontier]
    for number in drawn_numbers:
        assert f'id="candidate-{number}"' in page
    assert "every word that was said" in page
    assert "<b>no idea" not in page


@pytest.fixture
def objectives_of_gepa(scripted, fact_replies, make_history) -> Callable[[Any], dict[str, float]]:
    """A function that returns what GEPA maximizes when it compiles a stage of Memory-R2.

    The memory has twelve facts such as "I saw Oslo with 3 friends", and says by whom.
    """

    def objectives_of(stage: Any) -> dict[str, float]:
        examples = questions_about(make_history(2), 6)
        program = mempiler.build("memory-r2", embedder=embedder())
        with dspy.context(lm=scripted(fact_replies)):
            job = plan_job(program, locomo(examples), examples, CompileConfig("gepa", stage))
            prediction = job.student(**examples[0].inputs())
            return job.metric_views.feedback(examples[0], prediction).objective_scores

    return objectives_of


def test_gepa_makes_the_memory_shorter_only_if_writing_is_compiled(objectives_of_gepa):
    """GEPA maximizes its objectives, so words and tokens, which cost, are negative.

    Each of twelve facts in the memory has six words and more.
    """
    writing = objectives_of_gepa("write")
    reading = objectives_of_gepa("read")

    assert writing["stored_words"] <= -12 * 6
    assert set(reading) == {"score", "prompt_tokens"}
    assert reading["prompt_tokens"] < 0


def candidate(number: int, score: float, tokens: float | None) -> FrontierPoint:
    """Return a candidate with a score, and with the mean number of tokens of its prompts."""
    return FrontierPoint(number, (), {}, score, 10, tokens)


def frontier_of(*candidates: FrontierPoint) -> list[int]:
    """Return the numbers of the candidates that no other one surpasses in score and tokens."""
    return [point.number for point in mark_frontier(candidates) if point.on_frontier]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"score": 0.9, "tokens": 300}, id="a higher score, but more tokens"),
        pytest.param({"score": 0.5, "tokens": 100}, id="the same score and the same tokens"),
    ],
)
def test_two_candidates_of_which_none_surpasses_the_other_are_both_on_the_frontier(other):
    """Nobody can say which of the two is to be preferred."""
    first = candidate(0, score=0.5, tokens=100)

    assert frontier_of(first, candidate(1, **other)) == [0, 1]


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"score": 0.5, "tokens": 120}, id="more tokens for the same score"),
        pytest.param({"score": 0.4, "tokens": 100}, id="a lower score with the same tokens"),
        pytest.param({"score": 1.0, "tokens": None}, id="unknown tokens"),
    ],
)
def test_a_candidate_with_no_advantage_is_not_on_the_frontier(worse):
    """On the frontier are candidates that no other one surpasses in score or tokens."""
    first = candidate(0, score=0.5, tokens=100)

    assert frontier_of(first, candidate(1, **worse)) == [0]
