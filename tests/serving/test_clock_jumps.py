"""The clock of the service's machine is set back and forth between requests.

Nothing is lost, mixed up or held up by that.
"""

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from mempiler import Store
from mempiler.memory import incoming_items

from .conftest import ADA, TOKENS, Api, StartService, turns_of_ada, within

DAY = 24 * 3600.0

SetClock = Callable[[float], None]
"""Sets the clock so many seconds ahead of the real one."""

A_DAY_FORTH_OR_BACK = pytest.mark.parametrize(
    "jump",
    [
        pytest.param(DAY, id="a day forth"),
        pytest.param(-DAY, id="a day back"),
    ],
)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """A function that sets the wall clock so many seconds ahead of the real one, or behind it.

    `set_clock(-60.0)` sets it a minute behind, whatever it was set to before. The store reads
    `time.time`. Sessions and turns are dated by `utc_now`, which three modules use.
    """
    real_time = time.time
    real_utc_now = incoming_items.utc_now
    dating_modules = (
        "mempiler.memory.incoming_items",
        "mempiler.serving.http.conversation",
        "mempiler.serving.memories.user_memory",
    )

    def set_ahead(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real_time() + seconds)
        for module in dating_modules:
            monkeypatch.setattr(
                f"{module}.utc_now", lambda: real_utc_now() + timedelta(seconds=seconds)
            )

    return set_ahead


@pytest.mark.parametrize(
    "clock_settings",
    [
        pytest.param([0.0, -60.0, -120.0], id="back and further back"),
        pytest.param([0.0, 60.0, -60.0], id="forth and back"),
    ],
)
def test_messages_of_a_chat_stay_in_order_though_the_clock_is_set_back(
    client: Api, store: Store, set_clock: SetClock, clock_settings: list[float]
) -> None:
    """Before each message the clock is set so many seconds ahead of the real one, or behind it."""
    for number, seconds_ahead in enumerate(clock_settings):
        set_clock(seconds_ahead)
        response = client.chat(f"Message {number}.", metadata={"session": "s"})
        assert response.status_code == 200

    # Each message has an answer, so there are six turns.
    assert client.sessions() == {"s": ("open", 6)}
    user_turns = [turn for turn in turns_of_ada(store) if turn.startswith("user")]
    assert user_turns == ["user: Message 0.", "user: Message 1.", "user: Message 2."]


def test_a_session_that_ends_after_a_jump_is_stored_in_order(
    client: Api, store: Store, set_clock: SetClock
) -> None:
    """Each message has an answer, so the messages are the turns `s:1` and `s:3`."""
    client.chat("Message 0.", metadata={"session": "s"})
    set_clock(-60.0)
    client.chat("Message 1.", metadata={"session": "s"})

    store.open_sessions.end(ADA, "s")

    (stored,) = store.items.list_all(ADA)
    assert [turn.id for turn in stored.item.turns] == ["s:1", "s:2", "s:3", "s:4"]
    assert stored.item.turns[0].text == "Message 0."
    assert stored.item.turns[2].text == "Message 1."


@A_DAY_FORTH_OR_BACK
def test_sessions_are_queued_in_the_order_in_which_they_came(
    client: Api, store: Store, set_clock: SetClock, jump: float
) -> None:
    """Sessions are written into the memory in the order of their positions."""
    client.add("First.", id="a")
    set_clock(jump)
    client.add("Second.", id="b")
    set_clock(0)
    client.add("Third.", id="c")

    positions = {stored.item.id: stored.position for stored in store.items.list_all(ADA)}
    assert positions == {"a": 1, "b": 2, "c": 3}


@A_DAY_FORTH_OR_BACK
def test_a_repeated_session_is_recognised(client: Api, set_clock: SetClock, jump: float) -> None:
    """A session with an id is stored once. Another one under its id is a conflict (409)."""
    assert client.add("I moved.", id="a").status_code == 201

    set_clock(jump)

    assert client.add("I moved.", id="a").json()["new"] is False
    assert client.add("I stayed.", id="a").status_code == 409


@A_DAY_FORTH_OR_BACK
def test_a_session_queued_before_a_jump_is_written_into_the_memory(
    start_service: StartService, set_clock: SetClock, jump: float
) -> None:
    """With `writers=1` a thread of the service writes queued sessions into memories."""
    client = start_service(writers=1)

    set_clock(jump)
    client.add("I moved to Lisbon.", id="a")
    set_clock(0)
    client.add("I moved to Oslo.", id="b")

    both_are_remembered = {"a": ("remembered", 1), "b": ("remembered", 1)}
    assert within(20, lambda: client.sessions() == both_are_remembered)


@pytest.mark.parametrize(
    ("jump", "can_be_claimed"),
    [
        pytest.param(0.0, False, id="no jump"),
        pytest.param(30.0, False, id="half a minute forth"),
        pytest.param(-30.0, False, id="half a minute back"),
        pytest.param(DAY, True, id="a day forth"),
        pytest.param(-DAY, True, id="a day back"),
    ],
)
def test_a_claim_of_a_user_outlasts_small_jumps_and_no_large_one(
    client: Api, store: Store, set_clock: SetClock, jump: float, can_be_claimed: bool
) -> None:
    """A worker claims the user whose memory it writes, for two minutes (its lease).

    Another worker may claim the user when that time is over. It may do so as well if the lease ends
    in a day, since no lease is that long: the clock was wrong.
    """
    # Names the program that writes the memory.
    stamp = client.service.memories.writer_fingerprint
    client.add("I moved to Lisbon.")
    first_claim = store.queue.claim("first worker", lease=120, stamp=stamp)
    assert first_claim

    set_clock(jump)

    second_claim = store.queue.claim("second worker", lease=120, stamp=stamp)
    assert bool(second_claim) is can_be_claimed


@A_DAY_FORTH_OR_BACK
def test_changes_of_an_entry_are_undone_latest_first(
    client: Api, set_clock: SetClock, jump: float
) -> None:
    """An entry is a piece of a memory: here the first turn of session `a`. It is changed twice."""
    client.add("I moved to Lisbon.", id="a")
    entry = "/v1/users/ada/entries/a:1"
    assert client.patch(entry, json={"text": "I moved to Oslo."}).status_code == 200
    set_clock(jump)
    assert client.patch(entry, json={"text": "I moved to Quito."}).status_code == 200

    assert client.post(f"{entry}/undo").status_code == 200

    assert "Oslo" in client.get(entry).json()["text"]


@A_DAY_FORTH_OR_BACK
def test_a_withdrawn_token_stays_withdrawn(
    client: Api, tmp_path: Path, set_clock: SetClock, jump: float
) -> None:
    digest_of_globex = hashlib.sha256(TOKENS["globex"].encode()).hexdigest()
    globex = client.as_tenant("globex")

    # The token of `acme`, which `client` sends, is withdrawn: the file has it no longer.
    set_clock(jump)
    (tmp_path / "tokens").write_text(f"globex sha256:{digest_of_globex}\n")

    for seconds_ahead in (jump, 0.0, -jump):
        set_clock(seconds_ahead)
        assert client.get("/v1/users").status_code == 401
        assert globex.get("/v1/users").status_code == 200


@A_DAY_FORTH_OR_BACK
def test_a_forgotten_user_does_not_come_back(
    client: Api, store: Store, set_clock: SetClock, jump: float
) -> None:
    client.chat("I moved to Lisbon.")

    set_clock(jump)
    assert client.delete("/v1/users/ada").status_code == 200
    set_clock(0)

    assert client.get("/v1/users/ada/memory").status_code == 404
    assert client.add("I am new here.").status_code == 201
    assert turns_of_ada(store) == ["Ada: I am new here."]
