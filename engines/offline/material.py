"""What a prompt offers to answer from: the query, and the units of the other inputs.

- The query is the last input that is one plain line, no date and no number. Lines that end with a
  question mark come before others.
- An output or a property called `x_id` or `x_ids` refers to the inputs with the word x in their
  names. These are lists to point at. All other inputs besides the query are material to work
  through.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .prompt import Prompt
from .ranking import WordWeights
from .schemas import id_names
from .units import Unit, read_units
from .words import Stems, is_date, sentences, stems

_QUERY = re.compile(r"(?!\d+$).{1,300}")


class Material:
    """What a prompt offers to answer from."""

    def __init__(self, prompt: Prompt) -> None:
        self._inputs = prompt.inputs
        self.units_by_input: dict[str, Sequence[Unit]] = {}
        """The units of the inputs that are not empty."""
        for name, text in prompt.inputs.items():
            if text:
                self.units_by_input[name] = read_units(text)

        self.query_name = self._find_query()
        """The input with the query; "" if there is none."""
        self.query = prompt.inputs.get(self.query_name, "")

        inputs_to_read = self._inputs_to_read(prompt)
        self.source_units = self._find_source(inputs_to_read, prompt.supporting_inputs)
        """The units that an output with a list gets an item for each of."""
        self.units = [unit for name in inputs_to_read for unit in self.units_by_input[name]]
        """The units of all inputs that are material."""

        sentence_stems: list[Stems] = []
        for unit in self.units:
            sentence_stems.extend(stems(sentence) for sentence in sentences(unit.body))
        self.weights = WordWeights(sentence_stems)

        self.query_stems = stems(self.query)
        """The stems of the query. Without one they are all, to find the most informative unit."""
        if not self.query_stems:
            self.query_stems = stems(" ".join(unit.body for unit in self.units))

    def is_json(self, name: str) -> bool:
        """Return whether an input is a list in JSON."""
        return self._inputs[name].startswith("[")

    def units_referred_to(self, name: str) -> list[Unit]:
        """Return the units of the inputs that an output or a property refers to by its name."""
        units: list[Unit] = []
        for input_name in self._inputs_referred_to(name):
            units.extend(self.units_by_input[input_name])
        return units

    def _find_query(self) -> str:
        """Return the name of the input with the query, or ""."""
        query_name = ""
        is_question = False
        for name, text in self._inputs.items():
            if self._is_list(name) or not _QUERY.fullmatch(text) or is_date(text):
                continue
            ends_as_question = text.endswith(("?", "？"))
            if ends_as_question or not is_question:
                query_name = name
                is_question = ends_as_question
        return query_name

    def _inputs_to_read(self, prompt: Prompt) -> list[str]:
        """Return the inputs that are material; all, if there is no other than query and lists."""
        not_material = {self.query_name}
        for name in id_names(prompt.outputs):
            not_material.update(self._inputs_referred_to(name))
        inputs_to_read = [name for name in self.units_by_input if name not in not_material]
        return inputs_to_read or list(self.units_by_input)

    def _find_source(
        self, inputs_to_read: Sequence[str], supporting_inputs: frozenset[str]
    ) -> Sequence[Unit]:
        """Return the units of the first list in the material, or else of its longest text.

        Inputs that help to understand others count only if there is nothing else.
        """
        candidates = [name for name in inputs_to_read if name not in supporting_inputs]
        candidates = candidates or list(inputs_to_read)
        if not candidates:
            return []

        def size(name: str) -> float:
            return math.inf if self._is_list(name) else len(self._inputs[name])

        return self.units_by_input[max(candidates, key=size)]

    def _is_list(self, name: str) -> bool:
        """Return whether an input is a list in JSON, or begins with a line that has a head."""
        units = self.units_by_input.get(name)
        if units is None:
            return False
        return self.is_json(name) or units[0].has_head

    def _inputs_referred_to(self, name: str) -> list[str]:
        """Return the inputs that an output or a property `x_id` or `x_ids` refers to."""
        target, _, ending = name.rpartition("_")
        if ending not in ("id", "ids"):
            return []
        # Of `new_turn_ids` only the word in front of the ending counts: "turn".
        target_stems = stems(target.rpartition("_")[2])
        if not target_stems:
            return []
        return [name for name in self.units_by_input if target_stems <= stems(name)]
