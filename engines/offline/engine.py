"""The offline engine: answers by rules, so that everything runs without weights, key or network.

It fills every output with sentences, spans, ids and dates of its prompt, or the first option and the least number, and
infers nothing: its scores are smoke tests. What compiling honestly shows is that the nearest demo teaches it how long
an answer is, and when it is a date. With a temperature, answers are seeded by the prompt and how often it was seen, or
`Config.seed`.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from dspy import lm15

from ...records.shared_by_copies import SharedByCopies
from .view import (
    TEXT,
    Schema,
    Unit,
    View,
    clear_text_cache,
    is_date,
    parse_date,
    read_prompt,
    render,
    sentences,
    stems,
)

_OPTION = re.compile(r"\([a-z]\)|[^\s，、。；：]+$")
_ID = re.compile(r"(?:^|_)ids?$")


class OfflineEngine(SharedByCopies):
    """A DSPy engine that answers from the prompt alone."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "response_format", "seed")
    seedable: ClassVar[bool] = True
    clear = staticmethod(clear_text_cache)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[bytes] = Counter()

    def reply(self, request: lm15.Request) -> str:
        """The text that answers a request; at temperature 0 a pure function of the prompt."""
        temperature = request.config.temperature or 0.0
        seed = self._seed("\0".join(request_texts(request)), request.config.seed) if temperature else 0
        prompt = read_prompt(request)
        view = View(prompt, temperature, seed)
        if prompt.style == "plain":
            return answer(view, "reply") or "There is no text to answer from."
        return render(prompt.style, {name: _value(view, name, schema, None) for name, schema in prompt.outputs.items()})

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request; tokens are estimated, four characters each, and `max_tokens` is ignored."""
        text = self.reply(request)
        usage = lm15.Usage(
            input_tokens=(sum(map(len, request_texts(request))) + 3) // 4, output_tokens=(len(text) + 3) // 4
        )
        return lm15.Response(None, request.model, lm15.Message.assistant(text), finish_reason="stop", usage=usage)

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Answers one request, in one piece."""
        return iter(lm15.response_to_events(self.complete(request)))

    def dump_state(self) -> dict[str, Any]:
        """Nothing: there are no settings."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Self:
        """A new engine."""
        return cls()

    def _seed(self, prompt: str, chosen: int | None) -> int:
        key = hashlib.sha256(prompt.encode()).digest()
        with self._lock:
            # Forgetting keeps a long training run from growing without bound.
            if len(self._seen) >= 20_000:
                self._seen.clear()
            self._seen[key] += chosen is None
            return int.from_bytes(key[:8], "big") * 1_000_003 + (self._seen[key] if chosen is None else chosen)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


def request_texts(request: lm15.Request) -> list[str]:
    """The texts of a request: that of the system, and every message."""
    return [str(request.system or ""), *(message.text or "" for message in request.messages)]


def answer(view: View, name: str) -> str:
    """The text for the output `name`; "" only if the request holds no text."""
    if option := _option(view):
        return option
    demo = view.nearest_answer(name)
    material = view.material if is_date(demo) else []
    if dated := [(unit, day) for unit in material if (day := parse_date(unit.body) or parse_date(unit.when))]:
        day = view.choose([(view.weight(view.stems & stems(unit.said)), day) for unit, day in dated])
        return f"{day.day} {day:%B %Y}"
    sentence = _best_sentence(view)[1]
    if not demo:
        return sentence
    said, length = sentence.split(), len(demo.split())
    spans = [" ".join(said[n:][:length]) for n in range(max(len(said) - length, 0) + 1)]
    return view.choose([(view.weight(stems(span) - view.stems), span) for span in spans]).strip(' .,;:!?"')


def _option(view: View) -> str:
    """What the best unit has of a list of words, or of items with letters; "" where there is no such list."""
    for listed, units in view.units.items():
        options = {found[0]: unit.body for unit in units if (found := _OPTION.match(unit.body))}
        if len(options) == len(units) > 1 and view.prompt.inputs[listed][0] == "[":
            best = stems(_best_sentence(view)[0].said)
            return view.choose([(view.weight(stems(body) & best), option) for option, body in options.items()])
    return ""


def _best_sentence(view: View) -> tuple[Unit, str]:
    """The sentence of the material that answers the query best, with its unit."""
    candidates = [(-1.0, (Unit(""), ""))]
    for unit in view.material:
        whole = view.weight(view.stems & stems(unit.said))
        for sentence in sentences(unit.body):
            score = (whole + view.weight(view.stems & stems(sentence))) * (0.5 if sentence.endswith("?") else 1.0)
            candidates.append((score, (unit, sentence)))
    return view.choose(candidates)


def _value(view: View, name: str, schema: Schema, unit: Unit | None) -> Any:
    """A value for one place in an output: what its schema wants, from the unit that it is mapped from, if any."""
    kind = schema.get("type")
    if choices := schema.get("anyOf"):
        value = _value(view, name, choices[0], unit)
        return None if value == "" and {"type": "null"} in choices else value
    if options := [True, False] if kind == "boolean" else schema.get("enum"):
        return view.choose([(-0.2 * n, option) for n, option in enumerate(options)])
    if kind == "array":
        return _list(view, name, schema, unit)
    if kind == "object":
        required, parts = schema.get("required", ()), schema.get("properties", {})
        # A list that has a default keeps it, unless it is one of ids.
        parts = {n: part for n, part in parts.items() if n in required or part.get("type") != "array" or _ID.search(n)}
        return {n: _value(view, n, part, unit) for n, part in parts.items()}
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 0), min(0, schema.get("maximum", 0)))
    role = name.rpartition("_")[2]
    if _ID.search(role):
        return _id(view, name, unit)
    if unit is None:
        return answer(view, name)
    return {"speaker": unit.speaker, "time": unit.when, "date": unit.when}.get(role, unit.body)


def _list(view: View, name: str, schema: Schema, unit: Unit | None) -> list[Any]:
    one = schema.get("items", TEXT)
    if _ID.search(name):
        return [id] if (id := _id(view, name, unit)) else []
    # Options that head the items of an input, as those that two are chosen of.
    texts = {other.speaker: other.body for other in view.material if other.speaker in one.get("enum", ())}
    if len(texts) > 2:
        return sorted(texts, key=lambda head: -view.weight(view.stems & stems(texts[head])))[:2]
    if unit or "enum" in one:
        return [_value(view, name, one, unit)]
    units = view.units.get(view.source, [])
    return [each.said if one == TEXT else _value(view, name, one, each) for each in units]


def _id(view: View, name: str, unit: Unit | None) -> str:
    """The id of the unit, or of its like in the list that is pointed at, or of what fits the query best."""
    units = [other for listed in view.pointed(name) for other in view.units[listed]]
    if unit and not units:
        return unit.id
    text = stems(unit.said) if unit else view.stems
    scored = [(view.weight(text & stems(other.said)), other.id) for other in units or view.material]
    # What shares less than half of the weight is not alike.
    return max([(view.weight(text) / 2, ""), *scored], key=lambda pair: pair[0])[1]
