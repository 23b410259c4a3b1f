"""`mempiler demo`: the main job from start to end, on the bundled sample, without network."""

from __future__ import annotations

import subprocess
import sys

import click


@click.command("demo")
def command() -> None:
    """Compile, score and save turn-rag on the bundled sample, and ask it in a new process."""
    from ..optimizers.compile import CompileConfig
    from ..runs.announce import announce
    from ..runs.compile import run_compile
    from ..runs.config import DataConfig, RunConfig
    from ..runs.console import Output
    from ..runs.inputs import RunInputs
    from .progress import progress
    from .show import run_lines

    config = RunConfig(data=DataConfig(benchmark="locomo"))
    inputs = RunInputs(config)
    announce(inputs)
    with progress(config.limits) as (start_phase, meter):
        result = run_compile(
            "turn-rag", inputs, CompileConfig("knn"), progress=start_phase, meter=meter
        )

    # A row is the result of a question, and has its id.
    best_row = max(result.after.headline_rows, key=lambda row: row.score)
    examples = inputs.benchmark.examples
    best_example = next(example for example in examples if example.id == best_row.id)
    # `mempiler ask` reads the history of the question from a file.
    history_path = result.run / "history.json"
    history_path.write_text(best_example.history.model_dump_json(indent=1), encoding="utf-8")

    console = Output()
    for line in run_lines(result.run, f"\nprogram: {result.folder}"):
        console.print(line)
    console.print("\nloaded in a new process and asked the test question it answers best:")
    console.print(
        f"$ mempiler ask {result.folder} --history {history_path} --why \\\n"
        f"    {best_row.question!r}"
    )

    arguments = ["ask", str(result.folder), best_row.question]
    options = ["--history", str(history_path), "--why"]
    exit_code = subprocess.call([sys.executable, "-m", "mempiler", *arguments, *options])
    sys.exit(exit_code)
