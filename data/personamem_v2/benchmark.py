"""PersonaMem v2: requests to an assistant that should know its user's preferences by now (arXiv:2512.06688).

The genuine file is `benchmark/text/benchmark.csv` of the hub set bowen-upenn/PersonaMem-v2, with the chat histories
that its link columns name (looked for from the CSV's folder upwards). Cells are Python dicts (`user_query`) or JSON
lists (`incorrect_answers`, `related_conversation_snippet`); either is read in either place. The sample that is bundled
is our own, in the same form.

As in the PGR paper, rows of the kind `ask_to_forget` and rows with `sensitive_info` are left out, and the score is
binary: whether a judge finds the row's preference acknowledged, explicitly or implicitly, in the hits of the retrieved
context (`data.acknowledgement`); the response is not read. `metric="mcq"` asks the official multiple-choice question
instead: one right and three wrong replies in an order that is drawn from the row's id.

An example holds `history`, `question`, `focus` (inputs, and `options` for mcq), `answer` (the right reply, or its
letter), `reference` (the preference, else the snippet), `category` (pref_type), `evidence` and `id` (labels).

Example:
    >>> benchmark = PersonaMemV2.load("benchmark/text/benchmark.csv", metric="mcq")
    >>> benchmark.task
    'multiple-choice'

Honest limits: notes of a context, such as a summary, are not judged, and an answer that was saved without its context
scores 0. The official order of options rests on Python's randomised hash and cannot be had again. A chat history
without further system messages is one long session.
"""

from __future__ import annotations

import ast
import json
import random
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ...records import Context, History, read_json
from ...signatures.judges import JudgeAcknowledgement
from ..acknowledgement import AcknowledgementJudge, ReferenceJudge, recall_parts
from ..benchmark import Benchmark, Finding, Note, Reading, Score, Source, refuse_fatal
from ..blocks import Blocks
from ..personamem.benchmark import chooses, explain_choice
from ..personamem.reader import read_csv
from ..samples import sample

_METRICS = ("recall", "mcq")
_LENGTHS = ("32k", "128k")
_LEFT_OUT = "ask_to_forget"
_FINAL = re.compile(r"final answer\s*:\s*[*(]*([a-d])\b", re.IGNORECASE)
_NEEDED = ("user_query", "correct_answer", "incorrect_answers", "pref_type")
_UP = 3


class PersonaMemV2(Benchmark):
    """PersonaMem v2 as the PGR paper uses it: whether what is recalled holds the user's preference."""

    name = "personamem-v2"
    metric_name = "judged recall"
    needs_judge = True
    judge_prompt = JudgeAcknowledgement
    acknowledges: ReferenceJudge | None = None
    """Who judges contexts; set by `set_judge`, or by hand."""

    @classmethod
    def load(
        cls, path: str | Path | None = None, *, metric: str = "recall", length: str = "32k", **options: Any
    ) -> PersonaMemV2:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of benchmark.csv's form.
            metric: "recall" (judged), or "mcq" for a benchmark of the task multiple-choice.
            length: Which chat histories: "32k" or "128k".
            **options: None are known; any is refused.

        Raises:
            DataError: A file is not of this form; the message names line and column.
            UnknownNameError: A metric, a length or an option that does not exist.
        """
        cls.refuse_options(options, ("metric", "length"))
        for name, value, known in (("metric", metric, _METRICS), ("length", length, _LENGTHS)):
            if value not in known:
                raise UnknownNameError(name, value, known)
        kind = PersonaMemV2Choice if metric == "mcq" else PersonaMemV2
        if path is not None:
            path = Path(path)
            return kind(kind.prepare(read_personamem_v2(path, refuse_fatal(path), length)), Source.of(path))
        # As a folder: the chat histories must come along.
        with sample() as folder:
            path = folder / "personamem_v2.csv"
            return kind(kind.prepare(read_personamem_v2(path, refuse_fatal(path), length)), Source.of(path, True))

    @classmethod
    def prepare(cls, reading: Reading) -> list[dspy.Example]:
        """The examples as this benchmark asks them."""
        return list(reading.examples)

    def group(self, example: dspy.Example) -> str:
        """The persona."""
        return example.user

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge of contexts."""
        self.acknowledges = AcknowledgementJudge(lm, adapter)

    @property
    def judging(self) -> ReferenceJudge | None:
        """The judge of contexts; None before one is set."""
        return self.acknowledges

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """1 where the judge finds the row's preference in the retrieved context (PGR, section 5: binary recall).

        `parts` holds `recall`, and `recall_explicit` for the preferences that are there in words.

        Raises:
            UserError: No judge is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if self.acknowledges is None:
            raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
        context = prediction.get("context") or Context()
        shown = "\n".join(hit.line() for hit in context.hits)
        (found,) = self.acknowledges(example.question, [example.reference], shown)
        parts = recall_parts([found.level])
        del parts["recall_exact"]  # of one reference, it is the recall
        verdict = "Right: what was retrieved holds" if parts["recall"] else "Wrong: what was retrieved does not hold"
        reason = f" (the judge: {found.reason})" if found.reason else ""
        return Score(parts["recall"], f"{verdict} the user's preference: {example.reference}{reason}", parts)


class PersonaMemV2Choice(PersonaMemV2):
    """PersonaMem v2 as multiple choice."""

    task = "multiple-choice"
    metric_name = "accuracy"
    needs_judge = False

    @classmethod
    def prepare(cls, reading: Reading) -> list[dspy.Example]:
        """The examples with options (a), (b), ..., and the letter of the right one as answer."""
        return [_with_options(example) for example in reading.examples]

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """1 when the right letter is chosen, by "Final Answer: X" or else by PersonaMem v1's rule."""
        answer = str(prediction.get("answer") or "")
        final = _FINAL.findall(answer)
        right = chooses(f"({final[-1]})" if final else answer, example.answer)
        return Score(float(right), explain_choice(example, answer, right), {"accuracy": float(right)})


def read_personamem_v2(path: Path, note: Note, length: str = "32k") -> Reading:
    """Reads a CSV and the chat histories it links to, telling `note` everything that is odd.

    A row with a fatal finding is left out if `note` does not raise.

    Raises:
        DataError: The file is missing, is no CSV, or lacks a column.
    """
    histories: dict[str, History | None] = {}
    examples = []
    for line, cells in read_csv(path, _checked(length)):
        row = _Row(line, cells, note)
        if row.left_out():
            continue
        link = cells[f"chat_history_{length}_link"].strip()
        if link not in histories:
            histories[link] = row.history(path.parent, link, length)
        example = row.example(histories[link])
        if example is not None:
            examples.append(example)
    kept = [history for history in histories.values() if history is not None]
    return Reading(tuple(kept), tuple(examples))


def _checked(length: str) -> Any:
    def check(path: Path, names: Sequence[str]) -> dict[str, str]:
        for name in (f"chat_history_{length}_link", *_NEEDED):
            if name not in names:
                raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names)}")
        return {}

    return check


def _with_options(example: dspy.Example) -> dspy.Example:
    replies = [example.answer, *example.wrong]
    random.Random(f"personamem-v2 {example.id}").shuffle(replies)
    options = [f"({letter}) {reply}" for letter, reply in zip("abcd", replies, strict=False)]
    letter = "abcd"[replies.index(example.answer)]
    changed = example.copy(options=options, answer=f"({letter})")
    return changed.with_inputs("history", "question", "options", "focus")


class _Row:
    """One row on its way to an example; keeps its line for its findings."""

    def __init__(self, line: int, cells: Mapping[str, str], note: Note) -> None:
        self.line, self.cells, self.note = line, cells, note

    def fault(self, kind: str, column: str, message: str, fatal: bool = True) -> None:
        self.note(Finding(kind, f"line {self.line}, column {column!r}", message, fatal))

    def left_out(self) -> bool:
        """Whether the row is of a kind that is not asked."""
        if self.cells["pref_type"].strip() == _LEFT_OUT:
            self.fault("left out", "pref_type", f"{_LEFT_OUT} is not asked", fatal=False)
            return True
        if self.cells.get("sensitive_info", "").strip().lower() in ("true", "1", "yes"):
            self.fault("left out", "sensitive_info", "sensitive information is not asked", fatal=False)
            return True
        return False

    def example(self, history: History | None) -> dspy.Example | None:
        question, answer, wrong = self.question(), self.cells["correct_answer"].strip(), self.wrong()
        for column, value in (("user_query", question), ("correct_answer", answer)):
            if not value:
                self.fault("missing text", column, "is empty")
        if history is None or not question or not answer or wrong is None:
            return None
        snippet = self.snippet()
        focus = tuple(
            id for id, (turn, _) in history.turns.items() if turn.speaker != "system" and turn.text in snippet
        )
        reference = self.cells.get("preference", "").strip() or "\n".join(snippet)
        if not reference:
            self.fault(
                "no reference", "preference", "neither it nor the snippet has words; the right reply is taken", False
            )
        user = self.cells.get("persona_id", "").strip() or history.id
        return dspy.Example(
            id=f"{user}:{self.line}",
            history=history,
            question=question,
            answer=answer,
            wrong=wrong,
            reference=reference or answer,
            category=self.cells["pref_type"].strip() or "all",
            user=user,
            focus=focus,
            evidence=focus,
        ).with_inputs("history", "question", "focus")

    def question(self) -> str:
        text = self.cells["user_query"].strip()
        value = _literal(text)
        if isinstance(value, dict):
            return str(value.get("content") or "").strip()
        return text

    def wrong(self) -> list[str] | None:
        value = _literal(self.cells["incorrect_answers"].strip())
        if isinstance(value, list) and 1 <= len(value) <= 3 and all(isinstance(reply, str) for reply in value):
            return value
        shown = reprlib.repr(self.cells["incorrect_answers"])
        self.fault("malformed replies", "incorrect_answers", f"{shown} is no list of one to three texts")
        return None

    def snippet(self) -> list[str]:
        value = _literal(self.cells.get("related_conversation_snippet", "").strip())
        messages = [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
        return [str(part["content"]).strip() for part in messages if part.get("content")]

    def history(self, folder: Path, link: str, length: str) -> History | None:
        column = f"chat_history_{length}_link"
        places = [base / link for base in (folder, *list(folder.resolve().parents)[:_UP])]
        found = next((place for place in places if link and place.is_file()), None)
        if found is None:
            self.fault("missing history", column, f"{link!r} is no file below the CSV's folder or those above it")
            return None
        try:
            value = read_json(found)
        except DataError as error:
            self.fault("unreadable history", column, str(error))
            return None
        if isinstance(value, dict):
            value = value.get("chat_history") or value.get("conversations")
        if not isinstance(value, list) or not value:
            self.fault("malformed history", column, f"{link!r} holds no list of messages")
            return None
        return History(id=Path(link).stem, items=Blocks(value).until(len(value)))


def _literal(text: str) -> Any:
    """A cell that is JSON or a Python literal; None when it is neither."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
