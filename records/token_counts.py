"""Estimate the tokens of a text without a tokenizer.

Exact counts for the tokenizer of a model are in `engines.token_counts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CJK_RUN = re.compile("[\u3000-\u9fff\uac00-\ud7af]+")
"""Chinese, Japanese and Korean characters in a row, with the punctuation between them."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for four characters, 1.5 for a CJK character."""
    cjk_count = _count_cjk(text)
    other_count = len(text) - cjk_count
    return round(other_count / 4 + cjk_count * 1.5)


def fewest_tokens(text: str) -> int:
    """Return a lower bound of the tokens that a text takes with any tokenizer.

    A token holds at most eight characters or two CJK characters. A run of white space counts as one
    character, since tokenizers have single tokens for long ones.
    """
    words = " ".join(text.split())
    cjk_count = _count_cjk(words)
    other_count = len(words) - cjk_count
    return other_count // 8 + cjk_count // 2


def count_fitting_lines(lines: Iterable[str], max_tokens: int) -> int:
    """Return how many of the first lines fit into `max_tokens`; a line break counts as a token."""
    line_count = 0
    token_count = 0
    for line in lines:
        token_count += estimate_tokens(line) + 1
        if token_count > max_tokens:
            break
        line_count += 1
    return line_count


def _count_cjk(text: str) -> int:
    if text.isascii():
        return 0
    return sum(len(run) for run in _CJK_RUN.findall(text))
