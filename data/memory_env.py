"""memory-env: a generated benchmark whose answers need facts to be kept up to date.

Two speakers state, change, restate and retract facts over some sessions. There is no file: users
follow from a seed. A fact that is new, one that changed and one that is said again use the same
sentences, so what is to be done with it depends on the memory alone. The world is small, so that a
model of half a million weights learns it: scores, by exact match, compare trainings alone.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypedDict

import dspy
from pydantic import Field

from ..errors import DataError
from ..records import History, Session, Turn
from .benchmark import Benchmark
from .dataset import Source
from .load_options import coerce_options
from .scorer import Score, Scorer, answer_of
from .support import SUPPORT, Support
from .text_metrics import exact_match
from .word_splitting import SQUAD

Kind = Literal["state", "change", "restate", "retract"]
"""What was done to a fact."""


class _Words(TypedDict):
    """The content of `memory_env.json`."""

    names: list[str]
    statements: list[str]
    retractions: list[str]
    chatter: list[str]
    values: dict[str, list[str]]


_WORDS: _Words = json.loads(Path(__file__).with_name("memory_env.json").read_text(encoding="utf-8"))
NAMES = _WORDS["names"]
STATEMENTS = _WORDS["statements"]
"""Sentences that state a fact, with gaps for its key and its value."""
RETRACTIONS = _WORDS["retractions"]
"""Sentences that retract a fact, with a gap for its key."""
CHATTER = _WORDS["chatter"]
"""Sentences that say no fact."""
VALUES: Mapping[str, Sequence[str]] = _WORDS["values"]
"""The keys of facts and their values; no word is used for two keys."""
NOTHING = "none"
"""The answer of a question about a fact that was retracted, and what is noted of one."""
MIXTURE: Mapping[str, float] = {
    "state": 0.34,
    "change": 0.30,
    "restate": 0.10,
    "retract": 0.14,
    "chatter": 0.12,
}
"""Probability of each kind of utterance, if the history allows it."""
UTTERANCES = 2
"""Utterances per session, one by each speaker."""
QUESTION = "What is {speaker}'s {key}?"
"""The question about a fact."""


class FactName(NamedTuple):
    """What a fact is about: a speaker's colour, city and so on."""

    speaker: str
    key: str


@dataclass(frozen=True)
class Event:
    """What one utterance does to the facts."""

    turn_id: str
    session: int
    """Counted from 1."""
    speaker: str
    key: str
    value: str | None
    """None where the fact is retracted."""
    kind: Kind

    @property
    def fact_name(self) -> FactName:
        """Return which fact the utterance is about."""
        return FactName(self.speaker, self.key)


class _FactState(NamedTuple):
    """A fact at some moment."""

    last_event: Event
    evidence: list[str]
    """The turn that changed the fact last, and those that said it again since."""


@dataclass(frozen=True)
class Conversation:
    """What two speakers said, and what it means."""

    history: History
    events: tuple[Event, ...]

    @classmethod
    def make(cls, seed: int, number: int, sessions: int) -> Conversation:
        """Make a conversation.

        Args:
            seed: Chooses the world. Conversations of one seed and different numbers are
                independent.
            number: Which conversation.
            sessions: How many sessions it has. A longer one begins as the shorter one does.
        """
        rng = random.Random(f"memory-env {seed} {number}")
        # Every speaker says one utterance per session.
        num_speakers = UTTERANCES
        speakers = rng.sample(NAMES, num_speakers)
        writer = _ConversationWriter(rng)

        items: list[Session] = []
        for session in range(1, sessions + 1):
            turns = [
                writer.write_turn(session, position, speaker)
                for position, speaker in enumerate(speakers, 1)
            ]
            items.append(Session(id=f"D{session}", turns=tuple(turns)))
        history = History(id=f"world{seed}-{number}", items=tuple(items))
        return cls(history, tuple(writer.events))

    def questions(self, after: int | None = None) -> tuple[dspy.Example, ...]:
        """Return a question about every fact that was stated, those included that were retracted.

        Args:
            after: How many sessions come before the questions. The history ends with them, and the
                gold answers are what is true at that point. None stands for all sessions.
        """
        history = self.history
        id_suffix = ""
        if after is not None:
            history = History(id=self.history.id, items=self.history.items[:after])
            id_suffix = f"@{after}"

        examples: list[dspy.Example] = []
        for number, state in enumerate(self._fact_states(after)):
            event = state.last_event
            # A retraction has no value; then the right answer is that nothing is known.
            answer = NOTHING if event.value is None else event.value
            evidence = tuple(state.evidence)
            example = dspy.Example(
                history=history,
                question=QUESTION.format(speaker=event.speaker, key=event.key),
                evidence_ids=evidence,
                answer=answer,
                evidence=evidence,
                category=event.kind,
                id=f"{history.id}{id_suffix}:{number}",
            )
            examples.append(example.with_inputs("history", "question", "evidence_ids"))
        return tuple(examples)

    def _fact_states(self, after: int | None) -> list[_FactState]:
        """Return the state of every fact after some sessions, or after all if `after` is None.

        The facts are in the order in which they were stated first. A retracted fact stays: a
        question about it has the answer "none".
        """
        states: dict[FactName, _FactState] = {}
        for event in self.events:
            if after is not None and event.session > after:
                continue
            evidence = [event.turn_id]
            if event.kind == "restate":
                # The value is still the old one, so earlier turns prove it as well.
                evidence = [*states[event.fact_name].evidence, event.turn_id]
            states[event.fact_name] = _FactState(event, evidence)
        return list(states.values())


def vocabulary() -> Iterator[str]:
    """Yield every word that the world's sentences, notes and questions can hold."""
    # Without the speaker and the key: "What", "is", "'s" and "?".
    question_words = QUESTION.format(speaker="", key=" ")
    for text in (*NAMES, *STATEMENTS, *RETRACTIONS, *CHATTER, question_words, NOTHING):
        for word in text.split():
            is_gap = word.startswith("{")
            if not is_gap:
                yield word
    for key, values in VALUES.items():
        yield key
        yield from values


class _ConversationWriter:
    """Draws what two speakers say, and remembers the facts.

    Args:
        rng: The order of its draws decides what a seed means.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._facts: dict[FactName, str | None] = {}
        """The value of every fact that was stated; None where it was retracted."""
        self.events: list[Event] = []

    def write_turn(self, session: int, position: int, speaker: str) -> Turn:
        """Draw what a speaker says next.

        An utterance about a fact is added to `events`, and the fact's value is updated.
        """
        turn_id = f"D{session}:{position}"
        drawn_kind = self._rng.choices(list(MIXTURE), list(MIXTURE.values()))[0]
        if drawn_kind == "chatter":
            return Turn(id=turn_id, speaker=speaker, text=self._rng.choice(CHATTER))

        # The keys of the speaker's facts that have a value now. Retracted ones have none.
        known_keys = [key for key in VALUES if self._facts.get(FactName(speaker, key)) is not None]
        unknown_keys = [key for key in VALUES if key not in known_keys]

        # What was drawn may be impossible, such as a change before any fact was stated.
        kind = _possible_kind(drawn_kind, known_keys, unknown_keys)
        key = self._rng.choice(unknown_keys if kind == "state" else known_keys)
        old_value = self._facts.get(FactName(speaker, key))

        if kind == "retract":
            new_value = None
            text = self._rng.choice(RETRACTIONS).format(key=key)
        else:
            new_value = old_value if kind == "restate" else self._draw_value(key, old_value)
            text = self._rng.choice(STATEMENTS).format(key=key, value=new_value)

        event = Event(turn_id, session, speaker, key, new_value, kind)
        self.events.append(event)
        self._facts[event.fact_name] = new_value
        return Turn(id=turn_id, speaker=speaker, text=text)

    def _draw_value(self, key: str, old_value: str | None) -> str:
        """Draw a value that differs from the old one."""
        return self._rng.choice([value for value in VALUES[key] if value != old_value])


def _possible_kind(drawn_kind: str, known_keys: Sequence[str], unknown_keys: Sequence[str]) -> Kind:
    """Return the kind of utterance that was drawn, or another kind if that one is impossible.

    Only a key without a value can be stated for the first time. Only a key with a value can be
    changed, restated or retracted.

    Args:
        drawn_kind: The kind that was drawn.
        known_keys: The keys that have a value.
        unknown_keys: The keys that have none.
    """
    if drawn_kind == "state":
        return "state" if unknown_keys else "change"

    if not known_keys:
        return "state"
    if drawn_kind == "restate":
        return "restate"
    if drawn_kind == "retract":
        return "retract"
    return "change"


class WordMatch(Scorer):
    """1 where the answer has the words of the gold answer, else 0."""

    title = "exact match"
    splitter = SQUAD

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = exact_match(answer, example.answer)
        if value:
            feedback = "Right."
        else:
            turn_ids = ", ".join(example.evidence)
            feedback = f"Wrong: {answer!r} instead of {example.answer!r}, as {turn_ids} says."
        return Score(value, feedback, {"em": value})


class MemoryEnvSupport(Support):
    """Support by SQuAD's words; a fact that was retracted has no words that could be recalled."""

    def __init__(self) -> None:
        super().__init__(SQUAD)

    def in_headline(self, example: dspy.Example) -> bool:
        return example.answer != NOTHING and super().in_headline(example)


class MemoryEnv(Benchmark):
    """Questions about what two speakers said last of themselves.

    Args:
        conversations: The generated users.
        source: Names seed and sizes.
        metric: One of `metrics`; the first if None.
    """

    name = "memory-env"
    task = "memory-lookup"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "exact": WordMatch,
        SUPPORT: MemoryEnvSupport,
    }
    generated: ClassVar[bool] = True

    def __init__(
        self, conversations: Sequence[Conversation], source: Source, metric: str | None = None
    ) -> None:
        self.talks = {talk.history.id: talk for talk in conversations}
        examples: list[dspy.Example] = []
        for conversation in conversations:
            examples.extend(conversation.questions())
        super().__init__(examples, source, metric)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        users: Annotated[int, Field(ge=10, le=10_000)] = 160,
        sessions: Annotated[int, Field(ge=1, le=32)] = 8,
        seed: Annotated[int, Field(ge=0, le=2**31)] = 0,
        **options: Any,
    ) -> MemoryEnv:
        """Generate the benchmark.

        Args:
            path: Must be None: there is no file.
            metric: One of `metrics`; the first if None.
            users: How many users. Of every ten, six are for training, one is for development and
                three are for testing.
            sessions: Sessions per user. More sessions continue the same histories.
            seed: Chooses the users.
            **options: Refused. They are accepted so that the error can name them.

        Raises:
            DataError: A path was given.
            UnknownNameError: There is no such option or metric.
            UserError: An option is no whole number, or out of range.
        """
        cls.refuse_options(options, ("metric", "users", "sessions", "seed"))
        if metric is not None:
            cls.make_scorer(metric)
        if path is not None:
            raise DataError(f"{path}: memory-env is generated and reads no file; leave --data out")
        # Checks the ranges, too, and reads numbers that are texts.
        numbers = coerce_options(
            cls.name, cls.load, {"users": users, "sessions": sessions, "seed": seed}
        )

        conversations: list[Conversation] = []
        for number in range(numbers["users"]):
            conversations.append(Conversation.make(numbers["seed"], number, numbers["sessions"]))

        digests = [conversation.history.digest for conversation in conversations]
        sha256 = hashlib.sha256("".join(digests).encode()).hexdigest()
        settings = ", ".join(f"{name}={number}" for name, number in numbers.items())
        source = Source(f"memory-env({settings})", sha256, sample=True)
        return cls(conversations, source, metric)

    def fixed_split(self) -> tuple[set[str], set[str], set[str]]:
        """Return the users of each part: of every ten, six, one and three."""
        train: set[str] = set()
        dev: set[str] = set()
        test: set[str] = set()
        for number, user in enumerate(self.talks):
            position_in_ten = number % 10
            if position_in_ten < 6:
                train.add(user)
            elif position_in_ten == 6:
                dev.add(user)
            else:
                test.add(user)
        return train, dev, test

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example] = ()
    ) -> tuple[dspy.Example, ...]:
        """Return the questions that can be asked after the first sessions of a history.

        `Benchmark.questions_after` selects from `examples`, whose answers are those after all
        sessions. Here a fact may change later, so the questions are made anew with the answers of
        that moment, and `examples` is not used. Their ids name the moment.

        Args:
            history: The history of one of the generated users.
            sessions: How many sessions of it are over.
            examples: Not used.
        """
        conversation = self.talks[history.id]
        return conversation.questions(sessions)
