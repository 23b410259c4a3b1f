"""PAL-Bench on PAL-Set: needs, solutions, selections and dialogues."""

BENCHMARKS = {
    "palbench.dialogue": (
        "dialogue_benchmark:PalDialogue",
        "a simulated user talks with the method and with another one; judged win, tie or lose",
    ),
    "palbench.generate": (
        "benchmark:PalGenerate",
        "a solution for a requirement; BLEU",
    ),
    "palbench.restate": (
        "benchmark:PalRestate",
        "the need behind a brief query, from logs and dialogues; BLEU or a judge",
    ),
    "palbench.select": (
        "benchmark:PalSelect",
        "the two of eight solutions a user likes best; S-score",
    ),
}
