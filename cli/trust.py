"""`--trust`: who must have signed a program; and who did sign one that is loaded, in one line on standard error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


def trust_option(formatter: Callable[[], logging.Formatter] = logging.Formatter) -> Callable[..., Any]:
    """`--trust`; while its command runs, who signed a program that is loaded is one line on standard error.

    Args:
        formatter: Makes what forms the line.
    """

    def telling(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if not context.resilient_parsing:
            context.with_resource(told_of_programs(formatter()))
        return value

    told = "file of public keys, one of which must have signed the program, see `mempiler keys`"
    return click.option(
        "--trust", type=click.Path(), envvar="MEMPILER_TRUST", show_envvar=True, callback=telling, help=told
    )


class _ErrorLines(logging.Handler):
    """Prints on what is standard error at that moment; progress bars put themselves in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


@contextmanager
def told_of_programs(formatter: logging.Formatter) -> Iterator[None]:
    """Who signed a program that is loaded is one line on standard error, meanwhile."""
    log, handler = logging.getLogger("mempiler.runs.artifact"), _ErrorLines()
    level = log.level
    handler.setFormatter(formatter)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
