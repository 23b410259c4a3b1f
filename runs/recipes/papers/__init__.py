"""The papers' own cells, as they are printed: a JSON file per recipe, a row of cells per line.

A file maps the name of a part of the paper to its tables: title, model, columns, rows, and a note where one is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import TypeAdapter, ValidationError

from ....errors import DataError, UnknownNameError
from ..tables import PaperTable

_FILE = TypeAdapter(dict[str, tuple[PaperTable, ...]])


def printed(paper: str, part: str) -> tuple[PaperTable, ...]:
    """The tables of one part of a paper, e.g. "table1".

    Raises:
        UnknownNameError: The paper's file has no such part.
        DataError: The file is no JSON of such tables, or a row is longer or shorter than the columns.
    """
    tables = _tables(paper)
    if part not in tables:
        raise UnknownNameError(f"part of {paper}.json", part, tables)
    return tables[part]


@cache
def _tables(paper: str) -> Mapping[str, tuple[PaperTable, ...]]:
    name = f"{paper}.json"
    return read(name, resources.files(__package__ or "").joinpath(name).read_bytes())


def read(name: str, content: bytes) -> Mapping[str, tuple[PaperTable, ...]]:
    """The tables of a file by part.

    Raises:
        DataError: The content is no JSON of such tables, or a row is longer or shorter than the columns.
    """
    try:
        parts = _FILE.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(": ".join(filter(None, (name, where, first["msg"])))) from None
    for table in (table for part in parts.values() for table in part):
        for n, row in enumerate(table.rows, 1):
            if len(row) != len(table.columns):
                wrong = f"row {n} has {len(row)} cells, and there are {len(table.columns)} columns"
                raise DataError(f"{name}: {table.title}: {wrong}")
    return MappingProxyType(parts)
