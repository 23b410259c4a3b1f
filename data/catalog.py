"""The benchmarks by name: what the command line lists and loads.

One of an installed package is an entry point of the group `mempiler.benchmarks`; any other is named `module:Class`.
Classes are imported when they are asked for, so that listing the names is fast.

Example:
    >>> from mempiler.data.catalog import benchmark
    >>> locomo = benchmark("locomo")
    >>> locomo.source.sample, len(locomo.split(train=10, seed=0).train)
    (True, 10)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError, UnknownNameError

if TYPE_CHECKING:
    from .benchmark import Benchmark

_CATALOG = json.loads(Path(__file__).with_name("catalog.json").read_text(encoding="utf-8"))
BENCHMARKS: Mapping[str, tuple[str, str]] = {name: (one["description"], one["class"]) for name, one in _CATALOG.items()}
"""Name -> one-line description, and "module:Class" below this package."""

PLUGINS = "mempiler.benchmarks"
"""The group of entry points under which packages offer benchmarks of their own."""


def benchmark(name: str, path: str | Path | None = None, **options: Any) -> Benchmark:
    """Loads a benchmark.

    Args:
        name: A key of BENCHMARKS, or `module:Class` of one's own.
        path: The genuine file; None for the bundled sample, where the benchmark has one.
        **options: Further options of that benchmark's `load`, e.g. `categories` of locomo, `metric` of jsonl.

    Raises:
        UnknownNameError: No such benchmark, or no such option.
        UserError: The class cannot be imported, or is no benchmark, or an option is of another kind.
        DataError: The file is not what the benchmark reads.
    """
    from .load_options import coerce_options

    kind = benchmark_class(name)
    return kind.load(path, **coerce_options(name, kind.load, options))


def benchmark_class(name: str) -> type[Benchmark]:
    """The class of a benchmark name or of a `module:Class`."""
    if ":" in name:
        return _imported(name, name)
    if name in BENCHMARKS:
        return _imported(name, f"{__package__}.{BENCHMARKS[name][1]}")
    found = plugins()
    if name not in found:
        raise UnknownNameError("benchmark", name, (*BENCHMARKS, *found))
    return _imported(name, found[name].value)


def plugins() -> dict[str, EntryPoint]:
    """Benchmarks of installed packages by name: their entry points of the group `mempiler.benchmarks`."""
    return {each.name: each for each in entry_points(group=PLUGINS) if each.name not in BENCHMARKS}


def _imported(name: str, path: str) -> type[Benchmark]:
    from ..records.import_object import import_object  # brings pydantic, which to list names does not need
    from .benchmark import Benchmark

    found = import_object("benchmark", name, path)
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise ProgramError(f"benchmark {name!r} is not a subclass of mempiler.data.benchmark.Benchmark")
    return found
