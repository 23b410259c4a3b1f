"""A language model that answers by a script after a fixed delay.

What surrounds its calls is timed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage
from mempiler.engines.fair_semaphore import IN_FLIGHT
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.metered_lm import MeteredLM, Metering

_FIRST_OUTPUT_FIELD = re.compile(r"Your output fields are:\s*1\. `(\w+)`")
_DIALOGUE_LINE = re.compile(r"^\[(\S+?)\](?: \(.*?\))? (\w+): (.*)$", re.MULTILINE)
"""Turn id, speaker and text of a line such as "[D1:3] (8 May 2023) Ada: I have a piano"."""


class ScriptedEngine:
    """A DSPy engine that sleeps through every call, and counts the calls.

    In answer to Memory-R2's prompts it extracts one fact from every line of the dialogue, the first
    sixty characters, and inserts every fact. All other prompts get the same answer.

    Args:
        latency: How long a call takes, in seconds.
        max_facts: The most facts that are extracted from one prompt.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, latency: float = 0.0, max_facts: int = 1000) -> None:
        self.latency = latency
        self.max_facts = max_facts
        self.calls = 0
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        """Wait, and answer."""
        time.sleep(self.latency)
        with self._lock:
            self.calls += 1

        reply = self._reply(_first_output_field(request), request.messages[-1].text or "")
        parts: list[str] = []
        for name, value in reply.items():
            text = value if isinstance(value, str) else json.dumps(value)
            parts.append(f"[[ ## {name} ## ]]\n{text}")
        parts.append("[[ ## completed ## ]]")

        return Response(
            id=None,
            model=request.model,
            message=Message.assistant("\n\n".join(parts)),
            finish_reason="stop",
            usage=Usage(input_tokens=100, output_tokens=10),
        )

    def _reply(self, first_field: str, prompt: str) -> dict[str, Any]:
        """Return the output fields for a prompt; the first one tells the prompts apart."""
        if first_field == "facts":
            return {"facts": self._extracted_facts(prompt)}
        if first_field == "operations":
            return {"operations": _insertions(prompt)}
        if first_field == "reasoning":
            return {"reasoning": "It says so.", "answer": "on Monday"}
        return {"answer": "on Monday"}

    def _extracted_facts(self, prompt: str) -> list[dict[str, str]]:
        dialogue = prompt.rpartition("[[ ## dialogue ## ]]")[2].partition("[[ ## earlier")[0]
        lines = _DIALOGUE_LINE.findall(dialogue)[: self.max_facts]
        return [
            {"speaker": speaker, "turn_id": turn_id, "fact": text[:60]}
            for turn_id, speaker, text in lines
        ]

    def __deepcopy__(self, memo: object) -> ScriptedEngine:
        # The calls of a copied model count here, too; a lock could not be copied anyway.
        return self


def _first_output_field(request: Request) -> str:
    """Return the name of the first output field that the system prompt asks for."""
    if isinstance(request.system, str):
        system_prompt = request.system
    else:
        system_prompt = "".join(getattr(part, "text", "") for part in request.system or ())
    match = _FIRST_OUTPUT_FIELD.search(system_prompt)
    return match.group(1) if match else ""


def _insertions(prompt: str) -> list[dict[str, str]]:
    """Return an INSERT operation for every new fact of a prompt."""
    section = prompt.split("[[ ## new_facts ## ]]")[1].split("[[ ##")[0]
    facts = json.loads(section.split("Respond with")[0])
    return [
        {
            "op": "INSERT",
            "speaker": fact["speaker"],
            "content": fact["fact"],
            "turn_id": fact["turn_id"],
        }
        for fact in facts
    ]


def scripted_model(engine: ScriptedEngine, metering: Metering | None = None) -> MeteredLM:
    """Return a metered model that asks the engine."""
    return MeteredLM(
        "scripted/free",
        metering or Metering(),
        engine=engine,
        cache=False,
        temperature=0.0,
    )


def guard_of_a_run(threads: int) -> BudgetGuard:
    """Return a guard without limits that lets as many calls be in flight as that of a run does."""
    return BudgetGuard(in_flight=max(IN_FLIGHT, threads))


@contextmanager
def use_model(lm: dspy.BaseLM, **settings: Any) -> Iterator[None]:
    """Let DSPy ask this model inside the block, and keep no trace and no history of the calls.

    Args:
        lm: The model.
        **settings: Further settings of DSPy, e.g. the adapter.
    """
    with dspy.context(
        lm=lm, trace=None, warn_on_type_mismatch=False, disable_history=True, **settings
    ):
        yield
