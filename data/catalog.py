"""The benchmarks by name: what the command line lists and loads.

A benchmark of an installed package is an entry point of the group `mempiler.benchmarks`. Any other
is named `module:Class`. A class is imported when it is asked for, so that listing names is fast.

Example:
    >>> from mempiler.data.catalog import benchmark
    >>> locomo = benchmark("locomo")
    >>> locomo.source.sample, len(locomo.split(train=10, seed=0).train)
    (True, 10)
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ProgramError, UnknownNameError

if TYPE_CHECKING:
    from .benchmark import Benchmark


class BenchmarkEntry(NamedTuple):
    """A benchmark in the list."""

    description: str
    """One line for lists."""
    class_path: str
    """`module:Class`, below this package."""


BENCHMARKS = {
    "beam": BenchmarkEntry(
        "twenty questions on each chat of 100K to 10M tokens, ten abilities; a judge checks each "
        "point of a right answer",
        "beam.benchmark:Beam",
    ),
    "implexconv": BenchmarkEntry(
        "questions whose obvious answer is wrong, or right, because of an earlier remark that "
        "seems unrelated; a judge or token F1",
        "implexconv:ImplexConv",
    ),
    "jsonl": BenchmarkEntry(
        "your own questions, one JSON object per line; token F1, exact match, a judge or "
        "your own function",
        "jsonl:JsonlBenchmark",
    ),
    "locomo": BenchmarkEntry(
        "questions about ten very long conversations in five categories; token F1 or a judge",
        "locomo:Locomo",
    ),
    "longmemeval": BenchmarkEntry(
        "questions of six types about up to 500 chats with an assistant; judged by type, "
        "or token F1",
        "longmemeval:LongMemEval",
    ),
    "longmemeval.preference": BenchmarkEntry(
        "requests whose answer should suit a preference that the user once told; a judge",
        "longmemeval:LongMemEvalPreference",
    ),
    "membench": BenchmarkEntry(
        "one multiple-choice question after messages or chats, of eleven types; accuracy",
        "membench:MemBench",
    ),
    "memory-env": BenchmarkEntry(
        "generated: facts that two speakers state, change and retract; answers are read from the "
        "memory without a model; exact match",
        "memory_env:MemoryEnv",
    ),
    "memoryquest": BenchmarkEntry(
        "requests that need three to five things said long ago; a judge counts how many were "
        "recalled",
        "memoryquest:MemoryQuest",
    ),
    "movielens": BenchmarkEntry(
        "which rating a user gives the next movie, after hundreds of ratings; accuracy and a "
        "confusion matrix",
        "movielens:MovieLens",
    ),
    "msc": BenchmarkEntry(
        "a question about up to five short chats of two strangers; token F1 or a judge",
        "msc:Msc",
    ),
    "omnibehavior": BenchmarkEntry(
        "whether a user reacts to a video, stream, advertisement or product; accuracy and F1 for "
        "each kind of reaction and scene",
        "omnibehavior.benchmark:OmniBehavior",
    ),
    "palbench.dialogue": BenchmarkEntry(
        "a simulated user talks with the method and with another one; judged win, tie or lose",
        "palbench.dialogue:PalDialogue",
    ),
    "palbench.generate": BenchmarkEntry(
        "a solution for a requirement; BLEU",
        "palbench.benchmark:PalGenerate",
    ),
    "palbench.restate": BenchmarkEntry(
        "what a user needs who asks in a few words, from logs and dialogues; BLEU or a judge",
        "palbench.benchmark:PalRestate",
    ),
    "palbench.select": BenchmarkEntry(
        "the two solutions of eight that a user likes best; S-score",
        "palbench.benchmark:PalSelect",
    ),
    "personamem": BenchmarkEntry(
        "multiple choice for an assistant that should know its user (v1); accuracy",
        "personamem:PersonaMem",
    ),
    "personamem-v2": BenchmarkEntry(
        "whether a preference is recalled, by a judge; or multiple choice (mcq)",
        "personamem_v2:PersonaMemV2",
    ),
}
"""The benchmarks of this package, by name."""

PLUGINS = "mempiler.benchmarks"
"""The group of entry points under which packages offer benchmarks of their own."""


def benchmark(name: str, path: str | Path | None = None, **options: Any) -> Benchmark:
    """Load a benchmark.

    Args:
        name: A key of `BENCHMARKS`, the name of a plugin, or `module:Class`.
        path: The genuine file; None for the bundled sample, if the benchmark has one.
        **options: Further options of the benchmark's `load`, e.g. `categories` of locomo.

    Raises:
        UnknownNameError: There is no such benchmark, or no such option.
        UserError: The class cannot be imported or is no benchmark, or an option is of another kind.
        DataError: The file is not what the benchmark reads.
    """
    from .load_options import coerce_options

    loaded_class = benchmark_class(name)
    return loaded_class.load(path, **coerce_options(name, loaded_class.load, options))


def benchmark_class(name: str) -> type[Benchmark]:
    """Return the class of a benchmark by its name, or by `module:Class`.

    Raises:
        UnknownNameError: There is no benchmark of this name.
        UserError: The class cannot be imported.
        ProgramError: It is no benchmark, or lacks what every benchmark has.
    """
    if ":" in name:
        return _import_class(name, name)
    if name in BENCHMARKS:
        return _import_class(name, f"{__package__}.{BENCHMARKS[name].class_path}")

    plugins_by_name = plugins()
    if name not in plugins_by_name:
        raise UnknownNameError("benchmark", name, (*BENCHMARKS, *plugins_by_name))
    return _import_class(name, plugins_by_name[name].value)


def plugins() -> dict[str, EntryPoint]:
    """Return the benchmarks of installed packages, by name."""
    return {
        entry_point.name: entry_point
        for entry_point in entry_points(group=PLUGINS)
        if entry_point.name not in BENCHMARKS
    }


def _import_class(name: str, path: str) -> type[Benchmark]:
    # pydantic comes with this import; listing the names does not need it.
    from ..records.import_object import import_object
    from .benchmark import Benchmark

    imported = import_object("benchmark", name, path)
    if not (isinstance(imported, type) and issubclass(imported, Benchmark)):
        raise ProgramError(
            f"benchmark {name!r} is not a subclass of mempiler.data.benchmark.Benchmark"
        )
    imported.refuse_wrong_class()
    imported.refuse_inherited_name()
    return imported
