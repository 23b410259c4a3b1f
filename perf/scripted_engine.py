"""A language model that waits and then gives scripted replies, for the scripts that time the machinery around one."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any


class ScriptedEngine:
    """A DSPy engine that sleeps through every call, and counts calls by first output field.

    Args:
        latency: Seconds of a call.
        reply: The output fields, from the name of the first one and the text of the request.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, latency: float, reply: Callable[[str, str], dict[str, Any]]) -> None:
        self.latency = latency
        self.reply = reply
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def complete(self, request: Any) -> Any:
        """Waits, and answers."""
        from dspy.lm15 import Message, Response, Usage

        time.sleep(self.latency)
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or ())
        found = re.search(r"Your output fields are:\s*1\. `(\w+)`", system)
        kind = found.group(1) if found else ""
        with self._lock:
            self.calls[kind] += 1
        fields = self.reply(kind, request.messages[-1].text)
        parts = [f"[[ ## {key} ## ]]\n{v if isinstance(v, str) else json.dumps(v)}" for key, v in fields.items()]
        message = Message.assistant("\n\n".join([*parts, "[[ ## completed ## ]]"]))
        usage = Usage(input_tokens=100, output_tokens=10)
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)

    def __deepcopy__(self, memo: object) -> ScriptedEngine:
        return self
