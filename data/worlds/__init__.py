"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS = {
    "world.memory-r2": (
        "memory_r2:MemoryR2World",
        "generated: facts that two people change, count on and take back; for --lm oracle, exact match",
    ),
    "world.pgr": (
        "pgr:PGRWorld",
        "generated: needs stated long ago that only imagined steps reach; for --lm oracle, exact match",
    ),
}
