"""PersonaMem v1: multiple choice by skill."""

BENCHMARKS = {
    "personamem": (
        "benchmark:PersonaMem",
        "multiple choice for an assistant that should know its user (v1); accuracy",
    ),
}
