"""Measures calls of a model over HTTP beside plain `dspy.LM`: a server of another process answers after a set time."""

from __future__ import annotations

import asyncio
import contextvars
import json
import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from statistics import median
from typing import Any

import dspy
from mempiler.engines.lm import language_model

from measures.scripted import asking, guard_of_a_run, timed

LATENCY, EACH, ROUNDS = 0.1, 10, 3
SAID = {"message": {"role": "assistant", "content": "[[ ## answer ## ]]\nyes"}, "index": 0, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
BODY = json.dumps({"object": "chat.completion", "model": "stub", "choices": [SAID], "usage": USAGE}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@cache
def calls(side_by_side: int, gathered: bool = False, latency: float = LATENCY) -> dict[str, float]:
    """Measure calls over HTTP, ours and those of `dspy.LM`.

    Args:
        side_by_side: Calls in flight.
        gathered: Whether coroutines make them instead of threads.
        latency: Seconds that the server takes for a call.

    Returns:
        CPU milliseconds of a call by "ours" and "dspy.LM", and the shares of the ideal wall, in which nothing but the
        server takes time, as "share" and "their_share".
    """
    our_times: list[tuple[float, float]] = []
    their_times: list[tuple[float, float]] = []
    with _server(latency) as address:
        about: dict[str, Any] = {"api_base": address, "cache": False, "temperature": 0.0}
        ours = language_model("openai/stub", guard=guard_of_a_run(side_by_side), **about)
        theirs = dspy.LM("openai/stub", api_key="x", **about)
        for _ in range(ROUNDS + 1):
            our_times.append(timed(partial(_asked, ours, side_by_side, gathered)))
            their_times.append(timed(partial(_asked, theirs, side_by_side, gathered)))

    found: dict[str, float] = {}
    names = (("ours", "share", our_times), ("dspy.LM", "their_share", their_times))
    for cpu_name, share_name, times in names:
        # The first round imports and connects.
        counted = times[1:]
        found[cpu_name] = 1000 * median(cpu for _, cpu in counted) / (EACH * side_by_side)
        found[share_name] = EACH * latency / median(wall for wall, _ in counted)
    return found


def _asked(lm: Any, many: int, gathered: bool) -> None:
    predict = dspy.Predict("question -> answer")

    async def some() -> None:
        for _ in range(EACH):
            await predict.acall(question="?")

    async def every() -> None:
        await asyncio.gather(*(some() for _ in range(many)))

    with asking(lm, adapter=dspy.ChatAdapter()):
        if gathered:
            asyncio.run(every())
            return
        contexts = [contextvars.copy_context() for _ in range(EACH * many)]
        with ThreadPoolExecutor(many) as pool:
            list(pool.map(lambda context: context.run(predict, question="?"), contexts))


@contextmanager
def _server(latency: float) -> Iterator[str]:
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(its.send, latency), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        process.kill()


def _serve(tell: Callable[[int], None], latency: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while length := re.search(rb"(?i)content-length: (\d+)", await reader.readuntil(b"\r\n\r\n")):
                await reader.readexactly(int(length[1]))
                await asyncio.sleep(latency)
                writer.write(HEAD + BODY)

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())
