"""Token metrics: the words that an answer shares with a gold answer, as LoCoMo and SQuAD 1.1 count.

Limits: shared words are not shared meaning. "not in May" scores well against "in May", and "a week
ago" scores nothing against the date that it means. `words` and `squad_words` are the official ones
and were made for English; for texts of any language see `word_splitting`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import exp
from typing import Any, Protocol, cast

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LOCOMO_ARTICLES = re.compile(r"\b(?:a|an|the|and)\b")
_SQUAD_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY_AND_MONTH = rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b"
_MONTH_AND_NUMBER = rf"\b{_MONTH}\.?,?\s+\d"
_ISO_DATE = r"\b\d{4}-\d\d-\d\d\b"
_YEAR = r"\b(?:19|20)\d\d\b"
_DATE = re.compile(
    f"{_DAY_AND_MONTH}|{_MONTH_AND_NUMBER}|{_ISO_DATE}|{_YEAR}",
    re.IGNORECASE,
)

_MAX_LISTED = 6
"""Most words, or ids of turns, that a sentence of feedback lists."""
_BLEU_WEIGHTS = {
    1: (1.0,),
    2: (0.5, 0.5),
    3: (0.33, 0.33, 0.33),
    4: (0.25, 0.25, 0.25, 0.25),
}
"""The weights of n-grams of one word, two words and so on, by the order of BLEU.

They are those of the code that ImplexConv and Mem-PAL released.
"""


class _Stemmer(Protocol):
    """What is used of NLTK's stemmer, which has no types of its own."""

    def stem(self, word: str) -> str: ...


def words(text: str) -> list[str]:
    """Return LoCoMo's words of a text: lower case, no punctuation, without a, an, the and "and"."""
    return _LOCOMO_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def stems(text: str) -> list[str]:
    """Return the Porter stems of `words`, by NLTK's stemmer, which the official code uses."""
    return [stem(word) for word in words(text)]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the Porter stem of a word."""
    return str(_stemmer().stem(word))


@lru_cache(maxsize=1)
def _stemmer() -> _Stemmer:
    """Return NLTK's stemmer with its own extensions, which is made once."""
    # The import brings SciPy, so it waits for the first score.
    from nltk.stem.porter import PorterStemmer

    return cast("_Stemmer", PorterStemmer())


def squad_words(text: str) -> list[str]:
    """Return SQuAD's words of a text: lower case, no punctuation, without a, an and the."""
    return _SQUAD_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def locomo_f1(answer: str, gold: str) -> float:
    """Return the F1 of the two multisets of stems (LoCoMo, categories 2 to 4)."""
    return _overlap_f1(stems(answer), stems(gold))


def locomo_multi_f1(answer: str, gold: str) -> float:
    """Return the F1 against a gold answer that lists several things (LoCoMo, category 1).

    Both texts are cut at commas. Each part of the gold answer takes its best F1 over the parts of
    the answer, and the mean of these counts. An empty part of the gold answer, as a trailing comma
    leaves, counts 0, as in the official code.
    """
    answer_parts = [stems(part) for part in answer.split(",")]
    gold_parts = [stems(part) for part in gold.split(",")]

    best_scores: list[float] = []
    for gold_part in gold_parts:
        best_scores.append(max(_overlap_f1(answer_part, gold_part) for answer_part in answer_parts))
    return sum(best_scores) / len(best_scores)


def bleu1(answer: str, gold: str, split: Callable[[str], list[str]] = words) -> float:
    """Return BLEU-1 of words that are not stemmed.

    It is the clipped precision of single words times the brevity penalty, exp(1 - gold/answer).
    Nothing is smoothed: an answer that shares no word scores 0, where NLTK's `method1`, which some
    published tables use, leaves .1 / its length. With any shared word the two agree.
    """
    answer_words = split(answer)
    gold_words = split(gold)
    num_shared = _count_shared(answer_words, gold_words)
    if num_shared == 0:
        return 0.0
    precision = num_shared / len(answer_words)
    brevity_penalty = min(1.0, exp(1 - len(gold_words) / len(answer_words)))
    return precision * brevity_penalty


def sentence_bleu(answer: Sequence[str], gold: Sequence[str], order: int) -> float:
    """Return NLTK's sentence BLEU of an order from 1 to 4; 0 where no word is shared.

    It is smoothed by NLTK's method 1.
    """
    # The import takes a second.
    from nltk.translate import bleu_score

    smoothing = bleu_score.SmoothingFunction().method1
    score: Any = bleu_score.sentence_bleu([gold], answer, _BLEU_WEIGHTS[order], smoothing)
    return float(score)


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


def evidence_recall(
    evidence: Iterable[str], ranked_source_lists: Sequence[Iterable[str]], k: int
) -> float | None:
    """Return the share of the evidence turns that the first `k` hits rest on.

    Args:
        evidence: Ids of the gold turns; each counts once.
        ranked_source_lists: For every hit, best first, the ids of its source turns.
        k: How many hits count.

    Returns:
        0 to 1, or None for a question without evidence: it says nothing about retrieval and is left
        out of means. (LoCoMo's official code counts it as 1.)
    """
    evidence_ids = set(evidence)
    if not evidence_ids:
        return None

    retrieved_ids: set[str] = set()
    for sources in ranked_source_lists[:k]:
        retrieved_ids.update(sources)
    return len(evidence_ids & retrieved_ids) / len(evidence_ids)


def is_date(text: str) -> bool:
    """Return whether a text names a date, a month with a number, or a year (1900 to 2099)."""
    return _DATE.search(text) is not None


def explain(
    answer: str,
    gold: str,
    value: float,
    evidence: Sequence[str] = (),
    split: Callable[[str], list[str]] = words,
    stem: Callable[[str], str] = str,
) -> str:
    """Say what was wrong with an answer, and what a right one does.

    Args:
        answer: What was answered.
        gold: The gold answer.
        value: The score of the answer, 0 to 1.
        evidence: Ids of the turns that hold the answer; named when the answer is not right.
        split: How the metric cuts a text into words.
        stem: What the metric compares of each word.
    """
    if value >= 1:
        return "Right: the answer says what the gold answer says."

    sentences = [_verdict(answer, gold, value, split, stem)]
    if is_date(gold) and not is_date(answer):
        sentences.append(
            'When the question asks "when", give the absolute date, worked out from the date of '
            "the session."
        )
    if evidence:
        sentences.append(f"It rests on {format_evidence(evidence)}.")
    return " ".join(sentences)


def _verdict(
    answer: str,
    gold: str,
    score: float,
    split: Callable[[str], list[str]],
    stem: Callable[[str], str],
) -> str:
    """Say what is wrong with an answer whose score is below 1.

    An answer that is partly right lacks words of the gold answer; these are listed. If it lacks
    none, it says too much, and the words to leave out are listed: "Partly right (0.67): the gold
    answer is 'red'; say only that, without: dark."
    """
    if not answer.strip():
        return f"No answer was given; the gold answer is {gold!r}."
    if not score:
        return f"Wrong: the gold answer is {gold!r}."

    beginning = f"Partly right ({score:.2f}): the gold answer is {gold!r};"
    answer_words = split(answer)
    gold_words = split(gold)
    missing_words = _words_beyond(gold_words, answer_words, stem)
    if missing_words:
        return f"{beginning} missing: {_format_words(missing_words)}."
    extra_words = _words_beyond(answer_words, gold_words, stem)
    if extra_words:
        return f"{beginning} say only that, without: {_format_words(extra_words)}."
    return f"{beginning} say it the same way."


def format_evidence(evidence: Sequence[str]) -> str:
    """Return evidence ids in words, the first few of a long list."""
    noun = "turns" if len(evidence) > 1 else "turn"
    listed_ids = ", ".join(evidence[:_MAX_LISTED])
    if len(evidence) > _MAX_LISTED:
        return f"{noun} {listed_ids} and {len(evidence) - _MAX_LISTED} more"
    return f"{noun} {listed_ids}"


def _words_beyond(
    some_words: Sequence[str], other_words: Sequence[str], stem: Callable[[str], str]
) -> list[str]:
    """Return the words of one text that the other lacks, or has less often; stems are compared."""
    unmatched = Counter(map(stem, other_words))
    beyond: list[str] = []
    for word in some_words:
        unmatched[stem(word)] -= 1
        if unmatched[stem(word)] < 0:
            beyond.append(word)
    return beyond


def _format_words(some_words: Sequence[str]) -> str:
    """Return words with commas between them, the first few of a long list."""
    listed_words = ", ".join(some_words[:_MAX_LISTED])
    return f"{listed_words} ..." if len(some_words) > _MAX_LISTED else listed_words


def _count_shared(answer_words: Sequence[str], gold_words: Sequence[str]) -> int:
    """Return how many words two texts share; a word counts as often as both have it."""
    return (Counter(answer_words) & Counter(gold_words)).total()


def _overlap_f1(answer_words: Sequence[str], gold_words: Sequence[str]) -> float:
    """Return the F1 of two multisets of words; 0 when none is shared."""
    num_shared = _count_shared(answer_words, gold_words)
    if num_shared == 0:
        return 0.0
    precision = num_shared / len(answer_words)
    recall = num_shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)
