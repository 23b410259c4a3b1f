"""PraMem's tables and figures: OmniBehavior by scene, MovieLens's confusion matrices, ablations, evolution, cost.

    table1   baselines and PraMem by scene      table2   ablations          table3   cost of the memory
    transfer the same memories, another model   fig3     confusion matrices (MovieLens)
    fig4     score and length over rounds       fig5     one kind of experience alone
    fig6     reviews left out                   fig12    two memories of one user

Long-context is the newest 32,000 tokens, truncation the newest 8,000; every other method sees the same 8,000 and its
memory. Mem0 and MemOS are other systems: their own packages are rows of Tables 1 and 3 where they are installed; ProEx
has no package. Figure 12 shows the running summary in MemOS's place.

The second half of Table 1 predicts with another model from the same memories (section `transfer`): `--lm` is the model
that practised, `--prompt-lm` the one that predicts there.

Figures 3, 5 and 6 have no printed numbers. Values of Figure 4's axis that the text does not name are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import dspy

from ..evaluate import evaluate
from ..results import Evaluation
from ..setup import Runtime
from .columns import Column, count, over_all, score, tokens
from .made import Made
from .material import Material
from .papers import printed
from .pictures import Picture, bars, lines, matrix
from .recipe import Recipe
from .section import Section, Variant
from .tables import OurTable

OURS = "PraMem"
LONG, SHORT, RAG, SUMMARY = "Long-context", "Truncation", "RAG", "Summary"
SCENES = ("Video", "Live", "Ads", "E-commerce", "Overall")
ROUNDS = (10, 20, 40, 60, 80)
_SHOWN = 12
"""Entries of each memory in Figure 12."""


_PRAMEM = Variant(OURS, "pramem")
_BASELINES = (
    Variant(LONG, "full-context", {"max_tokens": 32_000}),
    Variant(SHORT, "truncation"),
    Variant(RAG, "turn-rag"),
    Variant(SUMMARY, "recursive-summary"),
)
_SYSTEMS = (Variant("Mem0", "system:mem0"), Variant("MemOS", "system:memos"))
_BY_SCENE = tuple(over_all(f"{scene} {metric}") for scene in SCENES for metric in ("ACC", "F1"))
_F1 = tuple(over_all(f"{scene} F1", scene) for scene in SCENES)
_FAILED = over_all("failed parses", digits=0)
_OVERALL = (over_all("Overall ACC"), over_all("Overall F1"), _FAILED)
_RATINGS = (score("score"), over_all("accuracy"), over_all("macro-F1"), over_all("diagonal dominance"), _FAILED)


def _at(rounds: int) -> Variant:
    """PraMem after so many rounds; the last is PraMem as it is, and shared with the tables."""
    return Variant(f"round {rounds}", "pramem", {} if rounds == ROUNDS[-1] else {"rounds": rounds})


def confusion(material: Material) -> Iterator[OurTable | Picture]:
    """Figure 3: a confusion matrix per method."""
    for label, made in material.made.items():
        found = made.evaluation.confusion
        if found is not None:
            title = f"Figure 3: {label}, diagonal dominance {found.diagonal_dominance:.2f}"
            yield Picture(f"fig3-{_slug(label)}", matrix(material.title(title), found.labels, found.counts))


def evolution(material: Material) -> Iterator[OurTable | Picture]:
    """Figure 4: score, and length of the experience, over the practice rounds."""
    made = [(float(rounds), material.made[f"round {rounds}"]) for rounds in ROUNDS]
    series = {column.name: _over(made, column) for column in _OVERALL[:2]}
    size = count("tokens", "tokens of the experience", 0)
    yield Picture("fig4-score", lines(material.title("Figure 4: score over practice rounds"), "round", series))
    title = material.title("Figure 4: length of the experience over practice rounds")
    yield Picture("fig4-length", lines(title, "round", {size.name: _over(made, size)}, size.name))


def twofold(material: Material) -> Iterator[OurTable | Picture]:
    """Figures 5 and 6: overall ACC and F1 of every variant as bars."""
    columns = _OVERALL[:2]
    series = {column.name: [made.mean(column.value) for made in material.made.values()] for column in columns}
    title = material.title(material.section.title)
    yield Picture(f"{material.section.name}-bars", bars(title, list(material.made), series))


def cost(material: Material) -> Iterator[OurTable | Picture]:
    """Table 3: what the memories of a user cost to write, and what they bring."""
    names = ("variant", "users", "LM calls to write, per user", "minutes to write, per user", "Overall F1")
    yield OurTable("Table 3: cost", names, tuple(_cost(label, made) for label, made in material.made.items()), _COST)


_COST = (
    "Of writing alone, as if no other variant had written the same. Calls count wherever their answers came from; "
    "minutes are summed over the steps, of which several may go on at a time."
)


def _cost(label: str, made: Made) -> tuple[Any, ...]:
    found, score = made.evaluation.construction, over_all("Overall F1").cell(made)
    if found is None:
        return (label, "-", "-", "-", score)
    users = found.units or 1
    return (label, str(found.units), f"{found.calls / users:.1f}", f"{found.seconds / 60 / users:.2f}", score)


def transfer(material: Material) -> Iterator[OurTable | Picture]:
    """Table 1, second backbone: what was written for the section's rows is read by the model of `--prompt-lm`."""
    setup, columns = material.setup, (score("score"), *_BY_SCENE, _FAILED)
    rows, note = [], "Needs --prompt-lm MODEL: the model that predicts from the memories that --lm made."
    if setup.prompt_lm:
        note = f"Memories made by {setup.lm}, read by {setup.prompt_lm}."
        for label, made in material.made.items():
            found = replace(made, evaluations=(_read_by_other(material, label),))
            rows.append((label, *(column.cell(found) for column in columns)))
    names = ("variant", *(column.name for column in columns))
    yield OurTable("The same memories, another model", names, tuple(rows), note)


def _read_by_other(material: Material, label: str) -> Evaluation:
    bench, setup = material.bench, material.setup
    other = Runtime(setup, bench.meter, bench.guard, bench.folder).model("prompt")
    with material.program(label) as program:
        # Staged in the context of the model that wrote, so that its memories stay the ones that are read.
        reader = program.staged("read")
        with dspy.context(lm=other):
            return evaluate(reader, material.benchmark, material.examples(), bench.meter, setup.threads)


def side_by_side(material: Material) -> Iterator[OurTable | Picture]:
    """Figure 12: what two memories of one user hold."""
    history = material.histories()[0]
    with material.program(OURS) as program:
        practised: Any = program.remember(history).memory
    with material.program(SUMMARY) as program:
        summary: Any = program.remember(history).memory
    ours = [f"pattern: {entry.line()}" for entry in practised.patterns[:_SHOWN]]
    ours += [f"alert: {entry.line()}" for entry in practised.alerts[:_SHOWN]]
    theirs = [sentence.text for sentence in summary.sentences[: 2 * _SHOWN]]
    rows = tuple((str(n), *pair) for n, pair in enumerate(zip_longest(ours, theirs, fillvalue=""), 1))
    note = f"At most {_SHOWN} entries of a kind. PraMem was tried against MemOS here, which is another system."
    yield OurTable(f"Figure 12: two memories of {history.id}", ("entry", OURS, SUMMARY), rows, note)


def _over(made: list[tuple[float, Made]], column: Column) -> tuple[list[float], list[float | None]]:
    return [x for x, _ in made], [each.mean(column.value) for _, each in made]


def _slug(label: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in label.lower())


def _without(setting: str, label: str) -> Variant:
    return Variant(label, "pramem", {setting: False})


PRAMEM = Recipe(
    name="pramem",
    summary="practice-derived experience: behaviour prediction on OmniBehavior and MovieLens",
    offline_test=24,
    sections=(
        Section(
            name="table1",
            title="Table 1: ACC and F1 by scene",
            benchmark="omnibehavior",
            variants=(*_BASELINES, _PRAMEM),
            columns=(score("score"), *_BY_SCENE, _FAILED),
            rivals=_SYSTEMS,
            paper=printed("pramem", "table1")[:1],
            note="score: share of all fields answered right, failed parses counted wrong; the others leave them out.",
            own=OURS,
        ),
        Section(
            name="transfer",
            title="Table 1, second half: the model that practised",
            benchmark="omnibehavior",
            variants=(*_BASELINES[1:], _PRAMEM),
            columns=(score("score"), *_BY_SCENE, _FAILED),
            analyses=(transfer,),
            asks_more=True,
            paper=printed("pramem", "table1")[1:],
            own=OURS,
        ),
        Section(
            name="fig3",
            title="Figure 3: ratings",
            benchmark="movielens",
            variants=(*_BASELINES, _PRAMEM),
            columns=_RATINGS,
            analyses=(confusion,),
            note="The paper shows matrices without numbers; diagonal dominance is our formula.",
            own=OURS,
        ),
        Section(
            name="table2",
            title="Table 2: ablations, F1 by scene",
            benchmark="omnibehavior",
            variants=(
                _PRAMEM,
                _without("deep_thinking", "w/o deep-thinking trial"),
                _without("reflection", "w/o reflective proposal"),
                _without("consensus", "w/o consensual adjustment"),
            ),
            columns=(score("score"), *_F1, _FAILED),
            paper=printed("pramem", "table2"),
        ),
        Section(
            name="fig4",
            title="Figure 4: evolution of the experience",
            benchmark="omnibehavior",
            variants=tuple(map(_at, ROUNDS)),
            columns=(score("score"), *_OVERALL, count("tokens", "tokens of the experience", 0)),
            analyses=(evolution,),
            paper=printed("pramem", "fig4"),
            note="A run of fewer rounds practises the first of the same samples. A user with fewer records has fewer.",
            own=f"round {ROUNDS[-1]}",
        ),
        Section(
            name="fig5",
            title="Figure 5: one kind of experience alone",
            benchmark="omnibehavior",
            variants=(_PRAMEM, _without("alerts", "patterns alone"), _without("patterns", "alerts alone")),
            columns=(score("score"), *_OVERALL, tokens()),
            analyses=(twofold,),
        ),
        Section(
            name="fig6",
            title="Figure 6: reviews left out",
            benchmark="omnibehavior",
            variants=(
                _PRAMEM,
                _without("groundedness", "w/o groundedness review"),
                _without("generalizability", "w/o generalizability review"),
            ),
            columns=(score("score"), *_OVERALL, tokens()),
            analyses=(twofold,),
        ),
        Section(
            name="table3",
            title="Table 3: score and length of the recalled context",
            benchmark="omnibehavior",
            variants=(*_BASELINES[2:], _PRAMEM),
            columns=(score("score"), over_all("Overall F1"), tokens()),
            rivals=_SYSTEMS,
            analyses=(cost,),
            paper=printed("pramem", "table3"),
            own=OURS,
        ),
        Section(
            name="fig12",
            title="Figure 12: two memories of one user",
            benchmark="omnibehavior",
            variants=(Variant(SUMMARY, "recursive-summary"), _PRAMEM),
            columns=(score("score"), *_OVERALL),
            analyses=(side_by_side,),
            own=OURS,
        ),
    ),
)
