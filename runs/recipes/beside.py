"""What stands beside a section's tables: how its variants differ from its own one, and what each of them takes.

Differences are paired, question by question, with the interval of `mempiler compare`: users are resampled where there
are enough. What writing the memories takes stands apart from what answering takes; both are what a variant takes by
itself, though memories that variants share are written once and equal calls are paid once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..results import Expense, Row
from ..statistics import Difference, paired
from .made import Made
from .tables import Cell, Measured, OurTable

DIFFERENCES = ("variant", "n", "difference", "95 % interval", "better", "worse", "equal", "p", "verdict")
EXPENSES = (
    "variant",
    "memories",
    "calls to write",
    "tokens to write",
    "seconds to write",
    "calls a question",
    "tokens a question",
    "seconds a question",
    "US$ to write",
    "US$ to answer",
)
_EXPENSES = (
    "To write: of one memory, as if no other variant had written it. A call counts wherever its answer came from, "
    "a cache included; US$ are of all memories and all questions, where the price of every call is known. Counts, "
    "means of counts and US$ are of this run, and have no interval."
)


def differences(made: Sequence[Made], own: str = "") -> OurTable | None:
    """Paired differences of the headline score to the section's own variant; None where there is nothing to compare.

    Args:
        made: The variants.
        own: The label of what the others are compared with; the first where there is none of this label.
    """
    if len(made) < 2:
        return None
    base = next((each for each in made if each.label == own), made[0])
    rows = tuple(_row(each.label, _paired(base, each)) for each in made if each is not base)
    return OurTable(f"paired differences of the score to {base.label}", DIFFERENCES, rows)


def _paired(base: Made, other: Made) -> Difference:
    """How a variant did against the own one, on the questions that both were asked."""
    before, after = base.by_id(_counted), other.by_id(_counted)
    groups = {row.id: row.group for row in base.evaluation.rows}
    shared = [id for id in before if id in after]
    a, b = [before[id] for id in shared], [after[id] for id in shared]
    return paired(b, a, [groups[id] for id in shared])


def _row(label: str, found: Difference) -> tuple[Cell, ...]:
    if not found.n:
        return (label, "0", None, "-", "0", "0", "0", "-", found.verdict)
    span = None if found.interval is None else (found.interval.low, found.interval.high)
    return (
        label,
        str(found.n),
        Measured(found.mean, 3, found.n, span, "" if found.interval is None else found.interval.unit),
        "-" if span is None else f"[{span[0]:+.3f}, {span[1]:+.3f}]",
        str(found.wins),
        str(found.losses),
        str(found.ties),
        found.short_p,
        found.verdict,
    )


def _counted(row: Row) -> float | None:
    return row.score if row.counts else None


def expenses(made: Sequence[Made]) -> OurTable | None:
    """What each variant takes, writing and answering apart, means over the seeds; None without variants."""
    rows = tuple(_expense(each) for each in made)
    return OurTable("what it takes", EXPENSES, rows, _EXPENSES) if rows else None


def _expense(made: Made) -> tuple[Cell, ...]:
    written = [each.construction for each in made.evaluations if each.construction is not None]
    answered = [each.answering for each in made.evaluations]
    return (
        made.label,
        str(written[0].units) if written else "-",
        *_each(written),
        *_each(answered),
        _dollars(written),
        _dollars(answered),
    )


def _each(found: Sequence[Expense]) -> tuple[str, str, str]:
    """Calls, tokens and seconds of one memory or one question."""
    units = sum(each.units for each in found)
    if not units:
        return "-", "-", "-"
    tokens = sum(each.input_tokens + each.output_tokens for each in found) / units
    seconds = sum(each.seconds for each in found) / units
    return f"{sum(each.calls for each in found) / units:,.1f}", f"{tokens:,.0f}", f"{seconds:,.2f}"


def _dollars(found: Sequence[Expense]) -> str:
    costs = [each.cost for each in found]
    if not costs or any(cost is None for cost in costs):
        return "-"
    return f"{sum(cost or 0.0 for cost in costs) / len(costs):,.4f}"
