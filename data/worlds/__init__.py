"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS: dict[str, tuple[str, str]] = {
    "world.rgmem": (
        "rgmem:RGMemWorld",
        "generated: traits that show after many weak signals, hold against noise and reverse late; exact match",
    ),
    "world.h2memory": (
        "h2memory:H2MemoryWorld",
        "generated: needs and preferences that take a situation, background or principle; exact match",
    ),
    "world.pramem": (
        "pramem:PraMemWorld",
        "generated: rules of behaviour that only practice tells from accidents; accuracy",
    ),
    "world.memory-r2": (
        "memory_r2:MemoryR2World",
        "generated: facts that two people change, count on and take back; for --lm oracle, exact match",
    ),
    "world.pgr": (
        "pgr:PGRWorld",
        "generated: needs stated long ago that only imagined steps reach; for --lm oracle, exact match",
    ),
}
