"""OmniBehavior: what is history and what is asked, how records read, and its metrics.

OmniBehavior has records of what users did on a platform. A record has a scene (videos, live
streams, advertisements, a shop), a situation (what the user saw), and a reaction. The benchmark
asks yes-or-no questions about the reaction, such as `video_liked`; each is called a field.

Records of September are history. Of the records of October and November some are asked about. The
memory of a user is made from the records before the first one that is asked, and is then frozen.
Records between that one and a question are "recent": a prompt shows them beside the memory.
"""

import copy
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler import Behavior, DataError
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.omnibehavior.benchmark import FieldAccuracy, OmniBehavior
from mempiler.data.omnibehavior.periods import Periods
from mempiler.data.omnibehavior.records import OPEN, QUESTIONS, fields_of, questions_of
from mempiler.data.omnibehavior.text import MAX_FIELD_CHARS, reaction, situation
from mempiler.records import estimate_tokens

from .forms import PREPARED_OMNIBEHAVIOR, Change, unchanged, video, write_files

MORNING_RUN = {
    "type": "Video Browsing",
    "timestamp": "2025-10-02 20:15:00",
    "context": {
        "like_cnt": 210,
        "caption": "Morning\n run",
        "duration": "34秒",
        "photo_id": "x9",
        "weather": "rain",
    },
    "action": [{"type": "watch", "play_duration": 12}, {"type": "like"}],
}
"""A record with many fields: a video that the user liked."""


def write_user(
    folder: Path, records: list[dict[str, Any]], user: str = "u1", name: str = "user.json"
) -> Path:
    """Write the raw file of one user."""
    content = {user: {"user_profile": "Lives in Xiamen.", "action_history": records}}
    return write_files(folder, {name: content})


def write_prepared(folder: Path, change: Change = unchanged) -> Path:
    """Write the example of the prepared form, with its user changed."""
    files = copy.deepcopy(PREPARED_OMNIBEHAVIOR)
    change(files["experiment_data.json"]["users"][0])
    return write_files(folder, files)


def liked_examples(path: Path, **options: Any) -> tuple[dspy.Example, ...]:
    """Return the questions whether the user liked a video: one about each record that is asked."""
    return benchmark("omnibehavior", path, categories="video_liked", **options).examples


def actions_in(items: Any) -> list[Any]:
    """Return the actions of a history, or of recent items."""
    actions: list[Any] = []
    for item in items:
        if isinstance(item, Behavior):
            actions.extend(item.actions)
    return actions


def days_of(items: Any) -> list[str]:
    """Return the days of the actions of a history, or of recent items, such as "2 October"."""
    return [f"{action.time.day} {action.time:%B}" for action in actions_in(items)]


SEPTEMBER_VIDEOS = [video("2025-09-01 10:00:00"), video("2025-09-02 10:00:00")]
OCTOBER_VIDEOS = [video("2025-10-01 10:00:00"), video("2025-10-02 10:00:00")]


def test_records_of_september_are_history_and_those_of_october_and_november_are_asked(
    tmp_path: Path,
) -> None:
    """As in the released code, the last days of September and of November are left out."""
    records = [
        video("2025-08-31 10:00:00"),
        video("2025-09-01 10:00:00"),
        video("2025-09-29 10:00:00"),
        video("2025-09-30 10:00:00"),
        video("2025-10-02 10:00:00"),
        video("2025-11-29 10:00:00"),
        video("2025-11-30 00:00:00"),
    ]

    first, second = liked_examples(write_user(tmp_path, records))

    assert days_of(first.history) == ["1 September", "29 September"]
    assert first.question.startswith("2 October")
    assert second.question.startswith("29 November")


def test_all_questions_about_a_user_share_one_history(tmp_path: Path) -> None:
    """One memory is made from it, which is frozen before the first question."""
    records = [
        video("2025-09-01 10:00:00"),
        video("2025-10-02 10:00:00"),
        video("2025-10-03 10:00:00"),
    ]

    first, second = liked_examples(write_user(tmp_path, records))

    assert days_of(first.history) == ["1 September"]
    assert second.history is first.history


def test_a_video_without_words_is_not_asked_but_is_history(tmp_path: Path) -> None:
    """The video of 1 October has no caption, so nothing can be asked about it.

    The first question is about 2 October. What comes before is history.
    """
    records = [
        video("2025-09-01 10:00:00"),
        video("2025-10-01 10:00:00", caption=""),
        video("2025-10-02 10:00:00"),
    ]

    (example,) = liked_examples(write_user(tmp_path, records))

    assert example.question.startswith("2 October")
    assert days_of(example.history) == ["1 September", "1 October"]
    assert days_of(example.recent) == []


def test_records_since_the_first_question_are_recent(tmp_path: Path) -> None:
    """The memory is made before the first question. A prompt shows later records beside it.

    There is a question for each record of October.
    """
    records = [
        video("2025-09-01 10:00:00"),
        video("2025-10-02 10:00:00"),
        video("2025-10-03 10:00:00"),
        video("2025-10-04 10:00:00"),
    ]

    first, second, third = liked_examples(write_user(tmp_path, records))

    assert days_of(first.recent) == []
    assert days_of(second.recent) == ["2 October"]
    assert days_of(third.recent) == ["2 October", "3 October"]


def test_a_question_tells_nothing_of_the_reaction(tmp_path: Path) -> None:
    """The user watched 77 seconds, and commented "so true"."""
    reactions = [
        {"type": "watch", "play_duration": 77},
        {"type": "comment", "comment_detail_list": ["so true"]},
    ]
    record = {**MORNING_RUN, "action": reactions}
    path = write_user(tmp_path, [video("2025-09-02 10:00:00"), record])

    examples = OmniBehavior.load(path).examples

    assert examples
    for example in examples:
        assert "77" not in example.question
        assert "so true" not in example.question


def eighty_videos() -> list[dict[str, Any]]:
    """Return four videos a day of the first twenty days of October."""
    records: list[dict[str, Any]] = []
    for day in range(1, 21):
        for hour in range(10, 14):
            records.append(video(f"2025-10-{day:02} {hour}:00:00"))
    return records


def test_seed_offsets_beside_the_files_decide_which_records_are_asked(tmp_path: Path) -> None:
    """Five of eighty records are drawn at random. The data may add an offset to the user's seed."""
    records = eighty_videos()
    path = write_user(tmp_path, records, name="raw_user_data/en/user.json")
    write_files(tmp_path, {"raw_user_data/seed_offsets.json": {"u1": 7}})

    examples = liked_examples(path, test_actions=5)

    drawn_places = Periods(test_actions=5, offsets={"u1": 7}).draw("u1", records)
    # Records are numbered from 1.
    expected_ids = [f"u1:{place + 1}:video_liked" for place in drawn_places]
    assert [example.id for example in examples] == expected_ids


def test_a_seed_offset_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """The offset of the user u1 is the text "7", and not the number."""
    path = write_user(tmp_path, eighty_videos(), name="raw_user_data/en/user.json")
    write_files(tmp_path, {"raw_user_data/seed_offsets.json": {"u1": "7"}})
    with pytest.raises(DataError, match="whole number"):
        liked_examples(path)


@pytest.fixture
def folder_of_users(tmp_path: Path) -> Path:
    """A folder with users a to d who have two records to ask about, and two who have less.

    The user "no history" has no record in September, and "one to ask" has one in October.
    """
    for user in ("a", "b", "c", "d"):
        records = [*SEPTEMBER_VIDEOS, *OCTOBER_VIDEOS]
        write_user(tmp_path, records, user=user, name=f"{user}.json")
    write_user(tmp_path, OCTOBER_VIDEOS, user="no history", name="no_history.json")
    one_of_each = [SEPTEMBER_VIDEOS[0], OCTOBER_VIDEOS[0]]
    write_user(tmp_path, one_of_each, user="one to ask", name="one_to_ask.json")
    return tmp_path


def users_of(examples: tuple[dspy.Example, ...]) -> list[str]:
    """Return the users of some questions, each once, in the order of the questions."""
    return list(dict.fromkeys(example.history.id for example in examples))


def test_without_a_number_of_users_all_are_taken(folder_of_users: Path) -> None:
    """The number `test_actions` says how many records of a user are asked about, at most."""
    users = users_of(liked_examples(folder_of_users, test_actions=2))
    assert users == ["a", "b", "c", "d", "no history", "one to ask"]


def test_only_users_with_a_history_and_enough_to_ask_are_drawn(folder_of_users: Path) -> None:
    """Of the six users, "no history" has no history, and "one to ask" one record to ask about."""
    users = users_of(liked_examples(folder_of_users, test_actions=2, users=4))
    assert users == ["a", "b", "c", "d"]


def test_users_are_drawn_with_the_seed_of_the_benchmark(folder_of_users: Path) -> None:
    """The seed is 42, as in the released code. The users a to d may be drawn."""
    users = users_of(liked_examples(folder_of_users, test_actions=2, users=2))
    assert users == sorted(random.Random(42).sample(["a", "b", "c", "d"], 2))


def tokens_of_records(history: Any) -> list[int]:
    """Return what the two records of a history take; its first line is the profile."""
    tokens: list[int] = []
    for item in history:
        # One token separates a line from the next one.
        tokens.extend(estimate_tokens(line) + 1 for line in item.lines())
    return tokens[-2:]


def test_a_history_may_be_limited_to_the_newest_records(tmp_path: Path) -> None:
    """A user has a record of 1 September and one of 2 September. The limit is in tokens."""
    path = write_user(tmp_path, [*SEPTEMBER_VIDEOS, *OCTOBER_VIDEOS])
    tokens_of_both = sum(tokens_of_records(liked_examples(path)[0].history))

    with_both = liked_examples(path, history_tokens=tokens_of_both)[0].history
    with_newest = liked_examples(path, history_tokens=tokens_of_both - 1)[0].history

    assert days_of(with_both) == ["1 September", "2 September"]
    assert days_of(with_newest) == ["2 September"]


def ask_about_record_9(user: dict[str, Any]) -> None:
    """Add a test action, which names the record to ask about. There is no record 9."""
    user["test_actions"].append({"test_time_index": 9})


def test_a_test_action_without_a_record_is_refused(tmp_path: Path) -> None:
    """A test action names the record to ask about by its index. There is no record 9."""
    path = write_prepared(tmp_path, ask_about_record_9)
    with pytest.raises(DataError, match="test_time_index 9"):
        OmniBehavior.load(path)


def test_a_check_goes_on_after_a_test_action_without_a_record(tmp_path: Path) -> None:
    """Two other test actions name videos that exist. There are six questions about each video."""
    report = check("omnibehavior", write_prepared(tmp_path, ask_about_record_9))
    assert report.kinds == {"dangling test action": 1}
    assert report.counts["questions"] == 2 * 6


def test_a_user_who_is_in_the_data_twice_is_refused(tmp_path: Path) -> None:
    records = [video("2025-09-02 10:00:00"), video("2025-10-02 10:00:00")]
    write_user(tmp_path, records, user="u1", name="raw_user_data/en/a.json")
    write_user(tmp_path, records, user="u1", name="raw_user_data/en/b.json")
    with pytest.raises(DataError, match="user u1: is in the data twice"):
        OmniBehavior.load(tmp_path)


def unseen_video(time: str) -> dict[str, Any]:
    """Return a video that was watched for 0 seconds."""
    reactions = [{"type": "watch", "play_duration": 0}]
    return {**MORNING_RUN, "timestamp": time, "action": reactions}


def test_videos_that_nobody_saw_are_not_read_from_a_raw_file(tmp_path: Path) -> None:
    """A video that was watched for 0 seconds was not seen.

    It is no history, is not asked about, and is not recent when a later video is asked about.
    """
    records = [
        video("2025-09-02 10:00:00"),
        unseen_video("2025-09-03 10:00:00"),
        unseen_video("2025-10-01 10:00:00"),
        video("2025-10-02 10:00:00"),
        unseen_video("2025-10-03 10:00:00"),
        video("2025-10-04 10:00:00"),
    ]

    first, second = liked_examples(write_user(tmp_path, records))

    assert first.question.startswith("2 October")
    assert days_of(first.history) == ["2 September"]
    assert second.question.startswith("4 October")
    assert days_of(second.recent) == ["2 October"]


def test_videos_that_nobody_saw_are_not_read_from_a_prepared_file(tmp_path: Path) -> None:
    """A video that was watched for 0 seconds was not seen, even if `test_actions` names it.

    In this form of the files, `test_actions` names the records to ask about by their place.
    """

    def change(user: dict[str, Any]) -> None:
        user["base_history"] = [
            video("2025-09-02 10:00:00"),
            unseen_video("2025-09-03 10:00:00"),
        ]
        user["test_time_all_actions"] = [
            video("2025-10-02 10:00:00"),
            unseen_video("2025-10-03 10:00:00"),
            video("2025-10-04 10:00:00"),
        ]
        user["test_actions"] = [{"test_time_index": place} for place in (0, 1, 2)]

    first, second = liked_examples(write_prepared(tmp_path, change))

    assert first.question.startswith("2 October")
    assert days_of(first.history) == ["2 September"]
    assert second.question.startswith("4 October")
    assert days_of(second.recent) == ["2 October"]


def first_action_of_history(folder: Path, record: dict[str, Any]) -> Any:
    """Return a record as the history of a user has it. The record is the oldest one."""
    path = write_user(folder, [record, MORNING_RUN])
    return actions_in(OmniBehavior.load(path).examples[0].history)[0]


def test_a_record_of_the_history_has_questions_to_practise_with(tmp_path: Path) -> None:
    """The first question about a record is an open one; the others are answered with yes or no."""
    action = first_action_of_history(tmp_path, video("2025-09-03 10:00:00"))

    yes_or_no_questions = [
        question.english for field, question in QUESTIONS.items() if field.startswith("video")
    ]
    assert action.questions == (OPEN["video_watch_seconds"].english, *yes_or_no_questions)


def test_a_record_that_says_too_little_has_no_questions(tmp_path: Path) -> None:
    """The caption of a video is blank, so nobody could say how a user reacts to it."""
    wordless = {**video("2025-09-02 10:00:00", "like"), "context": {"caption": " "}}
    assert first_action_of_history(tmp_path, wordless).questions == ()


def test_a_record_without_yes_or_no_fields_freezes_the_memory(tmp_path: Path) -> None:
    """A search has nothing to answer with yes or no, so it makes no question.

    The history ends before the search all the same. The next question, about the video of
    2 October, has the search among its recent records.
    """
    search = {**video("2025-10-01 10:00:00"), "type": "Search Behavior"}
    records = [video("2025-09-01 10:00:00"), search, video("2025-10-02 10:00:00")]

    example = OmniBehavior.load(write_user(tmp_path, records)).examples[0]

    assert example.question.startswith("2 October")
    assert days_of(example.history) == ["1 September"]
    assert days_of(example.recent) == ["1 October"]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("Video Browsing", "title: Run; length: 34 s; likes: 210; weather: rain"),
        ("视频浏览", "标题: Run；时长: 34秒；点赞: 210；weather: rain"),
    ],
)
def test_a_situation_is_told_in_the_language_of_its_record(scene: str, expected: str) -> None:
    """The type of the record shows its language. Both types mean that a video was watched."""
    context = {"caption": "Run", "duration": "34秒", "like_cnt": 210, "weather": "rain"}
    assert situation({"type": scene, "context": context}) == expected


def test_a_situation_has_no_ids_and_no_line_breaks() -> None:
    context = {"caption": "Morning\n run", "photo_id": "x9"}
    assert situation({"type": "Video Browsing", "context": context}) == "title: Morning run"


@pytest.mark.parametrize(
    ("scene", "expected"),
    [("Video Browsing", "watched 12 s; liked"), ("视频浏览", "观看12秒；点赞")],
)
def test_a_reaction_is_told_in_the_language_of_its_record(scene: str, expected: str) -> None:
    """The type of the record shows its language. Both types mean that a video was watched."""
    actions = [{"type": "watch", "play_duration": 12}, {"type": "like"}]
    assert reaction({"type": scene, "action": actions}) == expected


@pytest.mark.parametrize(
    ("scene", "expected"), [("Advertisement", "no reaction"), ("广告推荐", "无互动")]
)
def test_no_reaction_is_told_in_the_language_of_its_record(scene: str, expected: str) -> None:
    assert reaction({"type": scene, "action": None}) == expected


def test_a_long_field_is_cut() -> None:
    record = {**MORNING_RUN, "context": {"asr": "w" * (2 * MAX_FIELD_CHARS)}}
    assert situation(record) == "words said: " + "w" * MAX_FIELD_CHARS


def test_what_was_searched_is_no_part_of_the_situation() -> None:
    """The reaction is the search, so its keyword would tell the reaction. It is hidden."""
    search = {"type": "Search Behavior", "context": {"keyword": "lamp", "query_category": "home"}}

    searched = {**search, "action": [{"type": "search", "keyword": "lamp"}]}
    assert situation(searched) == "category: home"

    not_searched = {**search, "action": []}
    assert "lamp" in situation(not_searched)


@pytest.mark.parametrize(
    ("scene", "action", "words"),
    [
        (
            "Video Browsing",
            {"type": "watch", "play_duration": 40, "completed": True},
            "watched 40 s",
        ),
        ("Video Browsing", {"type": "watch", "watch_seconds": 60}, "no reaction"),
        ("Advertisement", {"type": "watch", "watch_seconds": 9}, "watched 9 s"),
        ("Live Streaming", {"type": "click_cart", "is_click_cart_action": 1}, "opened the shop"),
        ("Live Streaming", {"type": "cart", "is_add_to_cart": 1}, "no reaction"),
        ("Search Behavior", {"type": "search", "keyword": "lamp"}, "searched (lamp)"),
    ],
)
def test_the_words_for_a_reaction_agree_with_the_right_answers_to_its_questions(
    scene: str, action: dict[str, Any], words: str
) -> None:
    """The released code reads the right answers from certain fields of a record.

    The words say what these fields say, and no more. In a live stream, for instance, the reaction
    `click_cart` counts as opening the shop, and `cart` as nothing.
    """
    record = {"type": scene, "context": {"duration": 60}, "action": [action]}
    assert reaction(record) == words


def test_a_record_carries_questions_in_its_own_language() -> None:
    """The record is of shopping, in Chinese ("商城购物")."""
    assert questions_of({"type": "商城购物"})[0] == QUESTIONS["shop_added_to_cart"].chinese


def test_only_a_live_stream_of_a_shop_is_asked_about_its_cart() -> None:
    stream = {"type": "Live Streaming", "context": {"live_title": "x"}, "action": []}
    shop_stream = {**stream, "context": {"is_shop_live": "true"}}
    assert "live_clicked_cart" not in fields_of(stream)
    assert "live_clicked_cart" in fields_of(shop_stream)


def scored_row(gold: str, answer: str) -> SimpleNamespace:
    """Return an answer as the metrics read it."""
    return SimpleNamespace(
        id=f"{gold} {answer}",
        category="video_liked",
        gold=gold,
        answer=answer,
        parts={},
        failure=None,
    )


def test_answers_that_cannot_be_read_are_left_out_as_published_and_wrong_in_our_figures() -> None:
    """The published accuracy is over the answers Yes and No. Both are right here, so it is 1.

    Beside it stands a figure of ours, in which the two other answers count as wrong.
    """
    rows: Any = [
        scored_row(gold="Yes", answer="Yes"),
        scored_row(gold="Yes", answer="hard to tell"),
        scored_row(gold="No", answer="No"),
        scored_row(gold="No", answer="perhaps"),
    ]

    figures = FieldAccuracy().aggregate(rows)

    assert figures["failed parses"] == 2
    assert figures["Overall ACC"] == 1.0
    assert figures["Overall F1"] == 1.0
    assert figures["Overall ACC, failed parses wrong"] == 0.5
    assert figures["Overall F1, failed parses wrong"] == 0.5
