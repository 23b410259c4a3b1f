"""The page on which a person reviews questions before they are used, as one HTML file.

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
    """What was answered; "" if it must not be shown."""


def render_review_page(questions: Sequence[ReviewedQuestion], file_name: str) -> str:
    """Return the page as HTML.

    Args:
        questions: The questions to review.
        file_name: The name of the file that the person downloads.
    """
    # `Markup` marks a text that must not be escaped. The two files are our own, and contain nothing
    # that ends their HTML element; `json_for_script` has escaped the data.
    style = Markup(read_page_file("review.css"))
    script = Markup(read_page_file("review.js"))
    question_data = [
        {"row": question.row, "given": question.given_answer} for question in questions
    ]
    data = {"file": file_name, "questions": question_data}
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
