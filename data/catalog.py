"""The benchmarks by name: what the command line lists and loads.

A benchmark of the suite is a folder beside this file whose `__init__` says what is in it; one of an installed package
is an entry point of the group `mempiler.benchmarks`; any other is named `module:Class`. Classes are imported when they
are asked for, so that listing the names is fast.

Example:
    >>> from mempiler.data.catalog import benchmark
    >>> locomo = benchmark("locomo")
    >>> locomo.source.sample, len(locomo.split(train=10, seed=0).train)
    (True, 10)
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import data as package
from ..errors import ProgramError, UnknownNameError, UserError

if TYPE_CHECKING:
    from .benchmark import Benchmark


def _declared(what: str) -> dict[str, Any]:
    """What the folders of this room declare under a name, with the folder before each module."""
    found: dict[str, Any] = {}
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        declared = getattr(import_module(each.name), what, {}) if each.ispkg else {}
        found |= {name: (f"{each.name}.", *entry) for name, entry in declared.items()}
    return found


BENCHMARKS: Mapping[str, tuple[str, str]] = {
    name: (told, f"{folder}{path}") for name, (folder, path, told) in sorted(_declared("BENCHMARKS").items())
}
"""Name -> one-line description, and "package.module:Class"."""

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
    from .fitting import fitted

    kind = benchmark_class(name)
    return kind.load(path, **fitted(name, kind.load, options))


def benchmark_class(name: str) -> type[Benchmark]:
    """The class of a benchmark name or of a `module:Class`."""
    if ":" in name:
        return _imported(name, name)
    if name in BENCHMARKS:
        return _imported(name, BENCHMARKS[name][1])
    found = plugins()
    if name not in found:
        raise UnknownNameError("benchmark", name, (*BENCHMARKS, *found))
    return _imported(name, found[name].value)


def plugins() -> dict[str, EntryPoint]:
    """Benchmarks of installed packages by name: their entry points of the group `mempiler.benchmarks`."""
    return {each.name: each for each in entry_points(group=PLUGINS) if each.name not in BENCHMARKS}


def _imported(name: str, path: str) -> type[Benchmark]:
    from .benchmark import Benchmark

    module, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"benchmark {name!r}: cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise ProgramError(f"benchmark {name!r} is not a subclass of mempiler.data.benchmark.Benchmark")
    return found
