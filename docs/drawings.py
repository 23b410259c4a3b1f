"""Draw the diagrams of the documentation from lines of words.

`make docs`, or `python docs/drawings.py`, writes them to `docs/pictures/NAME.svg`. A diagram has
lanes, each read from left to right. A lane is its name, followed by its steps:

    Lane("write", "sessions", "{every 3} !update", "=facts")

| in a step    | meaning                                         |
|--------------|-------------------------------------------------|
| `!words`     | the step asks a language model                  |
| `=words`     | the step is something that is kept              |
| `{words}`    | words above the arrow that leads to the step    |

The pictures can be read on a bright and on a dark page. They hold no script and fetch no font.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

PICTURES = Path(__file__).parent / "pictures"

StepKind = Literal["step", "asks", "keeps"]
"""An ordinary step, one that asks a language model, or something that is kept.

These are also the CSS classes of the boxes.
"""


class Step(NamedTuple):
    """One box of a lane."""

    words: str
    kind: StepKind
    arrow_words: str
    """The words above the arrow that leads to the box; empty for none."""


class Lane:
    """One line of a diagram: its name, and its steps from left to right."""

    def __init__(self, name: str, *steps: str) -> None:
        self.name = name
        self.steps = [parse_step(step) for step in steps]


@dataclass(frozen=True)
class Diagram:
    """A title, and lanes below one another."""

    title: str
    lanes: list[Lane]


def parse_step(text: str) -> Step:
    """Read a step as the docstring of the module describes it."""
    before_brace, _, words = text.rpartition("}")
    arrow_words = before_brace.removeprefix("{")
    words = words.strip()
    if words.startswith("!"):
        return Step(words.removeprefix("!"), "asks", arrow_words)
    if words.startswith("="):
        return Step(words.removeprefix("="), "keeps", arrow_words)
    return Step(words, "step", arrow_words)


DIAGRAMS = {
    "program": Diagram(
        "A program: a method writes and recalls, a task answers",
        [
            Lane("write", "items of a history", "!writer", "=memory"),
            Lane("ask", "query", "{search} reader", "context", "!task", "answer"),
        ],
    ),
    "question": Diagram(
        "The way of one question",
        [
            Lane("before", "“I moved to Lisbon.”", "!writer", "=memory, finalized"),
            Lane("search", "“Where does Ada live?”", "{memory} reader", "context with evidence"),
            Lane("answer", "question and context", "!task", "“Lisbon”"),
            Lane("score", "“Lisbon”, and the gold answer", "{metric} scorer", "score 1.0"),
        ],
    ),
    "remember": Diagram(
        "A memory is written once, however many questions are asked of it",
        [
            Lane(
                "first",
                "history",
                "{key not known} !write item by item",
                "=memory under its key",
            ),
            Lane(
                "then",
                "other questions",
                "{key known}=memory under its key",
                "{recall} context",
            ),
            Lane(
                "longer",
                "history and more",
                "{longest known prefix} !write the rest",
                "=memory under a new key",
            ),
        ],
    ),
    "compile": Diagram(
        "Train questions teach, dev questions decide, test questions are scored once",
        [
            Lane("train", "train questions", "!optimizer", "=candidate prompts and demos"),
            Lane(
                "dev",
                "dev questions",
                "{paired} start against candidate",
                "=kept only if better",
            ),
            Lane("test", "test questions", "{once} before and after", "=report.html, MLflow"),
        ],
    ),
    "pramem": Diagram(
        "PraMem: experience from practice",
        [
            Lane("write", "behaviour records", "=records wait"),
            Lane(
                "practise",
                "a past record",
                "!trial",
                "!reflection",
                "!two reviews",
                "=proposals",
            ),
            Lane("agree", "proposals", "{every 5 rounds} !consensus", "=patterns, alerts"),
            Lane("ask", "query", "{all experience, newest records} !prediction"),
        ],
    ),
    "pgr": Diagram(
        "PGR: prospection-guided retrieval",
        [
            Lane("write", "sessions", "{every 3} !update", "=dated facts", "{50 new} !merge"),
            Lane("imagine", "query", "!next steps", "{each step} search", "facts found"),
            Lane(
                "refine",
                "facts found",
                "!steps anew",
                "{until few are new} search",
                "facts found",
            ),
            Lane("answer", "facts found", "!summary", "!answer"),
        ],
    ),
    "memory-r2": Diagram(
        "Memory-R2: facts and learned operations",
        [
            Lane("extract", "session in 4 parts", "!extractor", "facts"),
            Lane(
                "manage",
                "facts",
                "{nearest of each} related memories",
                "!manager",
                "insert, update, delete",
                "=memory",
            ),
            Lane("ask", "question", "{30 per speaker} memories by date", "!reader", "answer"),
            Lane(
                "train",
                "answers' scores",
                "{session by session} rewards",
                "=weights of the model",
            ),
        ],
    ),
    "h2memory": Diagram(
        "H2Memory: two kinds of memory on two levels",
        [
            Lane(
                "logs",
                "device logs",
                "!link, describe",
                "=situations",
                "!update",
                "=background",
            ),
            Lane(
                "words",
                "dialogues",
                "!outline, refine",
                "=topics",
                "{clusters} !abstract",
                "=principles",
            ),
            Lane(
                "ask",
                "query",
                "{3 situations, 3 topics} what lies behind each",
                "!answer",
            ),
        ],
    ),
    "rgmem": Diagram(
        "RGMem: a memory at several scales",
        [
            Lane(
                "evidence",
                "segments",
                "!synthesize",
                "=facts, conclusions",
                "!extract, label",
                "=graph",
            ),
            Lane(
                "evolve",
                "graph",
                "{enough mentions} !R_K1",
                "{enough evidence} !R_K2",
                "{children first} !R_K3",
            ),
            Lane(
                "ask",
                "question",
                "!plan",
                "{keywords by layer} evidence, summaries",
                "!answer",
            ),
        ],
    ),
}
"""The diagrams by name."""

# Lengths in pixels.
LEFT = 96
"""Where the first box of a lane begins; the name of the lane stands before it."""
TOP = 54
"""Where the first lane begins; the title stands above it."""
LANE_HEIGHT = 78
BOX_HEIGHT = 40
ARROW_WIDTH = 26
"""Width of an arrow without words."""
LETTER_WIDTH = 7.4
"""Mean width of a letter in a box."""
SMALL_LETTER_WIDTH = 5.9
"""Mean width of a letter above an arrow."""
TITLE_LETTER_WIDTH = 8

STYLE = """
.card{fill:#fff;stroke:#c8ccd4}
.step{fill:#f2f4f8;stroke:#8a93a3}
.asks{fill:#e4e7fd;stroke:#3f51b5}
.keeps{fill:#def3e6;stroke:#1b7a43}
text{font:13px system-ui,sans-serif;fill:#1b1f27}
.over{font-size:10.5px;fill:#4a5261}
.lane{font-size:12px;font-weight:600;fill:#4a5261}
.title{font-weight:600}
path{stroke:#4a5261;fill:none}
.head{fill:#4a5261;stroke:none}
@media (prefers-color-scheme:dark){
.card{fill:#1d2129;stroke:#3a4150}
.step{fill:#2a303b;stroke:#7d8798}
.asks{fill:#2b3160;stroke:#9fa8f5}
.keeps{fill:#1d3d2b;stroke:#6fcf97}
text{fill:#e9ecf2}
.over,.lane{fill:#b6bdca}
path{stroke:#b6bdca}
.head{fill:#b6bdca}
}
""".replace("\n", "")


def main() -> None:
    """Write all pictures."""
    for name, diagram in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw(diagram), encoding="utf-8")


def draw(diagram: Diagram) -> str:
    """Return a diagram as SVG."""
    elements: list[str] = []
    right = 0.0
    for number, lane in enumerate(diagram.lanes):
        lane_top = TOP + number * LANE_HEIGHT
        lane_elements, lane_right = draw_lane(lane, lane_top)
        elements.extend(lane_elements)
        right = max(right, lane_right)

    title = escape(diagram.title)
    title_right = len(diagram.title) * TITLE_LETTER_WIDTH + 16
    width = max(right, title_right) + 16
    legend_top = TOP + len(diagram.lanes) * LANE_HEIGHT - 12
    height = legend_top + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" ',
        f'width="{width:.0f}" height="{height}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="16" y="28">{title}</text>',
        *elements,
        draw_legend(legend_top),
        "</svg>\n",
    ]
    return "".join(parts)


def draw_lane(lane: Lane, top: int) -> tuple[list[str], float]:
    """Return the elements of a lane, and where its last box ends."""
    elements = [f'<text class="lane" x="16" y="{top + 25}">{escape(lane.name)}</text>']
    x = float(LEFT)
    for number, step in enumerate(lane.steps):
        if number > 0:
            arrow_width = max(ARROW_WIDTH, len(step.arrow_words) * SMALL_LETTER_WIDTH + 18)
            elements.append(draw_arrow(x, top, arrow_width, step.arrow_words))
            x += arrow_width

        box_width = len(step.words) * LETTER_WIDTH + 22
        elements.append(draw_box(x, top, box_width, step))
        x += box_width
    return elements, x


def draw_box(x: float, y: int, width: float, step: Step) -> str:
    """Draw a step; what is kept has round ends."""
    radius = 18 if step.kind == "keeps" else 5
    middle = x + width / 2
    return (
        f'<rect class="{step.kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" '
        f'height="{BOX_HEIGHT}" rx="{radius}"/>'
        f'<text x="{middle:.0f}" y="{y + 25}" text-anchor="middle">{escape(step.words)}</text>'
    )


def draw_arrow(x: float, y: int, width: float, words: str) -> str:
    """Draw an arrow between two boxes, and words above it."""
    tip = x + width
    line_y = y + BOX_HEIGHT // 2
    arrow = (
        f'<path d="M{x + 3:.0f} {line_y}H{tip - 8:.0f}"/>'
        f'<path class="head" d="M{tip - 9:.0f} {line_y - 4}l7 4l-7 4z"/>'
    )
    if not words:
        return arrow

    middle = x + width / 2 - 2
    return arrow + (
        f'<text class="over" x="{middle:.0f}" y="{line_y - 7}" '
        f'text-anchor="middle">{escape(words)}</text>'
    )


def draw_legend(y: int) -> str:
    """Draw what the two special kinds of boxes mean."""
    return (
        f'<rect class="asks" x="16" y="{y}" width="14" height="11" rx="3"/>'
        f'<text class="over" x="36" y="{y + 9}">asks a language model</text>'
        f'<rect class="keeps" x="168" y="{y}" width="14" height="11" rx="3"/>'
        f'<text class="over" x="188" y="{y + 9}">is kept</text>'
    )


if __name__ == "__main__":
    main()
