"""Hide the keys, tokens and passwords of this process in texts.

A server that refuses a request may repeat it in its answer, `Authorization` header included. That
answer goes into messages, files of runs, logs and answers to tenants. So code that makes an error
from an answer first hides the secrets that it sent to the server.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import cast
from urllib.parse import quote, unquote

_SECRET_VARIABLE = re.compile("(API_KEY|ACCESS_KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SECRET_HEADER = re.compile("authorization|key|token|secret", re.IGNORECASE)

# HTTP clients allow an `@` in a password, SQLAlchemy allows a `/`.
_LOGIN = re.compile("//(?P<name>[^/:@]*):(?P<password>[^/]*|[^@]*)@")


class Secrets:
    """Hides secrets in texts and errors.

        >>> from mempiler.secret_values import Secrets
        >>> Secrets(["sk-0123456789"]).hide("refused: Bearer sk-0123456789")
        'refused: Bearer [secret]'

    Args:
        values: The secrets. None and values of fewer than `MIN_LENGTH` characters are ignored, for
            example the key "none" that is sent to servers without keys.
    """

    MIN_LENGTH = 6
    """Length of the shortest secret: to hide shorter ones would spoil words of messages."""

    REPLACEMENT = "[secret]"

    def __init__(self, values: Iterable[str | None]) -> None:
        spellings: set[str] = set()
        for value in values:
            if value is None or len(value) < self.MIN_LENGTH:
                continue

            spellings.add(value)
            spellings.add(quote(value, safe=""))  # in an address
            spellings.add(json.dumps(value)[1:-1])  # in JSON

        # Longest first, since one secret may begin with another one.
        self._spellings = sorted(spellings, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for spelling in self._spellings:
            text = text.replace(spelling, self.REPLACEMENT)
        return text

    def hide_in_bytes(self, content: bytes) -> bytes:
        """Return a UTF-8 text without the secrets."""
        for spelling in self._spellings:
            content = content.replace(
                spelling.encode("utf-8", "surrogatepass"), self.REPLACEMENT.encode()
            )
        return content

    def hide_in_error(self, error: BaseException | None) -> None:
        """Replace the secrets in an error, and in the errors that caused it."""
        seen_ids: set[int] = set()
        while error is not None and id(error) not in seen_ids:
            seen_ids.add(id(error))
            self._hide_in_one_error(error)
            error = error.__cause__ or error.__context__

    def _hide_in_one_error(self, error: BaseException) -> None:
        """Replace the secrets in the arguments and attributes of an error that are texts."""
        error.args = tuple(self._hide_if_text(argument) for argument in error.args)
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.hide(value))

    def _hide_if_text(self, value: object) -> object:
        return self.hide(value) if isinstance(value, str) else value

    @contextmanager
    def hiding(self) -> Generator[None]:
        """Replace the secrets in errors that leave the block."""
        try:
            yield
        except Exception as error:
            self.hide_in_error(error)
            raise


def secrets_of_environment() -> list[str]:
    """Return the keys, tokens and passwords in the environment variables of this process."""
    return [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)]


def secrets_of_address(address: str | None) -> list[str]:
    """Return the password of an address, plain and as HTTP sends it; [] if it has none."""
    login = _LOGIN.search(address or "")
    if login is None:
        return []

    name = unquote(login["name"])
    password = unquote(login["password"])
    basic_credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
    return [password, basic_credentials]


def hide_password(address: str) -> str:
    """Return an address without its password, however short that is.

    >>> from mempiler.secret_values import hide_password
    >>> hide_password("http://ann:pw@localhost/v1")
    'http://ann:[secret]@localhost/v1'
    """
    return _LOGIN.sub(rf"//\g<name>:{Secrets.REPLACEMENT}@", address)


def secrets_of_settings(settings: Mapping[str, object]) -> list[str]:
    """Return the secrets in the settings of a `dspy.LM`: in its key, address and headers."""
    secrets: list[str] = []
    api_key = settings.get("api_key")
    if isinstance(api_key, str):
        secrets.append(api_key)

    for setting in ("api_base", "base_url"):
        address = settings.get(setting)
        if isinstance(address, str):
            secrets.extend(secrets_of_address(address))

    for setting in ("headers", "extra_headers"):
        headers = cast("Mapping[str, object]", settings.get(setting) or {})
        for header, value in headers.items():
            if _SECRET_HEADER.search(header):
                # Leave out the scheme, such as "Bearer".
                _, _, secret = str(value).rpartition(" ")
                secrets.append(secret)
    return secrets
