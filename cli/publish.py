"""`mempiler publish`: puts a saved program into MLflow's model registry, or on the Hugging Face hub."""

from __future__ import annotations

import shlex

import click

from ..errors import UserError
from .options import ALLOW_CODE, JSON
from .printing import report


@click.command("publish")
@click.argument("program", type=click.Path())
@click.argument("address")
@click.option("--min-n", type=click.IntRange(1), help="fewer dev questions tell nothing [default: as it was compiled]")
@click.option("--force", is_flag=True, help="register it whatever the gate says")
@click.option("--private", is_flag=True, help="make a new repository of the hub private")
@JSON
@ALLOW_CODE
def command(program: str, address: str, min_n: int | None, force: bool, private: bool, allow_code: bool) -> None:
    """Publish PROGRAM (the folder of a saved program, or its address) as ADDRESS: models:/NAME[@ALIAS] or hf://OWNER/NAME.

    MLflow's registry gets a version of the model NAME. It is refused without a score on dev questions, and unless it is
    significantly better there than what the alias names, which points to this program from then on. MLflow can serve
    it.

    The hub gets only JSON files: prompts, demos, manifest. It needs a token: HF_TOKEN, or `hf auth login`.

    The address then stands for the program wherever a program folder does.
    """
    from ..runs.hub import HUB_PREFIX
    from ..runs.model_registry import REGISTRY_PREFIX
    from ..runs.program_address import program_folder
    from ..runs.publish import push, register

    if address.startswith(REGISTRY_PREFIX):
        if private:
            raise UserError(f"{address}: --private is for a repository of the hub")
        name, _, alias = address.removeprefix(REGISTRY_PREFIX).partition("@")
        done = register(program, name, alias or None, force, allow_code, min_n)
        uri = shlex.quote(str(done.summary()["tracking_uri"]))
        what = "version" if done.is_new else "this program was there already: version"
        serve = f"MLFLOW_TRACKING_URI={uri} mlflow models serve -m {shlex.quote(done.address)} --env-manager local"
        told = f"{what} {done.version} of {name}: {done.address}", f"gate: {done.gate}", f"to serve it: {serve}"
        report(done.summary(), told)
    elif address.startswith(HUB_PREFIX):
        if min_n is not None or force:
            raise UserError(f"{address}: --min-n and --force are for the gate of a registered model")
        pushed = push(program_folder(program) or program, address, private)
        report({"address": pushed}, [f"published: {pushed}"])
    else:
        raise UserError(f"{address!r} is no address to publish to; write models:/NAME@ALIAS or hf://OWNER/NAME")
