"""Memory-R2: facts and the learned operations on them; see `method`."""

METHODS = {
    "memory-r2": ("method:MemoryR2", "keeps facts, which the model inserts, updates and deletes")
}
