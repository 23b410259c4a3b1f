"""Memory methods that other methods are measured against."""

METHODS = {
    "no-memory": ("retrieval:NoMemory", "answers from the question alone"),
    "full-context": ("retrieval:FullContext", "shows the conversation, newest turns first to fit"),
    "truncation": ("retrieval:Truncation", "shows the newest turns that fit a small budget"),
    "turn-rag": ("retrieval:TurnRAG", "keeps every turn, recalls the best-matching ones (BM25)"),
    "session-rag": ("retrieval:SessionRAG", "keeps every turn, recalls the best-matching sessions as a whole (BM25)"),
    "recursive-summary": ("written:RecursiveSummary", "rewrites one summary after every session, recalls all of it"),
    "condition-mem": ("written:ConditionMem", "keeps what each dialogue teaches, recalls the nearest"),
    "memory-bank": ("written:MemoryBank", "turns and digests that fade unless recalled, and a portrait of the user"),
    "logs+": ("retrieval:WithLogs", "device logs beside the memory of any other method"),
}
