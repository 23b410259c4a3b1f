"""The files that CI systems show of a check: a Markdown summary, and JUnit XML.

Names of programs, models and figures may hold anything, so marks in them are escaped.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass

from .console import escape_control_characters

MARKDOWN_MARK = "<!-- written by mempiler check -->"
"""The first line of every Markdown file, by which a file of ours is recognised."""
JUNIT_MARK = '<testsuite name="mempiler check"'
"""What every JUnit file of ours has near its beginning."""

_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>#|~@&])")
"""Characters with a meaning in Markdown, or in GitHub's form of it, such as mentions."""
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
"""Characters that XML 1.0 does not allow, apart from control characters."""


def markdown_text(
    title: str,
    column_names: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str],
) -> str:
    """Return a heading, a table and a list as Markdown.

    Args:
        title: The heading.
        column_names: The names of the columns.
        rows: The cells of the table.
        sentences: The items of the list.
    """
    lines = [
        MARKDOWN_MARK,
        f"### {_escape_markdown(title)}",
        "",
        _markdown_row(column_names),
        _ruler(len(column_names)),
    ]
    lines.extend(_markdown_row(row) for row in rows)
    lines.append("")
    lines.extend(f"- {_escape_markdown(sentence)}" for sentence in sentences)
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    """Return a row of a table; marks of Markdown in its cells are shown as they are."""
    escaped_cells = [_escape_markdown(cell) for cell in cells]
    return f"| {' | '.join(escaped_cells)} |"


def _ruler(column_count: int) -> str:
    """Return the line between the names of the columns and the rows."""
    return f"| {' | '.join(['---'] * column_count)} |"


def _escape_markdown(text: str) -> str:
    """Return a text of one line that Markdown shows as it is."""
    line = " ".join(escape_control_characters(text).split())
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", line)


@dataclass(frozen=True)
class JUnitCase:
    """A test of a JUnit file."""

    group: str
    """What is tested; JUnit calls it the name of a class."""
    name: str
    failure: str | None = None
    """Why the test failed; None if it did not."""
    error: str | None = None
    """Why there is no result; None if there is one."""


def junit_text(cases: Sequence[JUnitCase]) -> str:
    """Return tests as JUnit XML."""
    failure_count = sum(case.failure is not None for case in cases)
    error_count = sum(case.error is not None for case in cases)
    suite = ElementTree.Element(
        "testsuite",
        name="mempiler check",
        tests=str(len(cases)),
        failures=str(failure_count),
        errors=str(error_count),
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=_xml_text(case.group), name=_xml_text(case.name)
        )
        if case.error is not None:
            ElementTree.SubElement(element, "error", message=_xml_text(case.error))
        elif case.failure is not None:
            ElementTree.SubElement(element, "failure", message=_xml_text(case.failure))
    ElementTree.indent(suite)
    body = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _xml_text(text: str) -> str:
    """Return a text without characters that XML does not allow; they are spelled out."""
    without_surrogates = _NOT_IN_XML.sub("\ufffd", text)
    return escape_control_characters(without_surrogates)
