"""Stems are those of NLTK's PorterStemmer: over the words of the package, and over endings put one on the other."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.data.porter import porter_stem
from nltk.stem.porter import PorterStemmer

ROOT = Path(__file__).parents[2]
STEMS = "a b y ag hop fil roll ski syzyg oat relat conflat troubl geo ston"
ENDINGS = """
s ss es sses ies ied eed ed ing y e ll ly logi ational tional enci anci izer bli abli alli ally entli eli ousli ization
ation ator alism iveness fulness ousness aliti iviti biliti fulli icate ative alize iciti ical ful ness al ance ence er
ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize at bl iz tt zz
"""
IRREGULAR = (
    "sky skies dying lying tying news inning innings outing outings canning cannings howe proceed exceed succeed"
)
official = PorterStemmer().stem


def differing(words):
    return {word: (official(word), porter_stem(word)) for word in words if official(word) != porter_stem(word)}


def test_words_of_the_samples_and_pages_have_the_official_stems():
    files = [*(ROOT / "data" / "samples").rglob("*.json*"), *(ROOT / "docs").glob("*.md")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    assert len(words) > 10_000
    assert not differing(words)


def test_up_to_two_endings_on_a_stem_have_the_official_stems():
    words = (
        "".join(parts)
        for parts in itertools.product(["", *STEMS.split()], ["", *ENDINGS.split()], ["", *ENDINGS.split()])
    )
    assert not differing(words)


def test_words_without_rules_have_the_official_stems():
    assert not differing([*IRREGULAR.split(), "", "s", "Running", "SKIES", "naïvely", "yyyyying", "İs", "2nd", "跑步"])


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="aeiouybcdlstzwxn", max_size=7), st.lists(st.sampled_from(ENDINGS.split()), max_size=3))
def test_any_letters_have_the_official_stem(start, endings):
    assert not differing([start + "".join(endings)])


def test_nltk_is_not_imported_for_it():
    code = "import sys; from mempiler.data.text_metrics import locomo_f1; locomo_f1('a cat', 'cats'); "
    subprocess.run([sys.executable, "-c", code + "sys.exit('nltk' in sys.modules)"], check=True, timeout=60)
