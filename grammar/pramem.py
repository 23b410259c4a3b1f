"""The sentences of PraMem's world: what a user had before them, what they did, and what can be claimed of their ways.

    category: jazz; by Nola Kern; in the evening; liked by few people => liked; shared

A clip has a category, an author, a part of the day, and a crowd: whether many people like it. A claim says of a
category, an author or a part of the day whether the user reacts to it, passes it over, does what most people do there,
or, as a warning to the model that leans on the crowd, does the opposite.

Example:
    >>> from mempiler.grammar.pramem import Claim, read_claims, say_claim
    >>> say_claim(Claim("against the crowd", "category", "jazz"))
    'I lean on what most people do with videos of the category jazz; this user does the opposite there.'
    >>> read_claims("noted: This user passes over videos by Nola Kern.")
    [Claim(stance='passes', aspect='author', name='Nola Kern')]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Aspect = Literal["author", "part", "category"]
"""What of a clip a claim is about; `part` is the part of the day."""
Stance = Literal["reacts", "passes", "with the crowd", "against the crowd"]
Basis = Literal["crowd", "experience", "records"]
"""What a prediction goes by."""
Turned = Literal["reversed", "all passed over", "all liked"]
"""What a perturbation makes of reactions."""

SCENE = "video"
LIKES, SHARES = "Does the user like it?", "Does the user share it?"
REACTED, PASSED = "liked; shared", "no reaction"
"""What a record tells that the user did."""

_NAME = r"[\w'-]+(?: [\w'-]+)*?"
_CROWD = {True: "many", False: "few"}
_CLIP = re.compile(rf"category: ({_NAME}); by ({_NAME}); in the ({_NAME}); liked by (many|few) people")
_RECORD = re.compile(rf"^\[(?P<id>[^\]\s]+)\].*?{_CLIP.pattern} => (?P<did>{REACTED}|{PASSED})$", re.MULTILINE)
_ASPECTS: Mapping[Aspect, str] = {
    "author": "videos by {}",
    "part": "videos in the {}",
    "category": "videos of the category {}",
}
_STANCES: Mapping[Stance, str] = {
    "reacts": "This user likes and shares {}.",
    "passes": "This user passes over {}.",
    "with the crowd": "With {} this user does what most people do.",
    "against the crowd": "I lean on what most people do with {}; this user does the opposite there.",
}
_BASES: Mapping[Basis, str] = {
    "crowd": "I go by what most people do.",
    "experience": "I go by what experience tells of this user.",
    "records": "I go by what the newest records tell.",
}
_TURNS: Mapping[Turned, str] = {
    "reversed": "What the user liked is passed over, and what was passed over is liked.",
    "all passed over": "The user passes everything over.",
    "all liked": "The user likes and shares everything.",
}


@dataclass(frozen=True)
class Clip:
    """What a user has before them."""

    category: str
    author: str
    part: str
    popular: bool

    def of(self, aspect: Aspect) -> str:
        """Its category, author or part of the day."""
        return {"category": self.category, "author": self.author, "part": self.part}[aspect]


@dataclass(frozen=True)
class Deed:
    """A record: a clip, and whether the user liked and shared it."""

    id: str
    clip: Clip
    reacted: bool


@dataclass(frozen=True)
class Claim:
    """What is claimed of a user, or, where it is against the crowd, of the model."""

    stance: Stance
    aspect: Aspect
    name: str

    @property
    def subject(self) -> tuple[Aspect, str]:
        """What it is about."""
        return self.aspect, self.name

    def bears_on(self, clip: Clip) -> bool:
        """Whether it says anything of a clip."""
        return clip.of(self.aspect) == self.name

    def foretells(self, clip: Clip) -> bool:
        """Whether the user reacts to a clip that it bears on."""
        if self.stance in ("reacts", "passes"):
            return self.stance == "reacts"
        return clip.popular == (self.stance == "with the crowd")


def say_clip(clip: Clip) -> str:
    """The situation of a record."""
    return f"category: {clip.category}; by {clip.author}; in the {clip.part}; liked by {_CROWD[clip.popular]} people"


def read_clip(text: str) -> Clip | None:
    """The first clip of a text."""
    found = _CLIP.search(text)
    return found and _clip(*found.groups())


def say_did(reacted: bool) -> str:
    """The reaction of a record."""
    return REACTED if reacted else PASSED


def read_did(text: str) -> bool | None:
    """Whether a text tells of a reaction, by its last words."""
    plain = text.strip().rstrip(".")
    return True if plain.endswith(REACTED) else False if plain.endswith(PASSED) else None


def read_deeds(text: str) -> list[Deed]:
    """All records that stand on lines of a text, in its order."""
    return [Deed(m["id"], _clip(*m.groups()[1:5]), m["did"] == REACTED) for m in _RECORD.finditer(text)]


def say_claim(claim: Claim) -> str:
    """A claim as a sentence."""
    return _STANCES[claim.stance].format(_ASPECTS[claim.aspect].format(claim.name))


def read_claims(text: str) -> list[Claim]:
    """All claims of a text, in its order."""
    found = [
        (match.start(), Claim(stance, aspect, match[1]))
        for (stance, aspect), form in _FORMS.items()
        for match in form.finditer(text)
    ]
    return [claim for _, claim in sorted(found, key=lambda pair: pair[0])]


def say_basis(basis: Basis) -> str:
    """What a prediction goes by, as a sentence."""
    return _BASES[basis]


def read_basis(text: str) -> Basis | None:
    """What a text says that a prediction goes by."""
    return next((basis for basis, sentence in _BASES.items() if sentence in text), None)


def say_turned(turned: Turned) -> str:
    """The direction of a perturbation."""
    return _TURNS[turned]


def read_turned(text: str) -> Turned | None:
    """The perturbation that a text tells of."""
    return next((turned for turned, sentence in _TURNS.items() if sentence in text), None)


def _clip(category: str, author: str, part: str, crowd: str) -> Clip:
    return Clip(category, author, part, crowd == _CROWD[True])


def _form(sentence: str, what: str) -> re.Pattern[str]:
    return re.compile(re.escape(sentence.format(what.format("\0"))).replace("\0", f"({_NAME})"))


_FORMS: Mapping[tuple[Stance, Aspect], re.Pattern[str]] = {
    (stance, aspect): _form(said, what) for stance, said in _STANCES.items() for aspect, what in _ASPECTS.items()
}
