"""PGR: dated facts and prospection-guided retrieval; see `method`."""

METHODS = {
    "pgr": ("method:PGR", "imagines next steps and searches dated facts with them"),
    "fact-store": ("method:FactStore", "the dated facts of pgr, recalled with the question alone"),
    "pgr+": (
        "method:PGROver",
        "imagines next steps and searches the memory of any other method with them",
    ),
}
