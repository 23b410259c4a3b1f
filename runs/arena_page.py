"""The arena as one file of HTML that needs nothing else: tables, and pictures of what a score costs.

Whatever comes from a run is escaped: names, answers and failures are other people's text. The picture of the scores
against tokens and seconds joins those that no other one beats in both.
"""

from __future__ import annotations

import base64
import io
import json
import warnings
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from .arena import Entry, View
from .results import Expense

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: 13px }
th, td { border-bottom: 1px solid #d5dae1; padding: .3rem .6rem; text-align: right; vertical-align: top }
th:first-child, td:first-child, .text { text-align: left }
code { font-size: 12px; overflow-wrap: anywhere } .failed { color: #a02020 } img { max-width: 100% }
"""
_COLUMNS: dict[str, Callable[[Entry], str]] = {
    "n": lambda each: str(each.official.n) if each.official else "-",
    "score": lambda each: _span(each.official),
    "without wrong golds": lambda each: _span(each.corrected, count=True),
    "evidence recall": lambda each: _number(each.recall),
    "right": lambda each: str(each.right),
    "calls": lambda each: f"{each.taken.calls:,}" if each.taken else "-",
    "tokens": lambda each: f"{each.tokens:,}" if each.taken else "-",
    "seconds": lambda each: f"{each.taken.seconds:,.1f}" if each.taken else "-",
    "disk": lambda each: "-" if each.disk is None else f"{each.disk / 1e6:,.2f} MB",
    "cost": lambda each: _dollars(each.taken.cost if each.taken else None),
    "cost per right answer": lambda each: _dollars(each.cost_per_right),
    "tokens per right answer": lambda each: "-" if each.tokens_per_right is None else f"{each.tokens_per_right:,.0f}",
    "junk": lambda each: "-" if each.junk is None else f"{each.junk:.0%}",
    "failed": lambda each: str(each.failures),
}
_WORDS = {
    "without wrong golds": "the same answers without the questions whose gold answer is known to be wrong, and how "
    "many are left; beside the official score, never instead of it",
    "right": "answers of the score with at least .5",
    "calls": "of models, to write the memories and to answer, whoever paid for them first; likewise tokens and seconds",
    "disk": "what the memories take: of a system its folder, of ours their JSON",
    "junk": "share of stored entries that were recalled for no right answer",
}


def page(entries: Sequence[Entry]) -> str:
    """The page, as HTML."""
    parts = [f"<h1>Arena</h1><p>{len(entries)} runs. {_explained()}</p>"]
    for key, group in groupby(entries, lambda each: json.dumps(each.basis, sort_keys=True)):
        parts.append(_section(json.loads(key), list(group)))
    parts.append(_repeated(entries))
    head = f'<meta charset="utf-8"><title>Arena</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _section(basis: dict[str, Any], entries: Sequence[Entry]) -> str:
    """The runs that rest on the same."""
    told = ", ".join(f"{name} {_short(value)}" for name, value in basis.items() if value is not None)
    judged = next((each for each in entries if each.judge), None)
    lines = [f"<p>{escape(told)}</p>"]
    if judged is not None:
        known = judged.leniency
        rate = "was not checked (mempiler judge check)" if known is None else f"accepts {known:.0%} of wrong answers"
        lines.append(f"<p>judge {escape(str(judged.judge))}: {rate}</p>")
    if any(each.official and not each.comparable for each in entries):
        lines.append("<p>On bundled samples or with an engine of rules: a wiring check, not comparable.</p>")
    head = "".join(f"<th>{escape(name)}</th>" for name in ("what", *_COLUMNS))
    rows = "".join(_row(each) for each in entries)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    title = escape(str(basis.get("benchmark")))
    return f"<h2>{title}</h2>{''.join(lines)}{table}{_image(entries)}"


def _row(entry: Entry) -> str:
    failed = f'<br><span class="failed">{escape(entry.reason)}</span>' if entry.reason else ""
    cells = "".join(f"<td>{escape(show(entry))}</td>" for show in _COLUMNS.values())
    return f"<tr><td>{escape(entry.program)}{failed}</td>{cells}</tr>"


def _repeated(entries: Sequence[Entry]) -> str:
    rows = "".join(
        f'<tr><td>{escape(each.program)}</td><td class="text"><code>{escape(each.command)}</code></td>'
        f'<td class="text"><code>{escape(each.hash[:16])}</code></td><td class="text">{escape(each.run)}</td>'
        f'<td class="text">{escape(", ".join(map(" ".join, each.versions.items())))}</td></tr>'
        for each in entries
    )
    head = "".join(f'<th class="text">{name}</th>' for name in ("what", "command", "hash", "run", "versions"))
    return f"<h2>To do it again</h2><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _explained() -> str:
    return escape("; ".join(f"{name}: {words}" for name, words in _WORDS.items()) + ".")


def _image(entries: Sequence[Entry]) -> str:
    figure = pareto_picture(entries)
    if figure is None:
        return ""
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    text = base64.b64encode(data.getvalue()).decode()
    return f'<img alt="score against tokens and seconds" src="data:image/png;base64,{text}">'


def pareto_picture(entries: Sequence[Entry]) -> Any | None:
    """A matplotlib figure: scores with intervals against tokens and seconds a question; None without a score."""
    from matplotlib.figure import Figure

    panels: dict[str, Callable[[Expense, Entry], float]] = {
        "tokens a question": lambda taken, each: each.tokens / max(1, taken.units),
        "seconds a question": lambda taken, each: taken.seconds / max(1, taken.units),
    }
    figure = Figure(figsize=(11, 4), layout="constrained")
    for axes, (title, cost) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        points: list[tuple[float, float]] = []
        for each in entries:
            view, taken = each.official, each.taken
            if view is None or view.score is None or taken is None:
                continue
            place = cost(taken, each)
            points.append((place, view.score))
            if view.low is not None and view.high is not None:
                axes.vlines(place, view.low, view.high, color="#b0b7c3", linewidth=1)
            axes.plot([place], [view.score], "o", color="#2f6db5")
            label = each.program.replace("$", r"\$")[:40]
            axes.annotate(label, points[-1], fontsize=7, xytext=(4, 3), textcoords="offset points")
        if not points:
            return None
        axes.plot(*zip(*unbeaten(points), strict=True), color="#4a9b6e", linewidth=1, linestyle="--")
        axes.set_xscale("symlog", linthresh=1e-3 if "seconds" in title else 1)
        axes.set_xlabel(title)
        axes.set_ylabel("score")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of (cost, score) than which no other one is both cheaper and better, from the cheapest on.

    Example:
        >>> from mempiler.runs.arena_page import unbeaten
        >>> unbeaten([(1, .2), (2, .1), (3, .5)])
        [(1, 0.2), (3, 0.5)]
    """
    found: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or score > found[-1][1]:
            found.append((cost, score))
    return found


def _span(view: View | None, count: bool = False) -> str:
    if view is None or view.score is None:
        return "-"
    interval = "" if view.low is None else f" [{view.low:.3f}, {view.high:.3f}] by {view.unit}"
    return f"{view.score:.3f}{interval}{f' n {view.n}' if count else ''}"


def _short(value: Any) -> str:
    return str(value)[:60]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _dollars(value: float | None) -> str:
    return "-" if value is None else f"${value:.4f}"
