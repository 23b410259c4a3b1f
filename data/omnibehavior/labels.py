"""What the user did, as OmniBehavior's gold labels have it: the value of every field that is asked of a record.

    {"type": "Video Browsing", "action": [{"type": "watch", "play_duration": 12}, {"type": "like"}], ...}
    ──> {"video_watch_seconds": 12.0, "video_completed": False, "video_liked": True, "video_commented": False, ...}

Field by field as in the released code of PraMem and OmniBehavior (`tests/conformance/omnibehavior_labels.jsonl`):
names of reactions are read in small letters alone; most take place by being named, those of `_FLAGS` only where a flag
of theirs is set; of several watches the first counts; a video without a flag is completed if `play_duration` reaches
its length. A question whose answer the record does not hold is not asked (a search without words).

Example:
    >>> from mempiler.data.omnibehavior.labels import gold
    >>> gold({"type": "E-commerce", "action": [{"type": "cart"}, {"type": "purchase", "paid": 1}]})
    {'shop_added_to_cart': False, 'shop_order_success': True}

Limits: flags are read as what they say: "false" and "0" are not set (any text is, in the released code), and a counter
may be a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .scenes import OPEN, QUESTIONS, context_of, fields_of, is_chinese, number, scene_of, truth

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
_REVIEW = "评价"
"""A message with this word rates the service: it is not asked for."""


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
    message = next_message(done) if scene == "service" else None
    return {"next_user_message": message} if message else {}


def next_message(done: Sequence[Mapping[str, Any]]) -> str | None:
    """The last message of the user to customer service that is more than two letters and no rating."""
    for action in done:
        content = action.get("content") if action["type"] == "dialogue" else None
        for row in reversed(content if isinstance(content, list) else []):
            said = row.get("content") if isinstance(row, dict) and row.get("role") == "user" else None
            if isinstance(said, str) and len(said.strip()) > 2 and _REVIEW not in said:
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
