"""The cutter of Chinese words that search and metrics share: jieba with its own dictionary, loaded once."""

from __future__ import annotations

import threading
import warnings
from functools import lru_cache
from typing import Any, cast

LONGEST_RUN = 500
"""Signs in a row to give it at once: jieba takes the square of the length of some runs."""
_LOCK = threading.Lock()


def chinese_cutter() -> Any:
    """A `jieba.Tokenizer`; the first call takes a second."""
    # lru_cache alone would let two threads read the dictionary, and change the warning filters, at the same time.
    with _LOCK:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    with warnings.catch_warnings():
        # jieba 0.42 has invalid escape sequences and imports pkg_resources, both of which warn.
        warnings.simplefilter("ignore")
        import jieba  # pyright: ignore[reportMissingTypeStubs]
    # A cutter of our own, made from the dictionary: words that a user adds to the shared one must not change scores or
    # what is in an index, and nothing is logged, or kept in a file that all users of the machine can write.
    cutter = cast("Any", jieba).Tokenizer()
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return cutter
