"""What of the references is in a retrieved context: PGR's judged recall, and the recall that needs no judge.

The paper's judge says yes ("explicitly or implicitly") or no; this one tells the two kinds of yes apart, so that a
lenient judge is seen. One call for all references of a query, no vote. A session that was recalled need not have shown
the line that mattered, so evidence at the level of sessions is an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from dspy.utils.exceptions import AdapterParseError

from ..errors import one_line
from ..signatures.judges import Acknowledgement, JudgeAcknowledgement
from .judge import PromptJudge

Level = Literal["not", "implicitly", "explicitly"]


@dataclass(frozen=True)
class Acknowledged:
    """A judge's verdict on one reference."""

    level: Level
    reason: str = ""


class AcknowledgementJudge(PromptJudge):
    """Judges contexts by `signatures.judges.JudgeAcknowledgement`."""

    signature = JudgeAcknowledgement

    def __call__(self, question: str, references: Sequence[str], context: str) -> tuple[Acknowledged, ...]:
        """Judges all references of a query in one call. An empty context needs no call.

        Entries are taken by their numbers; where the numbers are not those of the references but there are as many
        entries, by their order.

        Raises:
            AdapterParseError: The reply stays unparseable, or leaves a reference out.
            LMError: The judge's endpoint failed.
        """
        if not context.strip():
            return tuple(Acknowledged("not", "nothing was retrieved") for _ in references)
        numbered = "\n".join(f"{n}. {one_line(text)}" for n, text in enumerate(references, 1))
        said: list[Acknowledgement] = self.ask(question=question, references=numbered, context=context).acknowledgements
        if len(said) != len(references):
            message = f"{len(references)} references, but the judge speaks of {len(said)}"
            raise AdapterParseError("judge", cast("Any", self.signature), str(said), message)
        if sorted(each.number for each in said) == list(range(1, len(said) + 1)):
            said = sorted(said, key=lambda each: each.number)
        return tuple(Acknowledged(each.found, one_line(each.reason)) for each in said)


def recall_parts(levels: Sequence[Level]) -> dict[str, float]:
    """PGR's metrics of one query from what was said of its references, of which there is at least one.

    Source: PGR, section 5.2: Recall is the fraction of the references that are judged present, Recall_Exact is 1 if
    all are.
    """
    present = [level != "not" for level in levels]
    return {
        "recall": sum(present) / len(levels),
        "recall_exact": float(all(present)),
        "recall_explicit": sum(level == "explicitly" for level in levels) / len(levels),
    }


def evidence_parts(evidence: Sequence[Collection[str]], sources: Collection[str]) -> dict[str, float]:
    """The share of the references with a turn of their evidence among the turns that were recalled.

    Args:
        evidence: For each reference the ids of the turns that hold it, or of all turns of its session.
        sources: Ids of the turns that the recalled hits rest on.

    Returns:
        `evidence` and `evidence_exact` over the references with evidence; nothing where none has any.
    """
    recalled = set(sources)
    found = [not recalled.isdisjoint(turns) for turns in evidence if turns]
    return {"evidence": sum(found) / len(found), "evidence_exact": float(all(found))} if found else {}
