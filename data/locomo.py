"""LoCoMo: questions about ten very long conversations (Maharana et al., ACL 2024).

The genuine file is `data/locomo10.json` of github.com/snap-research/locomo. It is CC BY-NC 4.0,
so it is not bundled; the sample is our own. The reader was checked against it and copes with all of
its oddities: dates without sessions, answers that are numbers, evidence that is malformed or names
turns that are not there, repeated questions, image turns.

The score is token F1, or with `metric="judge"` what RGMem, Mem0 and others print: a model labels
each answer generously (`GenerousJudge`). Category 5 is then left out, since it has no gold answer.

Limits: about 6 % of the gold answers are known to be wrong (snap-research/locomo#23), and token F1
rewards wording. Differences from the official task_eval/evaluation.py: category 5 is not asked as a
two-way choice and is reported apart; evidence ids are repaired; a question without evidence has no
recall instead of 1. `bleu1` is community practice, and so is the judge; the words of `bleu1` are
Memory-R2's, which keep "and".
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

import dspy
from pydantic import BeforeValidator

from ..errors import DataError, UserError
from ..records import History, Session, Turn, read_json
from .benchmark import Benchmark
from .common_scorers import Combined, JudgeScorer
from .dataset import Dataset, FindingListener
from .field_types import MONTHS, Listed, Text, Verbatim
from .judge import GenerousJudge, JudgeRoles
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of
from .support import SUPPORT, Support
from .text_metrics import (
    bleu1,
    explain,
    format_evidence,
    locomo_f1,
    locomo_multi_f1,
    squad_words,
    stem,
)
from .word_splitting import LOCOMO

MULTI_HOP = "1"
OPEN_DOMAIN = "3"
ADVERSARIAL = "5"

NOT_MENTIONED = "Not mentioned in the conversation"
"""Gold answer of the adversarial questions that have none."""
_REFUSALS = ("no information available", "not mentioned")

# Memory-R2's split of the ten conversations.
_TRAIN = frozenset({"conv-43", "conv-47"})
_DEV = frozenset({"conv-44"})
_TEST = frozenset({"conv-26", "conv-30", "conv-41", "conv-42", "conv-48", "conv-49", "conv-50"})

_GENUINE_FILE = "LoCoMo's locomo10.json (github.com/snap-research/locomo, data/locomo10.json)"
_SESSION_KEY = re.compile(r"session_(\d{1,9})", re.ASCII)
_DATE_KEY = re.compile(r"session_(\d{1,9})_date_time", re.ASCII)
_DATE = re.compile(
    r"\s*(?P<hour>\d{1,2}):(?P<minute>\d\d)\s*(?P<half>[ap])m\s+on"
    r"\s+(?P<day>\d{1,2})\s+(?P<month>[a-z]+),?\s+(?P<year>\d{4})\s*",
    re.IGNORECASE,
)
_EVIDENCE = re.compile(r"D:?(\d{1,9}):(\d{1,9})(?!\d)", re.ASCII)
_PLAIN_EVIDENCE = re.compile(r"D(?:0|[1-9]\d*):(?:0|[1-9]\d*)", re.ASCII)


class LocomoF1(Scorer):
    """Token F1 by the rule of the question's category.

    | category | score |
    |---|---|
    | 1 | the mean, over the gold answer's parts between commas, of the best F1 |
    | 2, 4 | token F1 |
    | 3 | token F1 against the gold answer up to its first ";" |
    | 5 | 1 when the answer says that nothing is mentioned |

    Source: LoCoMo, task_eval/evaluation.py.
    """

    title = "token F1"
    splitter = LOCOMO

    def in_headline(self, example: dspy.Example) -> bool:
        """Return False for category 5, which rewards declining to answer and is reported apart."""
        return example.category != ADVERSARIAL

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        gold = gold_of(example)

        if example.category == ADVERSARIAL:
            declines = any(phrase in answer.lower() for phrase in _REFUSALS)
            value = float(declines)
            feedback = _explain_refusal(declines, example.evidence)
        else:
            if example.category == MULTI_HOP:
                value = locomo_multi_f1(answer, gold)
            else:
                value = locomo_f1(answer, gold)
            feedback = explain(answer, gold, value, example.evidence, stem=stem)

        parts = {"f1": value, "bleu1": bleu1(answer, gold, squad_words)}
        return Score(value, feedback, parts)


class LocomoJudgeScorer(JudgeScorer):
    """The generous judge of published LoCoMo tables; it sees the whole gold answer."""

    judge_roles: ClassVar[JudgeRoles] = {"judge": GenerousJudge}

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        return explain(answer, gold_of(example), value, example.evidence, stem=stem)


class LocomoSupport(Support):
    """Support by the stems of LoCoMo's words; adversarial questions are reported apart."""

    def __init__(self) -> None:
        super().__init__(LOCOMO, stem)

    def gold(self, example: dspy.Example) -> str:
        return gold_of(example)

    def in_headline(self, example: dspy.Example) -> bool:
        return example.category != ADVERSARIAL and super().in_headline(example)


def gold_of(example: dspy.Example) -> str:
    """Return the gold answer that counts: in category 3 the part before the first ';'."""
    if example.category == OPEN_DOMAIN:
        return example.answer.split(";")[0].strip()
    return example.answer


def _explain_refusal(declines: bool, evidence: tuple[str, ...]) -> str:
    """Say whether declining an adversarial question was seen to be right."""
    if declines:
        return "Right: the answer says that the conversation does not mention this."
    feedback = (
        "Wrong: the conversation does not hold the answer; "
        "a right answer says it is 'not mentioned'."
    )
    if evidence:
        feedback += f" The answer only seems to be in {format_evidence(evidence)}."
    return feedback


class _Conversation(Row):
    """A conversation of the file with its questions."""

    sample_id: Text
    conversation: dict[str, Any]
    """`session_1`, `session_1_date_time` and so on, among other keys."""
    qa: tuple[Any, ...]


class _Message(Row):
    """A turn of a session."""

    dia_id: str
    speaker: str
    text: str | None = ""
    blip_caption: str | None = None
    """What a model saw in the image that the turn shows."""


class _Question(Row):
    """A question about a conversation."""

    question: Verbatim
    category: Annotated[Literal["1", "2", "3", "4", "5"], BeforeValidator(str)]
    answer: Verbatim | None = None
    adversarial_answer: str | None = None
    """What a reader that is misled would answer (category 5)."""
    evidence: Listed[Any] | str = ()


class Locomo(Benchmark):
    """LoCoMo's question answering: the official token F1, or a judge."""

    name = "locomo"
    sample = "locomo.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": LocomoF1,
        "judge": lambda: Combined(LocomoJudgeScorer(), LocomoF1()),
        SUPPORT: LocomoSupport,
    }
    categories = MappingProxyType(
        {
            "1": "multi-hop",
            "2": "temporal",
            "3": "open-domain",
            "4": "single-hop",
            "5": "adversarial",
        }
    )

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        categories: str | Iterable[str | int] | None = None,
        **options: Any,
    ) -> Self:
        """Load as `Benchmark.load` does; a judge is asked about categories 1 to 4 alone.

        Raises:
            UserError: A judge is asked about category 5.
        """
        if metric == "judge":
            judged_categories = cls.resolve_categories(categories)
            if judged_categories and ADVERSARIAL in judged_categories:
                raise UserError(
                    "category 5 has no gold answer to judge by; leave it out, or take --metric f1"
                )
            categories = judged_categories or "1,2,3,4"
        return super().load(path, metric=metric, categories=categories, **options)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener, *, evidenced: bool = False) -> Dataset:
        """Read the file.

        Args:
            path: The file.
            on_finding: Receives what is wrong in it.
            evidenced: Whether to leave out questions whose evidence names no turn, as Memory-R2
                does. Of its 1,089 questions these are 4.

        Raises:
            DataError: The file holds no list of conversations.
        """
        values = read_json(path)
        if not isinstance(values, list) or not values:
            raise DataError(
                f"{path}: expected a list of conversations, got {reprlib.repr(values)}; "
                f"take {_GENUINE_FILE}"
            )

        histories: dict[str, History] = {}
        examples: list[dspy.Example] = []
        for number, value in enumerate(values, 1):
            location = Location(on_finding, f"conversation {number}")
            row = location.validate(_Conversation, value)
            if row is None:
                continue
            if row.sample_id in histories:
                location.reject("duplicate id", f"sample_id {row.sample_id!r} is used twice")
                continue

            # From here on, what is reported is located by the id that questions have, too.
            history = _read_history(row, Location(on_finding, row.sample_id))
            histories[row.sample_id] = history
            examples.extend(_read_questions(row, history, on_finding, evidenced))
        return Dataset(tuple(histories.values()), tuple(examples))

    @property
    def has_unanswerable(self) -> bool:
        return any(example.category == ADVERSARIAL for example in self.examples)

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Return Memory-R2's split when exactly the ten conversations are there.

        Train is conv-43 and conv-47, dev conv-44. Most of that paper's released scripts train on
        conv-43 alone; the paper's text says two, which is followed.
        """
        if self.conversations != _TRAIN | _DEV | _TEST:
            return None
        return set(_TRAIN), set(_DEV), set(_TEST)


def evidence_ids(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return the turn ids that evidence strings name, each once, in order.

    Several ids in one string, leading zeros and a stray colon are understood:
    `["D8:6; D09:17", "D:3:4"]` gives `("D8:6", "D9:17", "D3:4")`. What holds no id is passed over.
    """
    turn_ids: list[str] = []
    for text in evidence:
        for session, turn in _EVIDENCE.findall(text):
            turn_ids.append(f"D{int(session)}:{int(turn)}")
    return tuple(dict.fromkeys(turn_ids))


def parse_date(text: str) -> datetime | None:
    """Return the moment of one of LoCoMo's dates, `1:56 pm on 8 May, 2023`, in any locale.

    Returns:
        The moment, or None if the text is no such date.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    month = match["month"].lower()
    hour = int(match["hour"])
    if month not in MONTHS or not 1 <= hour <= 12:
        return None

    # On a twelve-hour clock 12 am is the hour 0.
    hour %= 12
    if match["half"].lower() == "p":
        hour += 12
    try:
        return datetime(
            year=int(match["year"]),
            month=MONTHS.index(month) + 1,
            day=int(match["day"]),
            hour=hour,
            minute=int(match["minute"]),
        )
    except ValueError:
        return None


def _read_history(row: _Conversation, location: Location) -> History:
    """Return the sessions of a conversation in the order of their numbers; report what is odd."""
    session_keys = _session_keys(row.conversation, location)

    sessions: list[Session] = []
    known_turn_ids: set[str] = set()
    for number, key in sorted(session_keys.items()):
        turns = _read_turns(row.conversation[key], location.field(key), known_turn_ids)
        date_key = f"{key}_date_time"
        time = _read_time(row.conversation.get(date_key), location.field(date_key))
        if turns:
            sessions.append(Session(id=f"D{number}", time=time, turns=tuple(turns)))

    if not sessions:
        location.reject("no sessions", "holds no turns in any session_N list")
    return History(id=row.sample_id, items=tuple(sessions))


def _session_keys(conversation: Mapping[str, Any], location: Location) -> dict[int, str]:
    """Return the keys of the sessions by their numbers; report dates without a session."""
    session_keys: dict[int, str] = {}
    for key in conversation:
        match = _SESSION_KEY.fullmatch(key)
        if match:
            session_keys[int(match[1])] = key

    for key in conversation:
        match = _DATE_KEY.fullmatch(key)
        if match and int(match[1]) not in session_keys:
            problem = "has no session of its number; passed over"
            location.field(key).warn("date without session", problem)
    return session_keys


def _read_time(text: Any, location: Location) -> datetime | None:
    """Return the moment of a session; None, with a report, where there is none."""
    if text is None:
        location.warn("session without date", "is missing; the session stays undated")
        return None
    time = parse_date(str(text))
    if time is None:
        problem = f"{reprlib.repr(text)} is not like '1:56 pm on 8 May, 2023'"
        location.reject("malformed date", problem)
    return time


def _read_turns(values: Any, location: Location, known_turn_ids: set[str]) -> list[Turn]:
    """Return the turns of a session; report what is no turn.

    Args:
        values: The turns of the file.
        location: The session.
        known_turn_ids: Ids of the turns of the conversation so far; those of the session are added.
    """
    if not isinstance(values, list):
        location.reject("wrong value", f"is {reprlib.repr(values)}, expected a list of turns")
        return []
    if not values:
        location.warn("empty session", "has no turns; passed over")

    turns: list[Turn] = []
    for number, value in enumerate(values, 1):
        turn_location = location.at(f"turn {number}")
        message = turn_location.validate(_Message, value)
        if message is None:
            continue
        if message.dia_id in known_turn_ids:
            turn_location.reject("duplicate turn", f"dia_id {message.dia_id!r} is used twice")
            continue

        known_turn_ids.add(message.dia_id)
        turn = Turn(
            id=message.dia_id,
            speaker=message.speaker,
            text=message.text or "",
            caption=message.blip_caption or None,
        )
        turns.append(turn)
    return turns


def _read_questions(
    conversation: _Conversation, history: History, on_finding: FindingListener, evidenced: bool
) -> list[dspy.Example]:
    """Return the questions about a conversation; report those that cannot be read.

    Args:
        conversation: The row of the file.
        history: Its sessions.
        on_finding: Receives what is wrong.
        evidenced: Whether to leave out questions whose evidence names no turn.
    """
    examples: list[dspy.Example] = []
    ids_by_question: dict[str, str] = {}
    for number, value in enumerate(conversation.qa):
        example_id = f"{history.id}:{number}"
        location = Location(on_finding, example_id)
        row = location.validate(_Question, value)
        if row is None:
            continue
        if row.answer is None and row.category != ADVERSARIAL:
            location.field("answer").reject("missing field", "is missing; add it or delete the row")
            continue
        if row.answer is not None and row.category == ADVERSARIAL:
            problem = f"has the gold answer {row.answer!r}, unlike others of category 5"
            location.warn("adversarial answer", problem)

        if row.question in ids_by_question:
            earlier_id = ids_by_question[row.question]
            location.warn("duplicate question", f"asks the same as {earlier_id}; both are kept")
        else:
            ids_by_question[row.question] = example_id

        evidence_texts = _evidence_texts(row)
        evidence = _read_evidence(evidence_texts, history, location)
        # Memory-R2 does not look whether a turn that is named exists, so `evidence` may be empty.
        if evidenced and not evidence_ids(evidence_texts):
            continue
        examples.append(_make_example(example_id, history, row, evidence))
    return examples


def _make_example(
    example_id: str, history: History, row: _Question, evidence: tuple[str, ...]
) -> dspy.Example:
    """Return the example of a question."""
    example = dspy.Example(
        id=example_id,
        history=history,
        question=row.question,
        evidence_ids=evidence,
        answer=row.answer or NOT_MENTIONED,
        category=row.category,
        evidence=evidence,
    )
    if row.adversarial_answer is not None:
        example.adversarial_answer = row.adversarial_answer
    return example.with_inputs("history", "question", "evidence_ids")


def _evidence_texts(row: _Question) -> list[str]:
    """Return the evidence of a question as the file writes it, which may be one text or a list."""
    if isinstance(row.evidence, str):
        return [row.evidence]
    return [str(text) for text in row.evidence]


def _read_evidence(texts: list[str], history: History, location: Location) -> tuple[str, ...]:
    """Return the turns that evidence names; report what is malformed or names no turn."""
    if not texts:
        location.warn("empty evidence", "names no turn; the question has no recall")
    for text in texts:
        if not _PLAIN_EVIDENCE.fullmatch(text):
            meaning = ", ".join(evidence_ids([text])) or "nothing"
            location.warn("malformed evidence", f"{reprlib.repr(text)} is read as {meaning}")

    evidence: list[str] = []
    for turn_id in evidence_ids(texts):
        if turn_id in history.turns:
            evidence.append(turn_id)
        else:
            problem = f"{turn_id} is no turn of {history.id}; dropped"
            location.warn("dangling evidence", problem)
    return tuple(evidence)
