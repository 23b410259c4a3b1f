"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS = {
    "world.h2memory": (
        "h2memory:H2MemoryWorld",
        "generated: advice that takes a situation, the background or a principle; for --lm oracle, exact match",
    ),
    "world.memory-r2": (
        "memory_r2:MemoryR2World",
        "generated: facts that two people change, count on and take back; for --lm oracle, exact match",
    ),
    "world.pgr": (
        "pgr:PGRWorld",
        "generated: needs stated long ago that only imagined steps reach; for --lm oracle, exact match",
    ),
    "world.pramem": (
        "pramem:PraMemWorld",
        "generated: habits that only practice tells from accidents; for --lm oracle, accuracy",
    ),
    "world.rgmem": (
        "rgmem:RGMemWorld",
        "generated: traits behind weak signals and noise that reverse late; for --lm oracle, exact match",
    ),
}
