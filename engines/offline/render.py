r"""Writing the filled fields back in the form the prompt asked for.

Example:
    >>> render("chat", {"answer": "7 May 2023"})
    '[[ ## answer ## ]]\n7 May 2023\n\n[[ ## completed ## ]]\n'
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .prompt import Style

_HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def render(style: Style, values: Mapping[str, Any]) -> str:
    """The reply that holds `values`, as the adapter of that style parses it."""
    if style == "json":
        return json.dumps(dict(values), ensure_ascii=False, indent=2)
    if style == "xml":
        return "\n\n".join(_xml(name, value) for name, value in values.items())
    fields = [f"[[ ## {name} ## ]]\n{_chat(value)}" for name, value in values.items()]
    return "\n\n".join([*fields, "[[ ## completed ## ]]\n"])


def _chat(value: Any) -> str:
    if isinstance(value, str):
        return _HEADER.sub(r"\1:", value)
    if isinstance(value, bool):
        return str(value)
    # The adapter cuts replies with str.splitlines, which also breaks at these.
    return json.dumps(value, ensure_ascii=False).translate({code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)})


def _xml(tag: str, value: Any) -> str:
    if value is None:
        return f"<{tag} />"
    if isinstance(value, list):
        return f"<{tag}>{''.join(_xml('item', part) for part in value)}</{tag}>"
    if isinstance(value, dict):
        return f"<{tag}>{''.join(_xml(name, part) for name, part in value.items())}</{tag}>"
    text = _CONTROL.sub("", str(value)).replace("&", "&amp;").replace("<", "&lt;")
    return f"<{tag}>{text}</{tag}>"
