"""`mempiler keys`: key pairs, and signatures of saved programs; see `runs.signing`."""

from __future__ import annotations

import click

from .options import JSON, SIGN_KEY, output, print_json


@click.group("keys")
def command() -> None:
    """Make a key pair, and sign saved programs with it."""


@command.command("make")
@click.argument("path", type=click.Path())
@JSON
def make(path: str, as_json: bool) -> None:
    """Write a private key to the file PATH, and its public key to PATH.pub, a file for --trust."""
    from ..runs.signing import make_keys

    trust, line = make_keys(path)
    if as_json:
        print_json({"private": path, "trust": str(trust), "line": line})
        return
    output().print(f"private key: {path} (keep it to yourself)\ntrust file: {trust}: {line}", soft_wrap=True)


@command.command("sign")
@click.argument("program", type=click.Path())
@SIGN_KEY
@JSON
def sign(program: str, sign_key: str | None, as_json: bool) -> None:
    """Sign the saved program in the folder PROGRAM; an older signature is replaced."""
    from ..errors import UserError
    from ..runs.addresses import is_address
    from ..runs.artifact import read_manifest, sign_folder

    if sign_key is None:
        raise UserError("nothing to sign with; give --sign-key, or make a key with `mempiler keys make`")
    if is_address(program):
        raise UserError(f"{program}: a version does not change; sign one with `mempiler register --sign-key`")
    sign_folder(program, sign_key)
    found = {"program": program, "manifest_sha256": read_manifest(program).manifest_sha256}
    if as_json:
        print_json(found)
        return
    output().print(f"signed: {program}", soft_wrap=True)
