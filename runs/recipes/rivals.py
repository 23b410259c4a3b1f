"""Other people's systems that a paper's table compares with: rows of ours where they are installed.

    Section(..., rivals=(Variant("Mem0", "system:mem0"),)) ── entered ──> a variant like any other, or a note

They answer the same questions by the same reader, and are scored, counted and paired as every variant is. One that is
not installed is left out and named, and so is one that writes with a language model, where the offline engine is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...systems.catalog import shipped
from ..external import SYSTEM
from ..setup import Setup
from .section import Section, Variant


def entered(sections: Sequence[Section], setup: Setup) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """The sections with the rivals that can be run among their variants, and a sentence on every other one."""
    told: dict[str, None] = {}
    found: list[Section] = []
    for section in sections:
        missing = {rival.label: missed(rival, setup) for rival in section.rivals}
        told |= dict.fromkeys(f"{label} is left out: {reason}" for label, reason in missing.items() if reason)
        able = tuple(rival for rival in section.rivals if not missing[rival.label])
        absent = {label for label, reason in missing.items() if reason}
        duels = tuple(duel for duel in section.duels if not {duel.one, duel.other} & absent)
        found.append(replace(section, variants=(*section.variants, *able), rivals=(), duels=duels))
    return tuple(found), tuple(told)


def missed(rival: Variant, setup: Setup) -> str:
    """Why a rival cannot be run; empty where it can."""
    system = shipped(rival.method.removeprefix(SYSTEM))
    if not system.environment.here:
        return f"{rival.method} is not installed; run: mempiler systems install {system.name}"
    if system.writes_with_lm and setup.offline:
        return f"{rival.method} writes with a language model, which the offline engine is not; name one with --lm"
    return ""
