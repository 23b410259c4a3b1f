"""The cells of Mem-PAL's tables as the paper prints them."""

from __future__ import annotations

from .tables import Cell, PaperTable

_BASE = "Qwen-Max-0428, paraphrase-multilingual-mpnet-base-v2; PAL-Set, 100 users"
_BLEU = ("method", "B-1", "B-2", "B-3", "B-4")
_BASELINES = "All baselines but the first see the logs of the current session; see appendix C for the rest of the logs."


def _rows(lines: str) -> tuple[tuple[Cell, ...], ...]:
    """Rows from lines of "name | cell | cell ..."; non-numbers ("478 / 29 / 319") are kept as text."""
    return tuple(_row(line) for line in lines.strip().splitlines())


def _row(line: str) -> tuple[Cell, ...]:
    name, *cells = (cell.strip() for cell in line.split("|"))
    return (name, *(cell if "/" in cell else float(cell) for cell in cells))


_TABLE_2 = _rows(
    """
    Vanilla (w/o log) | 13.59 | 5.76 | 2.58 | 1.41 | 17.50 | 18.85 | 6.96 | 3.52 | 2.06 | 18.95
    Vanilla (with log) | 19.71 | 8.85 | 4.10 | 2.29 | 23.00 | 19.76 | 7.68 | 4.00 | 2.32 | 22.88
    Turn-level RAG | 22.74 | 10.54 | 4.94 | 2.69 | 26.85 | 19.15 | 7.43 | 3.89 | 2.29 | 24.09
    Session-level RAG | 23.81 | 11.24 | 5.42 | 3.06 | 29.33 | 19.66 | 7.80 | 4.00 | 2.33 | 33.78
    RecurSum | 23.29 | 10.64 | 4.95 | 2.75 | 28.36 | 19.89 | 7.59 | 3.96 | 2.26 | 25.61
    ConditionMem | 23.31 | 10.42 | 4.86 | 2.66 | 27.78 | 19.42 | 7.42 | 3.85 | 2.22 | 25.49
    MemoryBank | 23.89 | 11.11 | 5.23 | 2.91 | 28.57 | 20.49 | 8.12 | 4.07 | 2.34 | 29.85
    H2Memory (ours) | 26.67 | 12.18 | 5.68 | 3.09 | 32.54 | 22.24 | 8.38 | 4.39 | 2.65 | 38.32
    H2Memory (w/o M_G) | 26.32 | 11.93 | 5.42 | 2.93 | 30.90 | 22.19 | 8.24 | 4.35 | 2.62 | 37.71
    H2Memory (w/o M_B) | 26.22 | 11.95 | 5.53 | 3.05 | 31.30 | 21.84 | 8.17 | 4.19 | 2.46 | 36.69
    H2Memory (w/o M_T) | 24.04 | 11.01 | 5.20 | 2.82 | 28.00 | 18.23 | 6.49 | 3.21 | 1.86 | 28.09
    H2Memory (w/o M_P) | 26.33 | 11.90 | 5.44 | 2.90 | 31.51 | 21.97 | 8.16 | 4.23 | 2.49 | 36.26
    """
)
_TABLE_10 = _rows(
    """
    Vanilla (w/o log) | 25.61 | 22.48
    Vanilla (with log) | 39.91 | 25.46
    RecurSum | 33.96 | 34.48
    ConditionMem | 38.94 | 29.98
    MemoryBank | 40.73 | 36.92
    H2Memory (ours) | 49.77 | 40.40
    """
)
_DEEPSEEK = "Deepseek-V3.1, bge-base-zh; PAL-Set, mean of three runs"

TABLE_1 = (
    PaperTable(
        "Mem-PAL, Table 1",
        "PAL-Set, mean of 100 users",
        ("per user", "history", "query"),
        _rows(
            """
            sessions | 25.7 | 3.3
            logs | 888.7 | 107.5
            dialogue turns | 361.7 | 39.3
            dialogue topics | 62.5 | 8.3
            months | 8.4 | 1.0
            """
        ),
    ),
)
TABLE_2_RESTATE = (
    PaperTable(
        "Mem-PAL, Table 2, requirement restatement",
        f"{_BASE}; G-Score by GPT-4",
        (*_BLEU, "G-Score"),
        tuple(row[:6] for row in _TABLE_2),
        _BASELINES,
    ),
)
TABLE_2_GENERATE = (
    PaperTable(
        "Mem-PAL, Table 2, solution proposal: generation",
        _BASE,
        _BLEU,
        tuple((row[0], *row[6:10]) for row in _TABLE_2),
        _BASELINES,
    ),
)
TABLE_2_SELECT = (
    PaperTable(
        "Mem-PAL, Table 2, solution proposal: selection",
        _BASE,
        ("method", "S-Score"),
        tuple((row[0], row[10]) for row in _TABLE_2),
        _BASELINES,
    ),
)
TABLE_3 = (
    PaperTable(
        "Mem-PAL, Table 3 (win / tie / lose of H2Memory)",
        f"{_BASE}; user Qwen2.5-Max, judge GPT-4-turbo; 826 topics",
        ("ours against", "requirement", "preference"),
        _rows(
            """
            Vanilla (w/o log) | 478 / 29 / 319 | 480 / 18 / 328
            Vanilla (with log) | 447 / 33 / 346 | 452 / 22 / 352
            RecurSum | 421 / 29 / 376 | 439 / 18 / 369
            ConditionMem | 396 / 42 / 388 | 413 / 19 / 394
            MemoryBank | 449 / 33 / 344 | 452 / 25 / 349
            """
        ),
        "826 is the sum of every cell; the paper does not print the number of topics.",
    ),
)
TABLE_4 = (
    PaperTable(
        "Mem-PAL, Table 4",
        f"{_BASE.partition(';')[0]}; LongMemEval, single-session-preference, accuracy %",
        ("method", "accuracy"),
        _rows(
            """
            Vanilla | 10.00
            RecurSum | 10.00
            ConditionMem | 40.00
            MemoryBank | 23.33
            Ours (M_T + M_P) | 50.00
            Ours (M_T) | 40.00
            Ours (M_P) | 46.67
            """
        ),
        "All cells are thirtieths: one question is 3.33.",
    ),
)
TABLE_10_RESTATE = (
    PaperTable(
        "Mem-PAL, Table 10, requirement restatement",
        _DEEPSEEK,
        ("method", "G-Score"),
        tuple(row[:2] for row in _TABLE_10),
    ),
)
TABLE_10_SELECT = (
    PaperTable(
        "Mem-PAL, Table 10, solution proposal",
        _DEEPSEEK,
        ("method", "S-Score"),
        tuple((row[0], row[2]) for row in _TABLE_10),
    ),
)
TABLE_11 = (
    PaperTable(
        "Mem-PAL, Table 11 (win / tie / lose of H2Memory over Vanilla (with log))",
        f"{_BASE}; 80 topics drawn at random, judge GPT-4-turbo, two people",
        ("judged by", "requirement", "preference"),
        _rows(
            """
            Evaluation-LLM | 45 / 4 / 31 | 44 / 1 / 35
            Human | 31 / 26 / 23 | 41 / 11 / 28
            """
        ),
        "Kappa of both where neither sees a tie: 0.54 and 0.62.",
    ),
)
