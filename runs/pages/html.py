"""The page of a run as one HTML file, which needs nothing but a browser.

The template `report.html` draws the tables. The questions are JSON in a script element of the page
(`json_for_script`); its script, `report.js`, lists them and shows the one that a reader chooses.
Styles and scripts stand in the file itself. What models and users wrote cannot run as code:

- the content security policy names the digests of our own style and script, and allows no other
  ones and no request;
- the template escapes every text, and the JSON holds no character that could end its element.

Example:
    >>> from mempiler.runs.pages.html import json_for_script
    >>> "<" in json_for_script({"answer": "</script>"})
    False
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...records.atomic_file import atomic_write
from ...text import one_line
from ..rows import REASONS
from .page import PAGE_DATA, Page
from .questions import NumberedLines

if TYPE_CHECKING:
    from jinja2 import Environment

HTML = "report.html"
"""The file with the HTML of a page, in the folder of a run."""

GENERATOR = '<meta name="generator" content="Mempiler'
"""A text in the head of every page, by which files of ours are recognised."""

_TEMPLATE_FOLDER = Path(__file__).parent

_COMPRESSION_LEVEL = 3
"""Of gzip, from 0 to 9: pages are written once and are large."""

_SCRIPT_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029\x7f"}
"""Characters that could end a script element or a line of a script, and how JSON spells them."""


def save_page(folder: Path, page: Page) -> Path | None:
    """Write the page of a finished run into its folder, as data and as HTML.

    The numbers of a run do not depend on its HTML. If that cannot be made or written, a warning in
    the log `mempiler` says so.

    Returns:
        The HTML file; None if there is none.

    Raises:
        UserError: The data cannot be written.
    """
    values = page.model_dump(mode="json", exclude_defaults=True)
    data = replace_surrogates(json.dumps(values, ensure_ascii=False)).encode()
    with atomic_write(folder / PAGE_DATA) as file:
        file.buffer.write(gzip.compress(data, _COMPRESSION_LEVEL))

    try:
        with atomic_write(folder / HTML) as file:
            file.write(render_page(page))
    except Exception as error:
        # Answers of models are hostile input: whatever they break here, the run goes on.
        reason = one_line(error, 300)
        logging.getLogger("mempiler").warning("no page of %s: %s", folder.name, reason)
        return None
    return folder / HTML


def render_page(page: Page) -> str:
    """Return the page as one HTML file."""
    from markupsafe import Markup

    # `Markup` says that a text is not to be escaped: the style and the script are our own files, in
    # which nothing ends an element, and `json_for_script` escapes by itself.
    style = Markup(read_page_file("report.css"))
    scripts: list[Markup] = []
    data: Markup | None = None
    has_questions = any(evaluation.rows for evaluation in page.phases.values())
    if has_questions:
        scripts.append(Markup(read_page_file("report.js")))
        data = Markup(json_for_script(_script_data(page)))

    template = templates().get_template("report.html")
    html = template.render(
        title=f"{page.title} · {page.name}",
        policy=security_policy(style, scripts),
        style=style,
        scripts=scripts,
        data=data,
        version=__version__,
        page=page,
        reason_titles=REASONS,
    )
    return replace_surrogates(html)


def json_for_script(value: Any) -> str:
    """Return a value as JSON that may stand in a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return replace_surrogates(text).translate(_SCRIPT_ESCAPES)


def replace_surrogates(text: str) -> str:
    """Return the text with "?" for every half of a character, which no UTF-8 file can hold."""
    return text.encode("utf-8", "replace").decode()


def _script_data(page: Page) -> dict[str, Any]:
    """Return what `report.js` reads: the questions, and the lines of all their prompts once."""
    lines = NumberedLines()
    questions = [question.to_dict(lines) for question in page.questions]
    return {
        "phases": list(page.phases),
        "answers": page.asks_for_answers,
        "names": page.category_names,
        "questions": questions,
        "lines": lines.lines,
    }


@cache
def read_page_file(name: str) -> str:
    """Return the text of a file beside this one."""
    return (_TEMPLATE_FOLDER / name).read_text(encoding="utf-8")


def security_policy(style: str, scripts: Sequence[str]) -> str:
    """Return a policy that allows this style and these scripts, and nothing else."""
    script_sources = " ".join(_source_digest(script) for script in scripts) or "'none'"
    rules = [
        "default-src 'none'",
        f"style-src {_source_digest(style)}",
        f"script-src {script_sources}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _source_digest(text: str) -> str:
    """Return how a content security policy names a style or a script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def templates() -> Environment:
    """Return the environment of the templates, with the filters that write their numbers."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = _axis_position
    environment.filters["score"] = _score_text
    environment.filters["signed"] = _signed_score_text
    environment.filters["count"] = _count_text
    return environment


def _axis_position(score: float) -> str:
    """Return the place of a score on an axis from 0 to 1, as SVG takes it."""
    clipped = min(1.0, max(0.0, score))
    return f"{clipped * 100:.2f}%"


def _score_text(score: float | None) -> str:
    return _number_text(score, "{:.3f}")


def _signed_score_text(score: float | None) -> str:
    return _number_text(score, "{:+.3f}")


def _count_text(count: float | None) -> str:
    return _number_text(count, "{:,.0f}")


def _number_text(number: float | None, form: str) -> str:
    """Return a number with a true minus sign; a dash if there is none."""
    if number is None or math.isnan(number):
        return "–"
    return form.format(number).replace("-", "−")
