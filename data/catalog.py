"""The benchmarks by name: what the command line lists and loads.

A benchmark is added by one line here and one file beside this one, or kept in one's own code and named `module:Class`.
Classes are imported when they are asked for, so that listing the names costs nothing.

Example:
    >>> benchmark("locomo").source.sample
    True
    >>> benchmark("mypackage.quizzes:Quiz", "quiz.csv").name
    'quiz'
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import ProgramError, UnknownNameError, UserError
from .benchmark import Benchmark

BENCHMARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "implexconv": (
            "questions that hang on an implicit fact, opposed or supportive; a judge or token F1",
            "implexconv.benchmark:ImplexConv",
        ),
        "jsonl": (
            "your own questions, one JSON object per line; token F1, exact match, a judge or your own function",
            "jsonl.benchmark:JsonlBenchmark",
        ),
        "locomo": (
            "questions about ten very long conversations in five categories; token F1 or a judge",
            "locomo.benchmark:Locomo",
        ),
        "longmemeval": (
            "questions of six types about up to 500 chats with an assistant; judged by type, or token F1",
            "longmemeval.benchmark:LongMemEval",
        ),
        "longmemeval.preference": (
            "requests whose response should suit what a user once told; judged by a rubric",
            "longmemeval.benchmark:LongMemEvalPreference",
        ),
        "memory-env": (
            "generated: facts that two speakers state, change and retract; exact match, no reader model",
            "memory_env.benchmark:MemoryEnv",
        ),
        "memoryquest": (
            "requests that need three to five things said long ago; judged recall of what is retrieved",
            "memoryquest.benchmark:MemoryQuest",
        ),
        "movielens": (
            "which rating a user gives the next movie, from hundreds before; accuracy and a confusion matrix",
            "movielens.benchmark:MovieLens",
        ),
        "msc": ("a question about up to five short chats of two strangers; token F1 or a judge", "msc.benchmark:Msc"),
        "omnibehavior": (
            "whether a user reacts to a video, stream, advertisement or product; ACC and F1 by field and scene",
            "omnibehavior.benchmark:OmniBehavior",
        ),
        "palbench.dialogue": (
            "a simulated user talks with the method and with another one; judged win, tie or lose",
            "palbench.dialogue_benchmark:PalDialogue",
        ),
        "palbench.generate": (
            "a solution for a requirement; BLEU",
            "palbench.benchmark:PalGenerate",
        ),
        "palbench.restate": (
            "the need behind a brief query, from logs and dialogues; BLEU or a judge",
            "palbench.benchmark:PalRestate",
        ),
        "palbench.select": (
            "the two of eight solutions a user likes best; S-score",
            "palbench.benchmark:PalSelect",
        ),
        "personamem": (
            "multiple choice for an assistant that should know its user (v1); accuracy",
            "personamem.benchmark:PersonaMem",
        ),
        "personamem-v2": (
            "whether a preference is recalled, by a judge; or multiple choice (mcq)",
            "personamem_v2.benchmark:PersonaMemV2",
        ),
    }
)
"""Name -> one-line description, and "module:Class" within this folder."""

SUITES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "palbench": (
            "three parts of palbench as one score, the plain mean on 0 to 100; only for evaluate",
            ("palbench.restate", "palbench.generate", "palbench.select"),
        ),
    }
)
"""Several benchmarks with one score: name -> one-line description, and the names of its parts."""


def benchmark(name: str, path: str | Path | None = None, **options: Any) -> Benchmark:
    """Loads a benchmark.

    Args:
        name: A key of BENCHMARKS, or `module:Class` of one's own.
        path: The genuine file; None for the bundled sample, where the benchmark has one.
        **options: Further options of that benchmark's `load`, e.g. `categories` of locomo, `metric` of jsonl.

    Raises:
        UnknownNameError: No such benchmark, or no such option.
        UserError: The class cannot be imported, or is no benchmark.
        DataError: The file is not what the benchmark reads.
    """
    return benchmark_class(name).load(path, **options)


def benchmark_class(name: str) -> type[Benchmark]:
    """The class of a benchmark name or of a `module:Class`."""
    if ":" in name:
        return _imported(name)
    if name in SUITES:
        parts = ", ".join(each for each in BENCHMARKS if each.startswith(f"{name}."))
        raise UserError(f"{name} is a suite of several benchmarks, which only evaluate takes; name one: {parts}")
    if name not in BENCHMARKS:
        raise UnknownNameError("benchmark", name, (*BENCHMARKS, *SUITES))
    module, _, kind = BENCHMARKS[name][1].partition(":")
    return getattr(import_module(f".{module}", __package__), kind)


def _imported(path: str) -> type[Benchmark]:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"benchmark {path!r}: cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise ProgramError(f"benchmark {path!r} is not a subclass of mempiler.data.benchmark.Benchmark")
    return found
