"""`mempiler diff`: what differs between two saved programs. Both are read and verified; nothing of them is run."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from .options import JSON, output, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..programs.state import FieldState, PredictorState
    from ..runs.artifact import Manifest

MANIFEST_FIELDS = ("method", "task", "config", "adapter", "embedder", "lms", "optimizer", "benchmark")
"""What is compared of the manifests; scores, dates, digests and package versions tell of the making."""

_VALUE, _DEMO = 60, 200
"""Longest value, and longest demo, that is shown."""


@click.command("diff")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@JSON
def command(a: str, b: str, as_json: bool) -> None:
    """Show what differs between the saved programs in the folders A and B: settings, instructions, fields, demos."""
    from ..runs.artifact import read_manifest, read_states

    before, after = read_states(a), read_states(b)
    shared = [name for name in before if name in after]
    predictors = {name: _predictor(before[name], after[name]) for name in shared}
    found = {
        "a": a,
        "b": b,
        "manifest": _manifest(read_manifest(a), read_manifest(b)),
        "only_a": [name for name in before if name not in after],
        "only_b": [name for name in after if name not in before],
        "predictors": predictors,
        "same": [name for name, changes in predictors.items() if not _differs(changes)],
    }
    if as_json:
        print_json(found)
    else:
        _print(output(), found)


def _manifest(a: Manifest, b: Manifest) -> dict[str, dict[str, Any]]:
    """Changed values by dotted name, e.g. `config.k`."""
    before, after = (dict(_flat({name: getattr(one, name) for name in MANIFEST_FIELDS})) for one in (a, b))
    return _changes(before, after)


def _predictor(a: PredictorState, b: PredictorState) -> dict[str, Any]:
    before, after = a.instructions.splitlines(), b.instructions.splitlines()
    first, second = ({field.name: _words(field) for field in state.fields} for state in (a, b))
    fields = {
        f"{name}.{key}": change
        for name in first
        if name in second
        for key, change in _changes(first[name], second[name]).items()
    }
    return {
        "instructions": list(difflib.unified_diff(before, after, "a", "b", lineterm="")),
        "fields": fields,
        "fields_only_a": [name for name in first if name not in second],
        "fields_only_b": [name for name in second if name not in first],
        "settings": _changes(_settings(a), _settings(b)),
        "demos": _demos(a, b),
    }


def _demos(a: PredictorState, b: PredictorState) -> dict[str, Any]:
    before, after = ([json.dumps(demo, sort_keys=True) for demo in state.demos] for state in (a, b))
    kept = Counter(before) & Counter(after)
    return {
        "kept": kept.total(),
        "removed": [_demo(a, demo) for demo in (Counter(before) - kept).elements()],
        "added": [_demo(b, demo) for demo in (Counter(after) - kept).elements()],
        "reordered": [demo for demo in before if demo in kept] != [demo for demo in after if demo in kept],
    }


def _demo(state: PredictorState, demo: str) -> str:
    """A demo on one line: its inputs and outputs, long values cut."""
    values = json.loads(demo)
    sides = []
    for kind in ("in", "out"):
        names = [field.name for field in state.fields if field.kind == kind and field.name in values]
        sides.append(", ".join(f"{name}={_value(values[name])}" for name in names))
    return _cut(" -> ".join(sides), _DEMO)


def _words(field: FieldState) -> dict[str, Any]:
    return {"desc": field.desc, "prefix": field.prefix, "type": field.type, "kind": field.kind, "shape": field.shape}


def _settings(state: PredictorState) -> dict[str, Any]:
    return dict(_flat({"config": state.config, "decisions": state.decisions, "nearest": state.nearest}))


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
    return {name: {"a": a.get(name), "b": b.get(name)} for name in names}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _differs(changes: Mapping[str, Any]) -> bool:
    demos = changes["demos"]
    rest = [value for name, value in changes.items() if name != "demos"]
    return any(rest) or any(demos[name] for name in ("removed", "added", "reordered"))


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
    return "-" if value is None else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(value: Any) -> str:
    return _text(_cut(value, _VALUE)) if isinstance(value, str) else _cut(_text(value), _VALUE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
