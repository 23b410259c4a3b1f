"""Records that all rooms share: histories and their items, queries, and recalled contexts.

A history and everything in it is frozen: no copy changes it, and its digest is that of its own
content. Copies of a history share its items. So a thousand examples with the same history, or an
optimizer that prints its training set, cost next to nothing.
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
