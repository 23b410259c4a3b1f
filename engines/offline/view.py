"""Parses a request for the offline engine: fields, demos, sentences, the query, and how much words weigh.

A unit is an item of a JSON list, a line with a head, or else a sentence. The line `[D1:3] (8 May 2023) Ann: I moved`
has an id, a date, a speaker and a body. Of a record the longest text is the body; keys that end in id, speaker, time or
date hold the rest. The query is the last input of one plain line (no date, no number), one that asks if there is any.
An output called `x_id` or `x_ids` points at the lists that have the word x in their names: these are references, not
material to work through. Neither is an input whose description names another input: it is there to understand that one.
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
_LINE = re.compile(r"(?!\d+$).{1,300}")


class Unit(NamedTuple):
    """A piece of an input: its text, and what its head says ("" where it does not)."""

    body: str
    id: str = ""
    speaker: str = ""
    when: str = ""

    @property
    def said(self) -> str:
        """The body, with its speaker in front if there is one."""
        return f"{self.speaker}: {self.body}" if self.speaker else self.body


def read_units(text: str) -> list[Unit]:
    """Cuts an input into units."""
    value = parsed(text) if text[:1] in ("[", "{") else text
    if not isinstance(value, str):
        items = value if isinstance(value, list) else [value]
        return [_record(item) if isinstance(item, dict) else _line(str(item)) for item in items]
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
    return Unit(max(roles.values(), key=len, default=json.dumps(record)), id, speaker, time or date)


class View:
    """A request seen as query and material; a temperature lets others than the best candidate win, as the seed says."""

    def __init__(self, prompt: Prompt, temperature: float, seed: int) -> None:
        self.prompt, inputs = prompt, prompt.inputs
        self._temperature, self._random = temperature, random.Random(seed)
        self.units = {name: read_units(text) for name, text in inputs.items() if text}
        lists = [name for name, units in self.units.items() if inputs[name][0] == "[" or any(units[0][1:])]
        lines = [n for n, text in inputs.items() if n not in lists and _LINE.fullmatch(text) and not is_date(text)]
        self._asking = max(lines, key=lambda name: (inputs[name][-1] in "?？", lines.index(name)), default="")
        self.query = inputs.get(self._asking, "")
        # In a schema, as among the outputs, a name is a key that an object follows.
        named = re.findall(r'"(\w+_ids?)": \{', json.dumps(prompt.outputs))
        apart = {self._asking, *(target for name in named for target in self.pointed(name))}
        works = [name for name in self.units if name not in apart] or [*self.units]
        mapped = [name for name in works if name not in prompt.context] or works
        self.source = max(mapped, key=lambda name: math.inf if name in lists else len(inputs[name]), default="")
        """The input that a list output is mapped over: the first list, else the longest text."""
        self.material = [unit for name in works for unit in self.units[name]]
        parts = [stems(part) for unit in self.material for part in sentences(unit.body)]
        self._seen, self._most = Counter(word for part in parts for word in part), len(parts) + 1.0
        # Without a query, the most informative unit is sought.
        self.stems = stems(self.query) or stems(" ".join(unit.body for unit in self.material))

    def weight(self, text: Stems) -> float:
        """Sum of the weights of some stems: the fewer sentences of the material hold one, the more it weighs."""
        # The exact sum does not depend on the order in which a set is walked.
        return math.fsum(math.log(1.0 + self._most / (self._seen.get(word, 0) + 0.5)) for word in text)

    def choose(self, candidates: Sequence[tuple[float, Any]]) -> Any:
        """The best of scored candidates, the first of equals; with a temperature, noise is added to the scores."""
        scores = [score for score, _ in candidates]
        scale = self._temperature * max(max(scores) - sum(scores) / len(scores), 0.1)
        return max(candidates, key=lambda pair: pair[0] + scale * self._random.gauss())[1]

    def nearest_answer(self, name: str) -> str:
        """The text that the demo whose question is most like the query gives the output `name`, "" without demos."""
        first = words(self.query)[:1]
        scored = [((False, -1.0), "")]
        for inputs, outputs in self.prompt.demos:
            asked = inputs.get(self._asking, "")
            alike = words(asked)[:1] == first, self.weight(stems(asked) & self.stems)
            scored.append((alike, outputs.get(name, "")))
        return max(scored, key=lambda pair: pair[0])[1]

    def pointed(self, name: str) -> list[str]:
        """The inputs that an output or property called `x_id` or `x_ids` points at."""
        wanted, _, kind = name.rpartition("_")
        one = stems(wanted.rpartition("_")[2]) if kind in ("id", "ids") else None
        return [source for source in self.units if one and one <= stems(source)]


Stems = frozenset[str]
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
_ENDING = re.compile(r"(?<=...)(?:ing|ed|ies|es|e|y|(?<!s)s)$")
_RESOLVED_DATE = r"\[[^\[\]]*(?:\b(?:19|20)\d\d|(?:19|20)\d\d年[^\[\]]*)\]"
"""What stands beside a relative date (`programs._relative_dates`), e.g. "[7 May 2023]".

Elsewhere a bracket begins a sentence, as that of an id does. Where words follow such a date, the sentence goes on.
"""
_SENTENCE = re.compile(rf"(?<=[.!?])[\"')]*\s+|(?<=[。！？])|\n+|(?<!\s)\s+(?=\[)(?!{_RESOLVED_DATE},? ?\w)")
_FUNCTION_WORDS = """a an and are as at be been but by did do does for from had has have he her him his i in is it its
    me my of on or our she so that the their them they this to us was we were will with would you your how what when
    where which who whom whose why"""
_SILENT = frozenset(_FUNCTION_WORDS.split())
_ISO = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_DAY_FIRST = re.compile(r"\b(\d\d?) ([a-z]{3})[a-z]*,? (\d{4})\b", re.I)


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
    for pattern, form in ((_ISO, "%Y %m %d"), (_DAY_FIRST, "%d %b %Y")):
        for match in pattern.finditer(text):
            with suppress(ValueError):
                return datetime.strptime(" ".join(match.groups()), form).date()
    return None


def clear_text_cache() -> None:
    """Drops the texts seen so far: a forgotten user's may be among them."""
    for kept in (_line, stems, sentences, parse_date):
        kept.cache_clear()


def is_date(text: str) -> bool:
    """Whether a short text has a full date: "7 May 2023", "the week before 9 June 2023"."""
    return len(text.split()) <= 6 and parse_date(text) is not None


Schema = Mapping[str, Any]
TEXT = {"type": "string"}
_ASK = "\n\nRespond with"
_JSON = "Outputs will be a JSON object with the following fields."
_MISSING = "Not supplied for this "
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.+?)\):(?: |$)", re.M)
_DESCRIBED = re.compile(r"^\d+\. `(\w+)` \(.+?\): (.+)$", re.M)
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]", re.M)
_NOTE = re.compile(r"\{(\w+)\}\s+# note: the value you produce (.*)")
_MODEL = re.compile(r'"\$ref": "#/\$defs/([^"]+)"')
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "set": "array", "dict": "object"}


class Prompt(NamedTuple):
    """A request, read: its style ("chat", "json"; "plain" has one input, "prompt"); demos as far as supplied."""

    style: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, Schema] = {}
    demos: tuple[tuple[Mapping[str, str], Mapping[str, str]], ...] = ()
    context: frozenset[str] = frozenset()
    """Inputs whose description names another input, e.g. "the lines before `text`"."""


def read_prompt(request: lm15.Request) -> Prompt:
    """Reads a request."""
    system = request.system or ""
    system = system if isinstance(system, str) else "\n".join(getattr(part, "text", "") for part in system)
    turns = [(message.role, message.text or "") for message in request.messages]
    fields, _, rest = system.partition("All interactions will be structured in the following way")
    given, _, wanted = fields.partition("Your output fields are:")
    if not rest or not wanted:
        text = next((text for role, text in reversed(turns) if role == "user"), "")
        return Prompt("plain", {"prompt": text.strip()})
    structure = rest.partition("In adhering to this structure, your objective is:")[0]
    style = "json" if _JSON in structure else "chat"
    shown = "\n".join(json.loads(structure.partition(_JSON)[2]).values()) if style == "json" else structure
    notes, names = dict(_NOTE.findall(shown)), [name for name, _ in _FIELD.findall(given)]
    types = {name: _type(annotation, notes.get(name, "")) for name, annotation in _FIELD.findall(wanted)}
    asked = max((n for n, (role, text) in enumerate(turns) if role == "user" and _ASK in text), default=len(turns) - 1)
    demos = []
    for (role, said), (other, reply) in pairwise(turns[:asked]):
        if (role, other) == ("user", "assistant"):
            demos.append((_fields(said, style, names), _fields(reply, style, types)))
    inputs = _fields(turns[asked][1].rpartition(_ASK)[0], style, names)
    return Prompt(style, inputs, types, tuple(demos), _context(given))


def _context(described: str) -> frozenset[str]:
    """Return the names of the inputs whose description names another one."""
    descriptions = dict(_DESCRIBED.findall(described))
    names = [name for name, _ in _FIELD.findall(described)]
    return frozenset(
        name
        for name, description in descriptions.items()
        if any(f"`{other}`" in description for other in names if other != name)
    )


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
        return json.loads(text)
    return text


def _fields(text: str, style: str, names: Collection[str]) -> dict[str, str]:
    """Values by name, those that are wanted and supplied."""
    if style == "json" and isinstance(value := parsed(text), dict):
        texts = {name: part if isinstance(part, str) else json.dumps(part) for name, part in value.items()}
    else:
        _, *parts = _HEADER.split(text)
        texts = {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}
    return {name: texts[name] for name in names if texts.get(name) and not texts[name].startswith(_MISSING)}


@functools.lru_cache(maxsize=1_000)
def _type(annotation: str, note: str) -> Schema:
    kind, _, inside = annotation.partition("[")
    if kind == "Literal":
        return {"enum": json_repair.loads(f"[{inside}")}
    _, _, said = note.partition(": ")
    if not said:
        return {"type": _TYPES.get(kind, "string")}
    schema = json.loads(said)
    models, text = schema.pop("$defs", {}), json.dumps(schema)
    # A model that holds itself is written out only so deep.
    for _ in range(4):
        text = _MODEL.sub(lambda match: json.dumps(models[match[1]])[1:-1], text)
    return json.loads(text)
