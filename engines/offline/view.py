"""What the engine sees of a request: inputs cut into units, which of them is the query, and how words weigh.

A unit is an item of a JSON list, a line with a head, or else a sentence. The line `[D1:3] (8 May 2023) Ann: I moved`
has an id, a date, a speaker and a body. Of a record the longest text is the body; keys that end in id, speaker, time or
date hold the rest. The query is the last input of one plain line (one that asks, or else has three words, if there is
any), whatever its name. Only an output called `x_id` or `x_ids` points, by name, at the lists that have the word x in
theirs: these are references, not material to work through. Limit: other heads are read as part of the body.
"""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .prompt import Prompt, parsed
from .text import Stems, is_date, sentences, stems

_HEAD = re.compile(
    r"(?s)\s*(?:[-*•#]+\s+|(\d+)[.)]\s+)?(?:\[([^\s\[\]]+)\]\s*)?(?:\(([^()]{0,99}\b(?:19|20)\d\d\b[^()]{0,99})\)\s*)?"
    r"(?:([^\W\d_][\w.'#-]*(?: [\w.'#-]+){0,2})[:：]\s+(?=\S))?(.*)"
)
_LINE = re.compile(r".{1,300}")
_ITEM = re.compile(r"^\[\d+\] (?=«)", re.M)


class Unit(NamedTuple):
    """A piece of an input: its text, what its head says ("" where it does not), and the record if it is one."""

    body: str
    id: str = ""
    speaker: str = ""
    when: str = ""
    record: Mapping[str, Any] = {}

    @property
    def said(self) -> str:
        """The body, with its speaker in front if there is one."""
        return f"{self.speaker}: {self.body}" if self.speaker else self.body


def read_units(text: str) -> list[Unit]:
    """Cuts an input into units."""
    value = parsed(text) if text[:1] in ("[", "{") else text
    if not isinstance(value, str):
        items = value if isinstance(value, list) else [value]
        return [_record(item) if isinstance(item, dict) else _line(plain(item)) for item in items]
    if _ITEM.match(text):
        return [_line(part.strip("\n «»")) for part in _ITEM.split(text) if part]
    units = [_line(line.strip()) for line in text.strip("«»").splitlines() if line.strip()]
    headed = 2 * sum(any(unit[1:]) for unit in units) > len(units)
    return units if headed else [Unit(sentence) for sentence in sentences(text)]


@functools.lru_cache(maxsize=20_000)
def _line(line: str) -> Unit:
    """Takes the head off a line; kept, since prompts about one memory repeat their lines."""
    number, id, when, speaker, body = _HEAD.findall(line)[0]
    return Unit(body.strip(), id or number, speaker, when)


def forget_lines() -> None:
    """Drops the lines seen so far."""
    _line.cache_clear()


def _record(record: Mapping[str, Any]) -> Unit:
    roles = {key.rpartition("_")[2]: text for key, text in record.items() if isinstance(text, str)}
    id, speaker, time, date = (roles.pop(role, "") for role in ("id", "speaker", "time", "date"))
    return Unit(max(roles.values(), key=len, default=plain(record)), id, speaker, time or date, record)


def plain(value: Any) -> str:
    """The texts in a JSON value."""
    if isinstance(value, dict | list):
        return " ".join(map(plain, value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, str) else json.dumps(value)


class View:
    """A request seen as query and material; a temperature lets others than the best candidate win, as the seed says."""

    def __init__(self, prompt: Prompt, temperature: float, seed: int) -> None:
        self.prompt, inputs = prompt, prompt.inputs
        self._temperature, self._random = temperature, random.Random(seed)
        self.units = {name: read_units(text) for name, text in inputs.items() if text}
        lists = [name for name, units in self.units.items() if inputs[name][0] == "[" or any(units[0][1:])]
        lines = [n for n, text in inputs.items() if n not in lists and _LINE.fullmatch(text) and not is_date(text)]
        fit = {n: (inputs[n][-1] in "?？", len(inputs[n].split()) > 2, place) for place, n in enumerate(lines)}
        self._asking = max(fit, key=lambda name: fit[name], default="") if len(self.units) > 1 else ""
        self.query = inputs.get(self._asking, "")
        # In a schema, as among the outputs, a name is a key that an object follows.
        named = re.findall(r'"(\w+_ids?)": \{', json.dumps(prompt.outputs))
        apart = {self._asking, *(target for name in named for target in self.pointed(name))}
        works = [name for name in self.units if name not in apart] or [*self.units]
        self.source = max(works, key=lambda name: math.inf if name in lists else len(inputs[name]), default="")
        """The input that a list output is mapped over: the first list, else the longest text."""
        self.material = [unit for name in works for unit in self.units[name]]
        parts = [stems(part) for unit in self.material for part in sentences(unit.body)]
        self._seen, self._most = Counter(word for part in parts for word in part), len(parts) + 1.0
        self._whole = functools.cache(self.weight)
        # Without a query, the most informative unit is sought.
        self.stems = stems(self.query) or stems(" ".join(unit.body for unit in self.material))

    def weight(self, text: Stems) -> float:
        """Sum of the weights of some stems: the fewer sentences of the material hold one, the more it weighs."""
        # The exact sum does not depend on the order in which a set is walked.
        return math.fsum(math.log(1.0 + self._most / (self._seen.get(word, 0) + 0.5)) for word in text)

    def cosine(self, left: Stems, right: Stems) -> float:
        """How much of their weight two texts share, 0 to 1."""
        shared = self.weight(left & right)
        return shared and shared / math.sqrt(self._whole(left) * self._whole(right))

    def choose(self, candidates: Sequence[tuple[float, Any]]) -> Any:
        """The best of scored candidates, the first of equals; with a temperature, noise is added to the scores."""
        scores = [score for score, _ in candidates]
        scale = self._temperature * max(max(scores) - sum(scores) / len(scores), 0.1)
        return max(candidates, key=lambda pair: pair[0] + scale * self._random.gauss())[1]

    def probe(self, inputs: Mapping[str, str]) -> str:
        """The text by which a demo is compared with this request: its query, else the head of its inputs."""
        return inputs.get(self._asking, "") if self._asking else " ".join(inputs.values())[:600]

    def taught(self, name: str) -> list[tuple[Mapping[str, str], Any]]:
        """The inputs of the demos that supply the output `name`, with the value they give it, nearest first."""
        probe = stems(self.probe(self.prompt.inputs))
        found = [(inputs, outputs[name]) for inputs, outputs in self.prompt.demos if name in outputs]
        return sorted(found, key=lambda pair: -self.cosine(probe, stems(self.probe(pair[0]))))

    def pointed(self, name: str) -> list[str]:
        """The inputs that an output or property called `x_id` or `x_ids` points at."""
        wanted, _, kind = name.rpartition("_")
        one = stems(wanted.rpartition("_")[2]) if kind in ("id", "ids") else None
        return [source for source in self.units if one and one <= stems(source)]
