"""ImplexConv's metrics of words: BLEU-1 to BLEU-3 and ROUGE-L, as its released code computes them.

    bleu       NLTK's sentence BLEU with smoothing method 1 over the words between blanks; weights .33 for BLEU-3
    rouge_l    F of the words in common subsequences, sentence by sentence, over the different words of both texts

Source: evaluate/get_baseline_scores.py of Kaylee0501/ImplexConv, which calls the package `rouge` (1.0.1). That package
is no longer kept, and counts every word once; the kept `rouge-score` counts repeated words and has other results.

Example:
    >>> from mempiler.data.implexconv.metrics import rouge_l
    >>> round(rouge_l("try swimming because the knee hurts", "the knee hurts on stairs"), 3)
    0.545

Limits: case and punctuation count, but for full stops, which end sentences in ROUGE-L. An empty text scores 0, where
the released code fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..text_metrics import sentence_bleu

WEIGHTS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.33, 0.33, 0.33))
"""Of n-grams of 1 to 3 words, for BLEU-1 to BLEU-3, as released."""
_SMALL = 1e-8


def bleu(answer: str, gold: str) -> tuple[float, float, float]:
    """BLEU-1 to BLEU-3 of an answer, 0 to 1."""
    one, two, three = (sentence_bleu(answer.split(), gold.split(), weights) for weights in WEIGHTS)
    return one, two, three


def rouge_l(answer: str, gold: str) -> float:
    """ROUGE-L's F, 0 to 1, over different words: those in a longest common subsequence of two sentences are shared."""
    said, wanted = _sentences(answer), _sentences(gold)
    shared = {word for one in wanted for other in said for word in _common(one, other)}
    if not shared:
        return 0.0
    precision, recall = (len(shared) / len({word for words in text for word in words}) for text in (said, wanted))
    return 2 * precision * recall / (precision + recall + _SMALL)


def _sentences(text: str) -> list[list[str]]:
    return [words for part in text.split(".") if (words := part.split())]


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several the one that the released code takes."""
    rows = [[0] * (len(other) + 1)]
    for word in one:
        row = [0]
        for n, against in enumerate(other):
            row.append(rows[-1][n] + 1 if word == against else max(rows[-1][n + 1], row[-1]))
        rows.append(row)
    found: list[str] = []
    i, j = len(one), len(other)
    while i and j:
        if one[i - 1] == other[j - 1]:
            found.append(one[i - 1])
            i, j = i - 1, j - 1
        elif rows[i - 1][j] > rows[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found
