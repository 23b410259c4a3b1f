"""PersonaMem v2: requests to an assistant that knows its user's preferences (arXiv:2512.06688).

The genuine file is `benchmark/text/benchmark.csv` of the hub set bowen-upenn/PersonaMem-v2, with
the chat histories that its link columns name; the form was checked against a genuine row. The
sample is our own, in the same form.

As in the PGR paper, rows of the kind `ask_to_forget` and rows with `sensitive_info` are left out,
and the answer is a response to the user. The score is binary: whether a judge finds the row's
preference in the hits of the retrieved context. Neither the response nor notes of the context are
read. `metric="mcq"` asks the official multiple-choice question instead. Its options are in an order
that is drawn from the row's id, since the official one rests on Python's randomised hash.
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
from .csv_rows import csv_rows
from .dataset import Dataset, FindingListener
from .field_types import Parsed, Text, Words, parse_literal
from .judge import ReferenceVerdict, StrictAcknowledgementJudge
from .judged_recall import JudgedRecall
from .personamem import ContextSessions, LetterAccuracy, Message, Messages, chooses
from .rows import Location, Row
from .scorer import Scorer

_MAX_FOLDERS_UP = 3
"""How many folders above the CSV's are searched for chat histories."""
_FINAL_ANSWER = re.compile(r"final answer\s*:\s*[*(]*([a-d])\b", re.IGNORECASE)
_YES = ("true", "1", "yes")


class PreferenceRecall(JudgedRecall):
    """1 if the judge finds the row's preference in the retrieved context.

    Source: PGR, section 5 (binary recall).
    """

    def references(self, example: dspy.Example) -> list[str]:
        return [example.reference]

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        (verdict,) = verdicts
        opening = "Wrong: what was retrieved does not hold"
        if verdict.present:
            opening = "Right: what was retrieved holds"
        reason = f" (the judge: {verdict.reason})" if verdict.reason else ""
        return f"{opening} the user's preference: {example.reference}{reason}"


class FinalLetterAccuracy(LetterAccuracy):
    """1 if the right letter is chosen, by the first "Final Answer: X" or else by v1's rule."""

    def is_right(self, answer: str, gold: str) -> bool:
        match = _FINAL_ANSWER.search(answer)
        return chooses(f"({match[1]})" if match else answer, gold)


def _query_text(cell: Any) -> Any:
    """Return the content of a cell that holds a message; another cell as it is."""
    value = parse_literal(cell)
    return value.get("content") if isinstance(value, dict) else cell


def _messages(cell: Any) -> Any:
    """Return the messages of a cell that holds a list; none for another cell."""
    value = parse_literal(cell)
    return value if isinstance(value, list) else ()


class _RequestRow(Row):
    user_query: Annotated[Text, BeforeValidator(_query_text)]
    correct_answer: Text
    incorrect_answers: Annotated[tuple[str, ...], Parsed, Field(min_length=1, max_length=3)]
    pref_type: Words
    preference: Words = ""
    related_conversation_snippet: Annotated[tuple[Message, ...], BeforeValidator(_messages)] = ()
    persona_id: Words = ""
    chat_history_32k_link: Words = ""
    chat_history_128k_link: Words = ""
    sensitive_info: Words = ""

    @property
    def is_left_out(self) -> bool:
        """Whether the PGR paper does not ask the row."""
        return self.pref_type == "ask_to_forget" or self.sensitive_info.lower() in _YES


class PersonaMemV2(Benchmark):
    """PersonaMem v2 as the PGR paper uses it: whether what is recalled holds the preference.

    Metrics: "recall" (a judge of the retrieved context, yes or no), "recall_strict" (a judge that
    demands more), and "mcq", the official multiple-choice question. Under the first two the answer
    is a response to the user.
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
    def load(
        cls, path: str | Path | None = None, *, metric: str | None = None, **options: Any
    ) -> Self:
        """Load the data as `Benchmark.load` does.

        With `metric="mcq"` every question becomes a multiple-choice question.
        """
        benchmark = super().load(path, metric=metric, **options)
        if metric == "mcq":
            benchmark.task = "multiple-choice"
            benchmark.examples = tuple(as_choice(example) for example in benchmark.examples)
        return benchmark

    @classmethod
    def read(
        cls, path: Path, on_finding: FindingListener, *, length: Literal["32k", "128k"] = "32k"
    ) -> Dataset:
        """Read a CSV and the chat histories that it links to.

        Args:
            path: A file of benchmark.csv's form.
            on_finding: Receives what is reported.
            length: Which chat histories.
        """
        histories_by_link: dict[str, History | None] = {}
        examples: list[dspy.Example] = []
        for line, location, row in csv_rows(path, _RequestRow, on_finding):
            if row.is_left_out:
                location.warn("left out", "ask_to_forget and sensitive information are not asked")
                continue

            link = row.chat_history_32k_link if length == "32k" else row.chat_history_128k_link
            if link not in histories_by_link:
                link_location = location.field(f"chat_history_{length}_link")
                histories_by_link[link] = _read_linked_history(path, link, link_location)
            history = histories_by_link[link]
            if history is not None:
                examples.append(_make_example(row, line, history))

        histories = [history for history in histories_by_link.values() if history is not None]
        return Dataset(tuple(histories), tuple(examples))

    def group(self, example: dspy.Example) -> str:
        """Return the persona."""
        return example.user


def as_choice(example: dspy.Example) -> dspy.Example:
    """Return an example with options (a), (b), ..., and the label of the right one as answer."""
    replies = [example.answer, *example.wrong]
    random.Random(f"personamem-v2 {example.id}").shuffle(replies)
    options: list[str] = []
    for letter, reply in zip("abcd", replies, strict=False):
        options.append(f"({letter}) {reply}")
    right_letter = "abcd"[replies.index(example.answer)]
    choice = example.copy(options=options, answer=f"({right_letter})")
    return choice.with_inputs("history", "question", "options", "evidence_ids")


def _make_example(row: _RequestRow, line: int, history: History) -> dspy.Example:
    """Return the request of a row, with the preference that a response should know."""
    snippet_texts = [
        message.content for message in row.related_conversation_snippet if message.content
    ]
    evidence = tuple(
        turn.id
        for turn, _ in history.turns.values()
        if turn.speaker != "system" and turn.text in snippet_texts
    )
    # A judge reads what the response should take into account. A row that does not name the
    # preference shows it in the snippet.
    reference = row.preference or "\n".join(snippet_texts) or row.correct_answer
    user = row.persona_id or history.id
    example = dspy.Example(
        id=f"{user}:{line}",
        history=history,
        question=row.user_query,
        answer=row.correct_answer,
        wrong=list(row.incorrect_answers),
        reference=reference,
        category=row.pref_type or "all",
        user=user,
        evidence_ids=evidence,
        evidence=evidence,
    )
    return example.with_inputs("history", "question", "evidence_ids")


def _read_linked_history(path: Path, link: str, location: Location) -> History | None:
    """Return the chat history that a link of a CSV leads to; report one that cannot be read.

    A link is refused if it leads to a file elsewhere, e.g. by "../".

    Args:
        path: The CSV.
        link: A path below the CSV's folder or one of those above it.
        location: Where the link stands.
    """
    shown_link = reprlib.repr(link)
    base = _find_base_folder(path, link)
    if base is None:
        problem = f"{shown_link} is no file below the CSV's folder or those above it"
        location.reject("missing history", problem)
        return None

    file = base / link
    # The hub's cache has symbolic links in place of files: all real files lie in one folder. So a
    # history may also lie in the folder where the real CSV is.
    allowed_folders = (base, path.resolve().parent)
    if not any(file.resolve().is_relative_to(folder) for folder in allowed_folders):
        problem = f"{shown_link} leads to a file outside; copy it there"
        location.reject("link out of the data", problem)
        return None

    try:
        value = read_json(file)
    except DataError as error:
        location.reject("unreadable history", str(error))
        return None
    messages = value.get("chat_history") if isinstance(value, dict) else value
    chat = location.at(file.name).validate(Messages, {"messages": messages})
    if chat is None:
        return None
    sessions = ContextSessions(chat.messages).until(len(chat.messages))
    if not sessions:
        location.reject("empty history", f"{shown_link} holds no message with words")
        return None
    return History(id=Path(link).stem, items=sessions)


def _find_base_folder(path: Path, link: str) -> Path | None:
    """Return the folder that a link starts from: the CSV's, or the nearest one above it.

    None if the file is in none of them.
    """
    folder = path.parent.resolve()
    for base in (folder, *folder.parents[:_MAX_FOLDERS_UP]):
        # Unlike `Path.is_file`, `isfile` is False for what cannot be a path: too long, or with NUL.
        if link and isfile(base / link):  # noqa: PTH113
            return base
    return None
