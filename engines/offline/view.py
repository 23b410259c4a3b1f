"""Parses a request for the offline engine: fields, demos, sentences, the query, and how much words weigh.

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
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import json_repair
from dspy import lm15

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


Stems = frozenset[str]
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
_ENDING = re.compile(r"(?<=...)(?:ing|ed|ies|es|e|y|(?<!s)s)$")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+|(?<=[。！？])|\n+|(?<!\s)\s+(?=\[)")
_FUNCTION_WORDS = """a an and are as at be been but by did do does for from had has have he her him his i in is it its
    me my of on or our she so that the their them they this to us was we were will with would you your how what when
    where which who whom whose why"""
_SILENT = frozenset(_FUNCTION_WORDS.split())
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_ISO = re.compile(rf"{_YEAR.pattern}[-/](\d\d?)[-/](\d\d?)(?!\d)")
_DAY_FIRST = re.compile(rf"\b(\d\d?)(?:st|nd|rd|th)?(?: of)? ([a-z]{{3}})[a-z]*\.?,? {_YEAR.pattern}", re.I)
_MONTH_FIRST = re.compile(rf"\b([a-z]{{3}})[a-z]*\.? (\d\d?)(?:st|nd|rd|th)?,? {_YEAR.pattern}", re.I)


def words(text: str) -> list[str]:
    """The words of `text` in order, lower case."""
    return _WORD.findall(text.lower().replace("'s", "").replace("'", ""))


@functools.lru_cache(maxsize=50_000)
def stems(text: str) -> Stems:
    """Stems of the content words of `text`; kept, since prompts repeat their lines."""
    return frozenset(_ENDING.sub("", word) for word in words(text) if word not in _SILENT)


@functools.lru_cache(maxsize=50_000)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences (and bracketed remarks) of `text`, in order."""
    return tuple(part.strip() for part in _SENTENCE.split(text) if part and part.strip())


@functools.lru_cache(maxsize=20_000)
def parse_date(text: str) -> date | None:
    """The first full date (day, month and year) in `text`."""
    for pattern, form in ((_ISO, "%Y %m %d"), (_DAY_FIRST, "%d %b %Y"), (_MONTH_FIRST, "%b %d %Y")):
        for match in pattern.finditer(text):
            with suppress(ValueError):
                return datetime.strptime(" ".join(match.groups()), form).date()
    return None


def forget_texts() -> None:
    """Drops what is kept of the texts seen so far."""
    for kept in (_line, stems, sentences, parse_date):
        kept.cache_clear()


def is_date(text: str) -> bool:
    """Whether a short text is mainly a date: "7 May 2023", "June 2023", "2022", "the week before 9 June 2023"."""
    match = _ISO.search(text) or _DAY_FIRST.search(text) or _MONTH_FIRST.search(text) or _YEAR.search(text)
    return match is not None and len(text.split()) - len(match[0].split()) <= 4


Schema = Mapping[str, Any]
TEXT = {"type": "string"}
_ASK = "\n\nRespond with"
_JSON = "Outputs will be a JSON object with the following fields."
_MISSING = "Not supplied for this "
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.+?)\):(?: |$)", re.M)
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]", re.M)
_NOTE = re.compile(r"\{(\w+)\}\s+# note: the value you produce (.*)")
_MODEL = re.compile(r'"\$ref": "#/\$defs/([^"]+)"')
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "set": "array", "dict": "object"}


class Prompt(NamedTuple):
    """A request, read: its style ("chat", "json"; "plain" has one input, "prompt"); demos as far as supplied."""

    style: str
    instructions: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, Schema] = {}
    demos: tuple[tuple[Mapping[str, str], Mapping[str, Any]], ...] = ()


def read_prompt(request: lm15.Request) -> Prompt:
    """Reads a request."""
    system = request.system or ""
    system = system if isinstance(system, str) else "\n".join(getattr(part, "text", "") for part in system)
    turns = [(message.role, message.text or "") for message in request.messages]
    fields, _, rest = system.partition("All interactions will be structured in the following way")
    given, _, wanted = fields.partition("Your output fields are:")
    if not rest or not wanted:
        text = next((text for role, text in reversed(turns) if role == "user"), "")
        return Prompt("plain", system, {"prompt": text.strip()})
    structure, _, instructions = rest.partition("In adhering to this structure, your objective is:")
    style = "json" if _JSON in structure else "chat"
    shown = "\n".join(json.loads(structure.partition(_JSON)[2]).values()) if style == "json" else structure
    notes, names = dict(_NOTE.findall(shown)), [name for name, _ in _FIELD.findall(given)]
    types = {name: _type(annotation, notes.get(name, "")) for name, annotation in _FIELD.findall(wanted)}
    asked = max((n for n, (role, text) in enumerate(turns) if role == "user" and _ASK in text), default=len(turns) - 1)
    demos = []
    for (role, said), (other, reply) in pairwise(turns[:asked]):
        if (role, other) == ("user", "assistant"):
            texts = _fields(reply.removesuffix("[[ ## completed ## ]]\n"), style, types)
            outputs = {name: text if types[name] == TEXT else parsed(text) for name, text in texts.items()}
            demos.append((_fields(said, style, names), outputs))
    return Prompt(style, instructions, _fields(turns[asked][1].rpartition(_ASK)[0], style, names), types, tuple(demos))


def render(style: str, values: Mapping[str, Any]) -> str:
    """The reply that holds `values`, as the adapter of that style parses it."""
    if style == "json":
        return json.dumps(values, ensure_ascii=False, indent=2)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    # A header in a value would end it.
    fields = [f"[[ ## {name} ## ]]\n" + _HEADER.sub(r"\1:", text) for name, text in texts.items()]
    return "\n\n".join([*fields, "[[ ## completed ## ]]\n"])


def parsed(text: str) -> Any:
    """The value that a text is in JSON, or the text itself."""
    with suppress(ValueError, RecursionError):
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    return text


def _fields(text: str, style: str, names: Collection[str]) -> dict[str, str]:
    """Values by name. Headers of unknown, repeated or out-of-order fields belong to the value they stand in."""
    if style == "json" and isinstance(value := parsed(text), dict):
        texts = {name: part if isinstance(part, str) else json.dumps(part) for name, part in value.items()}
    else:
        heads, rest = [], [*names]
        for match in _HEADER.finditer(text):
            if match[1] in rest:
                rest = rest[rest.index(match[1]) + 1 :]
                heads.append(match)
        ends = [*(match.start() for match in heads[1:]), len(text)]
        texts = {head[1]: text[head.end() : end].strip() for head, end in zip(heads, ends, strict=False)}
    return {name: text for name, text in texts.items() if name in names and text and not text.startswith(_MISSING)}


@functools.lru_cache(maxsize=1_000)
def _type(annotation: str, note: str) -> Schema:
    kind, _, inside = annotation.partition("[")
    if kind == "Literal":
        return {"enum": json_repair.loads(f"[{inside}")}
    sign, _, said = note.partition(": ")
    if sign.endswith("one of"):
        return {"enum": said.split("; ")}
    if not said:
        return {"type": _TYPES.get(kind, "string")}
    schema = json.loads(said)
    models, text = schema.pop("$defs", {}), json.dumps(schema)
    # A model that holds itself is written out only so deep.
    for _ in range(4):
        text = _MODEL.sub(lambda match: json.dumps(models[match[1]])[1:-1], text)
    return json.loads(_MODEL.sub('"type": "null"', text))
