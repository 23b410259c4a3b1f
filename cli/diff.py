"""`mempiler diff`: what differs between two saved programs. Both are read and verified; nothing of them is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from .options import JSON, output, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.artifact import Manifest

MANIFEST_FIELDS = ("method", "task", "config", "adapter", "embedder", "lms", "optimizer", "benchmark")
"""What is compared of the manifests; scores, dates, digests and package versions tell of the making."""


@click.command("diff")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@JSON
def command(a: str, b: str, as_json: bool) -> None:
    """Show what differs between the saved programs in the folders A and B: settings, instructions, fields, demos."""
    from ..runs.artifact import read_manifest, read_states
    from ..runs.program_changes import differs, predictor_changes

    before, after = read_states(a), read_states(b)
    shared = [name for name in before if name in after]
    predictors = {name: predictor_changes(before[name], after[name]) for name in shared}
    found = {
        "a": a,
        "b": b,
        "manifest": _manifest(read_manifest(a), read_manifest(b)),
        "only_a": [name for name in before if name not in after],
        "only_b": [name for name in after if name not in before],
        "predictors": predictors,
        "same": [name for name, changes in predictors.items() if not differs(changes)],
    }
    if as_json:
        print_json(found)
    else:
        _print(output(), found)


def _manifest(a: Manifest, b: Manifest) -> dict[str, dict[str, Any]]:
    """Changed values by dotted name, e.g. `config.k`."""
    from ..runs.program_changes import changes, flat

    before, after = (dict(flat({name: getattr(one, name) for name in MANIFEST_FIELDS})) for one in (a, b))
    return changes(before, after)


def _print(console: Console, found: Mapping[str, Any]) -> None:
    console.print(f"A = {found['a']}\nB = {found['b']}", soft_wrap=True)
    _print_changes(console, found["manifest"], "")
    for side in ("a", "b"):
        for name in found[f"only_{side}"]:
            console.print(f"\npredictor {name}: only in {side.upper()}", soft_wrap=True)
    for name, changes in found["predictors"].items():
        if name not in found["same"]:
            console.print(f"\npredictor {name}", soft_wrap=True)
            _print_predictor(console, changes)
    if found["same"]:
        console.print(f"\nthe same in both: {', '.join(found['same'])}", soft_wrap=True)
    if len(found["same"]) == len(found["predictors"]) and not (found["only_a"] or found["only_b"] or found["manifest"]):
        console.print("no difference")


def _print_predictor(console: Console, changes: Mapping[str, Any]) -> None:
    for line in changes["instructions"]:
        console.print(f"  {line}", soft_wrap=True)
    _print_changes(console, changes["fields"], "  field ")
    for side in ("a", "b"):
        for name in changes[f"fields_only_{side}"]:
            console.print(f"  field {name}: only in {side.upper()}", soft_wrap=True)
    _print_changes(console, changes["settings"], "  ")
    demos = changes["demos"]
    order = ", in another order" if demos["reordered"] else ""
    counts = f"{len(demos['added'])} added, {len(demos['removed'])} removed, {demos['kept']} kept{order}"
    console.print(f"  demos: {counts}", soft_wrap=True)
    for sign, name in (("-", "removed"), ("+", "added")):
        for demo in demos[name]:
            console.print(f"  {sign} {demo}", soft_wrap=True)


def _print_changes(console: Console, changes: Mapping[str, Any], prefix: str) -> None:
    for name, change in changes.items():
        console.print(f"{prefix}{name}: {_side(change['a'])} -> {_side(change['b'])}", soft_wrap=True)


def _side(value: Any) -> str:
    from ..runs.program_changes import as_text

    return "-" if value is None else as_text(value)
