"""Settings as the command line takes them: NAME=VALUE."""

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
        key = name.replace("-", "_")
        with_zero = re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", text)
        try:
            settings[key] = decode_json(with_zero)
        except ValueError:
            settings[key] = text
    return settings
