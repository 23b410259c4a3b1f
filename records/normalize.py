"""Normalize texts, so that a search finds a word however it is written."""

from __future__ import annotations

import re
import unicodedata

# Unicode's Stream-Safe Text Format allows 30 marks on a letter; no language needs as many. The two
# named characters are letters to `re`, but NFKC turns them into combining marks.
_LONG_RUN_OF_MARKS = re.compile(r"[\W\uff9e\uff9f]{30}")


def normalize_text(text: str) -> str:
    """Return a text in lower case and in Unicode's form NFKC.

    NFKC replaces full-width and composed letters by plain ones.
    """
    if text.isascii():
        # NFKC changes nothing in ASCII.
        return text.lower()

    # Python sorts combining marks in quadratic time: blanks split long runs of them.
    split_text = _LONG_RUN_OF_MARKS.sub(r"\g<0> ", text)
    return unicodedata.normalize("NFKC", split_text).lower()
