"""Tune the settings of a method on some conversations, and count what that gains on other ones.

The optimizer `settings` tries values of a method's settings, and keeps those with which the most
evidence is recalled for the training questions. This script then recalls for the test questions,
with the shipped values and with the tuned ones. No model is asked.

Usage:
    $ python perf/settings.py                                  # the bundled samples, two minutes
    $ python perf/settings.py locomo10.json                    # LoCoMo's conversations, too
    $ python perf/settings.py --embedder minilm --method session-rag

Sample output:
    turn-rag, words alone, 60 trials     questions   shipped   tuned   difference
    conv-26 -> conv-30                          81     0.759   0.759   no change
        settings: nothing was better than the starting values (sets tried: 60)
    conv-30 -> conv-26                         150     0.759   0.728   -0.032 [-0.068, +0.003]
        settings: search.neighbour_words 1.0 -> 1.6; on 81 training questions 0.759 -> 0.771, ...

Every line is a set of questions:
    conv-26 -> conv-30    tuned on one conversation of LoCoMo, tested on the other
    locomo sample         tuned on half of the conversations of a bundled sample, tested on the rest

Columns:
    questions         how many are tested; all name their evidence
    shipped, tuned    the share of the evidence that is recalled with these values, a mean
    difference        tuned minus shipped, with the 95 % interval if questions are drawn anew
    settings          what was changed, and what it gained on the training questions

How to read it:
    "no change": no values were better than the shipped ones in training. A gain is one if its
    interval is above 0. The same version gives the same figures. The bundled samples are ours and
    small: of their figures only a large loss would say something.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dspy
import numpy as np
from mempiler import Benchmark, build
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.engines.embedders import NO_RERANKER, TextEmbedder, embedder
from mempiler.engines.lm import language_model
from mempiler.errors import MempilerError
from mempiler.optimizers import SettingsSearch
from mempiler.optimizers.compile import CompileConfig, compile_program
from mempiler.optimizers.history import CandidateHistory
from mempiler.optimizers.trial_scores import recalled_evidence
from mempiler.programs.program import MemoryProgram
from mempiler.runs.statistics import bootstrap_interval

SAMPLES = ("locomo", "longmemeval", "memoryquest", "implexconv", "personamem-v2")
"""Benchmarks with a bundled sample that names evidence."""
WORDS_ALONE = "words alone"
"""What stands in the place of an embedder's name if there is none."""
FEWEST_QUESTIONS = 5
TRIALS = 60


@dataclass(frozen=True)
class Split:
    """Questions to tune by, and questions about other conversations to test by."""

    title: str
    benchmark: Benchmark
    train: Sequence[dspy.Example]
    test: Sequence[dspy.Example]


@dataclass(frozen=True)
class Comparison:
    """What shipped and tuned values recall for the same questions."""

    shipped: np.ndarray
    """The share of the evidence, shape [questions]."""
    tuned: np.ndarray
    """The same with tuned values."""
    is_changed: bool
    """Whether any value differs."""
    note: str
    """What was changed, and what it gained on the training questions."""

    def difference(self) -> str:
        """Return the difference of the means with its interval."""
        if not self.is_changed:
            return "no change"
        differences = self.tuned - self.shipped
        questions = [str(number) for number in range(len(differences))]
        interval = bootstrap_interval(differences.tolist(), groups=questions)
        assert interval is not None, "there are several questions"
        return f"{differences.mean():+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def list_splits(locomo_file: str | None) -> Iterator[Split]:
    """Return the sets of questions: pairs of conversations of a file, and the bundled samples."""
    if locomo_file is not None:
        yield from _pairs_of_conversations(load_benchmark("locomo", locomo_file))
    for name in SAMPLES:
        yield _halves(load_benchmark(name))


def _pairs_of_conversations(locomo: Benchmark) -> Iterator[Split]:
    """Return the first two conversations, each tested with the values tuned on the other."""
    first, second = _conversations(locomo)[:2]
    for tuned_on, tested_on in ((first, second), (second, first)):
        title = f"{tuned_on} -> {tested_on}"
        yield Split(title, locomo, _questions(locomo, [tuned_on]), _questions(locomo, [tested_on]))


def _halves(sample: Benchmark) -> Split:
    """Return a sample with one half of its conversations, drawn at random, for each part."""
    conversations = _conversations(sample)
    random.Random(0).shuffle(conversations)
    middle = len(conversations) // 2
    return Split(
        f"{sample.name} sample",
        sample,
        _questions(sample, conversations[:middle]),
        _questions(sample, conversations[middle:]),
    )


def _conversations(benchmark: Benchmark) -> list[str]:
    return sorted({example.history.id for example in benchmark.examples})


def _questions(benchmark: Benchmark, conversations: Sequence[str]) -> list[dspy.Example]:
    """Return the questions about some conversations that count and name their evidence."""
    questions: list[dspy.Example] = []
    for example in benchmark.examples:
        is_asked = example.history.id in conversations and benchmark.in_headline(example)
        if is_asked and example.get("evidence_ids"):
            questions.append(example)
    return questions


def compare(split: Split, method: str, chosen: TextEmbedder | None, num_trials: int) -> Comparison:
    """Tune a method on the training questions, and recall for the test questions."""
    program = build(method, split.benchmark.task, embedder=chosen)
    search = SettingsSearch(objective="evidence_recall", num_trials=num_trials)

    with dspy.context(lm=language_model()):
        history = CandidateHistory(dspy.settings.lm.meter)
        tuned = compile_program(
            program, split.benchmark, split.train, CompileConfig.of_object(search), history=history
        )
        return Comparison(
            shipped=_recall(program, split.test),
            tuned=_recall(tuned, split.test),
            is_changed=tuned.config != program.config,
            note=" ".join(history.notes),
        )


def _recall(program: MemoryProgram, questions: Sequence[dspy.Example]) -> np.ndarray:
    """Return the share of the evidence that is recalled for each question."""
    shares: list[float] = []
    for question in questions:
        prediction = dspy.Prediction(context=program.recall_for(question).context)
        shares.append(recalled_evidence(question, prediction))
    return np.array(shares)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What tuned settings gain elsewhere.")
    parser.add_argument("locomo", nargs="?", help="a file of LoCoMo with two conversations or more")
    parser.add_argument("--method", default="turn-rag", help="[default: %(default)s]")
    parser.add_argument("--embedder", help="its name [default: none, a search by words alone]")
    parser.add_argument("--trials", type=int, default=TRIALS, help="[default: %(default)s]")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    """Print a line for each set of questions.

    Raises:
        MempilerError: The file, the method or the weights of the embedder are not there.
    """
    chosen = None
    if arguments.embedder is not None:
        chosen = embedder(arguments.embedder, reranker=NO_RERANKER)

    search_name = arguments.embedder or WORDS_ALONE
    title = f"{arguments.method}, {search_name}, {arguments.trials} trials"
    print(f"{title:36} questions   shipped   tuned   difference")
    for split in list_splits(arguments.locomo):
        if min(len(split.train), len(split.test)) < FEWEST_QUESTIONS:
            print(f"{split.title:36} too few questions")
            continue
        comparison = compare(split, arguments.method, chosen, arguments.trials)
        print(
            f"{split.title:36} {len(split.test):9}   {comparison.shipped.mean():7.3f}"
            f" {comparison.tuned.mean():7.3f}   {comparison.difference()}",
            flush=True,
        )
        print(f"    {comparison.note}")


def main() -> None:
    try:
        run(parse_arguments())
    except MempilerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
