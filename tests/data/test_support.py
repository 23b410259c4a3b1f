"""The metric `support`: which gold words were recalled, and where the others were lost.

The metric tells how good a memory is without asking a model for an answer. It counts how many words
of the gold answer (the right one) stand in the entries that the memory recalled. The budget is a
number of tokens: only the beginning of the recalled text counts, so storing everything does not
help. Feedback is a text for an optimizer, and says at which step each missing word was lost.

A headline score is the one by which programs are compared; some questions are left out of it.

Tokens are estimated: four characters are one. Dates are compared as their words in one way of
writing, so the words of 2023-05-07 are "7", "may" and "2023".
"""

from datetime import datetime

import dspy
import mempiler
import pytest
from mempiler import Context, Entry, Hit, Memory, UserError
from mempiler.data.catalog import benchmark
from mempiler.data.plain_dates import with_plain_dates
from mempiler.data.scorer import Score
from mempiler.data.support import Support

HISTORY = mempiler.History.parse(
    [{"role": "user", "content": "I moved to Lisbon with my dog Rex."}]
)


class Notebook(Memory):
    """A memory of notes."""

    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class ElsewhereMemory(Notebook):
    """A memory whose notes do not name the turns that they come from, as of a remote system."""

    names_sources = False


def question(answer: str, **fields: object) -> dspy.Example:
    """Return a question with this gold answer."""
    return dspy.Example(id="q", history=HISTORY, question="Where?", answer=answer, **fields)


def recalled(*texts: str, memory: Memory | None = None) -> dspy.Prediction:
    """Return a prediction for which entries with these texts were recalled, the best one first."""
    hits = tuple(Hit(id=f"n{number}", text=text) for number, text in enumerate(texts, 1))
    return dspy.Prediction(answer="", context=Context(hits=hits), memory=memory)


def notebook(*texts: str) -> Notebook:
    """Return a memory with these notes, which are called n1, n2 and so on."""
    notes = tuple(Entry(id=f"n{number}", text=text) for number, text in enumerate(texts, 1))
    return Notebook(notes=notes)


def support(answer: str, *texts: str, tokens: int = 300) -> float:
    """Return the share of the answer's words that stand in the first tokens of these entries."""
    return Support(budget=tokens).score(question(answer), recalled(*texts)).value


def test_the_score_is_the_share_of_the_gold_words_that_were_recalled() -> None:
    """The first argument of `support` is the gold answer; the others are the recalled entries.

    "The" is an article and does not count.
    """
    assert support("the city of Lisbon", "Ann moved to Lisbon.") == pytest.approx(1 / 3)
    assert support("Lisbon", "Ann moved to Lisbon.", "Ann has a dog.") == 1
    assert support("Lisbon", "Ann moved to Porto.") == 0
    assert support("Lisbon") == 0


def test_the_id_of_an_entry_is_no_word_that_was_recalled() -> None:
    """A prompt shows the entry as "[n1] Ann moved to Porto."."""
    assert support("n1", "Ann moved to Porto.") == 0


FILLER = "Ann talked about the weather and about the news of the day again."


def test_words_count_only_within_the_budget() -> None:
    """The first entry is a filler of about 15 tokens. The second one has the answer."""
    assert support("Lisbon", FILLER, "Ann moved to Lisbon.", tokens=15) == 0
    assert support("Lisbon", FILLER, "Ann moved to Lisbon.", tokens=40) == 1


@pytest.mark.parametrize("city", ["Lisbon", "Kölnberg"])
def test_a_word_that_the_budget_cuts_in_half_does_not_count(city: str) -> None:
    """Wherever the budget cuts the text, "Lis" is no word of it, and neither is "L" or "Lisbo"."""
    text = f"Ann lives in {city} now."
    for tokens in range(1, 9):
        for length in range(1, len(city)):
            beginning_of_word = city[:length]
            assert support(beginning_of_word, text, tokens=tokens) == 0


def test_chinese_has_no_spaces_and_is_cut_after_any_character() -> None:
    """The text says that she (她) moved to Lisbon (里斯本). The budget ends before Lisbon."""
    assert support("她", "她去年搬到了里斯本。", tokens=5) == 1
    assert support("里斯本", "她去年搬到了里斯本。", tokens=5) == 0


def test_the_entries_that_count_are_those_within_the_budget() -> None:
    """The three entries are called n1, n2 and n3. Ten tokens end within the second one."""
    prediction = recalled("Ann moved to Lisbon.", "Ann has a dog that is called Rex.", "Ann cooks.")
    assert Support(budget=10).counted_entries(prediction) == ("n1", "n2")
    assert Support(budget=100).counted_entries(prediction) == ("n1", "n2", "n3")


def test_notes_such_as_a_summary_count_after_the_entries() -> None:
    """The smaller budget, four tokens, ends before the summary."""
    context = Context(
        hits=(Hit(id="n1", text="Ann cooks."),),
        notes={"summary": "Ann moved to Lisbon."},
    )
    prediction = dspy.Prediction(context=context)

    assert Support().score(question("Lisbon"), prediction).value == 1
    assert Support(budget=4).score(question("Lisbon"), prediction).value == 0


def test_an_entry_that_is_shown_only_because_nothing_fits_does_not_count() -> None:
    """Such a hit is marked as `fallback`."""
    context = Context(hits=(Hit(id="n1", text="Ann moved to Lisbon.", fallback=True),))
    assert Support().score(question("Lisbon"), dspy.Prediction(context=context)).value == 0


@pytest.mark.parametrize(
    "written",
    [
        "2023-05-07",
        "2023/5/7",
        "May 7, 2023",
        "May 7th 2023",
        "7 May 2023",
        "7th of May, 2023",
        "07 May 2023",
        "Sunday, 7 May 2023, 13:56",
        "2023-05-07T13:56",
        "2023年5月7日",
        "2023/05/07-2023/05/09",
    ],
)
def test_a_date_is_found_however_it_is_written(written: str) -> None:
    """A date is compared as its words. The 8th of May shares two of three with the 7th."""
    assert support("7 May 2023", f"Ann moved on {written}.") == 1
    assert support("2023-05-07", f"Ann moved on {written}.") == 1
    assert support("8 May 2023", f"Ann moved on {written}.") == pytest.approx(2 / 3)


def test_part_of_a_date_supports_its_words() -> None:
    """The words of the first answer are 7, May and 2023."""
    assert support("7 May 2023", "Ann moved in May 2023.") == pytest.approx(2 / 3)
    assert support("7 May 2023", "Ann moved in 2023.") == pytest.approx(1 / 3)
    assert support("September 2023", "Ann moved in Sept. 2023.") == 1


@pytest.mark.parametrize("written", ["5月7日", "5月7号", "5 月 7 日", "2023年5月7日"])
def test_a_chinese_date_without_a_year_is_found(written: str) -> None:
    """5月7日 is the 7th of May, and 5月 is May."""
    assert support("7 May", f"她在{written}搬家了。") == 1
    assert support("5月7日", f"她在{written}搬家了。") == 1
    assert support("5月", f"她在{written}搬家了。") == 1
    assert support("5月", "她在15月7日搬家了。") == 0


@pytest.mark.parametrize("written", ["7-8 May", "May 7-8", "7–8 May", "5月7-8日", "5月7日-5月8日"])
def test_each_day_of_a_range_is_found(written: str) -> None:
    for answer in ("7 May", "8 May", "7-8 May", "May 7-8"):
        assert support(answer, f"The trip was on {written}.") == 1
    assert support("7 May 2023", "The trip was on May 7-8, 2023.") == 1


def test_each_date_of_a_range_is_found() -> None:
    written = "2023/05/07-2023/05/09"
    assert support("9 May 2023", f"The trip was {written}.") == 1
    assert with_plain_dates(written) == "7 may 2023 - 9 may 2023"


@pytest.mark.parametrize("written", ["2023-05-07", "May 7, 2023", "17 May 2023", "2023年5月17日"])
def test_a_larger_budget_never_lowers_the_score(written: str) -> None:
    """A small budget may end within a date, such as behind the 1 of 17 May.

    It must not find the answer "1 May" there, which a larger budget would not find.
    """
    text = f"Ann moved on {written}, and then she called."
    for answer in ("Ann moved on 2023-05-07", "17 May 2023", "1 May", "2023", "May"):
        scores = [support(answer, text, tokens=tokens) for tokens in range(1, 30)]
        assert scores == sorted(scores)


def test_a_date_that_the_budget_cuts_is_quoted_as_a_whole() -> None:
    """A budget of six tokens, about 24 characters, ends at "[n1] Ann moved on 2023-0".

    No word of the cut date counts. Feedback quotes what is behind the budget, with the whole date.
    """
    text = "Ann moved on 2023-05-07 to Lisbon."
    prediction = recalled(text, memory=notebook(text))

    score = Support(budget=6).score(question(answer="7 May"), prediction)

    assert score.value == 0
    rest = "2023-05-07 to Lisbon."
    assert f"Recalled, but below the budget: 7, may (n1: {rest})." in score.feedback


def test_the_date_of_a_recalled_entry_counts_as_the_prompt_shows_it() -> None:
    """The text of the entry has no date, but the prompt shows its date before it."""
    hit = Hit(id="n1", text="Ann moved.", time=datetime(2023, 5, 7))
    prediction = dspy.Prediction(context=Context(hits=(hit,)))
    assert Support().score(question("2023-05-07"), prediction).value == 1


@pytest.mark.parametrize(
    "text", ["You may 3 times.", "call 2023-13-45", "12 monkeys in 10 minutes", "Ann"]
)
def test_a_text_without_a_date_keeps_its_words(text: str) -> None:
    """`with_plain_dates` writes all dates of a text in one way. Other numbers must stay."""
    words_with_plain_dates = with_plain_dates(text).lower().split()
    assert sorted(words_with_plain_dates) == sorted(text.lower().split())


def feedback(answer: str, prediction: dspy.Prediction, **fields: object) -> str:
    """Return the feedback for a budget of twelve tokens."""
    return Support(budget=12).score(question(answer, **fields), prediction).feedback


def test_feedback_names_words_of_an_entry_that_was_not_recalled() -> None:
    """The memory has two entries, and only the first one was recalled."""
    prediction = recalled("Ann cooks.", memory=notebook("Ann cooks.", "Ann moved to Lisbon."))

    text = feedback("Lisbon", prediction)

    assert "Stored in an entry that was not recalled: lisbon (n2: Ann moved to Lisbon.)." in text
    assert "Never said" not in text


def test_feedback_names_words_that_were_recalled_below_the_budget() -> None:
    """Twelve tokens of the recalled text count. They end before the word Lisbon."""
    entries = ("Ann talked about the weather and the news of the day.", "Ann moved to Lisbon.")
    prediction = recalled(*entries, memory=notebook(*entries))

    text = feedback("Lisbon", prediction)

    assert "Recalled, but below the budget: lisbon (n2: Ann moved to Lisbon.)." in text
    assert "not recalled" not in text


def test_feedback_says_of_each_word_where_it_was_lost() -> None:
    """Rex was recalled, Lisbon is in another entry, and the memory holds no Oslo."""
    prediction = recalled("Ann has Rex.", memory=notebook("Ann has Rex.", "Ann moved to Lisbon."))

    text = feedback("Rex, Lisbon and Oslo", prediction)

    assert "25% of the words" in text
    assert "not recalled: lisbon" in text
    assert "Never said in any entry about it: and, oslo" in text


def test_a_word_of_an_entry_that_does_not_come_from_the_evidence_is_never_said() -> None:
    """The evidence of a question is where its answer was said: here the turn D1:1, about a dog.

    The missing word "two" stands only in an entry that comes from another turn, about cats.
    """
    dog = Entry(id="n1", text="Ann has a dog.", sources=("D1:1",))
    cats = Entry(id="n2", text="Ben has two cats.", sources=("D2:1",))
    prediction = recalled("Ann cooks.", memory=Notebook(notes=(dog, cats)))

    text = feedback("two", prediction, evidence_ids=("D1:1",))

    assert "Never said in any entry about it: two." in text
    assert "Stored" not in text


def test_feedback_does_not_guess_what_a_system_stores_elsewhere() -> None:
    """An `ElsewhereMemory` does not know from which turns its notes come, as of a remote system.

    Its note with the city was not recalled, and feedback does not say that it is stored.
    """
    city = Entry(id="n1", text="Ann moved to Lisbon.")
    prediction = recalled("Ann cooks.", memory=ElsewhereMemory(notes=(city,)))

    text = feedback("Lisbon", prediction)

    assert "Not recalled: lisbon." in text
    assert "stored" not in text.lower()


@pytest.mark.parametrize(
    "answer",
    [
        "No information",
        "No information was given about it.",
        "Not mentioned.",
        "Not mentioned in the conversation",
        "I don't know, she did not say",
        "No answer",
        "unknown",
        "无法回答",
        "未提及",
        "没有提到这件事。",
        "?!",
    ],
)
def test_a_question_that_cannot_be_answered_does_not_count(answer: str) -> None:
    """These gold answers say that there is no answer, so they have no words to look for."""
    assert not Support().in_headline(question(answer))


@pytest.mark.parametrize("answer", ["Lisbon", "Unknown Pleasures", "no informational value", "no"])
def test_an_answer_that_only_looks_like_a_refusal_counts(answer: str) -> None:
    """The words "Unknown Pleasures", for instance, are the title of an album."""
    assert Support().in_headline(question(answer))


def test_locomo_recognizes_answers_that_decline_although_it_compares_stems() -> None:
    """Stems are beginnings of words, so "mentioned" is compared as "mention"."""
    loaded = benchmark("locomo", metric="support")
    example = question("Not mentioned in the conversation", category="1")
    assert not loaded.in_headline(example)


@pytest.mark.parametrize("answer", [None, [], [None]])
def test_a_question_without_an_answer_does_not_count(answer: object) -> None:
    """The missing answer must not be taken for the word "none" either."""
    example = dspy.Example(id="q", history=HISTORY, question="Where?", answer=answer)
    assert not Support().in_headline(example)
    assert Support().score(example, recalled("There were none, she said.")).value == 0


def test_if_there_are_several_gold_answers_the_words_of_all_are_looked_for() -> None:
    example = dspy.Example(id="q", history=HISTORY, question="Where?", answer=["Lisbon", "Rome"])

    one_city = Support().score(example, recalled("Ann saw Lisbon."))
    both_cities = Support().score(example, recalled("Ann saw Lisbon and Rome."))

    assert one_city.value == pytest.approx(1 / 2)
    assert "50% of the words of 'Lisbon, Rome'" in one_city.feedback
    assert both_cities.value == 1


def score_of(name: str, example: dspy.Example, text: str) -> Score:
    """Score a question of a benchmark for which an entry with this text was recalled."""
    loaded = benchmark(name, metric="support")
    return loaded.score(example, recalled(text))


def test_locomo_compares_stems() -> None:
    """The words "dances" and "dancing" have the same stem.

    In category 3 the gold answer ends at the semicolon, so "likely" does not count.
    """
    example = question("dancing; likely", category="3", evidence=())
    assert score_of("locomo", example, "Ann dances.").value == 1


def test_locomo_leaves_adversarial_questions_out() -> None:
    """The questions of category 5 ask about something that was never said."""
    loaded = benchmark("locomo", metric="support")
    counted = [example for example in loaded.examples if loaded.in_headline(example)]
    assert {example.category for example in counted} == {"1", "2", "3", "4"}


def test_longmemeval_leaves_preferences_and_abstentions_out() -> None:
    """The gold answer about a preference describes good answers, so its words prove nothing.

    An abstention is a question that cannot be answered.
    """
    loaded = benchmark("longmemeval", metric="support")

    counted = [example for example in loaded.examples if loaded.in_headline(example)]

    assert counted
    for example in counted:
        assert not example.abstention
        assert example.category != "single-session-preference"


def test_membench_looks_for_the_words_of_the_right_choice() -> None:
    """The gold answer is a letter; its words are those of the option."""
    example = question("(b)", options=["(a) a red bike", "(b) a blue car"])
    assert score_of("membench", example, "She drives a blue car.").value == 1
    assert score_of("membench", example, "She rides a red bike, version B.").value == 0


def test_memory_env_leaves_retracted_facts_out() -> None:
    """In this benchmark a fact may be retracted. Then "none" is the gold answer."""
    loaded = benchmark("memory-env", metric="support", users=10)

    counted = [example for example in loaded.examples if loaded.in_headline(example)]

    assert counted
    assert len(counted) < len(loaded.examples)
    assert "none" not in {example.answer for example in counted}
    assert not loaded.in_headline(question("not mentioned"))


def test_another_metric_refuses_a_budget() -> None:
    """The budget is how many tokens of the recalled text count."""
    with pytest.raises(UserError, match="goes with the metric support alone, not with token F1"):
        benchmark("msc").with_support_tokens(100)


def test_a_budget_of_zero_tokens_is_refused() -> None:
    """The budget is how many tokens of the recalled text count."""
    with pytest.raises(UserError, match="support_tokens = 0: give 1 or more"):
        benchmark("msc", metric="support").with_support_tokens(0)


def test_the_entries_of_a_memory_are_cut_into_words_once_for_all_its_questions() -> None:
    """To cut a thousand entries anew for each question would take most of the time."""
    stemmed_words: list[str] = []

    def record_word(word: str) -> str:
        stemmed_words.append(word)
        return word

    scorer = Support(stem=record_word)
    memory = notebook("Ann moved to Lisbon.", "Ann feeds the ferrets.")

    first = scorer.score(question("ferrets"), recalled(memory=memory))
    second = scorer.score(question("Lisbon"), recalled(memory=memory))

    assert "Stored in an entry that was not recalled: ferrets (n2" in first.feedback
    assert "Stored in an entry that was not recalled: lisbon (n1" in second.feedback
    assert stemmed_words.count("feeds") == 1


def test_another_memory_is_not_scored_by_the_words_of_the_last_one() -> None:
    """The words of a memory are kept for its next question. Another memory has words of its own."""
    scorer = Support()
    memory = notebook("Ann feeds the ferrets.")
    scorer.score(question("ferrets"), recalled(memory=memory))

    score = scorer.score(question("ferrets"), recalled(memory=notebook("Ann sings.")))

    assert "Never said in any entry about it: ferrets." in score.feedback
