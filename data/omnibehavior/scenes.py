"""What OmniBehavior's records are: scenes, reactions, and the questions that are asked of each scene.

    record {"type": "Video Browsing", "timestamp", "context": {...}, "action": [{"type": "like"}, ...]}
    scene  video | live | ad | shop | service | search       field  e.g. video_liked: a question with Yes or No

Names of scenes are read in Chinese and in English, in any letter case. A reaction that a record does not name did not
take place (so the released code says). Source: PraMem and OmniBehavior's released code, as described in their
repositories; the wording of the questions is ours.

Example:
    >>> from mempiler.data.omnibehavior.scenes import reacted
    >>> reacted("video_liked", {"type": "Video Browsing", "action": [{"type": "like"}]})
    True

Limits: watch seconds, search words and the next message to customer service are no yes-or-no questions and are
not asked; the scenes service and search are history only. The names of actions are those of the English files, taken
for the Chinese ones too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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

QUESTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "video_completed": ("Does the user watch this video to its end?", "该用户会看完这个视频吗？"),
        "video_liked": ("Does the user like this video?", "该用户会点赞这个视频吗？"),
        "video_commented": ("Does the user comment on this video?", "该用户会评论这个视频吗？"),
        "video_shared": ("Does the user share this video?", "该用户会分享这个视频吗？"),
        "video_collected": ("Does the user save this video as a favourite?", "该用户会收藏这个视频吗？"),
        "video_followed": ("Does the user follow the author of this video?", "该用户会关注这个视频的作者吗？"),
        "live_liked": ("Does the user like this live stream?", "该用户会给这场直播点赞吗？"),
        "live_commented": ("Does the user comment in this live stream?", "该用户会在这场直播里评论吗？"),
        "live_sent_gift": ("Does the user send a gift in this live stream?", "该用户会在这场直播里送礼物吗？"),
        "live_followed": ("Does the user follow the host of this live stream?", "该用户会关注这场直播的主播吗？"),
        "live_shared": ("Does the user share this live stream?", "该用户会分享这场直播吗？"),
        "live_clicked_cart": ("Does the user open the shop of this live stream?", "该用户会点开这场直播的购物车吗？"),
        "ad_liked": ("Does the user like this advertisement?", "该用户会点赞这条广告吗？"),
        "ad_commented": ("Does the user comment on this advertisement?", "该用户会评论这条广告吗？"),
        "ad_activated": ("Does the user activate what is advertised?", "该用户会激活广告中的产品吗？"),
        "ad_form_submitted": ("Does the user submit the form of this advertisement?", "该用户会提交这条广告的表单吗？"),
        "shop_added_to_cart": ("Does the user put this product into the cart?", "该用户会把这件商品加入购物车吗？"),
        "shop_order_success": ("Does the user buy this product?", "该用户会成功下单这件商品吗？"),
    }
)
"""The yes-or-no fields, each asked in English and in Chinese. The part before the first `_` is the scene."""

_REACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "liked": "like",
        "commented": "comment",
        "shared": "share",
        "collected": "collect",
        "followed": "follow",
        "sent_gift": "send_gift",
        "clicked_cart": "cart",
        "activated": "activation",
        "form_submitted": "submit",
        "added_to_cart": "cart",
        "order_success": "purchase",
    }
)
_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cart": ("is_add_to_cart",),
        "purchase": ("order_success", "is_pay", "paid"),
        "activation": ("activation_cnt",),
        "submit": ("form_submit_total_cnt",),
    }
)
"""What must not be zero if the reaction holds it."""
_KNOWN = {name.lower(): scene for scene, names in SCENES.items() for name in names}
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


def scene_of(name: Any) -> str | None:
    """The scene of a record's `type`, e.g. "video" for 视频浏览; None for a name that is not known."""
    return _KNOWN.get(" ".join(str(name or "").lower().split()))


def is_chinese(name: Any) -> bool:
    """Whether a scene's name is the Chinese one: its record is rendered in Chinese then."""
    return any("\u4e00" <= char <= "\u9fff" for char in str(name or ""))


def fields_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that are asked of a record; the cart of a live stream only where the stream sells."""
    scene, context = scene_of(record.get("type")), record.get("context") or {}
    fields = (field for field in QUESTIONS if field.partition("_")[0] == scene)
    return tuple(field for field in fields if field != "live_clicked_cart" or truth(context.get("is_shop_live")))


def reacted(field: str, record: Mapping[str, Any]) -> bool:
    """Whether the user's reaction means yes for a field."""
    kind = field.partition("_")[2]
    done = reactions(record)
    if kind == "completed":
        return any(_completed(action, record.get("context") or {}) for action in done if action["type"] == "watch")
    wanted = _REACTIONS[kind]
    return any(action["type"] == wanted and took_place(action) for action in done)


def reactions(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reactions of a record that have a type, the type in lower case."""
    found = record.get("action")
    rows: Sequence[Any] = found if isinstance(found, list) else [found]
    return [{**row, "type": str(row["type"]).lower()} for row in rows if isinstance(row, dict) and row.get("type")]


def took_place(action: Mapping[str, Any]) -> bool:
    """Whether a reaction took place: any of its flags is set, or it has none."""
    told = [action[name] for name in _FLAGS.get(str(action["type"]), ()) if name in action]
    return not told or any(truth(value) for value in told)


def is_informative(record: Mapping[str, Any]) -> bool:
    """Whether a record can be asked about, by the filter of the released code.

    A video needs a caption or words shown or said in it, a live stream a title or category; advertisements that were
    never shown and watches of no second are left out.
    """
    scene, context = scene_of(record.get("type")), record.get("context") or {}
    if scene == "video" and not any(context.get(name) for name in ("caption", "ocr", "asr", "ocr_text", "asr_text")):
        return False
    if scene == "live" and not (context.get("live_title") or context.get("live_category")):
        return False
    if scene == "ad" and "show_cnt" in context and number(context["show_cnt"]) == 0:
        return False
    watched = [watch_seconds(action) for action in reactions(record) if action["type"] == "watch"]
    return not any(seconds == 0 for seconds in watched) and scene in TABLE_NAMES


def watch_seconds(action: Mapping[str, Any]) -> float | None:
    """How long was watched, in seconds; None if unknown."""
    for name in ("play_duration", "watch_seconds"):
        if name in action:
            return number(action[name])
    return None


def number(value: Any) -> float | None:
    """The number of 194, "194" or "194秒"; None without one."""
    match = _SECONDS.search(str(value if value is not None else ""))
    return float(match[0]) if match else None


def truth(value: Any) -> bool:
    """Whether a flag is set: true, a number above 0, or a text that says so."""
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "是") or (number(value) or 0) > 0
    return bool(value)


def _completed(action: Mapping[str, Any], context: Mapping[str, Any]) -> bool:
    for name in ("is_complete_play", "completed"):
        if name in action:
            return truth(action[name])
    watched, whole = watch_seconds(action), number(context.get("duration"))
    return watched is not None and whole is not None and 0 < whole <= watched
