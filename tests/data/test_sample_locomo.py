"""The bundled LoCoMo sample: genuine form, right evidence, right dates, and prose that follows no template."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

RAW = (files("mempiler.data.samples") / "locomo.json").read_bytes()
CONVERSATIONS: list[dict[str, Any]] = json.loads(RAW.decode("utf-8"))
IDS = [row["sample_id"] for row in CONVERSATIONS]
SHARES = {1: 4, 2: 5, 3: 2, 4: 6, 5: 3}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = [date(2023, month, 1).strftime("%B") for month in range(1, 13)]
SPEAKERS = [row["conversation"][f"speaker_{side}"] for row in CONVERSATIONS for side in "ab"]
HONORIFICS = {"I", "I'm", "I'd", "I'll", "I've"}


def sessions(row: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    found = {key: re.fullmatch(r"session_(\d+)", key) for key in row["conversation"]}
    return {int(hit[1]): row["conversation"][key] for key, hit in found.items() if hit}


def times(row: dict[str, Any]) -> dict[int, datetime]:
    form = "%I:%M %p on %d %B, %Y"
    return {n: datetime.strptime(row["conversation"][f"session_{n}_date_time"], form) for n in sessions(row)}


def turns(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {turn["dia_id"]: turn for session in sessions(row).values() for turn in session}


def question(sample: str, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    row = CONVERSATIONS[IDS.index(sample)]
    [found] = [qa for qa in row["qa"] if qa["question"] == text]
    return row, found


def written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def weekday_before(day: date, name: str) -> date:
    """The latest day of that name strictly before `day`."""
    return day - timedelta(days=(day.weekday() - WEEKDAYS.index(name) - 1) % 7 + 1)


def pattern(text: str, size: int) -> str:
    """The first `size` words, numbers, dates and names masked."""
    masked = []
    for place, word in enumerate(re.findall(r"[^\W\d_][\w']*|\d+", text)):
        bare = word.removesuffix("'s")
        if word.isdigit() or bare in WEEKDAYS or bare in MONTHS:
            masked.append("<n>")
        elif bare in SPEAKERS or (place and word[0].isupper() and word not in HONORIFICS):
            masked.append("<name>")
        else:
            masked.append(word.lower())
    return " ".join(masked[:size])


def commonest(patterns: list[str]) -> tuple[str, float]:
    text, count = Counter(patterns).most_common(1)[0]
    return text, count / len(patterns)


def test_the_file_is_small_utf8_without_a_byte_order_mark_or_control_characters():
    assert len(RAW) < 400_000
    assert not RAW.startswith(b"\xef\xbb\xbf")
    assert [ch for ch in RAW.decode("utf-8") if ord(ch) < 32 and ch != "\n"] == []


def test_there_are_eight_conversations_with_160_questions():
    assert len(set(IDS)) == len(CONVERSATIONS) == 8
    assert sum(len(row["qa"]) for row in CONVERSATIONS) == 160


def test_all_sixteen_speakers_have_different_names():
    assert len(set(SPEAKERS)) == 16


def test_top_level_keys_are_those_of_the_genuine_file():
    keys = {"sample_id", "conversation", "qa", "event_summary", "observation", "session_summary"}
    assert [set(row) for row in CONVERSATIONS] == [keys] * 8


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_every_conversation_has_five_dated_sessions_of_ten_to_fourteen_turns(row: dict[str, Any]):
    expected = {"speaker_a", "speaker_b"}
    expected |= {f"session_{n}" for n in range(1, 6)} | {f"session_{n}_date_time" for n in range(1, 6)}
    assert set(row["conversation"]) == expected
    assert all(10 <= len(session) <= 14 for session in sessions(row).values())


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_sessions_are_weeks_or_months_apart_between_2023_and_2025(row: dict[str, Any]):
    dates = [when.date() for _, when in sorted(times(row).items())]
    gaps = [(later - earlier).days for earlier, later in pairwise(dates)]
    assert min(gaps) >= 14
    assert {day.year for day in dates} <= {2023, 2024, 2025}


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_every_turn_is_well_formed_and_numbered_by_session_and_place(row: dict[str, Any]):
    pair = {row["conversation"]["speaker_a"], row["conversation"]["speaker_b"]}
    plain = {"speaker", "dia_id", "text"}
    for number, session in sessions(row).items():
        assert [turn["dia_id"] for turn in session] == [f"D{number}:{n}" for n in range(1, len(session) + 1)]
        assert {turn["speaker"] for turn in session} == pair
        for turn in session:
            assert set(turn) in (plain, plain | {"img_url", "blip_caption"})
            assert turn["text"].strip() == turn["text"] != ""


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_every_conversation_shares_captioned_images_under_a_reserved_address(row: dict[str, Any]):
    shared = [turn for turn in turns(row).values() if "img_url" in turn]
    assert shared
    assert all(turn["blip_caption"].startswith("a photo of ") for turn in shared)
    assert all(url.startswith("https://example.com/") for turn in shared for url in turn["img_url"])


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_questions_are_spread_over_the_categories_as_planned(row: dict[str, Any]):
    assert Counter(qa["category"] for qa in row["qa"]) == SHARES


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_only_adversarial_questions_lack_an_answer(row: dict[str, Any]):
    for qa in row["qa"]:
        label = "adversarial_answer" if qa["category"] == 5 else "answer"
        assert set(qa) == {"question", "evidence", "category", label}
        assert isinstance(qa[label], str)
        assert qa[label].strip() == qa[label] != ""
        assert qa["question"].endswith(("?", "."))


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_evidence_names_existing_turns_in_order_and_once(row: dict[str, Any]):
    place = {turn: n for n, turn in enumerate(turns(row))}
    for qa in row["qa"]:
        places = [place[turn] for turn in qa["evidence"]]
        assert places, qa["question"]
        assert places == sorted(set(places)), qa["question"]


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_multi_hop_questions_rest_on_several_turns(row: dict[str, Any]):
    assert [qa["question"] for qa in row["qa"] if qa["category"] == 1 and len(qa["evidence"]) < 2] == []


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_single_hop_answers_share_a_word_with_their_evidence(row: dict[str, Any]):
    for qa in (qa for qa in row["qa"] if qa["category"] == 4):
        said = " ".join(turns(row)[turn]["text"] for turn in qa["evidence"]).lower()
        words = [word for word in re.findall(r"[a-z0-9]+", qa["answer"].lower()) if len(word) > 3 or word.isdigit()]
        assert not words or any(word in said for word in words), qa["question"]


@pytest.mark.parametrize("row", CONVERSATIONS, ids=IDS)
def test_no_question_is_asked_twice_of_one_conversation(row: dict[str, Any]):
    asked = [" ".join(re.findall(r"\w+", qa["question"].lower())) for qa in row["qa"]]
    assert len(set(asked)) == len(asked)


def test_no_question_pattern_makes_up_more_than_a_twentieth():
    text, share = commonest([pattern(qa["question"], 4) for row in CONVERSATIONS for qa in row["qa"]])
    assert share <= 0.05, text


def test_no_sentence_pattern_makes_up_more_than_a_twentieth():
    texts = [turn["text"] for row in CONVERSATIONS for turn in turns(row).values()]
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=[.!?])\s+", text)]
    text, share = commonest([pattern(sentence, 3) for sentence in sentences])
    assert share <= 0.05, text


def test_no_turn_is_said_twice():
    texts = [turn["text"] for row in CONVERSATIONS for turn in turns(row).values()]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


@pytest.mark.parametrize(
    ("sample", "text", "said", "name", "weeks"),
    [
        ("sample-1", "When did the bakery oven fail?", "last Tuesday", "Tuesday", 0),
        ("sample-1", "On what date was Zosia's seventh birthday?", "on Thursday", "Thursday", 0),
        ("sample-1", "What day did Ingrid's phone drop into the water?", "last Friday", "Friday", 0),
        ("sample-2", "When did Adaeze get her admission letter?", "on Wednesday", "Wednesday", 0),
        ("sample-2", "On which date did the scooter pass inspection?", "on Tuesday", "Tuesday", 0),
        ("sample-3", "When did the Danish series get finished?", "last Thursday", "Thursday", 0),
        ("sample-3", "What was the date of the first snow in Nagano?", "on Monday", "Monday", 0),
        ("sample-4", "When was the final pier of the bridge poured?", "on Friday", "Friday", 0),
        ("sample-4", "On what day was the ribbon cut?", "on Monday", "Monday", 0),
        ("sample-5", "On which day was Emils born?", "on Friday", "Friday", 0),
        ("sample-6", "When did Noor's pharmacy move to its new branch?", "on Sunday", "Sunday", 0),
        ("sample-6", "On what day did Everett win a ribbon?", "the Saturday before last", "Saturday", 1),
        ("sample-7", "On which date did the council vote to keep the Oranmore branch?", "on Monday", "Monday", 0),
        ("sample-7", "What day was the public meeting about the closure?", "last Thursday", "Thursday", 0),
        ("sample-7", "When did the Cork publisher ask to see the full manuscript?", "last Tuesday", "Tuesday", 0),
        ("sample-8", "When did Anh leave the bank?", "Until Thursday", "Thursday", 0),
        ("sample-8", "On what date did Kwame and Abena learn about the pregnancy?", "last Wednesday", "Wednesday", 0),
    ],
)
def test_a_past_weekday_is_counted_back_from_the_session(sample: str, text: str, said: str, name: str, weeks: int):
    row, qa = question(sample, text)
    [turn] = qa["evidence"]
    spoken = times(row)[int(turn[1])].date()
    assert said in turns(row)[turn]["text"]
    assert qa["answer"] == written(weekday_before(spoken, name) - timedelta(weeks=weeks))


@pytest.mark.parametrize(
    ("sample", "text", "said", "days"),
    [
        ("sample-1", "When was the plaster cast due to be removed?", "this coming Friday", 6),
        ("sample-2", "When was the cataract surgery of Adaeze's grandmother?", "yesterday", -1),
        ("sample-3", "When did Hiroshi complete the viaduct?", "yesterday", -1),
        ("sample-4", "Which date did Priya's father have his heart attack on?", "ten days ago", -10),
        ("sample-5", "What date was the greyhound adopted?", "ten days ago", -10),
        ("sample-6", "When did Everett give up cigarettes?", "thirty-one days", -31),
        ("sample-7", "When did Siobhan begin her novel?", "the day before yesterday", -2),
        ("sample-8", "When did the cat have teeth removed?", "ten days ago", -10),
        ("sample-8", "Which day marked Anh's return from Taiwan?", "the day before yesterday", -2),
    ],
)
def test_a_day_counted_from_the_session_is_right(sample: str, text: str, said: str, days: int):
    row, qa = question(sample, text)
    [turn] = qa["evidence"]
    assert said in turns(row)[turn]["text"]
    assert qa["answer"] == written(times(row)[int(turn[1])].date() + timedelta(days=days))


@pytest.mark.parametrize(
    ("sample", "text", "said", "form"),
    [
        ("sample-1", "In which month was the beekeeping course due to start?", "next month", "{month}"),
        (
            "sample-2",
            "By when did the application for the midwifery programme have to be in?",
            "end of next month",
            "The end of {month}",
        ),
        ("sample-3", "In what month did Beatriz plan to move her belongings to Ericeira?", "next month", "{month}"),
        ("sample-6", "What was the opening date of Noor's exhibition?", "seventh of next month", "7 {month}"),
    ],
)
def test_next_month_is_the_month_after_the_session(sample: str, text: str, said: str, form: str):
    row, qa = question(sample, text)
    [turn] = qa["evidence"]
    following = times(row)[int(turn[1])].date().replace(day=1) + timedelta(days=31)
    assert said in turns(row)[turn]["text"]
    assert qa["answer"] == form.format(month=f"{following:%B %Y}")


def test_a_relative_answer_is_anchored_at_the_date_of_its_session():
    pairs = [
        (qa["answer"].rsplit(" before ", 1)[1], written(times(row)[int(qa["evidence"][0][1])].date()))
        for row in CONVERSATIONS
        for qa in row["qa"]
        if qa["category"] == 2 and " before " in qa["answer"]
    ]
    assert pairs
    assert [anchor for anchor, spoken in pairs if anchor != spoken] == []
