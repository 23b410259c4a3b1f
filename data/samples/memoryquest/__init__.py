"""Our own sample in MemoryQuest's form: one file per user."""
