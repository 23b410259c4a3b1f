"""The page of a run in its folder: `report.html` for people, `report.json` for `show` and `compare --page`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from ...errors import DataError, one_line
from ...records.whole_file import replacing
from .page import Page
from .reasons import REASONS, counted
from .render import mended, render

HTML, DOCUMENT = "report.html", "report.json"
_log = logging.getLogger("mempiler")


def keep_page(folder: Path, make: Callable[[], Page]) -> Path | None:
    """Makes the page of a finished run and writes it into the run's folder.

    A page that cannot be made or written is one line in the log `mempiler`: what was measured stands without it.

    Returns:
        The HTML file; None if there is none.
    """
    try:
        page = make()
        dumped = page.model_dump(mode="json", exclude_defaults=True)
        with replacing(folder / DOCUMENT) as file:
            file.write(mended(json.dumps(dumped, ensure_ascii=False, separators=(",", ":"))))
        with replacing(folder / HTML) as file:
            file.write(as_html(page))
    except Exception as error:  # whatever a model said, and wherever it broke a page
        _log.warning("no page of %s: %s", folder.name, one_line(error, 300))
        return None
    return folder / HTML


def as_html(page: Page) -> str:
    """The page as one HTML file."""
    scripts = ["report.js"] if page.questions else []
    title = f"{page.title} · {page.name}"
    data = page.browsed() if page.questions else None
    reasons = [(key, REASONS[key], counts) for key, counts in counted(page).items()]
    return render("report.html", title, ["report.css"], scripts, data, page=page, reasons=reasons)


def read_page(folder: Path) -> Page | None:
    """The page of a run; None where it has none, as runs of older versions and those that are not finished.

    Raises:
        DataError: Its file is no page.
    """
    path = folder / DOCUMENT
    if not path.is_file():
        return None
    try:
        return Page.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(f"{path}: is not the page of a run; evaluate again") from error
