"""What a user changes in a recipe: settings of methods in all their variants, and compiled programs in their place.

    k=20                every variant whose method has the setting k
    rgmem.theta_inf=2   those of rgmem
    rgmem=FOLDER        a saved program instead of rgmem as it is, its ablations and sweeps included

What tells a variant from its neighbours stays: its own settings go before those that are given, and what a sweep goes
through cannot be set.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import UnknownNameError, UserError
from ...programs.catalog import method_class
from ...programs.method import Policy
from ...programs.program import MemoryProgram
from ...programs.state import signature_of
from ..addresses import program_folder
from ..artifact import read_manifest, read_states
from ..external import external_settings
from .section import Section, Sweep, Variant

_NOT_SETTINGS = ("self", "embedder", "inner")


@dataclass(frozen=True)
class Adaptation:
    """Settings by NAME or METHOD.NAME, and folders of saved programs by method."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.settings or self.programs)

    def of(self, sections: Sequence[Section]) -> tuple[Section, ...]:
        """The sections with what is changed.

        Raises:
            UserError: No variant has a setting, or a sweep goes through it, or a folder holds no program of the method.
            UnknownNameError: No variant is of a method that a program is given for.
        """
        for name in self.settings:
            self._check_setting(name, sections)
        for method, program in self.programs.items():
            _check_program(method, program, [variant.method for variant in _variants(sections)])
        return tuple(map(self._section, sections))

    def told(self) -> tuple[str, ...]:
        """A sentence on each, for whoever reads the tables."""
        changed = [f"{name} = {value!r} in every variant that has it" for name, value in self.settings.items()]
        return (*changed, *(f"{method}: the saved program {folder}" for method, folder in self.programs.items()))

    def _section(self, section: Section) -> Section:
        variants = tuple(map(self._variant, section.variants))
        return replace(section, variants=variants, sweeps=tuple(map(self._sweep, section.sweeps)))

    def _variant(self, variant: Variant) -> Variant:
        settings = {**self._settings(variant.method), **variant.config}
        return replace(variant, config=settings, program=self.programs.get(variant.method, variant.program))

    def _sweep(self, sweep: Sweep) -> Sweep:
        settings = {**self._settings(sweep.method), **sweep.config}
        return replace(sweep, config=settings, program=self.programs.get(sweep.method, sweep.program))

    def _settings(self, method: str) -> dict[str, Any]:
        found = ((setting_of(method, name), value) for name, value in self.settings.items())
        return {name: value for name, value in found if name is not None}

    def _check_setting(self, name: str, sections: Sequence[Section]) -> None:
        if not any(setting_of(variant.method, name) for variant in _variants(sections)):
            methods = ", ".join(dict.fromkeys(variant.method for variant in _variants(sections))) or "none"
            raise UserError(f"--set {name}: no variant has this setting; the methods of these sections are {methods}")
        for section in sections:
            for sweep in section.sweeps:
                swept = {key for variant in sweep.variants() for key in variant.config} - set(sweep.config)
                if setting_of(sweep.method, name) in swept:
                    raise UserError(f"--set {name}: {section.name} goes through its values; choose others with --only")


def setting_of(method: str, name: str) -> str | None:
    """What a method calls the setting that is given as NAME or METHOD.NAME; None where it has none of that name.

    Example:
        >>> from mempiler.runs.recipes.adaptation import setting_of
        >>> setting_of("turn-rag", "k"), setting_of("pgr+turn-rag", "hybrid"), setting_of("turn-rag", "rgmem.k")
        ('k', 'inner_hybrid', None)
    """
    of, dot, setting = name.rpartition(".")
    # Names come from a command line, where "_" means "-" in NAME=VALUE.
    if dot and of.replace("_", "-") != method.replace("_", "-"):
        return None
    _, plus, inner = method.partition("+")
    theirs = external_settings(method)
    if theirs is not None:
        return setting if setting in theirs else None
    if setting in _parameters(method_class(method)):
        return setting
    beneath = setting_of(inner, setting) if plus else None
    return None if beneath is None else f"{Policy.INNER}{beneath}"


def own_prompts(variant: Variant, program: MemoryProgram) -> tuple[str, ...]:
    """The prompts of a variant that its saved program has none for, e.g. that of the other strategy."""
    states = read_states(variant.program) if variant.program else None
    if states is None:
        return ()
    found = {name: signature_of(predictor) for name, predictor in program.all_predictors().items()}
    return tuple(n for n, s in found.items() if n not in states or states[n].instructions != s.instructions)


def _parameters(kind: type) -> set[str]:
    found = inspect.signature(kind.__init__).parameters.values()
    return {each.name for each in found if each.kind is not each.VAR_KEYWORD} - set(_NOT_SETTINGS)


def _variants(sections: Iterable[Section]) -> list[Variant]:
    return [variant for section in sections for variant in section.all_variants()]


def _check_program(method: str, program: str, methods: Sequence[str]) -> None:
    if method not in methods:
        raise UnknownNameError("method of these sections", method, dict.fromkeys(methods))
    folder = program_folder(program)
    if folder is None:
        raise UserError(f"--program {method}={program}: no saved program is there")
    found = read_manifest(folder).method
    if found != method:
        raise UserError(f"--program {method}={program}: holds a program of {found}; say --program {found}={program}")
