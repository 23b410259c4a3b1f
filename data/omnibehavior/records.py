"""Read one record of OmniBehavior: its scene, what is asked about it, and what the user did.

Names of scenes are read in Chinese and in English, in any letter case. Fields, labels and filters
are as in the released code of PraMem and OmniBehavior (`tests/conformance/omnibehavior_*.jsonl`).
The wording of the questions is ours.

Example:
    >>> from mempiler.data.omnibehavior.records import gold
    >>> gold({"type": "E-commerce", "action": [{"type": "cart"}, {"type": "purchase", "paid": 1}]})
    {'shop_added_to_cart': False, 'shop_order_success': True}

Limits: watch seconds, search words and the next message to customer service (`OPEN`) are asked in
practice only, and not scored. Flags are read by their meaning: "false" and "0" are not set. In the
released code any text sets a flag.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RawRecord = Mapping[str, Any]
"""A record as the file has it: an object with `type`, `timestamp`, `context` and `action`."""
Reaction = Mapping[str, Any]
"""One entry of a record's `action`: an object with a `type`, e.g. "like", and details."""
FieldValue = bool | float | str
"""The true value of a field: yes or no, seconds, or words of the user."""


class Wording(NamedTuple):
    """One text in both languages of the data."""

    english: str
    chinese: str

    def in_language(self, chinese: bool) -> str:
        """Return the Chinese text, or else the English one."""
        return self.chinese if chinese else self.english


def read_wordings(file_name: str, part: str) -> dict[str, Wording]:
    """Return one part of a JSON file of this folder: a pair of texts for every name."""
    content = Path(__file__).with_name(file_name).read_text(encoding="utf-8")
    return {name: Wording(*texts) for name, texts in json.loads(content)[part].items()}


SCENES: Mapping[str, Wording] = {
    "video": Wording("Video Browsing", "视频浏览"),
    "live": Wording("Live Streaming", "直播间"),
    "ad": Wording("Advertisement", "广告推荐"),
    "shop": Wording("E-commerce", "商城购物"),
    "service": Wording("Customer Service", "电商客服对话"),
    "search": Wording("Search Behavior", "搜索行为"),
}
"""The names that a record's `type` has in each scene."""

TABLE_NAMES: Mapping[str, str] = {
    "video": "Video",
    "live": "Live",
    "ad": "Ads",
    "shop": "E-commerce",
}
"""The four scenes that are asked, as PraMem's Table 1 calls them."""

QUESTIONS: Mapping[str, Wording] = read_wordings("questions.json", "scored")
"""The yes-or-no fields, and how each is asked. The part before the first `_` is the scene."""
OPEN: Mapping[str, Wording] = read_wordings("questions.json", "open")
"""The fields that are no yes-or-no questions, and how each is asked."""

_REACTION_TYPES: Mapping[str, str] = {
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
"""The type of reaction that makes a field true, by the part of its name after the scene."""

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "cart": ("is_add_to_cart",),
    "click_cart": ("is_click_cart_action",),
    "purchase": ("order_success", "is_pay", "paid"),
    "unfollow": ("is_unfollow_action",),
}
"""Flags of which one must be set for a reaction of a type to have taken place."""

_COUNTERS: Mapping[str, str] = {
    "activation": "activation_cnt",
    "submit": "form_submit_total_cnt",
}
"""The counter that must be above 0 for a reaction of a type to have taken place."""

_HIGH_VALUE_REACTIONS: Mapping[str, frozenset[str]] = {
    "video": frozenset({"like", "collect", "share", "comment"}),
    "live": frozenset({"send_gift", "add_to_cart", "follow"}),
    "shop": frozenset({"purchase", "order_success", "add_to_cart"}),
    "ad": frozenset({"conversion", "activation", "purchase", "submit", "click"}),
    "service": frozenset({"purchase", "positive_feedback"}),
}
"""The types of reactions, by scene, that make a record one of high value."""

_DESCRIPTIONS: Mapping[str, tuple[str, ...]] = {
    "video": ("caption", "ocr", "asr"),
    "live": ("live_title", "live_category"),
}
"""Fields of a context, by scene, of which one must hold words for the record to say enough."""

_PLATFORM_MARKS = ("评价", "会话转移")
"""Words of a rating or a handover, which the platform writes in the user's name."""
_MIN_MESSAGE_CHARS = 3
_COUNTERS_OF_UNSEEN_LIVE = {"live_comment_cnt": 0, "live_like_cnt": 0}
"""The whole context of a live stream that the user did not see."""


def scene_of(name: Any) -> str | None:
    """Return the scene of a record's `type`, e.g. "video" for 视频浏览; None if it is unknown."""
    normalized_name = " ".join(str(name or "").lower().split())
    for scene, names in SCENES.items():
        if normalized_name in (names.english.lower(), names.chinese):
            return scene
    return None


def scene_of_field(field: str) -> str:
    """Return the scene that a field belongs to, e.g. "video" for "video_liked"."""
    return field.partition("_")[0]


def is_chinese(name: Any) -> bool:
    """Return whether the name of a scene is Chinese; its record is then put into Chinese words."""
    return any("\u4e00" <= char <= "\u9fff" for char in str(name or ""))


def context_of(record: RawRecord) -> Mapping[str, Any]:
    """Return what a record says of its situation; nothing where that is no object."""
    context = record.get("context")
    return context if isinstance(context, Mapping) else {}


def reactions(record: RawRecord) -> list[Reaction]:
    """Return the reactions of a record that have a type."""
    value = record.get("action")
    entries: Sequence[Any] = value if isinstance(value, list) else [value]
    typed_entries: list[Reaction] = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("type"), str):
            typed_entries.append(entry)
    return typed_entries


def number(value: Any) -> float | None:
    """Return the number that 194, "194" or "194秒" means; None for anything else."""
    text_or_number = value.replace("秒", "") if isinstance(value, str) else value
    try:
        result = float(text_or_number)
    except (TypeError, ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def truth(value: Any) -> bool:
    """Return whether a flag is set: it is true, a number beside 0, or a text that means either."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "是") or bool(number(value))
    return bool(value)


def fields_of(record: RawRecord) -> tuple[str, ...]:
    """Return the yes-or-no fields that are asked about a record."""
    scene = scene_of(record.get("type"))
    sells_products = truth(context_of(record).get("is_shop_live"))
    fields: list[str] = []
    for field in QUESTIONS:
        if scene_of_field(field) != scene:
            continue
        # Only live streams that sell products have a cart.
        if field == "live_clicked_cart" and not sells_products:
            continue
        fields.append(field)
    return tuple(fields)


def questions_of(record: RawRecord) -> tuple[str, ...]:
    """Return everything that practice asks about a record, in the record's language."""
    chinese = is_chinese(record.get("type"))
    wordings = {**OPEN, **QUESTIONS}
    return tuple(wordings[field].in_language(chinese) for field in gold(record))


def gold(record: RawRecord) -> dict[str, FieldValue]:
    """Return the true value of every field of a record, in the order in which they are asked."""
    record_reactions = reactions(record)
    values = _open_field_value(record, record_reactions)
    for field in fields_of(record):
        values[field] = _is_yes(field, record, record_reactions)
    return values


def _open_field_value(
    record: RawRecord, record_reactions: Sequence[Reaction]
) -> dict[str, FieldValue]:
    """Return the field of a record that is no yes-or-no question, with its value.

    A scene has at most one such field, and a record may lack it. So the dictionary has one entry,
    e.g. `{"video_watch_seconds": 12.5}`, or none.
    """
    scene = scene_of(record.get("type"))
    if scene in ("video", "live", "ad"):
        watch = _first_of_type("watch", record_reactions)
        seconds = None if watch is None else watch_seconds(scene, watch)
        if seconds is None:
            # An advertisement may come without a watch, and is then not asked about. A video or a
            # live stream without one was watched for 0 seconds.
            if scene == "ad":
                return {}
            seconds = 0.0
        return {f"{scene}_watch_seconds": seconds}

    if scene == "search":
        for reaction in record_reactions:
            if reaction["type"] == "search" and reaction.get("keyword"):
                return {"search_keyword": str(reaction["keyword"])}
        return {}

    if scene == "service":
        message = last_user_message(record_reactions)
        return {"next_user_message": message} if message else {}
    return {}


def _is_yes(field: str, record: RawRecord, record_reactions: Sequence[Reaction]) -> bool:
    """Return the true value of a yes-or-no field."""
    name = field.removeprefix(f"{scene_of_field(field)}_")
    if name == "completed":
        watch = _first_of_type("watch", record_reactions)
        return watch is not None and _was_watched_to_the_end(watch, context_of(record))

    expected_type = _REACTION_TYPES[name]
    for reaction in record_reactions:
        if reaction["type"] == expected_type and took_place(reaction):
            return True
    return False


def _first_of_type(reaction_type: str, record_reactions: Sequence[Reaction]) -> Reaction | None:
    """Return the first reaction of a type; None if there is none."""
    for reaction in record_reactions:
        if reaction["type"] == reaction_type:
            return reaction
    return None


def _was_watched_to_the_end(watch: Reaction, context: Mapping[str, Any]) -> bool:
    """Return whether a video was watched to its end, by the flag or else by the seconds."""
    if "is_complete_play" in watch:
        return truth(watch["is_complete_play"])
    watched_seconds = watch_seconds("video", watch)
    video_seconds = number(context.get("duration"))
    if watched_seconds is None or video_seconds is None:
        return False
    return 0 < video_seconds <= watched_seconds


def took_place(reaction: Reaction) -> bool:
    """Return whether a reaction took place, by its counter or its flags where it has such."""
    reaction_type = reaction["type"]
    if reaction_type in _COUNTERS:
        count = number(reaction.get(_COUNTERS[reaction_type]))
        return count is not None and count > 0
    if reaction_type in _FLAGS:
        return any(truth(reaction.get(flag)) for flag in _FLAGS[reaction_type])
    return True


def watch_seconds(scene: str | None, watch: Reaction) -> float | None:
    """Return how many seconds a watch took; None if no field that the scene has says so."""
    names = ["play_duration"]
    if scene == "ad":
        names.insert(0, "watch_seconds")
    for name in names:
        if watch.get(name) is not None:
            return number(watch[name])
    return None


def last_user_message(record_reactions: Sequence[Reaction]) -> str | None:
    """Return the last message to customer service that a user wrote; None if there is none.

    Ratings and handovers, and messages of one or two characters, do not count. Of several
    dialogues it is the first one with a message that counts.
    """
    for reaction in record_reactions:
        messages = reaction.get("content")
        if reaction["type"] != "dialogue" or not isinstance(messages, list):
            continue
        for message in reversed(messages):
            if not isinstance(message, dict) or message.get("role") != "user":
                continue
            text = message.get("content")
            if isinstance(text, str) and _is_own_message(text.strip()):
                return text.strip()
    return None


def _is_own_message(text: str) -> bool:
    """Return whether a user wrote a message that is long enough to be asked."""
    if len(text) < _MIN_MESSAGE_CHARS:
        return False
    return not any(mark in text for mark in _PLATFORM_MARKS)


def was_seen(record: RawRecord) -> bool:
    """Return whether the user saw what a record is about.

    It was not seen if it was never shown, or if any of the watches took 0 seconds. Source:
    `should_filter_action` of the released code.
    """
    scene = scene_of(record.get("type"))
    context = context_of(record)
    if scene == "ad" and _is_zero(context.get("show_cnt")):
        return False
    if scene == "live" and context == _COUNTERS_OF_UNSEEN_LIVE:
        return False

    for reaction in reactions(record):
        if reaction["type"] != "watch":
            continue
        # The released code reads texts such as "0s" in the first field, but not in the second.
        if number(reaction.get("play_duration")) == 0 or _is_zero(reaction.get("watch_seconds")):
            return False
    return True


def _is_zero(value: Any) -> bool:
    """Return whether a value is the number 0; a text is no number here."""
    return isinstance(value, int | float) and value == 0


def says_enough(record: RawRecord) -> bool:
    """Return whether a record says enough of its situation to predict what the user does in it."""
    scene = scene_of(record.get("type"))
    if scene is None or scene not in _DESCRIPTIONS:
        return True
    context = context_of(record)
    return any(str(context.get(name) or "").strip() for name in _DESCRIPTIONS[scene])


def is_informative(record: RawRecord) -> bool:
    """Return whether a record can be asked about and practised on."""
    return was_seen(record) and says_enough(record)


def is_high_value(record: RawRecord) -> bool:
    """Return whether the user did something that the draw of questions favours.

    The types of the reactions decide, whatever their flags and counters say.
    """
    scene = scene_of(record.get("type"))
    if scene is None:
        return False
    high_value_types = _HIGH_VALUE_REACTIONS.get(scene, frozenset())
    return any(reaction["type"] in high_value_types for reaction in reactions(record))
