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

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError, UnknownNameError

if TYPE_CHECKING:
    from .benchmark import Benchmark

BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "implexconv": (
        "questions that hang on an implicit fact, opposed or supportive; a judge or token F1",
        "implexconv:ImplexConv",
    ),
    "jsonl": (
        "your own questions, one JSON object per line; token F1, exact match, a judge or your own function",
        "jsonl:JsonlBenchmark",
    ),
    "locomo": (
        "questions about ten very long conversations in five categories; token F1 or a judge",
        "locomo:Locomo",
    ),
    "longmemeval": (
        "questions of six types about up to 500 chats with an assistant; judged by type, or token F1",
        "longmemeval:LongMemEval",
    ),
    "longmemeval.preference": (
        "requests whose response should suit what a user once told; judged by a rubric",
        "longmemeval:LongMemEvalPreference",
    ),
    "memory-env": (
        "generated: facts that two speakers state, change and retract; exact match, no reader model",
        "memory_env:MemoryEnv",
    ),
    "memoryquest": (
        "requests that need three to five things said long ago; judged recall of what is retrieved",
        "memoryquest:MemoryQuest",
    ),
    "movielens": (
        "which rating a user gives the next movie, from hundreds before; accuracy and a confusion matrix",
        "movielens:MovieLens",
    ),
    "msc": ("a question about up to five short chats of two strangers; token F1 or a judge", "msc:Msc"),
    "omnibehavior": (
        "whether a user reacts to a video, stream, advertisement or product; ACC and F1 by field and scene",
        "omnibehavior.benchmark:OmniBehavior",
    ),
    "palbench.dialogue": (
        "a simulated user talks with the method and with another one; judged win, tie or lose",
        "palbench.dialogue:PalDialogue",
    ),
    "palbench.generate": ("a solution for a requirement; BLEU", "palbench.benchmark:PalGenerate"),
    "palbench.restate": (
        "the need behind a brief query, from logs and dialogues; BLEU or a judge",
        "palbench.benchmark:PalRestate",
    ),
    "palbench.select": ("the two of eight solutions a user likes best; S-score", "palbench.benchmark:PalSelect"),
    "personamem": (
        "multiple choice for an assistant that should know its user (v1); accuracy",
        "personamem:PersonaMem",
    ),
    "personamem-v2": (
        "whether a preference is recalled, by a judge; or multiple choice (mcq)",
        "personamem_v2:PersonaMemV2",
    ),
}
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
    from .benchmark import fitted

    kind = benchmark_class(name)
    return kind.load(path, **fitted(name, kind.load, options))


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
    from ..records.own_code import imported  # brings pydantic, which to list names does not need
    from .benchmark import Benchmark

    found = imported("benchmark", name, path)
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise ProgramError(f"benchmark {name!r} is not a subclass of mempiler.data.benchmark.Benchmark")
    return found
