"""PersonaMem v2: whether a preference is recalled, or multiple choice."""

BENCHMARKS = {
    "personamem-v2": (
        "benchmark:PersonaMemV2",
        "whether a preference is recalled, by a judge; or multiple choice (mcq)",
    ),
}
