"""Shared records: histories and their items, queries, and recalled contexts.

Histories and everything in them are frozen. A history is compared, hashed and printed by its content digest, so that
copying one into a thousand examples, or an optimizer printing its training set, costs nothing.
"""

from ..errors import one_line
from .context import ABSTRACT, Context, Failure, Found, Hit, Query, estimate_tokens, in_blocks
from .items import Action, AnyItem, Behavior, History, Item, Logs, Profile, Record, Session, Turn, format_time
from .json_input import parse_json, read_json
from .timestamps import Moment, comparable, latest, read_time

__all__ = [
    "ABSTRACT",
    "Action",
    "AnyItem",
    "Behavior",
    "Context",
    "Failure",
    "Found",
    "History",
    "Hit",
    "Item",
    "Logs",
    "Moment",
    "Profile",
    "Query",
    "Record",
    "Session",
    "Turn",
    "comparable",
    "estimate_tokens",
    "format_time",
    "in_blocks",
    "latest",
    "one_line",
    "parse_json",
    "read_json",
    "read_time",
]
