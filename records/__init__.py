"""Shared records: histories and their items, queries, and recalled contexts.

Histories and everything in them are frozen: no copy of one changes it, and what is computed from one is computed from
its own content. A history is compared and hashed by its content digest and printed in short, and its copies share its
items, so that copying one into a thousand examples, or an optimizer printing its training set, costs next to nothing.
"""

from ..errors import one_line
from .context import ABSTRACT, Context, Failure, Hit, SearchResult, estimate_tokens, fewest_tokens, in_blocks
from .frozen import Frozen, FrozenMapping, Record
from .history import History
from .items import Action, AnyItem, Behavior, Item, Logs, Profile, Session
from .json_input import parse_json, read_json
from .query import Query
from .timestamps import Moment, comparable, latest, read_time
from .turns import Turn, format_time

__all__ = [
    "ABSTRACT",
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
    "one_line",
    "parse_json",
    "read_json",
    "read_time",
]
