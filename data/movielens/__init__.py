"""MovieLens-1M: which rating a user gives next."""

BENCHMARKS = {
    "movielens": (
        "benchmark:MovieLens",
        "which rating a user gives the next movie, from hundreds before; accuracy and a confusion matrix",
    ),
}
