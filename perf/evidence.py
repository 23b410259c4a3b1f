"""The evidence page: methods at their start and compiled, with a language model of half a billion weights.

    cells (method, optimizer, adapter) ── mempiler compile ──> perf/evidence_cells/CELL.json ── --write ──> the page

Every cell is one `mempiler compile` in a process of its own, with a results folder of its own below OUT. A cell that is
done is not run again; one that was killed goes on with `--resume`. What the page says is what the cells hold: they are
in the repository, so that runs on several machines add up to one page.

The genuine LoCoMo is not in the repository; the page names its digest. Nothing else may use the cores meanwhile: the
engine then is many times slower, though not different.

Usage:
    $ python perf/evidence.py --locomo locomo2.json --out evidence --only turn-rag            # runs what is missing
    $ python perf/evidence.py --write docs/evidence.md                                        # the page, runs nothing
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mempiler.engines.weights import weights

CELLS = Path(__file__).with_name("evidence_cells")
SIZES = {"train": 24, "dev": 12, "test": 32}


@dataclass(frozen=True)
class Cell:
    """One compiled program."""

    method: str
    optimizer: str
    adapter: str
    benchmark: str = "locomo"
    lm: str = "qwen2.5-coder-0.5b"
    more: tuple[str, ...] = ()
    """Further options."""
    sizes: dict[str, int] = field(default_factory=lambda: dict(SIZES))
    sample: bool = False
    """LoCoMo's bundled sample instead of the genuine file."""
    seed: int = 0
    """Of the split: which user of a benchmark without a split of its own is tested."""

    @property
    def on(self) -> str:
        """Its benchmark, as tables name it."""
        return f"{self.benchmark}.sample" if self.sample else self.benchmark

    @property
    def name(self) -> str:
        """Its folder."""
        seeded = (f"seed{self.seed}",) if self.seed else ()
        return "-".join((self.method, self.on, self.optimizer, self.adapter, self.lm, *seeded))

    def command(self, locomo: str, file: str | None) -> list[str]:
        """What a user would type."""
        data = ["--data", locomo] if self.benchmark == "locomo" and not self.sample else []
        sizes = [part for name, size in self.sizes.items() for part in (f"--{name}", str(size))]
        chosen = ["--with", self.optimizer, "--adapter", self.adapter, "--lm", f"gguf:{file or self.lm}"]
        return [
            "compile",
            self.method,
            "--on",
            self.benchmark,
            *data,
            *chosen,
            *sizes,
            "--threads",
            "4",
            "--force",
            *(("--seed", str(self.seed)) if self.seed else ()),
            *self.more,
        ]


BUDGET = ("--max-minutes", "120")
SMALL: dict[str, tuple[str, ...]] = {
    "labeled": (),
    "bootstrap-random": ("--optimizer-set", "num_candidate_programs=2"),
    "mipro": ("--optimizer-set", "num_trials=3", "--optimizer-set", "num_candidates=3"),
    "gepa": ("--optimizer-set", "max_metric_calls=40"),
    "copro": ("--optimizer-set", "breadth=2", "--optimizer-set", "depth=1"),
}
"""Settings that fit an optimizer into the minutes of two cores."""
ENGLISH = ("--option", "language=en")
"""PAL-Set's sample has three users in each of two languages: demos are to be in that of the test."""
READ = ("--stage", "read")
"""Memories are written once, by the prompts of the start."""
SAMPLE = {"train": 3, "dev": 4, "test": 16}
"""Of LoCoMo's sample: questions of one conversation to train, of one for dev, and of two to test."""
PRACTICE = {"rounds": 1, "virtual_scenes": 2, "proposals": 3, "practice_tokens": 1000, "predict_tokens": 600}
"""PraMem with one round of practice: the paper's 80 take millions of tokens a user."""
SUBJECTS: tuple[tuple[str, str, dict[str, int], dict[str, int]], ...] = (
    ("memory-r2", "locomo", SAMPLE, {"parts": 1}),
    ("turn-rag", "locomo", SIZES, {}),
    ("pgr+turn-rag", "locomo", SAMPLE, {"iterations": 1}),
    ("rgmem", "locomo", SAMPLE, {}),
    ("h2memory", "palbench.restate", {"train": 4, "dev": 4, "test": 4}, {}),
    ("pramem", "omnibehavior", {"train": 3, "dev": 6, "test": 12}, PRACTICE),
)
"""Methods, each on a benchmark, with sizes and settings. What writes with the model has bundled samples, and fewer
parts and rounds than by default: a genuine conversation takes hours."""
SEEDS = {"palbench.restate": (0, 4, 6)}
"""With these each of the three English users of PAL-Bench's sample is the test part once; other splits stay."""


def cells() -> Iterator[Cell]:
    """All of them, what says most first: every method, then every optimizer, then plain chat."""
    for adapter in ("auto", "chat"):
        for optimizer, settings in SMALL.items():
            for method, benchmark, sizes, values in SUBJECTS:
                fewer = tuple(part for name, value in values.items() for part in ("--set", f"{name}={value}"))
                spoken = ENGLISH if benchmark.startswith("palbench") else ()
                more = (*fewer, *spoken, *settings, *(() if method == "turn-rag" else READ), *BUDGET)
                sample = benchmark == "locomo" and method != "turn-rag"
                for seed in SEEDS.get(benchmark, (0,)):
                    yield Cell(method, optimizer, adapter, benchmark, more=more, sizes=sizes, sample=sample, seed=seed)
    yield Cell("turn-rag", "bootstrap-random", "auto", lm="smollm2", more=(*SMALL["bootstrap-random"], *BUDGET))


def main() -> None:
    parser = argparse.ArgumentParser(description="What compiling does to a small language model.")
    parser.add_argument("--locomo", help="the genuine file")
    parser.add_argument("--out", type=Path, default=Path("evidence"), help="folder of the runs")
    parser.add_argument("--cells", type=Path, default=CELLS, help="folder of what is kept of them")
    parser.add_argument("--only", default="", help="cells whose name begins so; several with commas")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no cell after so many")
    parser.add_argument("--engine", default="the wheel of xllamacpp", help="what runs llama.cpp, for the page")
    parser.add_argument("--file", help="a GGUF file that runs instead of the named weights, e.g. in another encoding")
    parser.add_argument("--write", type=Path, help="write the page of the cells that are there, and run nothing")
    parser.add_argument("--ladder", type=Path, help="results of perf/pretrained.py, for the page")
    chosen = parser.parse_args()
    if chosen.write:
        from evidence_page import page

        ladder = []
        if chosen.ladder:
            from pretrained import rungs

            ladder = rungs(chosen.ladder)
        found = [done for cell in cells() if (done := _done(chosen.cells, cell)) is not None]
        before = chosen.write.read_text(encoding="utf-8") if chosen.write.exists() else ""
        chosen.write.write_text(page(found, ladder, before), encoding="utf-8")
        return
    if chosen.locomo is None:
        parser.error("cells need --locomo FILE")
    end = time.monotonic() + 60 * chosen.minutes
    for cell in cells():
        wanted = cell.name.startswith(tuple(chosen.only.split(",")))
        if wanted and time.monotonic() < end and "outcome" not in (_done(chosen.cells, cell) or {}):
            _run(cell, chosen)


def _done(kept: Path, cell: Cell) -> dict[str, Any] | None:
    path = kept / f"{cell.name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _run(cell: Cell, chosen: argparse.Namespace) -> None:
    """Runs or resumes a cell; a failed one leaves its last line instead of numbers."""
    home = (chosen.out / cell.name / "home").resolve()
    command = cell.command(chosen.locomo, chosen.file)
    print(f"{time.strftime('%H:%M')} {cell.name}", flush=True)
    # A cell with a result is not run again, so the last run that is there was stopped, killed, or failed.
    resumed = [f"--resume={path.parent.name}" for path in sorted(home.glob("*/run.json"))[-1:]]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "mempiler", *command, *resumed, "--json"],
        env={**os.environ, "MEMPILER_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    taken = time.monotonic() - start
    shown = [Path(part).name if part == chosen.locomo else part for part in command]
    if chosen.file:
        shown = [part.replace(chosen.file, Path(chosen.file).name) for part in shown]
    result = {
        "cell": cell.name,
        "on": cell.on,
        "seed": cell.seed,
        "lm": cell.lm,
        "command": shlex.join(["mempiler", *shown]),
        "weights": _digest(chosen.file) if chosen.file else weights(cell.lm).files[0].sha256,
        "engine": chosen.engine,
        "temperature": 0.0,
        "seconds": round(taken),
        "resumed": bool(resumed),
    }
    if done.returncode:
        result["failed"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"      failed: {result['failed']}", flush=True)
    else:
        outcome = json.loads(done.stdout)
        folder = Path(outcome["run"])
        result |= _shown(outcome, json.loads((folder / "run.json").read_text(encoding="utf-8")))
        result["rows"] = {phase: _rows(folder / f"{phase}_rows.jsonl") for phase in ("start", "result")}
        print(f"      {outcome['start']['score']:.3f} -> {outcome['result']['score']:.3f}, {taken:.0f} s", flush=True)
    chosen.cells.mkdir(parents=True, exist_ok=True)
    (chosen.cells / f"{cell.name}.json").write_text(json.dumps(result) + "\n", encoding="utf-8")


def _shown(outcome: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """What the page says of a run: no folder, address or text of this machine."""
    phases = {name: {part: outcome[name][part] for part in _PHASE} for name in ("start", "result")}
    named = {name: outcome[name] for name in ("usage", "stopped", "difference", "dev_difference")}
    optimizer = {name: outcome["optimizer"][name] for name in ("optimizer", "notes")}
    parameters = {name: run["parameters"][name] for name in ("adapter", "embedder", "data_sha256")}
    return {"outcome": {**phases, **named, "optimizer": optimizer}, "run": {"parameters": parameters}}


_PHASE = ("program", "n", "score", "prompt_tokens")


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = ("category", "counts", "score", "recall", "failure", "context_tokens")
    words = {"answer_words": "answer", "gold_words": "gold"}
    return [
        {name: row[name] for name in kept} | {name: len(row[of].split()) for name, of in words.items()}
        for row in map(json.loads, lines)
    ]


if __name__ == "__main__":
    main()
