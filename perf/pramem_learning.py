"""Whether PraMem learns something from a user's records: compiled PraMem against compiled truncation, paired.

Both are compiled by the same optimizer on the same training questions, so that what is left between them is memory and
not the form of an answer. For each bundled sample the held-out questions are answered by both, and the difference is
paired by question. It takes a model: the offline engine, the default, only shows that everything runs. It weighs no
records against one another, so that under it the difference is zero.

Usage:
    $ python perf/pramem_learning.py --lm openai/gpt-4.1-mini --on movielens --rounds 20 --part dev
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

METHODS = ("truncation", "pramem")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Prints one line per sample; returns the differences by benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", nargs="+", default=["movielens", "omnibehavior"])
    parser.add_argument("--rounds", type=int, default=80, help="practice rounds of a user")
    parser.add_argument("--part", choices=("dev", "test"), default="test")
    parser.add_argument("--lm", default="offline", help="the model that practises and answers")
    parser.add_argument("--questions", type=int, default=None, help="the most questions that are scored")
    chosen = parser.parse_args(arguments)
    print(f"{'sample':14} {'n':>4} {'truncation':>10} {'pramem':>7} {'difference':>10}  95 % interval    seconds")
    return {name: _compared(name, chosen.lm, chosen.rounds, chosen.part, chosen.questions) for name in chosen.on}


def _compared(name: str, lm: str, rounds: int, part: str, questions: int | None) -> Any:
    from mempiler.data.catalog import benchmark
    from mempiler.runs.statistics import paired

    began, found = time.monotonic(), benchmark(name)
    split = found.split(**({part: questions} if questions else {}))
    asked = getattr(split, part)
    scores = [_scores(found, method, lm, rounds, split.train, asked) for method in METHODS]
    difference = paired(scores[1], scores[0], [found.group(example) for example in asked])
    means = [sum(values) / len(values) for values in scores]
    span = difference.interval
    interval = f"[{span.low:+.3f}, {span.high:+.3f}] by {span.unit}" if span else "none"
    seconds = f"{time.monotonic() - began:.0f}"
    print(f"{name:14} {len(asked):4} {means[0]:10.3f} {means[1]:7.3f} {difference.mean:+10.3f}  {interval}  {seconds}")
    return difference


def _scores(found: Any, method: str, lm: str, rounds: int, train: Sequence[Any], asked: Sequence[Any]) -> list[float]:
    """Accuracy of every question with a method that was compiled on the training questions."""
    import dspy
    from mempiler import build
    from mempiler.engines.models import language_model
    from mempiler.optimizers.compile import Compilation, compile_program

    settings = {"rounds": rounds} if method == "pramem" else {}
    program = build(method, task=found.task, **settings)
    with dspy.context(lm=language_model(lm)):
        compiled = compile_program(program, found, train, Compilation("bootstrap", stage="read"))
        return [found.score(example, compiled(**example.inputs())).value for example in asked]


if __name__ == "__main__":
    main()
