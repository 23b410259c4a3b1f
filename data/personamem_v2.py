"""PersonaMem v2: requests to an assistant that should know its user's preferences by now (arXiv:2512.06688).

The genuine file is `benchmark/text/benchmark.csv` of the hub set bowen-upenn/PersonaMem-v2, with the chat histories
that its link columns name; the form was checked against a genuine row. The sample is our own, in the same form.

As in the PGR paper, rows of the kind `ask_to_forget` and rows with `sensitive_info` are left out, the answer is a
response to the user, and the score is binary: whether a judge finds the row's preference in the hits of the retrieved
context; neither the response nor notes of the context are read. `metric="mcq"` asks the official multiple-choice
question instead, in an order that is drawn from the row's id: the official one rests on Python's randomised hash.
"""

from __future__ import annotations

import random
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import dspy
from pydantic import BeforeValidator, Field

from ..errors import DataError
from ..records import History, read_json
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .judge import ReferenceVerdict, StrictAcknowledgementJudge
from .judged_recall import JudgedRecall
from .personamem import Blocks, LetterAccuracy, Message, Messages, chooses
from .csv_rows import csv_rows
from .field_types import Parsed, Text, Words, parse_literal
from .rows import Location, Row
from .scorer import Scorer

_UP = 3
_FINAL = re.compile(r"final answer\s*:\s*[*(]*([a-d])\b", re.IGNORECASE)


class PreferenceRecall(JudgedRecall):
    """1 where the judge finds the row's preference in the retrieved context (PGR, section 5: binary recall)."""

    def references(self, example: dspy.Example) -> list[str]:
        return [example.reference]

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        (verdict,) = verdicts
        opening = "Right: what was retrieved holds" if verdict.present else "Wrong: what was retrieved does not hold"
        reason = f" (the judge: {verdict.reason})" if verdict.reason else ""
        return f"{opening} the user's preference: {example.reference}{reason}"


class FinalLetterAccuracy(LetterAccuracy):
    """1 when the right letter is chosen, by the first "Final Answer: X" or else by PersonaMem v1's rule."""

    def right(self, answer: str, gold: str) -> bool:
        final = _FINAL.findall(answer)
        return chooses(f"({final[0]})" if final else answer, gold)


def _query(cell: Any) -> Any:
    value = parse_literal(cell)
    return value.get("content") if isinstance(value, dict) else cell


def _snippet(cell: Any) -> Any:
    value = parse_literal(cell)
    return value if isinstance(value, list) else ()


class _Row(Row):
    user_query: Annotated[Text, BeforeValidator(_query)]
    correct_answer: Text
    incorrect_answers: Annotated[tuple[str, ...], Parsed, Field(min_length=1, max_length=3)]
    pref_type: Words
    preference: Words = ""
    related_conversation_snippet: Annotated[tuple[Message, ...], BeforeValidator(_snippet)] = ()
    persona_id: Words = ""
    chat_history_32k_link: Words = ""
    chat_history_128k_link: Words = ""
    sensitive_info: Words = ""


class PersonaMemV2(Benchmark):
    """PersonaMem v2 as the PGR paper uses it: whether what is recalled holds the user's preference.

    Metrics: "recall" (a judge of the retrieved context, yes or no), "recall_strict" (a judge that demands more), and
    "mcq", the official multiple-choice question. Under the first two the answer is a response to the user.
    """

    name = "personamem-v2"
    task = "personal-response"
    sample = "personamem_v2.csv"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": PreferenceRecall,
        "recall_strict": lambda: PreferenceRecall(StrictAcknowledgementJudge),
        "mcq": FinalLetterAccuracy,
    }

    @classmethod
    def load(cls, path: str | Path | None = None, *, metric: str | None = None, **options: Any) -> Self:
        """As `Benchmark.load`; `metric="mcq"` gives a benchmark of the task multiple-choice."""
        made = super().load(path, metric=metric, **options)
        if metric == "mcq":
            made.task, made.examples = "multiple-choice", tuple(map(as_choice, made.examples))
        return made

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener, *, length: Literal["32k", "128k"] = "32k") -> Dataset:
        """Reads a CSV and the chat histories that it links to.

        Args:
            path: A file of benchmark.csv's form.
            on_finding: What findings are told to.
            length: Which chat histories.
        """
        histories: dict[str, History | None] = {}
        examples = []
        for line, place, row in csv_rows(path, _Row, on_finding):
            if row.pref_type == "ask_to_forget" or row.sensitive_info.lower() in ("true", "1", "yes"):
                place.warn("left out", "ask_to_forget and sensitive information are not asked")
                continue
            column = f"chat_history_{length}_link"
            link = getattr(row, column)
            if link not in histories:
                histories[link] = _linked(path, link, place.field(column))
            history = histories[link]
            if history is not None:
                examples.append(_example(row, line, history))
        return Dataset(tuple(each for each in histories.values() if each), tuple(examples))

    def group(self, example: dspy.Example) -> str:
        """The persona."""
        return example.user


def as_choice(example: dspy.Example) -> dspy.Example:
    """An example with options (a), (b), ..., and the letter of the right one as answer."""
    replies = [example.answer, *example.wrong]
    random.Random(f"personamem-v2 {example.id}").shuffle(replies)
    options = [f"({letter}) {reply}" for letter, reply in zip("abcd", replies, strict=False)]
    letter = "abcd"[replies.index(example.answer)]
    changed = example.copy(options=options, answer=f"({letter})")
    return changed.with_inputs("history", "question", "options", "evidence_ids")


def _example(row: _Row, line: int, history: History) -> dspy.Example:
    snippet = [message.content for message in row.related_conversation_snippet if message.content]
    said = [turn for turn, _ in history.turns.values() if turn.speaker != "system" and turn.text in snippet]
    evidence_ids = tuple(turn.id for turn in said)
    user = row.persona_id or history.id
    return dspy.Example(
        id=f"{user}:{line}",
        history=history,
        question=row.user_query,
        answer=row.correct_answer,
        wrong=list(row.incorrect_answers),
        reference=row.preference or "\n".join(snippet) or row.correct_answer,
        category=row.pref_type or "all",
        user=user,
        evidence_ids=evidence_ids,
        evidence=evidence_ids,
    ).with_inputs("history", "question", "evidence_ids")


def _linked(path: Path, link: str, place: Location) -> History | None:
    """The history of a link, below the CSV's folder or one of those above it; a link that leads out is refused."""
    shown, folder, home = reprlib.repr(link), path.parent.resolve(), path.resolve().parent
    bases = (folder, *list(folder.parents)[:_UP])
    # Unlike `Path.is_file`, False also for what cannot be a path: too long, or with a NUL in it.
    there = [base for base in bases if link and isfile(base / link)]  # noqa: PTH113
    if not there:
        place.reject("missing history", f"{shown} is no file below the CSV's folder or those above it")
        return None
    found = there[0] / link
    # In a cache of the hub all files are links, to the folder where the CSV itself is.
    if not any(found.resolve().is_relative_to(each) for each in (there[0], home)):
        place.reject("link out of the data", f"{shown} leads to a file outside; copy it there")
        return None
    try:
        value = read_json(found)
    except DataError as error:
        place.reject("unreadable history", str(error))
        return None
    given = value.get("chat_history") if isinstance(value, dict) else value
    talk = place.at(found.name).validate(Messages, {"messages": given})
    if talk is None:
        return None
    items = Blocks(talk.messages).until(len(talk.messages))
    if not items:
        place.reject("empty history", f"{shown} holds no message with words")
        return None
    return History(id=Path(link).stem, items=items)
