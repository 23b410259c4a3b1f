"""Two tenants with users and sessions of the same names: whatever they do, neither sees the other's."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from mempiler import Client, MempilerError, Store

from .conftest import TOKENS, service_over, serving

MARKS = {"acme": "anemone", "globex": "gladiolus"}
"""A word of each tenant, in all that it says and in the names of its sessions."""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    folder = tmp_path_factory.mktemp("apart")
    with Store(folder / "memories.sqlite") as store, serving(service_over(store, folder, writers=2)) as api:
        made = {tenant: Client(api.address, token) for tenant, token in TOKENS.items()}
        yield made
        for client in made.values():
            client.close()


def said(mark: str) -> list[dict[str, str]]:
    return [{"role": "user", "name": "Ada", "content": f"The flower of the day is the {mark}."}]


def raw(client: Client, method: str, path: str, **more: Any) -> str:
    return client._http.request(method, path, **more).text


VERBS: dict[str, Callable[[Client, Any, str, str], Any]] = {
    "add": lambda client, user, mark, id: client.memory(user).add(said(mark), id=f"{id}-{mark}"),
    "add under the same id": lambda client, user, mark, id: client.memory(user).add(said(mark), id=id),
    "import": lambda client, user, mark, id: client.import_sessions(
        [
            {"user": user, "id": f"{id}-{mark}-i", "messages": said(mark)},
            {"user": user, "id": id, "messages": said(mark)},
        ]
    ),
    "ask": lambda client, user, mark, id: client.memory(user).ask("Which flower is it today?"),
    "search": lambda client, user, mark, id: client.memory(user).search("flower of the day", k=50),
    "read": lambda client, user, mark, id: client.memory(user).read(),
    "sessions": lambda client, user, mark, id: client.memory(user).sessions(),
    "status": lambda client, user, mark, id: client.memory(user).status(),
    "end": lambda client, user, mark, id: client.memory(user).end(id),
    "forget": lambda client, user, mark, id: client.memory(user).forget(),
    "forget a session": lambda client, user, mark, id: client.memory(user).forget_session(id),
    "users": lambda client, user, mark, id: client.users(),
    "events": lambda client, user, mark, id: raw(
        client, "GET", "/v1/events", params={"seconds": 0}, headers={"Last-Event-ID": "0"}
    ),
    "chat": lambda client, user, mark, id: raw(
        client,
        "POST",
        "/v1/chat/completions",
        content=json.dumps({"user": user, "messages": [{"role": "user", "content": f"Which flower, if not {mark}?"}]}),
        headers={"Content-Type": "application/json"},
    ),
}
STEP = some.tuples(
    some.sampled_from(sorted(TOKENS)),
    some.sampled_from(("ada", "ben")),
    some.sampled_from(sorted(VERBS)),
    some.sampled_from(("s1", "s2")),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(STEP, min_size=8, max_size=25))
def test_no_verb_tells_a_tenant_of_another(clients: dict[str, Client], steps: Any) -> None:
    for tenant, user, verb, id in steps:
        foreign = next(mark for name, mark in MARKS.items() if name != tenant)
        try:
            told = repr(VERBS[verb](clients[tenant], user, MARKS[tenant], id))
        except MempilerError as error:
            told = str(error)
        assert foreign not in told, (tenant, user, verb)


def test_every_verb_of_the_client_is_tried(clients: dict[str, Client]) -> None:
    from mempiler.client.verbs import Verbs

    tried = {verb.replace("forget a session", "forget_session") for verb in VERBS}
    assert {name for name in vars(Verbs) if not name.startswith("_")} <= tried
    # And the word would be seen: its own tenant sees it.
    clients["acme"].memory("cleo").add(said(MARKS["acme"]))
    assert MARKS["acme"] in repr(clients["acme"].memory("cleo").search("flower"))
