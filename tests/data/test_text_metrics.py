"""Metrics that compare words: cases worked out by hand, and properties that hold for any text.

F1 is made of precision and recall of the answer's words. The published rules for English words are
those of SQuAD, a data set: articles, case and punctuation do not count. `words_by_script` extends
them to all languages.
"""

import time
from collections import Counter

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.catalog import benchmark, benchmark_class
from mempiler.data.common_scorers import ExactMatch, TokenF1, explained
from mempiler.data.languages import count_languages, language_of
from mempiler.data.text_metrics import exact_match, explain, is_date, squad_f1, squad_words, stem
from mempiler.data.word_splitting import BY_SCRIPT, words_by_script


@pytest.mark.parametrize(
    ("answer", "gold", "f1", "exact"),
    [
        ("The cat sat.", "cat sat", 1, 1),  # articles, case and full stop do not count
        ("cat and dog", "cat dog", 0.8, 0),  # SQuAD keeps "and": 2 shared of 3 and 2: 2*(2/3)/(5/3)
        ("dog cat", "cat dog", 1, 0),  # exact match wants the order too
        ("in Rome", "Rome", 2 / 3, 0),  # precision 1/2, recall 1
        ("the", "a", 1, 1),  # neither holds a word
    ],
)
def test_squad_metrics_are_those_worked_out_by_hand(
    answer: str, gold: str, f1: float, exact: float
) -> None:
    assert squad_f1(answer, gold) == pytest.approx(f1)
    assert exact_match(answer, gold) == exact


@pytest.mark.parametrize(
    ("answer", "gold", "f1", "exact"),
    [
        ("里斯本。", "里斯本", 1, 1),
        ("她住在里斯本。", "里斯本", 0.4, 0),  # 她 住 在 里斯本: precision 1/4, recall 1
        ("星期四", "星期三", 0, 0),  # other words, though two of three characters are the same
        ("欧阳娜娜。", "欧阳娜娜", 1, 1),  # a name that is in no dictionary
        ("她說臺北好", "臺北", 4 / 7, 0),  # traditional characters, each a word: 2 of 5 and 2
        ("２０２３年５月", "2023年5月。", 1, 1),
        ("東京です。", "東京", 2 * 2 / (4 + 2), 0),  # 東 京 で す
        # seven syllables, of which three are the gold answer
        ("리스본에 살아요.", "리스본", 3 * 2 / (7 + 3), 0),
        ("วันอังคาร!", "วันอังคาร", 1, 1),
        ("«Москва»…", "москва", 1, 1),
        ("¿Lisboa?", "Lisboa", 1, 1),
        ("STRASSE", "Straße", 1, 1),
        ("Don’t “stop” – now", "don't stop - now", 1, 1),
        ("1999–2001", "1999-2001", 1, 1),
        ("Lisbon，Portugal", "Portugal, Lisbon", 1, 0),
        ("मंगलवार।", "मंगलवार", 1, 1),  # its vowel signs are no letters to `re`
        ("يوم الثلاثاء؟", "يوم الثلاثاء", 1, 1),
        ("۱۵ مه", "15 مه", 1, 1),
        ("👎", "👍", 0, 0),
        ("❤️!", "❤", 1, 1),
    ],
)
def test_f1_and_exact_match_compare_words_of_any_language(
    answer: str, gold: str, f1: float, exact: float
) -> None:
    example = dspy.Example(answer=gold)
    prediction = dspy.Prediction(answer=answer)

    assert TokenF1().score(example, prediction).value == pytest.approx(f1)
    assert ExactMatch().score(example, prediction).value == exact


@pytest.mark.parametrize(
    "gold", ["里斯本", "星期三下午", "软件工程师", "去年夏天", "王晓明", "喝綠茶", "陳小姐", "橫濱"]
)
@pytest.mark.parametrize(
    "sentence", ["她住在{}。", "答案是{}，不是别的。", "他說{}好", "因为{}的缘故", "小李说{}吧"]
)
def test_a_chinese_answer_is_found_inside_every_sentence(gold: str, sentence: str) -> None:
    """Chinese has no spaces; where words end must not depend on what stands around them."""
    gold_words = Counter(words_by_script(gold))
    sentence_words = Counter(words_by_script(sentence.format(gold)))

    # Every word of the answer is a word of the sentence, as often.
    assert gold_words <= sentence_words


@given(st.text(st.characters(codec="ascii")))
def test_ascii_text_has_the_words_of_squad(text: str) -> None:
    """`squad_words` has the published rules for English words."""
    assert words_by_script(text) == squad_words(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_english_has_the_words_of_squad_beside_a_foreign_word(text: str) -> None:
    """`squad_words` follows the published rules for English."""
    assert words_by_script(f"{text} é") == [*squad_words(text), "é"]


@given(st.text())
def test_any_text_is_equal_to_itself(text: str) -> None:
    assert squad_f1(text, text, words_by_script) == 1
    for word in words_by_script(text):
        assert word.strip() != ""


def test_a_long_text_without_spaces_is_cut_into_words_in_a_few_seconds() -> None:
    words_by_script("火")  # jieba reads its dictionary
    started = time.process_time()

    words_by_script("火" * 20_000 + "\u0301" * 20_000 + "ไ" * 20_000)

    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "msc", "implexconv"])
def test_benchmarks_with_a_published_metric_use_its_rules_for_words(name: str) -> None:
    """The scores of these benchmarks are compared with published ones.

    So they use the published rules for words, and not `BY_SCRIPT`, our rules for all languages.
    """
    scorers = [make_scorer() for make_scorer in benchmark_class(name).metrics.values()]
    splitters = [scorer.splitter for scorer in scorers if not scorer.required_judges]

    assert BY_SCRIPT not in splitters
    # Only ASCII punctuation is removed there, as released. `TokenF1` removes these quotes too.
    words_of_quoted_text = [
        splitter.split("“Rome”") for splitter in splitters if splitter is not None
    ]
    assert ["“rome”"] in words_of_quoted_text


def test_feedback_names_missing_words_and_not_characters() -> None:
    """The gold answer is "Lisbon and Porto", the answer "Lisbon".

    The four missing characters are the two words 和 (and) and 波尔图 (Porto).
    """
    feedback = explained(dspy.Example(answer="里斯本和波尔图"), answer="里斯本。", value=0.5)
    assert "missing: 和, 波尔图." in feedback


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where does Ada live?", "English"),
        ("Wann hat Ada Klavierunterricht? am Dienstag", "German"),
        ("Où habite Marie ?", "French"),
        ("Gdzie mieszka Anna?", "Polish"),
        ("Missä Anna asuu?", "Finnish"),
        ("Где живёт Анна?", "Russian"),
        ("Де живе Анна?", "Ukrainian"),
        ("أين تعيش آنا؟", "Arabic"),
        ("آنا کجا زندگی می‌کند؟", "Persian"),
        ("我住在哪里？", "Chinese"),
        ("東京はどこですか", "Japanese"),
        ("안나는 어디에 살아요?", "Korean"),
        ("แอนนาอยู่ที่ไหน", "Thai"),
        ("Πού μένει η Άννα;", "Greek"),
        ("Lisboa", "Latin script"),
        ("12:30", "no letters"),
    ],
)
def test_languages_are_recognized_by_script_and_common_words(text: str, language: str) -> None:
    assert language_of(text).name == language


@pytest.mark.parametrize("name", ["locomo", "palbench.select"])
def test_bundled_samples_are_in_the_languages_they_are_written_in(name: str) -> None:
    """A text that is too short to tell its language is in "Latin script"."""
    questions = [str(example.question) for example in benchmark(name).examples]

    languages = {language.name for language in count_languages(questions)}

    assert languages
    assert languages <= {"English", "Chinese", "Latin script"}


@pytest.mark.parametrize(
    "text", ["7 May 2023", "13 August", "January, 2023", "the summer of 2022", "2023-05-07"]
)
def test_dates_are_recognized(text: str) -> None:
    assert is_date(text)


@pytest.mark.parametrize(
    "text", ["10 years ago", "she may go", "last Friday", "three", "12345", "march to work"]
)
def test_other_texts_are_no_dates(text: str) -> None:
    assert not is_date(text)


DATE_ADVICE = "absolute date"


@pytest.mark.parametrize(
    ("answer", "gold", "value", "present", "absent"),
    [
        ("Rome", "Rome", 1.0, ["Right"], ["D1:3"]),
        ("", "Rome", 0.0, ["No answer", "'Rome'", "turn D1:3"], [DATE_ADVICE]),
        ("Paris", "Rome", 0.0, ["Wrong", "'Rome'", "turn D1:3"], [DATE_ADVICE]),
        ("yesterday", "7 May 2023", 0.0, [DATE_ADVICE, "'7 May 2023'"], []),
        ("8 May 2023", "7 May 2023", 2 / 3, ["Partly right (0.67)", "missing: 7."], [DATE_ADVICE]),
        ("old Rome", "Rome", 2 / 3, ["say only that, without: old."], [DATE_ADVICE, "missing"]),
        ("two cats", "cat, cat", 0.5, ["missing: cat."], ["cats"]),
    ],
)
def test_feedback_names_what_was_wrong(
    answer: str, gold: str, value: float, present: list[str], absent: list[str]
) -> None:
    """The feedback on an answer has the parts `present`, and none of the parts `absent`."""
    feedback = explain(answer, gold, value, evidence=["D1:3"], stem=stem)

    for part in present:
        assert part in feedback
    for part in absent:
        assert part not in feedback


def test_feedback_compares_the_words_of_its_metric() -> None:
    """By the rules of SQuAD "and" is a word. Other metrics leave it out."""
    feedback = explain(answer="cat and dog", gold="cat dog", value=0.8, split=squad_words)
    assert "without: and." in feedback


def test_feedback_lists_only_the_first_turns_of_long_evidence() -> None:
    # The turns D1:0 to D1:18, of which the first six are listed.
    evidence = [f"D1:{number}" for number in range(19)]
    feedback = explain(answer="cat", gold="cat dog", value=0.8, evidence=evidence)
    assert feedback.endswith("D1:5 and 13 more.")
