"""What a recipe's sections run on: files, options and judge of each, and which are skipped.

    --data palbench=FILE    every section on palbench or a part of it
    --option language=zh    every benchmark that has this option

Example:
    >>> from mempiler.runs.recipes.arrangement import members
    >>> members("palbench", ("palbench.restate", "locomo"))
    ('palbench.restate',)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...engines.models import OFFLINE
from ...errors import UnknownNameError, UserError
from ..external import plannable
from ..planning import start_program
from ..setup import Setup
from ..suite import takes_option
from .adaptation import Adaptation, own_prompts
from .rivals import entered
from .section import Section
from .workbench import draws

if TYPE_CHECKING:
    from .recipe import Recipe


@dataclass(frozen=True)
class Arrangement:
    """What a command runs of a recipe."""

    sections: tuple[Section, ...]
    setups: tuple[Setup, ...]
    """Of each section."""
    notes: tuple[str, ...]
    """What is left out or changed."""


def arrange(
    recipe: Recipe,
    setup: Setup,
    only: Sequence[str],
    seeds: int | None,
    data: Mapping[str, str] | None,
    adaptation: Adaptation,
) -> Arrangement:
    """Chooses sections and finds out what each runs on; a wrong file, option or setting fails before any paid call.

    Args:
        recipe: Whose sections.
        setup: Models, sizes and what was said of data.
        only: Names of sections; all if empty.
        seeds: Repetitions; those of the paper if None.
        data: Files by benchmark.
        adaptation: What is changed in the variants.

    Raises:
        UserError: A name, a file, an option or a setting fits nothing that is run.
    """
    sections, left_out = judgeable(recipe.chosen(only, setup.benchmark), setup, bool(only))
    sections = tuple(replace(section, seeds=seeds or section.seeds or recipe.seeds) for section in sections)
    sections, absent = entered(sections, setup)
    sections = adaptation.of(sections)
    setups = tuple(arranged(recipe, section, setup, files_of(sections, setup, data)) for section in sections)
    told = dict.fromkeys((*left_out, *absent, *adaptation.told()))
    for section, found in zip(sections, setups, strict=True):
        benchmark = found.load()
        for variant in section.all_variants() if adaptation else ():
            if not plannable(variant.asked):
                continue
            program = start_program(variant.asked, found, benchmark, variant.config, ablating=True)
            own = ", ".join(own_prompts(variant, program))
            if own:
                told[f"{variant.label}: {own} as the code has it, which the saved program has no prompt for"] = None
    return Arrangement(sections, setups, tuple(told))


def files_of(sections: Sequence[Section], setup: Setup, data: Mapping[str, str] | None) -> dict[str, str]:
    """The file of every benchmark that has one; what names a benchmark goes before what names its suite.

    Raises:
        UnknownNameError: A file is given to what no section runs on.
        UserError: One file without a name is given for several data sets.
    """
    names = list(dict.fromkeys(section.benchmark for section in sections))
    files: dict[str, str] = {}
    for name, path in sorted((data or {}).items(), key=lambda pair: pair[0] in names):
        if not members(name, names):
            raise UnknownNameError("benchmark of these sections", name, names)
        files |= dict.fromkeys(members(name, names), path)
    if not setup.data:
        return files
    data_sets = list(dict.fromkeys(_data_set(name) for name in names))
    if len(data_sets) > 1:
        told = " ".join(f"--data {name}=FILE" for name in data_sets)
        raise UserError(f"{setup.data} is one file for {len(data_sets)} benchmarks; say {told}, or choose with --only")
    return {**dict.fromkeys(names, setup.data), **files}


def arranged(recipe: Recipe, section: Section, setup: Setup, files: Mapping[str, str]) -> Setup:
    """The setup of a section; the command line overrides the recipe."""
    name = section.benchmark
    suited = (recipe.options if setup.judge_lm else recipe.offline_options).get(name, {})
    data = files.get(name)
    few = setup.offline and data is None and setup.test is None and not section.whole
    test = recipe.offline_test if few else setup.test
    told = {
        option: value
        for option, value in setup.options.items()
        # What none of the recipe's benchmarks knows is refused where it is read.
        if takes_option(name, option, value) or not any(takes_option(n, option, value) for n in recipe.benchmarks)
    }
    options = {**section.options, **suited, **told}
    judge = setup.judge_lm or (OFFLINE if section.judged and setup.offline else None)
    return replace(setup, benchmark=name, data=data, options=options, test=test, judge_lm=judge)


def members(name: str, benchmarks: Sequence[str]) -> tuple[str, ...]:
    """The benchmarks that a name covers: itself, and its parts, which read the same files."""
    return tuple(each for each in benchmarks if name in (each, _data_set(each)))


def judgeable(
    sections: Sequence[Section], setup: Setup, asked_for: bool
) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """The sections that can be judged, and a sentence on those that are left out; offline the engine judges.

    Raises:
        UserError: A section was asked for by its name, or is the only one, and there is no judge.
    """
    if setup.judge_lm or setup.offline:
        return tuple(sections), ()
    missing = [section.name for section in sections if section.judged]
    if missing and (asked_for or len(missing) == len(sections)):
        raise UserError(f"section {missing[0]} is scored by a judge; name its model with --judge-lm")
    kept = tuple(section for section in sections if not section.judged)
    return kept, tuple(
        f"section {name} is scored by a judge and was left out; name one with --judge-lm" for name in missing
    )


def _data_set(benchmark: str) -> str:
    """What a part is a part of: "palbench" of "palbench.select". A `module:Class` has no whole."""
    return benchmark if ":" in benchmark else benchmark.partition(".")[0]


def notes_on(recipe: Recipe, setups: Sequence[Setup], sections: Sequence[Section], test: int | None) -> tuple[str, ...]:
    """What is smaller or other than in the paper: questions offline, repetitions that could not differ."""
    found = []
    if test is None and any(each.test is not None for each in setups):
        found.append(f"offline on the bundled sample: {recipe.offline_test} questions a section; --test N takes others")
    still = [
        variant
        for section, setup in zip(sections, setups, strict=True)
        for variant in section.all_variants()
        if not draws(variant, setup)
    ]
    seeds = max((section.seeds or 1 for section in sections), default=1)
    if seeds > 1 and still:
        found.append(
            f"{seeds} seeds asked for: the model does not sample, so methods without a seed of their own were run once"
        )
    return tuple(found)
