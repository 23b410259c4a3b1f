"""Addresses of endpoints: in one form, and as digests.

Two servers may call different models by one name. So what is kept from one run to the next belongs
to a server. Files hold a digest of its address, from which nobody can read where the server is.
"""

from __future__ import annotations

import hashlib
import os
from urllib.parse import urlsplit

from ...validation import check_address

_DEFAULT_PORTS = {"http": 80, "https": 443}


def normal_address(address: str) -> str:
    """Return an address in one form, without name, password and query, which may hold a key.

    >>> from mempiler.engines.endpoint.address import normal_address
    >>> normal_address("HTTP://ann:secret@Example.org:80/v1/")
    'http://example.org/v1'
    """
    parts = urlsplit(address)
    host = parts.hostname or ""  # in small letters
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    if parts.port is not None and parts.port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{parts.port}"
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def address_in_environment(provider: str) -> str | None:
    """Return the address that a variable such as `OPENAI_BASE_URL` sets; None if there is none.

    Args:
        provider: What names of its models begin with, such as "openai".

    Raises:
        UserError: The variable holds no address of a server.
    """
    for suffix in ("BASE_URL", "API_BASE"):
        variable = f"{provider.upper()}_{suffix}"
        address = os.environ.get(variable)
        if address:
            check_address(variable, address)
            return address
    return None


def endpoint_digest(kind: str, address: str) -> str:
    """Return a digest that tells an endpoint from all others.

    Args:
        kind: The client that asks it, such as "openai-chat".
        address: Its address, in any spelling.
    """
    return hashlib.sha256(f"{kind} {normal_address(address)}".encode()).hexdigest()
