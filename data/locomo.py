"""LoCoMo: questions about ten very long conversations, scored by token F1 (Maharana et al., ACL 2024).

The genuine file is `data/locomo10.json` of github.com/snap-research/locomo (CC BY-NC 4.0, so it is not bundled;
the sample that is bundled is our own, in the same format). It has oddities, and this reader copes with all of
them: dates without sessions, answers that are numbers, evidence that is malformed or names turns that are not
there, repeated questions, image turns. `check_locomo` of `data/check.py` lists them row by row.

One History per conversation is shared by all of its examples. An example holds `history`, `question`, `focus`
(inputs), `answer`, `evidence`, `category` ("1" to "5", see CATEGORIES), `id` ("conv-26:17" is row 17, counted from
0, of its conversation) and, where the file has one, `adversarial_answer` (labels).

Example:
    >>> benchmark = Locomo.load("locomo10.json", categories=["1", "4"])
    >>> benchmark.examples[0].category
    '1'

Honest limits: about 6 % of the gold answers are known to be wrong (snap-research/locomo#23), and token F1 rewards
wording. Where this differs from the official task_eval/evaluation.py: category 5 is not asked as a two-way choice
and is reported apart; evidence ids are repaired; a question without evidence has no recall instead of 1.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dspy
from pydantic import ValidationError

from ..errors import DataError, UnknownNameError
from ..records import History, Session, Turn, read_json
from .benchmark import Benchmark, Finding, Note, Reading, Score, Source, refuse_fatal
from .text_metrics import bleu1, explain, locomo_f1, locomo_multi_f1, named, stem

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
)
"""Names of the categories, for tables."""

NOT_MENTIONED = "Not mentioned in the conversation"
"""Gold answer of the adversarial questions that have none."""

_WANTED = "LoCoMo's locomo10.json (github.com/snap-research/locomo, data/locomo10.json)"
_REFUSALS = ("no information available", "not mentioned")
_TRAIN = frozenset({"conv-43", "conv-47"})
_DEV = frozenset({"conv-44"})
_TEST = frozenset({"conv-26", "conv-30", "conv-41", "conv-42", "conv-48", "conv-49", "conv-50"})
_MONTHS = tuple(
    re.findall(r"\w+", "january february march april may june july august september october november december")
)
_SESSION_KEY = re.compile(r"session_(\d+)")
_DATE_KEY = re.compile(r"session_(\d+)_date_time")
_DATE = re.compile(r"\s*(\d{1,2}):(\d\d)\s*([ap])m\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"D:?(\d{1,9}):(\d{1,9})(?!\d)", re.ASCII)
_PLAIN_EVIDENCE = re.compile(r"D(?:0|[1-9]\d*):(?:0|[1-9]\d*)", re.ASCII)


class Locomo(Benchmark):
    """LoCoMo's question answering.

    Args:
        examples: The questions.
        source: Where they came from.
        conversations: Ids of all conversations of the file (default: those of the examples).
    """

    name = "locomo"
    metric_name = "token F1"

    def __init__(
        self, examples: Iterable[dspy.Example], source: Source, conversations: Iterable[str] | None = None
    ) -> None:
        super().__init__(tuple(examples), source)
        groups = map(self.group, self.examples) if conversations is None else conversations
        self.conversations = frozenset(groups)

    @classmethod
    def load(
        cls, path: str | Path | None = None, *, categories: str | Iterable[str | int] | None = None, **options: Any
    ) -> Locomo:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of locomo10.json's form.
            categories: The categories to keep, e.g. ["1", "4"] or "1,4"; all five when None.
            **options: None are known; any is refused.

        Raises:
            DataError: The file is not of this form, or holds no question of these categories.
            UnknownNameError: A category or an option that does not exist.
        """
        cls.refuse_options(options, ("categories",))
        kept = _kept(categories)
        if path is not None:
            return cls._read(Path(path), kept, sample=False)
        with resources.as_file(resources.files(f"{__package__}.samples") / "locomo.json") as file:
            return cls._read(file, kept, sample=True)

    @classmethod
    def _read(cls, path: Path, categories: frozenset[str], sample: bool) -> Locomo:
        reading = read_locomo(path, refuse_fatal(path))
        examples = [example for example in reading.examples if example.category in categories]
        if reading.examples and not examples:
            raise DataError(f"{path}: no question of category {', '.join(sorted(categories))}; choose others")
        return cls(examples, Source.of(path, sample), [history.id for history in reading.histories])

    def counts(self, example: dspy.Example) -> bool:
        """False for category 5: it pays for declining to answer, and is reported apart."""
        return example.category != "5"

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Memory-R2's split (train conv-43 and conv-47, dev conv-44) when exactly the ten conversations are there.

        Most of that paper's released scripts train on conv-43 alone; the paper's text says two, which is followed.
        """
        if self.conversations != _TRAIN | _DEV | _TEST:
            return None
        return set(_TRAIN), set(_DEV), set(_TEST)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.answer` by the rule of the example's category.

        Categories 2, 3 and 4: token F1, in category 3 against the gold up to its first ';'. Category 1: mean over
        the comma-separated golds of the best F1. Category 5: 1 when the answer says that nothing is mentioned.
        Source: LoCoMo, task_eval/evaluation.py. `parts["bleu1"]` is community practice, not in that file.
        """
        answer = str(prediction.get("answer") or "")
        gold = example.answer.split(";")[0].strip() if example.category == "3" else example.answer
        if example.category == "5":
            value = float(any(phrase in answer.lower() for phrase in _REFUSALS))
            feedback = _explain_refusal(value, example.evidence)
        else:
            value = (locomo_multi_f1 if example.category == "1" else locomo_f1)(answer, gold)
            feedback = explain(answer, gold, value, example.evidence, stem=stem)
        return Score(value, feedback, {"f1": value, "bleu1": bleu1(answer, gold)})


def read_locomo(path: Path, note: Note) -> Reading:
    """Reads a file of locomo10.json's form, telling `note` everything that is odd about it.

    A part with a fatal finding is left out if `note` does not raise.

    Raises:
        DataError: The file is no JSON, or JSON of another kind.
    """
    raw = _top(path)
    histories: dict[str, History] = {}
    examples: list[dspy.Example] = []
    for number, sample in enumerate(raw, 1):
        id = sample.get("sample_id")
        if not isinstance(id, str) or not id or id in histories:
            message = f"sample_id {id!r} is used twice or no name such as 'conv-26'"
            note(Finding("bad sample_id", f"conversation {number}", message, fatal=True))
            continue
        histories[id] = _history(id, sample["conversation"], note)
        examples.extend(_examples(histories[id], sample["qa"], note))
    return Reading(tuple(histories.values()), tuple(examples))


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
    if match is None or match[5].lower() not in _MONTHS or not 1 <= int(match[1]) <= 12:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    try:
        return datetime(int(match[6]), _MONTHS.index(match[5].lower()) + 1, int(match[4]), hour, int(match[2]))
    except ValueError:
        return None


def _kept(categories: str | Iterable[str | int] | None) -> frozenset[str]:
    if categories is None:
        return frozenset(CATEGORIES)
    parts = categories.split(",") if isinstance(categories, str) else categories
    kept = frozenset(str(part).strip() for part in parts)
    for category in sorted(kept - CATEGORIES.keys()):
        raise UnknownNameError("LoCoMo category", category, CATEGORIES)
    return kept


def _top(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() == ".zip":
        raise DataError(f"{path}: LoCoMo's first release (a zip of NN.json files) is not read; take {_WANTED}")
    raw = read_json(path)
    if isinstance(raw, dict) and any(_SESSION_KEY.fullmatch(key) for key in raw):
        raise DataError(f"{path}: one conversation of LoCoMo's first release, which has no questions; take {_WANTED}")
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path}: expected a list of conversations, got {reprlib.repr(raw)}; take {_WANTED}")
    for number, sample in enumerate(raw, 1):
        parts = sample if isinstance(sample, dict) else {}
        if not isinstance(parts.get("conversation"), dict) or not isinstance(parts.get("qa"), list):
            raise DataError(f"{path}: entry {number} lacks 'conversation' and 'qa'; take {_WANTED}")
    return raw


def _history(id: str, talk: Mapping[str, Any], note: Note) -> History:
    keys = {int(match[1]): key for key in talk if (match := _SESSION_KEY.fullmatch(key))}
    for key in talk:
        match = _DATE_KEY.fullmatch(key)
        if match and int(match[1]) not in keys:
            note(Finding("date without session", f"{id} {key}", "has no session of its number; passed over"))
    known: set[str] = set()
    sessions = []
    for number in sorted(keys):
        turns = tuple(_turns(talk[keys[number]], f"{id} {keys[number]}", known, note))
        time = _time(talk, keys[number], id, note)
        if turns:
            sessions.append(Session(id=f"D{number}", time=time, turns=turns))
    if not sessions:
        note(Finding("no sessions", id, "holds no turns in any session_N list", fatal=True))
    return History(id=id, items=tuple(sessions))


def _time(talk: Mapping[str, Any], key: str, id: str, note: Note) -> datetime | None:
    where, text = f"{id} {key}_date_time", talk.get(f"{key}_date_time")
    if text is None:
        note(Finding("session without date", where, "is missing; the session stays undated"))
        return None
    time = parse_date(text) if isinstance(text, str) else None
    if time is None:
        note(Finding("malformed date", where, f"{text!r} is not like '1:56 pm on 8 May, 2023'", fatal=True))
    return time


def _turns(raw: Any, where: str, known: set[str], note: Note) -> Iterator[Turn]:
    if not isinstance(raw, list):
        note(Finding("malformed session", where, f"expected a list of turns, got {reprlib.repr(raw)}", fatal=True))
        return
    if not raw:
        note(Finding("empty session", where, "has no turns; passed over"))
    for number, value in enumerate(raw, 1):
        turn = _turn(value)
        if turn is None:
            fault = "must have 'dia_id', 'speaker' and 'text', all of them texts"
            note(Finding("malformed turn", f"{where} turn {number}", fault, fatal=True))
        elif turn.id in known:
            note(Finding("duplicate turn", f"{where} turn {number}", f"dia_id {turn.id!r} is used twice", fatal=True))
        else:
            known.add(turn.id)
            yield turn


def _turn(raw: Any) -> Turn | None:
    raw = raw if isinstance(raw, dict) else {}
    fields = {"id": raw.get("dia_id"), "speaker": raw.get("speaker"), "text": raw.get("text") or ""}
    try:
        return Turn.model_validate({**fields, "caption": raw.get("blip_caption") or None})
    except ValidationError:
        return None


def _examples(history: History, rows: list[Any], note: Note) -> Iterator[dspy.Example]:
    asked: dict[str, str] = {}
    for number, row in enumerate(rows):
        id = f"{history.id}:{number}"
        question = row.get("question") if isinstance(row, dict) else None
        if not isinstance(question, str) or not question.strip():
            note(Finding("missing question", id, "expected an object with a text 'question'", fatal=True))
            continue
        if question in asked:
            note(Finding("duplicate question", id, f"asks the same as {asked[question]}; both are kept"))
        asked.setdefault(question, id)
        category = str(row.get("category"))
        if category not in CATEGORIES:
            note(Finding("unknown category", id, f"category {row.get('category')!r} is not 1 to 5", fatal=True))
            continue
        labels = _labels(row, category, id, note)
        if labels is None:
            continue
        evidence = _evidence(row.get("evidence"), history, id, note)
        example = dspy.Example(
            id=id, history=history, question=question, category=category, focus=evidence, evidence=evidence, **labels
        )
        yield example.with_inputs("history", "question", "focus")


def _labels(row: Mapping[str, Any], category: str, id: str, note: Note) -> dict[str, str] | None:
    answer, trap = row.get("answer"), row.get("adversarial_answer")
    labels = {} if trap is None else {"adversarial_answer": str(trap)}
    if category == "5" and answer is None:
        return {"answer": NOT_MENTIONED, **labels}
    if not isinstance(answer, str | int | float) or not str(answer).strip():
        kind = "missing answer" if answer is None or answer == "" else "malformed answer"
        message = f"answer is {reprlib.repr(answer)}, expected text or a number; add it or delete the row"
        note(Finding(kind, id, message, fatal=True))
        return None
    if not isinstance(answer, str):
        note(Finding("number as answer", id, f"answer {answer!r} is read as the text {str(answer)!r}"))
    if category == "5":
        note(Finding("adversarial answer", id, f"has the gold answer {answer!r}, unlike others of category 5"))
    return {"answer": str(answer), **labels}


def _evidence(raw: Any, history: History, id: str, note: Note) -> tuple[str, ...]:
    texts = [raw] if isinstance(raw, str) else raw if isinstance(raw, list) else []
    if not texts:
        note(Finding("empty evidence", id, f"evidence is {reprlib.repr(raw)}; the question has no recall"))
    for text in texts:
        if not isinstance(text, str) or not _PLAIN_EVIDENCE.fullmatch(text):
            read = evidence_ids([text]) if isinstance(text, str) else ()
            note(Finding("malformed evidence", id, f"{reprlib.repr(text)} is read as {', '.join(read) or 'nothing'}"))
    kept = []
    for turn in evidence_ids(text for text in texts if isinstance(text, str)):
        if turn in history.turns:
            kept.append(turn)
        else:
            note(Finding("dangling evidence", id, f"{turn} is no turn of {history.id}; dropped"))
    return tuple(kept)


def _explain_refusal(value: float, evidence: tuple[str, ...]) -> str:
    if value:
        return "Right: the answer says that the conversation does not mention this."
    seems = f" The answer only seems to be in {named(evidence)}." if evidence else ""
    return f"Wrong: the conversation does not hold the answer; a right answer says it is 'not mentioned'.{seems}"
