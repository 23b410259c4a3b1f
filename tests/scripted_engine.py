"""A language model whose answers a test writes, and helpers that write and read its texts."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

Reply = Callable[[str, str, int], "dict[str, Any] | str"]
"""Kind of the call, text of the user messages, number of the call of that kind -> the answer.

The kind is the name of the first output field. The answer is a text, or output fields by name.
"""


class ScriptedEngine:
    """An engine of a `MeteredLM` that gives the answers of a function.

    Args:
        reply: Gives the answer of a call.
        delay: Seconds that each call takes.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, reply: Reply, delay: float = 0.0) -> None:
        self.reply = reply
        self.delay = delay
        self.system = ""
        """The system message of the latest call."""
        self.heat = 0.0
        """The temperature of the latest call."""
        self.prompts: list[tuple[str, str]] = []
        """Kind and text of every call."""
        self._lock = threading.Lock()

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each kind."""
        return Counter(kind for kind, _ in self.prompts)

    def complete(self, request: Any) -> Any:
        from dspy.lm15 import Message, Response, Usage

        system = _system_text(request)
        first_output = re.search(r"Your output fields are:\s*1\. `(\w+)`", system)
        kind = first_output.group(1) if first_output else ""
        user_texts = [message.text for message in request.messages if message.role == "user"]
        text = "\n".join(user_texts)

        with self._lock:
            self.prompts.append((kind, text))
            number = self.calls[kind]
        if self.delay:
            time.sleep(self.delay)
        self.system = system
        self.heat = request.config.temperature or 0.0

        answer = self.reply(kind, text, number)
        if isinstance(answer, dict):
            answer = chat_fields(**answer)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(answer),
            finish_reason="stop",
            usage=Usage(input_tokens=len(text) // 4, output_tokens=len(answer) // 4),
        )

    def __deepcopy__(self, memo: object) -> ScriptedEngine:
        # DSPy copies the model with a program. The copies share what they record.
        return self


def _system_text(request: Any) -> str:
    """Return the system message of a request, which may come in parts."""
    if isinstance(request.system, str):
        return request.system
    return "".join(part.text for part in request.system or ())


def chat_fields(**values: Any) -> str:
    """Return output fields as a completion in the format of DSPy's chat adapter."""
    parts: list[str] = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        parts.append(f"[[ ## {name} ## ]]\n{text}")
    parts.append("[[ ## completed ## ]]")
    return "\n\n".join(parts)


def lines_of(prompt: str) -> list[dict[str, str]]:
    """Return the turns that a prompt of Memory-R2 shows as new, each as a fact."""
    _, _, dialogue = prompt.rpartition("[[ ## dialogue ## ]]")
    new_turns, _, _ = dialogue.partition("[[ ## earlier")
    facts: list[dict[str, str]] = []
    # A line is "[D1:2] (3 January 2024) Ann: I saw Oslo"; the date may be missing.
    line = r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$"
    for turn_id, speaker, text in re.findall(line, new_turns, re.MULTILINE):
        facts.append({"speaker": speaker, "turn_id": turn_id, "fact": text})
    return facts


def facts_of(prompt: str) -> list[dict[str, str]]:
    """Return the facts that a prompt of Memory-R2 gives to its manager."""
    _, _, after_header = prompt.partition("[[ ## new_facts ## ]]")
    field, _, _ = after_header.partition("[[ ##")
    facts_json, _, _ = field.partition("Respond with")
    return json.loads(facts_json)


def answer_to_memory_r2(kind: str, text: str, number: int) -> dict[str, Any]:
    """Answer as a model for Memory-R2 that makes every line a fact and inserts every fact.

    It answers a question with the text of the first memory that it is shown.
    """
    if kind == "facts":
        return {"facts": lines_of(text)}

    if kind == "operations":
        operations: list[dict[str, str]] = []
        for fact in facts_of(text):
            operation = {
                "op": "INSERT",
                "speaker": fact["speaker"],
                "content": fact["fact"],
                "turn_id": fact["turn_id"],
            }
            operations.append(operation)
        return {"operations": operations}

    # A line of the context is "[f1:2] (3 January 2024) Ann: I saw Oslo", with or without date
    # and speaker.
    memory = re.search(r"^\[\w+(?::\d+)?\](?: \(.*?\))? (?:\w+: )?(.*)$", text, re.MULTILINE)
    answer = memory.group(1) if memory else "nothing"
    if kind == "reasoning":
        return {"reasoning": "", "answer": answer}
    return {"answer": answer}
