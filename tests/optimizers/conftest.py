"""Questions about the histories of `make_history`."""

from typing import Any

import dspy

PLACES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Accra", "Perth", "Turin", "Dakar")
"""What its sessions are about, by their number."""


def asked(history: Any, turn: str, category: str = "4", **changes: Any) -> dspy.Example:
    """A question that a search for its words finds the turn of."""
    session, number = turn[1:].split(":")
    return dspy.Example(
        **{
            "id": f"{history.id}:{turn}:{category}",
            "history": history,
            "question": f"Who saw {PLACES[int(session) % 8]} with {number}, of category {category}?",
            "answer": ("Ann", "Bob")[int(number) % 2],
            "category": category,
            "evidence_ids": (turn,),
            "evidence": (turn,),
            **changes,
        }
    ).with_inputs("history", "question", "evidence_ids")
