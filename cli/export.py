"""`mempiler export`: a benchmark and a method as an environment for trainers that run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..errors import UserError
from .options import make_setup, parse_settings, setup_options
from .printing import first_line, output, print_json

_MEANINGLESS = ("planned", "resume", "max_lost", "max_usd", "max_calls", "max_tokens", "max_minutes", "threads")
_MEANINGLESS += ("prompt_lm", "prompt_api_base", "judge_lm", "judge_api_base")
"""Options of a setup that no exported environment keeps."""


@click.command("export")
@click.argument("kind", type=click.Choice(["verifiers"]))
@click.argument("method")
@setup_options
@click.option("--part", type=click.Choice(["train", "dev", "test", "all"]), default="train", show_default=True)
@click.option("--sessions", type=click.IntRange(1), help="most sessions of a history that are written [default: all]")
@click.option("--reward-set", "rewards", multiple=True, metavar="NAME=VALUE", help="e.g. compression=0.2")
@click.option("--out", type=click.Path(), required=True, help="a new or empty folder")
def command(kind: Any, method: str, as_json: bool, **values: Any) -> None:
    """Write the writer of METHOD on a benchmark as an environment for KIND: verifiers.

    The model that is trained is named there. --lm names one that stays as it is: it answers the questions rewards come
    from.
    """
    from ..runs.exports.environment import Export, write
    from ..runs.registry import pinned

    source = click.get_current_context().get_parameter_source
    for name in _MEANINGLESS:
        if source(name) is ParameterSource.COMMANDLINE:
            flag = "plan" if name == "planned" else name.replace("_", "-")
            raise UserError(f"--{flag} says nothing to an export; leave it out")
    own = {name: values.pop(name) for name in ("part", "sessions")}
    out, rewards = Path(values.pop("out")), parse_settings(values.pop("rewards"))
    values.pop("planned")
    setup = make_setup(values)
    method = str(Path(method).absolute()) if Path(method).is_dir() else pinned(method)
    first_line(output(errors=as_json), setup, method, own["part"])
    written = write(Export.of(method, setup, reward=rewards, **own), out)
    if as_json:
        print_json(written)
        return
    output().print(f"{written['folder']}: {written['histories']} histories", soft_wrap=True)
    output().print(
        f"pip install -e {written['folder']}; vf-eval {str(written['name']).replace('_', '-')} ...", soft_wrap=True
    )
