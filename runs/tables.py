"""Results as tables: plain text for `print`, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .console import as_text, table


@dataclass(frozen=True)
class ResultTable:
    """Scores of one or several evaluations."""

    title: str
    column_names: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Lines below the table: the verdict, warnings, cost."""
    report: Path | None = None
    """The page of the run, to which a notebook links."""

    def text(self) -> str:
        """Return the table as plain text."""
        lines = [self.title, table(self.column_names, self.rows), *self.notes]
        if self.report is not None:
            lines.append(f"page: {self.report}")
        return as_text(lines)

    def html(self) -> str:
        """Return the table as HTML, in which every text is escaped."""
        lines = [
            "<table>",
            f"<caption>{escape(self.title)}</caption>",
            _html_row("th", self.column_names),
        ]
        lines.extend(_html_row("td", row) for row in self.rows)
        lines.append("</table>")
        lines.extend(f"<p>{escape(note)}</p>" for note in self.notes)

        if self.report is not None and self.report.is_file():
            address = escape(self.report.resolve().as_uri())
            lines.append(f'<p><a href="{address}">every question, with its prompts</a></p>')
        return "\n".join(lines)


def _html_row(tag: str, texts: Iterable[str]) -> str:
    """Return a row of an HTML table; `tag` is that of its cells, "th" or "td"."""
    cells = [f"<{tag}>{escape(text)}</{tag}>" for text in texts]
    return f"<tr>{''.join(cells)}</tr>"
