"""MemoryQuest: requests that need three to five things said long ago, in words unlike the request's (PGR, section 4).

The genuine files are `data/user{id}.json` of the hub set harshitachopra/MemoryQuest (CC BY 4.0): 50 users, 535 queries.
The form is taken from its documentation, which names the file, `demographics` and `domain_summaries` and stops there:
the other names are those of our own generator (`synthesis.memoryquest`), whose data the sample is. `turns` of a
reference, the places in its session counted from 1, are ours; without them it rests on all turns of its session.

The history of a query ends at its date, that day included. What is scored is the retrieved context, not the response:
notes of a context, such as a prospection summary, are not judged. Where two responses are compared, the judge is told
`facts`: what the references of all queries say of the user up to the query's date.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, time
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ..errors import DataError
from ..records import Context, History, Record, Session, Turn, format_time, read_json
from .benchmark import Benchmark
from .common_scorers import Combined
from .dataset import Dataset, FindingListener, Source
from .judge import AcknowledgementJudge, ReferenceVerdict, StrictAcknowledgementJudge, evidence_parts
from .judged_recall import JudgedRecall
from .field_types import Date, Listed, Text, Words, natural_sort_key
from .rows import Location, Row
from .scorer import Score, Scorer
from .text_metrics import stems

_SHOWN = 200


class Reference(Record):
    """Something a good response to a query takes into account."""

    text: str
    date: datetime | None = None
    turns: tuple[str, ...] = ()
    """Ids of the turns that hold it, or of all turns of its session; none where its session is not known."""

    def line(self) -> str:
        """The reference with its date, as judges read it."""
        return f"({format_time(self.date)}) {self.text}" if self.date else self.text


class EvidenceRecall(Scorer):
    """The share of references of whose turns (or session) a hit names one; needs no judge."""

    title = "evidence recall"

    def in_headline(self, example: dspy.Example) -> bool:
        """False for a query without evidence, which cannot measure retrieval."""
        return any(reference.turns for reference in example.references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        recalled = set((prediction.get("context") or Context()).without_fallback().sources)
        references: tuple[Reference, ...] = example.references
        parts = evidence_parts([reference.turns for reference in references], recalled)
        present = [not recalled.isdisjoint(reference.turns) for reference in references]
        return Score(parts.get("evidence", 0.0), _explain(references, present), parts)


class ReferenceRecall(JudgedRecall):
    """The share of references that a judge finds acknowledged in the hits: the paper's Recall, and Recall_Exact.

    Args:
        judge: Who judges.
        exact: Whether the value is Recall_Exact, which is 1 if all references are found and else 0.
    """

    def __init__(self, judge: type[AcknowledgementJudge] = AcknowledgementJudge, *, exact: bool = False) -> None:
        super().__init__(judge)
        self.exact_part = f"{judge.part}_exact"
        if exact:
            self.title = "judged exact recall"
            self.part = self.exact_part

    def references(self, example: dspy.Example) -> list[str]:
        references: tuple[Reference, ...] = example.references
        return [reference.line() for reference in references]

    def parts_of(self, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        all_present = all(verdict.present for verdict in verdicts)
        return {**super().parts_of(verdicts), self.exact_part: float(all_present)}

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        return _explain(example.references, [verdict.present for verdict in verdicts])


def _explain(references: Sequence[Reference], present: Sequence[bool]) -> str:
    missing = [
        reference.text[:_SHOWN] for reference, is_present in zip(references, present, strict=True) if not is_present
    ]
    if not missing:
        return "Right: everything that bears on the request was retrieved."
    share = f"{len(missing)} of {len(references)} things that bear on the request were not retrieved"
    listed = "; ".join(missing)
    return f"{share}: {listed}. Think of what the user will meet on the way, and search for that as well."


class _Message(Row):
    speaker: Words = ""
    text: Words = ""


class _Session(Row):
    session_id: Words = ""
    date: Date = None
    turns: Listed[_Message] = ()


class _Reference(Row):
    text: Text
    date: Date = None
    session_id: Words = ""
    turns: Listed[int] = ()


class _Query(Row):
    query: Text
    references: Listed[_Reference] = ()
    query_id: Words = ""
    date: Date = None
    reasoning: Words = ""
    domain: Words = ""


class _User(Row):
    sessions: tuple[_Session, ...]
    queries: Listed[_Query] = ()
    user_id: Words = ""
    demographics: dict[str, Any] = {}  # noqa: RUF012
    domain_summaries: dict[str, Any] = {}  # noqa: RUF012


class MemoryQuest(Benchmark):
    """MemoryQuest's queries.

    Metrics: "recall" and "recall_exact" (a judge of the retrieved context, yes or no for each reference),
    "recall_strict" (a judge that demands more), and "evidence", which needs no judge.
    """

    name = "memoryquest"
    task = "personal-response"
    sample = "memoryquest"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": lambda: Combined(ReferenceRecall(), EvidenceRecall()),
        "recall_exact": lambda: Combined(ReferenceRecall(exact=True), EvidenceRecall()),
        "recall_strict": lambda: Combined(ReferenceRecall(StrictAcknowledgementJudge), EvidenceRecall()),
        "evidence": EvidenceRecall,
    }

    def __init__(self, examples: Sequence[dspy.Example], source: Source, metric: str | None = None) -> None:
        super().__init__(examples, source, metric)
        if not any(map(self.in_headline, self.examples)):
            raise DataError(f"{source.path}: says of no reference in which session it was; use --metric recall")

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        """Reads a folder of user*.json, or the file of one user.

        The histories are whole; each example has the part of it before its query.
        """
        files = _files(path)
        histories: list[History] = []
        examples: dict[str, dspy.Example] = {}
        for file in files:
            place = Location(on_finding, file.stem)
            row = place.validate(_User, read_json(file))
            user = row and _Past(row, row.user_id or file.stem, place)
            if user and user.history.items:
                histories.append(user.history)
                examples.update((example.id, example) for example in user.examples(examples))
        return Dataset(tuple(histories), tuple(examples.values()), files)


def _files(path: Path) -> tuple[Path, ...]:
    found = list(path.glob("user*.json")) if path.is_dir() else [path]
    if not found:
        raise DataError(f"{path}: holds no user*.json; give the folder with the users' files")
    return tuple(sorted(found, key=lambda file: natural_sort_key(file.stem)))


class _Past:
    def __init__(self, row: _User, id: str, place: Location) -> None:
        self.row, self.id, self.place = row, id, place
        self.sessions: dict[str, tuple[Session, dict[int, str]]] = {}
        """By the file's id: the session, and the ids of its turns by their places in it."""
        given = [(session.session_id or str(n), session) for n, session in enumerate(row.sessions, 1)]
        kept = [(name, session) for name, session in given if any(said.text for said in session.turns)]
        if len(kept) < len(given):
            place.warn("empty session", "a session has no turn with words; passed over")
        times = [session.date for _, session in kept]
        if None not in times and times != sorted(time for time in times if time):
            place.warn("sessions out of order", "are put into the order of their dates")
            kept.sort(key=lambda pair: pair[1].date or datetime.min)
        items = []
        for n, (name, session) in enumerate(kept, 1):
            said = [(f"D{n}:{k}", k, each) for k, each in enumerate(session.turns, 1) if each.text]
            turns = tuple(Turn(id=id, speaker=each.speaker or "user", text=each.text) for id, _, each in said)
            items.append(Session(id=f"D{n}", time=session.date, turns=turns))
            if name in self.sessions:
                place.warn("repeated session", f"session {name!r} was there before; references mean the first")
            self.sessions.setdefault(name, (items[-1], {k: id for id, k, _ in said}))
        if not items:
            place.reject("no turns", "no session has a turn with words")
        self.history = History(id=id, items=tuple(items))

    def examples(self, taken: Mapping[str, Any]) -> Iterator[dspy.Example]:
        """The queries that can be scored, each with all facts about its user that the file states up to its date."""
        made = list(self._scorable(set(taken)))
        stated = dict.fromkeys(reference for _, example in made for reference in example.references)
        for end, example in made:
            known = [each for each in stated if end is None or each.date is None or each.date <= end]
            example.facts = "\n".join(dict.fromkeys(each.line() for each in known))
            yield example

    def _scorable(self, ids: set[str]) -> Iterator[tuple[datetime | None, dspy.Example]]:
        """The queries with references, and the last moment that each knows of."""
        parts = (self.row.demographics, self.row.domain_summaries)
        profile = "\n".join(f"{key}: {value}" for part in parts for key, value in part.items())
        histories: dict[int, History] = {}
        for n, row in enumerate(self.row.queries, 1):
            place = self.place.at(f"query {n}")
            end = row.date
            if end is not None and end.time() == time.min:  # without a clock: all of the day
                end = datetime.combine(end, time.max)
            items: Any = tuple(each for each in self.history if end is None or each.time is None or each.time <= end)
            history = histories.setdefault(len(items), History(id=self.id, items=items))
            references = tuple(self._reference(each, history, place) for each in row.references)
            if not references:
                place.warn("no references", "cannot be scored without a reference; passed over")
                continue
            id = f"{self.id}:{row.query_id or n}"
            if id in ids:
                place.warn("repeated query", f"{id!r} was there before; this one is '{id}:{n}'")
                id = f"{id}:{n}"
            ids.add(id)
            yield (
                end,
                dspy.Example(
                    id=id,
                    history=history,
                    question=row.query,
                    date=format_time(row.date) if row.date else "",
                    evidence_ids=tuple(dict.fromkeys(turn for each in references for turn in _anchor(each, history))),
                    answer="\n".join(reference.line() for reference in references),
                    references=references,
                    category=row.domain or "all",
                    profile=profile,
                    reasoning=row.reasoning,
                ).with_inputs("history", "question", "date", "evidence_ids"),
            )

    def _reference(self, row: _Reference, history: History, place: Location) -> Reference:
        """A reference with the turns that hold it, as far as the file states them and the history holds them."""
        session, places = self.sessions.get(row.session_id, (None, {}))
        if session is None or session not in history.items:
            if row.session_id:
                place.warn("dangling evidence", f"session {row.session_id!r} is none, or after the query; no evidence")
            return Reference(text=row.text, date=row.date)
        turns = tuple(places[n] for n in sorted(set(row.turns)) if n in places)
        if len(turns) < len(set(row.turns)):
            place.warn("dangling evidence", f"turns {reprlib.repr(row.turns)} are not all in {row.session_id!r}")
        return Reference(text=row.text, date=row.date, turns=turns or tuple(places.values()))


def _anchor(reference: Reference, history: History) -> tuple[str, ...]:
    """The turns of a reference, or of a whole session the one turn that shares most words with it."""
    if len(reference.turns) < 2:
        return reference.turns
    turns = [history.turns[id] for id in reference.turns]
    if len(turns) < len(turns[0][1].turns):
        return reference.turns
    words = set(stems(reference.text))
    return (max(turns, key=lambda pair: len(words & set(stems(pair[0].text))))[0].id,)
