"""Checks that a method or a benchmark keeps the contracts everything else rests on; ours pass them, yours should too.

    check_method("session_notes:SessionNotes")
    check_benchmark("trivia:Trivia", "trivia.json")

Both raise one error that lists every violation on its own line. Nothing is sent anywhere: the model is the
offline engine.
"""

from .benchmark import check_benchmark
from .method import check_method

__all__ = ["check_benchmark", "check_method"]
