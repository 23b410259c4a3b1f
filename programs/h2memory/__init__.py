"""H2Memory: a memory of two kinds on two levels, from device logs and dialogues; see `method`."""

METHODS = {
    "h2memory": (
        "method:H2Memory",
        "situations and a background from device logs, needs with what was liked from dialogues, "
        "principles over both",
    ),
}
