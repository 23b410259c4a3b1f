"""Which reward learns to write where later facts depend on earlier ones, and how that changes with the horizon.

Training on memory-env with `world=dependent` from one start (`local:tiny`), each cell with as many generated tokens:

    trajectory   global groups, every call rewarded by all questions at the end (plain GRPO)
    session      the same, rewarded by the questions whose evidence is in the call's session
    cumulative   the same, by the mean of that session's and all later sessions' scores
    local        groups of reruns of one session from one memory, rewarded right after it
    logo         half of each: global groups with the trajectory reward, and local groups

    4, 8, 16, 32    sessions of the trajectories, in training and in the test
    8,16,32         stages of growing length with a third of the tokens each, tested at 32, against 32 from the start

Scores are of held-out users, at temperature 0 and sampled at 1, by exact match; the last weights count, no checkpoint
is chosen. Intervals of 95 % resample users and say nothing of other seeds: give `--seeds`. Each cell is a JSON file in
`--out`; what is there is not run again, so a killed run goes on with the cell it was at. Runs with different `--only`
can fill one folder at the same time.

Usage:
    $ python perf/horizons.py --out horizons                                     # 25 cells, a minute or two each
    $ python perf/horizons.py --out horizons --only trajectory:8 logo:8 --seeds 3
    $ python perf/horizons.py --out horizons --report horizons.md                # nothing is trained

Limits: one made-up world, one start, a model of half a million weights.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mempiler.runs.course import TINY_COURSE

os.environ.setdefault("OMP_NUM_THREADS", "1")

OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "trajectory": {"objective": "grpo", "session_reward": "trajectory", "num_rollouts": 8},
    "session": {"objective": "grpo", "session_reward": "session", "num_rollouts": 8},
    "cumulative": {"objective": "grpo", "session_reward": "cumulative", "num_rollouts": 8},
    "local": {"objective": "local", "num_rollouts": 2, "local_n": 6},
    "logo": {"objective": "logo", "session_reward": "trajectory", "num_rollouts": 4, "local_n": 4},
}
"""Eight rewritten sessions of each kind in sum, so that a step costs every objective the same."""
HORIZONS: Sequence[tuple[int, ...]] = ((8,), (4,), (32,), (8, 16, 32), (16,))
TRAINING = {**TINY_COURSE.train_kwargs, "micro_batch_size": 24}
ANSWER_TOKENS = TINY_COURSE.answer_tokens
START = "start"
OTHERS = ("state", "change", "restate", "retract")
"""Facts that were said outright; the others were decided by what had been said before."""
HEATS = {"greedy": 0.0, "sampled": 1.0}


def label(horizons: Sequence[int]) -> str:
    """How stages are named: 8, or 8,16,32."""
    return ",".join(map(str, horizons))


class Bench:
    """The world, the program and the start, and what was scored so far.

    Args:
        options: Those of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        from mempiler.engines.embedders import embedder
        from mempiler.programs.catalog import build
        from mempiler.programs.memory_r2.method import MemoryR2
        from mempiler.runs.tiny import tiny_folder

        self.options, self.out = options, Path(options.out)
        self.program = build(
            "memory-r2", "memory-lookup", embedder(), adapter="compact", **MemoryR2.preset("memory-env")
        )
        self.start = str(options.model or tiny_folder(world=options.world))
        self._worlds: dict[int, Any] = {}

    def world(self, sessions: int) -> Any:
        """The benchmark with histories of some length, and its split."""
        from mempiler.data.memory_env.benchmark import MemoryEnv

        if sessions not in self._worlds:
            made = MemoryEnv.load(users=self.options.users, sessions=sessions, world=self.options.world)
            self._worlds[sessions] = made, made.split()
        return self._worlds[sessions]

    def cell(self, name: str, horizons: tuple[int, ...], seed: int) -> dict[str, Any]:
        """Trains and scores one cell, or reads what is there."""
        path = self.out / f"{name}-{label(horizons)}-{seed}.json"
        own = {"users": self.options.users, "epochs": self.options.epochs}
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            if {key: found.get(key) for key in own} != own:
                raise SystemExit(f"{path}: is not a cell of {own}; choose another --out, or the same options")
            return found
        began, lm = time.perf_counter(), self._lm()
        steps, stopped = ([], None) if name == START else self._train(name, horizons, seed, lm)
        trained = time.perf_counter() - began
        row = {"name": name, "horizons": label(horizons), "seed": seed, **own}
        row |= {
            "tokens": sum(step.get("tokens", 0) for step in steps),
            "stopped": stopped,
            "steps": steps,
            "train_seconds": trained,
        }
        row |= {kind: self._scored(lm, max(horizons), kind, seed) for kind in HEATS}
        row["seconds"] = time.perf_counter() - began
        self.out.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(row), encoding="utf-8")
        partial.replace(path)
        return row

    def _lm(self) -> Any:
        from mempiler.engines.local.engine import local_lm
        from mempiler.engines.local.model import LocalModel

        return local_lm(LocalModel.load(self.start, device="cpu", threads=1), None, 0.0, ANSWER_TOKENS, 0)

    def _train(self, name: str, horizons: tuple[int, ...], seed: int, lm: Any) -> tuple[list[Any], str | None]:
        from mempiler.engines.local.capture import capture
        from mempiler.optimizers.logo_grpo.curriculum import Curriculum
        from mempiler.optimizers.logo_grpo.settings import TrainingSettings
        from mempiler.optimizers.logo_grpo.teleprompter import LoGoGRPO

        benchmark, split = self.world(max(horizons))
        settings = TrainingSettings(
            **{"local_fraction": 1.0, **OBJECTIVES[name]},
            histories=1,
            validate_every=1000,
            seed=seed,
            curriculum=Curriculum(horizons, steps=None, tokens=self.options.tokens),
        )
        rows: list[dict[str, Any]] = []
        teleprompter = LoGoGRPO(
            lambda example, prediction: float(benchmark.score(example, prediction).value),
            settings,
            {"seed": seed, **TRAINING, "epochs": self.options.epochs},
            benchmark.questions_after,
            capture=capture,
            note=lambda row: rows.append(dict(row)),
        )
        with self._context(lm):
            teleprompter.compile(self.program, trainset=split.train)
        return rows, teleprompter.progress.stopped

    def _scored(self, lm: Any, sessions: int, kind: str, seed: int) -> dict[str, Any]:
        from mempiler.engines.local.capture import capture
        from mempiler.optimizers.logo_grpo.policy import score_policy

        benchmark, split = self.world(sessions)

        def metric(example: Any, prediction: Any) -> float:
            return float(benchmark.score(example, prediction).value)

        with self._context(lm):
            found = score_policy(self.program, split.test, metric, lm, HEATS[kind], f"horizons {seed}", capture=capture)
        return {
            "score": found.score,
            "scores": found.scores,
            "users": found.groups,
            "kinds": [example.category for example in split.test],
            "failures": found.format_failures,
        }

    def _context(self, lm: Any) -> Any:
        import dspy
        from mempiler.programs.compact_adapter import CompactAdapter

        return dspy.context(lm=lm, adapter=CompactAdapter(), warn_on_type_mismatch=False)


def cells(only: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...], int]]:
    """The cells in the order in which they are run: one seed of everything before the next.

    Args:
        only: `objective:horizons`, `objective` or `:horizons`; empty for all.
        seeds: The seeds; the start has one.
    """
    asked = [part.partition(":")[::2] for part in only]

    def wanted(name: str, horizons: str) -> bool:
        return not asked or any(n in ("", name) and h in ("", horizons) for n, h in asked)

    found = []
    for seed in seeds:
        for horizons in HORIZONS:
            names = [name for name in OBJECTIVES if wanted(name, label(horizons))]
            begins = [START] if names and seed == seeds[0] else []
            found += [(name, horizons, seed) for name in (*begins, *names)]
    return found


def report(out: Path) -> str:
    """The table of all cells in a folder, as Markdown: means over seeds, their spread, and differences to others.

    Differences are paired by question against `trajectory` of the same horizons and seeds.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(out.glob("*.json")):
        row = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault((row["horizons"], row["name"]), []).append(row)
    head = ("sessions", "trained on", "seeds", "greedy [95 %]", "sampled [95 %]", "sampled - trajectory's [95 %]")
    lines = [f"| {' | '.join((*head, 'sampled: planned', 'like', 'others', 'tokens'))} |", f"|{' --- |' * 10}"]
    for horizons in (label(each) for each in sorted(HORIZONS, key=lambda each: (max(each), len(each)))):
        rival = {row["seed"]: row for row in found.get((horizons, "trajectory"), [])}
        for name in (START, *OBJECTIVES):
            rows = sorted(found.get((horizons, name), []), key=lambda row: row["seed"])
            if rows:
                parts = [_mean(rows, "greedy"), _mean(rows, "sampled"), _against(rows, rival)]
                parts += [_of_kind(rows, ("planned",)), _of_kind(rows, ("like",)), _of_kind(rows, OTHERS)]
                tokens = f"{sum(row['tokens'] for row in rows) / len(rows):,.0f}"
                lines.append(f"| {' | '.join((horizons, name, str(len(rows)), *parts, tokens))} |")
    return "\n".join(lines)


def _mean(rows: Sequence[Mapping[str, Any]], kind: str) -> str:
    from mempiler.runs.statistics import interval

    scores = [score for row in rows for score in row[kind]["scores"]]
    span = interval(scores, [user for row in rows for user in row[kind]["users"]])
    each = [f"{row[kind]['score']:.3f}" for row in rows]
    told = f" ({', '.join(each)})" if len(each) > 1 else ""
    return f"{sum(scores) / len(scores):.3f}{_span(span)}{told}"


def _of_kind(rows: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> str:
    """The sampled score of questions about facts that were decided in some way."""
    parts = [row["sampled"] for row in rows]
    own = [s for part in parts for s, kind in zip(part["scores"], part["kinds"], strict=True) if kind in kinds]
    return f"{sum(own) / len(own):.3f}" if own else ""


def _against(rows: Sequence[Mapping[str, Any]], rival: Mapping[int, Mapping[str, Any]]) -> str:
    from mempiler.runs.statistics import paired

    both = [(row["sampled"], rival[row["seed"]]["sampled"]) for row in rows if row["seed"] in rival]
    if not both or rows[0]["name"] == "trajectory":
        return ""
    mine, theirs = ([score for pair in both for score in pair[n]["scores"]] for n in (0, 1))
    found = paired(mine, theirs, [user for pair in both for user in pair[0]["users"]])
    return f"{found.mean:+.3f}{_span(found.interval)}"


def _span(span: Any) -> str:
    return f" [{span.low:.3f}, {span.high:.3f}]" if span else ""


def main(arguments: Sequence[str] | None = None) -> str:
    """Runs what is missing, prints one line per cell and the table; returns the table."""
    parser = argparse.ArgumentParser(description="Rewards and horizons in a world of dependent facts.")
    parser.add_argument("--out", default="horizons", help="folder of the cells")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=60_000, help="generated in a training")
    parser.add_argument("--epochs", type=int, default=TRAINING["epochs"], help="passes over the completions of a step")
    parser.add_argument("--users", type=int, default=140, help="of ten, six train and three test")
    parser.add_argument("--only", nargs="+", default=[], metavar="CELL", help="objective:horizons, e.g. logo:8 or :32")
    parser.add_argument("--world", default="dependent", choices=("dependent", "independent"))
    parser.add_argument("--model", help="folder of the start; the warmed-up local:tiny if left out")
    parser.add_argument("--report", nargs="?", const="-", metavar="FILE", help="only write the table of what is there")
    options = parser.parse_args(arguments)
    if options.report is None:
        bench = Bench(options)
        for name, horizons, seed in cells(options.only, range(options.seeds)):
            row = bench.cell(name, horizons, seed)
            scores = " ".join(f"{kind} {row[kind]['score']:.3f}" for kind in HEATS)
            print(f"{name:10} {row['horizons']:8} seed {seed}  {scores}  {row['seconds']:.0f} s", flush=True)
    table = report(Path(options.out))
    if options.report not in (None, "-"):
        Path(options.report).write_text(table + "\n", encoding="utf-8")
    print(table)
    return table


if __name__ == "__main__":
    main()
