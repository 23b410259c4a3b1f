"""Predicted against found: the claims of a paper's world, as a section of its recipe and the table of that section.

claims ── as_section() ──> a variant per arm ── evaluated once each ── foretold() ──> a row per prediction
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .claims.claim import MARGIN, Claim, Claims, Found, found
from .material import Material
from .section import Section, Variant
from .tables import Cell, Measured, OurTable

SECTION = "mechanisms"
COLUMNS = ("switch", "compared with", "questions", "predicted", "n", "difference", "95 % interval", "found")
_NOTE = (
    "Predictions follow from how the world is built. Lower, higher: the interval lies off zero. Same: it lies within "
    f"{MARGIN:g} of zero. Cannot be told: it does neither, and nothing against the prediction."
)


def as_section(claims: Claims) -> Section:
    """The section that evaluates every arm of the claims; a silent predictor takes an engine of its own, no section."""
    variants: dict[str, Variant] = {}
    for claim in shown(claims):
        base, changed = claims.arms(claim)
        variants.setdefault(base.key, Variant(base.label, base.method, base.settings))
    for claim in shown(claims):
        _, changed = claims.arms(claim)
        variants.setdefault(changed.key, Variant(claim.name, changed.method, changed.settings))
    title = "every switch: predicted against found"
    analysis = partial(foretold, claims)
    return Section(SECTION, title, claims.world, tuple(variants.values()), analyses=(analysis,))


def shown(claims: Claims) -> list[Claim]:
    """The claims of switches."""
    return [claim for claim in claims.claims if not claim.silent]


def foretold(claims: Claims, material: Material) -> Iterator[OurTable]:
    """The table; claims of which an arm is missing are left out."""
    known = {variant.label: variant for variant in material.section.all_variants()}
    rows = {_key(known[label]): made.evaluation.rows for label, made in material.made.items() if label in known}
    cells: list[tuple[Cell, ...]] = []
    for claim in shown(claims):
        base, changed = (_key(Variant("", arm.method, arm.settings)) for arm in claims.arms(claim))
        if base in rows and changed in rows:
            compared = claims.arms(claim)[0].label
            cells += [_row(each, compared) for each in found(claim, rows[base], rows[changed])]
    apart = "".join(f" {name}: {why}." for name, why in claims.apart.items())
    yield OurTable("predicted against found", COLUMNS, tuple(cells), f"{_NOTE} No claim is made of:{apart}")


def _row(each: Found, compared: str) -> tuple[Cell, ...]:
    span = each.difference.interval
    ends = None if span is None else (span.low, span.high)
    return (
        each.name,
        compared,
        each.questions,
        each.predicted,
        str(each.n),
        Measured(each.difference.mean, 3, each.n, ends, "" if span is None else span.unit),
        "-" if ends is None else f"[{ends[0]:+.3f}, {ends[1]:+.3f}]",
        each.verdict,
    )


def _key(variant: Variant) -> str:
    return f"{variant.method} {sorted(variant.config.items())}"
