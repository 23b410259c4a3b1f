"""The cells of PraMem's tables as the paper prints them."""

from __future__ import annotations

from .tables import PaperTable

_GPT = "GPT-OSS-120B; OmniBehavior, %"
_QWEN = "Qwen3.5-35B-A3B predicts, experience built by GPT-OSS-120B; OmniBehavior, %"
_SCENES = ("Video", "Live", "Ads", "E-commerce", "Overall")
_COLUMNS = ("method", *(f"{scene} {metric}" for scene in _SCENES for metric in ("ACC", "F1")))
_SYSTEMS = "Mem0, MemOS and ProEx are other systems and not imitated here."

TABLE_1 = (
    PaperTable(
        "PraMem, Table 1 (GPT-OSS-120B)",
        _GPT,
        _COLUMNS,
        (
            ("Long-context", 74.9, 23.4, 67.2, 25.2, 59.4, 28.3, 72.0, 21.4, 68.4, 24.6),
            ("Truncation", 79.5, 23.9, 73.2, 27.4, 61.0, 26.2, 80.1, 21.3, 73.5, 24.7),
            ("RAG", 77.9, 20.6, 71.6, 26.6, 61.3, 22.2, 65.7, 14.3, 69.1, 20.9),
            ("Summary", 80.1, 23.2, 77.0, 28.4, 64.7, 27.5, 74.5, 18.2, 74.1, 24.3),
            ("Mem0", 81.7, 25.9, 75.0, 28.5, 63.1, 29.5, 78.9, 21.6, 74.7, 26.4),
            ("MemOS", 78.9, 25.0, 74.4, 28.8, 61.8, 29.0, 77.3, 22.0, 73.1, 26.2),
            ("ProEx", 82.5, 26.2, 77.1, 27.7, 68.1, 28.5, 83.3, 25.2, 77.7, 26.9),
            ("PraMem", 86.4, 25.6, 83.7, 29.9, 82.3, 43.7, 86.2, 27.1, 84.7, 31.6),
        ),
        _SYSTEMS,
    ),
    PaperTable(
        "PraMem, Table 1 (Qwen3.5-35B-A3B)",
        _QWEN,
        _COLUMNS,
        (
            ("Long-context", 61.5, 18.1, 62.0, 22.5, 55.7, 25.4, 62.2, 20.1, 60.3, 21.5),
            ("Truncation", 67.7, 18.6, 64.3, 22.6, 58.0, 24.4, 65.3, 18.1, 63.8, 20.9),
            ("RAG", 64.2, 17.0, 60.5, 19.7, 55.9, 25.1, 61.3, 15.8, 60.5, 19.4),
            ("Summary", 67.3, 19.2, 65.6, 22.9, 59.4, 25.7, 64.2, 16.5, 64.1, 21.1),
            ("Mem0", 67.2, 19.0, 66.6, 24.4, 55.6, 24.0, 65.9, 19.3, 63.8, 21.7),
            ("MemOS", 65.8, 19.5, 65.6, 24.2, 54.2, 24.6, 67.9, 19.4, 63.4, 21.9),
            ("ProEx", 70.7, 18.7, 69.0, 23.4, 61.3, 24.0, 69.2, 19.8, 67.6, 21.5),
            ("PraMem", 77.7, 20.3, 75.6, 26.9, 74.6, 32.4, 74.3, 21.5, 75.6, 25.3),
        ),
        _SYSTEMS,
    ),
)
TABLE_2 = (
    PaperTable(
        "PraMem, Table 2 (ablations, F1)",
        _GPT,
        ("method", *_SCENES),
        (
            ("PraMem", 25.6, 29.9, 43.7, 27.1, 31.6),
            ("w/o deep-thinking trial", 25.5, 26.2, 41.2, 24.1, 29.3),
            ("w/o reflective proposal", 23.9, 29.5, 43.5, 27.0, 30.9),
            ("w/o consensual adjustment", 26.0, 28.2, 38.3, 22.6, 28.8),
        ),
    ),
)
TABLE_3 = (
    PaperTable(
        "PraMem, Table 3 (memory construction)",
        _GPT,
        ("method", "minutes per user", "Overall F1"),
        (("Mem0", 34.1, 26.4), ("MemOS", 30.6, 26.2), ("ProEx", 24.7, 26.9), ("PraMem", 55.8, 31.6)),
        "Minutes depend on the server; the paper names none.",
    ),
)
FIGURE_4 = (
    PaperTable(
        "PraMem, Figure 4 (what the text says of it)",
        _GPT,
        ("rounds", "Overall ACC", "Overall F1"),
        (("10", 79.0, 28.3), ("40", 83.5, 30.7), ("80", 84.7, 31.6)),
        "The other rounds, and the lengths, are a picture only: they grow up to round 60 and stay level after it.",
    ),
)
