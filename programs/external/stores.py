"""Runs a stateful memory system: one store per history, in a folder of its own, written once.

Calls of it are made one after the other in a thread of its own, all but `kill`, in a copy of their caller's context, so
that a model it asks is metered as the caller's own. Code that hangs cannot be ended in Python: its thread is left
behind, and every further call fails at once with the same reason.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ...engines.call_context import measure_usage, record_usage
from ...engines.usage import Usage
from ...async_bridge import off_loop
from ...errors import BudgetError, EndpointError, MempilerError, UserError
from ...records import Failure, History, Item
from ...records.shared_by_copies import SharedByCopies
from ..recording import ExternalError, failure_of, record_failure
from ..single_flight import SingleFlight

MAX_OPEN_STORES = 64
"""Stores of a system that are open at a time; one that is asked after it was closed is written anew."""
FATAL_ERRORS = (BudgetError, EndpointError, UserError)
"""Errors that are no fault of what is called: a limit, an endpoint that is gone, a mistake of the user's."""
CLOSING = 10.0
"""Seconds that a system has to end by itself."""
KEY = "OPENAI_API_KEY"
"""The environment variable with the endpoint's key."""
REMEMBER = "Please remember this conversation. Answer with the word OK."


class CallThread:
    """One thread for one system; coroutines run on a loop that lives as long, calls take so many seconds at most."""

    def __init__(self, name: str, timeout: float) -> None:
        self.name, self.timeout, self.dead = name, timeout, ""
        self.system: Any = None
        """What is called, where it can be ended: by its `close`, and by its `kill` from another thread."""
        self._alone, self._loop = threading.Lock(), asyncio.new_event_loop()
        threading.Thread(target=_run, args=(self._loop,), name=f"external {name}", daemon=True).start()

    def call(self, what: str, function: Callable[[], Any]) -> Any:
        """Calls a function, or a coroutine function, in the thread; failures name what the call was.

        Raises:
            ExternalError: It failed, or took too long, now or before.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        value, error = off_loop(partial(self._outcome_of, what, function))
        if isinstance(error, FATAL_ERRORS):
            raise error
        if isinstance(error, MempilerError):
            raise ExternalError(str(error)) from error
        if error is not None:
            raise ExternalError(f"{self.name}: {what}: {failure_of(what, error).message}") from error
        return value

    def _outcome_of(self, what: str, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """What the function returns or raises in the thread; another call waits for this one's end."""
        with self._alone:
            if self.dead:
                raise ExternalError(f"{self.name}: {self.dead}")
            future = asyncio.run_coroutine_threadsafe(_outcome(function), self._loop)
            if not wait([future], self.timeout).done:
                self.dead = f"{what}: no answer within {self.timeout:g} s"
                if hasattr(self.system, "kill"):
                    self.system.kill()
                raise ExternalError(f"{self.name}: {self.dead}")
        return future.result()

    def call_method(self, name: str, *args: Any) -> Any:
        """Calls one of the system's methods; errors as of `call`."""
        return self.call(name, partial(getattr(self.system, name), *args))

    def close(self) -> None:
        """Ends the system, in order if it still answers, and the thread after what it is doing."""
        if hasattr(self.system, "close") and not self.dead:
            self.timeout = min(self.timeout, CLOSING)
            with suppress(Exception):
                self.call("close", self.system.close)
        self.dead = self.dead or "is closed"
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)


@dataclass(eq=False)
class _Store:
    """A system that is given one history; it ends with whoever used it last."""

    calls: CallThread
    taken: Usage = field(default_factory=Usage)
    """What writing its history took."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """What it did not take of it."""


class Stores(SharedByCopies):
    """The stores of one system; a method raises `ExternalError` where the system fails.

    `make` makes the system of one history; it is given its folder, if it has a parameter `folder`.
    """

    def __init__(self, make: Callable[..., Any], name: str, folder: Path | None, timeout: float) -> None:
        self.name, self._make, self._timeout = name, make, timeout
        self._folder = folder or Path(tempfile.mkdtemp(prefix="mempiler-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._stores = SingleFlight(MAX_OPEN_STORES)

    def write(self, history: History) -> None:
        """Writes the store of a history, if it is not there; tells what that took, and what the system did not take."""
        store = self._of(history)
        record_usage(store.taken)
        for failure in store.failures:
            record_failure(failure)

    def ask(self, history: History, name: str, *args: Any) -> Any:
        """Asks the system of a history: calls one of its methods."""
        return self._of(history).calls.call_method(name, *args)

    def close(self) -> None:
        """Ends every system; one that is asked again is opened again."""
        self._stores.drop(lambda digest: True)

    def _of(self, history: History) -> _Store:
        # What cannot be opened once never can: no question waits twice for what hangs.
        found = self._stores.get_or_compute(history.digest, lambda: self._written(history))
        if isinstance(found, ExternalError):
            raise ExternalError(str(found)) from found
        return found

    def _written(self, history: History) -> _Store | ExternalError:
        store, folder = _Store(CallThread(self.name, self._timeout)), self._folder / (history.digest or "empty")[:16]
        weakref.finalize(store, store.calls.close)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        given = {"folder": folder} if "folder" in parameters(self._make) else {}
        try:
            with measure_usage() as work:  # who asks first need not be who it is for
                store.calls.system = store.calls.call("make", partial(self._make, **given))
                for item in history.items:
                    try:
                        store.calls.call_method("add", item)
                    except ExternalError as error:
                        if store.calls.dead:
                            raise
                        store.failures.append(failure_of(f"{self.name}.add", error))
        except ExternalError as error:
            return error
        if history.items and len(store.failures) == len(history.items):
            return ExternalError(f"{self.name}: took none of {len(history)} sessions: {store.failures[-1].message}")
        store.taken = work.usage
        return store


def parameters(thing: Any) -> Mapping[str, inspect.Parameter]:
    """What something that can be called takes; nothing for what cannot."""
    try:
        return inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return {}


def call_parameters(thing: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that a callable, or the `forward` of a module, takes."""
    if not isinstance(thing, dspy.Module):
        return parameters(thing)
    # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
    kind: Any = type(thing)
    of_forward = dict(parameters(kind.forward))
    of_forward.pop("self", None)
    return of_forward


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a function returns or raises; raised here, the end of a process would end the loop."""
    try:
        value = function()
        return (await value if inspect.isawaitable(value) else value), None
    except BaseException as error:
        return None, error


class Endpoint:
    """A running chat endpoint with a memory of its own, as a store: any server with OpenAI's chat completions.

    Every history is a `user` of its own, and every message a conversation of its own (`metadata.session`), so nothing
    but the endpoint's memory joins them. Its `usage` is counted; evidence that a service of ours names is taken as
    recalled. It sees questions as messages, and may remember them too; a run that is killed goes on with new users.

    Args:
        url: Its base URL, e.g. "http://127.0.0.1:8000/v1".
        model: The model's name there.
        timeout: Seconds that one request may take.
    """

    def __init__(self, url: str, model: str, timeout: float) -> None:
        import openai

        self.url, self.model, self.user = url, model, f"mempiler-{uuid.uuid4().hex}"
        self._client = openai.OpenAI(base_url=url, api_key=os.environ.get(KEY) or "none", timeout=timeout)
        self.close = self._client.close

    def add(self, session: Item) -> None:
        """Says a session to it, with the date before every line."""
        self._said("\n".join([REMEMBER, "", *session.lines()]), session.id)

    def ask(self, question: str) -> tuple[Any, Any]:
        """Its answer, and the evidence that it names, if it does."""
        found = self._said(question, f"question-{uuid.uuid4().hex}")
        more: Any = getattr(found, "mempiler", None)
        answer = found.choices[0].message.content if found.choices else None
        return answer, more.get("evidence") if isinstance(more, dict) else None

    def _said(self, text: str, session: str) -> Any:
        import openai

        message: Any = {"role": "user", "content": text}
        try:
            found = self._client.chat.completions.create(
                model=self.model, user=self.user, messages=[message], metadata={"session": session}
            )
        except openai.AuthenticationError as error:
            raise UserError(f"{self.url}: refuses the key; set {KEY}") from error
        except openai.APITimeoutError as error:
            raise ExternalError(f"{self.url}: no answer in time") from error
        except openai.APIConnectionError as error:
            raise EndpointError(f"{self.url}: cannot be reached") from error
        usage = found.usage
        record_usage(Usage(1, usage.prompt_tokens if usage else 0, usage.completion_tokens if usage else 0, unpriced=1))
        return found
