"""The sections of a recipe on the paper's world, where every mechanism is needed (`data.worlds`).

    mempiler reproduce rgmem --lm oracle             # every section, on world.rgmem
    mempiler reproduce rgmem --on world.rgmem --lm ...

Section `mechanisms` is every switch of the paper's claims (`claims`): what was predicted of it beside what was found.
The others keep their variants and sweeps, each run once unless `--seeds` says otherwise. Columns are the categories of
the world, each of which needs one mechanism; what a variant loses of which category stands beside, paired question
by question with the section's own variant. The paper's cells, its analyses and its duels are left out: they are of
other data or ask a judge, and nothing in a generated world is comparable with a published number. So is a section that
would show the same variants again.

With `--lm oracle` numbers are of a test instrument, not of a model: they tell whether each part does what it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...data.catalog import benchmark
from ..statistics import paired
from .claims.claim import Claims
from .columns import Column, category, score
from .foretold import as_section
from .made import Made
from .material import Material
from .section import Section, Variant
from .tables import Cell, Measured, OurTable

_NOTE = (
    "A generated world: what each category needs is in docs/worlds.md. No number is comparable with a published one."
)
_COLUMNS = ("variant", "category", "n", "difference", "95 % interval")
_LOST = (
    "Categories that are the same question by question are not shown. An interval below zero: what is changed was "
    "needed there."
)


@dataclass(frozen=True)
class World:
    """Where a recipe's sections are run by the oracle."""

    claims: Claims
    further: tuple[Section, ...] = ()
    """What is shown there alone, beside the claims."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the world, e.g. {"users": 20}."""
    shown: tuple[Column, ...] = ()
    """Columns of the tables; the score and that of every category if empty."""
    methods: tuple[str, ...] = ()
    """The only methods whose recalled context the oracle reads; all if empty."""

    @property
    def name(self) -> str:
        """The benchmark."""
        return self.claims.world

    @property
    def sections(self) -> tuple[Section, ...]:
        """Those of the world alone: the claims, and whatever else it shows."""
        return (as_section(self.claims), *self.further)

    def moved(self, sections: Iterable[Section]) -> tuple[Section, ...]:
        """The sections as they are on the world, without those that show no variant that earlier ones do not.

        Args:
            sections: Of the recipe, or of the world.
        """
        columns = self.shown or self._columns()
        known: set[str] = set()
        found: list[Section] = []
        for section in sections:
            here = self._here(section, columns)
            shown = {f"{each.method} {sorted(each.config.items())}" for each in here.all_variants()}
            # One variant alone has nothing that it could be compared with.
            if len(shown) > 1 and not shown <= known:
                known |= shown
                found.append(here)
        return tuple(found)

    def _columns(self) -> tuple[Column, ...]:
        asked = benchmark(self.name, users=1).examples
        return (score(), *map(category, dict.fromkeys(str(each.category) for each in asked)))

    def _here(self, section: Section, columns: tuple[Column, ...]) -> Section:
        # Its title may name the paper's data.
        title = section.title if section.benchmark == self.name else f"the variants of {section.name} on {self.name}"
        return Section(
            section.name,
            title,
            self.name,
            tuple(filter(self._read, section.variants)),
            columns,
            sweeps=tuple(replace(sweep, title="", axis="value", lines=columns) for sweep in section.sweeps),
            # The claims say of each switch what it loses.
            analyses=section.analyses if section.benchmark == self.name and section.analyses else (lost,),
            options=self.options,
            note=_NOTE,
            # The oracle does not sample.
            seeds=1,
            whole=True,
            own=section.own,
        )

    def _read(self, variant: Variant) -> bool:
        """Whether a variant can answer here: the oracle reads it, and it has no options of the paper's benchmark."""
        return not variant.options and (not self.methods or variant.method in self.methods)


def lost(material: Material) -> Iterator[OurTable]:
    """By how much each variant differs from the section's own, where it does, category by category."""
    made = list(material.made.values())
    base = material.made.get(material.section.own) or (made[0] if made else None)
    if base is None:
        return
    names = dict.fromkeys(row.category for row in base.evaluation.rows)
    rows = [row for each in made if each is not base for row in _changed(base, each, list(names))]
    yield OurTable(f"paired differences to {base.label} by category", _COLUMNS, tuple(rows), _LOST)


def _changed(base: Made, other: Made, names: Sequence[str]) -> list[tuple[Cell, ...]]:
    found = [(name, _difference(base, other, name)) for name in names]
    rows: list[tuple[Cell, ...]] = [
        (other.label, name, str(cell.n), cell, f"[{cell.interval[0]:+.3f}, {cell.interval[1]:+.3f}]")
        for name, cell in found
        if cell.interval is not None and cell.interval != (0.0, 0.0)
    ]
    return rows or [(other.label, "none", str(sum(cell.n for _, cell in found)), None, "-")]


def _difference(base: Made, other: Made, name: str) -> Measured:
    before, after = (made.by_id(lambda row: row.score if row.category == name else None) for made in (base, other))
    groups = {row.id: row.group for row in base.evaluation.rows}
    shared = [id for id in before if id in after]
    found = paired([after[id] for id in shared], [before[id] for id in shared], [groups[id] for id in shared])
    span = None if found.interval is None else (found.interval.low, found.interval.high)
    return Measured(found.mean, 3, len(shared), span, "" if found.interval is None else found.interval.unit)
