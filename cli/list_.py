"""`mempiler list`: the names that commands take.

Nothing of anybody else's package is imported to be listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from ..errors import UserError
from ..runs.console import table
from .config import describe_hidden_options
from .options import JSON
from .printing import print_result

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rich.console import RenderableType

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


def _describe_methods() -> dict[str, str]:
    from ..programs.names import METHODS, POLICIES, plugins

    summaries = {name: method.summary for name, method in METHODS.items()}
    for name, policy in POLICIES.items():
        summaries[f"{name}+METHOD"] = policy.summary
    return {**summaries, **_describe_plugins(plugins())}


def _describe_benchmarks() -> dict[str, str]:
    from ..data.catalog import BENCHMARKS, plugins

    descriptions: dict[str, str] = {}
    for name, (description, _) in sorted(BENCHMARKS.items()):
        descriptions[name] = description
    return {**descriptions, **_describe_plugins(plugins())}


def _describe_plugins(plugins: Mapping[str, EntryPoint]) -> dict[str, str]:
    """Return, by the names that other packages add, the package of each."""
    descriptions: dict[str, str] = {}
    for name, entry_point in plugins.items():
        package = entry_point.dist.name if entry_point.dist else entry_point.module
        descriptions[name] = f"of the package {package}"
    return descriptions


def _describe_optimizers() -> dict[str, str]:
    from ..optimizers.catalog import OPTIMIZERS

    descriptions: dict[str, str] = {}
    for name, optimizer in OPTIMIZERS.items():
        descriptions[name] = (
            f"{optimizer.changes_in_program}; needs: {optimizer.needs_description}; "
            f"cost: {optimizer.cost_description}"
        )
    return descriptions


def _describe_adapters() -> dict[str, str]:
    return ADAPTERS


def _describe_embedders() -> dict[str, str]:
    from ..engines.weights import WEIGHTS

    descriptions: dict[str, str] = {}
    for name, description in EMBEDDERS.items():
        descriptions[name] = description
        weights = WEIGHTS.get(name)
        if weights is not None and not weights.is_stored:
            descriptions[name] += f"; run: mempiler fetch {name}"
    return descriptions


def _describe_weights() -> dict[str, str]:
    from ..engines.weights import WEIGHTS

    descriptions: dict[str, str] = {}
    for name, weights in WEIGHTS.items():
        place = f"at {weights.path}" if weights.is_stored else f"run: mempiler fetch {name}"
        descriptions[name] = (
            f"{weights.option}: {weights.kind}, {weights.size / 1e6:.0f} MB, {weights.licence}, "
            f"of {weights.repository}; {place}"
        )
    return descriptions


def _describe_systems() -> dict[str, str]:
    """Describe other people's memory systems, and where each is or how to fetch it."""
    from ..systems.catalog import SYSTEMS

    descriptions: dict[str, str] = {}
    for name, system in SYSTEMS.items():
        environment = system.environment
        place_or_advice = f"run: mempiler fetch system:{name}"
        if environment.is_installed:
            place_or_advice = f"at {environment.path}"
        descriptions[name] = f"{system.what}; {place_or_advice}"
    return descriptions


def _describe_settings() -> dict[str, str]:
    """Describe the options that are left out of the help of `compile`, `evaluate` and `train`.

    The description of an option names its command in parentheses, unless `compile` has it.
    """
    from .compile import command as compile_command
    from .evaluate import command as evaluate_command
    from .train import command as train_command

    descriptions: dict[str, str] = {}
    for command_name, other_command in (("train", train_command), ("evaluate", evaluate_command)):
        for name, description in describe_hidden_options(other_command).items():
            descriptions[name] = f"{description} ({command_name})"
    # The commands share many options. Those of `compile` come last, so that they replace others of
    # the same name.
    descriptions.update(describe_hidden_options(compile_command))
    return descriptions


_DESCRIBE: dict[str, Callable[[], dict[str, str]]] = {
    "methods": _describe_methods,
    "benchmarks": _describe_benchmarks,
    "optimizers": _describe_optimizers,
    "adapters": _describe_adapters,
    "embedders": _describe_embedders,
    "weights": _describe_weights,
    "systems": _describe_systems,
    "settings": _describe_settings,
}
"""Functions that return the names of a kind, with a description of each."""


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(list(_DESCRIBE)))
@click.argument("name", required=False)
@JSON
def command(kind: str | None, name: str | None) -> None:
    """List the names that commands take, of one KIND or of all, with what each is.

    `list optimizers NAME` lists the settings of an optimizer, with their defaults.
    """
    if name is not None:
        _list_optimizer(kind, name)
        return

    if kind is not None:
        kinds = [kind]
    else:
        # Settings are options, not names: they are listed only where they are asked for.
        kinds = [known_kind for known_kind in _DESCRIBE if known_kind != "settings"]
    descriptions_by_kind = {kind_name: _DESCRIBE[kind_name]() for kind_name in kinds}

    lines: list[RenderableType] = []
    for kind_name, descriptions in descriptions_by_kind.items():
        lines.append(table((kind_name, ""), descriptions.items()))
    if "methods" in descriptions_by_kind:
        lines.append("module:Class is accepted wherever a method name is")
    print_result(descriptions_by_kind, lines)


def _list_optimizer(kind: str | None, name: str) -> None:
    """Print the settings of an optimizer with their defaults."""
    from ..optimizers.catalog import optimizer_class_of

    if kind != "optimizers":
        problem = f"{kind} {name}: settings are listed of optimizers alone"
        raise UserError(f"{problem}; leave {name} out")

    defaults = optimizer_class_of(name).default_settings()
    rows = [(setting, json.dumps(default)) for setting, default in defaults.items()]
    title = f"{name}: --optimizer-set NAME=VALUE"
    print_result(defaults, [table(("name", "default"), rows, title)])
