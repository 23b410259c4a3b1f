"""The speakers whose turns a question asks for, by their names (`memory.search.speakers`).

"What did Bob say?" asks for turns of Bob, so a search prefers them. The index registers a speaker
with each entry that it adds, and unregisters one with each that it removes.
"""

import time

import pytest
from mempiler.memory.search.speakers import Speakers


def speakers_of(*names: str | None) -> Speakers:
    """Return the speakers of turns with these names."""
    speakers = Speakers()
    for name in names:
        speakers.register(name)
    return speakers


def asked_names(speakers: Speakers, question: str) -> list[str | None]:
    """Return the names of the speakers whose turns a question asks for."""
    names_by_number = {number: name for name, number in speakers.numbers.items()}
    return [names_by_number[number] for number in speakers.target_speakers(question)]


@pytest.mark.parametrize(
    ("query", "speaker"),
    [
        ("What does Ann's dog eat?", "Ann Lee"),
        ("What did ANN LEE say?", "Ann Lee"),
        ("Ann?", "Ann Lee"),
        ("Bob", "Bob"),
        ("小满喜欢什么？", "小满"),
        ("What did speaker 2 say?", "Speaker 2"),
        # The one who is named counts, and "me" does not.
        ("What did Bob tell me?", "Bob"),
        # Who says "I" is the user.
        ("What did I say about jazz?", "user"),
        ("我喜欢什么？", "user"),
    ],
)
def test_question_asks_for_the_turns_of_the_speaker_it_names(query: str, speaker: str) -> None:
    speakers = speakers_of("Ann Lee", "Bob", "user", "小满", "Speaker 1", "Speaker 2")

    assert asked_names(speakers, query) == [speaker]


@pytest.mark.parametrize(
    "query", ["Did Ann meet Bob?", "Is it annual?", "What did the speaker say?"]
)
def test_question_that_names_two_speakers_or_none_prefers_no_speaker(query: str) -> None:
    speakers = speakers_of("Ann Lee", "Bob", "Speaker 1", "Speaker 2")

    assert speakers.target_speakers(query) == []


@pytest.mark.parametrize(
    ("query", "remainder"),
    [
        ("What does Ann's dog eat?", "What does dog eat?"),
        ("What did ANN LEE say?", "What did say?"),
        ("Did Ann meet Bob?", "Did meet ?"),
        ("Ann?", "?"),
        ("What did Bob tell me?", "What did tell me?"),
        ("小满喜欢什么？", "喜欢什么？"),
        ("What did speaker 2 say?", "What did say?"),
    ],
)
def test_names_of_speakers_are_taken_out_of_a_question(query: str, remainder: str) -> None:
    speakers = speakers_of("Ann Lee", "Bob", "user", "小满", "Speaker 1", "Speaker 2")

    assert speakers.without_names(query) == remainder


@pytest.mark.parametrize(
    "query",
    [
        "Is it annual?",
        "What did I say about jazz?",
        "我喜欢什么？",
        "What did the speaker say?",
        # Nothing would be left.
        "Bob",
    ],
)
def test_question_without_names_or_of_a_name_alone_stays_as_it_is(query: str) -> None:
    speakers = speakers_of("Ann Lee", "Bob", "user", "Speaker 1", "Speaker 2")

    assert speakers.without_names(query) == query


def test_first_name_of_two_speakers_names_neither() -> None:
    speakers = speakers_of("Ann Lee", "Ann May")

    assert speakers.target_speakers("What did Ann say?") == []


def test_full_name_tells_speakers_of_one_first_name_apart() -> None:
    speakers = speakers_of("Ann Lee", "Ann May")

    assert asked_names(speakers, "What did Ann May say?") == ["Ann May"]


@pytest.mark.parametrize(
    "rest", ["2024年" * 100_000, "1 May 2024 " * 50_000], ids=["Chinese", "English"]
)
def test_only_the_beginning_of_a_very_long_question_is_searched_for_names(rest: str) -> None:
    three_thousand_names = [f"name{number}" for number in range(3000)]
    speakers = speakers_of(*three_thousand_names)
    question = f"What did name7 say in May 2024? {rest}"
    start = time.process_time()

    names = asked_names(speakers, question)
    remainder = speakers.without_names(question)

    assert names == ["name7"]
    assert "name7" not in remainder
    # A search of the whole question for 3,000 names would take far longer.
    assert time.process_time() - start < 5


def test_no_question_asks_for_a_speaker_whose_entries_were_all_removed() -> None:
    speakers = speakers_of("Ann", "Bob", "Bob")

    speakers.unregister("Ann")
    speakers.unregister("Bob")  # Bob has another entry

    assert asked_names(speakers, "What did Ann say?") == []
    assert asked_names(speakers, "What did Bob say?") == ["Bob"]
    assert "Ann" not in speakers.numbers


def test_speaker_who_comes_back_gets_a_number_that_nobody_has() -> None:
    speakers = speakers_of("Ann", "Bob")

    speakers.unregister("Ann")
    number = speakers.register("Ann")

    assert number != speakers.numbers["Bob"]


@pytest.mark.parametrize("names", [("Ann", "Ann Lee"), ("Ann Lee", "Ann")])
def test_full_name_means_its_speaker_even_if_it_is_the_first_name_of_another(
    names: tuple[str, str],
) -> None:
    speakers = speakers_of(*names)

    assert asked_names(speakers, "What did Ann say?") == ["Ann"]
