"""`mempiler push`: put a saved program on the Hugging Face hub."""

from __future__ import annotations

import click

from .options import JSON, output, print_json


@click.command("push")
@click.argument("program", type=click.Path())
@click.argument("address")
@click.option("--private", is_flag=True, help="make a new repository private")
@JSON
def command(program: str, address: str, private: bool, as_json: bool) -> None:
    """Put PROGRAM (the folder of a saved program, or its address) on the Hugging Face hub at ADDRESS, hf://OWNER/NAME.

    Only its JSON files go there: prompts, demos, manifest. hf://OWNER/NAME@COMMIT then stands for it
    wherever a program folder does. Needs a token of the hub: HF_TOKEN, or `hf auth login`.
    """
    from ..errors import UserError
    from ..runs.addresses import program_folder
    from ..runs.hub import push

    folder = program_folder(program)
    if folder is None:
        raise UserError(f"{program}: no such folder")
    address = push(folder, address, private)
    if as_json:
        print_json({"address": address})
        return
    output().print(f"pushed: {address}", soft_wrap=True)
