r"""Memory-R2's recipe: one program climbs from demonstrations in its prompts to reinforced weights.

    start ── few-shot ── GEPA ── SFT ── LoGo-GRPO

The paper trains Qwen2.5 models on LoCoMo; its tables were not available, so none is printed. Without `--lm` the
ladder is climbed by `local:tiny` on `memory-env` in some minutes: that shows that every rung works, and how the ways of
training compare in a synthetic world, nothing else.

    mempiler reproduce memory-r2
    mempiler reproduce memory-r2 --on locomo --data locomo10.json --lm local:Qwen/Qwen2.5-1.5B-Instruct \
        --prompt-lm openai/gpt-4.1 --embedder openai/text-embedding-3-small
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...optimizers.plan import Plan
from ..course import TINY
from ..setup import Setup
from ..statistics import Difference, Interval
from .columns import interval_cell
from .ladder import climb
from .ladder_plan import plan_ladder
from .made import Made
from .material import Material
from .pictures import Picture, lines
from .recipe import Recipe
from .rungs import LOGO, Ladder, Rung, Step
from .section import Section
from .tables import OurTable

FULL = Ladder(
    (
        Rung("few-shot", "bootstrap"),
        Rung("GEPA", "gepa"),
        Rung("SFT", "finetune", {"learning_rate": 1e-4, "lora": 16}),
        Rung("LoGo-GRPO", LOGO, {"lora": 16, "rollouts": 8, "local_n": 4}),
    )
)
"""For a model that has read something."""

SMALL = Ladder(
    (
        Rung("few-shot", "bootstrap", {"max_bootstrapped_demos": 2, "max_tries": 8}, questions=24),
        Rung("GEPA", "gepa", {"max_metric_calls": 40}, questions=24),
        Rung("SFT", "finetune", {"learning_rate": 1e-3, "epochs": 1, "batch_size": 24}),
        Rung("LoGo-GRPO", LOGO, {"budget": 30_000}),
    ),
    answer_tokens=96,
)
"""For local:tiny, whose rungs end in minutes on one core."""

_NOTE = (
    "The paper's tables are not at hand: none of its cells is printed here. A rung begins from the best one so far by "
    "the dev questions (greedy); kept: whether the next begins from it. Gains: on the test questions, against what it "
    "began from, paired. One seed: intervals say nothing of how another training would end."
)
_TINY_NOTE = (
    " local:tiny sees one line of the instructions and has never met demonstrations: GEPA cannot change its answers. "
    "What prompts do shows with a real model only."
)
_COST = (
    "Of tuning alone; scoring apart. Answers that an earlier rung got are not asked for again. Generated tokens are "
    "those of all models, the proposer's included. Seconds are those of this machine as it was."
)


def ladder(material: Material) -> Iterator[Made | OurTable | Picture]:
    """Climbs, and gives a row, a line of costs and a point per rung."""
    tiny = material.setup.lm == TINY
    steps = climb(_chosen(material.setup, material.bench.changes), "memory-r2", material.setup, material.bench)
    made = [Made(step.label, (step.evaluation,)) for step in steps]
    yield from made
    if not steps:
        return
    yield _results(steps, made, _NOTE + (_TINY_NOTE if tiny else ""))
    yield _sampled(steps)
    yield _costs(steps)
    yield _picture(material, steps)


def planned(setup: Setup, changes: Mapping[str, Any]) -> tuple[Plan, tuple[str, ...]]:
    """What the ladder takes."""
    return plan_ladder(_chosen(setup, changes), "memory-r2", setup)


def _chosen(setup: Setup, changes: Mapping[str, Any]) -> Ladder:
    return (SMALL if setup.lm == TINY else FULL).told(changes)


def _results(steps: Sequence[Step], made: Sequence[Made], note: str) -> OurTable:
    columns = ("rung", "begins from", "dev", "kept", "n", "greedy", "95 % interval", "gain, 95 % interval")
    rows = [
        (
            step.label,
            step.begun_from or "-",
            f"{_number(step.dev[1])}{_span(step.dev_interval)}",
            "yes" if step.kept else "no",
            str(step.evaluation.n),
            _number(step.evaluation.score),
            interval_cell(each),
            _gain(step.gain),
        )
        for step, each in zip(steps, made, strict=True)
    ]
    dev = f" Dev questions: {steps[0].dev_n}."
    return OurTable("the ladder: held-out questions, greedy", columns, tuple(rows), note + dev + _caution(steps))


def _sampled(steps: Sequence[Step]) -> OurTable:
    columns = ("rung", "n", "sampled", "95 % interval", "gain, 95 % interval")
    rows = []
    for step in steps:
        span = _span(step.sampled_interval).strip() or "-"
        rows.append((step.label, str(step.sampled.n), _number(step.sampled.score), span, _gain(step.sampled_gain)))
    return OurTable("the ladder: memories written at temperature 1", columns, tuple(rows))


def _caution(steps: Sequence[Step]) -> str:
    """Notes which greedy numbers are less reliable than they seem."""
    tied = ", ".join(step.label for step in steps if step.near_tie)
    alone = ", ".join(step.label for step in steps if step.greedy_alone)
    told = ""
    if tied:
        told += (
            f" Caution: greedy is far below sampled for {tied}, as where a wrong operation is barely the likeliest. A "
            "little training turns such answers over, so greedy gains from there overstate what was learned."
        )
    if alone:
        told += f" Caution: the gain of {alone} is one of greedy answers alone."
    return told


def _gain(found: Difference | None) -> str:
    if found is None:
        return "-"
    told = "" if found.interval is None else f" [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"{found.mean:+.3f}{told}"


def _span(found: Interval | None) -> str:
    return "" if found is None else f" [{found.low:.3f}, {found.high:.3f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _costs(steps: Sequence[Step]) -> OurTable:
    columns = ("rung", "by", "LM calls", "proposals", "generated tokens", "seconds", "scoring calls", "scoring s", "")
    rows = [
        (
            step.label,
            step.optimizer or "-",
            f"{step.used.calls['task']:,}",
            f"{step.used.calls['prompt']:,}",
            f"{step.used.output_tokens:,}",
            f"{step.seconds:.1f}",
            f"{step.scoring.calls['task']:,}",
            f"{step.scoring_seconds:.1f}",
            step.told,
        )
        for step in steps
    ]
    last = [step for step in steps if step.kept][-1]
    kept = f" Kept at the end: {last.label}, {last.program} with --lm {last.model}"
    return OurTable("the ladder: what each rung took", columns, tuple(rows), _COST + kept)


def _picture(material: Material, steps: Sequence[Step]) -> Picture:
    """Greedy and sampled test score over the tokens generated up to each rung."""
    xs = [float(total) for total in accumulate(step.used.output_tokens for step in steps)]
    greedy, sampled = [step.evaluation.score for step in steps], [step.sampled.score for step in steps]
    names = ", ".join(step.label for step in steps)
    title = material.title(f"{names}: held-out questions, n = {steps[0].evaluation.n}")
    series = {"greedy": (xs, greedy), "sampled": (xs, sampled)}
    return Picture("ladder", lines(title, "tokens generated by tuning, up to and with the rung", series))


MEMORY_R2 = Recipe(
    name="memory-r2",
    summary="learned memory operations: few-shot, GEPA, SFT and LoGo-GRPO on one program",
    sections=(
        Section(
            "ladder",
            "few-shot, GEPA, SFT, LoGo-GRPO",
            "memory-env",
            analyses=(ladder,),
            planned=planned,
            others=("locomo",),
        ),
    ),
    offline_options={"memory-env": {"users": 100}},
    offline_lm=TINY,
    rungs=tuple(rung.key for rung in SMALL.rungs),
)
