"""Shared records: histories and their items, queries, and recalled contexts.

Histories and everything in them are frozen: no copy of one changes it, and what is computed from one is computed from
its own content. A history is compared and hashed by its content digest and printed in short, and its copies share its
items, so that copying one into a thousand examples, or an optimizer printing its training set, costs next to nothing.
"""

from .context import ABSTRACT_KINDS, Context, Failure, Hit, SearchResult, in_blocks
from .frozen import Frozen, FrozenMapping, Record
from .history import History
from .items import Action, AnyItem, Behavior, Item, Logs, Profile, Session
from .json_input import parse_json, read_json
from .query import Query
from .timestamps import Moment, comparable, latest, read_time
from .token_counts import estimate_tokens, fewest_tokens
from .turns import Turn, format_time

__all__ = [
    "ABSTRACT_KINDS",
    "Action",
    "AnyItem",
    "Behavior",
    "Context",
    "Failure",
    "Frozen",
    "FrozenMapping",
    "History",
    "Hit",
    "Item",
    "Logs",
    "Moment",
    "Profile",
    "Query",
    "Record",
    "SearchResult",
    "Session",
    "Turn",
    "comparable",
    "estimate_tokens",
    "fewest_tokens",
    "format_time",
    "in_blocks",
    "latest",
    "parse_json",
    "read_json",
    "read_time",
]
