"""Memory-R2: facts and the learned operations on them; see `method`."""

METHODS = {
    "memory-r2": ("method:MemoryR2", "extracts facts and edits a memory of them by operations")
}
