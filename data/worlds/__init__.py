"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS: dict[str, tuple[str, str]] = {
    "world.rgmem": (
        "rgmem:RGMemWorld",
        "generated: traits that show after many weak signals, hold against noise and reverse late; exact match",
    ),
}
