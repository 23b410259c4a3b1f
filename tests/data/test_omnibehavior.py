"""Benchmarks of behaviour: what is history, recent and asked, the draw, how records read, and scores."""

import copy
import random
import zipfile
from datetime import datetime
from types import SimpleNamespace

import pytest
from mempiler import Behavior, DataError, Profile
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.movielens import RATINGS, MovieLens
from mempiler.data.omnibehavior.benchmark import FieldAccuracy, OmniBehavior
from mempiler.data.omnibehavior.periods import Periods
from mempiler.data.omnibehavior.records import OPEN, QUESTIONS, fields_of, questions_of
from mempiler.data.omnibehavior.text import MAX_FIELD_CHARS, reaction, situation
from mempiler.records import Failure, estimate_tokens

from ..runs.evaluations import row
from .forms import PREPARED, video, write

VIDEO = {
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
VIDEO_FIELDS = [field for field in QUESTIONS if field.startswith("video")]


def raw(folder, rows, user="u1", name="user.json"):
    return write(
        folder, {name: {user: {"user_profile": "Lives in Xiamen.", "action_history": rows}}}
    )


def prepared(folder, change=lambda user: None):
    files = copy.deepcopy(PREPARED)
    change(files["experiment_data.json"]["users"][0])
    return write(folder, files)


def liked(path, **options):
    return benchmark("omnibehavior", path, categories="video_liked", **options).examples


def actions(items):
    return [action for item in items if isinstance(item, Behavior) for action in item.actions]


def test_memory_is_frozen_at_the_first_asked_record_and_the_last_day_belongs_to_no_period(tmp_path):
    rows = [
        video(f"{day} 10:00:00") for day in ("2025-08-31", "2025-09-01", "2025-09-29", "2025-09-30")
    ]
    rows += [video("2025-10-01 10:00:00", caption="")]
    rows += [video(f"2025-10-{day:02} 10:00:00", "like") for day in range(2, 5)] + [
        video("2025-11-30 00:00:00")
    ]
    examples = liked(raw(tmp_path, rows))
    assert len({id(example.history) for example in examples}) == 1
    # The video without words comes before the first asked record: history, not recent.
    times = [action.time for action in actions(examples[0].history)]
    assert times == [datetime(2025, 9, 1, 10), datetime(2025, 9, 29, 10), datetime(2025, 10, 1, 10)]
    assert [len(actions(example.recent)) for example in examples] == [0, 1, 2]
    assert [example.answer for example in examples] == ["Yes"] * 3
    assert [example.id for example in examples] == [
        "u1:4:video_liked",
        "u1:5:video_liked",
        "u1:6:video_liked",
    ]


def test_a_question_tells_nothing_of_the_reaction(tmp_path):
    done = [
        {"type": "watch", "play_duration": 12},
        {"type": "comment", "comment_detail_list": ["so true"]},
    ]
    path = raw(tmp_path, [video("2025-09-02 10:00:00"), {**VIDEO, "action": done}])
    for example in OmniBehavior.load(path).examples:
        assert "12" not in example.question.replace("2025", "")
        assert "so true" not in example.question
        assert example.question.startswith(
            "2 October 2025, Thursday 20:15; Video Browsing; title: Morning run;"
        )
        assert example.question.endswith(QUESTIONS[example.category][0])


def test_seed_offsets_beside_the_files_make_the_draw(tmp_path):
    rows = [video(f"2025-10-{n // 4 + 1:02} {n % 4 + 10}:00:00") for n in range(80)]
    path = raw(tmp_path, rows, name="raw_user_data/en/user.json")
    write(tmp_path, {"raw_user_data/seed_offsets.json": {"u1": 7}})
    drawn = Periods(test_actions=5, offsets={"u1": 7}).draw("u1", rows)
    asked = [example.id for example in liked(path, test_actions=5)]
    assert asked == [f"u1:{n + 1}:video_liked" for n in drawn]
    write(tmp_path, {"raw_user_data/seed_offsets.json": {"u1": "7"}})
    with pytest.raises(DataError, match="whole number"):
        liked(path)


def test_users_are_drawn_from_those_with_enough_to_ask_and_a_history_may_be_the_newest_records(
    tmp_path,
):
    enough = [video(f"2025-10-0{n} 10:00:00") for n in (1, 2)]
    for n in range(1, 8):
        raw(
            tmp_path,
            [video("2025-09-01 10:00:00"), video("2025-09-02 10:00:00"), *enough],
            f"u{n}",
            f"{n}.json",
        )
    raw(tmp_path, enough, "no history", "8.json")
    raw(tmp_path, [video("2025-09-01 10:00:00"), enough[0]], "one to ask", "9.json")

    def taken(**options):
        examples = liked(tmp_path, test_actions=2, **options)
        return list(dict.fromkeys(example.history.id for example in examples)), examples[0].history

    assert len(taken()[0]) == 9
    assert taken(users=7)[0] == [f"u{n}" for n in range(1, 8)]
    drawn, history = taken(users=3)
    assert drawn == sorted(random.Random(42).sample([f"u{n}" for n in range(1, 8)], 3))
    tokens = [estimate_tokens(line) + 1 for item in history for line in item.lines()][-2:]
    for room, kept in ((sum(tokens), 2), (sum(tokens) - 1, 1), (tokens[-1], 1)):
        found = actions(taken(users=3, history_tokens=room)[1])
        assert [action.time.day for action in found] == [1, 2][-kept:]


def test_a_check_goes_on_and_a_test_action_that_is_no_place_is_refused(tmp_path):
    def change(user):
        user["test_time_all_actions"][0]["type"] = "Walking"
        user["test_actions"].append({"test_time_index": 9})

    report = check("omnibehavior", path := prepared(tmp_path, change))
    assert report.kinds == {"dangling test action": 1, "unknown scene": 1}
    assert report.counts["questions"] == 12
    with pytest.raises(DataError, match="test_time_index 9"):
        OmniBehavior.load(path)


def test_a_user_counts_once(tmp_path):
    rows = [video("2025-09-02 10:00:00"), video("2025-10-02 10:00:00")]
    for file in ("a", "b"):
        raw(tmp_path, rows, "u1", f"raw_user_data/en/{file}.json")
    with pytest.raises(DataError, match="user u1: is in the data twice"):
        OmniBehavior.load(tmp_path)


def test_records_that_nobody_saw_are_in_no_history_and_in_no_question(tmp_path):
    kept = [
        video("2025-09-02 10:00:00"),
        video("2025-10-02 10:00:00"),
        video("2025-10-04 10:00:00"),
    ]
    done = [{"type": "watch", "play_duration": 0}]
    unseen = [
        {**VIDEO, "timestamp": f"2025-{day} 09:00:00", "action": done}
        for day in ("09-03", "10-01", "10-04")
    ]
    changed = {
        "base_history": [kept[0], unseen[0]],
        "test_time_all_actions": [unseen[1], kept[1], unseen[2], kept[2]],
        "test_actions": [{"test_time_index": n} for n in (1, 2, 3)],
    }
    for path in (
        raw(tmp_path, [*kept, *unseen]),
        prepared(tmp_path, lambda user: user.update(changed)),
    ):
        examples = liked(path)
        assert [
            len(actions(example.history)) + len(actions(example.recent)) for example in examples
        ] == [1, 2]
        assert [example.question[:9] for example in examples] == ["2 October", "4 October"]


def test_a_record_that_says_too_little_is_history_without_questions(tmp_path):
    bare = {**video("2025-09-02 10:00:00", "like"), "context": {"caption": " "}}
    examples = OmniBehavior.load(
        raw(tmp_path, [bare, video("2025-09-03 10:00:00"), VIDEO])
    ).examples
    asked = [action.questions for action in actions(examples[0].history)]
    assert asked[0] == ()
    assert asked[1][1:] == tuple(QUESTIONS[field][0] for field in VIDEO_FIELDS)


def test_a_record_without_yes_or_no_fields_may_be_drawn_and_freezes_the_memory(tmp_path):
    rows = [video(f"2025-09-0{n} 10:00:00") for n in (1, 2)]
    search = {**video("2025-10-01 10:00:00"), "type": "Search Behavior"}
    examples = OmniBehavior.load(raw(tmp_path, [*rows, search, VIDEO])).examples
    assert len(actions(examples[0].history)) == 2
    assert len(actions(examples[0].recent)) == 1
    with pytest.raises(DataError, match="holds no examples"):
        OmniBehavior.load(raw(tmp_path, [*rows, search], name="none.json"))


def test_a_record_reads_in_its_own_language_and_a_long_field_is_cut():
    assert situation(VIDEO) == "title: Morning run; length: 34 s; likes: 210; weather: rain"
    chinese = {**VIDEO, "type": "视频浏览"}
    assert situation(chinese) == "标题: Morning run；时长: 34秒；点赞: 210；weather: rain"
    assert reaction(VIDEO) == "watched 12 s; liked"
    assert reaction(chinese) == "观看12秒；点赞"
    assert (
        situation({**VIDEO, "context": {"asr": "w" * 2 * MAX_FIELD_CHARS}})
        == "words said: " + "w" * MAX_FIELD_CHARS
    )
    assert reaction({"type": "广告推荐", "action": None}) == "无互动"
    search = {"type": "Search Behavior", "context": {"keyword": "lamp", "query_category": "home"}}
    assert (
        situation({**search, "action": [{"type": "search", "keyword": "lamp"}]}) == "category: home"
    )
    assert "lamp" in situation({**search, "action": []})


@pytest.mark.parametrize(
    ("kind", "done", "words"),
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
def test_a_reaction_says_what_its_label_says(kind, done, words):
    assert reaction({"type": kind, "context": {"duration": 60}, "action": [done]}) == words


def test_a_record_carries_the_questions_of_its_scene_in_its_language():
    assert questions_of(VIDEO) == (
        OPEN["video_watch_seconds"][0],
        *(QUESTIONS[field][0] for field in fields_of(VIDEO)),
    )
    assert questions_of({"type": "商城购物"})[0] == QUESTIONS["shop_added_to_cart"][1]
    stream = {"type": "Live Streaming", "context": {"live_title": "x"}, "action": []}
    assert "live_clicked_cart" not in fields_of(stream)
    assert "live_clicked_cart" in fields_of({**stream, "context": {"is_shop_live": "true"}})


def test_failed_parses_are_left_out_as_published_and_wrong_in_figures_beside_it():
    said = [("Yes", "Yes"), ("Yes", "hard to tell"), ("No", "No"), ("No", "perhaps")]
    rows = [
        SimpleNamespace(
            id=str(n), category="video_liked", gold=gold, answer=answer, parts={}, failure=None
        )
        for n, (gold, answer) in enumerate(said)
    ]
    found = FieldAccuracy().aggregate(rows)
    assert found["Overall ACC"] == 1.0
    assert found["Overall F1"] == 1.0
    assert found["failed parses"] == 2
    strict = {name: value for name, value in found.items() if name.endswith("failed parses wrong")}
    assert strict == {
        "Overall ACC, failed parses wrong": 0.5,
        "Overall F1, failed parses wrong": 0.5,
    }


USERS = "1::F::25::20::48067\n2::M::56::1::55117-1234\n"
MOVIES = (
    "1::Amélie: Le Film (2001)::Comedy|Romance\n2::Odd::Title (1999)::Drama\n3::No Year::Western\n"
)


@pytest.fixture
def folder(tmp_path):
    """Ten ratings of user 1, one a second, written newest first; user 2 has three."""
    ratings = [f"1::{n % 3 + 1}::{n % 5 + 1}::{978300760 + n}" for n in range(10)][::-1]
    ratings += [f"2::{n}::5::{978300000 + n}" for n in (1, 2, 3)]
    (tmp_path / "ratings.dat").write_text("\n".join(ratings) + "\n", encoding="latin-1")
    (tmp_path / "users.dat").write_text(USERS, encoding="latin-1")
    (tmp_path / "movies.dat").write_text(MOVIES, encoding="latin-1")
    return tmp_path


def load(path, **options):
    return MovieLens.load(path, **{"min_ratings": 4, "questions": 3, **options})


def test_the_newest_ratings_are_asked_memory_is_frozen_at_the_first_and_what_follows_is_recent(
    folder,
):
    first, second, third = load(folder).examples
    assert [(each.id, each.answer) for each in (first, second, third)] == [
        ("u1:8", "3"),
        ("u1:9", "4"),
        ("u1:10", "5"),
    ]
    times = [action.time for action in actions(first.history)]
    assert times == [datetime(2000, 12, 31, 22, 12, 40 + n) for n in range(7)]
    assert first.history is second.history is third.history
    recent = [
        [action.id for action in actions(example.recent)] for example in (first, second, third)
    ]
    assert recent == [[], ["u1:8"], ["u1:8", "u1:9"]]
    assert set(first.inputs().keys()) == {
        "history",
        "recent",
        "question",
        "options",
        "evidence_ids",
    }
    assert second.options == list(RATINGS)


def test_no_question_tells_its_rating_and_every_record_before_does_after_the_profile_in_words(
    folder,
):
    example = load(folder).examples[0]
    assert "rated" not in example.question
    assert '"Odd::Title" (1999), Drama' in example.question
    assert "31 December 2000, Sunday 22:12" in example.question
    assert all(
        action.action in {f"rated {n}" for n in RATINGS} for action in actions(example.history)
    )
    assert '"Amélie: Le Film" (2001), Comedy, Romance' in {
        a.situation for a in actions(example.history)
    }
    profile = example.history.items[0]
    assert isinstance(profile, Profile)
    assert profile.turns[0].text == "gender: female; age: 25 to 34; occupation: writer"


def test_zip_and_folder_read_the_same_and_a_missing_file_is_named(folder, tmp_path):
    archive = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in ("ratings.dat", "users.dat", "movies.dat"):
            made.write(folder / name, f"ml-1m/{name}")
    read = [load(path) for path in (folder, archive)]
    assert len({tuple(example.question for example in found.examples) for found in read}) == 1
    assert read[0].source.sha256 != read[1].source.sha256
    archive.write_bytes(archive.read_bytes()[:200])
    (folder / "movies.dat").unlink()
    problems = {
        archive: "cannot be read",
        folder: r"holds no movies\.dat",
        tmp_path / "x": "no such file",
    }
    for path, problem in problems.items():
        with pytest.raises(DataError, match=problem):
            load(path)


def test_the_draw_of_users_is_seeded_and_counts(folder):
    rows = [f"{user}::1::3::{n}" for user in range(1, 9) for n in range(6)]
    (folder / "ratings.dat").write_text("\n".join(rows), encoding="latin-1")
    drawn = [
        {example.history.id for example in load(folder, users=3, seed=seed).examples}
        for seed in (0, 0, 1)
    ]
    assert [len(users) for users in drawn] == [3, 3, 3]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({example.history.id for example in load(folder, users=None).examples}) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [("1::1::6::978300760\n", "rating '6' is not 1 to 5"), ("", "no user has more than 4 ratings")],
)
def test_a_broken_file_is_one_line_that_names_its_place(folder, text, message):
    (folder / "ratings.dat").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=f"ratings.dat.*{message}"):
        load(folder)


def test_a_check_tells_of_all_that_is_odd(folder):
    with (folder / "ratings.dat").open("a", encoding="latin-1") as file:
        file.write("1::77::3::978300761\n9::1::4::5\n1::1::0::5\n1::1::5\n")
    kinds = ("unknown movie", "unknown user", "malformed rating", "malformed row")
    report = check("movielens", folder)
    assert report.kinds.items() >= dict.fromkeys(kinds, 1).items()
    assert not report.ok


def test_unknown_users_are_reported_in_the_order_of_their_ratings(folder):
    users = ("80", "9", "70", "8", "60", "7")
    with (folder / "ratings.dat").open("a", encoding="latin-1") as file:
        file.writelines(f"{user}::1::4::{n}\n" for n, user in enumerate(users))
    told = [row.where for row in check("movielens", folder).findings if row.kind == "unknown user"]
    assert told == [f"user {user}" for user in users]


def test_the_metrics_are_over_all_answers_that_name_a_rating(folder):
    failed = Failure(kind="endpoint", where="x", message="dead")
    said = [("5", "5", None), ("5", "rated 4", None), ("1", "who knows", None), ("1", "", failed)]
    rows = [
        row(f"{n}", 0.0, gold=gold, answer=answer, failure=found)
        for n, (gold, answer, found) in enumerate(said)
    ]
    # Of the five classes only "5" is ever right: F1 2*1/(2+1); its gold went to "5" and "4" alike.
    assert load(folder).scorer.aggregate(rows) == pytest.approx(
        {"accuracy": 1 / 2, "macro-F1": (2 / 3) / 5, "diagonal dominance": 0.0, "failed parses": 1}
    )
