"""Write the generated tables into the pages of the documentation.

`make docs`, or `python docs/fill_pages.py`, writes all of them. A test fails where a page is not
current. In its page, a generated table stands between two comments, the first of which says what
the table is made from:

    <!-- settings: mempiler.programs.pgr.method:PGRSettings -->

    | setting | default | what it is |
    | --- | --- | --- |
    | `every` | 3 | sessions per upsert; at least 1 |

    <!-- end -->

The first comment is one of these:

- `settings: MODULE:MODEL` lists the fields of a settings model, with their defaults.
- `list: NAME` lists what `mempiler list NAME` prints: methods, benchmarks or optimizers.
- `table: FILE, LIST: FIELD | FIELD` shows fields of the records in a list of a file in `docs/data`.

To add a table, write the two comments into a page, each on its own line, and run `make docs`.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
COMMAND = "make docs"
"""What a reader runs to make the tables current."""

BEGIN = re.compile(r"<!-- (settings|list|table): (.+) -->")
END = "<!-- end -->"


def main() -> None:
    """Write the tables into all pages, and print the pages that changed."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            filled_text = fill(text)
        except (ValueError, LookupError) as error:
            error.add_note(f"in {page}")
            raise
        if filled_text != text:
            page.write_text(filled_text, encoding="utf-8")
            print(f"wrote {page.relative_to(DOCS.parent)}")


def pages() -> list[Path]:
    """Return the Markdown files of the documentation, by path."""
    return sorted(DOCS.rglob("*.md"))


def fill(text: str) -> str:
    """Return the text of a page with current tables.

    Raises:
        ValueError: A table has no end, or an end has no beginning.
        LookupError: A list, or a field of records, does not exist.
        FileNotFoundError: A data file does not exist.
    """
    filled_lines: list[str] = []
    begin_comment = None
    for line in text.splitlines():
        match = BEGIN.fullmatch(line)
        if begin_comment is None:
            filled_lines.append(line)
            if line == END:
                raise ValueError(f"{END} stands before a table has begun")
            if match is not None:
                begin_comment = line
                filled_lines.extend(["", generate(match[1], match[2]), ""])
        elif line == END:
            filled_lines.append(line)
            begin_comment = None
        elif match is not None:
            raise ValueError(f"{begin_comment} has no {END}")
        # All other lines are the old table, which the new one replaces.

    if begin_comment is not None:
        raise ValueError(f"{begin_comment} has no {END}")
    return "\n".join(filled_lines) + "\n"


def generate(kind: str, source: str) -> str:
    """Return the table that a comment `<!-- kind: source -->` asks for."""
    if kind == "settings":
        return settings_table(source)
    if kind == "list":
        return list_table(source)
    return record_table(source)


def settings_table(source: str) -> str:
    """Return a table of the fields of a settings model, named `module:Model`."""
    module_name, _, model_name = source.partition(":")
    model = getattr(importlib.import_module(module_name), model_name)

    rows: list[list[str]] = []
    for name, field in model.model_json_schema()["properties"].items():
        # A group of settings, such as the weights of a search, has a table of its own elsewhere.
        default = "a group" if "$ref" in field else json.dumps(field["default"])
        rows.append([f"`{name}`", default, _describe(field)])
    return markdown_table(["setting", "default", "what it is"], rows)


def _describe(field: Mapping[str, Any]) -> str:
    """Return the description of a field in a JSON schema, followed by the values it may have."""
    # A docstring may have several lines.
    parts = [" ".join(field["description"].split()).removesuffix(".")]
    if "minimum" in field:
        parts.append(f"at least {field['minimum']}")
    if "maximum" in field:
        parts.append(f"at most {field['maximum']}")
    if "enum" in field:
        parts.append(" or ".join(field["enum"]))
    return "; ".join(parts)


def list_table(kind: str) -> str:
    """Return a table of the names that commands take: of methods, benchmarks or optimizers.

    Raises:
        LookupError: There is no such list.
    """
    rows: list[list[str]] = []
    for name, description in _list_entries(kind):
        rows.append([f"`{name}`", description])
    return markdown_table(["name", "what it is"], rows)


def _list_entries(kind: str) -> Iterator[tuple[str, str]]:
    # Imported here, so that the tables of records need no package.
    from mempiler.data.catalog import BENCHMARKS
    from mempiler.optimizers.catalog import OPTIMIZERS
    from mempiler.programs.names import METHODS

    if kind == "methods":
        for name, method in METHODS.items():
            yield name, method.summary
    elif kind == "benchmarks":
        for name, benchmark in sorted(BENCHMARKS.items()):
            yield name, benchmark[0]
    elif kind == "optimizers":
        for name, optimizer in OPTIMIZERS.items():
            yield (
                name,
                f"{optimizer.changes_in_program}. Costs {optimizer.cost_description}. "
                f"Needs {optimizer.needs_description}.",
            )
    else:
        raise LookupError(f"there is no list {kind!r}")


def record_table(source: str) -> str:
    """Return a table of the records of a data file.

    A value is bold if its record names the field under "above zero".

    Args:
        source: The file, the name of its list of records, and the fields to show:
            "evidence.json, cells: method | n".

    Raises:
        LookupError: No record has one of the fields.
    """
    file_name, _, rest = source.partition(", ")
    list_name, _, field_names = rest.partition(": ")
    fields = field_names.split(" | ")
    content = json.loads((DOCS / "data" / file_name).read_text(encoding="utf-8"))
    records = content[list_name]

    known_fields = {name for record in records for name in record}
    unknown_fields = [name for name in fields if name not in known_fields]
    if unknown_fields:
        raise LookupError(f"{source}: no record has {unknown_fields}")

    rows: list[list[str]] = []
    for record in records:
        row: list[str] = []
        for name in fields:
            text = format_value(record.get(name))
            is_bold = name in record.get("above zero", ())
            row.append(f"**{text}**" if is_bold else text)
        rows.append(row)
    return markdown_table(fields, rows)


def format_value(value: Any) -> str:
    """Return the text of a value of a record, as a cell of a table shows it.

    A dictionary is a difference with its interval, `{"mean": .1, "interval": [-.1, .3]}`, or a
    score with its interval, `{"score": .1, "interval": [.0, .3]}`. Only a difference has a sign.
    Where the interval is None, as with a single question, the number stands alone.
    """
    if value is None:
        return "-"
    if isinstance(value, dict):
        sign = "" if "score" in value else "+"
        number = value["score"] if "score" in value else value["mean"]
        text = f"{number:{sign}.3f}"
        if value["interval"] is None:
            return text
        low, high = value["interval"]
        return f"{text} [{low:{sign}.3f}, {high:{sign}.3f}]"
    if isinstance(value, list):
        return " / ".join(format_value(part) for part in value)
    # A bool is an int, too, so it must come first.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        is_share = 0 <= value < 1
        return f"{value:.3f}".removeprefix("0") if is_share else f"{value:,.1f}"
    return str(value)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [_table_line(header), _table_line(["---"] * len(header))]
    for row in rows:
        lines.append(_table_line(row))
    return "\n".join(lines)


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
