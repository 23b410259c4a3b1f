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
from typing import NamedTuple, cast
from urllib.parse import quote, unquote

_SECRET_VARIABLE = re.compile("(API_KEY|ACCESS_KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SECRET_HEADER = re.compile("authorization|key|token|secret", re.IGNORECASE)

_SCHEME = re.compile("([a-z][a-z0-9+.-]*:)?/+", re.IGNORECASE)
"""The beginning of an address. Without a slash, a word and a colon may be a name as well."""


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
    """Return the password of an address, plain and as HTTP sends it; [] if it has none.

    Where it ends is not always clear: a password may hold `@` and `/`, and so may what follows it.
    Then each text that may be the password is returned, the most likely one first.
    """
    secrets: list[str] = []
    for login in _possible_logins(address or ""):
        name = unquote(login.name)
        password = unquote(login.password)
        basic_credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
        secrets.extend([password, basic_credentials])
    return secrets


def hide_password(address: str) -> str:
    """Return an address without its password, however short that is.

    Everything from the first colon to the last `@` is hidden, since the address may be malformed.

    >>> from mempiler.secret_values import hide_password
    >>> hide_password("http://ann:pw@localhost/v1")
    'http://ann:[secret]@localhost/v1'
    """
    scheme = _scheme_of(address)
    name, colon, rest = address.removeprefix(scheme).partition(":")
    _, at_sign, place = rest.rpartition("@")
    if not colon or not at_sign:
        return address
    return f"{scheme}{name}:{Secrets.REPLACEMENT}@{place}"


class _Login(NamedTuple):
    """A name and a password as an address spells them."""

    name: str
    password: str


def _possible_logins(address: str) -> list[_Login]:
    """Return the logins that an address may hold, the most likely one first."""
    scheme = _scheme_of(address)
    logins = _logins_of(address.removeprefix(scheme))
    if not scheme:
        # A scheme without slashes looks like a name. In `http:ann:password@host` it is a scheme, so
        # the address is also read without its first word.
        logins.extend(_logins_of(address.partition(":")[2]))
    return logins


def _logins_of(address: str) -> list[_Login]:
    """Return the logins that an address without its scheme may hold, the most likely one first.

    In `ann:a@b@host` the password is "a" or "a@b", for it may end at any `@`. HTTP clients take the
    last one before a slash, which therefore comes first. SQLAlchemy allows slashes in a password,
    so without such an `@` the others follow in their order.
    """
    name, _, rest = address.partition(":")
    ends = [index for index, character in enumerate(rest) if character == "@"]

    before_slash = rest.partition("/")[0]
    end_for_http = before_slash.rfind("@")
    if end_for_http >= 0:
        ends.remove(end_for_http)
        ends.insert(0, end_for_http)
    return [_Login(name, rest[:end]) for end in ends]


def _scheme_of(address: str) -> str:
    """Return the scheme of an address with its slashes; "" if it has none."""
    scheme = _SCHEME.match(address)
    return "" if scheme is None else scheme.group()


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
