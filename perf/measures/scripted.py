"""A scripted language model with a fixed delay, for timing what surrounds its calls; and the clock."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ScriptedEngine:
    """A DSPy engine that sleeps through every call, and counts them.

    Memory-R2's prompts are answered with one fact of every line, its first words, and every fact is inserted; any
    other prompt with the same answer.

    Args:
        latency: Seconds of a call.
        facts: How many facts of a prompt at most.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, latency: float = 0.0, facts: int = 1000) -> None:
        self.latency, self.facts, self.calls = latency, facts, 0
        self._lock = threading.Lock()

    def complete(self, request: Any) -> Any:
        """Waits, and answers."""
        from dspy.lm15 import Message, Response, Usage

        time.sleep(self.latency)
        with self._lock:
            self.calls += 1
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or ())
        found = re.search(r"Your output fields are:\s*1\. `(\w+)`", system)
        fields = self._reply(found.group(1) if found else "", request.messages[-1].text)
        parts = [f"[[ ## {key} ## ]]\n{v if isinstance(v, str) else json.dumps(v)}" for key, v in fields.items()]
        message = Message.assistant("\n\n".join([*parts, "[[ ## completed ## ]]"]))
        usage = Usage(input_tokens=100, output_tokens=10)
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)

    def _reply(self, kind: str, text: str) -> dict[str, Any]:
        if kind == "facts":
            shown = text.rpartition("[[ ## dialogue ## ]]")[2].partition("[[ ## earlier")[0]
            lines = re.findall(r"^\[(\S+?)\](?: \(.*?\))? (\w+): (.*)$", shown, re.MULTILINE)[: self.facts]
            return {"facts": [{"speaker": who, "turn_id": id, "fact": said[:60]} for id, who, said in lines]}
        if kind == "operations":
            given = json.loads(text.split("[[ ## new_facts ## ]]")[1].split("[[ ##")[0].split("Respond with")[0])
            names = {"speaker": "speaker", "content": "fact", "turn_id": "turn_id"}
            return {"operations": [{"op": "INSERT", **{to: each[own] for to, own in names.items()}} for each in given]}
        return {**({"reasoning": "It says so."} if kind == "reasoning" else {}), "answer": "on Monday"}

    def __deepcopy__(self, memo: object) -> ScriptedEngine:
        return self


def scripted(engine: ScriptedEngine, **metering: Any) -> Any:
    """Return a metered model that asks the engine.

    Args:
        engine: What gives the replies.
        **metering: Arguments of `Metering`, e.g. the answers and the guard of a run.
    """
    from mempiler.engines.metered_lm import MeteredLM, Metering

    return MeteredLM(
        "scripted/free", Metering(**metering), engine=engine, cache=False, temperature=0.0
    )


def guard_of_a_run(threads: int) -> Any:
    """Return a guard without limits that lets as many calls be in flight as that of a run does."""
    from mempiler.engines.fair_semaphore import IN_FLIGHT
    from mempiler.engines.limits import BudgetGuard

    return BudgetGuard(in_flight=max(IN_FLIGHT, threads))


@contextmanager
def asking(lm: Any, **more: Any) -> Iterator[Any]:
    """The model is asked meanwhile."""
    import dspy

    with dspy.context(lm=lm, trace=None, warn_on_type_mismatch=False, disable_history=True, **more):
        yield lm


def cpu_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of CPU that a piece of work takes, of all threads of the process."""
    return 1000 * timed(work)[1]


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of a piece of work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
