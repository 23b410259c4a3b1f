"""Folds the spellings of a text into one, in time that grows with its length alone."""

from __future__ import annotations

import re
import unicodedata

_SIGNS = re.compile(r"[\W\uff9e\uff9f]{30}")
"""More signs in a row than any language puts on a letter (Unicode's Stream-Safe Text Format); two of them are letters
to `re`, but combining marks in form NFKC."""


def folded(text: str) -> str:
    """The text in lower case and Unicode's form NFKC, so that full-width and composed letters are the plain ones.

    Python puts combining marks in order in quadratic time: runs of more than 30 signs are parted by blanks before.
    """
    # NFKC folds nothing in ASCII.
    return (text if text.isascii() else unicodedata.normalize("NFKC", _SIGNS.sub(r"\g<0> ", text))).lower()
