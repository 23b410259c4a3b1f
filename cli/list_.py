"""`mempiler list`: the names that commands take."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import UserError
from .config import hidden_settings
from .options import JSON
from .printing import report, table

KINDS = ("methods", "benchmarks", "optimizers", "adapters", "embedders", "weights", "systems", "settings")
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


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("name", required=False)
@JSON
def command(kind: str | None, name: str | None) -> None:
    """List the names that commands take, of one KIND or of all, with what each is.

    `list optimizers NAME` lists the settings of an optimizer, with their defaults.
    """
    if name is not None:
        _list_optimizer(kind, name)
        return
    chosen = {each: _listed(each) for each in KINDS if kind == each or (kind is None and each != "settings")}
    more = ["module:Class is accepted wherever a method name is"] if kind in (None, "methods") else []
    report(chosen, [*(table((name, ""), entries.items()) for name, entries in chosen.items()), *more])


def _listed(kind: str) -> dict[str, str]:
    """What there is of a kind; nothing of a package of somebody else's is imported to be listed."""
    from ..data import catalog as benchmarks
    from ..engines.weights import WEIGHTS
    from ..programs import names as methods
    from ..systems.catalog import SYSTEMS

    if kind == "settings":
        from . import compile, train

        of_training = {name: f"{told} (train)" for name, told in hidden_settings(train.command).items()}
        return of_training | hidden_settings(compile.command)
    if kind == "optimizers":
        # Imported for this kind alone, since they import DSPy.
        from ..optimizers.catalog import OPTIMIZERS

        return {
            name: f"{entry.changes_in_program}; needs: {entry.needs_description}; cost: {entry.cost_description}"
            for name, entry in OPTIMIZERS.items()
        }
    missing = {name: f"run: mempiler fetch {name}" for name, each in WEIGHTS.items() if not each.is_stored}
    installed = {"methods": methods.plugins, "benchmarks": benchmarks.plugins}.get(kind, dict)()
    found: dict[str, Any] = {
        "methods": {name: entry.summary for name, entry in methods.METHODS.items()}
        | {f"{name}+METHOD": entry.summary for name, entry in methods.POLICIES.items()},
        "benchmarks": {name: entry[0] for name, entry in sorted(benchmarks.BENCHMARKS.items())},
        "adapters": ADAPTERS,
        "embedders": {name: "; ".join(filter(None, (told, missing.get(name)))) for name, told in EMBEDDERS.items()},
        "weights": {
            name: f"{each.option}: {each.kind}, {each.size / 1e6:.0f} MB, {each.licence}, of {each.repository}; "
            + missing.get(name, f"at {each.path}")
            for name, each in WEIGHTS.items()
        },
        "systems": {
            name: f"{each.what}; "
            + (f"at {each.environment.path}" if each.environment.is_installed else f"run: mempiler fetch system:{name}")
            for name, each in SYSTEMS.items()
        },
    }
    packages = {name: each.dist.name if each.dist else each.module for name, each in installed.items()}
    return found[kind] | {name: f"of the package {package}" for name, package in packages.items()}


def _list_optimizer(kind: str | None, name: str) -> None:
    from ..optimizers.catalog import optimizer_class_of

    if kind != "optimizers":
        raise UserError(f"{kind} {name}: settings are listed of optimizers alone; leave {name} out")
    found = optimizer_class_of(name).default_settings()
    rows = [(key, json.dumps(value)) for key, value in found.items()]
    report(found, [table(("name", "default"), rows, f"{name}: --optimizer-set NAME=VALUE")])
