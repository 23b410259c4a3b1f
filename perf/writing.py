"""Compile the writing of a memory with a small language model: is the compiled memory better?

    train conversation, its first sessions ── compile ──> writing prompt
    test conversation, whole ── start, compiled ──> two memories ──> support, then F1 of answers

A cell is a direction (which of two LoCoMo conversations trains, which tests) and an optimizer. The
optimizer scores its candidates by the metric "support", which asks for no answers, on questions
about the first sessions of the train conversation. The start and the compiled program then write
the whole test conversation. Both memories are scored by support, and by the F1 of the answers that
the same model gives from them.

A cell that is killed goes on where it was the next time, with the answers that were paid for. Its
figures are a record in the file of `--results`; cells that have one are left out.

Usage:
    $ python perf/writing.py --locomo locomo2.json                      # hours, on two cores
    $ python perf/writing.py --locomo locomo2.json --only gepa --train conv-26
    $ python perf/writing.py --locomo locomo2.json --headroom 3         # before all: is there room?

Two directions run at the same time at a server of your own with several slots. The server must set
the penalty for repeated tokens (see REPEAT_PENALTY):
    $ python perf/writing.py --locomo locomo2.json --train conv-26 --results conv-26.json \
        --lm openai/qwen2.5-coder-1.5b --api-base http://127.0.0.1:8123/v1

Optimizers:
    gepa            GEPA, whose reflections the same model writes
    gepa-by-hand    GEPA with the proposals of HAND_WRITTEN, in the place of a model that reflects:
                    what is possible if the proposals are good
    bootstrap       one demo of writing: a call of the start that stored what a question asked for

How to read it:
    The interval of a difference tells a gain from chance on questions about these two memories. It
    does not say how another conversation would do, or the same one at another build of the server:
    docs/evidence.md has an example. With `--lm offline` the figures are a smoke test.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import mempiler
from gepa.utils.stop_condition import MaxCandidateProposalsStopper
from mempiler.data.locomo import Locomo
from mempiler.optimizers import Bootstrap, Gepa, Optimizer
from mempiler.optimizers.job import OptimizerJob
from mempiler.programs.program import MemoryProgram
from mempiler.records import History
from mempiler.runs.options import RunOptions
from mempiler.runs.results import difference
from mempiler.runs.statistics import Interval

DATA = Path(__file__).parents[1] / "docs" / "data"
RESULTS = DATA / "writing.json"
HEADROOM_RESULTS = DATA / "writing_headroom.json"
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
CANDIDATE_SESSIONS = 8
"""Sessions of the train conversation by which candidates are scored."""
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

HAND_WRITTEN = (
    """\
Write down every concrete fact of the new conversations that somebody could ask about later.

A fact is one sentence that is understood by itself. It names the person and says exactly what
happened: the activity, object, title, place, number, reason or feeling, in the words of the
speaker. It also says when: work out the calendar date from the date before the turn, and write it
into the sentence.

Go through the turns in order. Greetings, thanks, compliments and questions hold no fact. Most other
turns hold one or two. Give each fact the state "add" and the ids of the turns that say it. Use the
state "update", with the fact_id of an existing fact, only if the same thing has changed. Write
nothing that the conversations do not say.""",
    """\
Update the list of facts about the speakers with what the new conversations say.

Each turn that tells something about a person, a plan, a purchase, a place, a person's work or a
past event becomes one short fact: who, what, where, with whom, how many, and the day or month when
it happened. Keep names, titles and numbers as they were said. Leave out small talk. A fact that is
known already is returned with the state "update" and its fact_id; all others with the state
"add".""",
)
"""Instructions of the control, proposed one after the other."""


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

    Usually a third of them is set aside for that. Here all are about the same sessions, so to score
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

    # Each proposal writes the first sessions anew, which is what costs; scoring costs a search. So
    # the number of proposals is limited.
    stop = MaxCandidateProposalsStopper(proposals)
    minibatch = HAND_WRITTEN_MINIBATCH if cell.optimizer == "gepa-by-hand" else REFLECTED_MINIBATCH
    gepa = GepaByAllQuestions(
        max_metric_calls=MAX_SCORES,
        extra={
            "stop_callbacks": [stop],
            "reflection_minibatch_size": minibatch,
            # A proposal that is as good as the start on a few questions is scored on all of them.
            # They are about the same sessions, so this costs no call.
            "acceptance_criterion": "improvement_or_equal",
        },
    )
    if cell.optimizer == "gepa-by-hand":
        return gepa, HandWrittenProposals(HAND_WRITTEN)
    return gepa, None


def questions_about(benchmark: Locomo, conversation: str) -> list[dspy.Example]:
    """Return the questions about one conversation."""
    return [example for example in benchmark.examples if example.history.id == conversation]


def questions_about_beginning(
    examples: Sequence[dspy.Example], sessions: int
) -> list[dspy.Example]:
    """Return the questions that the first sessions answer, about these sessions alone.

    Args:
        examples: Questions about one conversation.
        sessions: How many sessions there are to be.
    """
    whole = examples[0].history
    beginning = History(id=f"{whole.id}, {sessions} sessions", items=whole.items[:sessions])

    cut_examples: list[dspy.Example] = []
    for example in examples:
        evidence_ids = example.evidence_ids
        if evidence_ids and all(turn_id in beginning.turns for turn_id in evidence_ids):
            cut_examples.append(example.copy(history=beginning))
    return cut_examples


def benchmark_of(cell: Cell, options: argparse.Namespace) -> Locomo:
    """Return the questions of a compile: those to learn from, and those to test with.

    Those to learn from are about the first sessions of one conversation, so that a candidate need
    not write all of it. There are no dev questions: the result is scored on the test questions in
    any case, and to score it on dev would be to write the first sessions once more.
    """
    locomo = load_locomo(options)
    all_train_questions = questions_about(locomo, cell.train)
    return Locomo.from_examples(
        questions_about_beginning(all_train_questions, options.sessions),
        metric="support",
        valset=[],
        testset=test_questions(locomo, cell, options),
    )


def test_questions(locomo: Locomo, cell: Cell, options: argparse.Namespace) -> list[dspy.Example]:
    """Return the questions about the test conversation, or about its first sessions."""
    questions = questions_about(locomo, cell.test)
    if options.test_sessions is None:
        return questions
    return questions_about_beginning(questions, options.test_sessions)


def load_locomo(options: argparse.Namespace) -> Locomo:
    benchmark = mempiler.benchmark("locomo", options.locomo, categories=CATEGORIES)
    assert isinstance(benchmark, Locomo)
    return benchmark


def run_cell(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Compile one cell, score the answers from both memories, and return its figures."""
    optimizer, prompt_lm = optimizer_of(cell, options.proposals)
    started = time.monotonic()
    benchmark = benchmark_of(cell, options)
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
        "sessions to learn from": options.sessions,
        "test sessions": options.test_sessions or "all",
        "lm": options.lm,
        "n": len(result.before.headline_rows),
        **paired_figures(result.before, result.after),
        "stored words per said word": [
            result.before.aggregate["stored_words_per_said_word"],
            result.after.aggregate["stored_words_per_said_word"],
        ],
        "instructions after": writing_instructions(result.program),
        "calls": result.usage.get("calls"),
        "seconds of compiling": round(time.monotonic() - started),
    }
    if options.without_answers:
        return record

    # The memories are written: the same runs answer from them.
    whole = Locomo.from_examples(test_questions(load_locomo(options), cell, options), metric="f1")
    answers_before = evaluate_answers(start, whole, options)
    answers_after = evaluate_answers(result.program, whole, options)
    record["f1"] = paired_figures(answers_before, answers_after)
    record["seconds"] = round(time.monotonic() - started)
    return record


def paired_figures(before: mempiler.Evaluation, after: mempiler.Evaluation) -> dict[str, Any]:
    """Return two scores and their paired difference, with intervals, as JSON holds them."""
    gain = difference(before.headline_rows, after.headline_rows)
    return {
        "before": {"score": before.score, "interval": bounds(before.interval)},
        "after": {"score": after.score, "interval": bounds(after.interval)},
        "difference": {"mean": gain.mean, "interval": bounds(gain.interval)},
        "p": round(gain.p_value, 4),
    }


def start_program(options: argparse.Namespace) -> MemoryProgram:
    """Return the method with the prompts that it is shipped with."""
    return mempiler.build(METHOD, embedder=options.embedder, adapter="auto", **METHOD_SETTINGS)


def evaluate_answers(
    program: MemoryProgram, benchmark: Locomo, options: argparse.Namespace
) -> mempiler.Evaluation:
    """Score the answers of a program; the calls that write its memory are in the cache by now."""
    return mempiler.evaluate(program, benchmark=benchmark, **run_options(options))


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
        "threads": 1,
        "timeout": TIMEOUT,
        "max_failure_rate": MAX_FAILURE_RATE,
    }


def writing_instructions(program: MemoryProgram) -> str:
    """Return the instructions of the prompt that writes facts."""
    return program.all_predictors()[WRITING_PREDICTOR].signature.instructions


def measure_headroom(options: argparse.Namespace) -> None:
    """Compare the shipped instruction with one by hand on the first sessions of each conversation.

    Each conversation is a record in the file of `--headroom-results`, with the paired difference.
    """
    conversations = CONVERSATIONS if options.train is None else (options.train,)
    records: list[dict[str, Any]] = []
    for conversation in conversations:
        examples = questions_about(load_locomo(options), conversation)
        about_beginning = questions_about_beginning(examples, options.headroom)
        benchmark = Locomo.from_examples(about_beginning, metric="support")

        shipped = mempiler.evaluate(
            start_program(options), benchmark=benchmark, **run_options(options)
        )
        by_hand = mempiler.evaluate(
            program_by_hand(options), benchmark=benchmark, **run_options(options)
        )
        figures = paired_figures(shipped, by_hand)
        record: dict[str, Any] = {
            "conversation": conversation,
            "sessions": options.headroom,
            "n": len(shipped.headline_rows),
            "lm": options.lm,
            "shipped": figures["before"],
            "by hand": figures["after"],
            "difference": figures["difference"],
            "p": figures["p"],
            "stored words per said word": [
                shipped.aggregate["stored_words_per_said_word"],
                by_hand.aggregate["stored_words_per_said_word"],
            ],
        }
        records.append(record)
        print(json.dumps(record, default=str), flush=True)

    text = json.dumps({"headroom": records}, indent=1)
    options.headroom_results.write_text(f"{text}\n", encoding="utf-8")


def bounds(interval: Interval | None) -> list[float] | None:
    """Return an interval as JSON holds it."""
    return None if interval is None else [round(interval.low, 3), round(interval.high, 3)]


def program_by_hand(options: argparse.Namespace) -> MemoryProgram:
    """Return the method with the first of the instructions that a person wrote."""
    program = start_program(options)
    predictor = program.all_predictors()[WRITING_PREDICTOR]
    predictor.signature = predictor.signature.with_instructions(HAND_WRITTEN[0])
    return program


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
        "--out",
        type=Path,
        default=Path("writing"),
        help="folder of the programs [default: %(default)s]",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where figures go [default: docs/data]"
    )
    parser.add_argument(
        "--headroom-results",
        type=Path,
        default=HEADROOM_RESULTS,
        help="where the figures of --headroom go [default: docs/data]",
    )
    parser.add_argument("--only", choices=OPTIMIZERS, help="only this optimizer")
    parser.add_argument("--train", choices=CONVERSATIONS, help="only this direction")
    parser.add_argument(
        "--sessions",
        type=int,
        default=CANDIDATE_SESSIONS,
        help="sessions by which candidates are scored [default: %(default)s]",
    )
    parser.add_argument(
        "--proposals",
        type=int,
        default=len(HAND_WRITTEN),
        help="instructions that GEPA tries [default: %(default)s]",
    )
    parser.add_argument(
        "--test-sessions",
        type=int,
        metavar="N",
        help="score only the first N sessions of the test conversation [default: all]",
    )
    parser.add_argument(
        "--without-answers",
        action="store_true",
        help="score the memories alone, and ask for no answers from them",
    )
    parser.add_argument(
        "--headroom",
        type=int,
        metavar="N",
        help="compare the shipped instruction with one by hand on N sessions, and end",
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    if options.headroom:
        measure_headroom(options)
        return

    records: list[dict[str, Any]] = []
    if options.results.exists():
        records = json.loads(options.results.read_text(encoding="utf-8"))["cells"]
    finished = {record["cell"] for record in records}

    first, second = CONVERSATIONS
    for train, test in ((first, second), (second, first)):
        for optimizer in OPTIMIZERS:
            cell = Cell(train, test, optimizer)
            is_wanted = options.only in (None, optimizer) and options.train in (None, train)
            if not is_wanted or cell.key in finished:
                continue
            print(f"{time.strftime('%H:%M')} {cell.key}", flush=True)
            records.append(run_cell(cell, options))
            # Written after every cell: the next one takes hours.
            text = json.dumps({"cells": records}, indent=1, default=str)
            options.results.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
