"""`mempiler list`: the names that commands take."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint

import click
from rich.table import Table

from .options import JSON, output, print_json

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
@click.argument(
    "kind", required=False, type=click.Choice(["methods", "benchmarks", "optimizers", "adapters", "embedders"])
)
@JSON
def command(kind: str | None, as_json: bool) -> None:
    """List methods, benchmarks, optimizers, adapters and the embedders of this process."""
    from ..data.catalog import BENCHMARKS
    from ..data.catalog import plugins as benchmark_plugins
    from ..optimizers.catalog import OPTIMIZERS
    from ..programs.names import METHODS, POLICIES
    from ..programs.names import plugins as method_plugins

    listed = {
        "methods": {
            **{name: entry.summary for name, entry in METHODS.items()},
            **{f"{name}+METHOD": entry.summary for name, entry in POLICIES.items()},
            **_from_packages(method_plugins()),
        },
        "benchmarks": {
            **{name: entry[0] for name, entry in sorted(BENCHMARKS.items())},
            **_from_packages(benchmark_plugins()),
        },
        "optimizers": {
            name: f"{entry.changes}; needs: {entry.needs}; cost: {entry.cost}" for name, entry in OPTIMIZERS.items()
        },
        "adapters": ADAPTERS,
        "embedders": {name: told + _here(name) for name, told in EMBEDDERS.items()},
    }
    chosen = {name: entries for name, entries in listed.items() if kind in (None, name)}
    if as_json:
        print_json(chosen)
        return
    console = output()
    for name, entries in chosen.items():
        table = Table(title=name, title_justify="left", show_header=False, box=None)
        for entry, summary in entries.items():
            table.add_row(f"  {entry}", summary)
        console.print(table)
    if kind in (None, "methods"):
        console.print("  module:Class is accepted wherever a method name is")


def _here(name: str) -> str:
    """Where weights have to be fetched first."""
    from ..engines.weights import WEIGHTS

    return f"; run: mempiler models fetch {name}" if name in WEIGHTS and not WEIGHTS[name].here else ""


def _from_packages(found: Mapping[str, EntryPoint]) -> dict[str, str]:
    """What installed packages offer; nothing of it is imported to be listed."""
    return {name: f"of the package {each.dist.name if each.dist else each.module}" for name, each in found.items()}
