"""Groups of alike units, and what the units of a group share: how an item is made from several records.

    red apple, ripe => eaten      ┐
    red apple, big => eaten       ├── red apple => eaten
    red apple, old => eaten       ┘

Units that say the same word for word are a group, where these are a third of all. Else units are alike that have one or
two words in common and of which the same has come: words behind the arrow of a unit (`Unit.case`) that two thirds of
them share. Groups are taken in the order of how far they differ from what larger groups tell of their units already.

Example:
    >>> groups(units)[0].text
    'red apple => eaten'

Honest limits: what is shared is words, in the order of the first unit; no sentence is made of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .text import Stems, is_function_word, stem
from .units import Unit

_LEAST = 3
"""Units of a group."""
_MOST = 12
"""Groups of a list."""
_TRIED = 30
"""Groups that are looked at before the most telling are taken."""
_SHARED = 0.67
"""The share of a group that must have come to the same."""
_TELLING = 6.0
"""Nats by which a group must differ from what is known already."""
_VOCABULARY = 80
"""Words that are looked at, the most frequent ones."""
_CANDIDATES = 300
_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Some alike units."""

    units: tuple[Unit, ...]
    """Those that share all that the text tells."""
    text: str
    """What they share: words of the case, an arrow, words of what came of it."""


def groups(units: Sequence[Unit]) -> list[Group]:
    """The groups of a list of units, the most telling first."""
    return _repeated(units) or _alike(units)


def _repeated(units: Sequence[Unit]) -> list[Group]:
    """Units that say the same, word for word."""
    said: dict[Stems, list[Unit]] = defaultdict(list)
    for unit in units:
        said[unit.stems].append(unit)
    found = sorted((same for same in said.values() if len(same) >= _LEAST), key=lambda same: -len(same))
    if 3 * sum(map(len, found)) < len(units):
        return []
    return [Group(tuple(same), same[0].body) for same in found[:_MOST]]


def _alike(units: Sequence[Unit]) -> list[Group]:
    told = [unit.outcome_stems for unit in units]
    outcomes = told if any(told) else [unit.case_stems for unit in units]
    members = _members([unit.case_stems for unit in units])
    came = _incidence(outcomes, 1, len(units))
    if not members.size or not came.size:
        return []
    sizes, counts = members.sum(axis=1), members @ came
    known = np.tile((came.sum(axis=0) + 0.5) / (len(units) + 1), (len(units), 1))
    first = np.argsort(-_gain(sizes, counts, members @ known), kind="stable")[:_CANDIDATES]
    members, sizes, counts = members[first], sizes[first], counts[first]
    taken: list[tuple[float, Group]] = []
    told_by = np.full(len(units), np.inf)
    for _ in range(_TRIED):
        gain = _gain(sizes, counts, members @ known)
        best = int(np.argmax(gain)) if len(gain) else 0
        if not len(gain) or gain[best] < _TELLING:
            break
        places = np.flatnonzero(members[best])
        came_of, size = counts[best], sizes[best]
        members, counts, sizes = _without(best, members, counts, sizes)
        # What a smaller group has told of a unit is not overwritten by a larger one.
        fresh = places[told_by[places] > size]
        known[fresh], told_by[fresh] = (came_of + 0.5) / (size + 1), size
        made = _made([units[n] for n in places.tolist()], any(told))
        if made is not None:
            taken.append((float(gain[best]), made))
    return [group for _, group in sorted(taken, key=lambda pair: -pair[0])[:_MOST]]


def _without(place: int, *tables: Floats) -> list[Floats]:
    return [np.delete(table, place, axis=0) for table in tables]


def _incidence(texts: Sequence[Stems], least: int, most: int) -> Floats:
    """Texts by words, 1 where a text has a word."""
    seen = Counter(word for text in texts for word in set(text) if not word.isdecimal() or least == 1)
    kept = [word for word, count in sorted(seen.items(), key=lambda pair: (-pair[1], pair[0])) if least <= count < most]
    place = {word: n for n, word in enumerate(kept[:_VOCABULARY])}
    found = np.zeros((len(texts), len(place)))
    for n, text in enumerate(texts):
        for word in text:
            if word in place:
                found[n, place[word]] = 1.0
    return found


def _members(cases: Sequence[Stems]) -> Floats:
    """Groups by units: who has a word, or a pair of words."""
    words = _incidence(cases, _LEAST, len(cases) + 1).T
    left, right = np.triu_indices(len(words), 1)
    every = np.concatenate([words, words[left] * words[right]])
    every = every[every.sum(axis=1) >= _LEAST]
    if not len(every):
        return every
    _, first = np.unique(np.packbits(every.astype(bool), axis=1), axis=0, return_index=True)
    return every[np.sort(first)]


def _gain(sizes: Floats, counts: Floats, known: Floats) -> Floats:
    """How far what came of each group differs from what is known of its units: n x KL, summed over the words."""
    here = (counts + 0.5) / (sizes[:, None] + 1)
    base = (known + 0.5 / len(sizes)) / (sizes[:, None] + 1.0 / len(sizes))
    return (sizes[:, None] * (here * np.log(here / base) + (1 - here) * np.log((1 - here) / (1 - base)))).sum(axis=1)


def _made(units: Sequence[Unit], told: bool) -> Group | None:
    came = _common([unit.case[1] for unit in units], _SHARED)
    said = {stem(word.lower()) for word in came}
    true = [unit for unit in units if said <= set(unit.outcome_stems)] if said else list(units)
    if len(true) < _LEAST or (told and not said):
        return None
    case = _common([unit.case[0] for unit in true], 0.8)
    if not case:
        return None
    return Group(tuple(true), " => ".join(part for part in (_joined(case), _joined(came)) if part))


def _common(texts: Sequence[str], share: float) -> list[str]:
    """The words that more than a share of the texts hold, as the first text with most of them has them."""
    listed = [{stem(word.lower()): word for word in _TOKEN.findall(text)} for text in texts]
    seen = Counter(found for words in listed for found in words)
    kept = {found for found, count in seen.items() if count > share * len(texts) and not is_function_word(found)}
    best = max(listed, key=lambda words: len(kept & set(words)), default={})
    return [word for found, word in best.items() if found in kept]


def _joined(words: Iterable[str]) -> str:
    """Words on one line; characters of scripts without spaces stand side by side."""
    text = " ".join(words)
    return re.sub(r"(?<=[぀-ヿ㐀-鿿가-힯]) (?=[぀-ヿ㐀-鿿가-힯])", "", text)
