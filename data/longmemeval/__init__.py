"""LongMemEval: questions of six types about many chats with an assistant."""

BENCHMARKS = {
    "longmemeval": (
        "benchmark:LongMemEval",
        "questions of six types about up to 500 chats with an assistant; judged by type, or token F1",
    ),
    "longmemeval.preference": (
        "benchmark:LongMemEvalPreference",
        "requests whose response should suit what a user once told; judged by a rubric",
    ),
}
