"""Put a record of OmniBehavior into words: the situation, and apart from it the reaction.

A record is put into the language of its scene's name, Chinese or English. Empty fields are left
out. The names and the order of the fields are ours, since the released renderer's are not
described. A long field is cut at `MAX_FIELD_CHARS` characters, as released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .records import (
    RawRecord,
    Reaction,
    Wording,
    context_of,
    gold,
    is_chinese,
    last_user_message,
    number,
    reactions,
    read_wordings,
    scene_of,
    took_place,
    truth,
    watch_seconds,
)

MAX_FIELD_CHARS = 10_000
"""Most characters of one field of a situation."""

_LABELS = read_wordings("labels.json", "context")
"""The names of a context's fields, in the order of the text."""
_REACTION_WORDS = read_wordings("labels.json", "reactions")
"""What a reaction of a type is called."""

_NO_REACTION = Wording("no reaction", "无互动")
_WATCHED_TO_THE_END = Wording("watched to the end", "看完")
_WATCHED_SECONDS = Wording("watched {:g} s", "观看{:g}秒")
_SECONDS = Wording("{:g} s", "{:g}秒")
_YES = Wording("yes", "是")
_SEPARATOR = Wording("; ", "；")

_FLAG_FIELDS = frozenset({"is_shop_live", "is_verified"})
"""Fields of a context that are shown only if they are true."""
_ID_FIELDS = frozenset({"user_id", "photo_id", "author_id", "item_id", "live_id"})
"""Fields of a context that are never shown."""
_UNMENTIONED_REACTIONS = frozenset({("live", "cart")})
"""Scenes and types of reactions that the released code leaves out.

In a live stream `click_cart` is the reaction that counts.
"""


def situation(record: RawRecord) -> str:
    """Return what the user saw, on one line, without the reaction."""
    chinese = is_chinese(record.get("type"))
    context = context_of(record)
    hidden_fields = set(_ID_FIELDS)
    if "search_keyword" in gold(record):
        # The words of a search are what the user did.
        hidden_fields.add("keyword")

    parts: list[str] = []
    for name in _in_text_order(context):
        if name in hidden_fields:
            continue
        text = _field_text(name, context[name], chinese)
        if not text:
            continue
        label = _LABELS.get(name, Wording(name, name)).in_language(chinese)
        shown_text = " ".join(text[:MAX_FIELD_CHARS].split())
        parts.append(f"{label}: {shown_text}")
    return _SEPARATOR.in_language(chinese).join(parts)


def _in_text_order(context: Mapping[str, Any]) -> list[str]:
    """Return the names of a context's fields: those with a label first, in the labels' order."""
    labelled = [name for name in _LABELS if name in context]
    others = [name for name in context if name not in _LABELS]
    return [*labelled, *others]


def _field_text(name: str, value: Any, chinese: bool) -> str:
    """Return the value of a context's field in words; "" if there is nothing to show."""
    if value is None or value in ("", []):
        return ""
    if name in _FLAG_FIELDS:
        return _YES.in_language(chinese) if truth(value) else ""
    if name == "duration":
        seconds = number(value)
        if seconds is not None:
            return _SECONDS.in_language(chinese).format(seconds)
    return _flat_text(value)


def _flat_text(value: Any) -> str:
    """Return all texts and numbers in a value, without the names of its fields."""
    if isinstance(value, Mapping):
        parts = [_flat_text(part) for part in value.values()]
        return " ".join(part for part in parts if part)
    if isinstance(value, list):
        parts = [_flat_text(part) for part in value]
        return ", ".join(part for part in parts if part)
    return "" if value is None else str(value)


def reaction(record: RawRecord) -> str:
    """Return what the user did, on one line; "no reaction" if no reaction took place.

    The rules of the gold labels decide what took place: practice must not teach what evaluation
    calls wrong.
    """
    chinese = is_chinese(record.get("type"))
    scene = scene_of(record.get("type"))
    was_completed = bool(gold(record).get("video_completed"))

    parts: list[str] = []
    is_first_watch = True
    for entry in reactions(record):
        if entry["type"] == "watch":
            # The label says whether the first watch went to the end, and nothing about later ones.
            shows_completed = was_completed and is_first_watch
            parts.extend(_watch_texts(scene, entry, shows_completed, chinese))
            is_first_watch = False
        elif took_place(entry) and (scene, entry["type"]) not in _UNMENTIONED_REACTIONS:
            parts.append(_reaction_text(entry, chinese))

    if not parts:
        return _NO_REACTION.in_language(chinese)
    # Reactions that read the same are told once.
    return _SEPARATOR.in_language(chinese).join(dict.fromkeys(parts))


def _watch_texts(scene: str | None, watch: Reaction, completed: bool, chinese: bool) -> list[str]:
    """Return how long the user watched, and whether to the end, where this is known."""
    texts: list[str] = []
    seconds = watch_seconds(scene, watch)
    if seconds:
        texts.append(_WATCHED_SECONDS.in_language(chinese).format(seconds))
    if completed:
        texts.append(_WATCHED_TO_THE_END.in_language(chinese))
    return texts


def _reaction_text(entry: Reaction, chinese: bool) -> str:
    """Return what a reaction is called, with the words that the user wrote, if any."""
    reaction_type = entry["type"]
    if reaction_type == "dialogue":
        written = last_user_message([entry])
    else:
        written = entry.get("keyword") or entry.get("comment_detail_list")

    name = _REACTION_WORDS.get(reaction_type, Wording(reaction_type, reaction_type))
    text = name.in_language(chinese)
    return f"{text} ({_flat_text(written)})" if written else text
