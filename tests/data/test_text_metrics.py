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
from mempiler.data.catalog import benchmark_class
from mempiler.data.common_scorers import ExactMatch, TokenF1, explained
from mempiler.data.languages import language_of
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


def token_f1(answer: str, gold: str) -> float:
    return TokenF1().score(dspy.Example(answer=gold), dspy.Prediction(answer=answer)).value


def exact(answer: str, gold: str) -> float:
    return ExactMatch().score(dspy.Example(answer=gold), dspy.Prediction(answer=answer)).value


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("里斯本。", "里斯本"),
        ("欧阳娜娜。", "欧阳娜娜"),  # a name that is in no dictionary
        ("２０２３年５月", "2023年5月。"),
        ("วันอังคาร!", "วันอังคาร"),
        ("«Москва»…", "москва"),
        ("¿Lisboa?", "Lisboa"),
        ("STRASSE", "Straße"),
        ("Don’t “stop” – now", "don't stop - now"),
        ("1999–2001", "1999-2001"),
        ("मंगलवार।", "मंगलवार"),  # its vowel signs are no letters to `re`
        ("يوم الثلاثاء؟", "يوم الثلاثاء"),
        ("۱۵ مه", "15 مه"),
        ("❤️!", "❤"),
    ],
)
def test_case_punctuation_and_forms_of_digits_do_not_count_in_any_language(
    answer: str, gold: str
) -> None:
    assert token_f1(answer, gold) == 1
    assert exact(answer, gold) == 1


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("她住在里斯本。", "里斯本", 0.4),  # 她 住 在 里斯本: precision 1/4, recall 1
        ("她說臺北好", "臺北", 4 / 7),  # traditional characters are a word each: 2 of 5, and 2 of 2
        ("東京です。", "東京", 2 * 2 / (4 + 2)),  # 東 京 で す: 2 of 4, and 2 of 2
        ("리스본에 살아요.", "리스본", 3 * 2 / (7 + 3)),  # syllables: 3 of 7, and 3 of 3
        ("Lisbon，Portugal", "Portugal, Lisbon", 1),  # F1 does not look at the order
        ("星期四", "星期三", 0),  # other words, though two of three characters are the same
        ("👎", "👍", 0),
    ],
)
def test_f1_compares_words_of_any_language(answer: str, gold: str, f1: float) -> None:
    """F1 is 2pr / (p + r), where p is the precision of the answer's words, and r the recall."""
    assert token_f1(answer, gold) == pytest.approx(f1)
    assert exact(answer, gold) == 0


@pytest.mark.parametrize(
    "gold", ["里斯本", "星期三下午", "软件工程师", "去年夏天", "王晓明", "喝綠茶", "陳小姐", "橫濱"]
)
@pytest.mark.parametrize(
    "sentence", ["她住在{}。", "答案是{}，不是别的。", "他說{}好", "因为{}的缘故", "小李说{}吧"]
)
def test_a_chinese_answer_is_found_inside_every_sentence(gold: str, sentence: str) -> None:
    """Chinese has no spaces. Where words end must not depend on the words around them.

    So the sentence has every word of the gold answer, as often as the gold answer has it.
    """
    gold_words = Counter(words_by_script(gold))
    sentence_words = Counter(words_by_script(sentence.format(gold)))
    assert gold_words <= sentence_words


@given(st.text(st.characters(codec="ascii")))
def test_ascii_text_has_the_words_of_squad(text: str) -> None:
    """`squad_words` has the published rules for English words."""
    assert words_by_script(text) == squad_words(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_english_has_the_words_of_squad_beside_a_foreign_word(text: str) -> None:
    """`squad_words` has the published rules for English words. "é" is no English word."""
    assert words_by_script(f"{text} é") == [*squad_words(text), "é"]


@given(st.text())
def test_any_text_is_equal_to_itself(text: str) -> None:
    assert squad_f1(text, text, words_by_script) == 1
    for word in words_by_script(text):
        assert word.strip() != ""


def test_a_long_text_without_spaces_is_cut_into_words_in_a_few_seconds() -> None:
    """The text has 20,000 Chinese characters, as many accents, and as many Thai vowels."""
    words_by_script("火")  # jieba reads its dictionary
    started = time.process_time()

    words_by_script("火" * 20_000 + "\u0301" * 20_000 + "ไ" * 20_000)

    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "msc", "implexconv"])
def test_benchmarks_with_a_published_metric_use_its_rules_for_words(name: str) -> None:
    """The scores of these benchmarks are compared with published ones.

    The published rules remove ASCII punctuation only. Ours, for all languages, would remove the
    quotes around “Rome” too.
    """
    scorers = [make_scorer() for make_scorer in benchmark_class(name).metrics.values()]
    splitters = [scorer.splitter for scorer in scorers if not scorer.required_judges]

    assert BY_SCRIPT not in splitters
    words_of_quoted_text = [
        splitter.split("“Rome”") for splitter in splitters if splitter is not None
    ]
    assert ["“rome”"] in words_of_quoted_text


def test_feedback_names_missing_words_and_not_characters() -> None:
    """The gold answer is "Lisbon and Porto", the answer "Lisbon". Two words are missing.

    They are 和 (and) and 波尔图 (Porto).
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


def feedback_on(answer: str, gold: str, value: float) -> str:
    """Return the feedback on an answer with this score. The gold answer rests on the turn D1:3."""
    return explain(answer, gold, value, evidence=["D1:3"], stem=stem)


@pytest.mark.parametrize(
    ("answer", "problem"), [("", "No answer"), ("Paris", "Wrong")], ids=["no answer", "wrong"]
)
def test_feedback_on_a_wrong_answer_names_the_gold_answer_and_its_evidence(
    answer: str, problem: str
) -> None:
    feedback = feedback_on(answer, gold="Rome", value=0.0)
    assert problem in feedback
    assert "'Rome'" in feedback
    assert "turn D1:3" in feedback


def test_feedback_asks_for_an_absolute_date_where_there_is_none() -> None:
    assert "absolute date" in feedback_on("yesterday", gold="7 May 2023", value=0.0)


@pytest.mark.parametrize(
    ("answer", "gold"), [("8 May 2023", "7 May 2023"), ("Paris", "Rome"), ("", "Rome")]
)
def test_feedback_gives_no_advice_on_dates_elsewhere(answer: str, gold: str) -> None:
    """The first answer is an absolute date, and the other questions want none."""
    assert "absolute date" not in feedback_on(answer, gold, value=0.0)


def test_feedback_on_a_partly_right_answer_names_the_missing_words() -> None:
    feedback = feedback_on("8 May 2023", gold="7 May 2023", value=2 / 3)
    assert "Partly right (0.67)" in feedback
    assert "missing: 7." in feedback


def test_feedback_names_the_words_that_are_too_many() -> None:
    feedback = feedback_on("old Rome", gold="Rome", value=2 / 3)
    assert "say only that, without: old." in feedback
    assert "missing" not in feedback


def test_feedback_compares_stems_and_counts_repeated_words() -> None:
    """The words "cat" and "cats" have one stem, so only the second "cat" is missing."""
    feedback = feedback_on("two cats", gold="cat, cat", value=0.5)
    assert "missing: cat." in feedback
    assert "cats" not in feedback


def test_feedback_compares_the_words_of_its_metric() -> None:
    """By the rules of SQuAD "and" is a word. Other metrics leave it out."""
    feedback = explain(answer="cat and dog", gold="cat dog", value=0.8, split=squad_words)
    assert "without: and." in feedback


def test_feedback_lists_only_the_first_turns_of_long_evidence() -> None:
    """Of the turns D1:1 to D1:8 the first six are listed."""
    evidence = [f"D1:{number}" for number in range(1, 9)]
    feedback = explain(answer="cat", gold="cat dog", value=0.8, evidence=evidence)
    assert feedback.endswith("D1:6 and 2 more.")
