"""Read files of JSON lines: one JSON object per line."""

from __future__ import annotations

import csv
import json
import re
import reprlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar, cast

from pydantic import BaseModel

from ..errors import DataError
from ..records.json_input import decode_json
from ..records.text_file import open_text_file, read_lines
from .dataset import FindingListener
from .rows import MAX_LISTED_NAMES, Location

_ARRAY_TO_LINES = (
    "import json, sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))]"
)
"""A program that prints the entries of a JSON array as lines."""
_CSV_TO_LINES = (
    "import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(open(sys.argv[1]))]"
)
"""A program that prints the rows of a CSV file as lines of JSON."""

RowT = TypeVar("RowT", bound=BaseModel)


class NumberedLine(NamedTuple):
    """A line of a file without its newline."""

    number: int
    """Counted from 1."""
    text: str


def json_rows(
    path: Path, model: type[RowT], on_finding: FindingListener
) -> Iterator[tuple[int, Location, RowT]]:
    """Yield the rows of a file of JSON lines that fit a model, with line number and location.

    The file is read line by line. A line that does not fit is reported and left out.

    Raises:
        DataError: The file is missing, empty or not UTF-8, or is a JSON array or a CSV file.
    """
    with open_text_file(path) as file:
        for line in _lines_with_text(path, file):
            location = Location(on_finding, f"line {line.number}")
            value = json_object(line.text, location)
            if value is None:
                continue
            row = location.validate(model, value)
            if row is not None:
                yield line.number, location, row


def json_object(line: str, location: Location) -> dict[str, Any] | None:
    """Return the object of a line of JSON; report a line that holds none, and return None."""
    try:
        value = decode_json(line)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg}); is the line cut short?"
        location.at(f"column {error.colno}").reject("broken line", problem)
        return None
    except ValueError as error:
        location.reject("broken line", str(error))
        return None

    if not isinstance(value, dict):
        location.reject("wrong value", f"is {reprlib.repr(value)}, expected an object")
        return None
    return cast("dict[str, Any]", value)


def _lines_with_text(path: Path, file: TextIO) -> Iterator[NumberedLine]:
    """Yield the lines of a file that are not blank.

    Raises:
        DataError: There is none, one is too long, or the first shows a JSON array or a CSV file.
    """
    lines = _not_blank(path, file)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: the file is empty")

    second = next(lines, None)
    _refuse_other_format(path, first.text.strip(), is_only_line=second is None)
    yield first
    if second is not None:
        yield second
    yield from lines


def _not_blank(path: Path, file: TextIO) -> Iterator[NumberedLine]:
    # `str.splitlines` would also cut at characters that JSON allows inside a string.
    for number, line in enumerate(read_lines(file, path), 1):
        if line.strip():
            yield NumberedLine(number, line.rstrip("\n"))


def _refuse_other_format(path: Path, first_line: str, is_only_line: bool) -> None:
    """Refuse a JSON array or a CSV file that was given as JSON lines, and say how to convert it.

    Args:
        path: The file.
        first_line: The first line that is not blank.
        is_only_line: Whether the file has no other line.

    Raises:
        DataError: The file is a JSON array or a CSV file.
    """
    expected = "expected JSON lines, one object per line"
    if _looks_like_array(first_line, is_only_line):
        command = _conversion_command(_ARRAY_TO_LINES, path)
        raise DataError(f"{path}: is a JSON array; {expected}; convert it: {command}")

    if _looks_like_csv(path, first_line):
        columns = ", ".join(next(csv.reader([first_line]))[:MAX_LISTED_NAMES])
        command = _conversion_command(_CSV_TO_LINES, path)
        raise DataError(
            f"{path}: is a CSV file (its first line: {columns:.200}); {expected}; "
            f"convert it: {command}"
        )


def _looks_like_array(first_line: str, is_only_line: bool) -> bool:
    """Return whether a file is one JSON array, by its first line."""
    if not first_line.startswith("["):
        return False
    if is_only_line:
        return first_line.endswith("]")
    # The array goes on in the next line. If the first line is a whole list, the file has a list in
    # each line: it is reported line by line.
    return not _is_json(first_line)


def _looks_like_csv(path: Path, first_line: str) -> bool:
    """Return whether a file is CSV, by its name and its first line."""
    # A header such as `id, question, answer`: words between commas, and none of JSON's brackets.
    is_header = "," in first_line and re.fullmatch(r"[\w \-.\",]+", first_line) is not None
    if path.suffix != ".csv" and not is_header:
        return False
    # Whatever its name, a file whose first line is JSON is read as JSON lines.
    return not first_line.startswith(("{", "[")) and not _is_json(first_line)


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except ValueError:
        return False
    return True


def _conversion_command(program: str, path: Path) -> str:
    """Return a shell command that writes JSON lines beside a file, by a one-line Python program."""
    target = path.with_suffix(".converted.jsonl")
    return f"python -c {shlex.quote(program)} {shlex.quote(str(path))} > {shlex.quote(str(target))}"
