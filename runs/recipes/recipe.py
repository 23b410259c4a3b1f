"""What `mempiler reproduce` runs: sections of variants on benchmarks, and the paper's own cells to print apart.

A recipe makes two kinds of tables. The paper's cells stand under the paper's names, with its model; ours name the LM,
the data and n. They are never put into one table, since other models, judges and data made them.

    Recipe ── Section (variants, sweeps, analyses) ── Workbench ──> Done: tables, pictures, win rates
                     one MLflow run for the recipe, one nested in it per variant and seed
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...data.preference import PairJudge, PreferenceJudge
from ...engines.guard import Guard
from ...engines.meter import Meter
from ...errors import UnknownNameError, UserError
from ...programs.adapter import adapter as make_adapter
from ...programs.identity import jsonable
from ..folder import RunFolder
from ..home import make_folder
from ..setup import Runtime, Setup
from ..tracking import Tracker
from .adaptation import Adaptation
from .arrangement import arrange, members, notes_on
from .done import Done, run_section
from .made import Made
from .section import Section
from .workbench import Note, Workbench


@dataclass(frozen=True)
class Recipe:
    """What to run for a paper, and what it printed."""

    name: str
    summary: str
    sections: tuple[Section, ...]
    seeds: int = 1
    """Repetitions in the paper; a model that does not sample is asked once."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By benchmark: its options with a judge."""
    offline_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By benchmark: its options without a judge, e.g. an LM-free metric."""
    offline_test: int | None = None
    """Questions a section where the offline engine answers about a bundled sample, unless --test says otherwise."""
    offline_lm: str | None = None
    """The model that takes the offline engine's place, in a recipe that trains weights."""
    rungs: tuple[str, ...] = ()
    """Names of the rungs of its ladder, whose settings can be changed."""

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks of all sections."""
        return tuple(dict.fromkeys(name for each in self.sections for name in (each.benchmark, *each.others)))

    def takes(self, name: str) -> bool:
        """Whether a file can be given to a name: one of its benchmarks, or what they are parts of, "palbench"."""
        return bool(members(name, self.benchmarks))

    def suited(self, setup: Setup) -> Setup:
        """A setup with the recipe's own model where it names none but the offline engine."""
        return replace(setup, lm=self.offline_lm) if self.offline_lm and setup.offline else setup

    def chosen(self, only: Sequence[str] = (), benchmark: str = "") -> tuple[Section, ...]:
        """The sections of these names (all if none is given) that run on a benchmark, moved to it.

        Raises:
            UnknownNameError: There is no such section or benchmark.
            UserError: None of the sections runs on the benchmark.
        """
        names = [section.name for section in self.sections]
        for name in only:
            if not any(_named(each, name) for each in names):
                raise UnknownNameError(f"section of {self.name}", name, names)
        if benchmark and not self.takes(benchmark):
            raise UnknownNameError("benchmark of this recipe", benchmark, self.benchmarks)
        found = [each for each in self.sections if not only or any(_named(each.name, name) for name in only)]
        if benchmark:
            meant = members(benchmark, self.benchmarks)
            on = [(next((n for n in (s.benchmark, *s.others) if n in meant), ""), s) for s in found]
            found = [replace(section, benchmark=name) for name, section in on if name]
        if not found:
            raise UserError(f"no section of {', '.join(only)} runs on {benchmark}; leave --on or --only out")
        return tuple(found)


@dataclass(frozen=True)
class Reproduced:
    """What a recipe gave."""

    recipe: Recipe
    sections: tuple[Done, ...]
    run: Path
    run_id: str
    notes: tuple[str, ...] = ()
    """What was smaller or other than in the paper, beyond model and data."""
    stopped: str | None = None
    """The limit that ended it."""

    @property
    def rows(self) -> tuple[Made, ...]:
        """The evaluated variants of all sections."""
        return tuple(made for done in self.sections for made in done.made)

    @property
    def win_rates(self) -> dict[str, float]:
        """Share of judgments that prefer the first of a duel, a tie counting for neither; empty without a judge."""
        return {label: rate for done in self.sections for label, rate in done.win_rates.items()}

    def summary(self) -> dict[str, Any]:
        """Plain JSON: the paper's tables and ours, apart."""
        return {
            "recipe": self.recipe.name,
            "paper": [
                {"section": done.section.name, **asdict(table)}
                for done in self.sections
                for table in done.section.paper
            ],
            "ours": [{"section": done.section.name, **row} for done in self.sections for row in done.summaries()],
            "tables": [
                {"section": done.section.name, "heading": done.heading, **table.to_dict()}
                for done in self.sections
                for table in (*done.tables, *done.beside)
            ],
            "pictures": [str(path) for done in self.sections for path in done.pictures],
            "win_rates": self.win_rates,
            "notes": list(self.notes),
            "stopped": self.stopped,
            "run": str(self.run),
            "run_id": self.run_id,
        }


def run_recipe(
    recipe: Recipe,
    setup: Setup,
    judge: PairJudge | None = None,
    note: Note = lambda phase: None,
    only: Sequence[str] = (),
    seeds: int | None = None,
    data: Mapping[str, str] | None = None,
    meter: Meter | None = None,
    changes: Mapping[str, Any] | None = None,
    adaptation: Adaptation | None = None,
) -> Reproduced:
    """Runs the sections of a recipe, logged as one MLflow run with the evaluations nested in it.

    The variants of a section answer the same questions; memories that variants share are written once.

    Args:
        recipe: What to run.
        setup: Models and sizes; its benchmark, where it names one, chooses the sections that run on it. Where it names
            a run to resume, variants that are finished there are taken from it.
        judge: Compares answers for the win rates; the setup's own if None, without which none are printed.
        note: Called with the name of each variant.
        only: Names of sections; all if empty.
        seeds: Repetitions; those of the paper if None.
        data: Files by benchmark; the setup's own file is that of the only benchmark.
        meter: Counts the calls.
        changes: Settings of the recipe's rungs, by RUNG.NAME.
        adaptation: Settings of methods in all their variants, and saved programs in their place.

    Raises:
        UnknownNameError: A section or benchmark is none of the recipe's.
        UserError: One file is given for several benchmarks, or settings of rungs where there are none; or the run to
            resume was started with other settings; or a model's key is missing.
    """
    setup, wanted = recipe.suited(setup), seeds or recipe.seeds
    if changes and not recipe.rungs:
        raise UserError(f"{recipe.name} has no rungs: --rung-set does not go with it")
    adaptation = adaptation or Adaptation()
    arrangement = arrange(recipe, setup, only, seeds, data, adaptation)
    sections, setups = arrangement.sections, list(arrangement.setups)
    notes = (*notes_on(recipe, setups, sections, setup.test), *arrangement.notes)
    asked = _asked(recipe, sections, setup, wanted, data or {}, changes or {}, adaptation)
    title = f"reproduce-{recipe.name}"
    setup.check_models()
    folder = RunFolder.resume(setup.resume, asked) if setup.resume else RunFolder.create(title, asked)
    setup, setups = replace(setup, resume=None), [replace(each, resume=None) for each in setups]
    with folder.recording(), Tracker(title, {"command": "reproduce"}) as tracker:
        tracker.params(asked)
        folder.update(run_id=tracker.run_id)
        shared = meter or Meter(), Guard(setup.limits), note, dict(changes or {})
        bench = Workbench(folder, tracker.run_id, wanted, *shared)
        judge = judge or _judge(setup, bench)
        pictures = folder.path / "pictures"
        make_folder(pictures)
        done = tuple(
            run_section(section, found, bench, pictures, judge) for section, found in zip(sections, setups, strict=True)
        )
        made = Reproduced(recipe, done, folder.path, tracker.run_id, notes, bench.stopped)
        _log(tracker, folder, made)
    return made


def _asked(
    recipe: Recipe,
    sections: Sequence[Section],
    setup: Setup,
    seeds: int,
    data: Mapping[str, str],
    changes: Mapping[str, Any],
    adaptation: Adaptation,
) -> dict[str, Any]:
    """What decides a run's tables, as its folder keeps it."""
    asked = {"command": "reproduce", "program": recipe.name, "sections": [each.name for each in sections]}
    asked |= {**setup.decisive, "seeds": seeds}
    asked |= {f"data.{name}": str(Path(path).absolute()) for name, path in data.items()}
    asked |= {f"rung.{name}": value for name, value in changes.items()}
    asked |= {f"set.{name}": value for name, value in adaptation.settings.items()}
    asked |= {f"program.{method}": folder for method, folder in adaptation.programs.items()}
    # As it is read again: tuples are lists then.
    return json.loads(json.dumps(asked, default=jsonable))


def _judge(setup: Setup, bench: Workbench) -> PairJudge | None:
    """The judge of duels, whose answers the run keeps."""
    if setup.judge_lm is None:
        return None
    return PreferenceJudge(Runtime(setup, bench.meter, bench.guard, bench.folder).model("judge"), make_adapter())


def _named(section: str, name: str) -> bool:
    """Whether a name of `--only` means a section: "table2" is also table2-restate, table2-generate, ..."""
    return section == name or section.startswith(f"{name}-")


def _log(tracker: Tracker, folder: RunFolder, made: Reproduced) -> None:
    summary = made.summary()
    for done in made.sections:
        name = done.section.name
        tracker.metrics({f"{name}.{each.label}.score": each.mean(lambda found: found.score) for each in done.made})
        for path in done.pictures:
            tracker.file(path, "pictures")
    tracker.json("reproduced.json", summary)
    (folder.path / "reproduced.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False), encoding="utf-8")
    folder.update(status="stopped" if made.stopped else "finished")
