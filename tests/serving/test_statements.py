"""How many SQL statements a request takes, beside those that begin and end a transaction."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler import Store
from sqlalchemy import event

TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")


@pytest.mark.parametrize(
    ("request_of", "most"),
    [
        (lambda client, n: client.chat(f"What is the secret word of garden {n}?"), 10),
        (lambda client, n: client.ask(f"What is the secret word of garden {n}?"), 3),
        (lambda client, n: client.add(f"The secret word of garden {n} is mk{n}.", user="new"), 6),
    ],
    ids=["chat", "ask", "add"],
)
def test_a_request_takes_few_statements(
    connect: Any, store: Store, request_of: Callable[[Any, int], Any], most: int
) -> None:
    client, seen = connect(), list[str]()
    for n in range(5):
        client.add(f"The secret word of garden {n} is mk{n:06d}, and it hangs in the harbour.")

    @event.listens_for(store._engine, "connect")
    def trace(connection: Any, record: Any) -> None:
        connection.set_trace_callback(seen.append)

    # Those that are open by now are not traced.
    store._engine.dispose()
    # What is read once, by the first requests, is no part of it.
    for n in range(3):
        seen.clear()
        assert request_of(client, n).status_code in (200, 201)
    assert sum(text.split()[0] not in TRANSACTION for text in seen) <= most
