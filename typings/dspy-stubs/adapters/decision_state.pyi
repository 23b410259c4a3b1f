"""What Mempiler uses of DSPy's decision settings."""

from typing import Any

from dspy.signatures.signature import Signature

class DecisionState:
    def __init__(self, signature: type[Signature], fields: dict[str, Any]) -> None: ...
