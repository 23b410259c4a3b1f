"""`mempiler register`: put a saved program into MLflow's model registry, behind a gate."""

from __future__ import annotations

import shlex

import click

from .options import ALLOW_CODE, JSON, output, print_json


@click.command("register")
@click.argument("program", type=click.Path())
@click.option("--name", required=True, help="the registered model; made if it is new")
@click.option("--alias", help="points to this program from now on, e.g. prod; it must be better than the one before")
@click.option("--min-n", type=click.IntRange(1), help="fewer dev questions tell nothing [default: as it was compiled]")
@click.option("--force", is_flag=True, help="register it whatever the gate says")
@JSON
@ALLOW_CODE
def command(
    program: str,
    name: str,
    alias: str | None,
    min_n: int | None,
    force: bool,
    as_json: bool,
    allow_code: bool,
) -> None:
    """Register PROGRAM (the folder of a saved program, or models:/NAME/VERSION) as a version of a model.

    It is refused without a score on dev questions, and unless it is significantly better there than what the alias
    names. models:/NAME@ALIAS then stands for it wherever a program folder does, and MLflow can serve it.
    """
    from ..runs.register import register

    done = register(program, name, alias, force, allow_code, min_n)
    if as_json:
        print_json(done.summary())
        return
    console, uri = output(), shlex.quote(str(done.summary()["tracking_uri"]))
    what = "version" if done.new else "this program was there already: version"
    console.print(f"{what} {done.version} of {name}: {done.address}\ngate: {done.gate}", soft_wrap=True)
    serve = f"MLFLOW_TRACKING_URI={uri} mlflow models serve -m {shlex.quote(done.address)} --env-manager local"
    console.print(f"to serve it: {serve}", soft_wrap=True)
