"""Fill the outputs of a prompt by rules: with sentences, spans, ids and dates of its inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .material import Material
from .prompt import Prompt
from .ranking import Candidate, Chooser
from .schemas import TEXT, Schema
from .units import Unit
from .words import is_date, parse_date, sentences, stems, words

_OPTION = re.compile(r"\([a-z]\)|[^\s，、。；：]+$")
"""An option of a list: "(a)" in front of a text, or a word by itself."""

_ID_NAME = re.compile(r"(?:^|_)ids?$")
"""The name of an output or a property with an id, or with several."""

LATER_OPTION_PENALTY = 0.2
"""What an option scores less than the one before it, where nothing else distinguishes them."""
QUESTION_FACTOR = 0.5
"""A sentence that is a question counts for less: it hardly answers one."""
OPTIONS_PER_LIST = 2
"""How many options an output gets that lists the best options of an input."""


@dataclass(frozen=True)
class UnitSentence:
    """A sentence, and the unit that it stands in."""

    unit: Unit
    text: str


class AnswerWriter:
    """Fill the outputs of a prompt.

    Args:
        prompt: What is asked.
        chooser: Chooses one of several candidates.
    """

    def __init__(self, prompt: Prompt, chooser: Chooser) -> None:
        self._demos = prompt.demos
        self._material = Material(prompt)
        self._chooser = chooser

    def fill(self, name: str, schema: Schema, unit: Unit | None = None) -> Any:
        """Return a JSON value for an output, or for a place in it.

        Args:
            name: The name of the output or the property; in a list, that of the list.
            schema: What the value must be.
            unit: What the value is about; None if it may be about anything in the material.
        """
        if "anyOf" in schema:
            return self._fill_first_choice(name, schema["anyOf"], unit)
        if schema.get("type") == "boolean":
            return self._choose_early([True, False])
        if schema.get("enum"):
            return self._choose_early(schema["enum"])
        if schema.get("type") == "array":
            return self._fill_list(name, schema, unit)
        if schema.get("type") == "object":
            return self._fill_object(schema, unit)
        if schema.get("type") in ("integer", "number"):
            return _least_number(schema)
        return self._fill_text(name, unit)

    def answer(self, name: str) -> str:
        """Return the text that answers the query; "" only if the prompt has no text.

        It is an option of a list, if there is one. Otherwise the nearest demo decides: if it shows
        a date, the answer is a date, and else a part of the best sentence that is as long as the
        demo's answer. Without a demo it is the whole sentence.

        Args:
            name: The output, for which demos show answers.
        """
        option = self._best_option()
        if option:
            return option

        demo_answer = self._nearest_demo_answer(name)
        if is_date(demo_answer):
            date = self._best_date()
            if date:
                return date

        sentence = self._best_sentence().text
        if not demo_answer:
            return sentence
        return self._best_span(sentence, len(demo_answer.split()))

    # Values by their type

    def _fill_first_choice(self, name: str, choices: Sequence[Schema], unit: Unit | None) -> Any:
        """Return a value of the first type of a union; None, where it can be, for an empty text."""
        value = self.fill(name, choices[0], unit)
        if value == "" and {"type": "null"} in choices:
            return None
        return value

    def _choose_early(self, options: Sequence[Any]) -> Any:
        """Return the first of several options, or with a temperature a later one."""
        candidates: list[Candidate[Any]] = []
        for position, option in enumerate(options):
            candidates.append(Candidate(-LATER_OPTION_PENALTY * position, option))
        return self._chooser.choose(candidates)

    def _fill_object(self, schema: Schema, unit: Unit | None) -> dict[str, Any]:
        """Return an object with all properties; a list with a default keeps it, unless of ids."""
        required = schema.get("required", ())
        values: dict[str, Any] = {}
        for name, part in schema.get("properties", {}).items():
            is_optional_list = part.get("type") == "array" and name not in required
            if not is_optional_list or _ID_NAME.search(name):
                values[name] = self.fill(name, part, unit)
        return values

    def _fill_list(self, name: str, schema: Schema, unit: Unit | None) -> list[Any]:
        """Return a list: of an id, of the best options, of the one unit, or of all source units."""
        item = schema.get("items", TEXT)
        if _ID_NAME.search(name):
            best_id = self._best_id(name, unit)
            return [best_id] if best_id else []

        options = item.get("enum", ())
        option_texts: dict[str, str] = {}
        for material_unit in self._material.units:
            if material_unit.speaker in options:
                option_texts[material_unit.speaker] = material_unit.body
        if len(option_texts) > OPTIONS_PER_LIST:
            return self._best_options(option_texts)

        if unit is not None or "enum" in item:
            return [self.fill(name, item, unit)]
        if item == TEXT:
            return [source_unit.text for source_unit in self._material.source_units]
        return [self.fill(name, item, source_unit) for source_unit in self._material.source_units]

    def _fill_text(self, name: str, unit: Unit | None) -> str:
        """Return a text: an id, a part of the unit, or the answer to the query."""
        role = name.rpartition("_")[2]
        if _ID_NAME.search(role):
            return self._best_id(name, unit)
        if unit is None:
            return self.answer(name)
        if role == "speaker":
            return unit.speaker
        if role in ("time", "date"):
            return unit.time
        return unit.body

    # What fits best

    def _best_option(self) -> str:
        """Return the option of a multiple-choice question that fits best; "" if there are none.

        The best option shares the most informative words with the turn or record that answers the
        query best.
        """
        texts_by_option = self._options_of_query()
        if not texts_by_option:
            return ""

        best_stems = stems(self._best_sentence().unit.text)
        candidates: list[Candidate[str]] = []
        for option, text in texts_by_option.items():
            shared_stems = stems(text) & best_stems
            candidates.append(Candidate(self._weight(shared_stems), option))
        return self._chooser.choose(candidates)

    def _options_of_query(self) -> dict[str, str]:
        """Return the options of a multiple-choice question with their texts; {} if there are none.

        They are the items of the first input that is a list of nothing else. Each is one word, or
        a text behind a letter: of ["(a) a drama", "(b) a farce"] the options are "(a)" and "(b)".
        """
        for name, units in self._material.units_by_input.items():
            if not self._material.is_json(name):
                continue

            texts_by_option: dict[str, str] = {}
            for unit in units:
                match = _OPTION.match(unit.body)
                if match:
                    texts_by_option[match[0]] = unit.body

            all_are_options = len(texts_by_option) == len(units)
            if all_are_options and len(units) >= 2:
                return texts_by_option
        return {}

    def _best_options(self, texts_by_option: dict[str, str]) -> list[str]:
        """Return the options whose texts are most like the query, the best one first."""

        def score(option: str) -> float:
            return self._weight(self._material.query_stems & stems(texts_by_option[option]))

        # A stable sort, so that of equal options the first is the better one.
        ranked = sorted(texts_by_option, key=score, reverse=True)
        return ranked[:OPTIONS_PER_LIST]

    def _best_sentence(self) -> UnitSentence:
        """Return the sentence of the material that fits the query best; "" if there is none."""
        query_stems = self._material.query_stems
        candidates = [Candidate(-1.0, UnitSentence(Unit(""), ""))]
        for unit in self._material.units:
            unit_score = self._weight(query_stems & stems(unit.text))
            for sentence in sentences(unit.body):
                score = unit_score + self._weight(query_stems & stems(sentence))
                if sentence.endswith("?"):
                    score *= QUESTION_FACTOR
                candidates.append(Candidate(score, UnitSentence(unit, sentence)))
        return self._chooser.choose(candidates)

    def _best_span(self, sentence: str, length: int) -> str:
        """Return the words of a sentence, so many in a row, that say most beyond the query."""
        sentence_words = sentence.split()
        candidates: list[Candidate[str]] = []
        for start in range(max(len(sentence_words) - length, 0) + 1):
            span = " ".join(sentence_words[start : start + length])
            new_stems = stems(span) - self._material.query_stems
            candidates.append(Candidate(self._weight(new_stems), span))
        return self._chooser.choose(candidates).strip(' .,;:!?"')

    def _best_date(self) -> str:
        """Return the date in the unit that fits the query best, like "7 May 2023"; "" without."""
        candidates: list[Candidate[str]] = []
        for unit in self._material.units:
            day = parse_date(unit.body) or parse_date(unit.time)
            if day is not None:
                score = self._weight(self._material.query_stems & stems(unit.text))
                candidates.append(Candidate(score, f"{day.day} {day:%B %Y}"))
        if not candidates:
            return ""
        return self._chooser.choose(candidates)

    def _best_id(self, name: str, unit: Unit | None) -> str:
        """Return the id for an output or a property; "" if nothing is alike.

        It is that of the unit that is most like the given one, or else like the query, among those
        that the name refers to. If it refers to none, it is the id of the given unit.
        """
        units = self._material.units_referred_to(name)
        if unit is not None and not units:
            return unit.id

        wanted_stems = self._material.query_stems if unit is None else stems(unit.text)
        best_id = ""
        # What shares less than half of the weight is not alike.
        best_score = self._weight(wanted_stems) / 2
        for candidate in units or self._material.units:
            score = self._weight(wanted_stems & stems(candidate.text))
            if score > best_score:
                best_score = score
                best_id = candidate.id
        return best_id

    def _nearest_demo_answer(self, name: str) -> str:
        """Return the text of an output in the demo with the nearest query; "" without demos.

        A query that begins with the same word is nearer than any other.
        """
        first_word = words(self._material.query)[:1]
        nearest_answer = ""
        nearest_score = (False, -1.0)
        for demo in self._demos:
            query = demo.inputs.get(self._material.query_name, "")
            begins_alike = words(query)[:1] == first_word
            score = (begins_alike, self._weight(stems(query) & self._material.query_stems))
            if score > nearest_score:
                nearest_score = score
                nearest_answer = demo.outputs.get(name, "")
        return nearest_answer

    def _weight(self, some_stems: frozenset[str]) -> float:
        return self._material.weights.weight(some_stems)


def _least_number(schema: Schema) -> float:
    """Return the number nearest to 0 that a schema allows; it knows no rule to count by."""
    return max(schema.get("minimum", 0), min(0, schema.get("maximum", 0)))
