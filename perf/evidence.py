"""Runs the compiles of docs/data/evidence.json with a small language model, and records their figures.

    cell: a command, and its split ── mempiler compile ──> its figures ──> tables over all cells ──> docs/evidence.md

Every cell is one `mempiler compile` in a process of its own, with a results folder of its own below OUT; one that was
killed goes on with `--resume`. A cell without figures is run, one that has them is not; a further one is a further
entry of "cells" with `on`, `seed`, `lm`, `command` and a `variant`, which says what is set otherwise than in the cells
that it is compared with, or is empty. The file is in the repository, so that runs on several machines
add up. The site draws the tables of the page from it.

The genuine LoCoMo is not in the repository; a cell keeps its digest. Nothing else may use the cores meanwhile: the
engine then is many times slower, though not different.

Usage:
    $ python perf/evidence.py --locomo locomo2.json --only turn-rag
    $ python perf/evidence.py --locomo locomo2.json --only "gepa --adapter chat" --again
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import string
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mempiler.runs.statistics import compare_paired_scores

Cell = dict[str, Any]
DATA = Path(__file__).parents[1] / "docs" / "data" / "evidence.json"
LOCOMO = "locomo2.json"
"""What the genuine file is called in commands."""
LOCOMO_REVERSED = "locomo2r.json"
"""The genuine file with its two conversations in reverse order, which tests conv-26."""
PHASES = ("before", "after")
ROW = ("method", "on", "adapter", "lm", "variant")
"""What the cells of a row have in common."""
KEPT = ("category", "in_headline", "score", "failure", "context_tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description="What compiling does to a small language model.")
    parser.add_argument("--locomo", required=True, help="the genuine file")
    parser.add_argument("--data", type=Path, default=DATA, help="the cells [default: those of the documentation]")
    parser.add_argument("--out", type=Path, default=Path("evidence"), help="folder of the runs")
    parser.add_argument("--only", default="", help="cells whose command holds this")
    parser.add_argument("--again", action="store_true", help="also cells that have figures")
    parser.add_argument("--engine", default="the wheel of xllamacpp", help="what runs llama.cpp, for the page")
    parser.add_argument("--file", help="a GGUF file that runs instead of the named weights, e.g. in another encoding")
    chosen = parser.parse_args()
    found = json.loads(chosen.data.read_text(encoding="utf-8"))
    for cell in found["cells"]:
        if chosen.only in cell["command"] and ("before" not in cell or chosen.again):
            run(cell, chosen)
            keep(found, chosen.data)


def keep(found: dict[str, Any], path: Path) -> None:
    """Writes cells, and the tables over all that have figures; a line each."""
    done = [cell for cell in found["cells"] if "before" in cell]
    found |= {"machines": name_machines(done)}
    for cell in done:
        cell["test"] = tested_conversation(cell)
    found |= {"overview": overview(done), "together": together(done), "adapters": adapters(done)}
    genuine = sorted((cell for cell in done if cell["on"] == "locomo"), key=lambda cell: cell["difference"]["mean"])
    found |= {"worst": [row for cell in genuine[:1] for row in questions(cell)]}
    found |= {"best": [row for cell in genuine[-1:] for row in questions(cell)]}
    between = ",\n"
    parts = (f'"{name}": [\n{between.join(map(json.dumps, rows))}\n]' for name, rows in found.items())
    path.write_text(f"{{{between.join(parts)}}}\n", encoding="utf-8")


def run(cell: Cell, chosen: argparse.Namespace) -> None:
    """Runs or resumes a cell; a failed one has its last line instead of figures."""
    model = f"gguf:{chosen.file or cell['lm']}"
    words = [model if word.startswith("gguf:") else word for word in shlex.split(cell["command"])]
    shown = [re.sub(r"^gguf:.*/", "gguf:", word) for word in words]
    words = [chosen.locomo if word == LOCOMO else word for word in words]
    home = (chosen.out / hashlib.sha256(cell["command"].encode()).hexdigest()[:16] / "home").resolve()
    print(f"{time.strftime('%H:%M')} {cell['command']}", flush=True)
    # The last run that is there was stopped, killed, or failed.
    resumed = [f"--resume={path.parent.name}" for path in sorted(home.glob("*/run.json"))[-1:]]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *words, *resumed, "--json"],
        env={**os.environ, "MEMPILER_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        cell["failed"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"      failed: {cell['failed']}", flush=True)
        return
    cell.pop("failed", None)
    outcome = json.loads(done.stdout)
    folder = Path(outcome["run"])
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))["parameters"]
    rows = {phase: _rows(folder / f"{phase}_rows.jsonl") for phase in PHASES}
    cell |= {"command": shlex.join(shown), "run by": chosen.engine, "seconds": round(time.monotonic() - began)}
    cell |= figures(outcome, about, rows) | {"went on": bool(resumed)}
    print(f"      {cell['before']:.3f} -> {cell['after']:.3f}, {cell['seconds']} s", flush=True)


def figures(outcome: dict[str, Any], about: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> Cell:
    """What is kept of a run: no folder, address or text of this machine."""
    usage, before, after = (outcome[name] for name in ("usage", "before", "after"))
    answers = usage["call_outcomes"]
    writing = Counter[str]()
    for name, counts in answers.items():
        writing.update(counts if ".writer." in name else {})
    cached = usage.get("prompt_cache") or {}
    found: Cell = {
        "method": before["program"],
        "with": outcome["optimizer"]["optimizer"],
        "adapter": about["adapter"],
        "embedder": about["embedder"],
        "n": before["n"],
        "before": before["score"],
        "after": after["score"],
        "difference": _gain(outcome["difference"]),
        "on dev": _gain(outcome["dev_difference"]),
        "notes": outcome["optimizer"].get("notes", []),
        "calls": usage["calls"]["task"] + usage["calls"]["prompt"],
        "from cache": usage["calls"].get("cached", 0),
        "tokens in": usage["tokens"]["input"],
        "cached": cached["reused"] / cached["told"] if cached.get("told") else None,
        "tokens a question": [each["prompt_tokens"] and round(each["prompt_tokens"]) for each in (before, after)],
        "tokens out": usage["tokens"]["output"],
        "lost calls": sum(counts.get("lost", 0) for counts in answers.values()),
        "unwritten": writing["lost"] / writing.total() if writing else None,
        "ended by": outcome["stopped"],
        "data": about["data_sha256"],
        "temperature": 0,
    }
    for phase, each in rows.items():
        found |= {
            f"{name}, {phase}": value for name, value in _stages([row for row in each if row["in_headline"]]).items()
        }
    same = rows["before"] == rows["after"] and before["prompt_tokens"] == after["prompt_tokens"]
    better = found["on dev"] is not None and found["on dev"]["mean"] > 0 and found["on dev"]["interval"][0] >= 0
    found["kept"] = "as before" if same else "yes" if better else "no"
    return found | {"questions": {phase: _columns(each) for phase, each in rows.items()}}


def name_machines(cells: Iterable[Cell]) -> list[Cell]:
    """Give every cell the letter of what ran its model, and return what the letters stand for.

    The descriptions are long, and many cells share one.
    """
    letters: dict[str, str] = {}
    for cell in cells:
        letter = string.ascii_uppercase[len(letters)]
        cell["machine"] = letters.setdefault(cell["run by"], letter)
    return [{"machine": letter, "what it is": text} for text, letter in letters.items()]


def tested_conversation(cell: Cell) -> str:
    """Return which genuine conversation of LoCoMo has the test questions; "sample" for all other data."""
    if cell["on"] != "locomo":
        return "sample"
    return "conv-26" if LOCOMO_REVERSED in cell["command"] else "conv-30"


def together(cells: Iterable[Cell]) -> list[Cell]:
    """What splits with different test users say together."""
    splits = _grouped(cells, lambda cell: (cell["with"], *(cell[name] for name in ROW)))
    return [_pooled(found) for found in splits.values() if len(found) > 1]


def overview(cells: Iterable[Cell]) -> list[Cell]:
    """Return a row per method, benchmark, model and variant, with a column per optimizer.

    A column holds the score after compiling. Optimizers share a row only if they were scored on as
    many questions and began with the same score.
    """
    rows: list[Cell] = []
    for cells_of_row in _grouped(cells, lambda cell: tuple(cell[name] for name in ROW)).values():
        by_optimizer = _grouped(cells_of_row, lambda cell: cell["with"])
        pooled = [_pooled(cells_of_optimizer) for cells_of_optimizer in by_optimizer.values()]
        same_start = _grouped(pooled, lambda each: (each["n"], round(each["before"], 3)))
        rows += [_overview_row(optimizers) for optimizers in same_start.values()]
    return rows


def _overview_row(optimizers: Sequence[Cell]) -> Cell:
    """Return one row of the overview: scores by optimizer, and whose interval lies above zero."""
    first = optimizers[0]
    row: Cell = {name: first[name] for name in (*ROW, "n", "before")}
    row["above zero"] = []
    for optimizer in optimizers:
        row[optimizer["with"]] = "=" if optimizer["same"] else optimizer["after"]
        if optimizer["difference"]["interval"][0] > 0:
            row["above zero"].append(optimizer["with"])
    return row


def adapters(cells: Iterable[Cell]) -> list[Cell]:
    """The same questions under JSON schemas and under plain chat: starts first, then what was compiled."""
    sides: dict[str, dict[tuple[Any, ...], tuple[Cell, str]]] = {"auto": {}, "chat": {}}
    for phase in PHASES:
        for cell in cells:
            named = cell["with"] if phase == "after" else "(before)"
            sides[cell["adapter"]].setdefault(
                (cell["method"], cell["on"], cell["seed"], cell["lm"], named), (cell, phase)
            )
    lines: list[Cell] = []
    for (method, on, seed, lm, named), auto in sides["auto"].items():
        if chat := sides["chat"].get((method, on, seed, lm, named)):
            scores = [_scores(*each) for each in (auto, chat)]
            line = {"method": method, "on": on, "seed": seed, "lm": lm, "with": named, "n": len(scores[0])}
            gain = compare_paired_scores(scores[1], scores[0], [str(n) for n in range(len(scores[0]))]).to_dict()
            line |= {"auto": fmean(scores[0]), "chat": fmean(scores[1]), "difference": _gain(gain)}
            for name, (cell, phase) in (("auto", auto), ("chat", chat)):
                line |= {f"lost, {name}": cell[f"lost, {phase}"], f"unwritten, {name}": cell["unwritten"]}
            lines.append(line)
    return lines


def questions(cell: Cell) -> list[Cell]:
    """The questions of a cell that count, in their order, without their texts."""
    named = {"evidence shown": "shown", "words": "answer_words", "score": "score"}
    before, after = (cell["questions"][phase] for phase in PHASES)
    counted = [(n, category) for n, category in enumerate(before["category"]) if before["in_headline"][n]]
    pairs = [{name: [before[of][n], after[of][n]] for name, of in named.items()} for n, _ in counted]
    return [
        {"question": n + 1, "category": category, **pair} for (n, category), pair in zip(counted, pairs, strict=True)
    ]


def _pooled(cells: Sequence[Cell]) -> Cell:
    """One cell over the splits of several."""
    first = {name: cells[0][name] for name in ("with", *ROW)}
    before, after = ([score for cell in cells for score in _scores(cell, phase)] for phase in PHASES)
    gain = compare_paired_scores(
        after, before, [str(cell["seed"]) for cell in cells for _ in _scores(cell, "before")]
    ).to_dict()
    about = {"splits": len(cells), "n": len(before), "before": fmean(before), "after": fmean(after)}
    difference = cells[0]["difference"] if len(cells) == 1 else _gain(gain)
    same = all(cell["kept"] == "as before" for cell in cells)
    return first | about | {"difference": difference, "better": gain["wins"], "worse": gain["losses"], "same": same}


def _grouped(cells: Iterable[Cell], key: Callable[[Cell], Any]) -> dict[Any, list[Cell]]:
    found: dict[Any, list[Cell]] = {}
    for cell in cells:
        found.setdefault(key(cell), []).append(cell)
    return found


def _scores(cell: Cell, phase: str) -> list[float]:
    asked = cell["questions"][phase]
    return [score for score, counts in zip(asked["score"], asked["in_headline"], strict=True) if counts]


def _stages(rows: Sequence[dict[str, Any]]) -> Cell:
    """Where questions are lost, in shares of those that count."""
    shown = [row for row in rows if row["shown"]]
    missed = [row for row in shown if row["failure"] is None and row["score"] == 0]
    return {
        "lost": sum(row["failure"] is not None for row in rows) / len(rows),
        "not shown": sum(row["shown"] == 0 for row in rows) / len(rows),
        "shown and missed": len(missed) / len(rows),
        "score where shown": fmean(row["score"] for row in shown) if shown else None,
        "n where shown": len(shown),
        "words": [round(fmean(row[name] for row in rows), 1) for name in ("answer_words", "gold_words")],
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    words = {"answer_words": "answer", "gold_words": "gold"}
    return [
        {name: row[name] for name in KEPT}
        | {"shown": row["recall"].get("shown")}
        | {name: len(row[of].split()) for name, of in words.items()}
        for row in rows
    ]


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _gain(found: dict[str, Any] | None) -> Cell | None:
    return found and {"mean": found["mean"], "interval": found["interval"]}


if __name__ == "__main__":
    main()
