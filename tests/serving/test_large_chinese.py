"""A megabyte of Chinese in one message: the request ends in its time, and requests of another tenant go on.

Messages are that long only where `--max-text` allows it.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mempiler.serving.settings import Settings

LIMIT = Settings().max_body
SECONDS = Settings().timeout
"""A request gets its answer within this time, or a 504."""
MOST_WAIT = 10.0
"""Another tenant waits for some tenths of a second; ten seconds on a machine that others use as well."""
SENTENCE = "我昨天从北京搬到了里斯本并且在海边买了一所小房子。"
CHARACTERS = (LIMIT - 1_000) // 3
"""As many as fit into the largest body, three bytes each."""


def prose() -> str:
    """One sentence, again and again."""
    return SENTENCE * (CHARACTERS // len(SENTENCE))


def any_characters() -> str:
    """Characters by chance, so that hardly a word of it comes twice."""
    chance = random.Random(7)
    return "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(CHARACTERS))


BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/users/ada/sessions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/users/ada/search": lambda text: {"query": text},
    "/v1/users/ada/ask": lambda text: {"question": text},
    "/v1/chat/completions": lambda text: {
        "user": "ada",
        "messages": [{"role": "user", "content": text}],
    },
}


def post(client: Any, path: str, text: str, escaped: bool = False) -> int:
    """Send a text to a path, as UTF-8 or in escapes of JSON, and return the status."""
    body = json.dumps(BODIES[path](text), ensure_ascii=escaped).encode()
    headers = {"Content-Type": "application/json"}
    return client.post(path, content=body, headers=headers, timeout=2 * SECONDS).status_code


@contextmanager
def waits_of(client: Any) -> Iterator[list[float]]:
    """Let a client search while the block runs; the list holds the seconds of each search."""
    waits, is_over = list[float](), threading.Event()

    def search() -> None:
        while not is_over.is_set() or not waits:
            began = time.monotonic()
            assert client.post("/v1/users/ben/search", json={"query": "里斯本"}).status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.01)

    searching = threading.Thread(target=search)
    searching.start()
    try:
        yield waits
    finally:
        is_over.set()
        searching.join(60)


@pytest.mark.parametrize("make_text", [pytest.param(prose, marks=pytest.mark.slow), any_characters])
@pytest.mark.parametrize("path", BODIES)
def test_a_large_chinese_request_ends_and_another_tenant_is_served(
    connect: Any, path: str, make_text: Callable[[], str]
) -> None:
    client = connect(max_text=CHARACTERS)
    client.add("我搬到了里斯本。")
    other = client.as_tenant("globex")
    other.add("我搬到了里斯本。", user="ben")
    text = make_text()
    with waits_of(other) as waits:
        began = time.monotonic()
        status = post(client, path, text)
        took = time.monotonic() - began
    assert status in (200, 201)
    assert took < SECONDS
    assert waits, "the other tenant got no answer"
    assert max(waits) < MOST_WAIT


@pytest.mark.slow
@pytest.mark.parametrize("make_text", [prose, any_characters])
def test_a_memory_with_a_large_chinese_message_is_searched_in_time(
    connect: Any, make_text: Callable[[], str]
) -> None:
    client = connect(writers=1, max_text=CHARACTERS)
    other = client.as_tenant("globex")
    other.add("我搬到了里斯本。", user="ben")
    with waits_of(other) as waits:
        assert post(client, "/v1/users/ada/sessions", make_text()) == 201
        began = time.monotonic()
        assert post(client, "/v1/users/ada/search", "里斯本") == 200
        took = time.monotonic() - began
    assert took < SECONDS
    assert waits, "the other tenant got no answer"
    assert max(waits) < MOST_WAIT


@pytest.mark.parametrize("path", BODIES)
def test_escapes_count_as_the_bytes_that_they_are(connect: Any, path: str) -> None:
    client = connect()
    assert post(client, path, prose()[: CHARACTERS // 2 + 1_000], escaped=True) == 413
