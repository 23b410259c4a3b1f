"""`mempiler serve`: the HTTP service over a store of memories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from socket import socket
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import UserError
from ..serving.settings import Settings
from ..validation import check_number, validation_message
from .options import (
    SECONDS,
    STORE,
    asking_options,
    open_program_and_model,
    open_store,
    setting_options,
)

if TYPE_CHECKING:
    from ..serving.http.service import Service
    from .option_values import AskingOptions

_SHARED_MEMORY = "/dev/shm"
"""A folder that is kept in memory, on systems that have it."""


@dataclass(frozen=True)
class _ServiceOptions:
    """What a process needs to make its service; it is pickled for other processes."""

    program: str
    store: str | None
    name: str
    token_file: str | None
    lm_timeout: float
    lm_retries: int
    lm_deadline: float
    log_level: str
    otel: bool
    other_values: Mapping[str, Any]
    """Values of `asking_options`, and of the fields of `Settings`."""


@click.command("serve")
@click.argument("program", type=click.Path(), envvar="MEMPILER_PROGRAM")
@STORE
@click.option(
    "--host",
    default="127.0.0.1",
    help="address to listen at; another than this machine's needs --token-file",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="port to listen at")
@click.option(
    "--token-file",
    type=click.Path(),
    help="lines of TENANT TOKEN; without it everybody on this machine may ask",
)
@click.option("--name", default="mempiler", help="what clients of the chat call the model")
@setting_options(Settings)
@click.option(
    "--lm-timeout", type=SECONDS, default=25.0, help="read timeout of the model in seconds"
)
@click.option("--lm-retries", type=click.IntRange(0), default=1, help="of a call that failed")
@click.option(
    "--lm-deadline",
    type=SECONDS,
    default=40.0,
    help="seconds for a call to the model, its retries and waits included",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    help="processes that answer; each has the threads, limits and writers given here",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="least level of log lines",
)
@click.option("--otel", is_flag=True, help="send spans as the variables OTEL_* say")
@asking_options
def command(
    program: str,
    store: str | None,
    host: str,
    port: int,
    token_file: str | None,
    name: str,
    lm_timeout: float,
    lm_retries: int,
    lm_deadline: float,
    workers: int,
    log_level: str,
    otel: bool,
    **other_values: Any,
) -> None:
    """Serve PROGRAM over HTTP until stopped.

    PROGRAM is the folder of a saved program, or models:/NAME@ALIAS.
    """
    from ..serving.http.server import listen, serve

    check_number("lm_timeout", lm_timeout)
    check_number("lm_deadline", lm_deadline)
    request_timeout = other_values["timeout"]
    if lm_deadline >= request_timeout:
        raise UserError(
            f"--lm-deadline {lm_deadline:g} must be less than --timeout {request_timeout:g}"
        )

    options = _ServiceOptions(
        program=program,
        store=store,
        name=name,
        token_file=token_file,
        lm_timeout=lm_timeout,
        lm_retries=lm_retries,
        lm_deadline=lm_deadline,
        log_level=log_level,
        otel=otel,
        other_values=other_values,
    )
    with listen(host, port, token_file is not None) as listening_socket:
        # With several processes this service only shows, before any of them starts, that one can be
        # made.
        service = _make_service(options)
        if workers == 1:
            serve(service, listening_socket)
        else:
            service.store.close()
            _serve_with_processes(options, service.settings, listening_socket, workers)


def _serve_with_processes(
    options: _ServiceOptions, settings: Settings, listening_socket: socket, workers: int
) -> None:
    """Serve with several processes.

    Each process counts its own requests. To report metrics of all of them, the processes keep their
    counts in files of a shared folder.
    """
    from ..serving.http.metrics import SHARED_FOLDER
    from ..serving.http.server import serve_with_workers

    # prometheus-client maps these files into memory. On a full disk, a process that writes to such
    # a file is killed. So the folder is kept in memory, on systems that have a place for it.
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="mempiler-", dir=parent) as folder:
        # The processes inherit this environment variable. It tells them the folder.
        os.environ[SHARED_FOLDER] = folder
        # A process that dies is replaced. If the database cannot be reached at that moment, the new
        # process has to start without it: if it failed, all other processes would be ended, too.
        make_service = partial(_make_service, options, connect=False)
        serve_with_workers(make_service, settings, listening_socket, workers)


def _make_service(options: _ServiceOptions, connect: bool = True) -> Service:
    """Make the service in the process that runs it.

    Args:
        options: The options of the command.
        connect: Whether a database that cannot be reached is an error, as for `open_store`.

    Raises:
        UserError: An option is invalid, or the program or the store cannot be opened.
    """
    from pydantic import ValidationError

    from ..engines.model_checks import check_key
    from ..engines.model_config import ModelConfig
    from ..serving.http.log_lines import set_up
    from ..serving.http.service import Service
    from ..serving.http.token_file import Tokens
    from ..serving.worker.breaker import Breaker

    try:
        settings = Settings(
            **{field: options.other_values[field] for field in Settings.model_fields}
        )
    except ValidationError as error:
        raise UserError(f"--{validation_message(error).replace('_', '-')}") from error
    tokens = None if options.token_file is None else Tokens(options.token_file)

    model_config = ModelConfig(
        cache=False,
        slots=settings.threads,
        timeout=options.lm_timeout,
        retries=options.lm_retries,
        deadline=options.lm_deadline,
    )
    asking_values = cast("AskingOptions", options.other_values)
    opened = open_program_and_model(options.program, asking_values, model_config, Breaker())
    check_key(opened.lm)

    spans = None
    if options.otel:
        # Needs an extra.
        from ..serving.http.tracing import make_tracer_provider

        spans = make_tracer_provider()

    store = open_store(options.store, make=True, connect=connect)
    set_up(options.log_level)
    return Service(opened.program, store, opened.lm, options.name, tokens, settings, spans)
