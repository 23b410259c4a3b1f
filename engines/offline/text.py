"""Words, stems, sentences and their weights: how the offline engine compares two pieces of text.

Everything is counted within one prompt: a word weighs more the fewer sentences of that prompt hold it. There is no
vocabulary beyond a list of English function words, which only keeps "the" from looking like a match; text in
scripts without spaces is compared character by character.

Example:
    >>> Weights([stems("Ann paints"), stems("Bob paints")]).cosine(stems("painted"), stems("paints")) > 0.99
    True
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable

Stems = tuple[str, ...]

_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+|(?<=[。！？])|\n+|\s+(?=\[)")
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be been but by did do does for from had has have he her him his i in is it its me my of on
        or our she so that the their them they this to us was we were will with would you your
        how what when where which who whom whose why""",
    )
)


def words(text: str) -> list[str]:
    """The words of `text` in order, lower case."""
    return _WORD.findall(text.lower().replace("'s", "").replace("'", ""))


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A crude English stem: enough to see that "paints" and "painted" are one word."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for suffix in ("ing", "ed", "es", "s"):
        if len(word) - len(suffix) >= 3 and word.endswith(suffix) and not word.endswith("ss"):
            word = word[: -len(suffix)]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def stems(text: str) -> Stems:
    """Stems of the words of `text` that are not function words."""
    return tuple(stem(word) for word in words(text) if word not in _FUNCTION_WORDS)


def is_function_word(word: str) -> bool:
    """Whether a word says nothing by itself, so that no answer should begin or end with it."""
    return word in _FUNCTION_WORDS


def sentences(text: str) -> list[str]:
    """The sentences (and bracketed remarks) of `text`, in order, without empty ones."""
    return [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]


class Weights:
    """Inverse document frequencies over the sentences of one prompt.

    Args:
        documents: Stems of every sentence that counts.
    """

    def __init__(self, documents: Iterable[Stems]) -> None:
        seen: Counter[str] = Counter()
        self._n = 0
        for document in documents:
            self._n += 1
            seen.update(set(document))
        self._seen = seen
        self._of: dict[str, float] = {}
        self._norms: dict[Stems, tuple[frozenset[str], float]] = {}

    def of(self, word: str) -> float:
        """Weight of one stem; the rarest weigh most."""
        weight = self._of.get(word)
        if weight is None:
            weight = self._of[word] = math.log(1.0 + (self._n + 1.0) / (self._seen.get(word, 0) + 0.5))
        return weight

    def overlap(self, query: Stems, text: Stems) -> float:
        """Sum of the weights of the stems that both hold, each counted once."""
        held = set(text)
        return sum(self.of(word) for word in sorted(set(query)) if word in held)

    def cosine(self, left: Stems, right: Stems) -> float:
        """Cosine of the two weighted sets of stems, 0 to 1."""
        ours, mine = self._measured(left)
        theirs, other = self._measured(right)
        # The exact sum does not depend on the order in which a set is walked.
        return math.fsum(self.of(word) ** 2 for word in ours & theirs) / (mine * other) if mine and other else 0.0

    def _measured(self, text: Stems) -> tuple[frozenset[str], float]:
        found = self._norms.get(text)
        if found is None:
            held = frozenset(text)
            found = self._norms[text] = (held, math.sqrt(math.fsum(self.of(word) ** 2 for word in held)))
        return found
