"""Measures calls of a model over HTTP beside plain `dspy.LM`: a server of another process answers after a set time."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
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

from measures.scripted import asking, timed

LATENCY, EACH, ROUNDS = 0.1, 10, 3
SAID = {"message": {"role": "assistant", "content": "[[ ## answer ## ]]\nyes"}, "index": 0, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
BODY = json.dumps({"object": "chat.completion", "model": "stub", "choices": [SAID], "usage": USAGE}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@cache
def calls(side_by_side: int, gathered: bool = False) -> dict[str, float]:
    """CPU milliseconds of a call in so many threads or coroutines and the share of the ideal wall, ours and DSPy's."""
    found = dict[str, list[tuple[float, float]]]()
    with _server() as address:
        about: dict[str, Any] = {"api_base": address, "cache": False, "temperature": 0.0}
        lms = {"ours": language_model("openai/stub", **about), "dspy.LM": dspy.LM("openai/stub", api_key="x", **about)}
        for n, (name, lm) in itertools.product(range(ROUNDS + 1), lms.items()):
            took = timed(partial(_asked, lm, side_by_side, gathered))
            found.setdefault(name, []).extend([took] if n else [])  # the first imports and connects
    taken = {name: [median(each) for each in zip(*times, strict=True)] for name, times in found.items()}
    share, their_share = (EACH * LATENCY / wall for wall, _ in taken.values())
    cpu = {name: 1000 * cpu / (EACH * side_by_side) for name, (_, cpu) in taken.items()}
    return {**cpu, "share": share, "their_share": their_share}


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
def _server() -> Iterator[str]:
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(its.send,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        process.kill()


def _serve(tell: Callable[[int], None]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while length := re.search(rb"(?i)content-length: (\d+)", await reader.readuntil(b"\r\n\r\n")):
                await reader.readexactly(int(length[1]))
                await asyncio.sleep(LATENCY)
                writer.write(HEAD + BODY)

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())
