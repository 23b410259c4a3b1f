from typing import Any

from dspy.clients.base_lm import BaseLM
from dspy.predict.parameter import Parameter
from dspy.primitives.example import Example
from dspy.primitives.module import Module
from dspy.primitives.prediction import Prediction
from dspy.signatures.signature import Signature
from dspy.utils.callback import BaseCallback

class Predict(Module, Parameter):
    signature: type[Signature]
    config: dict[str, Any]
    fields: dict[str, dict[str, Any]]
    demos: list[Example | dict[str, Any]]
    lm: BaseLM | None

    def __init__(
        self, signature: str | type[Signature], callbacks: list[BaseCallback] | None = None, **config: Any
    ) -> None: ...
    def reset(self) -> None: ...
    def forward(self, **kwargs: Any) -> Prediction: ...
    async def aforward(self, **kwargs: Any) -> Prediction: ...
