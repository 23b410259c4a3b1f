"""Shows that the offline engine starts fair: without demos it is no weaker than a plain rule.

A gain from compiling would be worth nothing if the start were bad on purpose. So turn RAG, uncompiled, under the
offline engine is compared with "the best-matching sentence of the top recalled turn": the turn that BM25 ranks first,
and of it the sentence that shares most terms with the question. Both are scored by LoCoMo's official F1 over categories
1 to 4, question by question. The last column says whether the engine is weaker: its interval lies below zero. Then the
exit code is 1.

Usage:
    $ python perf/offline_start.py locomo10.json
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def main() -> None:
    parser = argparse.ArgumentParser(description="The uncompiled offline engine against a plain rule.")
    parser.add_argument("file", nargs="?", help="a LoCoMo file [default: the bundled sample]")
    examples, engine, rule = _scores(parser.parse_args().file)
    groups = [example.history.id for example in examples]
    print("official F1, categories 1 to 4; engine: turn-rag, offline, no demos; rule: best sentence of the top turn\n")
    print(f"{'conversation':<16}{'n':>5}{'rule':>8}{'engine':>8}{'difference':>12}   95 % interval")
    for name in dict.fromkeys(groups):
        places = [n for n, group in enumerate(groups) if group == name]
        _line(name, *([values[n] for n in places] for values in (engine, rule, groups)))
    weaker = _line("all", engine, rule, groups)
    raise SystemExit(1 if weaker else 0)


def _scores(file: str | None) -> tuple[list[Any], list[float], list[float]]:
    """The counted examples, with the scores of the engine and of the rule."""
    import dspy
    from mempiler import build
    from mempiler.data.locomo.benchmark import Locomo
    from mempiler.engines.models import language_model

    benchmark, program = Locomo.load(file), build("turn-rag")
    examples = [example for example in benchmark.examples if benchmark.counts(example)]
    engine, rule = [], []
    with dspy.context(lm=language_model("offline"), trace=None, disable_history=True):
        for example in examples:
            said = program(history=example.history, question=example.question)
            engine.append(benchmark.score(example, said).value)
            plain = dspy.Prediction(answer=_best_sentence(program, example))
            rule.append(benchmark.score(example, plain).value)
    return examples, engine, rule


def _best_sentence(program: Any, example: Any) -> str:
    from mempiler.memory.tokens import tokens

    memory = program.remember(example.history).memory
    hits = program.method.reader.search(memory, [example.question], 1)[0]
    if not hits:
        return ""
    _, _, said = hits[0].text.partition(": ")
    asked = set(tokens(example.question))
    return max(_SENTENCE.split(said), key=lambda sentence: len(asked & set(tokens(sentence))))


def _line(name: str, engine: Sequence[float], rule: Sequence[float], groups: Sequence[str]) -> bool:
    """Prints one row; says whether the engine is weaker."""
    from mempiler.runs.statistics import paired

    found = paired(engine, rule, groups)
    means = sum(rule) / len(rule), sum(engine) / len(engine)
    span = found.interval
    weaker = span is not None and span.high < 0
    between = f"[{span.low:+.3f}, {span.high:+.3f}] by {span.unit}" if span else "too few questions"
    verdict = "WEAKER" if weaker else "no weaker"
    print(f"{name:<16}{len(rule):>5}{means[0]:>8.3f}{means[1]:>8.3f}{found.mean:>+12.3f}   {between}: {verdict}")
    return weaker


if __name__ == "__main__":
    main()
