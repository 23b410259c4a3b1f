"""H2Memory: a memory of two kinds on two levels, from device logs and dialogues; see `method`."""

METHODS = {
    "h2memory": (
        "method:H2Memory",
        "keeps situations and a background from device logs, and needs with their principles from "
        "dialogues",
    ),
}
