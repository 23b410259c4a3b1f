"""Split Chinese text into words for search and metrics, with jieba and its own dictionary."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Protocol, cast

MAX_RUN_LENGTH = 500
"""Most characters in a row to split at once: for some runs jieba takes quadratic time."""

_LOCK = threading.Lock()


class ChineseCutter(Protocol):
    """The methods of `jieba.Tokenizer` that we use."""

    def cut(self, sentence: str, *, HMM: bool = True) -> Iterator[str]:  # noqa: N803 (jieba's name)
        """Yield the words of a text; with `HMM` also words that the dictionary does not have."""
        ...

    def cut_for_search(self, sentence: str) -> Iterator[str]:
        """Yield the words of a text, and the shorter words within them."""
        ...


def chinese_cutter() -> ChineseCutter:
    """Return a splitter that all callers share. The first call takes a second."""
    # Without the lock two threads could load the dictionary at once, and both would change the
    # filters of warnings.
    with _LOCK:
        return _load_cutter()


@functools.cache
def _load_cutter() -> ChineseCutter:
    with warnings.catch_warnings():
        # jieba 0.42 has invalid escape sequences and imports pkg_resources, both of which warn.
        warnings.simplefilter("ignore")
        import jieba  # pyright: ignore[reportMissingTypeStubs]

    # jieba's shared tokenizer takes words that other code adds, which would change scores and
    # indexes. It also logs, and keeps a cache in a shared file. So we fill one of our own.
    cutter = cast("Any", jieba).Tokenizer()
    frequencies, total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.FREQ = frequencies
    cutter.total = total
    cutter.initialized = True
    return cutter
