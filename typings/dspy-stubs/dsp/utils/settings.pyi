from contextlib import AbstractContextManager
from typing import Any

from dspy.adapters.base import Adapter
from dspy.primitives.module import Module
from dspy.primitives.prediction import Prediction
from dspy.utils.callback import BaseCallback

class Settings:
    lm: Any
    adapter: Adapter | None
    trace: list[tuple[Module, dict[str, Any], Prediction]] | None
    callbacks: list[BaseCallback]
    max_trace_size: int

    def __getattr__(self, name: str) -> Any: ...
    def configure(self, **kwargs: Any) -> None: ...
    def context(self, **kwargs: Any) -> AbstractContextManager[None]: ...

main_thread_config: dict[str, Any]
settings: Settings
