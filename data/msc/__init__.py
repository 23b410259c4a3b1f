"""MSC: a question about a few short chats."""

BENCHMARKS = {
    "msc": (
        "benchmark:Msc",
        "a question about up to five short chats of two strangers; token F1 or a judge",
    ),
}
