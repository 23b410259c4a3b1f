"""Settings as the command line takes them: NAME=VALUE.

On the command line a name may have hyphens for underscores, as options do (`with_underscores`). In
a file it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..errors import UserError


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return settings by name.

    A value is read as JSON where it is JSON (and .5 as 0.5), else as text.

    Raises:
        UserError: There is no equals sign in one of them.
    """
    # It brings pydantic, which a command without settings does not need.
    from ..records.json_input import decode_json

    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"{pair!r} is not NAME=VALUE")
        with_zero = re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", text)
        try:
            settings[name] = decode_json(with_zero)
        except ValueError:
            settings[name] = text
    return settings


def with_underscores(pair: str) -> str:
    """Return NAME=VALUE with an underscore for each hyphen of the name."""
    name, equals, text = pair.partition("=")
    return f"{name.replace('-', '_')}{equals}{text}"
