"""Token metrics: the word overlap of an answer with a gold answer, as LoCoMo and SQuAD 1.1 count it.

Limits: shared words are not shared meaning. "not in May" scores well against "in May", "a week ago" scores
nothing against the date it means. `words` and `squad_words` are the official ones, made for English; for texts of any
language see `word_splitting`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import exp
from typing import Any

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LOCOMO_ARTICLES = re.compile(r"\b(?:a|an|the|and)\b")
_SQUAD_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = re.compile(
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b|\b{_MONTH}\.?,?\s+\d|\b\d{{4}}-\d\d-\d\d\b|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_SHOWN = 6
_BLEU_WEIGHTS = ((1.0,), (0.5, 0.5), (0.33, 0.33, 0.33), (0.25, 0.25, 0.25, 0.25))
"""Of n-grams of one word, two words, and so on, by order, as ImplexConv and Mem-PAL released them."""


def words(text: str) -> list[str]:
    """LoCoMo's normalised words: lower case, no punctuation, without a, an, the and and."""
    return _LOCOMO_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def stems(text: str) -> list[str]:
    """Porter stems of `words`, those of NLTK's stemmer with its own extensions, which the official code uses."""
    return [stem(word) for word in words(text)]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Porter stem of one word."""
    return str(_stemmer().stem(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # Importing it brings SciPy, so that it waits for the first score.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


def squad_words(text: str) -> list[str]:
    """SQuAD's normalised words: lower case, no punctuation, without a, an and the; not stemmed."""
    return _SQUAD_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def locomo_f1(answer: str, gold: str) -> float:
    """F1 of the two multisets of stems, 0 when none is shared (LoCoMo, categories 2 to 4)."""
    return _overlap_f1(stems(answer), stems(gold))


def locomo_multi_f1(answer: str, gold: str) -> float:
    """F1 for golds that list several things (LoCoMo, category 1).

    Both texts are cut at commas; each gold part takes its best F1 over the answer's parts; the mean counts. An
    empty gold part, as a trailing comma leaves, counts 0, as in the official code.
    """
    said = [stems(part) for part in answer.split(",")]
    wanted = [stems(part) for part in gold.split(",")]
    return sum(max(_overlap_f1(part, target) for part in said) for target in wanted) / len(wanted)


def bleu1(answer: str, gold: str, split: Callable[[str], list[str]] = words) -> float:
    """BLEU-1: clipped unigram precision of words (not stemmed) times the brevity penalty exp(1 - gold/answer).

    No smoothing: an answer that shares no word scores 0, where NLTK's `method1` (used by some published tables)
    would leave .1 / its length. With any shared word the two agree.
    """
    said, wanted = split(answer), split(gold)
    shared = (Counter(said) & Counter(wanted)).total()
    if not shared:
        return 0.0
    return shared / len(said) * min(1.0, exp(1 - len(wanted) / len(said)))


def sentence_bleu(answer: Sequence[str], gold: Sequence[str], order: int) -> float:
    """NLTK's sentence BLEU of an order, 1 to 4, with smoothing method 1; 0 where no word is shared."""
    from nltk.translate import bleu_score  # takes a second to import

    smoothing = bleu_score.SmoothingFunction().method1
    found: Any = bleu_score.sentence_bleu([gold], answer, _BLEU_WEIGHTS[order - 1], smoothing)
    return float(found)


def squad_f1(answer: str, gold: str, split: Callable[[str], list[str]] = squad_words) -> float:
    """Return the F1 of the two multisets of words; 1 when neither text holds a word."""
    answer_words = split(answer)
    gold_words = split(gold)
    if not answer_words and not gold_words:
        return 1.0
    return _overlap_f1(answer_words, gold_words)


def exact_match(answer: str, gold: str, split: Callable[[str], list[str]] = squad_words) -> float:
    """Return 1 when both texts have the same words in the same order, else 0."""
    return float(split(answer) == split(gold))


def evidence_recall(evidence: Iterable[str], ranked_source_lists: Sequence[Iterable[str]], k: int) -> float | None:
    """Fraction of the evidence turns that the first `k` hits rest on.

    Args:
        evidence: Ids of the gold turns; each counts once.
        ranked_source_lists: For every hit, best first, the ids of its source turns.
        k: How many hits count.

    Returns:
        0 to 1, or None for a question without evidence: it says nothing about retrieval and is left out of means
        (LoCoMo's official code counts it as 1).
    """
    wanted = set(evidence)
    if not wanted:
        return None
    found = {source for sources in ranked_source_lists[:k] for source in sources}
    return len(wanted & found) / len(wanted)


def is_date(text: str) -> bool:
    """Whether the text names a calendar date, month with a number, or year (1900 to 2099)."""
    return bool(_DATE.search(text))


def explain(
    answer: str,
    gold: str,
    value: float,
    evidence: Sequence[str] = (),
    split: Callable[[str], list[str]] = words,
    stem: Callable[[str], str] = str,
) -> str:
    """Says in words what was wrong with an answer and what a right one does.

    Args:
        answer: What was said.
        gold: What should have been said.
        value: The score it got, 0 to 1.
        evidence: Ids of the turns that hold the answer; named when the answer is not right.
        split: How the metric cuts a text into words.
        stem: What the metric compares of each word.
    """
    if value >= 1:
        return "Right: the answer says what the gold answer says."
    said, wanted = split(answer), split(gold)
    missing, extra = _left(wanted, said, stem), _left(said, wanted, stem)
    if not answer.strip():
        verdict = f"No answer was given; the gold answer is {gold!r}."
    elif not value:
        verdict = f"Wrong: the gold answer is {gold!r}."
    elif missing:
        verdict = f"Partly right ({value:.2f}): the gold answer is {gold!r}; missing: {missing}."
    else:
        way = f"say only that, without: {extra}" if extra else "say it the same way"
        verdict = f"Partly right ({value:.2f}): the gold answer is {gold!r}; {way}."
    advice = ""
    if is_date(gold) and not is_date(answer):
        advice = ' When the question asks "when", give the absolute date, worked out from the date of the session.'
    return verdict + advice + (f" It rests on {format_evidence(evidence)}." if evidence else "")


def format_evidence(evidence: Sequence[str]) -> str:
    """Evidence ids in words, the first few of a long list."""
    more = f" and {len(evidence) - _SHOWN} more" if len(evidence) > _SHOWN else ""
    return f"turn{'s' if len(evidence) > 1 else ''} {', '.join(evidence[:_SHOWN])}{more}"


def _left(these: Sequence[str], others: Sequence[str], stem: Callable[[str], str]) -> str:
    taken, left = Counter(map(stem, others)), []
    for word in these:
        taken[stem(word)] -= 1
        if taken[stem(word)] < 0:
            left.append(word)
    return ", ".join(left[:_SHOWN]) + (" ..." if len(left) > _SHOWN else "")


def _overlap_f1(said: Sequence[str], wanted: Sequence[str]) -> float:
    shared = (Counter(said) & Counter(wanted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)
