"""Run compiles with a small language model: the figures of docs/evidence.md.

Every record of "cells" in docs/data/evidence.json is one `mempiler compile`: a method, a benchmark
with a split, an optimizer and a model. This script runs the cells that have no figures yet, each in
a process of its own with a results folder of its own below `--out`, writes their figures into the
file, and computes the tables over all cells anew. Run `make docs`
afterwards, which draws the pages from the file.

    a cell's command ── mempiler compile ──> its figures ──> tables over all cells ──> the pages

A cell that was killed goes on with `--resume` the next time. To add a cell, add a record with "on",
"seed", "lm", "command" and "variant"; "variant" says what is set otherwise than in the cells that
it is compared with, and may be empty. The file is in the repository, so runs of several machines
add up. The genuine LoCoMo is not: give it with `--locomo`; a cell keeps its digest.

Usage:
    $ python perf/evidence.py --locomo locomo2.json --only turn-rag
    $ python perf/evidence.py --locomo locomo2.json --only "gepa --adapter chat" --again

Sample output (hours, on two cores):
    10:12 mempiler compile turn-rag --benchmark locomo --data locomo2r.json --lm gguf:...
          0.380 -> 0.473, 3885 s

Figures of a cell, each also a column of the page:
    before, after         score of the program before the compile and of the compiled one, over n
                          test questions
    difference            mean of the paired differences, with its 95 % interval
    on dev                the same on the questions that the optimizer chose by
    kept                  "yes" if the interval on dev is not below zero and its mean is above,
                          "as before" if prompts and answers did not change
    lost                  share of questions without a readable answer
    not shown             share of questions whose prompt had nothing of the evidence
    shown and missed      share of questions with evidence in the prompt, and a score of 0
    score where shown     mean score of the questions with evidence in the prompt
    unwritten             share of unreadable answers among those that write memories
    cached                share of prompt tokens that the server had in its cache

How to read it:
    The interval of the difference tells a gain from chance; one in forty lies above zero by chance.
    Answers are at temperature 0, so only other splits and seeds are further samples. Seconds depend
    on the machine and on whatever else runs on it: leave its cores to the script.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence_tables import (
    PHASES,
    Cell,
    Gain,
    Phase,
    QuestionColumns,
    Record,
    all_tables,
    gain_of,
    name_machines,
    tested_conversation,
)

DATA = Path(__file__).parents[1] / "docs" / "data" / "evidence.json"
LOCOMO = "locomo2.json"
"""The name of the genuine file in the commands."""
GGUF = "gguf:"
DESCRIPTION = ("on", "seed", "lm", "command", "variant")
"""What a cell says before it was run."""


@dataclass(frozen=True)
class QuestionRow:
    """What is kept of a row of a run: no text, since the genuine texts are not ours."""

    category: str
    in_headline: bool
    """Whether the question counts for the score."""
    score: float
    failure: str | None
    context_tokens: int | None
    shown: float | None
    """The share of the evidence that was in the prompt; None if that is not known."""
    answer_words: int
    gold_words: int

    @classmethod
    def from_record(cls, record: Record) -> QuestionRow:
        return cls(
            category=record["category"],
            in_headline=record["in_headline"],
            score=record["score"],
            failure=record["failure"],
            context_tokens=record["context_tokens"],
            shown=record["recall"].get("shown"),
            answer_words=len(record["answer"].split()),
            gold_words=len(record["gold"].split()),
        )


@dataclass(frozen=True)
class CompiledRun:
    """What a compile printed, and what it left in its folder."""

    outcome: Record
    """What it printed."""
    parameters: Record
    """With what it was run."""
    rows: dict[Phase, list[QuestionRow]]
    question_ids: dict[Phase, list[str]]
    """The ids of the rows, which are not published; the failure of a cell may name one."""


def update_tables(document: dict[str, list[Any]]) -> None:
    """Compute the tables over all cells that have figures, and put them into the document."""
    measured = [cell for cell in document["cells"] if "before" in cell]
    document["machines"] = name_machines(measured)
    for cell in measured:
        cell["test"] = tested_conversation(cell)
    document.update(all_tables(measured))


def write_document(document: dict[str, list[Any]], path: Path) -> None:
    """Write the document as JSON, with a line for each record."""
    parts: list[str] = []
    for name, records in document.items():
        lines = ",\n".join(json.dumps(record) for record in records)
        parts.append(f'"{name}": [\n{lines}\n]')
    text = ",\n".join(parts)
    path.write_text(f"{{{text}}}\n", encoding="utf-8")


def run_cell(cell: Cell, options: argparse.Namespace) -> None:
    """Run or resume a cell, and put its figures into it, or the last line of its error."""
    model = f"{GGUF}{options.file or cell['lm']}"
    words = shlex.split(cell["command"])
    command = [model if word.startswith(GGUF) else word for word in words]
    # The file is published: folders of this machine stay out of it.
    shown_command = [re.sub(r"^gguf:.*/", GGUF, word) for word in command]
    arguments = [options.locomo if word == LOCOMO else word for word in command]

    cell_digest = hashlib.sha256(cell["command"].encode()).hexdigest()[:16]
    home = (options.out / cell_digest / "home").resolve()
    # The last run that is there was stopped or killed, or it failed.
    earlier_runs = sorted(path.parent.name for path in home.glob("*/run.json"))
    if earlier_runs:
        arguments.append(f"--resume={earlier_runs[-1]}")

    print(f"{time.strftime('%H:%M')} {cell['command']}", flush=True)
    start = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", *arguments, "--json"],
        env={**os.environ, "MEMPILER_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    if process.returncode != 0:
        error_lines = process.stderr.strip().splitlines() or ["no output"]
        mark_as_failed(cell, error_lines[-1])
        return

    run = read_run(process.stdout)
    problem = find_problem(run)
    if problem:
        mark_as_failed(cell, problem)
        return

    cell.pop("failed", None)
    cell["command"] = shlex.join(shown_command)
    cell["run by"] = options.engine
    cell["seconds"] = round(time.monotonic() - start)
    cell.update(figures(run))
    cell["went on"] = bool(earlier_runs)
    print(f"      {cell['before']:.3f} -> {cell['after']:.3f}, {cell['seconds']} s", flush=True)


def mark_as_failed(cell: Cell, problem: str) -> None:
    """Put the reason of a failure into a cell, and remove the figures of an earlier run."""
    fields: dict[str, Any] = cell  # pyright: ignore[reportAssignmentType]
    for name in list(fields):
        if name not in DESCRIPTION:
            del fields[name]
    cell["failed"] = problem
    print(f"      failed: {problem}", flush=True)


def read_run(output: str) -> CompiledRun:
    """Read what a compile printed, and the files in its folder."""
    outcome = json.loads(output)
    folder = Path(outcome["run"])
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    rows: dict[Phase, list[QuestionRow]] = {}
    question_ids: dict[Phase, list[str]] = {}
    for phase in PHASES:
        lines = (folder / f"{phase}_rows.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        rows[phase] = [QuestionRow.from_record(record) for record in records]
        question_ids[phase] = [record["id"] for record in records]
    return CompiledRun(outcome, manifest["parameters"], rows, question_ids)


def find_problem(run: CompiledRun) -> str | None:
    """Return why a run has no figures; None if it has.

    Scores before and after are compared question by question, so both phases need all of them.
    """
    before_ids = run.question_ids["before"]
    after_ids = run.question_ids["after"]
    if before_ids != after_ids:
        counts = f"{len(before_ids)} before, {len(after_ids)} after"
        pairs = zip_longest(before_ids, after_ids)
        before_id, after_id = next(pair for pair in pairs if pair[0] != pair[1])
        return (
            f"before and after, other questions were scored: {counts}; "
            f"the first that differs is {before_id or 'none'} before, {after_id or 'none'} after"
        )
    if not any(row.in_headline for row in run.rows["before"]):
        return "no question counts for the score"
    return None


def figures(run: CompiledRun) -> Cell:
    """Return the figures of a run; none of them is a folder, an address or a text."""
    outcome = run.outcome
    usage = outcome["usage"]
    before = outcome["before"]
    after = outcome["after"]
    dev_gain = gain_of(outcome["dev_difference"])

    cell: Record = {
        "method": before["program"],
        "with": outcome["optimizer"]["optimizer"],
        "adapter": run.parameters["adapter"],
        "embedder": run.parameters["embedder"],
        "n": before["n"],
        "before": before["score"],
        "after": after["score"],
        "difference": gain_of(outcome["difference"]),
        "on dev": dev_gain,
        "notes": outcome["optimizer"].get("notes", []),
        "calls": usage["calls"]["task"] + usage["calls"]["prompt"],
        "from cache": usage["calls"].get("cached", 0),
        "tokens in": usage["tokens"]["input"],
        "cached": _cached_share(usage.get("prompt_cache")),
        "tokens a question": [_rounded(before["prompt_tokens"]), _rounded(after["prompt_tokens"])],
        "tokens out": usage["tokens"]["output"],
        "lost calls": sum(counts.get("lost", 0) for counts in usage["call_outcomes"].values()),
        "unwritten": _unwritten_share(usage["call_outcomes"]),
        "ended by": outcome["stopped"],
        "data": run.parameters["data_sha256"],
        "temperature": 0,
    }
    for phase in PHASES:
        for name, value in _stages(run.rows[phase]).items():
            cell[f"{name}, {phase}"] = value

    same_answers = run.rows["before"] == run.rows["after"]
    same_prompts = before["prompt_tokens"] == after["prompt_tokens"]
    if same_answers and same_prompts:
        cell["kept"] = "as before"
    else:
        cell["kept"] = "yes" if _is_better(dev_gain) else "no"

    cell["questions"] = {phase: _columns(rows) for phase, rows in run.rows.items()}
    return cell  # pyright: ignore[reportReturnType]


def _cached_share(prompt_cache: Record | None) -> float | None:
    """Return the share of prompt tokens from the server's cache, if it told the number."""
    if not prompt_cache or not prompt_cache.get("told"):
        return None
    return prompt_cache["reused"] / prompt_cache["told"]


def _rounded(tokens: float | None) -> int | float | None:
    return tokens and round(tokens)


def _unwritten_share(call_outcomes: dict[str, dict[str, int]]) -> float | None:
    """Return the share of lost answers among the calls of writers, if there were any."""
    writing = Counter[str]()
    for predictor, counts in call_outcomes.items():
        if ".writer." in predictor:
            writing.update(counts)
    if writing.total() == 0:
        return None
    return writing["lost"] / writing.total()


def _is_better(gain: Gain | None) -> bool:
    if gain is None or gain["interval"] is None:
        return False
    return gain["mean"] > 0 and gain["interval"][0] >= 0


def _stages(rows: Sequence[QuestionRow]) -> Record:
    """Return where questions are lost, in shares of those that count."""
    counted = [row for row in rows if row.in_headline]
    lost = [row for row in counted if row.failure is not None]
    not_shown = [row for row in counted if row.shown == 0]
    shown = [row for row in counted if row.shown]
    missed = [row for row in shown if row.failure is None and row.score == 0]
    return {
        "lost": len(lost) / len(counted),
        "not shown": len(not_shown) / len(counted),
        "shown and missed": len(missed) / len(counted),
        "score where shown": fmean(row.score for row in shown) if shown else None,
        "n where shown": len(shown),
        "words": [
            round(fmean(row.answer_words for row in counted), 1),
            round(fmean(row.gold_words for row in counted), 1),
        ],
    }


def _columns(rows: Sequence[QuestionRow]) -> QuestionColumns:
    """Turn rows into a list for each field."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in asdict(row).items():
            columns.setdefault(name, []).append(value)
    return columns  # pyright: ignore[reportReturnType]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What compiling does to a small language model.")
    parser.add_argument("--locomo", required=True, help="the genuine file of LoCoMo")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the cells [default: those of the documentation]"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("evidence"), help="folder of the runs [default: evidence]"
    )
    parser.add_argument("--only", default="", help="cells whose command contains this text")
    parser.add_argument("--again", action="store_true", help="also cells that have figures")
    parser.add_argument(
        "--engine", default="the wheel of xllamacpp", help="what runs llama.cpp, for the page"
    )
    parser.add_argument(
        "--file",
        help="a GGUF file that runs instead of the named weights, e.g. in another encoding",
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    document = json.loads(options.data.read_text(encoding="utf-8"))
    for cell in document["cells"]:
        has_figures = "before" in cell
        if options.only in cell["command"] and (options.again or not has_figures):
            run_cell(cell, options)
            # Written after every cell: the next one may take hours.
            update_tables(document)
            write_document(document, options.data)


if __name__ == "__main__":
    main()
