"""PGR's LM calls and facts a query, counted where predictors are called, beside the paper's Table 7.

    1 to imagine + 1 per round of refinement + 1 to sum up + 1 to answer = calls        (augment: append)
    facts of phase 1, new facts of phase 2

The paper's numbers are of GPT-4o on the genuine data with text-embedding-3-small. Here the data are the bundled samples
unless `--data` names files, and without `--lm` the offline engine imagines, which is no language model: what can be
compared is which calls there are, and the number of rounds only with a model.

Usage:
    $ python perf/pgr_calls.py --questions 20
    $ python perf/pgr_calls.py --lm openai/gpt-4o --embedder openai/text-embedding-3-small --data memoryquest=FOLDER
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import dspy
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.programs.adapter import adapter
from mempiler.programs.catalog import build
from mempiler.programs.recording import recording
from mempiler.runs.recipes.papers import printed

OPTIONS: dict[str, dict[str, Any]] = {
    "memoryquest": {"metric": "evidence"},
    "implexconv": {"metric": "f1"},
    "personamem-v2": {"metric": "mcq"},
}
"""The paper's benchmarks, with metrics that need no judge."""
NAMES = ("imagine", "refine", "rewrite", "summarize", "answer")


def main() -> None:
    parser = argparse.ArgumentParser(description="PGR's LM calls a query against Table 7.")
    parser.add_argument("--questions", type=int, default=20, help="questions of each benchmark")
    parser.add_argument("--lm", default="offline")
    parser.add_argument("--embedder", default="offline")
    parser.add_argument("--augment", default="append", choices=("append", "rewrite", "none"))
    parser.add_argument("--data", action="append", default=[], metavar="BENCHMARK=FILE")
    arguments = parser.parse_args()
    files = dict(each.split("=", 1) for each in arguments.data)
    print(f"{arguments.lm}, {arguments.embedder} embedder, augment={arguments.augment}; means of a query\n")
    print(f"{'':<14}{'n':>5}" + "".join(f"{name:>11}" for name in (*NAMES, "calls", "phase 1", "new")))
    for name, options in OPTIONS.items():
        examples = benchmark(name, files.get(name), **options).examples[: arguments.questions]
        _row(name, len(examples), _counted(examples, arguments))
    _paper()


def _counted(examples: list[dspy.Example], arguments: argparse.Namespace) -> Counter[str]:
    """Calls by predictor, and facts, of all queries together; writing the memory is not among them."""
    program = build("pgr", embedder=embedder(arguments.embedder), augment=arguments.augment)
    total = Counter[str]()
    with dspy.context(lm=language_model(arguments.lm), adapter=adapter()):
        for example in examples:
            program.remember(example.history)
            with recording() as record:
                program(**example.inputs())
            total.update(call.predictor.label.rpartition(".")[2] for call in record.calls)
            total.update({name: record.contexts[-1].counts.get(name, 0) for name in ("first", "new")})
    return total


def _row(name: str, n: int, total: Counter[str]) -> None:
    cells = [total[each] / n for each in NAMES]
    cells += [sum(cells), total["first"] / n, total["new"] / n]
    print(f"{name:<14}{n:>5}" + "".join(f"{cell:>11.2f}" for cell in cells), flush=True)


def _paper() -> None:
    table = next(each for each in printed("pgr", "ablations") if "Table 7" in each.title)
    print(f"\n{table.title}; {table.model}")
    for name, *cells in table.rows:
        print(f"{name:<19}" + " " * 55 + "".join(f"{cell:>11.2f}" for cell in cells))


if __name__ == "__main__":
    main()
