"""ImplexConv: questions that hang on something implied."""

BENCHMARKS = {
    "implexconv": (
        "benchmark:ImplexConv",
        "questions that hang on an implicit fact, opposed or supportive; a judge or token F1",
    ),
}
