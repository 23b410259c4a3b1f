"""What a training keeps of answers is what an evaluation keeps of them, but for what their calls took."""

import dspy
from mempiler.data.catalog import benchmark
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.optimizers.logo_grpo.policy import by_history
from mempiler.optimizers.logo_grpo.reward import Asked, answer
from mempiler.programs.catalog import build
from mempiler.runs.evaluate import evaluate
from mempiler.runs.rows import SHOWN, Row, Seen
from mempiler.runs.trained import answered_row

SAME = ["id", "group", "category", "counts", "question", "gold", "answer", "score", "parts", "sources", "hits"]


def untimed(row: Row) -> Seen:
    """What stood behind an answer, without when that was."""
    assert row.seen is not None
    calls = (call.model_copy(update={"at": 0.0, "seconds": 0.0}) for call in row.seen.calls)
    return row.seen.model_copy(update={"moments": None, "calls": tuple(calls)})


def test_an_answer_in_training_is_the_row_of_an_evaluation() -> None:
    locomo, program, meter = benchmark("locomo"), build("turn-rag", k=3), Meter()
    examples = locomo.examples[:3]
    heard: list[Asked] = []

    def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(locomo.score(example, prediction).value)

    with dspy.context(lm=language_model("offline", meter=meter)):
        expected = evaluate(program, locomo, examples, meter, threads=1).rows
        for history, asked in by_history(examples):
            memory = program.remember(history).memory
            scores = answer(program, history, memory, asked, metric, heard.append).scores
            assert scores == answer(program, history, memory, asked, metric).scores
    heard.sort(key=lambda each: examples.index(each.example))
    rows = [answered_row(program, locomo, each) for each in heard]
    assert [[getattr(row, name) for name in SAME] for row in rows] == [
        [getattr(row, name) for name in SAME] for row in expected
    ]
    assert [untimed(row) for row in rows] == [untimed(row) for row in expected]
    assert [row.recall.get(SHOWN) for row in rows] == [row.recall.get(SHOWN) for row in expected]
    assert all(row.seen is not None and row.seen.calls for row in rows)


def test_an_answer_that_could_not_be_read_is_a_failure() -> None:
    locomo, program = benchmark("locomo"), build("turn-rag")
    asked = Asked(locomo.examples[0], dspy.Prediction(answer=""), 0.0, (), ValueError("no fields"))
    row = answered_row(program, locomo, asked)
    assert (row.score, row.answer, row.right) == (0.0, "", False)
    assert row.failure is not None
    assert "no fields" in row.failure.message
