"""What the engine sees of one request: which input is the query, which is material, and how words weigh in it.

The query is the last input that fits on one line (of those that end in a question mark, or else have three words, if
there are any); every other input is material. Which field it is follows from the form of the values, never from field
names, except that an output called `x_id` or `x_ids` points at the list whose name begins or ends with x: that list is
a reference, not material to work through.

Example:
    >>> View(prompt, Chooser(0.0, 0)).query
    'When did Caroline go to the support group?'
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from .dates import is_date
from .prompt import Demo, Prompt
from .schema import Schema, expand
from .text import Stems, Weights, stems, words
from .units import Source, Unit, read_source

T = TypeVar("T")


class Chooser:
    """Takes the best of scored candidates; a temperature lets others win, in a way its seed repeats.

    Args:
        temperature: 0 always takes the best, the first of equals.
        seed: What the noise is drawn from.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._random = random.Random(seed)

    def best(self, candidates: Sequence[tuple[float, T]]) -> T:
        """One of the candidates; with temperature, Gumbel noise in proportion to the spread is added."""
        if self._temperature <= 0:
            return max(candidates, key=lambda pair: pair[0])[1]
        scores = [score for score, _ in candidates]
        scale = self._temperature * max(0.6 * (max(scores) - sum(scores) / len(scores)), 0.05)
        noisy = [(score - scale * math.log(self._random.expovariate(1.0) + 1e-12), n) for n, score in enumerate(scores)]
        return candidates[max(noisy)[1]][1]


class View:
    """A request seen as query and material.

    Args:
        prompt: The request, read.
        chooser: Picks among candidates.
    """

    def __init__(self, prompt: Prompt, chooser: Chooser) -> None:
        self.prompt = prompt
        self.choose = chooser.best
        self.sources = {name: read_source(name, text) for name, text in prompt.inputs.items() if text.strip()}
        self.query_name = _query_name(self.sources)
        self.references = _references(prompt, self.sources)

    @cached_property
    def query(self) -> str:
        """The one-line input the rest is searched with; "" if there is none."""
        return self.sources[self.query_name].text if self.query_name else ""

    @cached_property
    def query_stems(self) -> Stems:
        """Stems of the query."""
        return stems(self.query)

    @cached_property
    def query_words(self) -> frozenset[str]:
        """Words of the query, function words included."""
        return frozenset(words(self.query))

    @cached_property
    def material(self) -> tuple[Unit, ...]:
        """The units of every input but the query and the references (of all inputs if nothing else is left)."""
        apart = {self.query_name, *self.references}
        units = tuple(u for name, source in self.sources.items() if name not in apart for u in source.units)
        return units or tuple(unit for source in self.sources.values() for unit in source.units)

    @cached_property
    def weights(self) -> Weights:
        """Word weights over the sentences of the material."""
        return Weights(found for unit in self.material for _, found in unit.sentences)

    def probe(self, inputs: Mapping[str, str]) -> str:
        """The text by which a demo is compared with this request: its query, else the head of its longest input."""
        if self.query_name:
            return inputs.get(self.query_name, "")
        name = max(self.sources, key=lambda name: len(self.sources[name].text), default="")
        return inputs.get(name, "")[:600]

    def teachers(self, name: str) -> list[tuple[Demo, Any]]:
        """Demos that supply the output `name`, with the value they give it."""
        return [(demo, demo.outputs[name]) for demo in self.prompt.demos if name in demo.outputs]

    def source(self) -> Source | None:
        """The input that a list output is mapped over: the first list that is no reference, else the longest text."""
        pool = [s for name, s in self.sources.items() if name not in self.references and name != self.query_name]
        lists = [source for source in pool if source.is_list]
        return lists[0] if lists else max(pool, key=lambda s: len(s.text), default=None)

    def reference(self, name: str) -> Source | None:
        """The list that an output or property called `x_id` or `x_ids` points at."""
        found = [self.sources[target] for target in _targets(name, self.sources)]
        units = tuple(unit for source in found for unit in source.units)
        return replace(found[0], units=units) if found else None


def _query_name(sources: Mapping[str, Source]) -> str:
    lines = [
        name
        for name, source in sources.items()
        if "\n" not in source.text and len(source.text) <= 300 and not source.is_list and not is_date(source.text)
    ]
    if len(sources) < 2:
        return ""
    asking = [name for name in lines if sources[name].text.endswith(("?", "？"))]
    full = [name for name in lines if len(sources[name].text.split()) >= 3]
    return (asking or full or lines or [""])[-1]


def _references(prompt: Prompt, sources: Mapping[str, Source]) -> frozenset[str]:
    names = [name for output in prompt.outputs for name in [output.name, *_properties(output.schema)]]
    return frozenset(target for name in names for target in _targets(name, sources))


def _properties(schema: Schema) -> list[str]:
    """Names of all properties anywhere in a schema."""
    found: list[str] = []
    for part in [schema, *schema.get("$defs", {}).values()]:
        items = expand(part.get("items", {}), schema) if isinstance(part, dict) else {}
        found += [*part.get("properties", {}), *items.get("properties", {})]
    return found


def _targets(name: str, sources: Mapping[str, Source]) -> list[str]:
    stem, _, kind = name.rpartition("_")
    if kind not in ("id", "ids") or not stem:
        return []
    one = stem.rpartition("_")[2]
    return [n for n in sources if one in (_singular(n.partition("_")[0]), _singular(n.rpartition("_")[2]))]


def _singular(name: str) -> str:
    return name[:-3] + "y" if name.endswith("ies") else name.removesuffix("s")
