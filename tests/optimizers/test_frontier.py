"""GEPA weighs the score against the tokens of prompts, and its candidates are kept and drawn."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import load
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.optimizers.compile import CompileConfig, plan_job
from mempiler.optimizers.frontier import FrontierPoint, mark_frontier

from ..conftest import ScriptedEngine
from ..runs.evaluations import asked, locomo, own_questions, script_models

LONG = "Name the marker. " + "Think of every word that was said about markers, one by one. " * 20
SHORT = "Name the marker, or say <b>no idea</b>."


class Markers:
    """Knows all answers under a long instruction, and half of them under a short one or none."""

    def __init__(self, engine: Any = None) -> None:
        self.engine, self.proposals = engine, 0

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any] | str:
        if kind == "new_instruction":
            self.proposals += 1
            return json.dumps({kind: LONG if self.proposals % 2 else SHORT})
        asked = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0].split()[-1]
        knows = LONG.strip() in self.engine.system or int(asked[-1]) < 4
        return {"answer": f"marker {asked}" if knows else "no idea"}


class AnsweringThree(Markers):
    """Answers three questions under a long instruction, and then none, so it fails on the whole valset."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: set[str] = set()

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any] | str:
        is_long = kind == "answer" and LONG.strip() in self.engine.system
        if is_long and text not in self.answered:
            if len(self.answered) == 3:
                return "I would rather not say."
            self.answered.add(text)
        return super().__call__(kind, text, n)


class CountingEngine(ScriptedEngine):
    """Counts a token for four characters of the whole prompt, the instructions included."""

    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        text = self.system + self.prompts[-1][1]
        return replace(response, usage=replace(response.usage, input_tokens=len(text) // 4))


@pytest.fixture
def compile_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`compile_markers(**options)` compiles turn-rag with GEPA on six users' questions."""
    data = own_questions(tmp_path)

    def run(model: Any = None, **options: Any) -> Any:
        model = model or Markers()
        model.engine = CountingEngine(model)
        script_models(monkeypatch, model.engine)
        shared = {
            "benchmark": "jsonl",
            "data": data,
            "lm": "scripted/test",
            "train": 16,
            "threads": 1,
        }
        gepa = mempiler.optimizers.Gepa(
            max_metric_calls=40, frontier_type=options.pop("frontier_type", "instance")
        )
        return mempiler.compile(
            "turn-rag", optimizer=gepa, progress=False, min_n=8, **shared, **options
        )

    return run


@pytest.mark.parametrize("frontier_type", ["objective", "hybrid", "cartesian"])
def test_gepa_gets_the_tokens_of_prompts_as_an_objective(compile_markers, frontier_type):
    result = compile_markers(frontier_type=frontier_type)
    assert result.optimizer_problems.failure is None
    start, long = (
        result.frontier[0],
        next(point for point in result.frontier if "every word" in str(point.instructions)),
    )
    assert start.number == 0
    assert start.parents == ()
    assert long.parents == (0,)
    assert long.score == 1.0 > start.score
    assert long.n == start.n == 5
    # The instruction of 1,200 characters takes about 300 tokens more than that of the start, in each prompt.
    assert 100 < long.prompt_tokens - start.prompt_tokens < 320
    assert start.on_frontier
    assert long.on_frontier


@pytest.mark.parametrize("frontier_type", ["instance", "objective", "hybrid", "cartesian"])
def test_a_candidate_without_any_answer_does_not_end_gepa(compile_markers, frontier_type):
    result = compile_markers(AnsweringThree(), frontier_type=frontier_type)
    assert result.optimizer_problems.failure is None
    silent = [point for point in result.frontier if point.prompt_tokens is None]
    assert [(point.score, point.n, point.on_frontier) for point in silent] == [(0.0, 5, False)]
    assert "every word" in str(silent[0].instructions)


def test_a_limit_that_ends_gepa_leaves_the_candidates_that_were_scored_in_full(compile_markers):
    whole = compile_markers()
    limited = compile_markers(max_calls=48)
    assert limited.stopped is not None
    assert 0 < len(limited.frontier) < len(whole.frontier)
    for point, same in zip(limited.frontier, whole.frontier, strict=False):
        assert (point.score, point.prompt_tokens, point.instructions) == (
            same.score,
            same.prompt_tokens,
            same.instructions,
        )


def test_a_resumed_run_has_the_same_frontier_and_asks_nothing(compile_markers):
    first = compile_markers(frontier_type="hybrid")
    again = compile_markers(frontier_type="hybrid", resume=first.run.name)
    assert sum(again.usage["calls"].values()) == again.usage["calls"]["cached"]
    assert again.frontier == first.frontier


def test_the_statistics_of_gepa_are_json_in_the_run_and_not_in_the_program(
    compile_markers, tmp_path
):
    result = compile_markers(out=tmp_path / "out")
    recorded = json.loads((result.run / "run.json").read_text())["result"]["frontier"]
    assert recorded == json.loads(json.dumps(result.to_dict()["frontier"]))
    assert [point["number"] for point in recorded] == list(range(len(result.frontier)))
    assert len(recorded) > 1
    assert "parents" not in "".join(path.read_text() for path in (tmp_path / "out").glob("*.json"))
    assert not hasattr(load(tmp_path / "out"), "detailed_results")


def test_the_page_draws_each_candidate_and_escapes_its_prompt(compile_markers):
    result = compile_markers()
    page = (result.run / "report.html").read_text()
    drawn = re.findall(r'<a href="#candidate-(\d+)" aria-label=', page)
    assert drawn == [str(point.number) for point in result.frontier]
    assert all(f'id="candidate-{number}"' in page for number in drawn)
    assert "every word that was said" in page
    assert "<b>no idea" not in page


def test_words_of_the_memory_count_where_writing_is_tuned(scripted, fact_replies, make_history):
    examples = asked(make_history(2), 6)
    program = mempiler.build("memory-r2", embedder=embedder())
    lm = scripted(fact_replies)
    scores: dict[str, Any] = {}
    with dspy.context(lm=lm):
        for stage in ("write", "read"):
            job = plan_job(program, locomo(examples), examples, CompileConfig("gepa", stage))
            prediction = job.student(**examples[0].inputs())
            scores[stage] = job.metric_views.feedback(examples[0], prediction).objective_scores
    # Each of twelve facts is "I saw Oslo with 3 friends", and says by whom.
    assert scores["write"]["stored_words"] <= -12 * 6
    assert set(scores["read"]) == {"score", "prompt_tokens"}
    assert scores["write"]["prompt_tokens"] == scores["read"]["prompt_tokens"] < 0


def point(number: int, score: float, tokens: float | None) -> FrontierPoint:
    return FrontierPoint(number, (), {}, score, 10, tokens)


def test_a_point_is_on_the_frontier_unless_another_is_as_good_and_better():
    points = [
        point(0, 0.5, 100),
        point(1, 0.5, 120),
        point(2, 0.9, 300),
        point(3, 0.4, 300),
        point(4, 1.0, None),
    ]
    assert [each.number for each in mark_frontier(points) if each.on_frontier] == [0, 2]
    twins = [point(0, 0.5, 100), point(1, 0.5, 100)]
    assert all(each.on_frontier for each in mark_frontier(twins))


def test_an_unknown_frontier_type_is_refused(compile_markers):
    with pytest.raises(
        UserError, match="frontier_type = 'pareto': Input should be 'instance', 'objective'"
    ):
        compile_markers(frontier_type="pareto")
