"""LoCoMo: very long conversations and questions about them."""

BENCHMARKS = {
    "locomo": (
        "benchmark:Locomo",
        "questions about ten very long conversations in five categories; token F1 or a judge",
    ),
}
