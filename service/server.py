"""Running a service: uvicorn on one address until a signal, then an orderly end.

On SIGTERM or SIGINT no further connection is taken; requests that are being answered get `grace` seconds, then writers
finish the session they are at. What has not ended by then is left where it is: it is stored and queued, and whoever
comes next does it again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from ..errors import UserError
from ..memory.store import Store
from .access import LOOPBACK
from .app import make_app
from .logs import log, set_up
from .service import Service


def check_address(host: str, tokens: bool) -> None:
    """Refuses to serve other machines without tokens.

    Raises:
        UserError: The host is not this machine, and there are no tokens.
    """
    if not tokens and host not in LOOPBACK:
        raise UserError(f"--host {host} serves other machines; give --token-file, or serve 127.0.0.1")


def serve(service: Service, host: str, port: int, level: str = "info") -> None:
    """Serves until a signal comes; a second one ends it at once.

    Args:
        service: What is served.
        host: The address to listen at.
        port: The port; 0 for a free one, which the log names.
        level: `debug`, `info`, `warning` or `error`.
    """
    import uvicorn

    set_up(service.settings.log_contents, level)
    grace = max(1, round(service.settings.grace))
    config = uvicorn.Config(
        make_app(service),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=75,
    )
    # uvicorn's own lines come through the same formatter.
    logging.getLogger("uvicorn").setLevel(level.upper())
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn handles both while it serves, and raises them again afterwards; the end is in order by then.
        signal.signal(number, lambda *_: None)
    server = uvicorn.Server(config)
    server.run()
    _end(service, service.store, server.started)


def _end(service: Service, store: Store, started: bool) -> None:
    """Ends the process even if threads still wait for a language model: Python would wait for them for minutes."""
    if service.threads.busy or any(thread.is_alive() for thread in service.worker.threads):
        log.warning("work is left behind, stored and queued", extra={"requests": service.threads.busy})
        sys.stderr.flush()
        os._exit(0 if started else 1)
    store.close()
    if not started:
        raise UserError("the service did not start; the log says why")
