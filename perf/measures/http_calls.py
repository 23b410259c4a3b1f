"""Calls of a model over HTTP, ours beside those of a plain `dspy.LM`.

A server in a process of its own answers every call after a fixed time, so what is measured is the
client alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import multiprocessing
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from statistics import median

import dspy
from mempiler.engines.lm import language_model

from measures.clock import Times, measure_times
from measures.scripted import guard_of_a_run, use_model

CALLS_PER_CALLER = 10
ROUNDS = 3

BODY = json.dumps(
    {
        "object": "chat.completion",
        "model": "stub",
        "choices": [
            {
                "message": {"role": "assistant", "content": "[[ ## answer ## ]]\nyes"},
                "index": 0,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    BODY
)


@dataclass(frozen=True)
class ClientCosts:
    """What one client takes."""

    cpu_ms: float
    """Milliseconds of CPU of a call."""
    ideal_share: float
    """The time that the server takes, as a share of the time that passed."""


@dataclass(frozen=True)
class HttpCosts:
    """What both clients take for the same calls."""

    ours: ClientCosts
    dspy_lm: ClientCosts


@cache
def measure_http_calls(callers: int, latency: float, use_threads: bool = True) -> HttpCosts:
    """Measure ten calls of each of so many callers at the same time.

    Args:
        callers: How many calls are in flight.
        latency: Seconds that the server takes for a call.
        use_threads: Whether callers are threads; they are coroutines if False.
    """
    our_times: list[Times] = []
    their_times: list[Times] = []
    with _server(latency) as address:
        our_lm = language_model(
            "openai/stub",
            guard=guard_of_a_run(callers),
            api_base=address,
            cache=False,
            temperature=0.0,
        )
        their_lm = dspy.LM(
            "openai/stub", api_key="x", api_base=address, cache=False, temperature=0.0
        )
        call = _call_in_threads if use_threads else _call_in_coroutines
        for _ in range(ROUNDS + 1):
            our_times.append(measure_times(partial(call, our_lm, callers)))
            their_times.append(measure_times(partial(call, their_lm, callers)))

    return HttpCosts(
        ours=_costs(our_times, callers, latency),
        dspy_lm=_costs(their_times, callers, latency),
    )


def _costs(times: Sequence[Times], callers: int, latency: float) -> ClientCosts:
    # The first round imports and connects.
    counted = times[1:]
    cpu_seconds = median(each.cpu for each in counted)
    wall_seconds = median(each.wall for each in counted)
    return ClientCosts(
        cpu_ms=1000 * cpu_seconds / (CALLS_PER_CALLER * callers),
        ideal_share=CALLS_PER_CALLER * latency / wall_seconds,
    )


def _call_in_threads(lm: dspy.BaseLM, callers: int) -> None:
    predict = dspy.Predict("question -> answer")
    with use_model(lm, adapter=dspy.ChatAdapter()), ThreadPoolExecutor(callers) as pool:
        futures = []
        for _ in range(CALLS_PER_CALLER * callers):
            # DSPy finds its settings in context variables.
            context = contextvars.copy_context()
            futures.append(pool.submit(context.run, predict, question="?"))
        for future in futures:
            future.result()


def _call_in_coroutines(lm: dspy.BaseLM, callers: int) -> None:
    predict = dspy.Predict("question -> answer")

    async def call_in_turn() -> None:
        for _ in range(CALLS_PER_CALLER):
            await predict.acall(question="?")

    async def call_all() -> None:
        await asyncio.gather(*(call_in_turn() for _ in range(callers)))

    with use_model(lm, adapter=dspy.ChatAdapter()):
        asyncio.run(call_all())


@contextmanager
def _server(latency: float) -> Iterator[str]:
    """Run the server in a process of its own, and yield its address."""
    receiving_end, sending_end = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(sending_end, latency), daemon=True
    )
    process.start()
    # With this end open here, a server that fails to start would be waited for forever.
    sending_end.close()
    try:
        port = receiving_end.recv()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()


def _serve(port_sender: Connection, latency: float) -> None:
    """Send the port, and answer calls until the process is killed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if length is None:
                    return
                await reader.readexactly(int(length[1]))
                await asyncio.sleep(latency)
                writer.write(HEAD + BODY)

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        port_sender.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())
