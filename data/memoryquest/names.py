"""The names in MemoryQuest's form, and likely other names: the genuine files' were not seen beyond the first three.

Limits: the other names are inferred from similar data sets (LoCoMo, PersonaLens, PersonaMem, LongMemEval).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ALIASES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "user": {
            "user_id": ("id", "uid", "user"),
            "demographics": ("profile", "persona", "demographic"),
            "domain_summaries": ("summaries", "domain_summary"),
            "sessions": ("conversations", "chat_sessions", "dialogues", "chats", "history"),
            "queries": ("questions", "query_list", "eval_queries"),
        },
        "session": {
            "session_id": ("id", "sid", "conversation_id", "conv_id", "event_id"),
            "date": ("session_date", "timestamp", "time", "datetime", "event_date"),
            "turns": ("messages", "dialogue", "dialog", "conversation", "exchanges", "chat"),
        },
        "turn": {"speaker": ("role", "from", "name"), "text": ("content", "message", "utterance", "value")},
        "query": {
            "query_id": ("id", "qid", "question_id"),
            "query": ("question", "text", "request", "user_query"),
            "date": ("query_date", "timestamp", "time", "datetime"),
            "reasoning": ("rationale", "reason", "explanation"),
            "references": ("required_references", "refs", "reference_facts", "required_facts", "evidence"),
            "domain": ("category", "task_domain"),
        },
        "reference": {
            "text": ("reference", "fact", "info", "content", "description"),
            "date": ("reference_date", "timestamp", "time"),
            "session_id": ("session", "sid", "conversation_id", "conv_id", "event_id"),
            "turns": ("turn", "turn_numbers"),
        },
    }
)
"""What every object may hold, and by which other names."""
