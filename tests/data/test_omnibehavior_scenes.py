"""OmniBehavior's records: scenes, reactions, what is asked of them, and how they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.omnibehavior.scenes import fields_of, is_informative, number, reacted, scene_of
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
        ("直播间", "live"),
        ("商城购物", "shop"),
        ("广告推荐", "ad"),
        ("电商客服对话", "service"),
        ("SEARCH BEHAVIOR", "search"),
        ("walking", None),
        (None, None),
    ],
)
def test_scenes_are_known_by_both_names(name, scene):
    assert scene_of(name) == scene


@pytest.mark.parametrize(
    ("field", "kind", "context", "done", "expected"),
    [
        ("video_completed", "video", {}, [{"type": "watch", "is_complete_play": 1}], True),
        ("video_completed", "video", {"duration": 30}, [{"type": "watch", "play_duration": "30秒"}], True),
        ("video_completed", "video", {"duration": 30}, [{"type": "watch", "play_duration": 29}], False),
        ("video_completed", "video", {"duration": 30}, [{"type": "watch", "play_duration": 60, "completed": 0}], False),
        ("video_liked", "video", {}, [{"type": "LIKE"}], True),
        ("video_liked", "video", {}, [{"type": "dislike"}], False),
        ("live_sent_gift", "live", {}, [{"type": "send_gift"}], True),
        ("live_clicked_cart", "live", {"is_shop_live": 1}, [{"type": "cart"}], True),
        ("ad_activated", "ad", {}, [{"type": "activation", "activation_cnt": 0}], False),
        ("ad_activated", "ad", {}, [{"type": "activation", "activation_cnt": "2"}], True),
        ("ad_form_submitted", "ad", {}, [{"type": "submit", "form_submit_total_cnt": 1}], True),
        ("shop_added_to_cart", "shop", {}, [{"type": "cart", "is_add_to_cart": 0}], False),
        ("shop_order_success", "shop", {}, [{"type": "purchase", "is_pay": 0, "order_success": True}], True),
        ("shop_order_success", "shop", {}, [{"type": "purchase"}], True),
        ("shop_order_success", "shop", {}, [], False),
    ],
)
def test_a_field_is_yes_where_its_reaction_took_place(field, kind, context, done, expected):
    names = {"video": "Video Browsing", "live": "Live Streaming", "ad": "Advertisement", "shop": "E-commerce"}
    assert reacted(field, {"type": names[kind], "context": context, "action": done}) is expected


def test_the_cart_of_a_stream_is_asked_only_where_it_sells():
    stream = {"type": "Live Streaming", "context": {"live_title": "x"}, "action": []}
    assert "live_clicked_cart" not in fields_of(stream)
    assert "live_clicked_cart" in fields_of({**stream, "context": {"is_shop_live": "true"}})
    assert fields_of({"type": "Search Behavior"}) == ()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (VIDEO, True),
        ({**VIDEO, "context": {"duration": 3}}, False),
        ({**VIDEO, "context": {"asr": "hello"}}, True),
        ({**VIDEO, "action": [{"type": "watch", "play_duration": 0}]}, False),
        ({"type": "Live Streaming", "context": {"is_shop_live": 1}, "action": []}, False),
        ({"type": "Live Streaming", "context": {"live_category": "food"}, "action": []}, True),
        ({"type": "Advertisement", "context": {"show_cnt": 0}, "action": []}, False),
        ({"type": "Advertisement", "context": {"show_cnt": 3}, "action": []}, True),
        ({"type": "Customer Service", "context": {}, "action": []}, False),
    ],
)
def test_records_that_say_too_little_are_not_asked(row, expected):
    assert is_informative(row) is expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_any_context_and_any_action_can_be_read(value):
    for record in ({**VIDEO, "context": {"caption": value, "zz": value}}, {**VIDEO, "action": value}):
        assert "\n" not in situation(record) + reaction(record).replace("\n", "")
        assert isinstance(is_informative(record), bool)
        assert all(isinstance(reacted(field, record), bool) for field in fields_of(record))


@pytest.mark.parametrize(("value", "expected"), [(194, 194), ("194秒", 194), ("1.5", 1.5), (None, None), ("x", None)])
def test_numbers_may_have_a_unit(value, expected):
    assert number(value) == expected
