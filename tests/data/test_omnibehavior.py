"""OmniBehavior: both forms, periods and their edges, questions, scores, and the bundled sample."""

import copy
import json
from datetime import datetime

import pytest
from mempiler import Behavior
from mempiler.data.check import check
from mempiler.data.omnibehavior.benchmark import OmniBehavior
from mempiler.data.omnibehavior.periods import Periods, seed_offset
from mempiler.data.omnibehavior.records import QUESTIONS
from mempiler.errors import DataError

VIDEO = {
    "type": "Video Browsing",
    "timestamp": "2025-10-02 20:15:00",
    "context": {"like_cnt": 210, "caption": "Morning\n run", "duration": "34秒", "photo_id": "x9", "weather": "rain"},
    "action": [{"type": "watch", "play_duration": 12}, {"type": "like"}],
}


def video(time, *reactions, **context):
    return {
        "type": "Video Browsing",
        "timestamp": time,
        "context": {"caption": f"At {time}", **context},
        "action": [{"type": kind} for kind in reactions],
    }


def raw(tmp_path, rows, user="u1", name="user.json"):
    path = tmp_path / name
    path.write_text(json.dumps({user: {"user_profile": "Lives in Xiamen.", "action_history": rows}}), encoding="utf-8")
    return path


def actions(items):
    return [action for item in items if isinstance(item, Behavior) for action in item.actions]


EDGES = [
    "2025-08-31 23:00:00",
    "2025-09-01 00:00:00",
    "2025-09-29 10:00:00",
    "2025-09-30 08:00:00",
    "2025-10-01 09:00:00",
    "2025-11-29 23:59:59",
    "2025-11-30 00:00:00",
    "2025-12-01 00:00:00",
]


def test_the_edge_can_be_set_when_loading(tmp_path):
    path = raw(tmp_path, [video(time) for time in EDGES])
    released, whole = OmniBehavior.load(path), OmniBehavior.load(path, last_day=True)
    assert len({example.question for example in whole.examples}) - len(
        {example.question for example in released.examples}
    ) == len([field for field in QUESTIONS if field.startswith("video")])
    moved = OmniBehavior.load(path, history="2025-08-01..2025-09-02", test="2025-09-03..2025-09-30")
    assert {action.time for action in actions(moved.examples[0].history)} == {
        datetime(2025, 8, 31, 23),
        datetime(2025, 9, 1),
    }


def test_memory_is_frozen_at_the_first_asked_record(tmp_path):
    rows = [video(f"2025-09-{day:02} 10:00:00") for day in range(1, 6)]
    rows += [video("2025-10-01 10:00:00", caption="")]
    rows += [video(f"2025-10-{day:02} 10:00:00", "like") for day in range(2, 5)]
    examples = OmniBehavior.load(raw(tmp_path, rows), categories="video_liked").examples
    assert len({id(example.history) for example in examples}) == 1
    # The video without words comes before the first asked record: history, not recent.
    assert len(actions(examples[0].history)) == 6
    assert [len(actions(example.recent)) for example in examples] == [0, 1, 2]
    assert [example.answer for example in examples] == ["Yes"] * 3
    assert [example.id for example in examples] == ["u1:7:video_liked", "u1:8:video_liked", "u1:9:video_liked"]


def test_a_question_tells_nothing_of_the_reaction(tmp_path):
    done = [{"type": "watch", "play_duration": 12}, {"type": "comment", "comment_detail_list": ["so true"]}]
    path = raw(tmp_path, [video("2025-09-02 10:00:00"), {**VIDEO, "action": done}])
    for example in OmniBehavior.load(path).examples:
        assert "12" not in example.question.replace("2025", "")
        assert "so true" not in example.question
        assert example.question.startswith("2 October 2025, Thursday 20:15; Video Browsing; title: Morning run;")
        assert example.question.endswith(QUESTIONS[example.category][0])


def test_a_draw_is_spread_over_time_and_scenes_and_is_the_users_own():
    rows = []
    for n in range(200):
        liked = ("like",) if n % 3 == 0 else ()
        row = video(f"2025-10-{n // 10 + 1:02} {n % 10 + 10}:00:00", *liked)
        shop = {"type": "E-commerce", "context": {"item_title": "bag"}, "action": []}
        rows.append(row if n % 2 else {**row, **shop})
    periods = Periods()
    drawn = periods.draw("u1", rows)
    assert len(drawn) == 30
    assert drawn == sorted(set(drawn)) == periods.draw("u1", rows)
    assert drawn != periods.draw("u2", rows)
    assert [len([place for place in drawn if place // 20 == bucket]) for bucket in range(10)] == [3] * 10
    chosen = [rows[place] for place in drawn]
    assert 10 <= sum(row["type"] == "E-commerce" for row in chosen) <= 20


PREPARED = {
    "metadata": {},
    "users": [
        {
            "user_id": "p1",
            "user_profile": "",
            "base_history": [video("2025-09-01 10:00:00")],
            "test_time_all_actions": [video(f"2025-10-0{n} 10:00:00", *["like"][n != 4 :]) for n in range(1, 6)],
            "test_actions": [{"action": video("2025-10-04 10:00:00", "like"), "test_time_index": 3},
                             {"action": video("2025-10-02 10:00:00"), "test_time_index": 1}],
        }
    ],
}  # fmt: skip


def prepared(tmp_path, change=lambda user: None):
    value = copy.deepcopy(PREPARED)
    change(value["users"][0])
    path = tmp_path / "experiment_data.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_prepared_file_says_itself_what_is_asked(tmp_path):
    examples = OmniBehavior.load(prepared(tmp_path), categories="video_liked").examples
    assert [(example.id, example.answer) for example in examples] == [
        ("p1:3:video_liked", "No"),
        ("p1:5:video_liked", "Yes"),
    ]
    assert [action.id for action in actions(examples[0].history)] == ["p1:1", "p1:2"]
    assert [action.id for action in actions(examples[1].recent)] == ["p1:3", "p1:4"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda user: user["test_actions"].append({"test_time_index": 9}), "test_time_index 9"),
        (lambda user: user.pop("base_history"), "field 'base_history': is missing"),
        (lambda user: user["base_history"].append({"timestamp": "noon"}), "field 'timestamp': 'noon' is not like"),
    ],
)
def test_a_broken_prepared_file_is_one_line(tmp_path, change, message):
    with pytest.raises(DataError, match=message) as raised:
        OmniBehavior.load(prepared(tmp_path, change))
    assert "\n" not in str(raised.value)


def test_a_check_goes_on_and_tells_what_differs(tmp_path):
    def change(user):
        user["test_time_all_actions"][0]["type"] = "Walking"
        user["test_actions"].append({"test_time_index": 9})

    report = check("omnibehavior", prepared(tmp_path, change))
    assert report.kinds == {"dangling test action": 1, "unknown scene": 1}
    assert report.counts["questions"] == 12


def test_a_folder_may_hold_language_folders_and_a_user_counts_once(tmp_path):
    folder = tmp_path / "raw_user_data" / "en"
    folder.mkdir(parents=True)
    rows = [video("2025-09-02 10:00:00"), video("2025-10-02 10:00:00")]
    raw(folder, rows, "u1", "a.json")
    raw(folder, rows, "u2", "b.json")
    (folder / "seed_offsets.json").write_text("{}", encoding="utf-8")
    assert {example.history.id for example in OmniBehavior.load(tmp_path).examples} == {"u1", "u2"}
    raw(folder, rows, "u1", "c.json")
    with pytest.raises(DataError, match="user u1: is in the data twice"):
        OmniBehavior.load(tmp_path)


UNSEEN = [
    {**VIDEO, "action": [{"type": "watch", "play_duration": 0}]},
    {**VIDEO, "type": "Advertisement", "context": {"show_cnt": 0}},
    {**VIDEO, "type": "Live Streaming", "context": {"live_comment_cnt": 0, "live_like_cnt": 0}},
]


@pytest.mark.parametrize("row", UNSEEN, ids=["no second", "never shown", "empty stream"])
@pytest.mark.parametrize("form", ["raw", "prepared"])
def test_what_was_never_seen_is_in_no_history_and_in_no_question(tmp_path, row, form):
    kept = [video("2025-09-02 10:00:00"), video("2025-10-02 10:00:00"), video("2025-10-04 10:00:00")]
    unseen = [
        {**row, "timestamp": time} for time in ("2025-09-03 09:00:00", "2025-10-01 09:00:00", kept[2]["timestamp"])
    ]
    if form == "raw":
        path = raw(tmp_path, [*kept, *unseen])
    else:
        asked = [{"action": one, "test_time_index": n} for n, one in ((1, kept[1]), (2, unseen[2]), (3, kept[2]))]
        path = prepared(
            tmp_path,
            lambda user: user.update(
                base_history=[kept[0], unseen[0]],
                test_time_all_actions=[unseen[1], kept[1], unseen[2], kept[2]],
                test_actions=asked,
            ),
        )
    examples = OmniBehavior.load(path, categories="video_liked").examples
    assert [len(actions(example.history)) + len(actions(example.recent)) for example in examples] == [1, 2]
    assert [example.question[:9] for example in examples] == ["2 October", "4 October"]


def test_a_record_that_says_too_little_is_history_without_questions(tmp_path):
    bare = {**video("2025-09-02 10:00:00", "like"), "context": {"caption": " "}}
    examples = OmniBehavior.load(raw(tmp_path, [bare, video("2025-09-03 10:00:00"), VIDEO])).examples
    asked = [action.questions for action in actions(examples[0].history)]
    assert asked[0] == ()
    assert asked[1][1:] == tuple(QUESTIONS[field][0] for field in QUESTIONS if field.startswith("video"))


def test_a_record_without_yes_or_no_fields_may_be_drawn_and_freezes_the_memory(tmp_path):
    rows = [video(f"2025-09-0{n} 10:00:00") for n in (1, 2)]
    search = {**video("2025-10-01 10:00:00"), "type": "Search Behavior"}
    examples = OmniBehavior.load(raw(tmp_path, [*rows, search, VIDEO])).examples
    assert len(actions(examples[0].history)) == 2
    assert len(actions(examples[0].recent)) == 1
    with pytest.raises(DataError, match="holds no examples"):
        OmniBehavior.load(raw(tmp_path, [*rows, search], name="none.json"))


def test_seed_offsets_beside_the_files_make_the_draw(tmp_path):
    rows = [video(f"2025-10-{n // 4 + 1:02} {n % 4 + 10}:00:00") for n in range(80)]
    folder = tmp_path / "raw_user_data" / "en"
    folder.mkdir(parents=True)
    path = raw(folder, rows)

    def asked():
        return [example.id for example in OmniBehavior.load(path, test_actions=5, categories="video_liked").examples]

    own = asked()
    offsets = folder.parent / "seed_offsets.json"
    offsets.write_text(json.dumps({"u1": seed_offset("u1")}), encoding="utf-8")
    assert asked() == own
    offsets.write_text('{"u1": 7}', encoding="utf-8")
    assert asked() != own
    assert asked() == [f"u1:{n + 1}:video_liked" for n in Periods(test_actions=5, offsets={"u1": 7}).draw("u1", rows)]
    offsets.write_text('{"u1": "7"}', encoding="utf-8")
    with pytest.raises(DataError, match="whole number"):
        asked()
