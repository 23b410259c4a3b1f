"""Read CSV files with a header row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from ..errors import DataError
from ..records.text_file import open_text_file, read_lines
from .dataset import FindingListener
from .rows import Location

_LONGEST_CELL = 2**24
"""Characters of a cell; Python's own limit of 131,072 is too small for a conversation."""

RowT = TypeVar("RowT", bound=BaseModel)


def csv_rows(
    path: Path, model: type[RowT], on_finding: FindingListener
) -> Iterator[tuple[int, Location, RowT]]:
    """Yield the rows of a CSV file that fit a model, with the line each ends on and its location.

    An empty cell is "". A row that does not fit is reported and left out.

    Raises:
        DataError: The file is missing, empty, not UTF-8 or no CSV, or lacks a column.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    try:
        with open_text_file(path, newline="") as file:
            reader = csv.DictReader(read_lines(file, path))
            reader.fieldnames = _column_names(path, reader, model)
            for cells in reader:
                _check_cell_count(path, reader.line_num, cells, reader.fieldnames)
                location = Location(on_finding, f"line {reader.line_num}")
                row = location.validate(model, cells)
                if row is not None:
                    yield reader.line_num, location, row
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV: {error}") from error


def _column_names(path: Path, reader: csv.DictReader[str], model: type[BaseModel]) -> list[str]:
    """Return the names of the columns, without blanks around them.

    Raises:
        DataError: There is no header, or a column is missing that every row must have.
    """
    names = [name.strip() for name in reader.fieldnames or ()]
    if not names:
        raise DataError(f"{path}: the file is empty; expected a CSV with a header")
    for name, field in model.model_fields.items():
        accepted_names = {name, str(field.validation_alias)}
        if field.is_required() and accepted_names.isdisjoint(names):
            columns = ", ".join(names)
            raise DataError(f"{path}: has no column {name!r}; its columns are {columns}")
    return names


def _check_cell_count(
    path: Path, line: int, cells: dict[str | Any, str | Any], names: Sequence[str]
) -> None:
    """Refuse a row that has more or fewer cells than the header.

    `csv.DictReader` keeps further cells under None, and gives None for cells that are missing.

    Raises:
        DataError: It has.
    """
    further_cells = cells.get(None) or ()
    count = len(further_cells)
    for name, value in cells.items():
        if name and value is not None:
            count += 1
    if further_cells or count < len(names):
        raise DataError(
            f"{path}: line {line} has {count} cells, the header {len(names)}; fix the line"
        )
