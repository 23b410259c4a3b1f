"""OmniBehavior's scenes, and the questions that are asked of each.

    record {"type": "Video Browsing", "timestamp", "context": {...}, "action": [{"type": "like"}, ...]}
    scene  video | live | ad | shop | service | search       field  e.g. video_liked: a question with Yes or No

Names of scenes are read in Chinese and in English, in any letter case. The names of the fields are those of the
released code of PraMem and OmniBehavior, the wording of the questions is ours. What the answers are: `labels`.

Limits: watch seconds, search words and the next message to customer service (`OPEN`) are no yes-or-no questions: they
belong to what practice asks, and are not scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

OPEN: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "video_watch_seconds": (
            "For how many seconds does the user watch this video?",
            "该用户会观看这个视频多少秒？",
        ),
        "live_watch_seconds": (
            "For how many seconds does the user watch this live stream?",
            "该用户会观看这场直播多少秒？",
        ),
        "ad_watch_seconds": (
            "For how many seconds does the user watch this advertisement?",
            "该用户会观看这条广告多少秒？",
        ),
        "search_keyword": ("What does the user search for?", "该用户会搜索什么？"),
        "next_user_message": ("What does the user write to customer service next?", "该用户接下来会对客服说什么？"),
    }
)
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
