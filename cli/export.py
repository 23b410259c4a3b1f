"""`mempiler export`: a benchmark and a method as an environment for trainers that run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    "margin",
    "tracking",
    "traces",
    "resume",
    "replay",
)
"""Options of a run that no exported environment keeps; the command does not have them."""


@click.command("export")
# There is only one kind, so the function below does not need the value.
@click.argument("kind", type=click.Choice(["verifiers"]), expose_value=False)
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
    method: str,
    part: Part,
    sessions: int | None,
    reward_set: tuple[str, ...],
    out: Path,
    **values: Any,
) -> None:
    """Export an environment in which a trainer trains a model to write METHOD's memory.

    KIND is the library that trains: verifiers. It also names the model to train. --lm names another
    model, which is not trained: it answers the benchmark's questions from the written memory, and
    its answers decide the rewards.
    """
    from ..runs.announce import announce
    from ..runs.exports.environment import Export, write_package
    from ..runs.program_address import pin_address

    reward = parse_settings(with_underscores(pair) for pair in reward_set)
    inputs = make_inputs(values)
    # A trainer opens the environment later, and from another folder. So a path has to be absolute.
    # An alias may stand for another version by then, so the address has to name the version.
    is_folder = Path(method).is_dir()
    lasting_method = str(Path(method).absolute()) if is_folder else pin_address(method)
    export = Export.of(lasting_method, inputs, reward=reward, part=part, sessions=sessions)
    package = write_package(export, out)

    # Data and models are printed after the export. If it fails, the user sees the error alone.
    announce(inputs, lasting_method, part)
    environment_name = package.name.replace("_", "-")
    lines = [
        f"{package.folder}: {package.histories} histories",
        f"pip install -e {package.folder}; vf-eval {environment_name} ...",
    ]
    print_result(package._asdict(), lines)
