"""Keys, tokens and passwords that this process was given, and texts without them.

A server that refuses a request may repeat it in its answer, `Authorization` and all. What it says goes into messages,
files of runs, logs and answers to tenants. So whoever makes an error of what a server says hides the secrets that the
server was sent.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

_SECRET_VARIABLE = re.compile("(API_KEY|ACCESS_KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SECRET_HEADER = re.compile("authorization|key|token|secret", re.IGNORECASE)
_LOGIN = re.compile("//(?P<name>[^/:@]*):(?P<password>[^/]*|[^@]*)@")
"""Clients of HTTP read a password with an `@` in it, SQLAlchemy one with a `/`."""


class Secrets:
    """Hides what no message, file, log or answer may show.

        >>> from mempiler.secret_values import Secrets
        >>> Secrets(["sk-0123456789"]).hide("refused: Bearer sk-0123456789")
        'refused: Bearer [secret]'

    Args:
        values: The secrets. None and short ones are passed over: `none` is what servers without a key are shown.
    """

    SHORTEST = 6
    """Characters of the shortest secret; to hide shorter ones would spoil words of messages."""
    SHOWN = "[secret]"
    """What stands in the place of a secret."""

    def __init__(self, values: Iterable[str | None]) -> None:
        forms: set[str] = set()
        for value in values:
            if value is not None and len(value) >= self.SHORTEST:
                # As it is, as a part of an address, and within JSON.
                forms |= {value, quote(value, safe=""), json.dumps(value)[1:-1]}
        # A secret may begin with another one.
        self._forms = sorted(forms, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in self._forms:
            text = text.replace(form, self.SHOWN)
        return text

    def hide_in_bytes(self, content: bytes) -> bytes:
        """Return a text in UTF-8 without the secrets."""
        for form in self._forms:
            content = content.replace(form.encode("utf-8", "surrogatepass"), self.SHOWN.encode())
        return content

    def hide_in_error(self, error: BaseException | None) -> None:
        """Take the secrets out of what an error says, and out of the errors that it came from."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            error.args = tuple(self.hide(part) if isinstance(part, str) else part for part in error.args)
            for name, value in vars(error).items():
                if isinstance(value, str):
                    setattr(error, name, self.hide(value))
            error = error.__cause__ or error.__context__

    @contextmanager
    def hiding(self) -> Generator[None]:
        """Take the secrets out of the errors of the block."""
        try:
            yield
        except Exception as error:
            self.hide_in_error(error)
            raise


def secrets_of_environment() -> list[str]:
    """Return the keys, tokens and passwords that variables of this process hold."""
    return [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)]


def secrets_of_address(address: str | None) -> list[str]:
    """Return the password of an address, also in the form in which it is sent; nothing where it has none."""
    found = _LOGIN.search(address or "")
    if found is None:
        return []
    name, password = unquote(found["name"]), unquote(found["password"])
    return [password, base64.b64encode(f"{name}:{password}".encode()).decode()]


def secrets_of_settings(settings: Mapping[str, Any]) -> list[str]:
    """Return the secrets among the settings of a `dspy.LM`: its key, the password of its address, those in headers."""
    secrets: list[str] = []
    if isinstance(settings.get("api_key"), str):
        secrets.append(settings["api_key"])

    for name in ("api_base", "base_url"):
        if isinstance(settings.get(name), str):
            secrets += secrets_of_address(settings[name])

    for name in ("headers", "extra_headers"):
        for header, value in (settings.get(name) or {}).items():
            if _SECRET_HEADER.search(header):
                secrets.append(str(value).rpartition(" ")[2])  # without its scheme, e.g. "Bearer"
    return secrets
