"""A synthetic world for learning to keep a memory: two speakers state, change, restate and retract facts over sessions.

    person(seed, n) ── sessions of two utterances ──> Conversation ── state after t sessions ──> questions

There are six subjects with ten values each. A fact that is new, one that changed and one that is said again use the
same sentences, so what is to be done with it depends on the memory alone. Nothing here asks a model: everything follows
from the seed, and the right answer of every question is known after every session.

Example:
    >>> from mempiler.data.synthesis.memory_env import Conversation
    >>> talk = Conversation.make(seed=0, number=3, sessions=8)
    >>> talk.history.items[0].turns[0].text
    'my sport is golf'
    >>> ask = talk.questions(after=1)[0]
    >>> ask.answer, ask.kind
    ('golf', 'state')

Limits: a sentence holds one fact, facts do not depend on one another, and wording hardly varies. It is made to
be learned by a model of half a million weights in minutes and shows nothing about real conversations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ...records import History, Session, Turn

Kind = Literal["state", "change", "restate", "retract"]
"""What was done to a fact."""

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo")
VALUES: Mapping[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "yellow", "purple", "orange", "black", "white", "pink", "grey"),
    "pet": ("cat", "dog", "parrot", "rabbit", "hamster", "turtle", "pony", "goat", "lizard", "ferret"),
    "drink": ("tea", "coffee", "milk", "juice", "water", "cocoa", "cider", "lemonade", "cola", "soda"),
    "sport": ("tennis", "chess", "golf", "rugby", "judo", "rowing", "hockey", "boxing", "skiing", "polo"),
    "city": ("Paris", "Rome", "Lima", "Oslo", "Cairo", "Tokyo", "Delhi", "Porto", "Sofia", "Quito"),
    "dish": ("pizza", "soup", "curry", "salad", "pasta", "sushi", "stew", "rice", "tacos", "pie"),
}
"""Subjects and what can be said of them; no word is used for two subjects."""
STATEMENTS = ("my {key} is {value}", "I picked {value} as my {key}", "these days my {key} is {value}")
RETRACTIONS = ("I have no {key} any more", "forget about my {key}")
CHATTER = ("how was your day", "that sounds nice", "see you soon", "what a long week", "good to hear from you")
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
class Ask:
    """A question about the state after some session."""

    speaker: str
    key: str
    answer: str
    kind: Kind
    evidence: tuple[str, ...]
    """Ids of the turns that decide it: the last that changed the fact, and those that said it again since."""

    @property
    def question(self) -> str:
        """The question in words."""
        return f"What is {self.speaker}'s {self.key}?"


@dataclass(frozen=True)
class Conversation:
    """What two speakers said, and what it means."""

    history: History
    events: tuple[Event, ...]

    @classmethod
    def make(cls, seed: int, number: int, sessions: int, utterances: int = UTTERANCES) -> Conversation:
        """Makes a conversation.

        Args:
            seed: Chooses the world; conversations of one seed and different numbers are independent.
            number: Which conversation.
            sessions: How many sessions it has; a longer one begins as the shorter one does.
            utterances: How many a session has; the speakers take turns.
        """
        rng = random.Random(f"memory-env {seed} {number}")
        speakers, events, items = rng.sample(NAMES, 2), [], []
        known: dict[tuple[str, str], str | None] = {}
        for session in range(1, sessions + 1):
            turns = []
            for n in range(1, utterances + 1):
                turn_id, speaker = f"D{session}:{n}", speakers[((session - 1) * utterances + n - 1) % 2]
                event, text = _utterance(rng, known, turn_id, session, speaker)
                turns.append(Turn(id=turn_id, speaker=speaker, text=text))
                if event is not None:
                    events.append(event)
                    known[event.speaker, event.key] = event.value
            items.append(Session(id=f"D{session}", turns=tuple(turns)))
        return cls(History(id=f"world{seed}-{number}", items=tuple(items)), tuple(events))

    def questions(self, after: int | None = None) -> tuple[Ask, ...]:
        """One question for every fact that was ever stated, with its answer after some session.

        Args:
            after: After how many sessions; None for all.
        """
        decided: dict[tuple[str, str], Ask] = {}
        for event in self.events:
            if after is not None and event.session > after:
                break
            pair, before = (event.speaker, event.key), decided.get((event.speaker, event.key))
            earlier = before.evidence if before is not None and event.kind == "restate" else ()
            answer = NOTHING if event.value is None else event.value
            decided[pair] = Ask(event.speaker, event.key, answer, event.kind, (*earlier, event.turn_id))
        return tuple(decided.values())


def vocabulary() -> Iterator[str]:
    """Every word that the world's sentences, notes and questions can hold."""
    for text in (*NAMES, *STATEMENTS, *RETRACTIONS, *CHATTER, "What is 's ?", NOTHING):
        yield from (word for word in text.split() if not word.startswith("{"))
    for key, values in VALUES.items():
        yield from (key, *values)


def note(speaker: str, key: str, value: str | None) -> str:
    """A fact as the demonstrations write it down: subject, what about it, value."""
    return f"{speaker} {key} {NOTHING if value is None else value}"


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
