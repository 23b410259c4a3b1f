"""The clock of the service's machine is set back and forth between requests: nothing is lost, mixed up or held up."""

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store
from mempiler.memory import incoming_items

from .conftest import ADA, TOKENS, turns, within

HOUR = 3600.0
DAY = 24 * HOUR
SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set the wall clock, of the store and of what is dated, so many seconds ahead of the real one."""
    real_time, real_now = time.time, incoming_items.utc_now

    def set_ahead(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real_time() + seconds)
        for module in (
            "memory.incoming_items",
            "serving.http.conversation",
            "serving.memories.user_memory",
        ):
            monkeypatch.setattr(
                f"mempiler.{module}.utc_now", lambda: real_now() + timedelta(seconds=seconds)
            )

    return set_ahead


@pytest.mark.parametrize(
    "jumps", [(0.0, -60.0, -120.0), (0.0, 60.0, -60.0)], ids=["back", "forth and back"]
)
def test_a_chat_keeps_its_order(
    client: Any, store: Store, set_clock: SetClock, jumps: tuple[float, ...]
) -> None:
    said = list[str]()
    for number, ahead in enumerate(jumps):
        set_clock(ahead)
        assert client.chat(f"Message {number}.", metadata={"session": "s"}).status_code == 200
        said.append(f"user: Message {number}.")
    assert client.sessions() == {"s": ("open", 6)}
    assert [line for line in turns(store) if line.startswith("user")] == said


def test_a_session_that_ends_after_a_jump_is_stored_in_order(
    client: Any, store: Store, set_clock: SetClock
) -> None:
    client.chat("Message 0.", metadata={"session": "s"})
    set_clock(-60.0)
    client.chat("Message 1.", metadata={"session": "s"})
    store.open_sessions.end(ADA, "s")
    (stored,) = store.items.list_all(ADA)
    assert [turn.id for turn in stored.item.turns] == ["s:1", "s:2", "s:3", "s:4"]


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_sessions_are_written_in_the_order_in_which_they_came(
    client: Any, store: Store, set_clock: SetClock, ahead: float
) -> None:
    client.add("First.", id="a")
    set_clock(ahead)
    client.add("Second.", id="b")
    set_clock(0)
    client.add("Third.", id="c")
    assert [(stored.position, stored.item.id) for stored in store.items.list_all(ADA)] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_repeated_session_is_known_again(client: Any, set_clock: SetClock, ahead: float) -> None:
    assert client.add("I moved.", id="a").status_code == 201
    set_clock(ahead)
    assert client.add("I moved.", id="a").json()["new"] is False
    assert client.add("I stayed.", id="a").status_code == 409


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_session_queued_before_a_jump_is_written(
    connect: Any, set_clock: SetClock, ahead: float
) -> None:
    client = connect(writers=1)
    set_clock(ahead)
    client.add("I moved to Lisbon.", id="a")
    set_clock(0)
    client.add("I moved to Oslo.", id="b")
    assert within(
        20, lambda: [state for state, _ in client.sessions().values()] == ["remembered"] * 2
    )


@pytest.mark.parametrize(
    ("ahead", "is_free"), [(0.0, False), (30.0, False), (-30.0, False), (DAY, True), (-DAY, True)]
)
def test_a_lease_outlasts_small_jumps_and_no_large_one(
    client: Any, store: Store, set_clock: SetClock, ahead: float, is_free: bool
) -> None:
    stamp = client.service.memories.writer_fingerprint
    client.add("I moved to Lisbon.")
    assert store.queue.claim("first", 120, stamp)
    set_clock(ahead)
    assert bool(store.queue.claim("second", 120, stamp)) is is_free


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_changes_of_an_entry_are_undone_latest_first(
    client: Any, set_clock: SetClock, ahead: float
) -> None:
    client.add("I moved to Lisbon.", id="a")
    entry = "/v1/users/ada/entries/a:1"
    assert client.patch(entry, json={"text": "I moved to Oslo."}).status_code == 200
    set_clock(ahead)
    assert client.patch(entry, json={"text": "I moved to Quito."}).status_code == 200
    assert client.post(f"{entry}/undo").status_code == 200
    assert "Oslo" in client.get(entry).json()["text"]


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_withdrawn_token_stays_withdrawn(
    client: Any, tmp_path: Path, set_clock: SetClock, ahead: float
) -> None:
    digest = hashlib.sha256(TOKENS["globex"].encode()).hexdigest()
    set_clock(ahead)
    (tmp_path / "tokens").write_text(f"globex sha256:{digest}\n")
    for later in (ahead, 0.0, -ahead):
        set_clock(later)
        assert client.get("/v1/users").status_code == 401
        assert client.as_tenant("globex").get("/v1/users").status_code == 200


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_forgotten_user_does_not_come_back(
    client: Any, store: Store, set_clock: SetClock, ahead: float
) -> None:
    client.chat("I moved to Lisbon.")
    set_clock(ahead)
    assert client.delete("/v1/users/ada").status_code == 200
    set_clock(0)
    assert client.get("/v1/users/ada/memory").status_code == 404
    assert client.add("I am new here.").status_code == 201
    assert turns(store) == ["Ada: I am new here."]
