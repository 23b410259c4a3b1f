"""`mempiler list`: the names that commands take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint

import click

from ..errors import UserError
from .config import complete, settings
from .options import JSON
from .printing import report, table

ADAPTERS = {
    "auto": "answers held to a JSON schema where the endpoint can, else chat",
    "chat": "fields under headings; a malformed answer is asked for once more, with the error",
    "json": "one JSON object, in the model's structured output where it has one",
    "compact": "one line per input, the bare value as answer; for small models, no second try",
}

EMBEDDERS = {
    "offline": "hashed words and spelling, no model: compares spelling, not meaning",
    "minilm": "all-MiniLM-L6-v2, English",
    "e5": "multilingual-e5-small, about a hundred languages",
}


def _methods() -> dict[str, str]:
    from ..programs.names import METHODS, POLICIES, plugins

    return {
        **{name: entry.summary for name, entry in METHODS.items()},
        **{f"{name}+METHOD": entry.summary for name, entry in POLICIES.items()},
        **_from_packages(plugins()),
    }


def _benchmarks() -> dict[str, str]:
    from ..data.catalog import BENCHMARKS, plugins

    return {**{name: entry[0] for name, entry in sorted(BENCHMARKS.items())}, **_from_packages(plugins())}


def _optimizers() -> dict[str, str]:
    from ..optimizers.catalog import OPTIMIZERS

    return {name: f"{entry.changes}; needs: {entry.needs}; cost: {entry.cost}" for name, entry in OPTIMIZERS.items()}


def _embedders() -> dict[str, str]:
    return {name: told + _here(name) for name, told in EMBEDDERS.items()}


def _weights() -> dict[str, str]:
    from ..engines.weights import WEIGHTS

    return {
        name: f"{each.use}: {each.kind}, {each.size / 1e6:.0f} MB, {each.licence}, of {each.repository}; "
        + (f"at {each.path}" if each.here else f"run: mempiler fetch {name}")
        for name, each in WEIGHTS.items()
    }


def _systems() -> dict[str, str]:
    from ..systems.catalog import SYSTEMS

    return {
        name: f"{each.what}; "
        + (f"at {each.environment.path}" if each.environment.here else f"run: mempiler fetch system:{name}")
        for name, each in SYSTEMS.items()
    }


def _settings() -> dict[str, str]:
    from . import compile, train

    for command in (compile.command, train.command):
        complete(command)
    of_training = {name: f"{told} (train)" for name, told in settings(train.command).items()}
    return of_training | settings(compile.command)


def _here(name: str) -> str:
    """Where weights have to be fetched first."""
    from ..engines.weights import WEIGHTS

    return f"; run: mempiler fetch {name}" if name in WEIGHTS and not WEIGHTS[name].here else ""


def _from_packages(found: Mapping[str, EntryPoint]) -> dict[str, str]:
    """What installed packages offer; nothing of it is imported to be listed."""
    return {name: f"of the package {each.dist.name if each.dist else each.module}" for name, each in found.items()}


_FOUND: dict[str, Callable[[], dict[str, str]]] = {
    "methods": _methods,
    "benchmarks": _benchmarks,
    "optimizers": _optimizers,
    "adapters": lambda: ADAPTERS,
    "embedders": _embedders,
    "weights": _weights,
    "systems": _systems,
    "settings": _settings,
}


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(list(_FOUND)))
@click.argument("name", required=False)
@JSON
def command(kind: str | None, name: str | None) -> None:
    """List the names that commands take, of one KIND or of all, with what each is.

    `list optimizers NAME` lists the settings of an optimizer, with their defaults.
    """
    if name is not None:
        _list_settings(kind, name)
        return
    chosen = {name: found() for name, found in _FOUND.items() if kind == name or (kind is None and name != "settings")}
    more = ["module:Class is accepted wherever a method name is"] if kind in (None, "methods") else []
    report(chosen, [*(table((name, ""), entries.items()) for name, entries in chosen.items()), *more])


def _list_settings(kind: str | None, name: str) -> None:
    from ..optimizers.catalog import optimizer
    from ..optimizers.constructors import further

    if kind != "optimizers":
        raise UserError(f"{kind} {name}: settings are listed of optimizers alone; leave {name} out")
    found = further(name) | dict(optimizer(name).settings)
    rows = [(key, json.dumps(value)) for key, value in found.items()]
    report(found, [table(("name", "default"), rows, f"{name}: --optimizer-set NAME=VALUE")])
