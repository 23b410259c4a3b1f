"""Rows, evaluations and questions made by tests, and runs whose models are scripted."""

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

UNREPEATABLE_FIELDS = frozenset(
    {
        "seconds",
        "run_id",
        "run",
        "program",
        "latency",
        "search_ms",
    }
)
"""Fields of a command's output that differ between two equal runs: times, names and folders."""


def row(question_id: str = "q0", score: float = 1.0, **changed: Any) -> Row:
    """Return the row of a scored question; `changed` gives further fields.

    A question of category 5, which cannot be answered from its history, is not part of the headline
    score.
    """
    fields: dict[str, Any] = {
        "id": question_id,
        "group": "g",
        "category": "4",
        "in_headline": changed.get("category") != "5",
        "question": f"What of {question_id}?",
        "gold": "gold",
        "answer": "answer",
        "score": score,
        "parts": {"f1": score},
        "recall": {},
        "sources": (),
        "seconds": 0.1,
    }
    return Row(**{**fields, **changed})


def evaluation(rows: Iterable[Row], **changed: Any) -> Evaluation:
    """Return the evaluation that consists of these rows; `changed` gives further fields."""
    all_rows = tuple(rows)
    fields: dict[str, Any] = {
        "program": "turn-rag",
        "benchmark": "locomo",
        "lm": "openai/x",
        "embedder": None,
        "calls": {"task": len(all_rows), "prompt": 0, "judge": 0, "cached": 0},
        "write_failures": 0,
        "comparable": True,
        "tokens": {"input": 1200, "output": 34},
        "cost": 0.5,
        "seconds": 1.0,
    }
    return Evaluation(rows=all_rows, **{**fields, **changed})


def questions_about(
    history: Any, count: int, question: str = "Who saw Oslo, {n}?", **fields: Any
) -> list[dspy.Example]:
    """Return `count` questions about a history, with the fields that LoCoMo's questions have.

    By default the gold answer of each is "Bob". In every text, `{n}` stands for the number of the
    question.
    """
    templates = {
        "answer": "Bob",
        "category": "4",
        "evidence_ids": ("D1:1",),
        "evidence": ("D1:1",),
        "question": question,
        **fields,
    }

    examples = []
    for number in range(count):
        values: dict[str, Any] = {}
        for name, template in templates.items():
            is_text = isinstance(template, str)
            values[name] = template.format(n=number) if is_text else template
        question_id = f"{history.id}:{templates['category']}:{number}"
        example = dspy.Example(id=question_id, history=history, **values)
        examples.append(example.with_inputs("history", "question", "evidence_ids"))
    return examples


def locomo(examples: Sequence[dspy.Example]) -> Locomo:
    """Return the benchmark LoCoMo with these questions in place of its own."""
    source = Source("sample.json", "0" * 64, sample=True)
    return Locomo(examples, source)


def own_questions(folder: Path) -> str:
    """Write a data file of six users with eight questions each; return its path.

    Question 3 about user 2 is "What is fact 23?", and its gold answer is "marker 23". The file is
    split by user: four users are to train, one is dev, one is test.
    """
    lines = []
    for user in range(6):
        for number in range(8):
            messages = []
            for fact in range(8):
                content = f"Fact {user}{fact} is near marker {user}{fact}."
                messages.append({"role": "user", "content": content})
            question = {
                "user": f"user{user}",
                "id": f"{user}-{number}",
                "messages": messages,
                "question": f"What is fact {user}{number}?",
                "answer": f"marker {user}{number}",
                "evidence": [f"D1:{number + 1}"],
            }
            lines.append(json.dumps(question))

    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines))
    return str(path)


def reproducible_part(output: Any, *more: str) -> Any:
    """Return a command's JSON output without the fields that differ between two equal runs.

    Args:
        output: The object, or any part of it.
        *more: Names of further fields to leave out.
    """
    if isinstance(output, list):
        return [reproducible_part(item, *more) for item in output]
    if not isinstance(output, dict):
        return output

    left_out = UNREPEATABLE_FIELDS.union(more)
    return {
        name: reproducible_part(value, *more)
        for name, value in output.items()
        if name not in left_out
    }


def refusal(call: Callable[..., Any], /, *values: Any, **named: Any) -> str:
    """Make a call that a mistake of the user's makes fail; return the error message."""
    with pytest.raises(MempilerError) as refused:
        call(*values, **named)
    assert refused.value.exit_code == 2
    return str(refused.value)


def break_optimizer(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], Any]) -> None:
    """Register an optimizer `broken`, which calls `run` with its job."""

    class Broken(Optimizer):
        name = "broken"
        changes_in_program = "nothing"
        cost_description = "nothing"

        def run(self, job: Any) -> Any:
            return run(job)

    monkeypatch.setitem(OPTIMIZERS, "broken", Broken)


class RecordingEngine(OfflineEngine):
    """The offline engine, which also keeps the text of every prompt in `prompts`."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    def complete(self, request: Any) -> Any:
        parts = [str(request.system or "")]
        for message in request.messages:
            parts.append(message.text or "")
        self.prompts.append("\n".join(parts))
        return super().complete(request)


def script_models(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Let `engine` answer for every model of the runs that follow, whatever the model's name is.

    Calls are metered, limited and stored as those of any model are.
    """

    def scripted_model(
        name: str,
        config: Any = None,
        *,
        role: Any,
        meter: Meter | None = None,
        guard: BudgetGuard | None = None,
        answers: Any = None,
        **_: Any,  # `replay` and `loaded`, which no scripted run has, and the address of a server
    ) -> MeteredLM:
        metering = Metering(
            meter=meter or Meter(),
            role=role,
            guard=guard or BudgetGuard(),
            answers=answers,
        )
        return MeteredLM(
            "scripted/test",
            metering,
            engine=engine,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )

    # Models are made in two places: to check them before a run, and to ask them in it.
    monkeypatch.setattr("mempiler.runs.role_models.language_model", scripted_model)
    monkeypatch.setattr("mempiler.runs.run_models.language_model", scripted_model)
