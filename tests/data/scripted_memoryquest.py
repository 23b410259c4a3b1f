"""A scripted model that writes a MemoryQuest without a mistake, and its embedder.

`flawless_model(kind, prompt, number)` has the form that the fixture `scripted` wants: `kind` is the
name of the first output field that is asked for. Tests wrap it to put one mistake into its answers.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .scripted_palset import prompt_field


def flawless_model(kind: str, prompt: str, number: int) -> dict[str, Any]:
    """Answer a prompt of the synthesis well. Each round of requests has two new ones."""
    if kind == "queries":
        earlier_queries = str(prompt_field(prompt, "earlier_queries"))
        start = len(re.findall(r"number\d+", earlier_queries))
        return {"queries": [request(start), request(start + 1)]}
    if kind == "events":
        plan = events()
        for event in plan:
            event["summary"] += f": {prompt_field(prompt, 'query')}"
        return {"events": plan}
    return {"turns": dialogue(prompt_field(prompt, "facts"))}


def request(number: int = 0, cosine: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Return a request with three references.

    Args:
        number: Its number, which makes its words different from those of other requests.
        cosine: The similarity that `RequestEmbedder` finds between it and its references.
        **changes: Fields that are not as usual.
    """
    plain_request = {
        "query": f"Plan party number{number} near={cosine}",
        "date": "2024-06-01",
        "reasoning": "because",
        "references": [
            {"text": f"Bought lantern{number}red for grandmother", "date": "2024-02-10"},
            {"text": f"Bought lantern{number}green for grandmother", "date": "2024-03-10"},
            {"text": f"Bought lantern{number}blue for grandmother", "date": "2024-04-10"},
        ],
    }
    return {**plain_request, **changes}


def events(changes: dict[int, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Return a plan of five events, of which three tell a reference each.

    Args:
        changes: Fields that are not as usual, by the position of the event.
    """
    plan: list[dict[str, Any]] = []
    for day, references in (
        ("2024-02-01", []),
        ("2024-02-10", ["r1"]),
        ("2024-03-10", ["r2"]),
        ("2024-03-20", []),
        ("2024-04-10", ["r3"]),
    ):
        plan.append(
            {
                "date": day,
                "domains": ["Books"],
                "summary": f"Talks on {day}",
                "references": references,
            }
        )
    for position, fields in (changes or {}).items():
        plan[position].update(fields)
    return plan


def dialogue(fact: str, turn_count: int = 6) -> list[dict[str, str]]:
    """Return a dialogue in which the user tells a fact in the third turn."""
    turns: list[dict[str, str]] = []
    for number in range(turn_count):
        speaker = "user" if number % 2 == 0 else "assistant"
        text = f"By the way, {fact}" if number == 2 else f"Hello there {number}"
        turns.append({"speaker": speaker, "text": text})
    return turns


class RequestEmbedder:
    """An embedder that finds the cosine which a request names: `near=0.4`."""

    def __init__(self, name: str = "test") -> None:
        self.name = name

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit vectors. All others have the named cosine to the first, the request."""
        named_cosine = re.search(r"near=([\d.]+)", texts[0])
        assert named_cosine is not None
        cosine = float(named_cosine.group(1))
        sine = np.sqrt(1 - cosine**2)

        vectors = [[1.0, 0.0]]
        for _ in texts[1:]:
            vectors.append([cosine, sine])
        return np.array(vectors, dtype=np.float32)
