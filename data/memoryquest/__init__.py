"""MemoryQuest: requests that need things said long ago."""

BENCHMARKS = {
    "memoryquest": (
        "benchmark:MemoryQuest",
        "requests that need three to five things said long ago; judged recall of what is retrieved",
    ),
}
