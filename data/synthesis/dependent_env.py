"""A synthetic world whose later facts depend on earlier ones: plans that come true, facts that are like another's.

    D2 my plan is cat as my pet          noted, asked for by no question yet
    D5 my pet is now as planned          decides Ada's pet: nobody can answer it who did not note the plan in D2
    D7 now I have the same pet as Ada    decides Ben's pet: wrong wherever Ada's was
    D8 these days my pet is goat         no question is about Ada's pet of D5 any more, but Ben's is still wrong

Beside what is said in the world of independent facts (`memory_env`) a speaker can make a plan, replace or drop it, have
a subject go as planned, and take over what is known of the other one. A speaker has one plan at a time; it stays until
it is replaced or dropped. "As planned" changes nothing where the plan was dropped.

The evidence of a question is the last turn that decides it, as in the other world and in LoCoMo's annotations: the plan
and the fact it was copied from are none. So an edit that is wrong for the memory of session 2 can make questions wrong
that count for session 7 alone. Two kinds of errors: those about a fact show in the questions right after the session;
those about a plan show in none until it comes true.

Example:
    >>> from mempiler.data.synthesis.dependent_env import make
    >>> talk = make(seed=0, number=0, sessions=8)
    >>> sorted({event.kind for event in talk.events} - {"state", "change", "restate", "retract"})
    ['like', 'planned']

Limits: those of `memory_env`, but for the dependence.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...records import History, Session, Turn
from .memory_env import CHATTER, NAMES, NOTHING, RETRACTIONS, STATEMENTS, UTTERANCES, VALUES, Conversation, Event, Kind
from .memory_env import vocabulary as plain_vocabulary

PLANS = ("my plan is {value} as my {key}", "I plan on {value} as my {key}")
DROPS = ("I have no plan any more", "forget about my plan")
FULFILMENTS = ("my {key} is now as planned", "these days my {key} is as planned")
LIKENESSES = ("now I have the same {key} as {other}", "my {key} is the same as that of {other}")
PLAN, LIKE = "plan", "like"
"""What stands for a plan and for a likeness in notes and facts."""
MIXTURE: Mapping[str, float] = {
    "state": 0.20,
    "change": 0.08,
    "restate": 0.03,
    "retract": 0.06,
    "plan": 0.24,
    "replan": 0.05,
    "drop": 0.04,
    "planned": 0.32,
    "like": 0.14,
    "chatter": 0.03,
}
"""Weight of each kind of utterance, among those that the history allows."""


@dataclass
class Known:
    """What is so at some moment."""

    facts: dict[tuple[str, str], str] = field(default_factory=dict)
    plans: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """Subject and value that a speaker plans; None once the plan was dropped."""

    def take(self, event: Event) -> None:
        """Changes a fact."""
        if event.value is None:
            self.facts.pop((event.speaker, event.key), None)
        else:
            self.facts[event.speaker, event.key] = event.value


def make(seed: int, number: int, sessions: int, utterances: int = UTTERANCES) -> Conversation:
    """Makes a conversation of this world; its events are what decides facts, plans left out.

    Args:
        seed: Chooses the world; conversations of one seed and different numbers are independent.
        number: Which conversation.
        sessions: How many sessions it has; a longer one begins as the shorter one does.
        utterances: How many a session has; the speakers take turns.
    """
    rng = random.Random(f"memory-env dependent {seed} {number}")
    speakers, known = rng.sample(NAMES, 2), Known()
    events, items = [], []
    for session in range(1, sessions + 1):
        turns = []
        for n in range(1, utterances + 1):
            turn_id, at = f"D{session}:{n}", ((session - 1) * utterances + n - 1) % 2
            said = _Utterance(rng, known, speakers[at], speakers[1 - at], turn_id, session)
            turns.append(Turn(id=turn_id, speaker=speakers[at], text=said.text))
            if said.event is not None:
                events.append(said.event)
                known.take(said.event)
        items.append(Session(id=f"D{session}", turns=tuple(turns)))
    return Conversation(History(id=f"dependent{seed}-{number}", items=tuple(items)), tuple(events))


def vocabulary() -> Iterator[str]:
    """Every word that the world's sentences, notes and questions can hold."""
    yield from plain_vocabulary()
    yield from (PLAN, LIKE)
    for text in (*PLANS, *DROPS, *FULFILMENTS, *LIKENESSES):
        yield from (word for word in text.split() if not word.startswith("{"))


def plan_note(speaker: str, value: str | None) -> str:
    """A plan as it is written down: without its subject, so that it answers no question."""
    return f"{speaker} {PLAN} {NOTHING if value is None else value}"


class _Utterance:
    """One utterance of a drawn kind, among those that the history allows: its words, and what it does to a fact."""

    def __init__(self, rng: random.Random, known: Known, speaker: str, other: str, turn_id: str, session: int) -> None:
        self._rng, self._known, self._speaker, self._other = rng, known, speaker, other
        self._at = turn_id, session
        self.event: Event | None = None
        allowed = {kind: keys for kind, keys in self._allowed().items() if keys}
        kind = rng.choices(list(allowed), [MIXTURE[kind] for kind in allowed])[0]
        self.text = self._said(kind, rng.choice(allowed[kind]))

    def _allowed(self) -> dict[str, list[str]]:
        """The subjects that each kind can be about; one without a subject has an empty name."""
        held = [key for key in VALUES if self._now(key) is not None]
        plan, planner = self._known.plans.get(self._speaker), self._speaker in self._known.plans
        pending = plan is not None and self._now(plan[0]) != plan[1]
        theirs = [key for key in VALUES if (self._other, key) in self._known.facts]
        return {
            "state": [key for key in VALUES if key not in held],
            "change": held,
            "restate": held,
            "retract": held,
            "plan": [] if pending else list(VALUES),
            "replan": list(VALUES) if pending else [],
            "drop": [""] if pending else [],
            # Once the plan was dropped, what is as planned stays as it is.
            "planned": [plan[0]] if plan is not None and pending else held if planner and plan is None else [],
            "like": [key for key in theirs if self._known.facts[self._other, key] != self._now(key)],
            "chatter": [""],
        }

    def _now(self, key: str) -> str | None:
        return self._known.facts.get((self._speaker, key))

    def _said(self, kind: str, key: str) -> str:
        now, plan = self._now(key), self._known.plans.get(self._speaker)
        value = self._rng.choice([each for each in VALUES[key] if each != now]) if key else ""
        if kind == "chatter":
            return self._rng.choice(CHATTER)
        if kind == "drop":
            self._known.plans[self._speaker] = None
            return self._rng.choice(DROPS)
        if kind in ("plan", "replan"):
            self._known.plans[self._speaker] = key, value
            return self._rng.choice(PLANS).format(key=key, value=value)
        if kind == "planned":
            self._decided(*(("planned", key, plan[1]) if plan else ("restate", key, now)))
            return self._rng.choice(FULFILMENTS).format(key=key)
        if kind == "like":
            self._decided("like", key, self._known.facts[self._other, key])
            return self._rng.choice(LIKENESSES).format(key=key, other=self._other)
        if kind == "retract":
            self._decided("retract", key, None)
            return self._rng.choice(RETRACTIONS).format(key=key)
        said: Kind = "restate" if kind == "restate" else "change" if kind == "change" else "state"
        self._decided(said, key, now if said == "restate" else value)
        return self._rng.choice(STATEMENTS).format(key=key, value=now if said == "restate" else value)

    def _decided(self, kind: Kind, key: str, value: str | None) -> None:
        self.event = Event(*self._at, self._speaker, key, value, kind)
