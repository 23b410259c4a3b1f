"""What Mempiler uses of DSPy's tools."""

from collections.abc import Callable
from typing import Any

from .base_type import Type

class Tool(Type):
    name: str | None
    desc: str | None
    args: dict[str, Any] | None

    def __init__(self, func: Callable[..., Any], name: str | None = ...) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...
