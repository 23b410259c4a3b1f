"""OmniBehavior's records as text: the situation, and apart from it the reaction, in Chinese or in English.

What is empty is left out. The order of the fields and their names are ours; the released renderer's are not described.
Long texts are cut at `DETAIL` characters, as released.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .records import gold, is_chinese, last_user_message, number, reactions, scene_of, took_place, truth, watch_seconds

DETAIL = 10_000
"""Most characters of one field."""

_WORDS = json.loads(Path(__file__).with_name("labels.json").read_text(encoding="utf-8"))
_LABELS: Mapping[str, Sequence[str]] = _WORDS["context"]
"""English and Chinese names of the context's fields, in the order of the text."""
_REACTIONS: Mapping[str, Sequence[str]] = _WORDS["reactions"]
_NOTHING = ("no reaction", "无互动")
_UNTOLD = frozenset({("live", "cart")})
"""Reactions that the released code does not tell: in a live stream `click_cart` is the one that counts."""
_HIDDEN = frozenset({"user_id", "photo_id", "author_id", "item_id", "live_id"})


def situation(record: Mapping[str, Any]) -> str:
    """What the user saw, on one line, without the reaction."""
    chinese, context = is_chinese(record.get("type")), record.get("context") or {}
    order = [*(name for name in _LABELS if name in context), *(name for name in context if name not in _LABELS)]
    # The words of a search are what the user did.
    hidden = _HIDDEN | {"keyword"} if "search_keyword" in gold(record) else _HIDDEN
    shown = ((name, _value(name, context[name], chinese)) for name in order if name not in hidden)
    parts = [
        f"{_LABELS.get(name, (name, name))[chinese]}: {' '.join(text[:DETAIL].split())}" for name, text in shown if text
    ]
    return ("；" if chinese else "; ").join(parts)


def reaction(record: Mapping[str, Any]) -> str:
    """What the user did, on one line; "no reaction" where the record names none that took place."""
    chinese = is_chinese(record.get("type"))
    parts = list(dict.fromkeys(_reactions(record, chinese)))
    return ("；" if chinese else "; ").join(parts) if parts else _NOTHING[chinese]


def _reactions(record: Mapping[str, Any], chinese: bool) -> Iterator[str]:
    """What took place, by the rules of the gold labels: practice must not teach what evaluation calls wrong."""
    scene, completed = scene_of(record.get("type")), gold(record).get("video_completed")
    for action in reactions(record):
        kind = str(action["type"])
        if kind == "watch":
            if seconds := watch_seconds(scene, action):
                yield f"观看{seconds:g}秒" if chinese else f"watched {seconds:g} s"
            if completed:
                yield "看完" if chinese else "watched to the end"
            completed = False
        elif took_place(action) and (scene, kind) not in _UNTOLD:
            words, said = _REACTIONS.get(kind, (kind, kind))[chinese], _said(kind, action)
            yield f"{words} ({_flat(said)})" if said else words


def _said(kind: str, action: Mapping[str, Any]) -> Any:
    return (
        last_user_message([action])
        if kind == "dialogue"
        else action.get("keyword") or action.get("comment_detail_list")
    )


def _value(name: str, value: Any, chinese: bool) -> str:
    if value is None or value == "" or value == []:
        return ""
    if name in ("is_shop_live", "is_verified"):
        return ("yes", "是")[chinese] if truth(value) else ""
    if name == "duration" and (seconds := number(value)) is not None:
        return f"{seconds:g}{'秒' if chinese else ' s'}"
    return _flat(value)


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(text for part in value.values() if (text := _flat(part)))
    if isinstance(value, list):
        return ", ".join(text for part in value if (text := _flat(part)))
    return "" if value is None else str(value)
