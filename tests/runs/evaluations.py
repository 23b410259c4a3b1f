"""Rows and evaluations without a run, questions of a benchmark of one's own, and runs whose models are scripted."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.dataset import Source
from mempiler.data.locomo import Locomo
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.errors import MempilerError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.optimizer import Optimizer
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row


def row(id: str = "q0", score: float = 1.0, **changed: Any) -> Row:
    """A scored question; one of category 5 is outside the headline score."""
    values: dict[str, Any] = {
        "group": "g",
        "category": "4",
        "in_headline": changed.get("category") != "5",
    }
    values |= {
        "question": f"What of {id}?",
        "gold": "gold",
        "answer": "answer",
        "parts": {"f1": score},
    }
    return Row(
        **{
            "id": id,
            "score": score,
            "recall": {},
            "sources": (),
            "seconds": 0.1,
            **values,
            **changed,
        }
    )


def evaluation(rows: Iterable[Row], **changed: Any) -> Evaluation:
    """The evaluation of these questions."""
    asked = tuple(rows)
    values: dict[str, Any] = {
        "program": "turn-rag",
        "benchmark": "locomo",
        "lm": "openai/x",
        "embedder": None,
    }
    values |= {
        "calls": {"task": len(asked), "prompt": 0, "judge": 0, "cached": 0},
        "write_failures": 0,
    }
    values |= {
        "comparable": True,
        "tokens": {"input": 1200, "output": 34},
        "cost": 0.5,
        "seconds": 1.0,
    }
    return Evaluation(rows=asked, **{**values, **changed})


def asked(
    history: Any, count: int, question: str = "Who saw Oslo, {n}?", **fields: Any
) -> list[dspy.Example]:
    """So many questions about a history, as LoCoMo has them; fields may name the number of a question."""
    plain = {
        "answer": "Bob",
        "category": "4",
        "evidence_ids": ("D1:1",),
        "evidence": ("D1:1",),
        "question": question,
    } | fields
    return [
        dspy.Example(
            id=f"{history.id}:{plain['category']}:{n}",
            history=history,
            **{
                name: value.format(n=n) if isinstance(value, str) else value
                for name, value in plain.items()
            },
        ).with_inputs("history", "question", "evidence_ids")
        for n in range(count)
    ]


def locomo(examples: Sequence[dspy.Example]) -> Locomo:
    """A benchmark of these questions."""
    return Locomo(examples, Source("sample.json", "0" * 64, sample=True))


def own_questions(folder: Path) -> str:
    """A file of six users with eight questions each: four users to train, one for dev, one for test."""
    rows = [
        {
            "user": f"user{u}",
            "id": f"{u}-{q}",
            "messages": [
                {"role": "user", "content": f"Fact {u}{q} is near marker {u}{q}."} for q in range(8)
            ],
            "question": f"What is fact {u}{q}?",
            "answer": f"marker {u}{q}",
            "evidence": [f"D1:{q + 1}"],
        }
        for u in range(6)
        for q in range(8)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "questions.jsonl")


def table(found: Any, *more: str) -> Any:
    """What a command printed, without what is another time's or another folder's, and without more names."""
    if isinstance(found, dict):
        left_out = {"seconds", "run_id", "run", "program", "latency", "search_ms", *more}
        return {name: table(value, *more) for name, value in found.items() if name not in left_out}
    return [table(each, *more) for each in found] if isinstance(found, list) else found


def refusal(call: Callable[..., Any], *values: Any, **named: Any) -> str:
    """The one line with which a mistake of the user's is refused."""
    with pytest.raises(MempilerError) as caught:
        call(*values, **named)
    assert caught.value.exit_code == 2
    return str(caught.value)


def break_optimizer(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """Lets the catalog have an optimizer `broken`, which is run like this."""

    class Broken(Optimizer):
        name = "broken"
        changes_in_program = "nothing"
        cost_description = "nothing"

        def run(self, job: Any) -> Any:
            return run(job)

    monkeypatch.setitem(OPTIMIZERS, "broken", Broken)


class Listening(OfflineEngine):
    """The offline engine, and what it was asked, in `prompts`."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    def complete(self, request: Any) -> Any:
        said = (each.text or "" for each in request.messages)
        self.prompts.append("\n".join([str(request.system or ""), *said]))
        return super().complete(request)


def script_models(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Lets every model of a run ask this engine."""

    def model(
        name: str,
        config: Any = None,
        *,
        meter: Any = None,
        role: Any,
        guard: Any = None,
        answers: Any = None,
        **_: Any,
    ) -> MeteredLM:
        settings = {"cache": False, "temperature": 0.0, "num_retries": 0, "engine": engine}
        return MeteredLM(
            "scripted/test",
            Metering(meter or Meter(), role, guard or BudgetGuard(), answers),
            **settings,
        )

    for room in ("role_models", "run_models"):
        monkeypatch.setattr(f"mempiler.runs.{room}.language_model", model)
