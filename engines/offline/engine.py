"""The offline engine: answers by rules, so that everything runs without weights, key or network.

It fills every output with spans, sentences, ids and dates of its prompt, chosen and shaped by the nearest demos there,
and infers nothing: its scores are smoke tests. What compiling honestly shows is that demos teach it that "When"
questions want a date. With a temperature, answers are seeded by the prompt and how often it was seen, or `Config.seed`.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, NamedTuple, Self

from dspy import lm15

from .view import (
    TEXT,
    Schema,
    Unit,
    View,
    forget_texts,
    is_date,
    parse_date,
    parsed,
    plain,
    read_prompt,
    render,
    sentences,
    stems,
    words,
)

_FENCED = re.compile(r"```\w*\n(.*?)\n?```(?=.*```)(.*)", re.S)


class OfflineEngine:
    """A DSPy engine that answers from the prompt alone."""

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = True
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens", "response_format", "seed")
    seedable: ClassVar[bool] = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[bytes] = Counter()

    def reply(self, request: lm15.Request) -> str:
        """The text that answers a request; at temperature 0 a pure function of the prompt."""
        temperature = request.config.temperature or 0.0
        seed = self._seed("\0".join(said(request)), request.config.seed) if temperature else 0
        return _reply(View(read_prompt(request), temperature, seed))

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request; tokens are estimated, four characters each, and `max_tokens` is ignored."""
        text = self.reply(request)
        usage = lm15.Usage(input_tokens=(sum(map(len, said(request))) + 3) // 4, output_tokens=(len(text) + 3) // 4)
        return lm15.Response(None, request.model, lm15.Message.assistant(text), finish_reason="stop", usage=usage)

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Answers one request, in one piece."""
        return iter(lm15.response_to_events(self.complete(request)))

    def clear(self) -> None:
        """Drops the texts seen so far: a forgotten user's may be among them."""
        forget_texts()

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

    def __deepcopy__(self, memo: object) -> Self:
        """Optimizers copy programs; the copies share one engine and its counts."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


def said(request: lm15.Request) -> list[str]:
    """The texts of a request: that of the system, and every message."""
    return [str(request.system or ""), *(message.text or "" for message in request.messages)]


def _reply(view: View) -> str:
    prompt = view.prompt
    if prompt.style != "plain":
        return render(prompt.style, {name: fill(view, name, schema) for name, schema in prompt.outputs.items()})
    # Reflective optimizers show a text in a fence and ask for a new one in a fence.
    if fenced := _FENCED.search(prompt.inputs["prompt"]):
        return f"```\n{with_advice(fenced[1].strip(), fenced[2])}\n```"
    return answer(view, "reply") or "There is no text to answer from."


_ADVICE = re.compile(r"(?:When\b[^.]*?, )?(?i:answer|give|use|write|keep|copy|state|name)\b.{10,200}")
_AT_MOST = re.compile(r"\bat most (\d+) words?\b")
_COUNT = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")
_NUMBER = re.compile(r"(?<!\w)-?\d{1,15}(?:\.\d{1,9})?(?!\d)")
_OPTION = re.compile(r"\([a-z]\)|[^\s，、。；：]+$")
_ID = re.compile(r"(?:^|_)ids?$")


class Place(NamedTuple):
    """One place in an output: what it wants, the unit it is mapped from, and what demos have there, nearest first."""

    name: str
    schema: Schema
    unit: Unit | None
    taught: Sequence[Any]


def fill(view: View, name: str, schema: Schema) -> Any:
    """A value of the type of the output `name`, as JSON would hold it."""
    if schema == TEXT and not _ID.search(name):
        return answer(view, name)
    return _value(view, Place(name, schema, None, [value for _, value in view.taught(name)]))


def answer(view: View, name: str) -> str:
    """The text for the output `name`; "" only if the request holds no text."""
    last, inputs = name.rpartition("_")[2], view.prompt.inputs
    if old := next((text for other, text in inputs.items() if other.rpartition("_")[2] == last), ""):
        return with_advice(old, " ".join(plain(parsed(text)) for text in inputs.values() if text != old))
    if option := _option(view, name):
        return option
    kind, length, example = _shape(view, name)
    if kind == "yes/no":
        return example
    if kind == "date" and (day := _when(view)):
        return f"{day.day} {day:%B %Y}"
    sentence = _best_sentence(view)[1]
    if kind == "number" and (found := _COUNT.search(sentence)):
        return found[0]
    if not length:
        return sentence
    spans = [" ".join(sentence.split()[n:][:length]) for n in range(max(len(sentence.split()) - length, 0) + 1)]
    return view.choose([(view.weight(stems(span) - view.stems), span) for span in spans]).strip(' .,;:!?"')


def _option(view: View, name: str) -> str:
    """What demos or the best unit have of a list of words, or of items with letters; "" where there is none."""
    for listed, units in view.units.items():
        options = {found[0]: unit.body for unit in units if (found := _OPTION.match(unit.body))}
        if len(options) == len(units) > 1 and view.prompt.inputs[listed][0] == "[":
            best = stems(_best_sentence(view)[0].said)
            scored = [(view.weight(stems(body) & best), option) for option, body in options.items()]
            return next((value for _, value in view.taught(name) if value in options), view.choose(scored))
    return ""


def with_advice(old: str, others: str) -> str:
    """The text `old`, and the imperative sentence that `others` repeats most often, unless `old` has it already."""
    advice = Counter(sentence for sentence in sentences(others) if _ADVICE.fullmatch(sentence))
    fresh = [text for text, count in advice.most_common() if count > 1 and text not in old]
    return " ".join([old, *fresh[:1]])


def _best_sentence(view: View) -> tuple[Unit, str]:
    """The sentence of the material that answers the query best, with its unit."""
    candidates = [(-1.0, (Unit(""), ""))]
    for unit in view.material:
        whole = view.weight(view.stems & stems(unit.said))
        for sentence in sentences(unit.body):
            found = stems(sentence)
            score = (whole + view.weight(view.stems & found)) * (0.5 if sentence.endswith("?") else 1.0)
            candidates.append((score + 0.05 * min(len(found), 5), (unit, sentence)))
    return view.choose(candidates)


def _when(view: View) -> date | None:
    """When the thing the query asks about happened, by the best unit that says or bears a date."""
    candidates: list[tuple[float, Any]] = [(-1.0, None)]
    for unit in view.material:
        said = parse_date(unit.body)
        if day := said or parse_date(unit.when):
            candidates.append((view.weight(view.stems & stems(unit.said)) + 0.5 * bool(said), day))
    return view.choose(candidates)


def _shape(view: View, name: str) -> tuple[str, int, str]:
    """Kind, most words (0: whole sentences) and an example of the answer, by the demos, else by the instructions."""
    pairs = [(words(view.probe(inputs)), value) for inputs, value in view.taught(name) if isinstance(value, str)]
    if pairs:
        form = words(view.probe(view.prompt.inputs))[:1]
        values = [value for asked, value in pairs if asked[:1] == form] or [value for _, value in pairs]
        kind = Counter(map(_kind, values[:5])).most_common(1)[0][0]
        alike = [value for value in values[:5] if _kind(value) == kind]
        return kind, max(len(value.split()) for value in alike), alike[0]
    told = view.prompt.instructions
    quoted = words(" ".join(re.findall(r'"([\w ]+)"', told)))
    if quoted and not set(quoted) & set(words(view.query)):
        return "text", 0, ""
    most = _AT_MOST.search(told)
    return "date" if "absolute date" in told else "text", int(most[1]) if most else 0, ""


def _kind(text: str) -> str:
    if re.fullmatch(r"(?:yes|no)\W*", text, re.I):
        return "yes/no"
    return "date" if is_date(text) else "number" if _COUNT.match(text) and len(text.split()) <= 2 else "text"


def _value(view: View, place: Place, nullable: bool = False) -> Any:
    schema, kind, taught = place.schema, place.schema.get("type"), place.taught
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        real = [choice for choice in choices if choice.get("type") != "null"]
        if not real or (len(real) < len(choices) and taught and taught[0] is None):
            return None
        return _value(view, place._replace(schema=real[0]), nullable=len(real) < len(choices))
    options = [schema["const"]] if "const" in schema else [True, False] if kind == "boolean" else schema.get("enum")
    if options:
        known = [value for value in taught if value in options]
        return view.choose([(-0.2 * n, option) for n, option in enumerate([*known, *options])])
    if kind == "array":
        return _list(view, place)
    if kind == "object":
        required, parts = schema.get("required", ()), schema.get("properties", {})
        # A list that has a default keeps it, unless it is one of ids.
        parts = {n: part for n, part in parts.items() if n in required or part.get("type") != "array" or _ID.search(n)}
        inside = {n: [item[n] for item in taught if isinstance(item, dict) and n in item] for n in parts}
        return {n: _value(view, Place(n, part, place.unit, inside[n])) for n, part in parts.items()}
    found = _leaf(view, place)
    if found is None and (nullable or kind == "null"):
        return None
    if kind not in ("integer", "number"):
        return str(found or "")[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")
    step = 1 if kind == "integer" else 1e-6
    low = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf) - step)
    number = min(max(float(found or 0), low), high)
    return int(number) if kind == "integer" else number


def _list(view: View, place: Place) -> list[Any]:
    schema, one = place.schema, place._replace(schema=place.schema.get("items", TEXT), taught=())
    if "prefixItems" in schema:
        return [_value(view, one._replace(schema=part)) for part in schema["prefixItems"]]
    if "enum" in one.schema:
        values = next((value for value in place.taught if isinstance(value, list)), None) or _headed(view, one)
    elif _ID.search(place.name):
        values = _ids(view, place)
    elif place.unit is None:
        values = _mapped(view, one)
    else:
        values = [] if one.schema.get("type") == "null" else [_value(view, one)]
    missing = schema.get("minItems", 0) - len(values)
    return [*values, *(_value(view, one) for _ in range(missing))][: schema.get("maxItems")]


def _headed(view: View, one: Place) -> list[Any]:
    """The two options whose items fit the query best, where options head the items of a list, else one option."""
    texts = {head: unit.body for unit in view.material if (head := unit.id or unit.speaker) in one.schema["enum"]}
    if len(texts) < 3:
        return [_value(view, one)]
    return sorted(texts, key=lambda head: -view.weight(view.stems & stems(texts[head])))[:2]


def _mapped(view: View, one: Place) -> list[Any]:
    items = [item for _, made in view.taught(one.name) if isinstance(made, list) for item in made][:40]
    texts, values = [plain(item) for item in items], []
    for unit in view.units.get(view.source, []):
        taught = [items[n] for n in _nearest(view, unit.said, texts)]
        values.append(unit.said if one.schema == TEXT else _value(view, one._replace(unit=unit, taught=taught)))
    return values


def _nearest(view: View, text: str, others: Sequence[str], least: float = 0.0) -> list[int]:
    """Places of the texts whose cosine with a text is above the least, the highest first."""
    scored = [(view.cosine(stems(text), stems(other)), n) for n, other in enumerate(others)]
    return [n for score, n in sorted(scored, key=lambda pair: -pair[0]) if score > least]


def _ids(view: View, place: Place) -> list[str]:
    """The id of the unit, or of its like in the list that is pointed at, or of what fits the query best."""
    unit, units = place.unit, [unit for name in view.pointed(place.name) for unit in view.units[name]]
    if unit is None or units:
        text, units = unit.said if unit else view.query, units or view.material
        near = _nearest(view, text, [other.said for other in units], 0.5 if unit else 0.0)
        unit = units[near[0]] if near else None
    return [unit.id] if unit and unit.id else []


def _leaf(view: View, place: Place) -> Any:
    """A text or a number; None where there is none."""
    unit, role = place.unit, place.name.rpartition("_")[2]
    if place.schema.get("type") in ("integer", "number"):
        taught = [value for value in place.taught if isinstance(value, int | float)]
        return next(iter([*taught, *_NUMBER.findall(unit.body if unit else _best_sentence(view)[1])]), None)
    if (form := place.schema.get("format")) in ("date", "date-time"):
        day = (parse_date(unit.when) if unit else _when(view)) or "1970-01-01"
        return f"{day}" if form == "date" else f"{day}T00:00:00"
    if _ID.search(role):
        return next(iter(_ids(view, place)), None)
    if unit is None:
        return _best_sentence(view)[1]
    if isinstance(own := unit.record.get(place.name), str):
        return own
    return {"speaker": unit.speaker, "time": unit.when, "date": unit.when}.get(role, unit.body) or None
