"""OmniBehavior's records: scenes, reactions, what is asked of them, and how they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.omnibehavior.records import (
    OPEN,
    QUESTIONS,
    fields_of,
    gold,
    is_high_value,
    is_informative,
    number,
    questions_of,
    scene_of,
)
from mempiler.data.omnibehavior.text import reaction, situation

VIDEO = {
    "type": "Video Browsing",
    "timestamp": "2025-10-02 20:15:00",
    "context": {"like_cnt": 210, "caption": "Morning\n run", "duration": "34秒", "photo_id": "x9", "weather": "rain"},
    "action": [{"type": "watch", "play_duration": 12}, {"type": "like"}],
}


def test_a_record_reads_in_its_own_language():
    assert situation(VIDEO) == "title: Morning run; length: 34 s; likes: 210; weather: rain"
    assert reaction(VIDEO) == "watched 12 s; liked"
    chinese = {**VIDEO, "type": "视频浏览"}
    assert situation(chinese) == "标题: Morning run；时长: 34秒；点赞: 210；weather: rain"
    assert reaction(chinese) == "观看12秒；点赞"


def test_long_fields_are_cut_and_an_empty_reaction_is_said():
    assert situation({**VIDEO, "context": {"asr": "word " * 50}}, detail=12) == "words said: word word wo"
    assert reaction({"type": "Advertisement", "action": []}) == "no reaction"
    assert reaction({"type": "广告推荐", "action": None}) == "无互动"


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("Video Browsing", "video"),
        ("video  browsing", "video"),
        ("电商客服对话", "service"),
        ("SEARCH BEHAVIOR", "search"),
        ("walking", None),
        (None, None),
    ],
)
def test_scenes_are_known_by_both_names(name, scene):
    assert scene_of(name) == scene


@pytest.mark.parametrize(
    ("kind", "done", "words"),
    [
        ("Video Browsing", {"type": "watch", "play_duration": 40, "completed": True}, "watched 40 s"),
        ("Video Browsing", {"type": "watch", "play_duration": 60}, "watched 60 s; watched to the end"),
        ("Video Browsing", {"type": "watch", "watch_seconds": 60}, "no reaction"),
        ("Advertisement", {"type": "watch", "watch_seconds": 9}, "watched 9 s"),
        ("Live Streaming", {"type": "follow"}, "followed"),
        ("Live Streaming", {"type": "click_cart", "is_click_cart_action": 1}, "opened the shop"),
        ("Live Streaming", {"type": "cart", "is_add_to_cart": 1}, "no reaction"),
        ("E-commerce", {"type": "purchase", "paid": True}, "bought"),
        ("Search Behavior", {"type": "search", "keyword": "lamp"}, "searched (lamp)"),
        ("Customer Service", {"type": "dialogue", "content": [{"role": "user", "content": "where is it?"}]},
         "wrote (where is it?)"),
    ],
)  # fmt: skip
def test_a_reaction_says_what_its_label_says(kind, done, words):
    assert reaction({"type": kind, "context": {"duration": 60}, "action": [done]}) == words


def test_the_words_of_a_search_are_its_reaction_and_not_its_situation():
    search = {"type": "Search Behavior", "context": {"keyword": "lamp", "query_category": "home"}}
    assert situation({**search, "action": [{"type": "search", "keyword": "lamp"}]}) == "category: home"
    assert "lamp" in situation({**search, "action": []})


def test_a_record_carries_the_questions_of_its_scene_in_its_language():
    assert questions_of(VIDEO) == (OPEN["video_watch_seconds"][0], *(QUESTIONS[field][0] for field in fields_of(VIDEO)))
    assert questions_of({"type": "商城购物"})[0] == QUESTIONS["shop_added_to_cart"][1]
    assert questions_of({"type": "Search Behavior"}) == ()


def test_the_cart_of_a_stream_is_asked_only_where_it_sells():
    stream = {"type": "Live Streaming", "context": {"live_title": "x"}, "action": []}
    assert "live_clicked_cart" not in fields_of(stream)
    assert "live_clicked_cart" in fields_of({**stream, "context": {"is_shop_live": "true"}})
    assert fields_of({"type": "Search Behavior"}) == ()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_any_context_and_any_action_can_be_read(value):
    for record in ({**VIDEO, "context": {"caption": value, "zz": value}}, {**VIDEO, "action": value}):
        assert "\n" not in situation(record) + reaction(record).replace("\n", "")
        assert isinstance(is_informative(record) and is_high_value(record), bool)
        assert all(isinstance(gold(record)[field], bool) for field in fields_of(record))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(194, 194), ("194秒", 194), ("1.5", 1.5), (None, None), ("x", None), ("60s", None), ("nan", None)],
)
def test_numbers_may_have_a_unit(value, expected):
    assert number(value) == expected
