"""MemoryQuest: requests that rest on three to five facts, told long ago in other words.

Source: PGR, section 4. The genuine files are `data/user{id}.json` of the hub set
harshitachopra/MemoryQuest (CC BY 4.0): 50 users, 535 queries. Its documentation names the file,
`demographics` and `domain_summaries`, and no more. All other names of fields are those of our own
generator (`synthesis.memoryquest`), whose data the sample is:

    {"user_id": "user1", "demographics": {"age": "34"}, "domain_summaries": {"Books": "..."},
     "sessions": [{"session_id": "s1", "date": "2024-03-05",
                   "turns": [{"speaker": "user", "text": "My knee hurts."}]}],
     "queries": [{"query_id": "q1", "query": "Plan my week", "date": "2024-06-01",
                  "references": [{"text": "Has a bad knee", "session_id": "s1", "turns": [1]}]}]}

`turns` of a reference are positions in its session, counted from 1; they are ours. A reference
without them rests on all turns of its session.

The history of a query ends with the day of the query. The retrieved context is scored, not the
response; notes of a context, such as a prospection summary, are not judged. Where two responses are
compared, the judge reads `facts`: what the references of all queries say about the user up to the
date of the query.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, time
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dspy

from ..errors import DataError
from ..records import AnyItem, Context, History, Record, Session, Turn, format_time, read_json
from .benchmark import Benchmark
from .common_scorers import Combined
from .dataset import Dataset, FindingListener, Source
from .field_types import Date, Listed, Text, Words, natural_sort_key
from .judge import (
    AcknowledgementJudge,
    ReferenceVerdict,
    StrictAcknowledgementJudge,
    evidence_parts,
)
from .judged_recall import JudgedRecall
from .rows import Location, Row
from .scorer import Score, Scorer
from .text_metrics import stems

_MAX_SHOWN_CHARACTERS = 200
"""Most characters of a reference in a feedback."""


class Reference(Record):
    """A fact that a good response to a query takes into account."""

    text: str
    date: datetime | None = None
    turns: tuple[str, ...] = ()
    """Ids of the turns that hold it, or of all turns of its session.

    There are none if its session is not known.
    """

    def line(self) -> str:
        """Return the reference with its date, as judges read it."""
        if self.date is None:
            return self.text
        return f"({format_time(self.date)}) {self.text}"


class EvidenceRecall(Scorer):
    """The share of references of which a turn was retrieved; no judge is needed."""

    title = "evidence recall"

    def in_headline(self, example: dspy.Example) -> bool:
        """Return False for a query without evidence, which cannot measure retrieval."""
        return any(reference.turns for reference in example.references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Return the share of the references of which the retrieved context holds a turn.

        A context holds the turns that its hits were written from.
        """
        context: Context = prediction.get("context") or Context()
        # Fallback hits were not found by the search, so they do not count as retrieved.
        retrieved_ids = set(context.without_fallback().sources)

        references: tuple[Reference, ...] = example.references
        turns_by_reference = [reference.turns for reference in references]
        is_retrieved = [not retrieved_ids.isdisjoint(turns) for turns in turns_by_reference]
        feedback = _feedback(references, is_retrieved)

        parts = evidence_parts(turns_by_reference, retrieved_ids)
        # There are no parts if no reference has evidence; `in_headline` leaves such a query out.
        share = parts.get("evidence", 0.0)
        return Score(share, feedback, parts)


class ReferenceRecall(JudgedRecall):
    """The share of references that a judge finds acknowledged in the hits.

    These are the paper's Recall and Recall_Exact.

    Args:
        judge: Who judges.
        exact: Whether the value is Recall_Exact: 1 if all references are acknowledged, else 0.
    """

    def __init__(
        self, judge: type[AcknowledgementJudge] = AcknowledgementJudge, *, exact: bool = False
    ) -> None:
        super().__init__(judge)
        self.exact_part = f"{judge.part}_exact"
        if exact:
            self.title = "judged exact recall"
            self.part = self.exact_part

    def references(self, example: dspy.Example) -> list[str]:
        """Return the references as the judge reads them."""
        references: tuple[Reference, ...] = example.references
        return [reference.line() for reference in references]

    def parts_of(self, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return the parts of the judge, and exact recall."""
        all_present = all(verdict.present for verdict in verdicts)
        return {**super().parts_of(verdicts), self.exact_part: float(all_present)}

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        """Say which references the context does not acknowledge."""
        return _feedback(example.references, [verdict.present for verdict in verdicts])


def _feedback(references: Sequence[Reference], is_retrieved: Sequence[bool]) -> str:
    """Return the feedback of a score: which references were not retrieved, and what to do better.

    Optimizers show it to the model that improves the prompts.

    Args:
        references: All references of a query.
        is_retrieved: For each of them, whether it was retrieved.
    """
    missing: list[str] = []
    for reference, reference_is_retrieved in zip(references, is_retrieved, strict=True):
        if not reference_is_retrieved:
            missing.append(reference.text[:_MAX_SHOWN_CHARACTERS])
    if not missing:
        return "Right: everything that bears on the request was retrieved."

    counts = f"{len(missing)} of {len(references)}"
    return (
        f"{counts} things that bear on the request were not retrieved: {'; '.join(missing)}. "
        "Think of what the user will meet on the way, and search for that as well."
    )


class _MessageRow(Row):
    speaker: Words = ""
    text: Words = ""


class _SessionRow(Row):
    session_id: Words = ""
    date: Date = None
    turns: Listed[_MessageRow] = ()


class _ReferenceRow(Row):
    text: Text
    date: Date = None
    session_id: Words = ""
    turns: Listed[int] = ()


class _QueryRow(Row):
    query: Text
    references: Listed[_ReferenceRow] = ()
    query_id: Words = ""
    date: Date = None
    reasoning: Words = ""
    domain: Words = ""


class _UserRow(Row):
    """The file of a user."""

    sessions: tuple[_SessionRow, ...]
    queries: Listed[_QueryRow] = ()
    user_id: Words = ""
    demographics: dict[str, Any] = {}  # noqa: RUF012
    domain_summaries: dict[str, Any] = {}  # noqa: RUF012


class MemoryQuest(Benchmark):
    """MemoryQuest's queries.

    Metrics: "recall" and "recall_exact" (a judge of the retrieved context, yes or no for each
    reference), "recall_strict" (a judge that demands more), and "evidence", which needs no judge.
    """

    name = "memoryquest"
    task = "personal-response"
    sample = "memoryquest"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": lambda: Combined(ReferenceRecall(), EvidenceRecall()),
        "recall_exact": lambda: Combined(ReferenceRecall(exact=True), EvidenceRecall()),
        "recall_strict": lambda: Combined(
            ReferenceRecall(StrictAcknowledgementJudge), EvidenceRecall()
        ),
        "evidence": EvidenceRecall,
    }

    def __init__(
        self, examples: Sequence[dspy.Example], source: Source, metric: str | None = None
    ) -> None:
        super().__init__(examples, source, metric)
        if not any(self.in_headline(example) for example in self.examples):
            raise DataError(
                f"{source.path}: says of no reference in which session it was; use --metric recall"
            )

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        """Read a folder of user*.json, or the file of one user.

        The histories are whole; each example has the part of it before its query.
        """
        files = _find_files(path)
        histories: list[History] = []
        examples: list[dspy.Example] = []
        example_ids: set[str] = set()
        for file in files:
            location = Location(on_finding, file.stem)
            row = location.validate(_UserRow, read_json(file))
            if row is None:
                continue

            past = _read_past(row, row.user_id or file.stem, location)
            if not past.history.items:
                location.reject("no turns", "no session has a turn with words")
                continue

            histories.append(past.history)
            examples.extend(_read_queries(row, past, example_ids, location))
        return Dataset(tuple(histories), tuple(examples), files)


def _find_files(path: Path) -> tuple[Path, ...]:
    """Return the files of the users, ordered by the numbers in their names."""
    files = list(path.glob("user*.json")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: holds no user*.json; give the folder with the users' files")
    return tuple(sorted(files, key=lambda file: natural_sort_key(file.stem)))


# Sessions.


class _NamedSession(NamedTuple):
    """A session of the file with the name that references give it."""

    name: str
    """Its `session_id`, or its number in the file if it has none."""
    row: _SessionRow


class _ReadSession(NamedTuple):
    """A session of the history, and the id of each turn by its position in the file's session.

    Positions count from 1. A turn without words has a position, but no id.
    """

    session: Session
    turn_ids: dict[int, str]


class _Past:
    """All sessions of a user.

    Args:
        history: The whole history.
        sessions: Its sessions by the names that references give them.
    """

    def __init__(self, history: History, sessions: Mapping[str, _ReadSession]) -> None:
        self.history = history
        self.sessions = sessions
        self._histories_by_length: dict[int, History] = {}

    def history_until(self, end: datetime | None) -> History:
        """Return the history with the sessions up to a moment, or with all if it is None.

        Sessions without a date are always in it.

        A history computes its turns and its digest only once. So two queries with the same sessions
        get the same object.
        """
        items: list[AnyItem] = []
        for session in self.history.items:
            if end is None or session.time is None or session.time <= end:
                items.append(session)

        # A later moment only adds sessions, so as many sessions are the same sessions.
        num_sessions = len(items)
        if num_sessions not in self._histories_by_length:
            history = History(id=self.history.id, items=tuple(items))
            self._histories_by_length[num_sessions] = history
        return self._histories_by_length[num_sessions]


def _read_past(row: _UserRow, user_id: str, location: Location) -> _Past:
    """Read the sessions of a user into a history, which may be empty.

    Of sessions with one name all are in the history, but references mean the first.
    """
    items: list[Session] = []
    sessions: dict[str, _ReadSession] = {}
    for number, named_session in enumerate(_sessions_in_order(row, location), 1):
        read_session = _read_session(named_session.row, number)
        items.append(read_session.session)

        name = named_session.name
        if name in sessions:
            problem = f"session {name!r} was there before; references mean the first"
            location.warn("repeated session", problem)
        else:
            sessions[name] = read_session
    return _Past(History(id=user_id, items=tuple(items)), sessions)


def _sessions_in_order(row: _UserRow, location: Location) -> list[_NamedSession]:
    """Return the sessions that have words, in the order of their dates.

    If a session has no date, the order of the file is kept.
    """
    sessions: list[_NamedSession] = []
    dates: list[datetime] = []
    for number, session in enumerate(row.sessions, 1):
        if not any(message.text for message in session.turns):
            continue
        sessions.append(_NamedSession(session.session_id or str(number), session))
        if session.date is not None:
            dates.append(session.date)
    if len(sessions) < len(row.sessions):
        location.warn("empty session", "a session has no turn with words; passed over")

    all_are_dated = len(dates) == len(sessions)
    if not all_are_dated or dates == sorted(dates):
        return sessions

    location.warn("sessions out of order", "are put into the order of their dates")
    # All sessions have dates here; `datetime.min` is for the type checker.
    return sorted(sessions, key=lambda session: session.row.date or datetime.min)


def _read_session(row: _SessionRow, number: int) -> _ReadSession:
    """Return a session with the ids of its turns.

    Args:
        row: The session of the file.
        number: The position of the session in the history, counted from 1.
    """
    turns: list[Turn] = []
    turn_ids: dict[int, str] = {}
    for position_in_session, message in enumerate(row.turns, 1):
        if not message.text:
            continue
        turn_id = f"D{number}:{position_in_session}"
        turn_ids[position_in_session] = turn_id
        turns.append(Turn(id=turn_id, speaker=message.speaker or "user", text=message.text))
    session = Session(id=f"D{number}", time=row.date, turns=tuple(turns))
    return _ReadSession(session, turn_ids)


# Queries.


class _ReadQuery(NamedTuple):
    """A query as an example, and the last moment of the user's past that it knows."""

    example: dspy.Example
    end: datetime | None
    """None if the query has no date: it then knows all of the past."""


def _read_queries(
    row: _UserRow, past: _Past, example_ids: set[str], location: Location
) -> list[dspy.Example]:
    """Return the queries of a user that can be scored, as examples.

    Args:
        row: The user's file.
        past: The user's sessions.
        example_ids: The ids of all examples so far. Those of the queries are added.
        location: The user's file, for findings.
    """
    profile = _profile(row)
    queries: list[_ReadQuery] = []
    for number, query_row in enumerate(row.queries, 1):
        query_location = location.at(f"query {number}")
        end = _end_of(query_row)
        history = past.history_until(end)

        references = _read_references(query_row, past, history, query_location)
        if not references:
            problem = "cannot be scored without a reference; passed over"
            query_location.warn("no references", problem)
            continue

        query_id = f"{past.history.id}:{query_row.query_id or number}"
        example_id = _unused_id(query_id, number, example_ids)
        if example_id != query_id:
            problem = f"{query_id!r} was there before; this one is {example_id!r}"
            query_location.warn("repeated query", problem)
        example_ids.add(example_id)

        example = _example(example_id, query_row, history, references, profile)
        queries.append(_ReadQuery(example, end))

    # An example also has facts of the user's other queries, so they come last.
    _add_facts(queries)
    return [query.example for query in queries]


def _unused_id(query_id: str, number: int, example_ids: Collection[str]) -> str:
    """Return the id of a query, made different from all others.

    A file may give two queries one id, and two files may be of one user. The number of the query is
    then added, as often as it takes.
    """
    while query_id in example_ids:
        query_id = f"{query_id}:{number}"
    return query_id


def _profile(row: _UserRow) -> str:
    """Return what the file says about the user, a line for each field."""
    lines: list[str] = []
    for fields in (row.demographics, row.domain_summaries):
        for name, value in fields.items():
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _end_of(row: _QueryRow) -> datetime | None:
    """Return the last moment that a query knows of: of a date without a time, its end."""
    if row.date is None or row.date.time() != time.min:
        return row.date
    return datetime.combine(row.date, time.max)


def _example(
    example_id: str,
    row: _QueryRow,
    history: History,
    references: tuple[Reference, ...],
    profile: str,
) -> dspy.Example:
    """Return the example of a query. `_add_facts` adds the field `facts` later."""
    evidence_ids: list[str] = []
    for reference in references:
        evidence_ids.extend(_evidence_of(reference, history))

    example = dspy.Example(
        id=example_id,
        history=history,
        question=row.query,
        date=format_time(row.date) if row.date else "",
        evidence_ids=tuple(dict.fromkeys(evidence_ids)),
        answer="\n".join(reference.line() for reference in references),
        references=references,
        category=row.domain or "all",
        profile=profile,
        reasoning=row.reasoning,
    )
    # No prompt shows `evidence_ids`. As an input of a program they choose which of the calls that
    # wrote its memory an optimizer sees.
    return example.with_inputs("history", "question", "date", "evidence_ids")


def _add_facts(queries: Sequence[_ReadQuery]) -> None:
    """Set the field `facts` of each example: all that is known about the user at its date.

    These are the references of all queries of the user, each once, except those of a later date.
    Where two responses to a query are compared, the judge reads them.
    """
    all_references: list[Reference] = []
    for query in queries:
        all_references.extend(query.example.references)

    for query in queries:
        lines: list[str] = []
        for reference in all_references:
            is_later = (
                query.end is not None and reference.date is not None and reference.date > query.end
            )
            if not is_later:
                lines.append(reference.line())
        # A dict keeps the first of equal lines.
        unique_lines = dict.fromkeys(lines)
        query.example.facts = "\n".join(unique_lines)


# References.


def _read_references(
    row: _QueryRow, past: _Past, history: History, location: Location
) -> tuple[Reference, ...]:
    """Return the references of a query.

    Args:
        row: The query.
        past: All sessions of the user.
        history: The part of them before the query.
        location: The query, for findings.
    """
    references: list[Reference] = []
    for reference_row in row.references:
        turns = _read_turns(reference_row, past, history, location)
        reference = Reference(text=reference_row.text, date=reference_row.date, turns=turns)
        references.append(reference)
    return tuple(references)


def _read_turns(
    row: _ReferenceRow, past: _Past, history: History, location: Location
) -> tuple[str, ...]:
    """Return the ids of the turns that a reference rests on.

    These are the turns that it names in its session. If it names none, or none that is there, they
    are all turns of the session. Turns and sessions that the history does not have are reported.

    Args:
        row: The reference. Its `turns` are places in the session, counted from 1.
        past: All sessions of the user.
        history: The part of them before the query.
        location: The query, for findings.

    Returns:
        The ids; none if the reference names no session, or one that is not in the history.
    """
    read_session = past.sessions.get(row.session_id)
    if read_session is None or read_session.session not in history.items:
        # A reference without the name of a session is in order: it has no evidence.
        if row.session_id:
            problem = f"session {row.session_id!r} is none, or after the query; no evidence"
            location.warn("dangling evidence", problem)
        return ()

    positions_in_session = sorted(set(row.turns))
    turn_ids: list[str] = []
    for position_in_session in positions_in_session:
        if position_in_session in read_session.turn_ids:
            turn_ids.append(read_session.turn_ids[position_in_session])
    if len(turn_ids) < len(positions_in_session):
        problem = f"turns {reprlib.repr(row.turns)} are not all in {row.session_id!r}"
        location.warn("dangling evidence", problem)

    if not turn_ids:
        return tuple(read_session.turn_ids.values())
    return tuple(turn_ids)


def _evidence_of(reference: Reference, history: History) -> tuple[str, ...]:
    """Return the ids of the turns that most likely hold a reference.

    If the file says in which turns it is, these are returned. A reference that only names its
    session is somewhere in it: the turn that shares most words with it is returned.
    """
    if len(reference.turns) < 2:
        return reference.turns

    # All turns of a reference are of one session.
    turns = [history.turns[turn_id][0] for turn_id in reference.turns]
    session = history.turns[reference.turns[0]][1]
    rests_on_whole_session = len(turns) == len(session.turns)
    if not rests_on_whole_session:
        return reference.turns

    words = set(stems(reference.text))
    nearest = max(turns, key=lambda turn: len(words & set(stems(turn.text))))
    return (nearest.id,)
