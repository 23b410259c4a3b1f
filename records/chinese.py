"""Chinese word segmentation for search and metrics: jieba with its own dictionary, loaded once."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any, cast

MAX_RUN_LENGTH = 500
"""Signs in a row to give it at once: jieba takes the square of the length of some runs."""
_LOCK = threading.Lock()


def chinese_cutter() -> Any:
    """A `jieba.Tokenizer`; the first call takes a second."""
    # A cache alone would let two threads read the dictionary, and change the warning filters, at the same time.
    with _LOCK:
        return _loaded()


@functools.cache
def _loaded() -> Any:
    with warnings.catch_warnings():
        # jieba 0.42 has invalid escape sequences and imports pkg_resources, both of which warn.
        warnings.simplefilter("ignore")
        import jieba  # pyright: ignore[reportMissingTypeStubs]
    # Of our own, so that no user's words change scores or an index, and nothing is logged or kept in a shared file.
    cutter = cast("Any", jieba).Tokenizer()
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return cutter
