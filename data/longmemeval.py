"""LongMemEval: questions about a user's many chats with an assistant (Wu et al., ICLR 2025; MIT).

    longmemeval              all six types, the task "question-answering"
    longmemeval.preference   single-session-preference alone, the task "personal-response"
                             (Mem-PAL, Table 4)

The genuine files are those of the hub sets xiaowu0162/longmemeval-cleaned and
xiaowu0162/longmemeval, whose names alone differ; the reader was checked against `oracle`. The
sample is our own, in the same form. An id with `_abs` in it marks a question whose answer is not in
the sessions. Sessions are put in time order (those of `oracle` are not) and get ids of their own:
the file's ids begin with "answer" where the evidence is.

Source: src/evaluation/evaluate_qa.py, print_qa_metrics.py and src/retrieval/eval_utils.py of
xiaowu0162/LongMemEval.
Limits: every question has a past of its own, so memories are written once per question. An `m` file
takes some gigabytes, unless `limit` or `categories` leaves most out. The released code ranks the
turns of the user alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from math import log2
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

import dspy
from pydantic import Field, model_validator

from ..records import History, Session, Turn, format_time
from ..signatures.judges import (
    ABSTENTION,
    JudgeAbstention,
    JudgePersonal,
    JudgeStated,
    JudgeTimed,
    JudgeUpdated,
    judges_hash,
)
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .field_types import Listed, Text, Words
from .json_list import stream_list
from .judge import JudgeRoles, PromptJudge, Verdict
from .rows import Location, Row
from .scorer import Score, ScoredAnswer, Scorer, answer_of
from .support import SUPPORT, Support
from .text_metrics import explain, squad_f1, squad_words
from .word_splitting import SQUAD, WordSplitter

Type = Literal[
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "temporal-reasoning",
    "knowledge-update",
    "multi-session",
]
TYPES: tuple[str, ...] = get_args(Type)
"""The six types of questions."""
PREFERENCE = "single-session-preference"
_ABSTENTION_MARK = "_abs"
"""Marks the id of a question that cannot be answered from the sessions."""

RETRIEVAL_AT = (5, 10)
"""Numbers of hits at which retrieval is measured."""

REFUSALS = (
    "not mention",
    "n't mention",
    "not mentioned",
    "no information",
    "no mention",
    "not enough information",
    "information is incomplete",
    "information provided is not",
    "don't know",
    "do not know",
    "not specified",
    "cannot be answered",
    "can't be answered",
    "not provided",
    "not known",
    "unknown",
    "no record",
)
"""Phrases that the metric without a judge takes for declining to answer."""


class StatedJudge(PromptJudge):
    """Judges whether an answer contains the gold answer."""

    signature = JudgeStated
    gold_field: ClassVar[str] = "gold_answer"
    """What the prompt calls the text that the answer is compared with."""

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judge one answer, raising what `ask` does."""
        gold = {self.gold_field: gold_answer}
        reply = self.ask(question=question, answer=answer, **gold)
        return Verdict(reply.verdict == "yes")


class TimedJudge(StatedJudge):
    """Judges an answer about time, which may be off by one day, week or month."""

    signature = JudgeTimed


class UpdatedJudge(StatedJudge):
    """Judges an answer about something that changed."""

    signature = JudgeUpdated


class PersonalJudge(StatedJudge):
    """Judges by a rubric whether a response is personalised."""

    signature = JudgePersonal
    gold_field = "rubric"


class AbstentionJudge(StatedJudge):
    """Judges whether an answer sees that a question cannot be answered, which it is told why."""

    signature = JudgeAbstention
    gold_field = "explanation"


JUDGES_BY_TYPE: Mapping[str, type[StatedJudge]] = {
    "single-session-user": StatedJudge,
    "single-session-assistant": StatedJudge,
    "multi-session": StatedJudge,
    "temporal-reasoning": TimedJudge,
    "knowledge-update": UpdatedJudge,
    "single-session-preference": PersonalJudge,
    ABSTENTION: AbstentionJudge,
}
"""The judge of each type of question. ABSTENTION goes before the other types."""


class LongMemEvalJudge:
    """Asks the judge of a question's type.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    def __init__(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None = None) -> None:
        self.lm = lm
        self._judges = {
            question_type: judge_class(lm, adapter)
            for question_type, judge_class in JUDGES_BY_TYPE.items()
        }

    @classmethod
    def prompt_hash(cls) -> str:
        """Return the digest of all five prompts."""
        return judges_hash()

    @property
    def hash(self) -> str:
        """Return the digest of all five prompts."""
        return judges_hash()

    def __call__(self, kind: str, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judge one answer. An empty one is wrong without a call.

        Args:
            kind: The question's type, or `ABSTENTION`.
            question: The question.
            gold_answer: The gold answer, the rubric of a preference, or why there is no answer.
            answer: What was answered.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        return self._judges[kind](question, gold_answer, answer)


class LongMemEvalF1(Scorer):
    """Token F1; a question that cannot be answered scores 1 for a phrase that declines.

    Preferences are reported apart.
    """

    title = "token F1"
    splitter: WordSplitter | None = SQUAD
    retrieval_depth = 200
    part: ClassVar[str] = "f1"
    """The part of a score that the figures of the table are means of."""
    column: ClassVar[str] = "F1"
    """What the names of these figures call it."""

    def in_headline(self, example: dspy.Example) -> bool:
        """Return False for preferences: a good response does not repeat the words of a rubric."""
        return example.category != PREFERENCE or example.abstention

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = self._word_score(example, answer)
        return Score(value, _feedback(example, answer, value), {"f1": value})

    def _word_score(self, example: dspy.Example, answer: str) -> float:
        if example.abstention:
            return float(declines(answer))
        return squad_f1(answer, example.answer)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return three mean values, under the names that the results are reported with.

        The "task-averaged" value is the mean of the means of the question types, "overall" the mean
        over all questions, and "abstention" the mean over the questions that have no answer in the
        history. A failed question counts 0. Types without a question are left out.
        """
        if not rows:
            return {}

        values_by_type: dict[str, list[float]] = {}
        unanswerable_values: list[float] = []
        for row in rows:
            value = row.parts.get(self.part, 0.0)
            values_by_type.setdefault(row.category, []).append(value)
            if _ABSTENTION_MARK in row.id:
                unanswerable_values.append(value)

        all_values = list(chain.from_iterable(values_by_type.values()))
        means_by_type = [_mean(values) for values in values_by_type.values()]
        figures = {
            f"task-averaged {self.column}": _mean(means_by_type),
            f"overall {self.column}": _mean(all_values),
        }
        if unanswerable_values:
            figures[f"abstention {self.column}"] = _mean(unanswerable_values)
        return figures

    def retrieval_metrics(
        self, example: dspy.Example, ranked: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Return recall_any, recall_all and NDCG of the evidence sessions at 5 and 10.

        The released code has a rule for rankings of turns and another for rankings of sessions.
        Hits of anything else, such as facts, are turned into a ranking of sessions. A question that
        cannot be answered has no such metrics.
        """
        if example.abstention or not example.answer_sessions:
            return {}

        session_by_turn = {
            turn_id: session.id for turn_id, (_, session) in example.history.turns.items()
        }
        # The sessions of each hit, best hit first.
        ranked_sessions: list[str] = []
        for sources in ranked:
            sessions_of_hit = [session_by_turn[turn] for turn in sources if turn in session_by_turn]
            ranked_sessions.extend(dict.fromkeys(sessions_of_hit))

        metrics: dict[str, float] = {}
        if _is_ranking_of_turns(ranked):
            # A session is ranked as often as a turn of it was hit.
            sessions_of_turns = list(session_by_turn.values())
            for k in RETRIEVAL_AT:
                metrics.update(
                    turn_retrieval_metrics(
                        ranked_sessions, example.answer_sessions, sessions_of_turns, k
                    )
                )
        else:
            # A session is ranked once, where it was hit first.
            unique_sessions = list(dict.fromkeys(ranked_sessions))
            all_sessions = [session.id for session in example.history]
            for k in RETRIEVAL_AT:
                metrics.update(
                    retrieval_metrics(unique_sessions, example.answer_sessions, all_sessions, k)
                )
        return metrics


class LongMemEvalJudgeScorer(LongMemEvalF1):
    """The official metric: one of five judging prompts for each question, by its type."""

    title = "accuracy"
    splitter = None
    judge_roles: ClassVar[JudgeRoles] = {"judge": LongMemEvalJudge}
    part = "accuracy"
    column = "accuracy"

    def in_headline(self, example: dspy.Example) -> bool:
        """Return True: a judge reads preferences too."""
        return True

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        kind = ABSTENTION if example.abstention else example.category
        verdict: Verdict = self.judge()(kind, example.question, example.answer, answer)
        value = float(verdict.correct)

        parts = {"f1": self._word_score(example, answer), "accuracy": value}
        return Score(value, _feedback(example, answer, value), parts)


class LongMemEvalSupport(Support):
    """Support by SQuAD's words; rubrics of preferences and unanswerable questions stand apart."""

    def __init__(self) -> None:
        super().__init__(SQUAD)

    def in_headline(self, example: dspy.Example) -> bool:
        if example.abstention or example.category == PREFERENCE:
            return False
        return super().in_headline(example)


def _is_ranking_of_turns(ranked: Sequence[Sequence[str]]) -> bool:
    """Return whether every hit rests on one turn, and no two hits on the same turn.

    The second condition excludes rankings of facts, since two facts may come from one turn. Ranked
    as turns, such a turn would count twice, and NDCG could exceed 1.

    Args:
        ranked: The ids of the turns that each hit rests on, best hit first.
    """
    turn_ids: list[str] = []
    for sources in ranked:
        turn_ids.extend(sources)
    has_one_turn_per_hit = len(turn_ids) == len(ranked)
    has_repeated_turns = len(set(turn_ids)) < len(turn_ids)
    return has_one_turn_per_hit and not has_repeated_turns


def dcg(relevances: Sequence[float], k: int) -> float:
    """Return the discounted cumulative gain of the first k ranks.

    As released, the second rank is not discounted: log2(2) is 1.
    """
    gains: list[float] = []
    for rank, relevance in enumerate(relevances[:k], 1):
        discount = log2(rank) if rank > 1 else 1.0
        gains.append(relevance / discount)
    return sum(gains)


def retrieval_metrics(
    ranked_sessions: Sequence[str], gold: Collection[str], all_sessions: Sequence[str], k: int
) -> dict[str, float]:
    """Measure whether the evidence sessions are among the first k of a ranking of sessions.

    Args:
        ranked_sessions: Ids of the sessions that were found, best first.
        gold: Ids of the evidence sessions.
        all_sessions: Ids of the sessions that could have been found.
        k: How many ranks count.

    Returns:
        `recall_any@K` and `recall_all@K`, 1 if one, or all, of the evidence sessions are there, and
        `ndcg@K`.
    """
    return _metrics_of_first(k, k, ranked_sessions, gold, all_sessions)


def turn_retrieval_metrics(
    sessions_of_hits: Sequence[str], gold: Collection[str], sessions_of_turns: Sequence[str], k: int
) -> dict[str, float]:
    """Measure whether the evidence sessions are among the first k sessions of a ranking of turns.

    As many hits count as it takes to reach k different sessions. Every turn of an evidence session
    is relevant for NDCG. Source: `evaluate_retrieval_turn2session` of the released code.

    Args:
        sessions_of_hits: The session of each turn that was found, best first.
        gold: Ids of the evidence sessions.
        sessions_of_turns: The session of every turn that could have been found.
        k: How many different sessions count.

    Returns:
        As `retrieval_metrics`.
    """
    num_hits = _num_hits_for_sessions(sessions_of_hits, k, len(sessions_of_turns))
    return _metrics_of_first(num_hits, k, sessions_of_hits, gold, sessions_of_turns)


def _metrics_of_first(
    num_hits: int, k: int, ranked: Sequence[str], gold: Collection[str], candidates: Sequence[str]
) -> dict[str, float]:
    """Return recall and NDCG of the first `num_hits` of a ranking, under names that end with `k`.

    `candidates` is everything that could have been ranked, in any order.
    """
    gold_ids = set(gold)
    found_ids = set(ranked[:num_hits])

    relevances = [float(session_id in gold_ids) for session_id in ranked]
    best_relevances = [float(session_id in gold_ids) for session_id in candidates]
    best_relevances.sort(reverse=True)
    best_gain = dcg(best_relevances, num_hits)
    return {
        f"recall_any@{k}": float(bool(gold_ids & found_ids)),
        f"recall_all@{k}": float(gold_ids <= found_ids),
        f"ndcg@{k}": dcg(relevances, num_hits) / best_gain if best_gain else 0.0,
    }


def _num_hits_for_sessions(sessions_of_hits: Sequence[str], k: int, num_turns: int) -> int:
    """Return how many hits have to be read, best first, to see k different sessions.

    If all hits together have fewer sessions, the result is larger than the number of turns, so
    that every hit counts.

    Args:
        sessions_of_hits: The session of each hit, best first.
        k: How many different sessions are wanted.
        num_turns: How many turns could have been found.
    """
    session_ids: set[str] = set()
    for num_hits, session_id in enumerate(sessions_of_hits, 1):
        session_ids.add(session_id)
        if len(session_ids) == k:
            return num_hits

    # The loop of the released code counts up from k hits and stops after `num_turns`. So it ends
    # with this number.
    return max(k, num_turns + 1)


def declines(answer: str) -> bool:
    """Return whether an answer states that something is not known."""
    text = " ".join(answer.lower().replace("\u2019", "'").split())
    return any(phrase in text for phrase in REFUSALS)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    """Say what was wrong with an answer, by the kind of its question."""
    if example.abstention:
        if value:
            verdict = "Right: the answer sees that this is not known."
        else:
            verdict = "Wrong: this is not known; say so."
        return f"{verdict} {example.answer}"

    if example.category == PREFERENCE:
        if value >= 1:
            verdict = "Right: the response suits the user."
        else:
            verdict = "The response does not suit the user enough."
        return f"{verdict} {example.answer}"

    return explain(answer, example.answer, value, example.evidence, squad_words)


class _Message(Row):
    """A message of a chat."""

    role: Words = ""
    content: Words = ""
    has_answer: bool = False


class _Question(Row):
    """An entry of the file: a question and the chats before it."""

    question_id: Text
    question_type: Type
    question: Text
    answer: Text
    question_date: Any = None
    haystack_session_ids: tuple[str, ...]
    haystack_dates: tuple[Any, ...]
    haystack_sessions: tuple[tuple[_Message, ...], ...]
    answer_session_ids: Listed[str] = ()

    @property
    def is_unanswerable(self) -> bool:
        """Return whether the chats do not hold the answer."""
        return _ABSTENTION_MARK in self.question_id

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        lengths = {
            len(self.haystack_session_ids),
            len(self.haystack_dates),
            len(self.haystack_sessions),
        }
        if len(lengths) > 1:
            raise ValueError(
                "haystack_session_ids, haystack_dates and haystack_sessions must have one length"
            )
        return self


class _Chat(NamedTuple):
    """A chat of the file."""

    session_id: str
    time: datetime | None
    messages: tuple[_Message, ...]


class _Past(NamedTuple):
    """The chats before a question, as sessions."""

    sessions: list[Session]
    ids_by_name: dict[str, list[str]]
    """Ids of the sessions by the name of the chat in the file, which may be used twice."""
    marked_turn_ids: set[str]
    """The turns that the file marks as evidence."""


class LongMemEval(Benchmark):
    """LongMemEval's question answering."""

    name = "longmemeval"
    sample = "longmemeval.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "judge": LongMemEvalJudgeScorer,
        "f1": LongMemEvalF1,
        SUPPORT: LongMemEvalSupport,
    }
    categories: ClassVar[Mapping[str, str]] = {
        question_type: question_type for question_type in TYPES
    }

    @property
    def has_unanswerable(self) -> bool:
        return any(example.abstention for example in self.examples)

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        categories: Collection[str] | None = None,
        limit: Annotated[int, Field(strict=True, ge=1)] | None = None,
    ) -> Dataset:
        """Read a file.

        Args:
            path: The file: `oracle`, `s` or `m`.
            on_finding: Receives what is wrong in it.
            categories: The types of questions to keep; all when None.
            limit: Most questions of each type, the first ones. Reading ends where all types have
                that many.
        """
        # The types of which further questions are wanted.
        open_types = set(categories or cls.categories)
        num_read: Counter[str] = Counter()
        examples: dict[str, dspy.Example] = {}
        # Questions have chats in common, so equal texts share one object.
        shared_texts: dict[str, str] = {}

        for number, value in enumerate(stream_list(path), 1):
            if not open_types:
                break
            # What is not wanted is not checked either.
            question_type = value.get("question_type") if isinstance(value, dict) else None
            if question_type in TYPES and question_type not in open_types:
                continue

            location = Location(on_finding, f"entry {number}")
            row = location.validate(_Question, value)
            if row is None:
                continue
            past = _read_past(row, location, shared_texts)
            if past is None:
                continue
            example = _read_question(row, past, location)
            if example.id in examples:
                location.reject("duplicate id", f"{example.id!r} is the id of two questions")
                continue

            examples[example.id] = example
            num_read[row.question_type] += 1
            if num_read[row.question_type] == limit:
                open_types.remove(row.question_type)

        histories = tuple(example.history for example in examples.values())
        return Dataset(histories, tuple(examples.values()))


class LongMemEvalPreference(LongMemEval):
    """The questions about preferences, as requests for a response that suits the user."""

    name = "longmemeval.preference"
    task = "personal-response"
    # Not support: the gold answer is a rubric, and no memory holds its words.
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "judge": LongMemEvalJudgeScorer,
        "f1": LongMemEvalF1,
    }
    categories: ClassVar[Mapping[str, str]] = {PREFERENCE: PREFERENCE}


def parse_date(text: Any) -> datetime | None:
    """Return the moment of a date like `2023/04/10 (Mon) 23:07`; None for anything else."""
    words = str(text).split()
    has_weekday = len(words) == 3 and words[1].startswith("(")
    if has_weekday:
        del words[1]
    try:
        return datetime.strptime(" ".join(words), "%Y/%m/%d %H:%M")
    except ValueError:
        return None


def _read_past(row: _Question, location: Location, shared_texts: dict[str, str]) -> _Past | None:
    """Return the sessions before a question.

    A question that has no session with words is reported, and None is returned.

    Args:
        row: The entry of the file.
        location: Where the entry stands.
        shared_texts: A copy of each text that was read so far, by the text itself. The chats of
            different questions overlap, and an equal text is kept in memory once.
    """
    past = _Past(sessions=[], ids_by_name={}, marked_turn_ids=set())
    for number, chat in enumerate(_chats_in_order(row, location), 1):
        session_id = f"D{number}"
        turns: list[Turn] = []
        for position, message in enumerate(chat.messages, 1):
            if not message.content:
                continue
            turn_id = f"{session_id}:{position}"
            text = shared_texts.setdefault(message.content, message.content)
            turns.append(Turn(id=turn_id, speaker=message.role or "user", text=text))
            if message.has_answer:
                past.marked_turn_ids.add(turn_id)

        if not turns:
            problem = f"session {chat.session_id} has no words; passed over"
            location.warn("empty session", problem)
            continue
        past.sessions.append(Session(id=session_id, time=chat.time, turns=tuple(turns)))
        past.ids_by_name.setdefault(chat.session_id, []).append(session_id)

    if not past.sessions:
        location.reject("no sessions", "holds no session with words")
        return None
    return past


def _chats_in_order(row: _Question, location: Location) -> list[_Chat]:
    """Return the chats of a row by time; report those without a date.

    Chats of one time stay in the order of the file. An undated chat stays behind the chat that
    precedes it in the file.
    """
    columns = zip(row.haystack_session_ids, row.haystack_dates, row.haystack_sessions, strict=True)
    timed_chats: list[tuple[datetime, _Chat]] = []
    # An undated chat is sorted by the last date before it in the file.
    sort_time = datetime.min
    for number, (session_id, date, messages) in enumerate(columns):
        time = parse_date(date)
        if time is None:
            problem = f"{date!r} is no date; it stays undated"
            location.field(f"haystack_dates.{number}").warn("malformed date", problem)
        else:
            sort_time = time
        timed_chats.append((sort_time, _Chat(session_id, time, messages)))

    timed_chats.sort(key=lambda timed_chat: timed_chat[0])
    return [chat for _, chat in timed_chats]


def _read_question(row: _Question, past: _Past, location: Location) -> dspy.Example:
    """Return the example of a row; report what is wrong with its date and its evidence."""
    asked_at = parse_date(row.question_date)
    if asked_at is None:
        problem = f"{row.question_date!r} is passed over"
        location.field("question_date").warn("malformed date", problem)

    answer_sessions = _read_answer_sessions(row, past, location)
    evidence = _evidence_turns(row, past, answer_sessions)
    return dspy.Example(
        id=row.question_id,
        history=History(id=row.question_id, items=tuple(past.sessions)),
        question=row.question,
        date=format_time(asked_at) if asked_at else "",
        evidence_ids=evidence,
        answer=row.answer,
        category=row.question_type,
        evidence=evidence,
        answer_sessions=answer_sessions,
        abstention=row.is_unanswerable,
    ).with_inputs("history", "question", "date", "evidence_ids")


def _read_answer_sessions(row: _Question, past: _Past, location: Location) -> tuple[str, ...]:
    """Return the ids of the evidence sessions; report names that no session has."""
    session_ids: list[str] = []
    for name in row.answer_session_ids:
        session_ids.extend(past.ids_by_name.get(name, ()))

    unknown_names = set(row.answer_session_ids) - past.ids_by_name.keys()
    if not row.is_unanswerable and (not session_ids or unknown_names):
        problem = "names no session, or one that is not there"
        location.field("answer_session_ids").warn("dangling evidence", problem)
    return tuple(dict.fromkeys(session_ids))


def _evidence_turns(row: _Question, past: _Past, answer_sessions: Sequence[str]) -> tuple[str, ...]:
    """Return the marked turns of the evidence sessions, or all of their turns if none is marked."""
    if row.is_unanswerable:
        return ()
    turn_ids: list[str] = []
    for session in past.sessions:
        if session.id in answer_sessions:
            turn_ids.extend(turn.id for turn in session.turns)

    marked_ids = [turn_id for turn_id in turn_ids if turn_id in past.marked_turn_ids]
    return tuple(marked_ids or turn_ids)
