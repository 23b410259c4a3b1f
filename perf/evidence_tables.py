"""The tables of docs/evidence.md over all compiles: pooled splits, optimizers, adapters, questions.

`make docs` draws them from docs/data/evidence.json, so run it when the records have changed. The
keys of records are the names of columns.
`evidence.py` makes the cells, and says what a cell is.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from mempiler.runs.statistics import Difference, compare_paired_scores

Phase = Literal["before", "after"]
PHASES: tuple[Phase, ...] = ("before", "after")
"""The program before a compile, and the compiled one."""
START = "(before)"
"""Stands in the place of the optimizer in lines about programs before a compile."""

LOCOMO_REVERSED = "locomo2r.json"
"""The genuine file with its two conversations in reverse order, which tests conv-26."""

Record = dict[str, Any]
"""A line of a table, by the names of its columns."""


class Gain(TypedDict):
    """The mean of paired differences, and its 95 % interval."""

    mean: float
    interval: list[float] | None
    """None with fewer than two questions."""


class QuestionColumns(TypedDict):
    """Figures of the questions of one phase, in order; a list each."""

    category: list[str]
    in_headline: list[bool]
    """Whether the question counts for the score."""
    score: list[float]
    failure: list[str | None]
    context_tokens: list[int | None]
    shown: list[float | None]
    """The share of the evidence that was in the prompt."""
    answer_words: list[int]
    gold_words: list[int]


Cell = TypedDict(
    "Cell",
    {
        # What is run.
        "on": str,
        "seed": int,
        "lm": str,
        "variant": str,
        "command": str,
        # How it was run.
        "run by": str,
        "machine": NotRequired[str],
        "test": NotRequired[str],
        "seconds": int,
        "went on": bool,
        "failed": NotRequired[str],
        # What was compiled.
        "method": str,
        "with": str,
        "adapter": str,
        "embedder": str | None,
        "data": str,
        "temperature": int,
        # Scores, over the n test questions.
        "n": int,
        "before": float,
        "after": float,
        "difference": Gain | None,
        "on dev": Gain | None,
        "kept": Literal["yes", "no", "as before"],
        "notes": list[str],
        "questions": dict[Phase, QuestionColumns],
        # What it took.
        "calls": int,
        "from cache": int,
        "tokens in": int,
        "cached": float | None,
        "tokens a question": list[int | None],
        "tokens out": int,
        "lost calls": int,
        "unwritten": float | None,
        "ended by": str | None,
    },
)
"""One compile.

A cell that was not run yet has only the first five keys. Others also have a key for each stage and
phase, e.g. "not shown, before"; see `evidence.py`.
"""


class RowKey(NamedTuple):
    """What the cells of one row of the overview have in common."""

    method: str
    on: str
    adapter: str
    lm: str
    variant: str


class SplitKey(NamedTuple):
    """What cells have in common that ask the same test questions."""

    seed: int
    test: str
    """See `tested_conversation`."""


class ProgramKey(NamedTuple):
    """What two programs have in common that differ in their adapter, and answer the same."""

    method: str
    on: str
    split: SplitKey
    lm: str
    variant: str
    optimizer: str
    """`START` for a program before its compile."""
    questions: str
    """See `ScoredProgram.questions_digest`."""


class ScoredProgram(NamedTuple):
    """The program of a cell before or after the compile."""

    cell: Cell
    phase: Phase

    def scores(self) -> list[float]:
        """Return the scores of the questions that count."""
        return counted_scores(self.cell, self.phase)

    def questions_digest(self) -> str:
        """Return the sha256 of all that is kept of the questions, which are equal if it is."""
        questions = self.cell["questions"][self.phase]
        kept = [questions["category"], questions["in_headline"], questions["gold_words"]]
        return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


@dataclass(frozen=True)
class PooledCell:
    """The cells of several splits of the data as one."""

    optimizer: str
    row: RowKey
    splits: tuple[SplitKey, ...]
    n: int
    before: float
    after: float
    difference: Gain | None
    """None if a single split has none."""
    better: int
    """Questions with a higher score than before."""
    worse: int
    same: bool
    """Whether prompts and answers of all splits are those of before."""

    def to_record(self) -> Record:
        return {
            "with": self.optimizer,
            **self.row._asdict(),
            "splits": len(self.splits),
            "n": self.n,
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "better": self.better,
            "worse": self.worse,
            "same": self.same,
        }


def all_tables(cells: Sequence[Cell]) -> dict[str, list[Record]]:
    """Return the tables over the cells that have figures, by name."""
    best: list[Record] = []
    worst: list[Record] = []
    compared = [cell for cell in cells if cell["difference"] is not None]
    genuine = [cell for cell in compared if cell["on"] == "locomo"]
    if genuine:
        genuine.sort(key=_mean_gain)
        worst = question_lines(genuine[0])
        best = question_lines(genuine[-1])
    return {
        "overview": compare_optimizers(cells),
        "together": pool_splits(cells),
        "adapters": compare_adapters(cells),
        "worst": worst,
        "best": best,
    }


def _mean_gain(cell: Cell) -> float:
    """Return the mean difference of a cell that has one."""
    gain = cell["difference"]
    assert gain is not None
    return gain["mean"]


def name_machines(cells: Iterable[Cell]) -> list[Record]:
    """Give every cell the letter of the machine that ran its model; return what the letters mean.

    The descriptions are long, and many cells share one.
    """
    letters: dict[str, str] = {}
    for cell in cells:
        machine = cell["run by"]
        if machine not in letters:
            letters[machine] = _letters_of_number(len(letters))
        cell["machine"] = letters[machine]
    return [{"machine": letter, "what it is": text} for text, letter in letters.items()]


def _letters_of_number(number: int) -> str:
    """Return A for 0, Z for 25, AA for 26 and so on, as columns of spreadsheets are named."""
    alphabet = string.ascii_uppercase
    letters = alphabet[number % len(alphabet)]
    if number < len(alphabet):
        return letters
    return _letters_of_number(number // len(alphabet) - 1) + letters


def tested_conversation(cell: Cell) -> str:
    """Return the genuine conversation of LoCoMo with the test questions, or "sample"."""
    if cell["on"] != "locomo":
        return "sample"
    return "conv-26" if LOCOMO_REVERSED in cell["command"] else "conv-30"


class _Start(NamedTuple):
    """What optimizers have in common that stand in one line of the overview."""

    splits: tuple[SplitKey, ...]
    n: int
    before: float
    """Rounded, since sums of the same scores may differ in their last digits."""


def compare_optimizers(cells: Iterable[Cell]) -> list[Record]:
    """Return the lines of the overview: a method, a benchmark, a model and a variant each.

    A line has a column for every optimizer: the score after, or "=" if the compiled program is the
    one of before. "above zero" lists the optimizers whose interval is above zero. Optimizers share
    a line only if they were scored on the same splits and began with the same score.
    """
    cells_by_row: dict[RowKey, list[Cell]] = {}
    for cell in cells:
        cells_by_row.setdefault(_row_key(cell), []).append(cell)

    lines: list[Record] = []
    for row_cells in cells_by_row.values():
        cells_by_optimizer: dict[str, list[Cell]] = {}
        for cell in row_cells:
            cells_by_optimizer.setdefault(cell["with"], []).append(cell)

        pooled_by_start: dict[_Start, list[PooledCell]] = {}
        for splits in cells_by_optimizer.values():
            pooled = pool_cells(splits)
            start = _Start(tuple(sorted(pooled.splits)), pooled.n, round(pooled.before, 3))
            pooled_by_start.setdefault(start, []).append(pooled)
        lines.extend(_overview_line(optimizers) for optimizers in pooled_by_start.values())
    return lines


def _overview_line(optimizers: Sequence[PooledCell]) -> Record:
    """Return the line of optimizers that began with the same score on the same splits."""
    first = optimizers[0]
    line: Record = {**first.row._asdict(), "n": first.n, "before": first.before}
    above_zero: list[str] = []
    line["above zero"] = above_zero
    for pooled in optimizers:
        line[pooled.optimizer] = "=" if pooled.same else pooled.after
        gain = pooled.difference
        if gain is not None and gain["interval"] is not None and gain["interval"][0] > 0:
            above_zero.append(pooled.optimizer)
    return line


def pool_splits(cells: Iterable[Cell]) -> list[Record]:
    """Return a line for every optimizer and row that was run with several splits."""
    cells_by_key: dict[tuple[str, RowKey], list[Cell]] = {}
    for cell in cells:
        cells_by_key.setdefault((cell["with"], _row_key(cell)), []).append(cell)

    lines: list[Record] = []
    for cells_of_key in cells_by_key.values():
        pooled = pool_cells(cells_of_key)
        if len(pooled.splits) > 1:
            lines.append(pooled.to_record())
    return lines


def compare_adapters(cells: Sequence[Cell]) -> list[Record]:
    """Compare the same questions under JSON schemas ("auto") and under plain chat.

    Programs before a compile come first, then the compiled ones.
    """
    auto_programs = _programs_with_adapter(cells, "auto")
    chat_programs = _programs_with_adapter(cells, "chat")
    lines: list[Record] = []
    for key, auto in auto_programs.items():
        chat = chat_programs.get(key)
        if chat is not None:
            lines.append(_adapter_line(key, auto, chat))
    return lines


def _programs_with_adapter(cells: Sequence[Cell], adapter: str) -> dict[ProgramKey, ScoredProgram]:
    programs: dict[ProgramKey, ScoredProgram] = {}
    for phase in PHASES:
        for cell in cells:
            if cell["adapter"] != adapter:
                continue
            optimizer = cell["with"] if phase == "after" else START
            program = ScoredProgram(cell, phase)
            # Other sizes of the test part, or another version of the file, are other questions.
            key = ProgramKey(
                cell["method"],
                cell["on"],
                _split_key(cell),
                cell["lm"],
                cell["variant"],
                optimizer,
                program.questions_digest(),
            )
            # Several optimizers start from the same program: one line about it is enough.
            programs.setdefault(key, program)
    return programs


def _adapter_line(key: ProgramKey, auto: ScoredProgram, chat: ScoredProgram) -> Record:
    auto_scores = auto.scores()
    chat_scores = chat.scores()
    # Every question is a group of its own.
    groups = [str(n) for n in range(len(auto_scores))]
    difference = compare_paired_scores(chat_scores, auto_scores, groups)

    line: Record = {
        "method": key.method,
        "on": key.on,
        "seed": key.split.seed,
        "test": key.split.test,
        "lm": key.lm,
        "variant": key.variant,
        "with": key.optimizer,
        "n": len(auto_scores),
        "auto": fmean(auto_scores),
        "chat": fmean(chat_scores),
        "difference": gain_of(difference.to_dict()),
    }
    for name, program in (("auto", auto), ("chat", chat)):
        record: Record = dict(program.cell)
        line[f"lost, {name}"] = record[f"lost, {program.phase}"]
        line[f"unwritten, {name}"] = record["unwritten"]
    return line


def question_lines(cell: Cell) -> list[Record]:
    """Return a line for every question of a cell that counts, with figures before and after."""
    before = cell["questions"]["before"]
    after = cell["questions"]["after"]
    lines: list[Record] = []
    for n, category in enumerate(before["category"]):
        if not before["in_headline"][n]:
            continue
        lines.append(
            {
                "question": n + 1,
                "category": category,
                "evidence shown": [before["shown"][n], after["shown"][n]],
                "words": [before["answer_words"][n], after["answer_words"][n]],
                "score": [before["score"][n], after["score"][n]],
            }
        )
    return lines


def pool_cells(cells: Sequence[Cell]) -> PooledCell:
    """Pool the cells of several splits; they have the optimizer and the row in common.

    Of several cells of one split, e.g. of several machines, the first one counts: pooled, each
    question would count twice.
    """
    cells_by_split: dict[SplitKey, Cell] = {}
    for cell in cells:
        cells_by_split.setdefault(_split_key(cell), cell)

    before_scores: list[float] = []
    after_scores: list[float] = []
    groups: list[str] = []
    for split, cell in cells_by_split.items():
        cell_scores = counted_scores(cell, "before")
        before_scores += cell_scores
        after_scores += counted_scores(cell, "after")
        # Both conversations of LoCoMo are tested with the same seed.
        groups += [f"{split.seed} {split.test}"] * len(cell_scores)
    difference: Difference = compare_paired_scores(after_scores, before_scores, groups)

    # A single cell has its difference already, by conversations.
    gain = cells[0]["difference"]
    if len(cells_by_split) > 1:
        pooled_gain = gain_of(difference.to_dict())
        assert pooled_gain is not None
        gain = pooled_gain

    return PooledCell(
        optimizer=cells[0]["with"],
        row=_row_key(cells[0]),
        splits=tuple(cells_by_split),
        n=len(before_scores),
        before=fmean(before_scores),
        after=fmean(after_scores),
        difference=gain,
        better=difference.wins,
        worse=difference.losses,
        same=all(cell["kept"] == "as before" for cell in cells_by_split.values()),
    )


def counted_scores(cell: Cell, phase: Phase) -> list[float]:
    """Return the scores of the questions of a phase that count."""
    questions = cell["questions"][phase]
    pairs = zip(questions["score"], questions["in_headline"], strict=True)
    return [score for score, counts in pairs if counts]


def gain_of(difference: Record | None) -> Gain | None:
    """Return the mean and the interval of a difference as the commands print it."""
    if difference is None:
        return None
    return {"mean": difference["mean"], "interval": difference["interval"]}


def _split_key(cell: Cell) -> SplitKey:
    return SplitKey(cell["seed"], tested_conversation(cell))


def _row_key(cell: Cell) -> RowKey:
    return RowKey(cell["method"], cell["on"], cell["adapter"], cell["lm"], cell["variant"])
