"""The page of a run as one HTML file: styles, scripts and data are written into it, escaped.

Its policy lets only the scripts and styles of this folder run, known by their digests, and no request leaves. Text goes
through the template's escaping or, as data, through JSON whose characters can end no script.

Example:
    >>> from mempiler.runs.pages.html import embedded
    >>> "<" in embedded({"said": "</script>"})
    False
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ... import __version__
from ...records.atomic_file import atomic_write
from ...text import one_line
from ..rows import REASONS
from .page import DOCUMENT, Page

HTML = "report.html"
FOLDER = Path(__file__).parent
GENERATOR = '<meta name="generator" content="Mempiler'
"""What every page has in its head."""
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029\x7f"}


def keep_page(folder: Path, page: Page) -> Path | None:
    """Writes the page of a finished run into its folder; returns the HTML file.

    HTML that cannot be made or written is one line in the log `mempiler`: what was measured stands without it.
    """
    dumped = json.dumps(page.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
    with atomic_write(folder / DOCUMENT) as file:
        file.buffer.write(gzip.compress(replace_surrogates(dumped).encode(), 3))
    try:
        with atomic_write(folder / HTML) as file:
            file.write(as_html(page))
    except Exception as error:  # whatever a model said, and wherever it broke a page
        logging.getLogger("mempiler").warning("no page of %s: %s", folder.name, one_line(error, 300))
        return None
    return folder / HTML


def as_html(page: Page) -> str:
    """The page as one HTML file."""
    from markupsafe import Markup

    asked = any(each.rows for each in page.phases.values())
    style = _file("report.css")
    scripts = [_file("report.js")] if asked else []
    sources = " ".join(map(_digest, scripts)) or "'none'"
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {sources}; base-uri 'none'; form-action 'none'"
    )
    return replace_surrogates(
        _environment()
        .get_template("report.html")
        .render(
            title=f"{page.title} · {page.name}",
            policy=policy,
            # Files of this folder, which hold no end of an element; what users and models wrote is escaped.
            style=Markup(style),
            scripts=map(Markup, scripts),
            data=Markup(embedded(_browsed(page))) if asked else None,
            version=__version__,
            page=page,
            words=REASONS,
        )
    )


def _browsed(page: Page) -> dict[str, Any]:
    """What the script of the page reads: lines that recur in entries and prompts are there once, named by number."""
    numbers = defaultdict[str, int](lambda: len(numbers))
    questions = [
        each.plain(lambda text: [numbers[line] for line in text.split("\n")], numbers.__getitem__)
        for each in page.questions
    ]
    return {"phases": list(page.phases), "names": page.names, "questions": questions, "lines": list(numbers)}


def embedded(value: Any) -> str:
    """JSON that may stand in a script element."""
    return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).translate(_ESCAPED)


def replace_surrogates(text: str) -> str:
    """The text with a mark in the place of each half of a character, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


@cache
def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    # A place on an axis from 0 to 1, as SVG takes it.
    found.filters["percent"] = lambda value: f"{min(1.0, max(0.0, value)) * 100:.2f}%"
    numbers = {"score": "{:.3f}", "signed": "{:+.3f}", "count": "{:,.0f}"}
    found.filters |= {name: _number(form) for name, form in numbers.items()}
    return found


def _number(form: str) -> Callable[[float | None], str]:
    return lambda value: "–" if value is None or math.isnan(value) else form.format(value).replace("-", "−")
