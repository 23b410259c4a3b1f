"""Memory methods that other methods are measured against."""

METHODS = {
    "no-memory": (
        "no_memory:NoMemory",
        "answers from the question alone",
    ),
    "full-context": (
        "full_context:FullContext",
        "shows the newest turns that fit a large budget, often the whole conversation",
    ),
    "truncation": (
        "full_context:Truncation",
        "shows the newest turns that fit a small budget",
    ),
    "turn-rag": (
        "turn_rag:TurnRAG",
        "keeps every turn, recalls the best-matching ones (BM25)",
    ),
    "session-rag": (
        "session_rag:SessionRAG",
        "keeps every turn, recalls the best-matching sessions as a whole (BM25)",
    ),
    "recursive-summary": (
        "recursive_summary:RecursiveSummary",
        "rewrites one summary after every session, recalls all of it",
    ),
    "condition-mem": (
        "condition_mem:ConditionMem",
        "keeps what each dialogue says about the user, recalls the nearest",
    ),
    "memory-bank": (
        "memory_bank:MemoryBank",
        "keeps turns and summaries, which fade unless recalled, and a portrait of the user",
    ),
    "logs+": (
        "logs:WithLogs",
        "device logs beside the memory of any other method",
    ),
}
