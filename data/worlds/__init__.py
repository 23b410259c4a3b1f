"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS: dict[str, tuple[str, str]] = {}
