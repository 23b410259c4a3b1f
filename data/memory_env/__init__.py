"""memory-env: a synthetic world to train memory operations in."""

BENCHMARKS = {
    "memory-env": (
        "benchmark:MemoryEnv",
        "generated: facts that two speakers state, change and retract; exact match, no reader model",
    ),
}
