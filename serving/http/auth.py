"""Authentication: bearer tokens, each bound to a tenant to whose memories, of all its users, it gives access.

The lines of a token file are `TENANT TOKEN` or `TENANT sha256:HEX`. It is read again when it changes, so a token is
withdrawn by deleting its line. One that has become unreadable or invalid could have withdrawn any token: all requests
are refused until it is repaired. No route takes a tenant from the request.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from ...errors import DataError, UserError
from ...memory.names import valid_name
from ...records.text_file import read_bounded
from . import connection
from .errors import (
    GONE,
    OTHER_ORIGIN,
    OTHER_PATH,
    SLOW_BODY,
    TOO_LARGE,
    UNKNOWN_HOST,
    UNKNOWN_TOKEN,
    log,
    response_of,
)
from .json_check import JsonCheck

GUARDED = "/v1"
"""Below this path every request needs a token; other paths reveal nothing about users."""
METRICS = "/metrics"
"""What all tenants together did is for nobody but the operator."""
OPERATOR = "metrics"
"""The tenant whose tokens open `METRICS`, and nothing else."""
OPEN_TENANT = "default"
"""Whose users a service without tokens serves."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine; a service without tokens answers to no other."""
_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
"""A `Host` header, in small letters, that names this machine."""

Slot = Callable[[str], AbstractContextManager[None]]
"""What a request of a tenant holds until it is served."""
_TICK = 2 * 10**9
"""Nanoseconds within which two changes of a file may have one time: the clocks of file systems are coarse."""
_LONGEST = 10_000_000
"""Most characters of a token file."""
_LINE = re.compile(r"(\S+)\s+(?:sha256:([0-9a-f]{64})|(?!sha256:)(\S{16,}))")


class Tokens:
    """The tokens of a file, kept as digests only.

    Args:
        path: The token file.

    Raises:
        UserError: It cannot be read, holds no token, or a line is wrong.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._text_digest = ""
        """The digest of the text that the tokens were read from; "" if the file could not be read or was wrong."""
        self._read_version = self._version()
        self._read()

    def tenant(self, token: str) -> str | None:
        """The tenant of a token; None for an unknown one.

        The token is looked up by its digest, so the time this takes tells nothing of the tokens there are.
        """
        self._refresh()
        return self._tenants.get(_digest(token))

    @property
    def works(self) -> bool:
        """Whether the file can be used."""
        self._refresh()
        return bool(self._tenants)

    def _refresh(self) -> None:
        """Read the file again if it changed, or may have changed, since it was read."""
        version = self._version()
        last = self._read_version
        if version == last and (last is None or last.is_settled):
            return

        try:
            self._read()
        except UserError as error:
            if version != last or self._text_digest:
                log.error("token file is wrong, all requests are refused", extra={"cause": str(error)})
            self._text_digest = ""
            self._take({})
        self._read_version = version

    def _read(self) -> None:
        """Take the tokens of the file, unless its text is the same as before.

        Raises:
            UserError: It cannot be read, holds no token, or a line is wrong.
        """
        text = _text_of(self._path)
        digest = _digest(text)
        if digest == self._text_digest:
            return
        self._take(_parse_tokens(text, self._path))
        self._text_digest = digest
        _warn_of_readers(self._path)

    def _take(self, tenants: dict[str, str]) -> None:
        self._tenants = tenants
        self.several = len(set(tenants.values())) > 1
        """Whether there is more than one tenant."""

    def _version(self) -> _FileVersion | None:
        """Return which version of the file is there now; None if there is none."""
        try:
            found = self._path.stat()
        except (OSError, ValueError):
            return None
        return _FileVersion(
            device=found.st_dev,
            inode=found.st_ino,
            size=found.st_size,
            modified=found.st_mtime_ns,
            changed=found.st_ctime_ns,
            is_settled=time.time_ns() - found.st_ctime_ns > _TICK,
        )


@dataclass(frozen=True)
class _FileVersion:
    """What tells versions of a file apart without reading it."""

    device: int
    inode: int
    size: int
    modified: int
    """When its content was written, in nanoseconds; anybody who may write the file can set it."""
    changed: int
    """When anything of it was changed; the system alone sets it."""
    is_settled: bool = field(compare=False)
    """Whether another change would have another time: one within the same tick of the clock would not."""


def _text_of(path: Path) -> str:
    """Return the text of a token file.

    Raises:
        UserError: It cannot be read, or is too long.
    """
    try:
        return read_bounded(path, _LONGEST, "it has a line for each token")
    except DataError as error:
        raise UserError(f"token file {error}") from error


def _warn_of_readers(path: Path) -> None:
    """Log a warning if everybody on this machine can read a token file."""
    with suppress(OSError):
        if path.stat().st_mode & stat.S_IROTH:
            log.warning("everybody on this machine can read the token file; take that right away: chmod o-r")


def _parse_tokens(text: str, path: Path) -> dict[str, str]:
    """Return the tenants in the text of a token file, by the digests of their tokens.

    Raises:
        UserError: It holds no token, or a line is wrong; no message holds a token.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where, given = f"{path}: line {number}", _LINE.fullmatch(line.strip())
        if given is None:
            how = "TENANT TOKEN, the token of at least 16 characters, or TENANT sha256:HEX, of 64 hexadecimal digits"
            raise UserError(f"{where}: expected {how} in lower case")
        tenant, digest = valid_name("tenant", given[1]), given[2] or _digest(given[3])
        if found.setdefault(digest, tenant) != tenant:
            raise UserError(f"{where}: this token is bound to another tenant above; give each its own")
    if not found:
        raise UserError(f"{path}: holds no token; write lines of the form: TENANT TOKEN")
    return found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class AuthMiddleware:
    """ASGI middleware: a request goes on with its tenant and its whole body, or is refused before any parsing.

    Without a token no body is read. One that is large, announced or not, is refused with 413, a slow one with 408.
    Until its last byte is sent it holds a `place` of its tenant. A refusal ends the connection.
    """

    def __init__(
        self, app: Any, tokens: Tokens | None, most: int, seconds: float, place: Slot, json_check: JsonCheck
    ) -> None:
        self._app, self._tokens, self._most, self._seconds, self._place = app, tokens, most, seconds, place
        self._json_check = json_check

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:
            try:
                tenant = scope.setdefault("state", {})["tenant"] = tenant_of(scope, self._tokens)
                if scope["path"].startswith(GUARDED):
                    held.enter_context(self._place(tenant or ""))
                body = await self._body(scope, receive)
                await self._json_check.check(tenant or "", body)
            except (HTTPException, TimeoutError) as error:
                refusal = error if isinstance(error, HTTPException) else SLOW_BODY()
            else:
                # Read once more, the body is the whole one; a wait for more is a wait for the client to leave.
                messages = iter([{"type": "http.request", "body": body, "more_body": False}])

                async def replay() -> Any:
                    return next(messages, None) or await receive()

                await self._app(scope, replay, send)
                return

        await self._refuse(refusal, scope, receive, send)

    async def _body(self, scope: Any, receive: Any) -> bytes:
        """Receive the whole body.

        Raises:
            HTTPException: It is too large or malformed, or the client went away.
            TimeoutError: It did not come in time.
        """
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._most:
            raise TOO_LARGE()

        body = bytearray()
        async with asyncio.timeout(self._seconds):
            while True:
                message = await receive()
                # Half a body might be a whole request.
                if message["type"] != "http.request":
                    raise GONE()
                if refusal := scope["state"].get("refusal"):
                    raise refusal

                body += message.get("body", b"")
                if len(body) > self._most:
                    raise TOO_LARGE()
                if not message.get("more_body"):
                    return bytes(body)

    async def _refuse(self, refusal: HTTPException, scope: Any, receive: Any, send: Any) -> None:
        """Send a refusal, throw the rest of the body away for a moment, and end the connection."""
        response = response_of(refusal)
        response.headers["Connection"] = "close"
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})

        with suppress(TimeoutError):
            async with asyncio.timeout(connection.LINGER):
                await self._discard_body(receive)

        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _discard_body(self, receive: Any) -> None:
        """Receive what is left of a body, at most as much as a valid one may have, until it or its client is gone."""
        discarded = 0
        while discarded <= self._most:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return
            discarded += len(message.get("body", b""))


def tenant_of(scope: Any, tokens: Tokens | None) -> str | None:
    """The tenant that a request is of; None for one that needs none. Without tokens all of this machine is `default`.

    Raises:
        HTTPException: The token is unknown or of another use (401, 403), or a page of another host asks (403).
    """
    path, headers = scope["path"], Headers(scope=scope)
    if not (path.startswith(GUARDED) or path == METRICS):
        return None
    if tokens is None:
        given = headers.getlist("host")
        host = given[0].lower() if len(given) == 1 else ""
        # What a web page in a browser of this machine asks must not be taken for its user.
        if not _LOOPBACK_HOST.fullmatch(host):
            raise UNKNOWN_HOST()  # DNS rebinding
        if any(origin.lower() not in (f"http://{host}", f"https://{host}") for origin in headers.getlist("origin")):
            raise OTHER_ORIGIN()
        if not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site")):
            raise OTHER_ORIGIN()
        return OPEN_TENANT
    given = headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    tenant = tokens.tenant(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    if tenant is None:
        raise UNKNOWN_TOKEN()
    if (tenant == OPERATOR) != (path == METRICS):
        raise OTHER_PATH()
    return tenant
