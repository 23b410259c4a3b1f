"""`mempiler export`: a benchmark and a method as an environment for trainers that run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..runs.setting_pairs import parse_settings, with_underscores
from .options import JSON, make_inputs, run_options
from .printing import print_result

if TYPE_CHECKING:
    from ..runs.evaluate import Part

_WITHOUT = (
    "answer_lm",
    "answer_api_base",
    "prompt_lm",
    "prompt_api_base",
    "judge_lm",
    "judge_api_base",
    "max_usd",
    "max_calls",
    "max_tokens",
    "max_minutes",
    "threads",
    "workers",
    "max_failure_rate",
    "min_n",
    "traces",
    "resume",
    "replay",
)
"""Options of a run that no exported environment keeps; the command does not have them."""


@click.command("export")
@click.argument("kind", type=click.Choice(["verifiers"]))
@click.argument("method")
@run_options(without=_WITHOUT)
@JSON
@click.option(
    "--split", "part", type=click.Choice(["train", "dev", "test", "all"]), default="train"
)
@click.option(
    "--sessions",
    type=click.IntRange(1),
    help="most sessions of a history that are written [default: all]",
)
@click.option("--reward-set", multiple=True, metavar="NAME=VALUE", help="e.g. compression=0.2")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="a new or empty folder")
def command(
    kind: Literal["verifiers"],
    method: str,
    part: Part,
    sessions: int | None,
    reward_set: tuple[str, ...],
    out: Path,
    **values: Any,
) -> None:
    """Export an environment in which KIND (verifiers) trains the model that writes METHOD's memory.

    The trained model is chosen in verifiers. --lm names the model that answers the benchmark's
    questions, from which rewards are computed; it is not trained.
    """
    from ..runs.announce import announce
    from ..runs.exports.environment import Export, write
    from ..runs.program_address import pin_address

    reward = parse_settings(with_underscores(pair) for pair in reward_set)
    inputs = make_inputs(values)
    method = str(Path(method).absolute()) if Path(method).is_dir() else pin_address(method)
    export = Export.of(method, inputs, reward=reward, part=part, sessions=sessions)
    package = write(export, out)
    announce(inputs, method, part)

    folder = package["folder"]
    environment_name = str(package["name"]).replace("_", "-")
    lines = [
        f"{folder}: {package['histories']} histories",
        f"pip install -e {folder}; vf-eval {environment_name} ...",
    ]
    print_result(package, lines)
