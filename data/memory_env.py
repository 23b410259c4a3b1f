"""memory-env: a generated benchmark whose answers need facts to be kept up to date, scored by exact match.

Two speakers state, change, restate and retract facts over some sessions. There is no file: users follow from a seed. A
fact that is new, one that changed and one that is said again use the same sentences, so what is to be done with it
depends on the memory alone. Small, so that a model of half a million weights learns it: scores compare trainings alone.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import dspy
from pydantic import Field

from ..errors import DataError
from ..records import History, Session, Turn
from .benchmark import Benchmark
from .dataset import Source
from .load_options import coerce_options
from .scorer import Score, Scorer, answer_of
from .text_metrics import exact_match
from .word_splitting import SQUAD

Kind = Literal["state", "change", "restate", "retract"]
"""What was done to a fact."""
_WORDS = json.loads(Path(__file__).with_name("memory_env.json").read_text(encoding="utf-8"))
NAMES, STATEMENTS, RETRACTIONS, CHATTER = (_WORDS[part] for part in ("names", "statements", "retractions", "chatter"))
VALUES: Mapping[str, Sequence[str]] = _WORDS["values"]
"""Subjects and what can be said of them; no word is used for two subjects."""
NOTHING = "none"
"""The answer of a question about a fact that was retracted, and what is noted of one."""
MIXTURE: Mapping[str, float] = {"state": 0.34, "change": 0.30, "restate": 0.10, "retract": 0.14, "chatter": 0.12}
"""Probability of each kind of utterance, if the history allows it."""
UTTERANCES = 2
"""Utterances per session, one by each speaker."""


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


@dataclass(frozen=True)
class Conversation:
    """What two speakers said, and what it means."""

    history: History
    events: tuple[Event, ...]

    @classmethod
    def make(cls, seed: int, number: int, sessions: int) -> Conversation:
        """Makes a conversation.

        Args:
            seed: Chooses the world; conversations of one seed and different numbers are independent.
            number: Which conversation.
            sessions: How many sessions it has; a longer one begins as the shorter one does.
        """
        rng = random.Random(f"memory-env {seed} {number}")
        speakers, events, items = rng.sample(NAMES, UTTERANCES), [], []
        known: dict[tuple[str, str], str | None] = {}
        for session in range(1, sessions + 1):
            turns = []
            for n, speaker in enumerate(speakers, 1):
                event, text = _utterance(rng, known, f"D{session}:{n}", session, speaker)
                turns.append(Turn(id=f"D{session}:{n}", speaker=speaker, text=text))
                if event is not None:
                    events.append(event)
                    known[event.speaker, event.key] = event.value
            items.append(Session(id=f"D{session}", turns=tuple(turns)))
        return cls(History(id=f"world{seed}-{number}", items=tuple(items)), tuple(events))

    def questions(self, after: int | None = None) -> tuple[dspy.Example, ...]:
        """One question for every fact that was ever stated, with the answer of that moment.

        Args:
            after: After how many sessions, which alone are the history then; None for all.
        """
        head = self.history if after is None else History(id=self.history.id, items=self.history.items[:after])
        moment = "" if after is None else f"@{after}"
        decided: dict[tuple[str, str], tuple[Event, tuple[str, ...]]] = {}
        for event in self.events:
            if after is None or event.session <= after:
                # The turns that decide: the last that changed the fact, and those that said it again since.
                earlier = decided[event.speaker, event.key][1] if event.kind == "restate" else ()
                decided[event.speaker, event.key] = event, (*earlier, event.turn_id)
        return tuple(
            dspy.Example(
                history=head,
                question=f"What is {event.speaker}'s {event.key}?",
                evidence_ids=evidence,
                answer=NOTHING if event.value is None else event.value,
                evidence=evidence,
                category=event.kind,
                id=f"{head.id}{moment}:{n}",
            ).with_inputs("history", "question", "evidence_ids")
            for n, (event, evidence) in enumerate(decided.values())
        )


def vocabulary() -> Iterator[str]:
    """Every word that the world's sentences, notes and questions can hold."""
    for text in (*NAMES, *STATEMENTS, *RETRACTIONS, *CHATTER, "What is 's ?", NOTHING):
        yield from (word for word in text.split() if not word.startswith("{"))
    for key, values in VALUES.items():
        yield from (key, *values)


def _utterance(
    rng: random.Random, known: Mapping[tuple[str, str], str | None], turn_id: str, session: int, speaker: str
) -> tuple[Event | None, str]:
    """An utterance of a drawn kind; one that the history does not allow becomes a statement."""
    kind = rng.choices(list(MIXTURE), list(MIXTURE.values()))[0]
    if kind == "chatter":
        return None, rng.choice(CHATTER)
    held = [key for key in VALUES if known.get((speaker, key)) is not None]
    free = [key for key in VALUES if key not in held]
    if (kind == "state" and not free) or (kind != "state" and not held):
        kind = "change" if held else "state"
    key = rng.choice(free if kind == "state" else held)
    now = known.get((speaker, key))
    if kind == "retract":
        return Event(turn_id, session, speaker, key, None, kind), rng.choice(RETRACTIONS).format(key=key)
    value = now if kind == "restate" and now else rng.choice([value for value in VALUES[key] if value != now])
    said: Kind = "restate" if kind == "restate" else "change" if kind == "change" else "state"
    return Event(turn_id, session, speaker, key, value, said), rng.choice(STATEMENTS).format(key=key, value=value)


class WordMatch(Scorer):
    """1 where the answer has the words of the gold answer, else 0."""

    title = "exact match"
    splitter = SQUAD

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = exact_match(answer, example.answer)
        told = ", ".join(example.evidence)
        feedback = "Right." if value else f"Wrong: {answer!r} instead of {example.answer!r}, as {told} says."
        return Score(value, feedback, {"em": value})


class MemoryEnv(Benchmark):
    """Questions about what two speakers said last of themselves.

    Args:
        conversations: The generated users.
        source: Names seed and sizes.
    """

    name = "memory-env"
    task = "memory-lookup"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"exact": WordMatch}
    generated: ClassVar[bool] = True

    def __init__(self, conversations: Sequence[Conversation], source: Source) -> None:
        self.talks = {talk.history.id: talk for talk in conversations}
        super().__init__([each for talk in conversations for each in talk.questions()], source)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        users: Annotated[int, Field(ge=10, le=10_000)] = 160,
        sessions: Annotated[int, Field(ge=1, le=32)] = 8,
        seed: Annotated[int, Field(ge=0, le=2**31)] = 0,
        **options: Any,
    ) -> MemoryEnv:
        """Generates the benchmark.

        Args:
            path: Not taken: there is no file.
            users: How many users; of ten, six are train, one dev, three test.
            sessions: Sessions per user. More sessions continue the same histories.
            seed: Chooses the users.
            **options: None are known; any is refused.

        Raises:
            DataError: A path was given.
            UnknownNameError: An option that does not exist.
            UserError: A number is none, or out of range.
        """
        cls.refuse_options(options, ("users", "sessions", "seed"))
        if path is not None:
            raise DataError(f"{path}: memory-env is generated and reads no file; leave --data out")
        given = coerce_options(cls.name, cls.load, {"users": users, "sessions": sessions, "seed": seed})
        users, sessions, seed = given.values()
        talks = [Conversation.make(seed, number, sessions) for number in range(users)]
        digest = hashlib.sha256("".join(talk.history.digest for talk in talks).encode()).hexdigest()
        name = f"memory-env(users={users}, sessions={sessions}, seed={seed})"
        return cls(talks, Source(name, digest, sample=True))

    def fixed_split(self) -> tuple[set[str], set[str], set[str]]:
        """Of every ten users the first six are train, the seventh dev, the others test."""
        parts: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        for number, id in enumerate(self.talks):
            parts[(0, 0, 0, 0, 0, 0, 1, 2, 2, 2)[number % 10]].add(id)
        return parts

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example] = ()
    ) -> tuple[dspy.Example, ...]:
        """As `Benchmark.questions_after`; what is asked differs from moment to moment, and ids tell the moment."""
        return self.talks[history.id].questions(sessions)
