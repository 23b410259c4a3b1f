"""What the cells of `perf/evidence.py` say, as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Cell = dict[str, Any]

HEAD = """# What compiling does to a small language model

Made by `perf/evidence.py`; numbers are what was measured and nothing else. The model is Qwen2.5-Coder-0.5B-Instruct
(GGUF, Q4_K_M unless "run by" says otherwise), which llama.cpp runs on one or two cores. `locomo` is the genuine LoCoMo,
conv-26 to train and conv-30 for dev and test (questions of categories 1 to 4 count); everything else is a bundled
sample. That of PAL-Bench (users in English) words four needs alike for every user: demos of another one come close to
the answers. Every compiled program is scored, kept or not (`--force`); "kept" says whether the interval on the dev
questions lies above zero; they are fewer than the 20 that a promotion wants (`--min-n`). Intervals are 95 %, paired by
question; those of four questions are narrower than they ought to be.
Greedily (temperature 0 under "What it took") two runs need not give every answer alike: with several prompts at a time
the engine rounds one otherwise in another batch. turn-rag with labeled demos was .284 -> .282 with two at a time, and
.300 -> .279 with one, where nothing depends on that; sampled at .8, .165 -> .268 once and .279 -> .270 another time, so
nothing here is sampled. A model this small says whether compiling does something, not how good a method is. Rows of
another model name it beside the method.
"""

OVERVIEW = """
## At a glance

Scores of the start, and of what each optimizer made of it; splits with other test users together. **Bold**: the paired
interval lies above zero. `=`: asks and answers as the start does. The start is that of the first optimizer's run; where
machines differ, so does another's a little, and each is compared with its own.

"""
MODEL = "qwen2.5-coder-0.5b"
"""The model of cells that name none."""

ADAPTERS = """
## JSON schemas or plain chat

The same questions under both adapters: the score under chat minus that under `auto`, paired; the shares of questions
without a readable answer, and of the answers for writing that could not be read. Each adapter has its own memories,
written under it. Turns that could not be taken in are searched as they were said: where most are lost, as RGMem's are
under chat, a score is that of searching turns.

| method | on | with | n | auto | chat | difference | lost, auto | lost, chat | unwritten, auto | unwritten, chat |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""

FAILED = """
## What did not end

| cell | last line |
| --- | --- |
"""


WEIGHTS = "\n## Weights in the place of prompts\n"
LADDER = """
SmolLM2-135M-Instruct on memory-env ({sessions} sessions, {n} questions about {people} users that nothing else saw,
exact match), by `python perf/pretrained.py --out DIR --dtype {dtype}` on one core. The first three rungs keep its
weights: prompts with all rules, with demonstrations, with the best of some draws of them by the dev users. The others
train an adapter of rank {lora} under prompts of one line: SFT from the model as it was, GRPO and LoGo-GRPO from SFT,
with as many generated tokens. A difference is to the rung that a rung begins from, paired, its interval of 95 % over
users; seconds are of tuning and of scoring; one seed. A training that keeps step 0 has the weights of SFT, and yet
another greedy score: in bfloat16 logits are far apart or equal, and a batch rounds otherwise. Of 48 greedy completions
of the untrained model 13 to 16 changed with their batch, and 2.0 % of its tokens had two best logits that were equal;
in float32 none did (`python perf/ties.py smollm2`).

"""


def page(cells: Sequence[Cell], ladder: Sequence[Cell] = (), before: str = "") -> str:
    """The page.

    Args:
        cells: Results in the order of the table.
        ladder: The rungs of `perf/pretrained.py`.
        before: The page as it was: without rungs, its section of them stays.
    """
    done, failed = [cell for cell in cells if "outcome" in cell], [cell for cell in cells if "failed" in cell]
    parts = [HEAD, _overview(done), _scores(done), _adapters(done), _stages(done), _costs(done), _commands(done)]
    if failed:
        parts.append(FAILED + "".join(f"| {cell['cell']} | {cell['failed'][:200]} |\n" for cell in failed))
    told = _ladder(ladder) if ladder else before.partition(WEIGHTS)[2]
    return "".join([*parts, WEIGHTS + told] if told else parts)


def _ladder(rungs: Sequence[Cell]) -> str:
    from pretrained import table

    users = rungs[0]["greedy"]["users"]
    about = LADDER.format(**rungs[0]["settings"], n=len(users), people=len(set(users)))
    return about + table(rungs)


def _table(title: str, about: str, columns: dict[str, Callable[[Cell], str]], cells: Sequence[Cell]) -> str:
    head = " | ".join(columns)
    rule = " | ".join("---" for _ in columns)
    rows = "".join(f"| {' | '.join(made(cell) for made in columns.values())} |\n" for cell in cells)
    return f"\n## {title}\n\n{about}\n\n| {head} |\n| {rule} |\n{rows}"


def _overview(cells: Sequence[Cell]) -> str:
    """A row per method, benchmark and adapter."""
    rows: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
    for cell in cells:
        key = (_method(cell), cell["on"], str(cell["run"]["parameters"]["adapter"]))
        rows.setdefault(key, {}).setdefault(cell["outcome"]["optimizer"]["optimizer"], []).append(cell)
    optimizers = list(dict.fromkeys(name for found in rows.values() for name in found))
    lines = []
    for key, found in rows.items():
        first = next(iter(found.values()))
        begun = [row["score"] for cell in first for row in _counted(cell, "start")]
        shown = [_glance(found[name]) if name in found else "-" for name in optimizers]
        lines.append(" | ".join([*key, str(len(begun)), _number(sum(begun) / len(begun)), *shown]))
    head = ["method", "on", "adapter", "n", "start", *optimizers]
    table = [" | ".join(head), " | ".join("---" for _ in head), *lines]
    return OVERVIEW + "".join(f"| {line} |\n" for line in table)


def _glance(cells: Sequence[Cell]) -> str:
    """What an optimizer came to, over the splits."""
    if all(map(_unchanged, cells)):
        return "="
    _, after, gain = _gain(cells)
    alone = cells[0]["outcome"]["difference"]["interval"][0]
    low = gain.interval.low if len(cells) > 1 and gain.interval else alone
    score = _number(sum(after) / len(after))
    return f"**{score}**" if low > 0 else score


def _gain(cells: Sequence[Cell]) -> tuple[list[float], list[float], Any]:
    """Scores before and after of the questions of several splits, and their paired difference."""
    from mempiler.runs.statistics import paired

    before, after = ([row["score"] for cell in cells for row in _counted(cell, phase)] for phase in ("start", "result"))
    users = [str(cell.get("seed")) for cell in cells for _ in _counted(cell, "start")]
    return before, after, paired(after, before, users)


def _scores(cells: Sequence[Cell]) -> str:
    columns: dict[str, Callable[[Cell], str]] = {
        **_WHO,
        "n": lambda cell: str(cell["outcome"]["start"]["n"]),
        "start": lambda cell: _number(cell["outcome"]["start"]["score"]),
        "compiled": lambda cell: _number(cell["outcome"]["result"]["score"]),
        "difference": lambda cell: _difference(cell["outcome"]["difference"]),
        "on dev": lambda cell: _difference(cell["outcome"]["dev_difference"]),
        "kept": lambda cell: "as the start" if _unchanged(cell) else _kept(cell),
    }
    above = [cell for cell in cells if cell["outcome"]["difference"]["interval"][0] > 0]
    below = [cell for cell in cells if cell["outcome"]["difference"]["interval"][1] < 0]
    same = sum(map(_unchanged, cells))
    about = (
        f"Of {len(cells)} compiled programs the interval of the difference lies above zero for {len(above)}, below "
        f"zero for {len(below)}, and holds zero for {len(cells) - len(above) - len(below)}, of which {same} ask and "
        "answer just as the start does: the optimizer found nothing better, or nothing to make demos of. Where there "
        "is nothing but chance, one interval of 95 % in forty lies above zero: one that nearly holds zero says little."
    )
    return _table("Scores on test questions", about + _pooled(cells), columns, cells) + _notes(cells)


def _unchanged(cell: Cell) -> bool:
    """Whether every question has the prompt length and the outcome of the start."""
    start, result = (cell["outcome"][phase]["prompt_tokens"] for phase in ("start", "result"))
    return start == result and cell["rows"]["start"] == cell["rows"]["result"]


def _notes(cells: Sequence[Cell]) -> str:
    """What the runs told of their demos."""
    told: dict[str, list[str]] = {}
    for cell in cells:
        for note in cell["outcome"]["optimizer"].get("notes", ()):
            who = [made(cell) for name, made in _WHO.items() if name != "embedder"]
            told.setdefault(note, []).append(" ".join(who))
    lines = "".join(f"- {note}: {'; '.join(cells)}\n" for note, cells in told.items())
    return f"\nWhat the runs told of their demos:\n\n{lines}" if lines else ""


def _pooled(cells: Sequence[Cell]) -> str:
    """What splits with different test users say together."""
    splits: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        who = tuple(made(cell) for name, made in _WHO.items() if name != "on")
        splits.setdefault((*who[:1], cell["on"], *who[1:]), []).append(cell)
    lines: list[str] = []
    for (method, on, optimizer, adapter, _), found in splits.items():
        if len(found) > 1:
            before, after, gain = _gain(found)
            ends = f" [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}]" if gain.interval else ""
            lines.append(
                f"\n- {method} on {on} with {optimizer} under {adapter}, its {len(found)} splits together, each with "
                f"another user in test: {_number(sum(before) / len(before))} -> {_number(sum(after) / len(after))}, "
                f"{gain.mean:+.3f}{ends}, n = {len(before)}; {gain.wins} better, {gain.losses} worse."
            )
    return "\n" + "".join(lines) if lines else ""


def _adapters(cells: Sequence[Cell]) -> str:
    """The same programs under JSON schemas and under plain chat: starts first, then what was compiled."""
    from mempiler.runs.statistics import paired

    sides: dict[str, dict[tuple[str, ...], tuple[Cell, str]]] = {"auto": {}, "chat": {}}
    for phase in ("start", "result"):
        for cell in cells:
            who = {name: made(cell) for name, made in _WHO.items()}
            named = who["with"] if phase == "result" else "(start)"
            sides[who["adapter"]].setdefault((who["method"], who["on"], named), (cell, phase))
    lines: list[str] = []
    for key, auto in sides["auto"].items():
        if (chat := sides["chat"].get(key)) is None:
            continue
        rows = [_counted(*each) for each in (auto, chat)]
        scores = [[row["score"] for row in each] for each in rows]
        gain = paired(scores[1], scores[0], [str(n) for n in range(len(scores[0]))])
        ends = f" [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}]" if gain.interval else ""
        shown = [str(len(rows[0])), *(_number(sum(each) / len(each)) for each in scores), f"{gain.mean:+.3f}{ends}"]
        lost = [f"{sum(row['failure'] is not None for row in each) / len(each):.2f}" for each in rows]
        lines.append(f"| {' | '.join([*key, *shown, *lost, *(_unwritten(each[0]) for each in (auto, chat))])} |\n")
    return ADAPTERS + "".join(lines) if lines else ""


def _unwritten(cell: Cell) -> str:
    """The share of the answers for writing that could not be read."""
    found = [counts for name, counts in cell["outcome"]["usage"]["answers"].items() if ".writer." in name]
    lost, every = (sum(counts.get("lost", 0) for counts in found), sum(sum(counts.values()) for counts in found))
    return f"{lost / every:.2f}" if every else "-"


def _stages(cells: Sequence[Cell]) -> str:
    columns: dict[str, Callable[[Cell], str]] = {**_WHO}
    for phase in ("start", "result"):
        said = "compiled" if phase == "result" else phase
        columns |= {
            f"lost, {said}": lambda cell, p=phase: _share(cell, p, lambda row: row["failure"] is not None),
            f"not shown, {said}": lambda cell, p=phase: _share(cell, p, lambda row: _shown(row) == 0),
            f"shown and missed, {said}": lambda cell, p=phase: _share(cell, p, _missed),
            f"score where shown, {said}": _score_where_shown(phase),
            f"words, {said}": lambda cell, p=phase: _words(cell, p),
        }
    about = (
        "Where questions are lost, in shares of those that count: no readable answer; no evidence among what was "
        "recalled; evidence recalled, and nothing of the answer right. Then the mean score where evidence was "
        "recalled, and the words of an answer beside those of the gold one. Benchmarks without evidence labels "
        "have no such shares."
    )
    return _table("Where it breaks", about, columns, cells)


def _costs(cells: Sequence[Cell]) -> str:
    columns: dict[str, Callable[[Cell], str]] = {
        **_WHO,
        "calls": lambda cell: _sum(cell["outcome"]["usage"]["calls"], ("task", "prompt")),
        "from cache": lambda cell: str(cell["outcome"]["usage"]["calls"].get("cached", 0)),
        "tokens in": lambda cell: f"{cell['outcome']['usage']['tokens']['input']:,}",
        "cached": lambda cell: _cached(cell["outcome"]["usage"].get("prompt_cache") or {}),
        "a question": lambda cell: " -> ".join(_prompt(cell, phase) for phase in ("start", "result")),
        "tokens out": lambda cell: f"{cell['outcome']['usage']['tokens']['output']:,}",
        "lost calls": lambda cell: str(sum(found.get("lost", 0) for found in _answers(cell))),
        "seconds": lambda cell: f"{cell['seconds']:,}" + (" (went on)" if cell["resumed"] else ""),
        "temperature": lambda cell: f"{cell['temperature']:g}",
        "run by": lambda cell: cell["engine"],
        "ended by": lambda cell: cell["outcome"]["stopped"] or "",
    }
    about = (
        "Of the whole run: dev questions, compiling, test questions before and after. Calls that an earlier run had "
        "made with the same prompt come from DSPy's cache. `cached` is the share of prompt tokens that the server had "
        "read before; the tokens a question are those of its prompts before and after."
    )
    return _table("What it took", about, columns, cells)


def _commands(cells: Sequence[Cell]) -> str:
    lines = [
        f"- `{cell['command']}`: data {str(cell['run']['parameters']['data_sha256'])[:12]}, "
        f"weights {cell['weights'][:12]}\n"
        for cell in cells
    ]
    return "\n## Commands\n\n" + "".join(lines)


def _method(cell: Cell) -> str:
    named, lm = f"`{cell['outcome']['start']['program']}`", cell.get("lm", MODEL)
    return named if lm == MODEL else f"{named}, {lm}"


_WHO: dict[str, Callable[[Cell], str]] = {
    "method": _method,
    "on": lambda cell: cell["on"] + (f", seed {cell['seed']}" if cell.get("seed") else ""),
    "with": lambda cell: cell["outcome"]["optimizer"]["optimizer"],
    "adapter": lambda cell: str(cell["run"]["parameters"]["adapter"]),
    "embedder": lambda cell: str(cell["run"]["parameters"]["embedder"] or "-"),
}


def _number(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _difference(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    low, high = found["interval"]
    return f"{found['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _kept(cell: Cell) -> str:
    found = cell["outcome"]["dev_difference"]
    return "yes" if found is not None and found["mean"] > 0 and found["interval"][0] >= 0 else "no"


def _counted(cell: Cell, phase: str) -> list[dict[str, Any]]:
    return [row for row in cell["rows"][phase] if row["counts"]]


def _shown(row: dict[str, Any]) -> float | None:
    return row["recall"].get("shown")


def _missed(row: dict[str, Any]) -> bool:
    return bool(_shown(row)) and row["failure"] is None and row["score"] == 0


def _share(cell: Cell, phase: str, wrong: Callable[[dict[str, Any]], bool]) -> str:
    rows = _counted(cell, phase)
    return f"{sum(map(wrong, rows)) / len(rows):.2f}" if rows else "-"


def _score_where_shown(phase: str) -> Callable[[Cell], str]:
    def made(cell: Cell) -> str:
        scores = [row["score"] for row in _counted(cell, phase) if _shown(row)]
        return f"{_number(sum(scores) / len(scores))} (n = {len(scores)})" if scores else "-"

    return made


def _words(cell: Cell, phase: str) -> str:
    rows = _counted(cell, phase)
    sizes = [sum(row[of] for row in rows) / len(rows) for of in ("answer_words", "gold_words")] if rows else []
    return " / ".join(f"{size:.1f}" for size in sizes) or "-"


def _cached(counts: dict[str, int]) -> str:
    return f"{counts['reused'] / counts['told']:.2f}" if counts.get("told") else "-"


def _prompt(cell: Cell, phase: str) -> str:
    found = cell["outcome"][phase]["prompt_tokens"]
    return "-" if found is None else f"{found:,.0f}"


def _answers(cell: Cell) -> list[dict[str, int]]:
    return list(cell["outcome"]["usage"]["answers"].values())


def _sum(counts: dict[str, int], names: Sequence[str]) -> str:
    return f"{sum(counts.get(name, 0) for name in names):,}"
