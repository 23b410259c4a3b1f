"""Draws the diagrams of the documentation from text: `python docs/drawings.py` writes docs/pictures/*.svg.

A drawing is lanes, each read from left to right; a lane is a name and what follows one another in it. A step that asks
a language model begins with "!", what is kept with "=", and `{words}` stand over the arrow that leads to a step.

    ("write", "sessions", "{every 3} !update", "=facts")

They are seen in bright and dark surroundings alike, hold no script and name no font that has to be fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"

DRAWINGS: dict[str, tuple[str, Sequence[Sequence[str]]]] = {
    "program": (
        "A program: a method writes and recalls, a task answers",
        [
            ("write", "items of a history", "!writer", "=memory"),
            ("ask", "query", "{search} reader", "context", "!task", "answer"),
        ],
    ),
    "remember": (
        "A memory is written once, however many questions are asked of it",
        [
            ("first", "history", "{key not known} !write item by item", "=memory under its key"),
            ("then", "other questions", "{key known}=memory under its key", "{recall} context"),
            ("longer", "history and more", "{longest known prefix} !write the rest", "=memory under a new key"),
        ],
    ),
    "compile": (
        "Train questions teach, dev questions decide, test questions are scored once",
        [
            ("train", "train questions", "!optimizer", "=candidate prompts and demos"),
            ("dev", "dev questions", "{paired} start against candidate", "=kept only if better"),
            ("test", "test questions", "{once} before and after", "=report.html, MLflow"),
        ],
    ),
    "pramem": (
        "PraMem: experience from practice",
        [
            ("write", "behaviour records", "=records wait"),
            ("practise", "a past record", "!trial", "!reflection", "!two reviews", "=proposals"),
            ("agree", "proposals", "{every 5 rounds} !consensus", "=patterns, alerts"),
            ("ask", "query", "{all experience, newest records} !prediction"),
        ],
    ),
    "pgr": (
        "PGR: prospection-guided retrieval",
        [
            ("write", "sessions", "{every 3} !update", "=dated facts", "{50 new} !merge"),
            ("imagine", "query", "!next steps", "{each step} search", "facts found"),
            ("refine", "facts found", "!steps anew", "{until few are new} search", "facts found"),
            ("answer", "facts found", "!summary", "!answer"),
        ],
    ),
    "memory-r2": (
        "Memory-R2: facts and learned operations",
        [
            ("extract", "session in 4 parts", "!extractor", "facts"),
            ("manage", "facts", "{nearest of each} related memories", "!manager", "insert, update, delete", "=memory"),
            ("ask", "question", "{30 per speaker} memories by date", "!reader", "answer"),
            ("train", "answers' scores", "{session by session} rewards", "=weights of the model"),
        ],
    ),
    "h2memory": (
        "H2Memory: two kinds of memory on two levels",
        [
            ("logs", "device logs", "!link, describe", "=situations", "!update", "=background"),
            ("words", "dialogues", "!outline, refine", "=topics", "{clusters} !abstract", "=principles"),
            ("ask", "query", "{3 situations, 3 topics} what lies behind each", "!answer"),
        ],
    ),
    "rgmem": (
        "RGMem: a memory at several scales",
        [
            ("evidence", "segments", "!synthesize", "=facts, conclusions", "!extract, label", "=graph"),
            ("evolve", "graph", "{enough mentions} !R_K1", "{enough evidence} !R_K2", "{children first} !R_K3"),
            ("ask", "question", "!plan", "{keywords by layer} evidence, summaries", "!answer"),
        ],
    ),
}
"""Name -> title and lanes."""

_HEIGHT, _GAP, _LEFT, _TOP, _LANE = 40, 26, 96, 54, 78
_LETTER, _SMALL = 7.4, 5.9
"""Width of a letter of a step, and of what stands over an arrow."""
_STYLE = """
.card{fill:#fff;stroke:#c8ccd4}.step{fill:#f2f4f8;stroke:#8a93a3}.asks{fill:#e4e7fd;stroke:#3f51b5}
.keeps{fill:#def3e6;stroke:#1b7a43}text{font:13px system-ui,sans-serif;fill:#1b1f27}
.over{font-size:10.5px;fill:#4a5261}.lane{font-size:12px;font-weight:600;fill:#4a5261}.title{font-weight:600}
path{stroke:#4a5261;fill:none}.head{fill:#4a5261;stroke:none}
@media (prefers-color-scheme:dark){.card{fill:#1d2129;stroke:#3a4150}.step{fill:#2a303b;stroke:#7d8798}
.asks{fill:#2b3160;stroke:#9fa8f5}.keeps{fill:#1d3d2b;stroke:#6fcf97}text{fill:#e9ecf2}.over,.lane{fill:#b6bdca}
path{stroke:#b6bdca}.head{fill:#b6bdca}}
""".replace("\n", "")


def drawn(title: str, lanes: Sequence[Sequence[str]]) -> str:
    """A drawing as SVG."""
    parts, width = [], 0.0
    for n, (name, *steps) in enumerate(lanes):
        y = _TOP + n * _LANE
        parts.append(f'<text class="lane" x="16" y="{y + 25}">{escape(name)}</text>')
        x = float(_LEFT)
        for m, step in enumerate(steps):
            over, shape, words = _parted(step)
            gap = 0.0 if m == 0 else max(_GAP, len(over) * _SMALL + 18)
            parts += _arrow(x, gap, y, over) if m else []
            x += gap
            wide = len(words) * _LETTER + 22
            parts += _box(x, y, wide, shape, words)
            x += wide
        width = max(width, x)
    width, height = max(width, len(title) * 8 + 16) + 16, _TOP + len(lanes) * _LANE + 2
    legend = _legend(height - 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height + 8}" width="{width:.0f}" '
        f'height="{height + 8}" role="img"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{width - 1:.0f}" height="{height + 7}" rx="8"/>'
        f'<text class="title" x="16" y="28">{escape(title)}</text>{"".join(parts)}{legend}</svg>\n'
    )


def _parted(step: str) -> tuple[str, str, str]:
    over, _, words = step.rpartition("}")
    words = words.strip()
    shape = {"!": "asks", "=": "keeps"}.get(words[0], "step")
    return over.removeprefix("{"), shape, words.lstrip("!=")


def _box(x: float, y: float, width: float, shape: str, words: str) -> Iterator[str]:
    round_ = 18 if shape == "keeps" else 5
    yield f'<rect class="{shape}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" rx="{round_}"/>'
    yield f'<text x="{x + width / 2:.0f}" y="{y + 25}" text-anchor="middle">{escape(words)}</text>'


def _arrow(x: float, gap: float, y: int, over: str) -> Iterator[str]:
    end, middle = x + gap, y + _HEIGHT // 2
    yield f'<path d="M{x + 3:.0f} {middle}H{end - 8:.0f}"/>'
    yield f'<path class="head" d="M{end - 9:.0f} {middle - 4}l7 4l-7 4z"/>'
    if over:
        x += gap / 2 - 2
        yield f'<text class="over" x="{x:.0f}" y="{middle - 7}" text-anchor="middle">{escape(over)}</text>'


def _legend(y: int) -> str:
    told = (("asks", 16, "asks a language model"), ("keeps", 168, "is kept"))
    return "".join(
        f'<rect class="{shape}" x="{x}" y="{y}" width="14" height="11" rx="3"/>'
        f'<text class="over" x="{x + 20}" y="{y + 9}">{words}</text>'
        for shape, x, words in told
    )


if __name__ == "__main__":
    for name, (title, lanes) in DRAWINGS.items():
        (PICTURES / f"{name}.svg").write_text(drawn(title, lanes), encoding="utf-8")
