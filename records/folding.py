"""Folds texts, so that the same word in other letters is found."""

from __future__ import annotations

import re
import unicodedata

_LONG_RUN_OF_SIGNS = re.compile(r"[\W\uff9e\uff9f]{30}")
"""More signs in a row than any language puts on a letter (Unicode's Stream-Safe Text Format); two of them are letters
to `re`, but combining marks in form NFKC."""


def folded(text: str) -> str:
    """Return the text in lower case and Unicode's form NFKC: full-width and composed letters become the plain ones."""
    if text.isascii():
        # NFKC changes nothing in ASCII.
        return text.lower()

    # Python puts combining marks in order in quadratic time: blanks part long runs of them.
    parted = _LONG_RUN_OF_SIGNS.sub(r"\g<0> ", text)
    return unicodedata.normalize("NFKC", parted).lower()
