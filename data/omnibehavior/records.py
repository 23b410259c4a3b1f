"""What a record of OmniBehavior holds: its scene, what is asked of it, what the user did, and whether it counts.

Scenes are read in Chinese and in English, in any letter case. Fields, labels and filters are as in the released code of
PraMem and OmniBehavior (`tests/conformance/omnibehavior_*.jsonl`), the wording of the questions is ours.

Example:
    >>> from mempiler.data.omnibehavior.records import gold
    >>> gold({"type": "E-commerce", "action": [{"type": "cart"}, {"type": "purchase", "paid": 1}]})
    {'shop_added_to_cart': False, 'shop_order_success': True}

Limits: watch seconds, search words and the next message to customer service (`OPEN`) belong to what practice asks, and
are not scored. Flags are read as what they say: "false" and "0" are not set (any text is, in the released code).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

SCENES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "video": ("Video Browsing", "视频浏览"),
        "live": ("Live Streaming", "直播间"),
        "ad": ("Advertisement", "广告推荐"),
        "shop": ("E-commerce", "商城购物"),
        "service": ("Customer Service", "电商客服对话"),
        "search": ("Search Behavior", "搜索行为"),
    }
)
"""The scenes, each with its English and its Chinese name."""

TABLE_NAMES: Mapping[str, str] = MappingProxyType({"video": "Video", "live": "Live", "ad": "Ads", "shop": "E-commerce"})
"""The four scenes that are asked, as PraMem's Table 1 calls them."""

_ASKED = json.loads(Path(__file__).with_name("questions.json").read_text(encoding="utf-8"))
QUESTIONS: Mapping[str, Sequence[str]] = _ASKED["scored"]
"""The yes-or-no fields, each asked in English and in Chinese. The part before the first `_` is the scene."""
OPEN: Mapping[str, Sequence[str]] = _ASKED["open"]
"""The fields that are no yes-or-no questions."""

_KNOWN = {name.lower(): scene for scene, names in SCENES.items() for name in names}


def scene_of(name: Any) -> str | None:
    """The scene of a record's `type`, e.g. "video" for 视频浏览; None for a name that is not known."""
    return _KNOWN.get(" ".join(str(name or "").lower().split()))


def is_chinese(name: Any) -> bool:
    """Whether a scene's name is the Chinese one: its record is rendered in Chinese then."""
    return any("\u4e00" <= char <= "\u9fff" for char in str(name or ""))


def context_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a record tells of its situation; empty where that is no object."""
    context = record.get("context")
    return context if isinstance(context, Mapping) else {}


def fields_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The yes-or-no fields that are asked of a record; the cart of a live stream only where the stream sells."""
    scene, sells = scene_of(record.get("type")), truth(context_of(record).get("is_shop_live"))
    fields = (field for field in QUESTIONS if field.partition("_")[0] == scene)
    return tuple(field for field in fields if field != "live_clicked_cart" or sells)


def number(value: Any) -> float | None:
    """The number of 194, "194" or "194秒"; None for anything else."""
    try:
        found = float(value.replace("秒", "") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def truth(value: Any) -> bool:
    """Whether a flag is set: true, a number that is not 0, or a text that says so."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "是") or bool(number(value))
    return bool(value)


Value = bool | float | str

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "liked": "like",
        "commented": "comment",
        "shared": "share",
        "collected": "collect",
        "followed": "follow",
        "sent_gift": "send_gift",
        "clicked_cart": "click_cart",
        "activated": "activation",
        "form_submitted": "submit",
        "added_to_cart": "cart",
        "order_success": "purchase",
    }
)
_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cart": ("is_add_to_cart",),
        "click_cart": ("is_click_cart_action",),
        "purchase": ("order_success", "is_pay", "paid"),
        "unfollow": ("is_unfollow_action",),
    }
)
"""One of these must be set for the reaction to have taken place."""
_COUNTERS: Mapping[str, str] = MappingProxyType({"activation": "activation_cnt", "submit": "form_submit_total_cnt"})
"""This must be above 0."""
_NOT_SAID = ("评价", "会话转移")
"""A message with one of these is a rating or a handover, which the platform writes in the user's name."""


def gold(record: Mapping[str, Any]) -> dict[str, Value]:
    """The value of every field that is asked of a record, in the order in which they are asked."""
    done = reactions(record)
    return {**_open(record, done), **{field: _yes(field, record, done) for field in fields_of(record)}}


def questions_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What is asked of a record, in words of its language."""
    chinese, known = is_chinese(record.get("type")), {**OPEN, **QUESTIONS}
    return tuple(known[field][chinese] for field in gold(record))


def reactions(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The reactions of a record that have a type."""
    found = record.get("action")
    rows: Sequence[Any] = found if isinstance(found, list) else [found]
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("type"), str)]


def took_place(action: Mapping[str, Any]) -> bool:
    """Whether a reaction that is named took place, by its flags or its counter where it has such."""
    kind = action["type"]
    if kind in _COUNTERS:
        return (number(action.get(_COUNTERS[kind])) or 0) > 0
    return kind not in _FLAGS or any(truth(action.get(name)) for name in _FLAGS[kind])


def watch_seconds(scene: str | None, action: Mapping[str, Any]) -> float | None:
    """How long a watch took, in seconds; None if it is not told where the labels of the scene read it."""
    names = ("watch_seconds", "play_duration") if scene == "ad" else ("play_duration",)
    return next((number(action[name]) for name in names if action.get(name) is not None), None)


def _open(record: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    scene = scene_of(record.get("type"))
    if scene in ("video", "live", "ad"):
        watches = [action for action in done if action["type"] == "watch"]
        seconds = watch_seconds(scene, watches[0]) if watches else None
        # Advertisements may come without a watch; of the others one of no second is taken.
        return {} if scene == "ad" and seconds is None else {f"{scene}_watch_seconds": seconds or 0.0}
    if scene == "search":
        words = [action["keyword"] for action in done if action["type"] == "search" and action.get("keyword")]
        return {"search_keyword": str(words[0])} if words else {}
    message = last_user_message(done) if scene == "service" else None
    return {"next_user_message": message} if message else {}


def last_user_message(done: Sequence[Mapping[str, Any]]) -> str | None:
    """The last message of the user to customer service that is their own and more than two letters."""
    for action in done:
        content = action.get("content") if action["type"] == "dialogue" else None
        for row in reversed(content if isinstance(content, list) else []):
            said = row.get("content") if isinstance(row, dict) and row.get("role") == "user" else None
            if isinstance(said, str) and len(said.strip()) > 2 and not any(word in said for word in _NOT_SAID):
                return said.strip()
    return None


def _yes(field: str, record: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> bool:
    kind = field.partition("_")[2]
    if kind == "completed":
        watch = next((action for action in done if action["type"] == "watch"), None)
        return watch is not None and _completed(watch, context_of(record))
    return any(action["type"] == _KINDS[kind] and took_place(action) for action in done)


def _completed(watch: Mapping[str, Any], context: Mapping[str, Any]) -> bool:
    if "is_complete_play" in watch:
        return truth(watch["is_complete_play"])
    watched, whole = watch_seconds("video", watch), number(context.get("duration"))
    return watched is not None and whole is not None and 0 < whole <= watched


_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"video": ("caption", "ocr", "asr"), "live": ("live_title", "live_category")}
)
_LIVE_COUNTERS = {"live_comment_cnt": 0, "live_like_cnt": 0}
_HIGH_VALUE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "video": frozenset({"like", "collect", "share", "comment"}),
        "live": frozenset({"send_gift", "add_to_cart", "follow"}),
        "shop": frozenset({"purchase", "order_success", "add_to_cart"}),
        "ad": frozenset({"conversion", "activation", "purchase", "submit", "click"}),
        "service": frozenset({"purchase", "positive_feedback"}),
    }
)


def was_seen(record: Mapping[str, Any]) -> bool:
    """Whether the user saw anything of what a record tells of."""
    scene, context = scene_of(record.get("type")), context_of(record)
    if scene == "ad" and _is_zero(context.get("show_cnt")):
        return False
    if scene == "live" and context == _LIVE_COUNTERS:
        return False
    watches = [action for action in reactions(record) if action["type"] == "watch"]
    return not any(number(one.get("play_duration")) == 0 or _is_zero(one.get("watch_seconds")) for one in watches)


def says_enough(record: Mapping[str, Any]) -> bool:
    """Whether a record tells enough of its situation to predict what the user does in it."""
    context, names = context_of(record), _WORDS.get(str(scene_of(record.get("type"))), ())
    return not names or any(str(context.get(name) or "").strip() for name in names)


def is_informative(record: Mapping[str, Any]) -> bool:
    """Whether a record can be asked about and practised on."""
    return was_seen(record) and says_enough(record)


def is_high_value(record: Mapping[str, Any]) -> bool:
    """Whether the user did something that the draw favours; flags are not looked at."""
    wanted = _HIGH_VALUE.get(str(scene_of(record.get("type"))), frozenset())
    return any(action["type"] in wanted for action in reactions(record))


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0
