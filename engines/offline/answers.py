"""Free text, taken from the material: the best sentence, or what the demos show an answer to be.

Without demos the answer is the sentence that shares most with the query. Demos of the same form (the same first word
of the query) vote what an answer is - a date, a number, a yes or no, or text - and the longest of them says how long it
may be. A few plain cues in the instructions count when there are no demos: "absolute date", "at most N words", "short".
A cue sentence that quotes words ('when a question says "when", give the absolute date') holds only for queries with one
of those words.

Example:
    >>> answer(view, "answer")  # demos: "When ...?" -> "7 May 2023"
    '14 August 2023'

There is no table of question words here, and nothing is inferred: an answer that is not in the text is not found.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from .dates import NUMBERS, Moment, Style, is_date, resolve
from .text import Stems, is_function_word, stem, stems, words
from .units import Unit, plain_text, read_units
from .view import View
from .votes import choice

Kind = Literal["text", "date", "number", "yes/no"]

_NUMBER = re.compile(
    r"(?<![\w.])(?:\d+(?:[.,]\d+)*|one|two|three|four|five|six|seven|eight|nine|ten|twice|once)(?![\w])", re.I
)
_AT_MOST = re.compile(r"\b(?:at most|no more than|within|up to) (\d+|one|two|three|four|five|six|ten) words?\b", re.I)
_QUOTED = re.compile(r"(?<!\w)[\"“'`]([\w ]{2,30})[\"”'`](?!\w)")
_IMPERATIVE = re.compile(
    r"(?:(?:If|When|For|Where)\b[^.]*?, )?(?:always )?"
    r"(?:answer|give|use|write|keep|copy|state|name|resolve|prefer|quote|reply|return)\b",
    re.I,
)


@dataclass(frozen=True)
class Shape:
    """What an answer should look like."""

    kind: Kind = "text"
    length: int | None = None
    """In words; None: whole sentences."""
    style: Style = field(default_factory=Style)
    example: str = ""
    """The answer of the nearest demo."""


def answer(view: View, name: str) -> str:
    """The text for the output field `name`; "" only if the request holds no text."""
    if not view.material:
        return ""
    if (revised := revise(view, name)) is not None:
        return revised
    shape = shape_of(view, name)
    if shape.kind == "date":
        moment, _ = when(view)
        if moment:
            return moment.write(shape.style)
    if (option := chosen(view, name, shape.kind)) is not None:
        return option
    if shape.kind == "yes/no":
        return shape.example
    unit, sentence = best_sentence(view)
    if shape.kind == "number" and (found := _NUMBER.search(sentence) or _NUMBER.search(unit.body)):
        return found[0]
    if not view.query:
        return _digest(view, shape.length)
    return span(view, unit, sentence, shape.length) if shape.length else sentence


def best_sentence(view: View) -> tuple[Unit, str]:
    """The sentence of the material that answers the query best, with its unit."""
    return view.choose(_scored(view) or [(0.0, (view.material[0], view.material[0].body))])


def _scored(view: View) -> list[tuple[float, tuple[Unit, str]]]:
    """Every sentence of the material, with how well it answers the query."""
    candidates = []
    for rank, unit in enumerate(view.material):
        whole = view.weights.overlap(view.query_stems, unit.stems)
        for sentence, found in unit.sentences:
            score = view.weights.overlap(view.query_stems, found) + whole - 0.05 * min(rank, 10)
            score *= 0.5 if sentence.endswith("?") else 1.0
            candidates.append((score + min(len(found), 5) * 0.05, (unit, sentence)))
    return candidates


def chosen(view: View, name: str, kind: Kind = "text") -> str | None:
    """For demos whose answers all are items of a list of theirs, or yes and no: the one that like cases vote for.

    None where the demos show no such thing, or nothing votes.
    """
    listed = next((source.name for source in view.sources.values() if _taught_choice(view, name, source.name)), None)
    if listed is None:
        return choice(view, ["Yes", "No"], lambda: ()) if kind == "yes/no" else None
    options = [unit.body for unit in view.sources[listed].units]
    return choice(view, options, lambda: [(score, sentence) for score, (_, sentence) in _scored(view)])


def _taught_choice(view: View, name: str, listed: str) -> bool:
    taught = [(read_units(demo.inputs[listed]), value) for demo, value in view.teachers(name) if listed in demo.inputs]
    return bool(taught) and all(len(units) > 1 and value in [unit.body for unit in units] for units, value in taught)


def when(view: View) -> tuple[Moment | None, Unit | None]:
    """When the thing the query asks about happened, read from the best unit that says or bears a date."""
    candidates: list[tuple[float, tuple[Moment | None, Unit | None]]] = []
    for rank, unit in enumerate(view.material):
        said = resolve(unit.body, unit.date)
        if said or unit.date:
            score = view.weights.overlap(view.query_stems, unit.stems) + 0.5 * bool(said) - 0.02 * rank
            candidates.append((score, (said or Moment(unit.date), unit)))  # pyright: ignore[reportArgumentType]
    return view.choose(candidates) if candidates else (None, None)


def shape_of(view: View, name: str) -> Shape:
    """What the demos, or without demos the cues of the instructions, say an answer looks like."""
    pairs = [(view.probe(demo.inputs), value) for demo, value in view.teachers(name) if isinstance(value, str)]
    pairs = [(probe, value) for probe, value in pairs if probe]
    if not pairs:
        return _cues(view)
    probe = view.probe(view.prompt.inputs)
    form = words(probe)[:2]
    near = sorted(pairs, key=lambda pair: -_likeness(view, probe, form, pair[0]))
    same = [value for other, value in near if words(other)[:1] == form[:1]][:5]
    votes: Counter[Kind] = Counter(kind_of(value) for value in same or [value for _, value in near])
    kind, count = votes.most_common(1)[0]
    if not same and count < sum(votes.values()):
        kind = "text"
    alike = [value for value in same or [value for _, value in near[:5]] if kind_of(value) == kind]
    alike = alike or [value for _, value in near[:5]]
    dates = [value for _, value in pairs if kind_of(value) == "date"]
    return Shape(kind, max(len(value.split()) for value in alike), Style.of(dates), alike[0])


def kind_of(text: str) -> Kind:
    """What kind of answer a demo's answer is."""
    if re.match(r"(?:yes|no)\b", text, re.I) and len(text.split()) <= 3:
        return "yes/no"
    if is_date(text):
        return "date"
    return "number" if len(text.split()) <= 2 and _NUMBER.match(text) else "text"


def revise(view: View, name: str) -> str | None:
    """For an output whose name ends as an input's name does (`new_x` from `x`): that input, plus what others ask for.

    What is added is the instruction that the other inputs repeat most often, if one is given at least twice.
    """
    last = name.rpartition("_")[2]
    old = next((source for n, source in view.sources.items() if n.rpartition("_")[2] == last), None)
    if old is None:
        return None
    others = "\n".join(plain_text(source.text) for source in view.sources.values() if source is not old)
    return with_advice(old.text, others)


def with_advice(old: str, others: str) -> str:
    """The text `old`, and the imperative sentence that `others` repeats most often, unless `old` has it already."""
    parts = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n", others)]
    advice = Counter(part for part in parts if part[:1].isupper() and _IMPERATIVE.match(part) and 15 < len(part) < 200)
    fresh = [text for text, count in advice.most_common() if count > 1 and text not in old]
    return f"{old.rstrip()} {fresh[0]}".strip() if fresh else old


def span(view: View, unit: Unit, sentence: str, length: int) -> str:
    """About `length` words of a sentence: rare words that the query lacks, near words that it has."""
    tokens = sentence.split()
    if len(tokens) <= length:
        return sentence.rstrip(".!")
    query = set(view.query_stems)
    worth = [_worth(view, token, query) for token in tokens]
    hits = [n for n, token in enumerate(tokens) if query & set(stems(token))]
    candidates = []
    for start in range(len(tokens) - length + 1):
        end = start + length
        inside = worth[start:end]
        near = min((min(abs(hit - start), abs(hit - end + 1)) for hit in hits), default=0)
        edges = sum(is_function_word("".join(words(tokens[n])[:1])) for n in (start, end - 1))
        candidates.append((sum(inside) - 0.3 * near - 0.7 * edges, " ".join(tokens[start:end])))
    return view.choose(candidates).strip(' .,;:!?"')


def _worth(view: View, token: str, query: set[str]) -> float:
    found = [stem(word) for word in words(token) if not is_function_word(word)]
    return sum(-0.5 if word in query else view.weights.of(word) for word in found[:1])


def _likeness(view: View, probe: str, form: list[str], other: str) -> float:
    begins = words(other)[:2]
    bonus = 0.5 * (begins[:1] == form[:1]) + 0.5 * (begins == form)
    return view.weights.cosine(stems(probe), stems(other)) + bonus


def _digest(view: View, length: int | None) -> str:
    """The most central sentences in their order: three of them, or about as many words as the demos have."""
    everything: Stems = tuple(word for unit in view.material for word in unit.stems)
    ranked = []
    rest = [(sentence, found) for unit in view.material for sentence, found in unit.sentences]
    scored = [(view.weights.cosine(found, everything), n) for n, (_, found) in enumerate(rest)]
    while scored and len(ranked) < 3 and (length is None or sum(len(rest[n][0].split()) for n in ranked) < length):
        ranked.append(view.choose(scored))
        scored = [(score, n) for score, n in scored if n not in ranked]
    tokens = " ".join(rest[n][0] for n in sorted(ranked)).split()
    return " ".join(tokens[: max(length, 1)] if length else tokens)


def _cues(view: View) -> Shape:
    shape = Shape()
    for sentence in re.split(r"(?<=[.!?;])\s+|\n", view.prompt.instructions):
        quoted = [word for text in _QUOTED.findall(sentence) for word in words(text)]
        if quoted and not view.query_words & set(quoted):
            continue
        if re.search(r"\babsolute date", sentence, re.I):
            told = bool(quoted) or _tells_time(view)
            shape = Shape("date" if told else shape.kind, shape.length, shape.style)
        if match := _AT_MOST.search(sentence):
            number = match[1].lower()
            count = int(number) if number.isdigit() else NUMBERS[number]
            shape = Shape(shape.kind, max(count, 1), shape.style)
        elif re.search(r"\bshort(?:est)?\b", sentence, re.I):
            shape = Shape(shape.kind, shape.length or 5, shape.style)
    return shape


def _tells_time(view: View) -> bool:
    unit, sentence = best_sentence(view)
    return resolve(sentence, unit.date) is not None
