"""The benchmarks by name: what the command line lists and loads.

A benchmark is added by one line here and one file beside this one. Classes are imported when they are asked for,
so that listing the names costs nothing.

Example:
    >>> benchmark("locomo").source.sample
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import UnknownNameError
from .benchmark import Benchmark

BENCHMARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "jsonl": ("your own questions, one JSON object per line; token F1 or exact match", "jsonl:JsonlBenchmark"),
        "locomo": ("questions about ten very long conversations in five categories; token F1", "locomo:Locomo"),
    }
)
"""Name -> one-line description, and "module:Class" within this folder."""


def benchmark(name: str, path: str | Path | None = None, **options: Any) -> Benchmark:
    """Loads a benchmark.

    Args:
        name: A key of BENCHMARKS.
        path: The genuine file; None for the bundled sample, where the benchmark has one.
        **options: Further options of that benchmark's `load`, e.g. `categories` of locomo, `metric` of jsonl.

    Raises:
        UnknownNameError: No such benchmark, or no such option.
        DataError: The file is not what the benchmark reads.
    """
    if name not in BENCHMARKS:
        raise UnknownNameError("benchmark", name, BENCHMARKS)
    module, _, kind = BENCHMARKS[name][1].partition(":")
    loaded: type[Benchmark] = getattr(import_module(f".{module}", __package__), kind)
    return loaded.load(path, **options)
