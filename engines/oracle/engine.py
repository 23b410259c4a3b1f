"""The oracle engine: a test instrument, not a model, that does the predictors' jobs in the worlds of `data.worlds`.

It does every job rightly from what stands in the prompt alone:

    prompt ── names of its outputs ──> jobs ── the first that knows its sentences ──> outputs

A world's sentences have a grammar (`grammar`), which the engine can read; that is all it knows. It does not know the
answer of any question, which method asks, or what is switched off: where a mechanism is off, swapped or starved, the
prompt lacks what is needed, and the answer is wrong. So scores under it show whether a method's mechanisms work as
meant. They say nothing of language models, or of how well one would do with the same prompts.

Jobs are in the files beside this one, a file per paper: `JOBS` maps the names of a predictor's outputs to a function
from the prompt that was read to those outputs, which returns None where no sentence of its grammar stands in the
prompt. What no job fills is as empty as its type allows: `unknown` for a text.

With a rate, that share of the prompts is answered with nothing, as if there were no job for them: which ones, the
digest of the prompt decides, so that the same prompt has the same answer in every run; rollouts differ by their seeds.

Example:
    >>> from mempiler.engines.models import language_model
    >>> language_model("oracle:0.05").model
    'oracle/worlds-1:0.05'
"""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from dspy import lm15

from ..offline.prompt import TEXT, Prompt, Schema, read_prompt, render
from ..ruled import AsyncRuledEngine, RuledEngine, said

Job = Callable[[Prompt], Mapping[str, Any] | None]
"""Fills outputs of a prompt; None where nothing in it is of the job's grammar."""
UNKNOWN = "unknown"
"""What a text says that nothing is known of."""


class OracleEngine(RuledEngine):
    """A DSPy engine that does the jobs of the worlds.

    Args:
        rate: The share of prompts that are answered with nothing, 0 to 1.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate

    def dump_state(self) -> dict[str, Any]:
        return {"rate": self.rate}

    def reply(self, request: lm15.Request) -> str:
        """Answers one request; a pure function of it."""
        prompt = read_prompt(request)
        if not prompt.outputs:
            return UNKNOWN
        done = {} if self._errs(request) else _done(prompt)
        filled = {name: done[name] if name in done else emptiest(schema) for name, schema in prompt.outputs.items()}
        return render(prompt.style, filled)

    def _errs(self, request: lm15.Request) -> bool:
        text = "\0".join([str(request.config.seed), *said(request)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < self.rate * 2**64


class AsyncOracleEngine(AsyncRuledEngine):
    """The asynchronous counterpart."""

    kind = OracleEngine


def emptiest(schema: Schema) -> Any:
    """The emptiest value of a type: no items, the first option, null; `unknown` where a text stands by itself."""
    if schema == TEXT:
        return UNKNOWN
    options = [schema["const"]] if "const" in schema else schema.get("enum") or ()
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    if options:
        return options[0]
    if choices:
        return None if any(choice.get("type") == "null" for choice in choices) else emptiest(choices[0])
    kind, least = schema.get("type"), schema.get("minimum", 0)
    if kind == "array":
        return [_within(schema.get("items", TEXT)) for _ in range(schema.get("minItems", 0))]
    if kind == "object":
        parts = schema.get("properties", {})
        return {name: _within(parts[name]) for name in schema.get("required", ()) if name in parts}
    return {"boolean": False, "integer": least, "number": least, "null": None}.get(kind or "", UNKNOWN)


def _within(schema: Schema) -> Any:
    """As `emptiest`, inside another value: a text is empty there."""
    return "" if schema.get("type") == "string" and "enum" not in schema else emptiest(schema)


def _done(prompt: Prompt) -> Mapping[str, Any]:
    for job in _jobs().get(frozenset(prompt.outputs), ()):
        outputs = job(prompt)
        if outputs is not None:
            return outputs
    return {}


@cache
def _jobs() -> Mapping[frozenset[str], tuple[Job, ...]]:
    """The jobs of all papers by the names of outputs; several papers may fill outputs of the same names."""
    package, found = __package__ or "", dict[frozenset[str], tuple[Job, ...]]()
    path = import_module(package).__path__
    for module in pkgutil.iter_modules(path, f"{package}."):
        for outputs, job in getattr(import_module(module.name), "JOBS", {}).items():
            found[outputs] = (*found.get(outputs, ()), job)
    return found
