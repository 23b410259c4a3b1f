"""Writers of queued sessions: users overlap, and a failure leaves the rest queued."""

import threading
from pathlib import Path
from typing import Any

import pytest
from dspy.utils.exceptions import LMServerError
from mempiler import Store, build
from mempiler.memory.stored import Owner
from mempiler.serving.memories import Memories
from mempiler.serving.writers import remember_queued


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "s.sqlite") as opened:
        for user in range(12):
            for n in range(2):
                owner = Owner(f"user {user}")
                build("turn-rag").memory(opened, owner.user).add(
                    [{"role": "user", "content": f"note {n} of {user}"}], remember=False
                )
        yield opened


def test_all_users_are_written_at_the_same_time(store: Store, scripted: Any) -> None:
    together = threading.Barrier(12, timeout=10)

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        together.wait()  # passes when there is a call of every user
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), store, scripted(reply))).items == 24


def test_a_slow_user_holds_up_nobody_who_comes_later_either(store: Store, scripted: Any) -> None:
    slow = threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if "of late" in text:
            slow.set()
        elif " of 3" in text:
            build("turn-rag").memory(store, "late").add(
                [{"role": "user", "content": "note of late"}], id="only", remember=False
            )
            assert slow.wait(20)
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), store, scripted(reply))).items == 25


def test_a_failure_leaves_the_rest_queued_and_no_user_claimed(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if " of 3" in text:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    program = build("recursive-summary")
    with pytest.raises(LMServerError):
        remember_queued(Memories(program, store, scripted(reply)))
    queued = sum(one.queued for one in store.users())
    assert queued >= 2
    well = scripted(lambda kind, text, n: {kind: "summary"})
    assert remember_queued(Memories(program, store, well)).items == queued
