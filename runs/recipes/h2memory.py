"""Mem-PAL's tables: PAL-Bench with baselines and ablations, dialogues in pairs, LongMemEval's preferences.

    table1                      what the data holds per user
    table2-restate, -generate, -select    three tasks, baselines, without M_G, M_B, M_T, M_P (`--only table2`)
    table3                      dialogues: win, tie, lose against five baselines
    table4                      LongMemEval, single-session-preference
    table10-restate, -select    the same tasks over three seeds (`--only table10`)
    table11                     the judge's outcome on 80 topics, and where small differences are ties

    mempiler reproduce h2memory --data palbench=input.json --data longmemeval=longmemeval_s_cleaned.json
        --lm MODEL --judge-lm MODEL --embedder MODEL

Baselines keep logs apart (`logs+METHOD`) and recall 3 entries, by the presets of the methods. Table 10 is
Table 2 with another model and embedder: name them with --lm and --embedder. G-score, Table 3 and Table 11 need
--judge-lm; the user of the dialogues is played by --prompt-lm. Without a judge, Table 4 shows the token F1 with the
rubric instead, which says little.

Turn and session RAG search by the encoder of --embedder alone, as in the paper.

Limits: the offline embedder compares spelling, so that turn and session RAG search by BM25 under it. Nobody is asked,
so that Table 11 has no row of people.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...data.palbench.statistics import statistics_of
from ..results import Row
from .columns import over_all, score, tokens
from .material import Material
from .papers import printed
from .recipe import Recipe
from .section import Section, Variant
from .tables import OurTable

OURS, WITH_LOG = "H2Memory", "Vanilla (with log)"
DRAWN = 80
"""Topics of Table 11."""
MARGINS = (0.0, 0.5, 1.0, 2.0)
"""Differences of mean scores, 1 to 10, up to which Table 11 calls a pair a tie; the paper's is 0."""

_VANILLA = (Variant("Vanilla (w/o log)", "no-memory"), Variant(WITH_LOG, "logs+no-memory"))
_RAG = (Variant("Turn-level RAG", "logs+turn-rag"), Variant("Session-level RAG", "logs+session-rag"))
_MEMORIES = (
    Variant("RecurSum", "recursive-summary"),
    Variant("ConditionMem", "condition-mem"),
    Variant("MemoryBank", "memory-bank"),
)
_WITH_LOGS = tuple(replace(each, method=f"logs+{each.method}") for each in _MEMORIES)
_OURS = Variant(OURS, "h2memory")
_ABLATIONS = (
    Variant("w/o M_G", "h2memory", {"use_situations": False}),
    Variant("w/o M_B", "h2memory", {"use_background": False}),
    Variant("w/o M_T", "h2memory", {"use_topics": False}),
    Variant("w/o M_P", "h2memory", {"use_principles": False}),
)
_TABLE_2 = (*_VANILLA, *_RAG, *_WITH_LOGS, _OURS, *_ABLATIONS)
_TABLE_10 = (*_VANILLA, *_WITH_LOGS, _OURS)
_BLEU = tuple(over_all(f"BLEU-{n}", f"B-{n}", 2) for n in (1, 2, 3, 4))
_G, _S = over_all("G-score", digits=2), over_all("S-score", digits=2)
_INVALID = over_all("invalid selections", digits=0)
_OUTCOMES = tuple(
    over_all(f"{dimension} {outcome}", f"{short} {outcome.lower()}", 0)
    for dimension, short in (("requirement", "req."), ("preference", "pref."))
    for outcome in ("WIN", "TIE", "LOSE")
)


def _against(label: str, method: str, logs: bool = False) -> Variant:
    """H2Memory in dialogues beside those of another method."""
    return Variant(f"against {label}", "h2memory", options={"against": method, "against_logs": logs})


_TABLE_3 = (
    _against(_VANILLA[0].label, "no-memory"),
    _against(WITH_LOG, "no-memory", logs=True),
    *(_against(each.label, each.method) for each in _WITH_LOGS),
)


def holdings(material: Material) -> Iterator[OurTable]:
    """Table 1: means over the users of the files, all of them, regardless of --test."""
    setup = material.setup
    parts = statistics_of(setup.data, setup.options.get("language"))
    names = {"sessions": "sessions", "logs": "logs", "turns": "dialogue turns", "topics": "dialogue topics"}
    rows = tuple(
        (name, *(f"{getattr(part, key):,.1f}" for part in parts)) for key, name in {**names, "months": "months"}.items()
    )
    yield OurTable(
        "Table 1: means over users",
        ("per user", *(part.part for part in parts)),
        rows,
        f"{parts[0].users} users. A turn is an utterance with its reply; a month one in which a dialogue takes place.",
    )


def margins(material: Material) -> Iterator[OurTable]:
    """Table 11: outcomes on topics drawn at random, by the difference up to which a pair is a tie."""
    for label, made in material.made.items():
        judged = [row for row in made.evaluation.rows if row.failure is None]
        drawn = random.Random(material.setup.seed).sample(judged, min(DRAWN, len(judged)))
        rows = tuple(
            (f"{margin:g}", *(_counts(drawn, name, margin) for name in ("requ", "pref"))) for margin in MARGINS
        )
        yield OurTable(
            f"Table 11: win / tie / lose {label}, Evaluation-LLM",
            ("tie up to a difference of", "requirement", "preference"),
            rows,
            f"{len(drawn)} of {len(judged)} judged topics, drawn at random (paper: {DRAWN}). People were not asked.",
        )


def _counts(rows: Sequence[Row], dimension: str, margin: float) -> str:
    """Equal dialogues have no scores, and are ties."""
    differences = [row.parts.get(f"{dimension}_own", 0.0) - row.parts.get(f"{dimension}_rival", 0.0) for row in rows]
    wins, losses = (sum(sign * each > margin for each in differences) for sign in (1, -1))
    return f"{wins} / {len(rows) - wins - losses} / {losses}"


_BASELINES = (
    "Turn-level and session-level RAG search by BM25 where no --embedder is named. "
    "Cells are on 0 to 100, S-scores on -100 to 100."
)

H2MEMORY = Recipe(
    name="h2memory",
    summary="a memory on two levels from device logs and dialogues, on PAL-Bench and LongMemEval's preferences",
    sections=(
        Section(
            "table1", "Table 1: PAL-Set", "palbench.restate", paper=printed("h2memory", "table1"), analyses=(holdings,)
        ),
        Section(
            "table2-restate",
            "Table 2: requirement restatement",
            "palbench.restate",
            _TABLE_2,
            (*_BLEU, _G, tokens()),
            paper=printed("h2memory", "table2-restate"),
            note=f"{_BASELINES} The G-score needs --judge-lm.",
            own=OURS,
        ),
        Section(
            "table2-generate",
            "Table 2: solution generation",
            "palbench.generate",
            _TABLE_2,
            (*_BLEU, tokens()),
            paper=printed("h2memory", "table2-generate"),
            note=_BASELINES,
            own=OURS,
        ),
        Section(
            "table2-select",
            "Table 2: solution selection",
            "palbench.select",
            _TABLE_2,
            (_S, _INVALID, tokens()),
            paper=printed("h2memory", "table2-select"),
            note=_BASELINES,
            own=OURS,
        ),
        Section(
            "table3",
            "Table 3: dialogues",
            "palbench.dialogue",
            _TABLE_3,
            (*_OUTCOMES, score()),
            paper=printed("h2memory", "table3"),
            note="Topics that failed are in none of the counts. Dialogues that are equal word for word are ties.",
            judged=True,
        ),
        Section(
            "table4",
            "Table 4: LongMemEval, single-session-preference",
            "longmemeval.preference",
            (
                Variant("Vanilla", "no-memory"),
                *_MEMORIES,
                Variant("M_T + M_P", "h2memory"),
                Variant("M_T", "h2memory", {"use_principles": False}),
                Variant("M_P", "h2memory", {"use_topics": False}),
            ),
            (score("accuracy"), over_all("overall F1", "F1 with the rubric"), tokens()),
            paper=printed("h2memory", "table4"),
            note="Accuracy (0 to 1) is the judge's. The F1 stands in where there is none, and is no measure of fit.",
            own="M_T + M_P",
        ),
        Section(
            "table10-restate",
            "Table 10: requirement restatement, three seeds",
            "palbench.restate",
            _TABLE_10,
            (_G, *_BLEU, tokens()),
            paper=printed("h2memory", "table10-restate"),
            note="The G-score needs --judge-lm.",
            seeds=3,
            own=OURS,
        ),
        Section(
            "table10-select",
            "Table 10: solution selection, three seeds",
            "palbench.select",
            _TABLE_10,
            (_S, _INVALID, tokens()),
            paper=printed("h2memory", "table10-select"),
            seeds=3,
            own=OURS,
        ),
        Section(
            "table11",
            "Table 11: the judge on drawn topics",
            "palbench.dialogue",
            (_TABLE_3[1],),
            (*_OUTCOMES, score()),
            paper=printed("h2memory", "table11"),
            analyses=(margins,),
            judged=True,
        ),
    ),
    options={"palbench.restate": {"metric": "g_score"}, "longmemeval.preference": {"metric": "judge"}},
    offline_options={"longmemeval.preference": {"metric": "f1"}},
    offline_test=4,
)
