"""The clock of the service's machine is set back and forth between requests.

Nothing is lost, mixed up or held up by that.
"""

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
        client.chat(f"Message {number}.", metadata={"session": "s"})

    user_turns = [turn for turn in turns_of_ada(store) if turn.startswith("user")]
    assert user_turns == ["user: Message 0.", "user: Message 1.", "user: Message 2."]


def test_a_session_that_ends_after_a_jump_is_stored_in_order(
    client: Api, store: Store, set_clock: SetClock
) -> None:
    """The clock is set back by a minute. The second message is the third turn, after an answer."""
    client.chat("Message 0.", metadata={"session": "s"})
    set_clock(-60.0)
    client.chat("Message 1.", metadata={"session": "s"})

    store.open_sessions.end(ADA, "s")

    (stored,) = store.items.list_all(ADA)
    first_turn, _answer, third_turn, _second_answer = stored.item.turns
    assert (first_turn.id, first_turn.text) == ("s:1", "Message 0.")
    assert (third_turn.id, third_turn.text) == ("s:3", "Message 1.")


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

    remembered = ("remembered", 1)  # a session of one turn
    assert within(20, lambda: client.sessions() == {"a": remembered, "b": remembered})


@A_DAY_FORTH_OR_BACK
def test_changes_of_an_entry_are_undone_latest_first(
    client: Api, set_clock: SetClock, jump: float
) -> None:
    """The entry `a:1` is the first turn of session `a`. Its text is changed twice."""
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
    """The token of `acme` is taken out of the token file, and that of `globex` stays."""
    acme = client
    globex = client.as_tenant("globex")

    set_clock(jump)
    (tmp_path / "tokens").write_text(f"globex {TOKENS['globex']}\n")

    for seconds_ahead in (jump, 0.0, -jump):
        set_clock(seconds_ahead)
        assert acme.get("/v1/users").status_code == 401
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
