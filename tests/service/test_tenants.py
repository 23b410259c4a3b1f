"""Two tenants whose users have the same names use all verbs at random: neither ever sees a word of the other."""

import itertools
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from mempiler import Store

from .conftest import service_over, serving

TENANTS = ("acme", "globex")
MARKS = {"acme": "falconacme", "globex": "otterglobex"}
ACTORS = st.sampled_from(TENANTS)
USERS = st.sampled_from(["ada", "bob"])
WORDS = st.sampled_from(["code", "tea", MARKS["acme"], MARKS["globex"]])


class Verbs(RuleBasedStateMachine):
    """Random verbs of both tenants, at one service."""

    client: Any
    seen: Counter[str]

    @initialize()
    def begin(self) -> None:
        self.clients = {tenant: self.client.as_tenant(tenant) for tenant in TENANTS}
        for tenant, user in itertools.product(TENANTS, ("ada", "bob")):
            self.clients[tenant].delete(f"/v1/users/{user}")
        self.past = {tenant: datetime.now(UTC).isoformat() for tenant in TENANTS}

    def send(self, tenant: str, method: str, user: str, path: str = "", **more: Any) -> Any:
        response = self.clients[tenant].request(method, f"/v1/users/{user}{path}", **more)
        assert response.status_code < 500
        asked = str(more)  # What was asked for may stand in the answer.
        for other in set(TENANTS) - {tenant}:
            assert MARKS[other] in asked or MARKS[other] not in response.text, (method, path)
        self.seen[tenant] += MARKS[tenant] in response.text
        return response

    def entry(self, tenant: str, user: str, pick: int) -> str:
        """An id of either tenant's entries: they have the same ones."""
        found = self.send(tenant, "GET", user, "/entries", params={"limit": 3})
        ids = [one["id"] for one in found.json().get("entries", [])]
        return ids[pick % len(ids)] if ids else "s:1"

    @rule(tenant=ACTORS, user=USERS, id=st.sampled_from(["s", "t", None]), written=st.booleans())
    def add(self, tenant: str, user: str, id: str | None, written: bool) -> None:
        said = [{"role": "user", "content": f"My code is {MARKS[tenant]}", "time": "2025-01-01"}]
        body = {"messages": said, "metadata": {"mark": MARKS[tenant], "n": 1}, **({"id": id} if id else {})}
        self.send(tenant, "POST", user, "/sessions", json=body)
        if written:
            service = self.client.service
            service.program.memory(service.store, user, tenant, service.lm).remember()

    @rule(tenant=ACTORS, user=USERS, word=WORDS, past=st.booleans(), chosen=st.sampled_from([None, *TENANTS]))
    def look(self, tenant: str, user: str, word: str, past: bool, chosen: str | None) -> None:
        more: dict[str, Any] = {"where": {"mark": MARKS[chosen]}} if chosen else {}
        more |= {"as_of": self.past[tenant]} if past else {}
        self.send(tenant, "POST", user, "/search", json={"query": word, **more})
        self.send(tenant, "POST", user, "/ask", json={"question": f"What is the {word}?", **more})
        self.past[tenant] = datetime.now(UTC).isoformat()

    @rule(tenant=ACTORS, user=USERS, pick=st.integers(0, 9))
    def read(self, tenant: str, user: str, pick: int) -> None:
        id = self.entry(tenant, user, pick)
        for path in (f"/entries/{id}", f"/entries/{id}/history", "/memory", "/sessions", ""):
            self.send(tenant, "GET", user, path)
        self.send(tenant, "GET", user, "/entries", params={"cursor": id, "as_of": self.past[tenant]})

    @rule(tenant=ACTORS, user=USERS, pick=st.integers(0, 9), what=st.sampled_from(["PATCH", "DELETE", "undo"]))
    def change(self, tenant: str, user: str, pick: int, what: str) -> None:
        path = f"/entries/{self.entry(tenant, user, pick)}"
        body = {"json": {"text": f"now {MARKS[tenant]}"}} if what == "PATCH" else {}
        self.send(tenant, "POST", user, f"{path}/undo") if what == "undo" else self.send(
            tenant, what, user, path, **body
        )

    @rule(tenant=ACTORS, user=USERS, session=st.sampled_from(["s", "t", None]))
    def forget(self, tenant: str, user: str, session: str | None) -> None:
        self.send(tenant, "DELETE", user, f"/sessions/{session}" if session else "")


@pytest.mark.parametrize("steps", [25])
def test_no_verb_shows_a_word_of_another_tenant(tmp_path: Path, steps: int) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(Store(tmp_path / "memories.sqlite"))
        client = stack.enter_context(serving(service_over(store, tmp_path)))
        machine = type("Machine", (Verbs,), {"client": client, "seen": Counter()})
        limits = {"max_examples": 6, "stateful_step_count": steps, "suppress_health_check": list(HealthCheck)}
        run_state_machine_as_test(machine, settings=settings(**limits))
        # Each saw its own words, so that foreign ones would have been seen.
        assert min(machine.seen[tenant] for tenant in TENANTS) > 5
