"""The result of `mempiler improve`: what a round decided, on how many questions, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .promotion import Promotion

Outcome = Literal["promoted", "kept", "too few questions"]
"""How a round ended: the alias names a new version; it names the old one; or the round did not
begin."""


@dataclass(frozen=True)
class Improvement:
    """The result of a round."""

    address: str
    """The address of the program, e.g. "models:/memory@prod"."""
    outcome: Outcome
    reason: str
    """Why the round ended so, in one sentence."""
    version_before: str
    """The version that the alias named when the round began."""
    version_after: str
    """The version that the alias names after the round."""
    new_questions: int
    """Questions that no earlier round decided on."""
    decided_questions: int
    """Questions on which this round decided; 0 if it did not compare two programs."""
    trained_questions: int
    """Questions that the optimizer could learn from."""
    promotion: Promotion | None = None
    """The comparison of the two programs on the deciding questions; None without a compile."""
    score_before: float | None = None
    """The score of the current program on the deciding questions."""
    score_after: float | None = None
    """The score of the new program on the deciding questions; None if it was not scored."""
    needs_rebuild: bool = False
    """Whether stored memories must be written anew for the new version. They must if its writing
    prompts are others, because a service refuses memories that another program wrote."""
    usage: dict[str, Any] | None = None
    """Calls, tokens and cost of the round; None without a compile."""

    @property
    def is_promoted(self) -> bool:
        """Whether the alias names a new version."""
        return self.outcome == "promoted"

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler improve --json` prints."""
        return {
            "address": self.address,
            "outcome": self.outcome,
            "promoted": self.is_promoted,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "new_questions": self.new_questions,
            "decided_questions": self.decided_questions,
            "trained_questions": self.trained_questions,
            "score_before": self.score_before,
            "score_after": self.score_after,
            "needs_rebuild": self.needs_rebuild,
            "promotion": None if self.promotion is None else self.promotion.to_dict(),
            "usage": self.usage,
        }

    def __str__(self) -> str:
        version = f"version {self.version_after}"
        if self.is_promoted:
            version = f"version {self.version_before} -> {self.version_after}"
        line = f"{self.address}: {self.outcome} ({version}): {self.reason}"
        if self.needs_rebuild:
            line += (
                "; it writes memories with other prompts: run"
                f" mempiler memories rebuild {self.address} --store STORE before you serve it"
            )
        return line
