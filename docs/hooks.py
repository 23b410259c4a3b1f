"""Hooks of mkdocs: fill pages from docstrings, settings, catalogs and data files, and run the notebooks.

    <!-- docstring: programs/pgr/method.py -->    the docstring of a module, its drawings as code, its parts as headings
    <!-- section: coverage.md, PGR: deviations -->    what another page says under a heading, or under several: A / B
    <!-- settings: mempiler.programs.pgr.method:PGRSettings -->    a table of what can be set of a method
    <!-- list: optimizers -->    a table of what `mempiler list` prints
    <!-- table: evidence.json, cells: method | on | start -->    columns of records of a file in docs/data

A notebook becomes a page with what its cells print. It runs while the site is built, in a folder of its own, so a cell
that fails is a site that is not built.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PATIENCE = 120
"""Seconds that a cell of a notebook may take."""

_ASKED = re.compile(r"^<!-- (docstring|section|settings|list|table): (.+?) -->$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_FETCHED = "https://unpkg.com/iframe-worker/shim"
_NAMELESS = 'data-md-component="search" role="dialog"'
_PARTS = ("Critical path", "Deviations", "Equations to functions", "Limits", "Source")
"""Paragraphs of a docstring that are parts of a page."""


def on_startup(**_: Any) -> None:
    """Called by mkdocs first: a link gives the sources the name of the package, by which the reference is read.

    What makes an installed checkout importable is nothing that can be read without importing it.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "mempiler").symlink_to(ROOT)
    sys.path.append(folder)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of every page; a search finds pages that teach before those that list."""
    if page.file.src_uri.startswith(("reference/", "coverage", "testing")):
        page.meta["search"] = {"boost": 0.1}
    return filled(markdown)


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with all files: adds a page for every notebook."""
    from mkdocs.structure.files import File

    with tempfile.TemporaryDirectory() as home:
        for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
            text = as_page(executed(DOCS / file.src_uri, home))
            files.append(File.generated(config, str(Path(file.src_uri).with_suffix(".md")), content=text))
    return files


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the HTML of every page: what the theme would fetch is here, and what it leaves nameless."""
    from mkdocs.utils import get_relative_url

    output = output.replace(_FETCHED, get_relative_url("theme/worker.js", page.url))
    return output.replace(_NAMELESS, f'{_NAMELESS} aria-label="Search"')


def filled(markdown: str) -> str:
    """The text of a page with what it asks for.

    Raises:
        LookupError: A heading, a list or a column is not there.
        FileNotFoundError: A file is not there.
    """
    kinds: Mapping[str, Callable[[str], str]]
    kinds = {"docstring": docstring, "section": section, "settings": settings, "list": listed, "table": table}
    return _ASKED.sub(lambda found: kinds[found[1]](found[2]), markdown)


def docstring(path: str) -> str:
    """The docstring of a module as Markdown, without its first line, which is the heading of the page."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    return "\n\n".join(_paragraphs(text.partition("\n\n")[2].splitlines()))


def section(place: str) -> str:
    """What a page says under a heading; without the heading."""
    name, _, headings = place.partition(", ")
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()
    for heading in headings.split(" / "):
        lines = _under(lines, heading, place)
    return "\n".join(lines).strip()


def settings(place: str) -> str:
    """A table of the fields of a model, `module:Model`, with defaults and ranges."""
    module, _, name = place.partition(":")
    kind = getattr(importlib.import_module(module), name)
    rows = ["| setting | default | what it is |", "| --- | --- | --- |"]
    for field, about in kind.model_json_schema()["properties"].items():
        low, high = about.get("minimum"), about.get("maximum")
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        told = "; ".join([about["description"], *bounds, *([" or ".join(about["enum"])] if "enum" in about else [])])
        rows.append(f"| `{field}` | {json.dumps(about['default'])} | {told} |")
    return "\n".join(rows)


def listed(kind: str) -> str:
    """A table of the names that commands take."""
    rows = _entries(kind)
    return "\n".join(["| name | what it is |", "| --- | --- |", *(f"| `{name}` | {told} |" for name, told in rows)])


def table(place: str) -> str:
    """Columns of the records of a data file; a value that its record names under `above zero` is bold."""
    file, _, rest = place.partition(", ")
    kind, _, named = rest.partition(": ")
    records, columns = json.loads((DOCS / "data" / file).read_text(encoding="utf-8"))[kind], named.split(" | ")
    if unknown := [name for name in columns if not any(name in record for record in records)]:
        raise LookupError(f"{place}: no record has {unknown}")
    lines = [columns, ["---"] * len(columns)]
    for record in records:
        shown = {name: _shown(record.get(name)) for name in columns}
        lines.append(
            [f"**{shown[name]}**" if name in record.get("above zero", ()) else shown[name] for name in columns]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def executed(path: Path, home: str) -> dict[str, Any]:
    """A notebook with what its cells give; it runs in an empty folder, and keeps its runs in another.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails, or a command in one.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    found = nbformat.read(path, as_version=4)
    # Cells name commands of the environment that the site is built in.
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {**os.environ, "MEMPILER_HOME": home, "PATH": commands, "COLUMNS": "100"}
    with tempfile.TemporaryDirectory() as folder:
        # Over sockets in files: a kernel that listens at a port can be found by whoever is on the machine.
        kernel = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/.kernel"}})
        about = {"metadata": {"path": folder}}
        NotebookClient(found, config=kernel, timeout=PATIENCE, resources=about).execute(env=own)
        return json.loads(nbformat.writes(found).replace(home, "runs/local").replace(f"{folder}/", ""))


def as_page(notebook: Mapping[str, Any]) -> str:
    """A notebook as Markdown; what it wrote to standard error, how far it is, is left out."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(_fenced(source, "python"))
        said = _COLOURS.sub("", "".join(text for output in cell["outputs"] for text in _said(output))).strip("\n")
        parts += [_fenced(said, "text")] if said else []
    return "\n\n".join(parts) + "\n"


def _shown(value: Any) -> str:
    """A value of a record; `{"mean": ..., "interval": [..., ...]}` is a difference."""
    if isinstance(value, dict):
        low, high = value["interval"]
        return f"{value['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"
    if isinstance(value, list):
        return " / ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.3f}".removeprefix("0") if 0 <= value < 1 else f"{value:,.1f}"
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _paragraphs(lines: Iterable[str]) -> Iterable[str]:
    """Paragraphs, of which indented ones are drawings or tables."""
    kept: list[str] = []
    drawn = False
    for line in [*lines, ""]:
        indented = line.startswith("    ")
        # A sentence that leads to a drawing and the drawing are two paragraphs.
        if kept and (not line or indented != drawn):
            yield _fenced("\n".join(each[4:] for each in kept), "text") if drawn else _part("\n".join(kept))
            kept = []
        if line:
            kept.append(line)
            drawn = indented


def _part(paragraph: str) -> str:
    name, _, rest = paragraph.partition(":")
    where, _, told = name.partition(" (")
    if where not in _PARTS:
        return paragraph
    told = f"{told.rstrip(')')[:1].upper()}{told.rstrip(')')[1:]}.\n" if told else ""
    return f"### {where}\n\n{told}{rest.strip()[:1].upper()}{rest.strip()[1:]}".strip()


def _under(lines: list[str], heading: str, place: str) -> list[str]:
    for n, line in enumerate(lines):
        signs, _, words = line.partition(" ")
        if words == heading and set(signs) == {"#"}:
            ends = (m for m, other in enumerate(lines) if m > n and re.match(rf"#{{1,{len(signs)}}} ", other))
            return lines[n + 1 : next(ends, len(lines))]
    raise LookupError(f"{place}: there is no heading {heading!r}")


def _entries(kind: str) -> Iterable[tuple[str, str]]:
    from mempiler.data.catalog import BENCHMARKS
    from mempiler.optimizers.catalog import OPTIMIZERS
    from mempiler.programs.names import METHODS

    if kind == "methods":
        return [(name, entry.summary) for name, entry in METHODS.items()]
    if kind == "benchmarks":
        return [(name, entry[0]) for name, entry in sorted(BENCHMARKS.items())]
    if kind == "optimizers":
        return [
            (name, f"{each.changes_in_program}. Costs {each.cost_description}. Needs {each.needs_description}.")
            for name, each in OPTIMIZERS.items()
        ]
    raise LookupError(f"there is no list {kind!r}")


def _said(output: Mapping[str, Any]) -> Iterable[str]:
    if output["output_type"] == "stream" and output["name"] == "stdout":
        yield "".join(output["text"])
    elif output["output_type"] in ("execute_result", "display_data"):
        yield "".join(output["data"].get("text/plain", "")) + "\n"


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}{language}\n{text}\n{fence}"
