"""Read CSV files with a header row."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

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
    """Yield the rows of a CSV file that fit a model: the line a row ends on, its location, the row.

    An empty cell is "". A row that does not fit is reported and left out.

    Raises:
        DataError: The file is missing, empty, not UTF-8 or no CSV, or lacks a column.
    """
    # The limit is one of the whole process, so it is never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    try:
        with open_text_file(path, newline="") as file:
            reader = csv.DictReader(read_lines(file, path))
            column_names = _column_names(path, reader, model)
            # Names in the header may have blanks around them, which no field has.
            reader.fieldnames = column_names
            for cells in reader:
                _check_cell_count(path, reader.line_num, cells, column_names)
                location = Location(on_finding, f"line {reader.line_num}")
                row = location.validate(model, cells)
                if row is not None:
                    yield reader.line_num, location, row
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV: {error}") from error


def _column_names(path: Path, reader: csv.DictReader[str], model: type[BaseModel]) -> list[str]:
    """Return the names of the columns, without blanks around them.

    Raises:
        DataError: There is no header, two columns have the same name, or a column is missing that
            every row must have.
    """
    names = [name.strip() for name in reader.fieldnames or ()]
    if not names:
        raise DataError(f"{path}: the file is empty; expected a CSV with a header")
    for name, count in Counter(names).items():
        # Columns without a name, e.g. the row numbers that pandas writes, are read by nobody.
        if name and count > 1:
            raise DataError(f"{path}: has {count} columns {name!r}; remove all but one")
    for name, field in model.model_fields.items():
        accepted_names = {name}
        if isinstance(field.validation_alias, str):
            accepted_names.add(field.validation_alias)
        if field.is_required() and accepted_names.isdisjoint(names):
            columns = ", ".join(names)
            raise DataError(f"{path}: has no column {name!r}; its columns are {columns}")
    return names


def _check_cell_count(
    path: Path,
    line: int,
    cells: Mapping[str | None, str | list[str] | None],
    column_names: Sequence[str],
) -> None:
    """Refuse a row that has more or fewer cells than the header.

    Args:
        path: The file, for the message.
        line: The line that the row ends on.
        cells: The row as `csv.DictReader` returns it. Cells beyond the header are a list under the
            key None, and cells that are missing are None.
        column_names: The names in the header.

    Raises:
        DataError: The row has more or fewer cells.
    """
    further_cells = cells.get(None) or ()
    missing_cells = [name for name, cell in cells.items() if cell is None]
    if further_cells or missing_cells:
        count = len(column_names) + len(further_cells) - len(missing_cells)
        raise DataError(
            f"{path}: line {line} has {count} cells, the header {len(column_names)}; fix the line"
        )
