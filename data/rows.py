"""Reads benchmark files row by row into models, and reports rows that do not fit by line and field.

Example:
    >>> from mempiler.data.rows import Location, Row, Text
    >>> class Question(Row):
    ...     question: Text
    >>> Location(print, "line 2").validate(Question, {"question": " "})
    Finding(kind='wrong value', where="line 2, field 'question'", message='is empty', fatal=True)
"""

from __future__ import annotations

import ast
import csv
import json
import re
import reprlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, TextIO, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from ..errors import DataError
from ..records import read_time
from ..records.json_input import check_json_value, decode_json, strict_decoder
from ..records.text_file import MAX_LINE_LENGTH, open_text_file, read_lines
from .dataset import Finding, FindingListener

PIECE = 1 << 20
"""Characters of a long list that are read at once."""
MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")
"""English months in their order, whatever the locale."""
_LONGEST_CELL = 2**24
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = {"missing": "is missing", "string_too_short": "is empty", "string_pattern_mismatch": "is empty"}
_OBJECT = {"model_type", "dict_type", "model_attributes_type"}
_MOST_NAMES = 12
"""Most field names that one message lists."""
_ARRAY_TO_LINES = "import json, sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))]"
_CSV_TO_LINES = "import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(open(sys.argv[1]))]"


class Row(BaseModel):
    """A row, or a part of one; fields that it does not name are passed over, a number is read as a text."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of optional fields; a row has one field of each group."""


def literal(cell: Any) -> Any:
    """The value of a cell that is JSON or a Python literal; what is neither stays as it is.

    What no UTF-8 file could hold is neither.
    """
    for parse in (decode_json, ast.literal_eval) if isinstance(cell, str) else ():
        try:
            value = parse(cell.strip())
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return value
    return cell


def read_date(value: Any) -> datetime | None:
    """The moment that an ISO text means, its time zone left out; None for anything else."""
    time = read_time(value)
    return time and time.replace(tzinfo=None)


def day(text: str) -> date | None:
    """The day that YYYY-MM-DD means, None if it is none."""
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def natural(name: str) -> list[tuple[int, str]]:
    """What names are sorted by so that user2 comes before user10."""
    return [(len(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"0*(\d+)", name)]


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A text with words, blanks around it left out."""
Verbatim = Annotated[str, StringConstraints(pattern=r"\S")]
"""A text with words, as it is."""
Words = Annotated[
    str, StringConstraints(strip_whitespace=True), BeforeValidator(lambda value: "" if value is None else value)
]
"""A text that may be empty or null."""
Date = Annotated[datetime | None, BeforeValidator(read_date)]
"""A moment as `read_date` reads it."""
Part = TypeVar("Part")
Listed = Annotated[tuple[Part, ...], BeforeValidator(lambda value: () if value is None else value)]
"""A list that may be null."""
Parsed = BeforeValidator(literal)
"""Marks a cell of a CSV that holds a list or an object, in the notation of JSON or of Python."""

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Location:
    """A place in a file, e.g. "line 3", and who is told what is found there."""

    on_finding: FindingListener
    where: str

    def at(self, part: object) -> Location:
        """A place inside this one."""
        return Location(self.on_finding, f"{self.where}, {part}")

    def field(self, name: str) -> Location:
        """A field of the row at this place."""
        return self.at(f"field {name!r}")

    def warn(self, kind: str, message: str) -> None:
        """Tells of something that the reader copes with."""
        self.on_finding(Finding(kind, self.where, message))

    def reject(self, kind: str, message: str) -> None:
        """Tells of something because of which the file is refused."""
        self.on_finding(Finding(kind, self.where, message, fatal=True))

    def validate(self, model: type[R], value: Any) -> R | None:
        """The value as a model; None if it is none, after a finding for each field that is wrong."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            misnamed = missing_and_strange(model, value)
            if misnamed:
                self.reject("missing field", misnamed)
            for each in error.errors():
                if misnamed and each["type"] == "missing" and len(each["loc"]) == 1:
                    continue
                place = self.field(".".join(map(str, each["loc"]))) if each["loc"] else self
                place.reject("missing field" if each["type"] == "missing" else "wrong value", _message(each))
        return None


def missing_and_strange(model: type[BaseModel], value: Any) -> str:
    """Name the fields that a row has under names the model does not know, and those it lacks: most often the same.

    Only of models that look at every field (`extra="allow"`): in files of published benchmarks others pass over many.

    Returns:
        E.g. "found: query, gold; expected: question, answer"; "" where the row has no unknown field or lacks none.
    """
    if not isinstance(value, Mapping) or model.model_config.get("extra") != "allow":
        return ""

    known: set[str] = set()
    missing: list[str] = []
    for name, field in model.model_fields.items():
        accepted = {name, *_aliases(field.validation_alias)}
        known |= accepted
        if field.is_required() and not accepted & value.keys():
            missing.append(name)
    for group in getattr(model, "alternatives", ()):
        if not set(group) & value.keys():
            missing.append(" or ".join(group))

    strange = [str(name) for name in value if name not in known]
    if not missing or not strange:
        return ""
    names = [name[:40] for name in strange[:_MOST_NAMES]]
    more = ", ..." if len(strange) > _MOST_NAMES else ""
    return f"found: {', '.join(names)}{more}; expected: {', '.join(missing)}"


def _aliases(alias: Any) -> list[str]:
    """Return the other names of a field, as pydantic's `validation_alias` gives them."""
    if alias is None:
        return []
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [choice for choice in choices if isinstance(choice, str)]


def _message(error: Any) -> str:
    kind, message = error["type"], error["msg"]
    if kind in _PLAIN or kind == "value_error":
        return _PLAIN.get(kind) or message.removeprefix("Value error, ")
    expected = "an object" if kind in _OBJECT else message.removeprefix("Input should be ").replace("tuple", "list")
    return f"is {reprlib.repr(error['input'])}, expected {expected}"


def json_object(line: str, place: Location) -> dict[str, Any] | None:
    """The object of a line of JSON; None after a fatal finding."""
    try:
        value = decode_json(line)
    except json.JSONDecodeError as error:
        place.at(f"column {error.colno}").reject("broken line", f"not valid JSON ({error.msg}); is the line cut short?")
    except ValueError as error:
        place.reject("broken line", str(error))
    else:
        if isinstance(value, dict):
            return value
        place.reject("wrong value", f"is {reprlib.repr(value)}, expected an object")
    return None


def json_rows(path: Path, model: type[R], on_finding: FindingListener) -> Iterator[tuple[int, Location, R]]:
    """The lines of a JSON-lines file that are such a model, with their numbers and places; read line by line.

    Raises:
        DataError: The file is missing, empty or no UTF-8 text, or is a JSON array or a CSV file as a whole.
    """
    with open_text_file(path) as file:
        # not splitlines: it also cuts at characters that JSON allows inside a string
        for number, line in _json_lines(path, file):
            place = Location(on_finding, f"line {number}")
            value = json_object(line, place)
            row = None if value is None else place.validate(model, value)
            if row is not None:
                yield number, place, row


def _json_lines(path: Path, file: TextIO) -> Iterator[tuple[int, str]]:
    """Yield the lines of a JSON-lines file that are not blank, with their numbers.

    Raises:
        DataError: There is none, one is too long, or the first shows a JSON array or a CSV file.
    """
    numbered = enumerate(read_lines(file, path), 1)
    lines = ((number, line.rstrip("\n")) for number, line in numbered if line.strip())
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: the file is empty")

    second = next(lines, None)
    _refuse_other_format(path, first[1].strip(), is_alone=second is None)
    yield first
    if second is not None:
        yield second
    yield from lines


def _refuse_other_format(path: Path, first_line: str, is_alone: bool) -> None:
    """Refuse a JSON array or a CSV file that was given as JSON lines, and say how to convert it.

    Args:
        path: Of the file.
        first_line: The first line that is not blank.
        is_alone: Whether the file has no other line.

    Raises:
        DataError: It is one.
    """
    expected = "expected JSON lines, one object per line"
    if first_line.startswith("["):
        # Several lines that are lists by themselves are no array; they are reported line by line.
        is_array = first_line.endswith("]") if is_alone else not _is_json(first_line)
        if is_array:
            raise DataError(f"{path}: is a JSON array; {expected}; convert it: {_conversion(_ARRAY_TO_LINES, path)}")
        return

    is_csv = path.suffix == ".csv" or ("," in first_line and re.fullmatch(r"[\w \-.\",]+", first_line))
    if is_csv and not first_line.startswith("{") and not _is_json(first_line):
        columns = next(csv.reader([first_line]))[:_MOST_NAMES]
        raise DataError(
            f"{path}: is a CSV file (its first line: {', '.join(columns):.200}); {expected}; "
            f"convert it: {_conversion(_CSV_TO_LINES, path)}"
        )


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except ValueError:
        return False
    return True


def _conversion(program: str, path: Path) -> str:
    """Return a shell command that writes JSON lines beside a file, by a one-line Python program."""
    target = path.with_suffix(".converted.jsonl")
    return f"python -c {shlex.quote(program)} {shlex.quote(str(path))} > {shlex.quote(str(target))}"


def stream_list(path: Path, piece: int = PIECE, longest: int = MAX_LINE_LENGTH) -> Iterator[Any]:
    """The entries of a JSON list, so that a file of gigabytes needs no more memory than its largest entry.

    An entry that ends beyond the piece that was read is tried again with twice as much text, so the work stays within a
    small multiple of the file's size.

    Args:
        path: A UTF-8 file whose top level is a list.
        piece: Characters that are read at once.
        longest: Most characters of an entry.

    Raises:
        DataError: The file is missing, empty, no UTF-8 text, no JSON list, or ends too early, or an entry is too long;
            entries before the fault have been given by then.
    """
    with open_text_file(path) as file:
        yield from _entries(path, _Window(file, piece, longest))


class _Window:
    """The part of a file that is in memory; the text before `at` has been dealt with.

    Args:
        file: The file.
        piece: Characters that are read at once.
        longest: Most characters that are kept.
    """

    def __init__(self, file: TextIO, piece: int, longest: int) -> None:
        self._file = file
        self._piece = piece
        self.longest = longest
        self.text = ""
        self.at = 0

    @property
    def is_full(self) -> bool:
        """Whether the text behind `at` is as long as it may be."""
        return len(self.text) - self.at >= self.longest

    def grow(self) -> bool:
        """Drop what has been dealt with, and read as much text again as is left; return whether there was any."""
        rest = self.text[self.at :]
        room = self.longest - len(rest)
        new = self._file.read(min(max(self._piece, len(rest)), room)) if room > 0 else ""
        self.text = rest + new
        self.at = 0
        return bool(new)

    def skip_space(self) -> None:
        """Move `at` to the next character that is no space, as far as the text goes."""
        self.at = end_of_space(self.text, self.at)

    def find_text(self) -> bool:
        """Move to the next character of the file that is no space; return whether there is one."""
        while True:
            self.skip_space()
            if self.at < len(self.text):
                return True
            if not self.grow():
                return False


def end_of_space(text: str, start: int) -> int:
    """Return where the space ends that begins at `start`, which may be none."""
    match = _SPACE.match(text, start)
    return start if match is None else match.end()


def _entries(path: Path, window: _Window) -> Iterator[Any]:
    if not window.find_text():
        raise DataError(f"{path}: expected a JSON list, but the file is empty")
    beginning = window.text[window.at :]
    if not beginning.startswith("["):
        raise DataError(f"{path}: expected a JSON list, but the file begins with {beginning[:20]!r}")

    window.at += 1
    decoder = strict_decoder()
    number = 0
    if window.find_text() and window.text.startswith("]", window.at):
        window.at += 1
    else:
        is_last = False
        while not is_last:
            number += 1
            value, is_last = _next_entry(f"{path}: entry {number}", window, decoder)
            yield value

    if window.find_text():
        raise DataError(f"{path}: something follows the list after its entry {number}")


def _next_entry(where: str, window: _Window, decoder: json.JSONDecoder) -> tuple[Any, bool]:
    """Read the next entry, and the sign behind it.

    Returns:
        The entry, and whether it is the last one.

    Raises:
        DataError: There is none, or it is too long.
    """
    window.find_text()
    while True:
        try:
            value, end = decoder.raw_decode(window.text, window.at)
            check_json_value(value, window.text[window.at : end])
        except json.JSONDecodeError as error:
            problem = f"not valid JSON ({error.msg})"
        except RecursionError:
            raise DataError(f"{where}: nested too deeply") from None
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
        else:
            after = end_of_space(window.text, end)
            sign = window.text[after : after + 1]
            if sign in (",", "]"):
                window.at = after + 1
                return value, sign == "]"
            problem = f"expected ',' or ']' after it, got {sign!r}"

        if window.is_full:
            size = f"it has more than {window.longest:,} characters"
            raise DataError(f"{where}: {problem}, and {size}; is a closing quote missing?")
        # The piece that was read may end within the entry, or within a number that goes on.
        if not window.grow():
            raise DataError(f"{where}: {problem}; is the file cut short?")


def csv_rows(path: Path, model: type[R], on_finding: FindingListener) -> Iterator[tuple[int, Location, R]]:
    """The rows of a CSV file that are such a model, with the line that each ends on; absent cells are "".

    Raises:
        DataError: The file is missing, empty, no UTF-8 text or no CSV, or has not all columns.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    try:
        with open_text_file(path, newline="") as file:
            reader = csv.DictReader(read_lines(file, path))
            names = [name.strip() for name in reader.fieldnames or ()]
            if not names:
                raise DataError(f"{path}: the file is empty; expected a CSV with a header")
            reader.fieldnames = names
            for name, field in model.model_fields.items():
                if field.is_required() and not {name, str(field.validation_alias)} & {*names}:
                    raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names)}")
            for cells in reader:
                line, count = reader.line_num, sum(value is not None for key, value in cells.items() if key)
                if None in cells or count < len(names):
                    count += len(cells.get(None) or ())
                    raise DataError(f"{path}: line {line} has {count} cells, the header {len(names)}; mend the line")
                place = Location(on_finding, f"line {line}")
                row = place.validate(model, cells)
                if row is not None:
                    yield line, place, row
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV: {error}") from error
