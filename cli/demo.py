"""`mempiler demo`: the main job from start to end, on the bundled sample, without key or network."""

from __future__ import annotations

import subprocess
import sys

import click


@click.command("demo")
def command() -> None:
    """Compile turn-rag on the bundled sample, score it, save it, and ask it a question in a new process."""
    from ..optimizers.compile import CompileConfig
    from ..runs.announce import announce
    from ..runs.compile import run_compile
    from ..runs.config import DataConfig, RunConfig
    from ..runs.inputs import RunInputs
    from .printing import Output
    from .progress import progress
    from .show import run_lines

    console = Output()
    inputs = RunInputs(RunConfig(data=DataConfig(benchmark="locomo")))
    announce(inputs)
    with progress(inputs.config.limits) as (start_phase, meter):
        outcome = run_compile("turn-rag", inputs, CompileConfig("knn"), progress=start_phase, meter=meter)
    row = max(outcome.after.headline_rows, key=lambda row: row.score)
    example = next(example for example in inputs.benchmark.examples if example.id == row.id)
    history = outcome.run / "history.json"
    history.write_text(example.history.model_dump_json(indent=1), encoding="utf-8")
    for line in run_lines(outcome.run, f"\nprogram: {outcome.folder}"):
        console.print(line)
    console.print("\nloaded in a new process and asked the test question it answers best:")
    arguments = ["ask", str(outcome.folder), row.question, "--history", str(history), "--why"]
    console.print(f"$ mempiler ask {outcome.folder} --history {history} --why \\\n    {row.question!r}")
    sys.exit(subprocess.call([sys.executable, "-m", "mempiler", *arguments]))
