"""Worlds with known answers: generated benchmarks, a file per paper; see `world`."""

BENCHMARKS = {
    "world.pramem": ("pramem:PraMemWorld", "generated: rules of behaviour that practice tells from accidents"),
}
