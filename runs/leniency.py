"""How lenient judges are, remembered from their checks, so that tables can say it beside judged scores.

    judge check ── keep ──> <results folder>/judges.json ── leniency("MODEL (prompt HASH)") ──> tables

Nothing is asked here: a judge that was not checked has no leniency that is known.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import DataError
from ..records import read_json
from ..records.whole_file import replacing
from .home import home, make_folder

FILE = "judges.json"


def judge_name(model: str, prompt_hash: str) -> str:
    """What tables call a judge: its model and its prompt."""
    return f"{model} (prompt {prompt_hash[:12]})"


def keep(judge: str, rate: float | None) -> None:
    """Remembers the share of wrong answers that a judge accepts."""
    if rate is None:
        return
    make_folder(home())
    known = {**_known(), judge: rate}
    with replacing(home() / FILE) as file:
        json.dump(known, file, indent=1)


def leniency(judge: str | None) -> float | None:
    """The share of wrong answers that a judge accepts; None where it was not checked."""
    found = _known().get(judge) if judge else None
    return float(found) if isinstance(found, int | float) else None


def _known() -> dict[str, Any]:
    try:
        found = read_json(home() / FILE)
    except DataError:
        return {}
    return found if isinstance(found, dict) else {}
