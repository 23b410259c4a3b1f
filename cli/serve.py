"""`mempiler serve`: the HTTP service over a store of memories."""

from __future__ import annotations

import os
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ..serving.settings import Settings
from ..validation import check_number, validation_message
from .options import SECONDS, STORE, asking_options, open_asked, open_store, setting_options

if TYPE_CHECKING:
    from ..serving.service import Service


def _option(name: str, kind: Any, default: Any, help: str) -> Any:
    return click.option(f"--{name}", type=kind, default=default, help=help)


@click.command("serve")
@click.argument("program", type=click.Path(), envvar="MEMPILER_PROGRAM")
@STORE
@_option("host", str, "127.0.0.1", "address to listen at; another than this machine's needs --token-file")
@_option("port", click.IntRange(0, 65535), 8000, "port to listen at")
@_option("token-file", click.Path(), None, "lines of TENANT TOKEN; without it everybody on this machine may ask")
@_option("name", str, "mempiler", "what clients of the chat call the model")
@setting_options(Settings)
@_option("lm-timeout", SECONDS, 25.0, "read timeout of the model in seconds")
@_option("lm-retries", click.IntRange(0), 1, "of a call that failed")
@_option("lm-deadline", SECONDS, 40.0, "seconds for a call to the model, its retries and waits included")
@_option("workers", click.IntRange(1), 1, "processes that answer; each has the threads, limits and writers given here")
@_option("log-level", click.Choice(["debug", "info", "warning", "error"]), "info", "least level of log lines")
@click.option("--otel", is_flag=True, help="send spans as the variables OTEL_* say")
@asking_options
def command(host: str, port: int, workers: int, **given: Any) -> None:
    """Serve PROGRAM (the folder of a saved program, or models:/NAME@ALIAS) over HTTP until stopped."""
    from ..serving.app import listen, serve, serve_with_workers
    from ..serving.operations import SHARED_FOLDER

    for name in ("lm_timeout", "lm_deadline"):
        check_number(name, given[name])
    if given["lm_deadline"] >= given["timeout"]:
        raise UserError(f"--lm-deadline {given['lm_deadline']:g} must be less than --timeout {given['timeout']:g}")
    with listen(host, port, given["token_file"] is not None) as bound:
        service = _service(given)
        if workers == 1:
            serve(service, bound)
            return
        # It was made to see that it can be: the processes make their own.
        service.store.close()
        # In memory, where there is such a place: what is mapped there must not run out of disk.
        there = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with TemporaryDirectory(prefix="mempiler-", dir=there) as folder:
            os.environ[SHARED_FOLDER] = folder
            # The database may be down when a process that died is replaced: that must not end the others.
            make_service = partial(_service, given, connect=False)
            serve_with_workers(make_service, service.settings, bound, workers)


def _service(given: dict[str, Any], connect: bool = True) -> Service:
    """Make the service of the options, in the process that is to be one; `connect` is as of `open_store`."""
    from pydantic import ValidationError

    from ..engines.model_checks import check_key
    from ..serving.auth import Tokens
    from ..serving.breaker import Breaker
    from ..serving.operations import set_up
    from ..serving.service import Service

    try:
        settings = Settings(**{name: given[name] for name in Settings.model_fields})
    except ValidationError as error:
        raise UserError(f"--{validation_message(error).replace('_', '-')}") from error
    tokens = Tokens(given["token_file"]) if given["token_file"] is not None else None
    waits = {"timeout": given["lm_timeout"], "retries": given["lm_retries"], "deadline": given["lm_deadline"]}
    bounds = {"guard": Breaker(), "cache": False, "slots": settings.threads}
    program, _, model = open_asked(given["program"], given, **bounds, **waits)
    check_key(model)
    spans = None
    if given["otel"]:
        from ..serving.tracing import exported  # an extra

        spans = exported()
    store = open_store(given["store"], make=True, connect=connect)
    set_up(given["log_level"])
    return Service(program, store, model, given["name"], tokens, settings, spans)
