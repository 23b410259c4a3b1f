"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS = {
    "world.pgr": (
        "pgr:PGRWorld",
        "generated: needs stated long ago that only imagined steps reach; for --lm oracle, exact match",
    ),
}
