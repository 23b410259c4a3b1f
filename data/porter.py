"""Porter's stems with NLTK's changes, which LoCoMo's official code compares: those of `nltk.stem.PorterStemmer`.

Importing NLTK's brings the whole of NLTK and SciPy, a second of CPU before the first score; this is the same algorithm
by itself. `tests/data/test_porter.py` compares the two.

    caresses ─1a─> caress    agreed ─1b─> agree    happy ─1c─> happi         endings of number and tense, y
    relational ─2─> relate   electrical ─3─> electric   replacement ─4─> replac   suffixes, the long ones first
    probate ─5─> probat      controll ─5─> control                             a last e, a double l

What NLTK changed: a table of irregular forms, "ie" kept in words of four letters (dies, died), y after any consonant
but a first one, two suffixes more, -alli first and again, and a stem of two letters such as "ag" may get its e back.

Example:
    >>> from mempiler.data.porter import porter_stem
    >>> [porter_stem(word) for word in ("running", "happily", "skies", "flies", "enjoyed")]
    ['run', 'happili', 'sky', 'fli', 'enjoy']

Source: M. Porter, An algorithm for suffix stripping, Program 14.3 (1980), and NLTK 3.10, mode NLTK_EXTENSIONS.
"""

from __future__ import annotations

Rules = tuple[tuple[str, str], ...]
"""Endings and what takes their place; the first that a word has is the only one that counts."""

_IRREGULAR = {
    form: stem
    for stem, forms in {
        "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "howe": "howe",
        "inning": "inning innings", "outing": "outing outings", "canning": "canning cannings",
        "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
    }.items()
    for form in forms.split()
}  # fmt: skip
_DERIVED: Rules = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_DERIVED_AGAIN: Rules = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_DROPPED = "al ance ence er ic able ible ant ement ment ent ou ism ate iti ous ive ize"
_SUFFIXES: Rules = tuple((ending, "") for ending in _DROPPED.split())


def porter_stem(word: str) -> str:
    """The stem of a word; one of one or two letters is its own."""
    found = word.lower()
    if found in _IRREGULAR or len(word) <= 2:
        return _IRREGULAR.get(found, found)
    for step in (_number, _tense, _last_y, _derivation, _derivation_again, _suffix, _last_e, _last_l):
        found = step(found)
    return found


def _number(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    ending = next((ending for ending in ("ed", "ing") if word.endswith(ending)), "")
    stem = word.removesuffix(ending)
    if not ending or "v" not in _shape(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c":
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _is_short(stem) else stem


def _last_y(word: str) -> str:
    return word[:-1] + "i" if len(word) > 2 and word[-1] == "y" and _shape(word)[-2] == "c" else word


def _derivation(word: str) -> str:
    if word.endswith("alli"):
        return _derivation(word[:-2]) if _measure(word[:-4]) else word
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, _DERIVED, 1)


def _derivation_again(word: str) -> str:
    return _replaced(word, _DERIVED_AGAIN, 1)


def _suffix(word: str) -> str:
    if word.endswith("ion"):
        return word[:-3] if word[-4:-3] in ("s", "t") and _measure(word[:-3]) > 1 else word
    return _replaced(word, _SUFFIXES, 2)


def _last_e(word: str) -> str:
    if not word.endswith("e"):
        return word
    measure = _measure(word[:-1])
    return word[:-1] if measure > 1 or (measure == 1 and not _is_short(word[:-1])) else word


def _last_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _replaced(word: str, rules: Rules, least: int) -> str:
    for ending, other in rules:
        if word.endswith(ending):
            stem = word[: -len(ending)]
            return stem + other if _measure(stem) >= least else word
    return word


def _measure(stem: str) -> int:
    """Porter's m: how often a vowel is followed by a consonant."""
    return _shape(stem).count("vc")


def _is_short(stem: str) -> bool:
    """Whether a stem ends like "hop", or is like "ag": it may have lost an e."""
    shape = _shape(stem)
    return shape == "vc" or (shape.endswith("cvc") and stem[-1] not in "wxy")


def _shape(word: str) -> str:
    """A letter c or v for every letter: consonant or vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape
