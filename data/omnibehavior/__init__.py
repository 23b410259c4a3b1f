"""OmniBehavior: what users of a platform do next."""

BENCHMARKS = {
    "omnibehavior": (
        "benchmark:OmniBehavior",
        "whether a user reacts to a video, stream, advertisement or product; ACC and F1 by field and scene",
    ),
}
