"""Where a recipe's variants are evaluated: each once, under one budget, in runs nested in one MLflow run.

    Workbench.made(variant, setup) ── run_evaluate per seed ──> Made        known ones are not asked again
    Workbench.program(variant, setup)                                       the program, with the memories it wrote

Every variant and seed is a part of the recipe's run, with a folder of its own. One that is finished is read from there
when the run is resumed; one that was broken off goes on as an evaluation does. Memories and answers are those of the
whole run.

Seeds: repetition n of a sampling model answers anew (`Setup.repeat`), and a method with a `seed` of its own gets
another one. The questions stay the same. Where neither the model samples nor the method draws, one repetition says it
all, and there is one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ...engines.guard import Guard
from ...engines.meter import Meter
from ...engines.models import is_offline
from ...programs.catalog import method_class
from ...programs.identity import digest, jsonable
from ...programs.program import MemoryProgram
from ...programs.remember import MemoryCache
from ..artifact import read_manifest
from ..compare import recorded
from ..evaluate import Progress
from ..experiment import run_evaluate
from ..external import external_settings
from ..folder import RunFolder
from ..results import Evaluation
from ..setup import Runtime, Setup
from ..tracking import nested_in
from .made import Aggregate, Made
from .section import Variant

Note = Callable[[str], Progress | None]
"""Called with the name of a variant; may return a progress callback for it."""


@dataclass
class Workbench:
    """What the sections of one run of a recipe share.

    Args:
        folder: The recipe's own run folder.
        parent: MLflow run that the evaluations are nested in.
        seeds: Repetitions of every variant.
        meter: Counts the calls.
        guard: Holds the limits of the whole recipe.
        note: Called with the name of each variant.
        changes: Settings of rungs, by RUNG.NAME, for recipes that have a ladder.
    """

    folder: RunFolder
    parent: str
    seeds: int = 1
    meter: Meter = field(default_factory=Meter)
    guard: Guard = field(default_factory=Guard)
    note: Note = lambda phase: None
    changes: Mapping[str, Any] = field(default_factory=dict)
    stopped: str | None = None
    """The limit that was reached; no evaluation follows it."""
    _known: dict[str, Evaluation] = field(default_factory=dict)
    _aggregates: dict[str, Aggregate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = MemoryCache(self.folder.store.nodes)

    def made(self, variant: Variant, setup: Setup, section: str = "", seeds: int | None = None) -> Made | None:
        """Evaluates a variant, once per seed; None where a limit was reached before.

        Args:
            variant: Method and settings.
            setup: Data and models.
            section: Where the variant is shown, for the label of its MLflow run.
            seeds: Repetitions; the workbench's if None.
        """
        found, setup = [], asked_with(variant, setup)
        for repeat in range((seeds or self.seeds) if draws(variant, setup) else 1):
            evaluation = self._evaluation(variant, replace(setup, repeat=repeat), f"{section}/{variant.label}")
            if evaluation is None:
                break
            found.append(evaluation)
        return Made(variant.label, tuple(found), self._aggregate(setup)) if found else None

    @contextmanager
    def program(self, variant: Variant, setup: Setup) -> Iterator[MemoryProgram]:
        """The program of a variant under its models; memories that it wrote while evaluated are not written again."""
        setup = asked_with(variant, setup)
        runtime, name = Runtime(setup, self.meter, self.guard, self.folder, ablating=True), variant.asked
        program = runtime.program(name, setup.load(), config_of(variant, setup), cache=self.cache)
        with runtime.context(program):
            yield program

    def _evaluation(self, variant: Variant, setup: Setup, label: str) -> Evaluation | None:
        """That of one seed: known, finished in an earlier go at the run, or made now; None after a limit."""
        settings = self._settings(variant, setup)
        name = f"{_slug(variant.method)}-{digest(settings)[:12]}"
        # After a limit no part is begun; those that are there may be finished.
        if name not in self._known and (self.stopped is None or self.folder.has(name)):
            folder = self.folder.part(name, settings)
            if folder.finished:
                self._known[name] = recorded(str(folder.path)).evaluation
            elif self.stopped is None:
                folder.update(status="running")
                self._known[name] = self._evaluate(variant, setup, label, folder)
                self.stopped = self._known[name].stopped
        return self._known.get(name)

    def _aggregate(self, setup: Setup) -> Aggregate:
        """What computes metrics of all answers together, of a benchmark that is read once."""
        key = digest([setup.benchmark, setup.data, dict(setup.options)])
        if key not in self._aggregates:
            self._aggregates[key] = setup.load().scorer.aggregate
        return self._aggregates[key]

    def _evaluate(self, variant: Variant, setup: Setup, label: str, folder: RunFolder) -> Evaluation:
        tags = {**nested_in(self.parent), "variant": label, "repeat": str(setup.repeat)}
        return run_evaluate(
            variant.asked,
            setup,
            config=config_of(variant, setup),
            note=lambda _: self.note(label),
            meter=self.meter,
            cache=self.cache,
            guard=self.guard,
            tags=tags,
            folder=folder,
        )

    def _settings(self, variant: Variant, setup: Setup) -> dict[str, Any]:
        """What decides an evaluation, as its folder keeps it."""
        asked = {"command": "evaluate", "part_of": "reproduce", "program": variant.asked, **setup.decisive}
        if variant.program:
            asked["manifest_sha256"] = read_manifest(variant.program).manifest_sha256
        # As it is read again: tuples are lists then.
        return json.loads(json.dumps({**asked, "config": config_of(variant, setup)}, default=jsonable))


def asked_with(variant: Variant, setup: Setup) -> Setup:
    """The setup with the options of a variant's own."""
    return replace(setup, options={**setup.options, **variant.options}) if variant.options else setup


def config_of(variant: Variant, setup: Setup) -> dict[str, Any]:
    """The settings that a variant is evaluated with."""
    drawn = known(variant.method, {"seed": setup.seed + setup.repeat}) if setup.repeat else {}
    return {**drawn, **variant.config}


def draws(variant: Variant, setup: Setup) -> bool:
    """Whether a second repetition of a variant could differ from the first."""
    sampling = not is_offline(setup.lm) and setup.temperature != 0
    return sampling or (bool(known(variant.method, {"seed": 0})) and "seed" not in variant.config)


def known(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that a method has."""
    parameters = external_settings(method)
    if parameters is None:
        parameters = inspect.signature(method_class(method).__init__).parameters
    return {name: value for name, value in config.items() if name in parameters}


def _slug(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)[:60]
