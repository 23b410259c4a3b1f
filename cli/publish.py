"""`mempiler publish`: put a saved program into MLflow's registry, or on Hugging Face's hub."""

from __future__ import annotations

import shlex

import click

from ..errors import UserError
from .options import ALLOW_CODE, JSON
from .printing import print_result


@click.command("publish")
@click.argument("program", type=click.Path())
@click.argument("address")
@click.option(
    "--min-n",
    type=click.IntRange(1),
    help="dev questions that the check of the score needs [default: as it was compiled]",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True),
    help="also take a cheaper program that is not worse by more than this, in points of the score"
    " [default: as it was compiled]",
)
@click.option("--force", is_flag=True, help="register it even if the check of its score fails")
@click.option("--private", is_flag=True, help="make a new repository of the hub private")
@JSON
@ALLOW_CODE
def command(
    program: str,
    address: str,
    min_n: int | None,
    margin: float | None,
    force: bool,
    private: bool,
    allow_code: bool,
) -> None:
    """Publish PROGRAM as ADDRESS: models:/NAME[@ALIAS] or hf://OWNER/NAME.

    PROGRAM is the folder of a saved program, or its address.

    models:/ is MLflow's registry. The program becomes a new version of the model NAME, which MLflow
    can serve, and ALIAS points to it from then on. Its score is checked first: it needs a score on
    dev questions, and there it must be significantly better than the version that ALIAS points to
    now; or, with a margin, significantly cheaper and not worse by more than the margin.

    hf:// is Hugging Face's hub. It gets only JSON files: prompts, demos, manifest. This needs a
    token: HF_TOKEN, or `hf auth login`.

    Commands that take the folder of a program take this address, too.
    """
    from ..runs.hub import HUB_PREFIX
    from ..runs.model_registry import REGISTRY_PREFIX

    if address.startswith(REGISTRY_PREFIX):
        if private:
            raise UserError(f"{address}: --private is for a repository of the hub")
        name, _, alias = address.removeprefix(REGISTRY_PREFIX).partition("@")
        _register(program, name, alias or None, force, allow_code, min_n, margin)
    elif address.startswith(HUB_PREFIX):
        if min_n is not None or margin is not None or force:
            problem = "--min-n, --margin and --force are for the gate of a registered model"
            raise UserError(f"{address}: {problem}")
        _push_to_hub(program, address, private)
    else:
        fix = "write models:/NAME@ALIAS or hf://OWNER/NAME"
        raise UserError(f"{address!r} is no address to publish to; {fix}")


def _register(
    program: str,
    name: str,
    alias: str | None,
    force: bool,
    allow_code: bool,
    min_n: int | None,
    margin: float | None,
) -> None:
    """Register a program in MLflow's registry, and print its version and how to serve it."""
    from ..runs.publish import register

    registered = register(program, name, alias, force, allow_code, min_n, margin)
    summary = registered.summary()

    version_line = f"version {registered.version} of {name}: {registered.address}"
    if not registered.is_new:
        version_line = f"this program was there already: {version_line}"
    serve_command = (
        f"MLFLOW_TRACKING_URI={shlex.quote(str(summary['tracking_uri']))} "
        f"mlflow models serve -m {shlex.quote(registered.address)} --env-manager local"
    )
    lines = [version_line, f"gate: {registered.gate}", f"to serve it: {serve_command}"]
    print_result(summary, lines)


def _push_to_hub(program: str, address: str, private: bool) -> None:
    """Upload a program to the Hugging Face hub, and print its address there.

    Args:
        program: The folder of the program, or the address of another copy of it.
        address: Where it is uploaded: hf://OWNER/NAME.
        private: Whether a new repository is private.
    """
    from ..runs.program_address import program_folder
    from ..runs.publish import push

    # Without a folder, `push` gets the text itself, and raises the error that there is no program.
    folder = program_folder(program) or program
    # The address contains the commit, so it stands for this version for good.
    address_of_commit = push(folder, address, private)
    print_result({"address": address_of_commit}, [f"published: {address_of_commit}"])
