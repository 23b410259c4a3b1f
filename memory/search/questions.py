"""Whether a text asks something, in most scripts.

Example:
    >>> from mempiler.memory.search.questions import is_question
    >>> texts = ("Where do I live?", "where do i live", "我住在哪里", "I moved. Where do you live?")
    >>> [is_question(text) for text in texts]
    [True, True, True, False]
"""

from __future__ import annotations

import re
from string import punctuation

_QUESTION_MARKS = "?？؟\u037e፧᥅꘏꛷⁇⁈⁉﹖︖⸮‽"
"""Those of Latin, Chinese, Arabic, Greek (`\\u037e`), Ethiopic and other scripts."""
_SENTENCE_ENDS = _QUESTION_MARKS + ".!。！．…।۔"
PUNCTUATION = punctuation + "“”‘’«»¿¡、，；：" + _SENTENCE_ENDS
"""Signs that may stand around a word without belonging to it."""

_QUESTION_MARK = re.compile(f"[{_QUESTION_MARKS}]")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_SENTENCE = re.compile(rf"[^{_SENTENCE_ENDS}]+[{_SENTENCE_ENDS}]*")
_VERB = "is|are|am|was|were|do|does|did|has|have|had|can|could|will|would|should|may"
_ENGLISH_QUESTION = re.compile(
    # what's, where do, how many
    "(?:what|where|when|who|whom|whose|which|why|how)"
    rf"(?:['’]s| (?:{_VERB}|many|much|old|long|often))\b"
    # which city do
    rf"|(?:what|whose|which|how) \w+ (?:{_VERB})\b",
    re.IGNORECASE,
)
"""How a text begins that asks without a question mark."""
_CHINESE_QUESTION = re.compile("哪|谁|什么|怎么|多少|[吗呢]$")
"""What a text contains that asks without a question mark."""


def is_question(text: str) -> bool:
    """Return whether a text consists of questions alone: each sentence ends with a question mark.

    A single sentence is also a question without the mark if it is worded as one in English or
    Chinese, e.g. "where do I live".
    """
    sentences = _sentences(text)
    if not sentences:
        return False
    if len(sentences) == 1 and not _has_question_mark(sentences[0]):
        return _has_question_words(sentences[0])
    return all(_has_question_mark(sentence) for sentence in sentences)


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text with the signs at their ends, e.g. "I moved." and "Why?!".

    Sentences without letters and digits, e.g. "...", are left out.
    """
    sentences: list[str] = []
    for sentence in _SENTENCE.findall(text):
        if _LETTER_OR_DIGIT.search(sentence):
            sentences.append(sentence.strip())
    return sentences


def _has_question_mark(sentence: str) -> bool:
    """Return whether a question mark is among the signs at the end of a sentence, e.g. in "?!"."""
    words = sentence.rstrip(PUNCTUATION)
    signs = sentence[len(words) :]
    return _QUESTION_MARK.search(signs) is not None


def _has_question_words(sentence: str) -> bool:
    """Return whether a sentence is worded as a question, in English or Chinese.

    English questions begin with words such as "where do"; Chinese ones contain or end with others.
    """
    words = sentence.rstrip(PUNCTUATION)
    if _ENGLISH_QUESTION.match(words):
        return True
    return _CHINESE_QUESTION.search(words) is not None
