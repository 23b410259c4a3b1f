"""Questions of one's own, one JSON object a line."""

BENCHMARKS = {
    "jsonl": (
        "benchmark:JsonlBenchmark",
        "your own questions, one JSON object per line; token F1, exact match, a judge or your own function",
    ),
}
