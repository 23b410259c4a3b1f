"""Choosing one of some options: what came of like cases votes.

    rain, Monday => took the bus   ┐
    rain, Friday => took the bus   ├── each votes with the power of its likeness to the query ──> the bus
    sun, Friday => walked          ┘

A unit with an arrow in it is a case and what came of it. An option that is named behind the arrow has its vote; in
units without an arrow, sentences that name an option vote. For yes or no, a case says yes where all the words of the
question that any outcome has are behind its arrow, and no where one is missing.

Example:
    >>> choice(view, ["bus", "walked"])
    'bus'

Honest limits: likeness is that of words. That an outcome does not name something is taken for a no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from .text import Stems, sentences, stems
from .units import Unit
from .view import View

_POWER = 8
"""How much more the likest cases count."""
_NEAREST = 5
"""So many sentences vote where there are no cases."""


def choice(view: View, options: Sequence[str], told: Callable[[], Sequence[tuple[float, str]]]) -> str | None:
    """The option with most votes; None where no unit votes.

    Args:
        view: The request.
        options: As they are to be written.
        told: Gives the sentences of the material, with how well they answer the query; asked only without cases.
    """
    cases = [unit for unit in view.material if unit.case[1]]
    plain = {option.strip().lower(): option for option in options}
    votes = _yes_or_no(view, cases) if set(plain) == {"yes", "no"} else _named(view, cases, options)
    if not votes and not cases:
        votes = _in_sentences(told(), options)
    ranked = [(score, plain.get(option, option)) for option, score in votes.items()]
    return view.choose(ranked) if ranked else None


def _named(view: View, cases: Sequence[Unit], options: Sequence[str]) -> Mapping[str, float]:
    votes: dict[str, float] = {}
    names = _patterns(options)
    for unit in cases:
        named = [option for option, name in names.items() if name.search(unit.case[1])]
        if len(named) == 1 and (power := _likeness(view, unit)):
            votes[named[0]] = votes.get(named[0], 0.0) + power
    return votes


def _yes_or_no(view: View, cases: Sequence[Unit]) -> Mapping[str, float]:
    wanted = _asked(view, cases)
    votes: dict[str, float] = {}
    for unit in cases if wanted else ():
        said = "yes" if wanted <= set(unit.outcome_stems) else "no"
        if power := _likeness(view, unit):
            votes[said] = votes.get(said, 0.0) + power
    return votes


def _asked(view: View, cases: Sequence[Unit]) -> set[str]:
    """The words of the question itself, the last sentence of the query, that come up in outcomes."""
    last: Stems = stems((sentences(view.query) or [""])[-1])
    known = {word for unit in cases for word in unit.outcome_stems}
    return {word for word in last if word in known}


def _likeness(view: View, unit: Unit) -> float:
    return view.weights.cosine(view.query_stems, unit.case_stems) ** _POWER


def _in_sentences(told: Sequence[tuple[float, str]], options: Sequence[str]) -> Mapping[str, float]:
    votes: dict[str, float] = {}
    near, names = 0, _patterns(options)
    for score, sentence in sorted(told, key=lambda pair: -pair[0]):
        named = [option for option, name in names.items() if sentence != option and name.search(sentence)]
        if len(named) == 1 and score > 0 and near < _NEAREST:
            near += 1
            votes[named[0]] = votes.get(named[0], 0.0) + score
    return votes


def _patterns(options: Sequence[str]) -> dict[str, re.Pattern[str]]:
    """What finds the name of each option, as whole words."""
    return {option: re.compile(rf"(?<!\w){re.escape(option)}(?!\w)", re.I) for option in options}
