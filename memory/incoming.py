"""Checks what callers send: names, texts, messages, metadata and conditions.

A condition of metadata is a value, `{"in": [...]}`, or a range of `gt`, `gte`, `lt`, `lte`. Truth values, numbers and
texts are never equal to one another, and texts are compared letter by letter: dates in ISO form have ranges.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ..errors import DataError, UserError
from ..records import History, Item, Session, Turn
from ..records.timestamps import utc
from ..validation import validation_message

I = TypeVar("I", bound=Item)  # noqa: E741

MAX_KEY = 512
"""Longest tenant, user, session or turn id, in characters."""
MAX_BYTES = 800
"""Longest of these in UTF-8: three of them must fit into one entry of PostgreSQL's indexes."""
ADDRESSABLE = r"^[\w@:+=~|-][\w.@:+=~|-]*$"
"""Names of users and sessions over HTTP. The store takes any text; letters, digits and these signs need no escaping in
an address, and cannot be taken for a path, a query or code."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters without a shape that Unicode counts as letters, marks or signs."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def name_of(what: str, value: object) -> str:
    """A tenant, user or session id as it is stored: two spellings of one name are one name (Unicode's form NFC).

    Raises:
        UserError: See `check_key`; or it holds a character that cannot be seen, so that two names would look the same.
    """
    if isinstance(value, str):
        value = unicodedata.normalize("NFC", value)
    check_key(what, value)
    hidden = next((char for char in str(value) if char in _BLANK or unicodedata.category(char) == "Cf"), None)
    if hidden is not None:
        raise UserError(
            f"{what} {value!a:.100} holds a character that cannot be seen (U+{ord(hidden):04X}); leave it out"
        )
    return str(value)


def check_key(what: str, value: object) -> None:
    """Refuses ids that a database or a line of a prompt cannot hold; everything else is data, however it looks.

    Raises:
        UserError: It is empty, longer than `MAX_KEY`, or holds a control character or half a character.
    """
    if not isinstance(value, str) or not value:
        raise UserError(f"{what} {value!r:.100} must be a text that is not empty")
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in value[: MAX_KEY + 1]):
        raise UserError(
            f"{what} {value!a:.100} holds a control character or half a character; use one line of plain text"
        )
    if len(value) > MAX_KEY or len(value.encode()) > MAX_BYTES:
        raise UserError(
            f"{what} {value[:40]!r}... has {len(value)} characters; use at most {MAX_KEY}, {MAX_BYTES} bytes"
        )


def storable(text: str) -> str:
    """A text that a store can hold; one with NUL or half a character is a `UserError`."""
    if _UNSTORABLE.search(text):
        raise UserError(f"the text {text!a:.60} holds NUL or half a character; use plain text")
    return text


Storable = Annotated[str, AfterValidator(storable)]
"""A text that is checked where it comes from outside."""


def plain_line(what: str, value: object, most: int) -> str:
    """A text on one line, as a store and a prompt can hold it; a `UserError` if it is empty, too long, or no text."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{what} {value!a:.60} must be a text that is not empty")
    if len(value) > most:
        raise UserError(f"{what} has {len(value)} characters; use at most {most}")
    return " ".join(storable(value).split())


Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


def incoming(
    session: Item | Messages, id: str | None = None, metadata: Mapping[str, Scalar] | None = None
) -> tuple[Item, str]:
    """An item with an id (or "") and a time, and the digest of what was given: the time of the call is not in it.

    Raises:
        DataError: It is neither an item nor a list of messages, or a message is malformed.
        UserError: The id is no name, or the metadata are malformed.
    """
    said = {} if metadata is None else checked_metadata(metadata)
    if isinstance(session, Item):
        given = session.id if id is None else id
        item = session.model_copy(update={"id": name_of("session", given) if given or id is not None else ""})
        return item, digest_of(item, said)
    turns = turns_of(session)
    time = next((turn.time for turn in turns if turn.time), None)
    item = Session(id=name_of("session", id) if id is not None else "", time=time, turns=tuple(turns))
    return (item if time else item.model_copy(update={"time": now()})), digest_of(item, said)


def turns_of(messages: Messages) -> list[Turn]:
    """Turns without ids from messages, or a `DataError`; those without text are left out."""
    # Callers without types pass anything.
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"expected a session or a list of messages, got {type(messages).__name__}")
    sessions = [History.from_messages([message]).items[0] for message in messages]
    return [
        turn.model_copy(update={"id": "", "time": utc(session.time)}) for session in sessions for turn in session.turns
    ]


def now() -> datetime:
    """The time of day that undated messages get: UTC, to the second."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def checked(item: I) -> I:
    """An item as it is stored, or a `UserError`: its id in Unicode's form NFC, its times in UTC without a zone."""
    id = name_of("session", item.id) if item.id else ""
    if not item.turns:
        raise UserError(f"session {item.id!r} has no turns; there is nothing to remember")
    check_turns(item.turns)
    turns = tuple(
        turn.model_copy(update={"time": utc(turn.time)}) if turn.time and turn.time.tzinfo else turn
        for turn in item.turns
    )
    return item.model_copy(update={"id": id, "time": utc(item.time), "turns": turns})


def check_turns(turns: Sequence[Turn]) -> None:
    """Refuses turns whose id or speaker would not stay on its line of a prompt, as a `UserError`."""
    for turn in turns:
        if turn.id:
            check_key("turn", turn.id)
        check_key("speaker", turn.speaker)


def digest_of(item: Item, metadata: Mapping[str, Any]) -> str:
    """sha256 of an item's JSON, and of what the caller says of it."""
    said = json.dumps(metadata, sort_keys=True) if metadata else ""
    return hashlib.sha256((json_of(item) + said).encode()).hexdigest()


def json_of(record: Item | Turn) -> str:
    """JSON of a record; a text with half a character is a `UserError`."""
    try:
        return record.model_dump_json()
    except ValueError:
        raise UserError(f"{record.id!r}: a text holds half a character (a lone surrogate); use valid Unicode") from None


Scalar = str | int | float | bool
MOST = 32
"""Most values of a session, and most conditions."""
LONGEST = 500
"""Most characters of a text among metadata."""
_ORDERS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def _plain(value: object) -> object:
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise ValueError(f"the text has {len(value)} characters; use at most {LONGEST}")
        return storable(value)
    if not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} is no plain value; use a text, a number, true or false")
    # Beyond it numbers are not the same in all languages.
    if not math.isfinite(value) or abs(value) > 2**53:
        raise ValueError(f"{value!a:.40} is no number from -2**53 to 2**53")
    return value


def _name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.-]{0,63}", name, re.ASCII):
        raise ValueError(f"the name {name!a:.80} must be 1 to 64 letters, digits and _ . -, the first a letter or _")
    return name


Name = Annotated[str, AfterValidator(_name)]
Plain = Annotated[str | bool | int | float, BeforeValidator(_plain)]
Metadata = Annotated[dict[Name, Plain], Field(max_length=MOST, examples=[{"channel": "phone", "year": 2025}])]


class Range(BaseModel):
    """What a value of a session is to be: all that is given must hold."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, json_schema_extra={"examples": [{"gte": 2024, "lt": 2026}]}
    )

    in_: Annotated[tuple[Plain, ...], Field(min_length=1, max_length=100)] | None = Field(None, alias="in")
    gt: Plain | None = None
    gte: Plain | None = None
    lt: Plain | None = None
    lte: Plain | None = None

    @model_validator(mode="after")
    def _has_ends(self) -> Self:
        ends = self.model_dump(exclude_none=True)
        if not ends:
            raise ValueError("is empty; give a value, or in, gt, gte, lt or lte")
        if any(isinstance(end, bool) for end in ends.values()):
            raise ValueError("gt, gte, lt and lte take a number or a text")
        return self

    def holds(self, value: Scalar) -> bool:
        """Whether a value is such a one."""
        if self.in_ is not None and not any(_alike(value, one) and value == one for one in self.in_):
            return False
        ends = ((order, getattr(self, name)) for name, order in _ORDERS.items())
        return all(end is None or (_alike(value, end) and order(value, end)) for order, end in ends)


def _alike(one: Scalar, other: Scalar) -> bool:
    return all(isinstance(one, kind) == isinstance(other, kind) for kind in (str, bool))


def _condition(given: Any) -> Any:
    whole: Any = given
    return whole if isinstance(given, dict | Range) else {"in": [given]}


Condition = Annotated[Range, BeforeValidator(_condition, json_schema_input_type=Plain | Range)]
MetadataFilter = Annotated[
    dict[Name, Condition], Field(max_length=MOST, examples=[{"channel": "phone", "year": {"gte": 2024}}])
]
"""Conditions of the metadata of sessions, all of which must hold."""


def _checked(what: str, kind: TypeAdapter[Any], given: object) -> Any:
    try:
        return kind.validate_python(given)
    except ValidationError as error:
        raise UserError(f"{what}: {validation_message(error)!a:.200}") from None


checked_metadata: Callable[[object], dict[str, Scalar]] = partial(_checked, "metadata", TypeAdapter(Metadata))
"""What a caller says of a session, as it is stored; a `UserError` for no dict of plain values."""
checked_conditions: Callable[[object], dict[str, Range]] = partial(_checked, "where", TypeAdapter(MetadataFilter))
"""Conditions as they come from outside, or a `UserError`; {} are met by everything."""


def meets(metadata: Mapping[str, Scalar], conditions: Mapping[str, Range]) -> bool:
    """Whether a session of this metadata fulfils all conditions."""
    return all(name in metadata and one.holds(metadata[name]) for name, one in conditions.items())
