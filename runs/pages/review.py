"""The page on which a person reviews questions before they count, as one HTML file.

The page shows each question with the answer that was given and the right answer as the user knows
it. The person accepts it, corrects it or drops it, and downloads the accepted rows as JSON lines.
Everything happens in the browser: the page makes no request, and keeps nothing when it is closed.

Questions, answers and corrections are texts of users and models. As on the page of a run (`html`),
none of them can run as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ... import __version__
from .html import json_for_script, read_page_file, replace_surrogates, security_policy, templates


@dataclass(frozen=True)
class ReviewedQuestion:
    """A question that a person may accept, correct or drop."""

    row: dict[str, Any]
    """The row of the benchmark `jsonl`."""
    given_answer: str
    """What was answered; "" if that is not to be shown."""


def render_review_page(questions: Sequence[ReviewedQuestion], file_name: str) -> str:
    """Return the page as HTML.

    Args:
        questions: What is reviewed.
        file_name: The name of the file that the person downloads.
    """
    # `Markup` says that a text is not to be escaped. These are our own files, in which nothing ends
    # an element, and `json_for_script` escapes by itself.
    style = Markup(read_page_file("review.css"))
    script = Markup(read_page_file("review.js"))
    data = {
        "file": file_name,
        "questions": [
            {"row": question.row, "given": question.given_answer} for question in questions
        ],
    }
    html = (
        templates()
        .get_template("review.html")
        .render(
            policy=security_policy(style, [script]),
            style=style,
            script=script,
            data=Markup(json_for_script(data)),
            question_count=len(questions),
            file_name=file_name,
            version=__version__,
        )
    )
    return replace_surrogates(html)
