"""Options of a wrong kind are refused in one line, in Python as on the command line."""

from __future__ import annotations

from typing import Any

import mempiler
import pytest
from mempiler.errors import UserError

from .evaluations import questions_about


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("seed", "a"),
        ("seed", 1.5),
        ("threads", 2.5),
        ("retries", 1.5),
        ("lm_deadline", "soon"),
        ("train", 2.5),
        ("allow_code", "yes"),
        ("adapter", 3),
        ("embedder", 3),
        ("reranker", 3),
        ("resume", 3),
        ("set", 3),
        ("lm_set", 3),
    ],
)
def test_an_option_of_a_wrong_kind_is_refused_with_its_name_and_value(
    make_history: Any, option: str, value: Any
) -> None:
    questions = questions_about(make_history(1), 2)
    options: dict[str, Any] = {"lm": "offline", "progress": False, option: value}

    with pytest.raises(UserError) as error:
        mempiler.evaluate("turn-rag", questions, metric="f1", **options)

    message = str(error.value)
    # A message writes an option as in Python, or as on the command line: "lm_set" or "lm-set".
    assert option.replace("_", "-") in message.replace("_", "-")
    assert str(value) in message
    assert "\n" not in message
