"""Two tenants with users, sessions and entries of the same names: whatever they do, neither sees the other's."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from mempiler import Client, MempilerError, Store
from mempiler.serving.requests import RemoteMemory

from .conftest import TOKENS, service_over, serving, within

MARKS = {"acme": "anemone", "globex": "gladiolus"}
"""A word of each tenant, in all that it says, in the metadata and in the names of some of its sessions."""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    folder = tmp_path_factory.mktemp("apart")
    with Store(folder / "memories.sqlite") as store, serving(service_over(store, folder, writers=2)) as api:
        made = {tenant: Client(api.address, token) for tenant, token in TOKENS.items()}
        yield made
        for client in made.values():
            client.close()


class Step:
    """What one tenant does: with a user, a session, and a mark by which sessions are chosen."""

    def __init__(self, client: Client, user: str, mark: str, id: str, chosen: str) -> None:
        self.client, self.memory, self.user, self.mark, self.id = client, client.memory(user), user, mark, id
        self.entry, self.said = f"{id}:1", {"mark": mark, "n": 1}
        self.messages = [{"role": "user", "name": "Ada", "content": f"The flower of the day is the {mark}."}]
        self.chosen: dict[str, Any] = {"where": {"mark": chosen}, "since": datetime(2020, 1, 1)}

    def chat(self, own: Any = None) -> str:
        body = {"user": self.user, "messages": [CHAT], "mempiler": own}
        return self.client._http.post("/v1/chat/completions", json=body).text


FLOWER = "Which flower is it today?"
CHAT = {"role": "user", "content": "Which flower of the day is it?"}
TELLING: dict[str, Callable[[Step], Any]] = {
    "ask": lambda of: of.memory.ask(FLOWER),
    "ask, chosen": lambda of: of.memory.ask(FLOWER, **of.chosen),
    "search": lambda of: of.memory.search("flower of the day", k=50),
    "search, chosen": lambda of: of.memory.search("flower of the day", k=50, **of.chosen),
    "list": lambda of: of.memory.list(),
    "list, chosen": lambda of: of.memory.list(**of.chosen),
    "get": lambda of: of.memory.get(of.entry),
    "history": lambda of: of.memory.history(of.entry),
    "read": lambda of: of.memory.read(),
    "sessions": lambda of: of.memory.sessions(),
    "chat": lambda of: of.chat(),
    "chat, chosen": lambda of: of.chat({"metadata": of.said, "where": of.chosen["where"]}),
    "update": lambda of: of.memory.update(of.entry, f"Rather the {of.mark} of {datetime.now()}.", by=of.mark),
    "delete": lambda of: of.memory.delete(of.entry, by=of.mark),
    "undo": lambda of: of.memory.undo(of.entry, by=of.mark),
}
"""Verbs whose result holds the word of a tenant, and must not hold the other's."""
VERBS: dict[str, Callable[[Step], Any]] = {
    "add": lambda of: of.memory.add(of.messages, id=f"{of.id}-{of.mark}", metadata=of.said),
    "add under the same id": lambda of: of.memory.add(of.messages, id=of.id, metadata=of.said),
    **TELLING,
    "status": lambda of: of.memory.status(),
    "users": lambda of: of.client.users(),
    "end": lambda of: of.memory.end(of.id),
    "forget_session": lambda of: of.memory.forget_session(of.id),
    "forget": lambda of: of.memory.forget(),
}
STEP = some.tuples(
    some.sampled_from(sorted(TOKENS)),
    some.sampled_from(("ada", "ben")),
    some.sampled_from(list(VERBS)),
    some.sampled_from(("s1", "s2")),
    some.sampled_from(sorted(MARKS.values())),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(STEP, min_size=12, max_size=25))
def test_no_verb_tells_a_tenant_of_another(clients: dict[str, Client], steps: Any) -> None:
    for tenant, user, verb, id, chosen in steps:
        foreign = next(mark for name, mark in MARKS.items() if name != tenant)
        try:
            told = repr(VERBS[verb](Step(clients[tenant], user, MARKS[tenant], id, chosen)))
        except MempilerError as error:
            told = str(error)
        assert foreign not in told, (tenant, user, verb)


def test_what_both_say_of_the_same_names_each_is_told_alone(clients: dict[str, Client]) -> None:
    assert {name for name in vars(RemoteMemory) if not name.startswith("_")} <= VERBS.keys()
    both = [Step(clients[tenant], "cleo", mark, "s1", mark) for tenant, mark in MARKS.items()]
    for verb in ("add", "add under the same id"):
        for of in both:
            VERBS[verb](of)
    assert within(20, lambda: not any(of.memory.status().queued for of in both))
    # Twice, for the second time there are changes of entries.
    for verb, does in (*TELLING.items(), *TELLING.items()):
        for of in both:
            told = repr(does(of))
            assert [mark for mark in MARKS.values() if mark in told] == [of.mark], verb
