"""Compile the writing of a memory with a small language model: is the compiled memory better?

    conversation ── cut into parts of six or seven sessions ──> one memory per part, from nothing
    parts of one conversation ── compile ──> writing prompt
    parts of the other ── start, compiled ──> two memories each ──> support, then F1 of answers

Two LoCoMo conversations, each cut into three parts, make six memories that are written
independently of each other. A single memory says little: a model that rounds differently writes
another one. Six say how much a difference varies from memory to memory, and the interval of the
pooled difference includes that.

A cell is a direction (which conversation trains, which tests) and an optimizer. The optimizer
scores its candidates by the metric "support", which asks for no answers. The start and the compiled
program then write the parts of the other conversation. Both memories are scored by support, and by
the F1 of the answers that the same model gives from them. Both directions run at the same time, so
that six memories can be written concurrently.

A run that is killed goes on where it was the next time, with the answers that were paid for. Cells
that are in the file of `--results` are left out.

Usage:
    $ python perf/writing.py --locomo locomo2.json                      # hours, on two cores
    $ python perf/writing.py --locomo locomo2.json --only gepa --without-answers
    $ python perf/writing.py --locomo locomo2.json --instructions       # before all: is there room?

A server of your own is faster if it was built for this processor, for example with AVX-512. It must
set the penalty for repeated tokens (see REPEAT_PENALTY):
    $ python perf/writing.py --locomo locomo2.json \
        --lm openai/qwen2.5-coder-1.5b --api-base http://127.0.0.1:8123/v1

Optimizers:
    gepa            GEPA, whose reflections the same model writes
    gepa-by-hand    GEPA with the proposals of HAND_WRITTEN, in the place of a model that reflects:
                    what is possible if the proposals are good
    bootstrap       one demo of writing: a call of the start that stored what a question asked for

How to read it:
    "instructions": before is the shipped instruction, after is one by hand, on all six memories.
    "cells": before is the start, after the compiled program, on the three memories of the test
    conversation. An interval draws questions, so it says only what other questions about the same
    memories would change.
    "pooled": the cells of both directions together. An interval draws whole memories here, and in
    "instructions", so it speaks of other conversations like these two.
    With `--lm offline` the figures are a smoke test.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import dspy
import mempiler
import numpy as np
from gepa.utils.stop_condition import MaxCandidateProposalsStopper
from mempiler.data.locomo import Locomo
from mempiler.optimizers import Bootstrap, Gepa, Optimizer
from mempiler.optimizers.job import OptimizerJob
from mempiler.programs.program import MemoryProgram
from mempiler.records import History
from mempiler.runs.options import RunOptions
from mempiler.runs.results import pair_rows
from mempiler.runs.statistics import Interval, compare_paired_scores

DATA = Path(__file__).parents[1] / "docs" / "data"
RESULTS = DATA / "writing.json"
METHOD = "fact-store"
WRITING_PREDICTOR = "method.writer.update_facts"
CONVERSATIONS = ("conv-26", "conv-30")
OPTIMIZERS = ("gepa", "gepa-by-hand", "bootstrap")
METHOD_SETTINGS = {"every": 1}
"""A session per update: on this model three sessions in one update run into the limit of tokens."""
MAX_TOKENS = 1500
"""Most tokens of one update: an instruction that asks for many facts needs twice 700."""
REPEAT_PENALTY = {"repeat_penalty": 1.1, "repeat_last_n": 256}
"""Settings of llama.cpp that make the last tokens less likely to be written again. Without them
this model repeats one fact until the limit of tokens, and the whole session is lost."""
PARTS = 3
"""Parts of a conversation; each has six or seven sessions and becomes a memory of its own."""
REFLECTED_MINIBATCH = 2
"""Questions that a model reflects on for a proposal. Each of them is shown with a whole session and
the facts written from it, so more of them do not fit the 8,192 tokens of this model."""
HAND_WRITTEN_MINIBATCH = 12
"""Questions by which a proposal by hand is first judged: nobody has to read them."""
MAX_SCORES = 1000
"""Questions that are scored at most in one compile: more than the proposals need."""
MAX_FAILURE_RATE = 0.5
"""Share of calls that may be lost. What a lost update would have stored is missing from the memory,
so it lowers the score, and that belongs to the result."""
TIMEOUT = 1800.0
"""Seconds without a byte after which a call has failed: a long prompt is read for minutes."""
CATEGORIES = "1,2,3,4"
"""Without category 5, whose questions cannot be answered."""

HAND_WRITTEN = {
    "turn by turn": """\
Retell the new conversations turn by turn, as facts about the speakers.

Take the turns one after the other. For each turn that tells something, return one fact: a sentence
in the third person that names the speaker and says what the turn says, with its things, places,
titles, numbers and reasons. Twenty turns give about ten facts. Where a turn says "yesterday", "last
week" or "next month", write the calendar date instead. Leave out turns that only greet, thank,
praise or ask. Give each fact the state "add", a new id (NEW_1, NEW_2 and so on), and the id of its
turn in turn_ids.""",
}
"""Instructions that a person wrote for this model, by name."""


@dataclass(frozen=True)
class Cell:
    """One compile: which conversation trains, which tests, and with which optimizer."""

    train: str
    test: str
    optimizer: str

    @property
    def key(self) -> str:
        """The name of the cell in the file of results."""
        return f"{METHOD} {self.optimizer}, train {self.train}, test {self.test}"


class PairedScore(NamedTuple):
    """The scores of one question, by two programs. In JSON it is a list of three."""

    part: str
    """The part of a conversation that the question is about."""
    before: float
    after: float


class HandWrittenProposals(dspy.BaseLM):
    """In the place of a model that reflects: returns instructions that a person wrote, in turn."""

    def __init__(self, instructions: Sequence[str]) -> None:
        super().__init__(model="hand-written")
        self._instructions = tuple(instructions)
        self._num_asked = 0

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        """Return the next instruction in the JSON that the adapter `auto` asks a model for."""
        instruction = self._instructions[self._num_asked % len(self._instructions)]
        self._num_asked += 1
        message = SimpleNamespace(
            content=json.dumps({"new_instruction": instruction}), tool_calls=None
        )
        return SimpleNamespace(
            choices=[SimpleNamespace(message=message, finish_reason="stop")],
            usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            model=self.model,
        )


@dataclass(frozen=True, kw_only=True)
class GepaByAllQuestions(Gepa):
    """GEPA that chooses its candidates by all questions that it learns from.

    Usually a third of them is set aside for that. Here all are about the same memories, so to score
    a candidate by all of them costs no more calls, and fewer would tell too little.
    """

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program whose instructions score best on all questions."""
        all_questions = [*job.train, *job.val]
        return super().run(replace(job, train=all_questions, val=all_questions))


def optimizer_of(cell: Cell, proposals: int) -> tuple[Optimizer, dspy.BaseLM | None]:
    """Return the optimizer of a cell, and the model that writes its proposals if it is another.

    Args:
        cell: The compile.
        proposals: How many instructions GEPA tries.
    """
    if cell.optimizer == "bootstrap":
        return Bootstrap(max_bootstrapped_demos=1, max_labeled_demos=0), None

    # Each proposal writes the memories anew, which is what costs; scoring costs a search. So the
    # number of proposals is limited.
    stop = MaxCandidateProposalsStopper(proposals)
    minibatch = HAND_WRITTEN_MINIBATCH if cell.optimizer == "gepa-by-hand" else REFLECTED_MINIBATCH
    gepa = GepaByAllQuestions(
        max_metric_calls=MAX_SCORES,
        extra={
            "stop_callbacks": [stop],
            "reflection_minibatch_size": minibatch,
            # A proposal that is as good as the start on a few questions is scored on all of them.
            # They are about the same memories, so this costs no call.
            "acceptance_criterion": "improvement_or_equal",
        },
    )
    if cell.optimizer == "gepa-by-hand":
        return gepa, HandWrittenProposals(list(HAND_WRITTEN.values()))
    return gepa, None


def questions_about_parts(benchmark: Locomo, conversation: str) -> list[dspy.Example]:
    """Return the questions that one part of a conversation answers, about this part alone.

    Questions whose evidence is spread over several parts, and those without evidence, are left out.

    Args:
        benchmark: Both conversations, whole.
        conversation: The id of the one that is cut into parts.

    Raises:
        SystemExit: The benchmark has no such conversation.
    """
    examples = [example for example in benchmark.examples if example.history.id == conversation]
    if not examples:
        raise SystemExit(f"the file of --locomo has no conversation {conversation}")
    whole = examples[0].history

    questions: list[dspy.Example] = []
    for number, positions in enumerate(np.array_split(range(len(whole.items)), PARTS), start=1):
        sessions = [whole.items[position] for position in positions]
        part = History(id=f"{conversation}, part {number}", items=tuple(sessions))
        for example in examples:
            evidence_ids = example.evidence_ids
            if evidence_ids and all(turn_id in part.turns for turn_id in evidence_ids):
                questions.append(example.copy(history=part))
    return questions


def load_locomo(options: argparse.Namespace) -> Locomo:
    benchmark = mempiler.benchmark("locomo", options.locomo, categories=CATEGORIES)
    assert isinstance(benchmark, Locomo)
    return benchmark


def run_cell(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Compile one cell, score memories and answers, and return the record of its figures."""
    locomo = load_locomo(options)
    test_questions = questions_about_parts(locomo, cell.test)
    # There are no dev questions. The result is scored on the test questions in any case, and to
    # score it on dev would be to write more memories.
    benchmark = Locomo.from_examples(
        questions_about_parts(locomo, cell.train),
        metric="support",
        valset=[],
        testset=test_questions,
    )

    optimizer, prompt_lm = optimizer_of(cell, options.proposals)
    started = time.monotonic()
    start = start_program(options)
    result = mempiler.compile(
        start,
        benchmark=benchmark,
        optimizer=optimizer,
        stage="write",
        force=True,
        out=options.out / cell.key.replace(",", "").replace(" ", "-"),
        prompt_lm=prompt_lm,
        **run_options(options),
    )
    record: dict[str, Any] = {
        "cell": cell.key,
        "optimizer": cell.optimizer,
        "train": cell.train,
        "test": cell.test,
        "proposals": None if cell.optimizer == "bootstrap" else options.proposals,
        "lm": options.lm,
        **compared(result.before, result.after),
        "stored words per said word": [
            result.before.aggregate["stored_words_per_said_word"],
            result.after.aggregate["stored_words_per_said_word"],
        ],
        "instructions after": writing_instructions(result.program),
        "calls": result.usage.get("calls"),
    }
    if not options.without_answers:
        # The memories are written: the same runs answer from them.
        answering = Locomo.from_examples(test_questions, metric="f1")
        record["f1"] = compared(
            mempiler.evaluate(start, benchmark=answering, **run_options(options)),
            mempiler.evaluate(result.program, benchmark=answering, **run_options(options)),
        )
    record["seconds"] = round(time.monotonic() - started)
    return record


def compared(before: mempiler.Evaluation, after: mempiler.Evaluation) -> dict[str, Any]:
    """Return the paired scores of two evaluations and their difference, as JSON holds them."""
    scores: list[PairedScore] = []
    for pair in pair_rows(before.headline_rows, after.headline_rows):
        scores.append(PairedScore(pair.before.group, pair.before.score, pair.after.score))
    return {
        **figures_of(scores),
        "before": {"score": before.score, "interval": bounds(before.interval)},
        "after": {"score": after.score, "interval": bounds(after.interval)},
        "scores": scores,
    }


def figures_of(scores: Sequence[PairedScore]) -> dict[str, Any]:
    """Return the difference of paired scores: over all questions, and in each part."""
    gain = compare_paired_scores(
        [score.after for score in scores],
        [score.before for score in scores],
        [score.part for score in scores],
    )

    gains_by_part: dict[str, list[float]] = {}
    for score in scores:
        gains_by_part.setdefault(score.part, []).append(score.after - score.before)
    mean_gains = [f"{np.mean(gains_by_part[part]):+.2f}" for part in sorted(gains_by_part)]

    return {
        "n": gain.n,
        "difference": {"mean": gain.mean, "interval": bounds(gain.interval)},
        "p": round(gain.p_value, 4),
        "in each part": " ".join(mean_gains),
    }


def pooled(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each optimizer gains in both directions together.

    Args:
        cells: The records of the cells. An optimizer with one direction is left out.
    """
    pooled_records: list[dict[str, Any]] = []
    for optimizer in OPTIMIZERS:
        directions = [cell for cell in cells if cell["optimizer"] == optimizer]
        if len(directions) < len(CONVERSATIONS):
            continue
        support = scores_of(directions)
        pooled_records.append({"optimizer": optimizer, "score": "support", **figures_of(support)})
        if all("f1" in cell for cell in directions):
            f1 = scores_of([cell["f1"] for cell in directions])
            pooled_records.append({"optimizer": optimizer, "score": "F1", **figures_of(f1)})
    return pooled_records


def scores_of(records: Sequence[dict[str, Any]]) -> list[PairedScore]:
    """Return the scores of all records, which were read from JSON or were just made."""
    scores: list[PairedScore] = []
    for record in records:
        scores.extend(PairedScore(*score) for score in record["scores"])
    return scores


def bounds(interval: Interval | None) -> list[float] | None:
    """Return an interval as JSON holds it."""
    return None if interval is None else [round(interval.low, 3), round(interval.high, 3)]


def start_program(options: argparse.Namespace) -> MemoryProgram:
    """Return the method with the prompts that it is shipped with."""
    return mempiler.build(METHOD, embedder=options.embedder, adapter="auto", **METHOD_SETTINGS)


def program_by_hand(instruction: str, options: argparse.Namespace) -> MemoryProgram:
    """Return the method with another instruction for writing."""
    program = start_program(options)
    predictor = program.all_predictors()[WRITING_PREDICTOR]
    predictor.signature = predictor.signature.with_instructions(instruction)
    return program


def writing_instructions(program: MemoryProgram) -> str:
    """Return the instructions of the prompt that writes facts."""
    return program.all_predictors()[WRITING_PREDICTOR].signature.instructions


def run_options(options: argparse.Namespace) -> RunOptions:
    """Return what all runs share."""
    lm_settings: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": 0.0}
    if options.lm.startswith("gguf:"):
        lm_settings |= REPEAT_PENALTY
    return {
        "lm": options.lm,
        "api_base": options.api_base,
        "lm_set": lm_settings,
        "embedder": options.embedder,
        "adapter": "auto",
        "threads": options.threads,
        "timeout": TIMEOUT,
        "max_failure_rate": MAX_FAILURE_RATE,
    }


def measure_instructions(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare the shipped instruction with those by hand, on all parts of both conversations."""
    locomo = load_locomo(options)
    questions: list[dspy.Example] = []
    for conversation in CONVERSATIONS:
        questions += questions_about_parts(locomo, conversation)
    benchmark = Locomo.from_examples(questions, metric="support")
    shipped = mempiler.evaluate(start_program(options), benchmark=benchmark, **run_options(options))

    records: list[dict[str, Any]] = []
    for name, instruction in HAND_WRITTEN.items():
        by_hand = mempiler.evaluate(
            program_by_hand(instruction, options), benchmark=benchmark, **run_options(options)
        )
        figures = compared(shipped, by_hand)
        record = {
            "instruction": name,
            "lm": options.lm,
            **figures,
            "stored words per said word": [
                shipped.aggregate["stored_words_per_said_word"],
                by_hand.aggregate["stored_words_per_said_word"],
            ],
        }
        records.append(record)
        print(json.dumps({key: record[key] for key in record if key != "scores"}), flush=True)
    return records


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What compiling the writing of a memory is worth.")
    parser.add_argument("--locomo", required=True, help="the genuine file of LoCoMo")
    parser.add_argument(
        "--lm", default="gguf:qwen2.5-coder-1.5b", help="the model [default: %(default)s]"
    )
    parser.add_argument("--api-base", help="address of a server, for a model openai/NAME")
    parser.add_argument(
        "--embedder", default="minilm", help="the embedding model [default: %(default)s]"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=PARTS,
        help="memories that each of the two directions writes at once [default: %(default)s]",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("writing"),
        help="folder of the programs [default: %(default)s]",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where figures go [default: docs/data]"
    )
    parser.add_argument("--only", choices=OPTIMIZERS, help="only this optimizer")
    parser.add_argument(
        "--proposals",
        type=int,
        default=len(HAND_WRITTEN),
        help="instructions that GEPA tries [default: %(default)s]",
    )
    parser.add_argument(
        "--without-answers",
        action="store_true",
        help="score the memories alone, and ask for no answers from them",
    )
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="compare the shipped instruction with those by hand, and end",
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    results: dict[str, Any] = {"instructions": [], "cells": [], "pooled": []}
    if options.results.exists():
        results = json.loads(options.results.read_text(encoding="utf-8"))

    if options.instructions:
        results["instructions"] = measure_instructions(options)
        write_results(results, options.results)
        return

    finished = {record["cell"] for record in results["cells"]}
    first, second = CONVERSATIONS
    for optimizer in OPTIMIZERS if options.only is None else [options.only]:
        directions = [Cell(first, second, optimizer), Cell(second, first, optimizer)]
        cells = [cell for cell in directions if cell.key not in finished]
        print(f"{time.strftime('%H:%M')} {optimizer}: {len(cells)} cells", flush=True)
        with ThreadPoolExecutor() as pool:
            for record in pool.map(lambda cell: run_cell(cell, options), cells):
                # Written after every cell: the next one may take hours.
                results["cells"].append(record)
                results["pooled"] = pooled(results["cells"])
                write_results(results, options.results)


def write_results(results: dict[str, Any], path: Path) -> None:
    text = json.dumps(results, indent=1, default=str)
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
