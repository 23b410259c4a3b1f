"""Which records of OmniBehavior count: what was never seen is dropped, what says too little is no question.

    was_seen        no watch of no second, no advertisement that was never shown, no live stream of two empty counters:
                    such records are in no history, in no practice and in no question
    says_enough     a video with a caption or words shown or said, a live stream with a title or a category:
                    others are history, and neither practised nor asked
    is_high_value   the reactions that the draw of test records favours

As in the released code (`tests/conformance/omnibehavior_filter.jsonl`), by its names of reactions. Its practice looks
for a video's words under other names than its preparation of data; here both go by the names of the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .labels import reactions
from .scenes import context_of, number, scene_of

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
    """Whether a value is the number 0; a text is none."""
    return isinstance(value, (int, float)) and value == 0
