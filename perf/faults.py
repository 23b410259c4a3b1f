"""Every optimizer against every fault: what a compile does when its endpoint dies, its budget strikes, or it is killed.

The endpoint is a server on this machine that speaks the OpenAI chat protocol and answers with the offline engine, so
the table is about behaviour, not about scores. Every compile has a few training, four dev and four test questions of
the bundled sample.

    dead       nobody listens from the start: exit code 3, no compiled program, the start loads from --out
    dies       half of the calls of an unbroken run are answered, then nobody listens: the same
    budget     --max-calls strikes half way: exit code 0, `stopped` names it, never a call more, the program loads
    killed     kill -9 after half of the calls, then --resume, one thread: the result of an unbroken run, and together
               its calls but for the one in flight

The exit code is 1 if any cell is not as it must be.

Usage:
    $ python perf/faults.py > docs/faults.md
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS: dict[str, list[str]] = {
    "labeled": [],
    "knn": [],
    "bootstrap": ["max_tries=6"],
    "bootstrap-random": ["num_candidate_programs=1", "max_tries=3"],
    "mipro": ["num_trials=3", "num_candidates=2"],
    "copro": ["breadth=2", "depth=1"],
    "simba": ["bsize=4", "max_steps=1", "num_candidates=2"],
    "gepa": ["max_metric_calls=16"],
    "infer-rules": ["num_candidates=1", "max_tries=3"],
    "better-together": ["strategy=labeled -> bootstrap -> mipro"],
    "finetune": [],
}
"""Settings that keep each optimizer small."""
FAULTS = ("dead", "dies", "budget", "killed")
SCORING = 16
"""Calls of a compile beside its optimizer's: the start and the result on four dev and four test questions."""


class Compile:
    """One optimizer's compile, run as often as there are faults.

    Args:
        method: The method that is compiled.
        optimizer: What compiles it.
        folder: Where results go.
        train: Training questions.
    """

    def __init__(self, method: str, optimizer: str, folder: Path, train: int) -> None:
        self.method, self.optimizer, self.folder, self.train = method, optimizer, folder, train
        self.calls = 0
        self.whole: dict[str, Any] = {}

    def words(self, server: Any, out: str, *words: str) -> list[str]:
        """The command."""
        settings = [word for setting in SETTINGS[self.optimizer] for word in ("--optimizer-set", setting)]
        sizes = ["--train", str(self.train), "--dev", "4", "--test", "4", "--threads", "1", "--retries", "0"]
        model = ["--lm", server.model, "--api-base", server.url, "--out", str(self.folder / out), "--json"]
        return ["compile", self.method, "--on", "locomo", "--with", self.optimizer, *sizes, *model, *settings, *words]

    def unbroken(self) -> str:
        """Runs it without a fault; says how many calls it made, or why it cannot run at all."""
        with _server() as server:
            code, found, said = _run(self.words(server, "whole"))
            self.calls, self.whole = len(server.texts), found
        return str(self.calls) if code == 0 else f"refused: {said}"

    def dead(self) -> str:
        """Nobody listens from the start."""
        with _server() as server:
            server.die()
            return self._stopped(*_run(self.words(server, "dead")), "dead", 0)

    def dies(self) -> str:
        """Nobody listens any more after half of the calls."""
        with _server(lambda n, text: "dead" if n > self.calls // 2 else None) as server:
            return self._stopped(*_run(self.words(server, "dies")), "dies", server.answered)

    def budget(self) -> str:
        """A budget strikes in the middle of the optimizer, or of the scoring where the optimizer makes few calls."""
        own = self.calls - SCORING
        limit = SCORING + own // 2 if own > 2 else self.calls // 2
        with _server() as server:
            code, found, said = _run(self.words(server, "budget", "--max-calls", str(limit)))
        wrong = [
            *([f"exit code {code}: {said}"] if code else []),
            *([f"{len(server.texts)} calls"] if len(server.texts) > limit else []),
            *([] if str(found.get("stopped")).startswith(f"max-calls {limit}") else ["the limit is not named"]),
            *([] if _loads(self.folder / "budget") else ["the program does not load"]),
        ]
        promoted = ", promoted" if found.get("promoted") else ""
        return _cell(wrong, f"exit 0, {len(server.texts)} of {limit} calls{promoted}")

    def killed(self) -> str:
        """Killed after half of the calls, and resumed."""
        home = self.folder / "killed"
        home.mkdir()
        # A copy of a store that is there saves the seconds in which MLflow makes its tables.
        shutil.copy(Path(os.environ["MEMPILER_HOME"]) / "mlflow.db", home)
        environment = {**os.environ, "MEMPILER_HOME": str(home), "DSPY_CACHEDIR": str(home / "dspy")}
        with _server(delay=0.01) as broken, _server() as rest:
            rest.model = broken.model
            command = [sys.executable, "-m", "mempiler", *self.words(broken, "again")]
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
            broken.wait(self.calls // 2)
            process.kill()
            process.wait()
            (run,) = home.glob("*/run.json")
            code, found, said = _run(self.words(rest, "again", "--resume", str(run.parent)))
            first, then = len(broken.texts), len(rest.texts)
        wrong = [
            *([f"exit code {code}: {said}"] if code else []),
            *([] if code or _outcome(found) == _outcome(self.whole) else ["another result"]),
            *([] if 0 <= first + then - self.calls <= 1 else ["calls were lost or paid twice"]),
        ]
        return _cell(wrong, f"same result, {first} + {then} calls")

    def _stopped(self, code: int, found: dict[str, Any], said: str, out: str, answered: int) -> str:
        from mempiler.runs.artifact import read_manifest

        folder = self.folder / out
        wrong = [
            *([] if code == 3 else [f"exit code {code}"]),
            *([] if "--resume" in said else [f"no word of how to resume: {said}"]),
            *(["a result was printed"] if found else []),
            *([] if _loads(folder) and not read_manifest(folder).optimizer else ["not the start in --out"]),
        ]
        return _cell(wrong, f"exit 3 after {answered} answers, start kept")


def main() -> None:
    arguments = _arguments()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    good = True
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as name:
        folder = Path(name)
        # DSPy and tqdm read these when they are imported.
        os.environ.update(DSPY_CACHEDIR=str(folder / "dspy"), MEMPILER_HOME=str(folder / "home"), TQDM_DISABLE="1")
        _print_heading(arguments)
        for optimizer in arguments.optimizers or SETTINGS:
            place = folder / optimizer
            place.mkdir()
            compiled = Compile(arguments.method, optimizer, place, arguments.train)
            calls = compiled.unbroken()
            refused = calls.startswith("refused")
            cells = ["-"] * len(FAULTS) if refused else [getattr(compiled, fault)() for fault in FAULTS]
            good = good and not any("WRONG" in cell for cell in cells)
            print(f"| {optimizer} | {calls} | {' | '.join(cells)} |", flush=True)
    print(f"\n{'Every cell is as it must be.' if good else 'NOT every cell is as it must be.'}")
    raise SystemExit(0 if good else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every optimizer against every fault.")
    parser.add_argument("optimizers", nargs="*", choices=[*SETTINGS, []], help="[default: all]")
    parser.add_argument("--method", default="turn-rag")
    parser.add_argument("--train", type=int, default=12)
    return parser.parse_args()


def _print_heading(arguments: argparse.Namespace) -> None:
    print("# Faults\n")
    print("What a compile does when its endpoint dies, its budget strikes, or it is killed. Made with\n")
    print(f"    python perf/faults.py {' '.join(sys.argv[1:])}".rstrip())
    print(
        f"\n`{arguments.method}` on {arguments.train} training, 4 dev and 4 test questions of the bundled sample, over"
    )
    print(
        "HTTP, with a server on this machine that answers with the offline engine (extractive, no language model): the"
    )
    print("table is about behaviour, not about scores.\n")
    print("- dead: nobody listens from the start. Dies: nobody listens any more after half of the calls.")
    print("- budget: `--max-calls` strikes half way; what the scoring to come needs is kept back from the optimizer.")
    print(
        "- killed: `kill -9` after half of the calls, then `--resume` with one thread. The calls of the two parts are"
    )
    print("  those of an unbroken run, or one more: the call in flight.\n")
    print(
        "Calls that DSPy repeats after a fault (`--retries`) count once in a budget, although the server sees each.\n"
    )
    print(f"| optimizer | calls, unbroken | {' | '.join(FAULTS)} |")
    print("|---|---|" + "---|" * len(FAULTS), flush=True)


@contextlib.contextmanager
def _server(script: Any = None, delay: float = 0.0) -> Iterator[Any]:
    from stub_server import StubServer

    with StubServer(script, delay=delay) as server:
        yield server


def _run(words: list[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON object and last line on standard error of a command."""
    from mempiler.cli import main as command

    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            command(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    lines = errors.getvalue().splitlines() or [""]
    return code, json.loads(out.getvalue() or "{}"), lines[-1].removeprefix("mempiler: ")


def _loads(folder: Path) -> bool:
    from mempiler import load

    return bool(load(folder).all_predictors())


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on where a run was broken off."""
    kept = {name: found[name] for name in ("dev", "difference", "promoted", "stopped")}
    scores = {part: {name: found[part][name] for name in ("score", "by", "failures")} for part in ("start", "result")}
    tried = [(candidate["score"], candidate["n"]) for candidate in found["candidates"]]
    return {**kept, **scores, "tried": tried, "program": (Path(found["program"]) / "state.json").read_text()}


def _cell(wrong: list[str], right: str) -> str:
    return f"WRONG: {'; '.join(wrong)}" if wrong else right


if __name__ == "__main__":
    main()
