"""A section of a recipe: one table of the paper and one of ours, on one benchmark.

    Section("table2", ..., benchmark="locomo", variants=(Variant("RGMem", "rgmem"), Variant("RAG", "turn-rag")),
            columns=(category("4", "single-hop"), score("Avg."), tokens()), paper=(PaperTable(...),))
    Section("fig8d", ..., sweeps=(Sweep("theta_inf", (1, 2, 3, 4, 5), "rgmem"),))

Variants are named by their label, once in a section. The same method with the same settings is evaluated once, however
many sections show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .columns import Column, score
from .made import Made
from .pictures import Picture
from .tables import OurTable, PaperTable

if TYPE_CHECKING:
    from ...optimizers.plan import Plan
    from ..setup import Setup
    from .material import Material

Analysis = Callable[["Material"], Iterable[Made | OurTable | Picture]]
"""Gets what the section evaluated, and gives further tables and pictures, and programs that it evaluated itself."""


Planner = Callable[["Setup", Mapping[str, Any]], "tuple[Plan, tuple[str, ...]]"]
"""Gets the section's setup and changed settings of rungs, and gives a plan with remarks."""


@dataclass(frozen=True)
class Variant:
    """One row of ours."""

    label: str
    method: str
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark in this row alone, e.g. {"against": "turn-rag"}; they go before all others."""
    program: str = ""
    """A saved program of the method, whose prompts it has."""

    @property
    def asked(self) -> str:
        """What is evaluated: the method, or the saved program."""
        return self.program or self.method


@dataclass(frozen=True)
class Duel:
    """Two variants whose answers a judge compares."""

    label: str
    one: str
    other: str


@dataclass(frozen=True)
class Sweep:
    """One setting of a method over several values: a table and a picture."""

    setting: str
    values: tuple[Any, ...]
    method: str
    config: Mapping[str, Any] = field(default_factory=dict)
    along: Callable[[Any], Mapping[str, Any]] | None = None
    """Further settings that follow from the value; where the setting is one of them it need not be one itself."""
    title: str = ""
    axis: Literal["value", "tokens"] = "value"
    """The x axis: the value, or the mean tokens of the recalled context."""
    lines: tuple[Column, ...] = (score(),)
    """What is drawn over it, a line each."""
    program: str = ""
    """A saved program of the method, whose prompts all its variants have."""

    def variants(self) -> tuple[Variant, ...]:
        """A variant per value."""
        return tuple(
            Variant(self.label(value), self.method, self._settings(value), program=self.program)
            for value in self.values
        )

    def label(self, value: Any) -> str:
        """What tables call a value's variant."""
        return f"{self.setting} = {value}"

    def _settings(self, value: Any) -> dict[str, Any]:
        own = {self.setting: value} if self.along is None else dict(self.along(value))
        return {**self.config, **own}


@dataclass(frozen=True)
class Section:
    """A part of a recipe that can be run alone (`--only`)."""

    name: str
    title: str
    benchmark: str
    variants: tuple[Variant, ...] = ()
    columns: tuple[Column, ...] = ()
    """Those of our table; n, score, interval and every part of the metric if empty."""
    rivals: tuple[Variant, ...] = ()
    """Other people's systems that the paper's table has, `system:NAME`: rows like the variants where they are
    installed (`rivals`)."""
    sweeps: tuple[Sweep, ...] = ()
    duels: tuple[Duel, ...] = ()
    paper: tuple[PaperTable, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    others: tuple[str, ...] = ()
    """Further benchmarks of the paper that its variants can be run on (`--on`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark in this section, e.g. {"categories": "2"}."""
    note: str = ""
    """What a reader must know of our table."""
    seeds: int | None = None
    """Repetitions in the paper, where they are not those of the whole recipe."""
    whole: bool = False
    """Whether the offline engine answers all questions of a bundled sample, since a few lack what the section shows."""
    planned: Planner | None = None
    """Plans what its analyses ask beyond its variants."""
    asks_more: bool = False
    """Whether its analyses ask models beyond its variants, which a plan cannot count."""
    own: str = ""
    """The label of the variant that the others are compared with; the first if empty."""
    judged: bool = False
    """Whether the section needs a judge: then it is left out, or on the offline engine judged by it."""

    def all_variants(self) -> tuple[Variant, ...]:
        """The variants of the table and of the sweeps."""
        return self.variants + tuple(variant for sweep in self.sweeps for variant in sweep.variants())
