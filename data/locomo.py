"""LoCoMo: questions about ten very long conversations, scored by token F1 or a judge (Maharana et al., ACL 2024).

The genuine file is `data/locomo10.json` of github.com/snap-research/locomo (CC BY-NC 4.0, so it is not bundled; the
sample is our own). The reader was checked against it and copes with all of its oddities: dates without sessions,
answers that are numbers, evidence that is malformed or names turns that are not there, repeated questions, image turns.

`metric="judge"` is what RGMem, Mem0 and others print: a model labels each answer, with good will (`GenerousJudge`), and
category 5 is left out, since it has no gold answer.

Limits: about 6 % of the gold answers are known to be wrong (snap-research/locomo#23), and token F1 rewards
wording. Where this differs from the official task_eval/evaluation.py: category 5 is not asked as a two-way choice
and is reported apart; evidence ids are repaired; a question without evidence has no recall instead of 1. `bleu1` is
community practice, and so is the judge; its words are Memory-R2's, which keep "and".
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from .judge import GenerousJudge, JudgeRoles
from .field_types import MONTHS, Listed, Text, Verbatim
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of
from .text_metrics import bleu1, explain, format_evidence, locomo_f1, locomo_multi_f1, squad_words, stem
from .word_splitting import LOCOMO

NOT_MENTIONED = "Not mentioned in the conversation"
"""Gold answer of the adversarial questions that have none."""

_REFUSALS = ("no information available", "not mentioned")
_TRAIN = frozenset({"conv-43", "conv-47"})
_DEV = frozenset({"conv-44"})
_TEST = frozenset({"conv-26", "conv-30", "conv-41", "conv-42", "conv-48", "conv-49", "conv-50"})
_WANTED = "LoCoMo's locomo10.json (github.com/snap-research/locomo, data/locomo10.json)"
_SESSION = re.compile(r"session_(\d{1,9})(_date_time)?", re.ASCII)
_DATE = re.compile(r"\s*(\d{1,2}):(\d\d)\s*([ap])m\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"D:?(\d{1,9}):(\d{1,9})(?!\d)", re.ASCII)
_PLAIN_EVIDENCE = re.compile(r"D(?:0|[1-9]\d*):(?:0|[1-9]\d*)", re.ASCII)


class LocomoF1(Scorer):
    """Token F1 by the rule of the question's category.

    Categories 2, 3 and 4: token F1, in category 3 against the gold up to its first ';'. Category 1: mean over the
    comma-separated golds of the best F1. Category 5: 1 when the answer says that nothing is mentioned.
    Source: LoCoMo, task_eval/evaluation.py.
    """

    title = "token F1"
    splitter = LOCOMO

    def in_headline(self, example: dspy.Example) -> bool:
        """False for category 5: it rewards declining to answer, and is reported separately."""
        return example.category != "5"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer, gold = answer_of(prediction), gold_of(example)
        if example.category == "5":
            value = float(any(phrase in answer.lower() for phrase in _REFUSALS))
            feedback = _explain_refusal(value, example.evidence)
        else:
            value = (locomo_multi_f1 if example.category == "1" else locomo_f1)(answer, gold)
            feedback = explain(answer, gold, value, example.evidence, stem=stem)
        return Score(value, feedback, {"f1": value, "bleu1": bleu1(answer, gold, squad_words)})


class LocomoJudgeScorer(JudgeScorer):
    """The generous judge that published LoCoMo tables use; it sees the whole gold answer in every category."""

    judge_roles: ClassVar[JudgeRoles] = {"judge": GenerousJudge}

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        return explain(answer, gold_of(example), value, example.evidence, stem=stem)


def gold_of(example: dspy.Example) -> str:
    """The gold answer that counts: in category 3 the part before the first ';'."""
    return example.answer.split(";")[0].strip() if example.category == "3" else example.answer


def _explain_refusal(value: float, evidence: tuple[str, ...]) -> str:
    if value:
        return "Right: the answer says that the conversation does not mention this."
    seems = f" The answer only seems to be in {format_evidence(evidence)}." if evidence else ""
    return f"Wrong: the conversation does not hold the answer; a right answer says it is 'not mentioned'.{seems}"


class _Conversation(Row):
    sample_id: Text
    conversation: dict[str, Any]
    qa: tuple[Any, ...]


class _Message(Row):
    dia_id: str
    speaker: str
    text: str | None = ""
    blip_caption: str | None = None


class _Question(Row):
    question: Verbatim
    category: Annotated[Literal["1", "2", "3", "4", "5"], BeforeValidator(str)]
    answer: Verbatim | None = None
    adversarial_answer: str | None = None
    evidence: Listed[Any] | str = ()


class Locomo(Benchmark):
    """LoCoMo's question answering: the official token F1, or a judge."""

    name = "locomo"
    sample = "locomo.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": LocomoF1,
        "judge": lambda: Combined(LocomoJudgeScorer(), LocomoF1()),
    }
    categories = MappingProxyType(
        {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
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
        """As `Benchmark.load`; a judge is asked about categories 1 to 4 alone.

        Raises:
            UserError: A judge is asked for category 5.
        """
        if metric == "judge":
            kept = cls.resolve_categories(categories)
            if kept and "5" in kept:
                raise UserError("category 5 has no gold answer to judge by; leave it out, or take --metric f1")
            categories = kept or "1,2,3,4"
        return super().load(path, metric=metric, categories=categories, **options)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener, *, evidenced: bool = False) -> Dataset:
        """Reads the file.

        Args:
            path: The file.
            on_finding: What findings are told to.
            evidenced: Whether questions without evidence that can be read are left out (as Memory-R2 does: 4 of 1,089).
        """
        raw = read_json(path)
        if not isinstance(raw, list) or not raw:
            raise DataError(f"{path}: expected a list of conversations, got {reprlib.repr(raw)}; take {_WANTED}")
        histories: dict[str, History] = {}
        examples: list[dspy.Example] = []
        for number, value in enumerate(raw, 1):
            place = Location(on_finding, f"conversation {number}")
            row = place.validate(_Conversation, value)
            if row is None:
                continue
            if row.sample_id in histories:
                place.reject("duplicate id", f"sample_id {row.sample_id!r} is used twice")
                continue
            place = Location(on_finding, row.sample_id)
            history = histories[row.sample_id] = _history(row.conversation, place)
            examples.extend(_examples(history, row.qa, on_finding, evidenced))
        return Dataset(tuple(histories.values()), tuple(examples))

    @property
    def has_unanswerable(self) -> bool:
        return any(example.category == "5" for example in self.examples)

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Memory-R2's split (train conv-43 and conv-47, dev conv-44) when exactly the ten conversations are there.

        Most of that paper's released scripts train on conv-43 alone; the paper's text says two, which is followed.
        """
        if self.conversations != _TRAIN | _DEV | _TEST:
            return None
        return set(_TRAIN), set(_DEV), set(_TEST)


def evidence_ids(evidence: Iterable[str]) -> tuple[str, ...]:
    """Finds the turn ids in evidence strings, each once, in order.

    Several ids in one string, leading zeros and a stray colon are understood: `["D8:6; D09:17", "D:3:4"]` gives
    `("D8:6", "D9:17", "D3:4")`. What holds no id is passed over.
    """
    found = (match for text in evidence for match in _EVIDENCE.finditer(text))
    return tuple(dict.fromkeys(f"D{int(match[1])}:{int(match[2])}" for match in found))


def parse_date(text: str) -> datetime | None:
    """Reads LoCoMo's dates, `1:56 pm on 8 May, 2023`, in any locale; None when it is no such date."""
    match = _DATE.fullmatch(text)
    if match is None or match[5].lower() not in MONTHS or not 1 <= int(match[1]) <= 12:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    try:
        return datetime(int(match[6]), MONTHS.index(match[5].lower()) + 1, int(match[4]), hour, int(match[2]))
    except ValueError:
        return None


def _history(talk: Mapping[str, Any], place: Location) -> History:
    keys = {int(match[1]): match[0] for key in talk if (match := _SESSION.fullmatch(key)) and not match[2]}
    for key in talk:
        match = _SESSION.fullmatch(key)
        if match and int(match[1]) not in keys:
            place.field(key).warn("date without session", "has no session of its number; passed over")
    known: set[str] = set()
    sessions = []
    for number, key in sorted(keys.items()):
        turns = tuple(_turns(talk[key], place.field(key), known))
        time = _time(talk.get(f"{key}_date_time"), place.field(f"{key}_date_time"))
        if turns:
            sessions.append(Session(id=f"D{number}", time=time, turns=turns))
    if not sessions:
        place.reject("no sessions", "holds no turns in any session_N list")
    return History(id=place.where, items=tuple(sessions))


def _time(text: Any, place: Location) -> datetime | None:
    if text is None:
        place.warn("session without date", "is missing; the session stays undated")
        return None
    time = parse_date(str(text))
    if time is None:
        place.reject("malformed date", f"{reprlib.repr(text)} is not like '1:56 pm on 8 May, 2023'")
    return time


def _turns(raw: Any, place: Location, known: set[str]) -> Iterator[Turn]:
    if not isinstance(raw, list):
        place.reject("wrong value", f"is {reprlib.repr(raw)}, expected a list of turns")
        return
    if not raw:
        place.warn("empty session", "has no turns; passed over")
    for number, value in enumerate(raw, 1):
        turn = place.at(f"turn {number}").validate(_Message, value)
        if turn is not None and turn.dia_id in known:
            place.at(f"turn {number}").reject("duplicate turn", f"dia_id {turn.dia_id!r} is used twice")
        elif turn is not None:
            known.add(turn.dia_id)
            yield Turn(id=turn.dia_id, speaker=turn.speaker, text=turn.text or "", caption=turn.blip_caption or None)


def _examples(
    history: History, rows: Iterable[Any], on_finding: FindingListener, evidenced: bool
) -> Iterator[dspy.Example]:
    asked: dict[str, str] = {}
    for number, value in enumerate(rows):
        id = f"{history.id}:{number}"
        place = Location(on_finding, id)
        row = place.validate(_Question, value)
        if row is None:
            continue
        answer = row.answer
        if answer is None and row.category != "5":
            place.field("answer").reject("missing field", "is missing; add it or delete the row")
            continue
        if answer is not None and row.category == "5":
            place.warn("adversarial answer", f"has the gold answer {answer!r}, unlike others of category 5")
        if row.question in asked:
            place.warn("duplicate question", f"asks the same as {asked[row.question]}; both are kept")
        asked.setdefault(row.question, id)
        texts = [row.evidence] if isinstance(row.evidence, str) else [str(text) for text in row.evidence]
        evidence = _evidence(texts, history, place)
        if evidenced and not evidence_ids(texts):
            continue
        trap = {} if row.adversarial_answer is None else {"adversarial_answer": row.adversarial_answer}
        labels = {"answer": answer or NOT_MENTIONED, "category": row.category, "evidence": evidence, **trap}
        example = dspy.Example(id=id, history=history, question=row.question, evidence_ids=evidence, **labels)
        yield example.with_inputs("history", "question", "evidence_ids")


def _evidence(texts: list[str], history: History, place: Location) -> tuple[str, ...]:
    if not texts:
        place.warn("empty evidence", "names no turn; the question has no recall")
    for text in texts:
        if not _PLAIN_EVIDENCE.fullmatch(text):
            read = ", ".join(evidence_ids([text])) or "nothing"
            place.warn("malformed evidence", f"{reprlib.repr(text)} is read as {read}")
    found = evidence_ids(texts)
    for turn in found:
        if turn not in history.turns:
            place.warn("dangling evidence", f"{turn} is no turn of {history.id}; dropped")
    return tuple(turn for turn in found if turn in history.turns)
