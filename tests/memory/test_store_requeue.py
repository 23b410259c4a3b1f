"""Items that had failed and are queued again lie before the position of the memory: none is passed over."""

from typing import Any

import pytest
from mempiler import ConflictError, Store, StoreError, Turn, build
from mempiler.engines.models import language_model
from mempiler.memory.store import database, queue_scan
from mempiler.memory.store.documents import Document
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories import Memories
from mempiler.serving.writing import write_user_queue
from sqlalchemy import text

from .conftest import ADA, WRITER, session


def memory(position: int, finalized_position: int | None = None) -> Document:
    """A memory of all items up to a position."""
    if finalized_position is None:
        finalized_position = position
    return Document("{}", position, None, finalized_position, ("Ada",), WRITER)


def states(store: Store) -> list[str]:
    return [stored.state for stored in store.items.list_all(ADA)]


@pytest.fixture
def store_with_failed_items(store: Any) -> Any:
    """A store in which two items have failed, and a third one is in the memory."""
    for number in range(1, 4):
        store.items.add(ADA, session("text", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", 60, WRITER)
    store.queue.fail(claim, 1, "refused", is_given_up=True)
    store.queue.fail(claim, 2, "refused", is_given_up=True)
    store.queue.commit(claim, memory(3), lease=0, item_positions=[3])
    assert states(store) == ["failed", "failed", "remembered"]
    return store


def test_a_commit_marks_only_the_requeued_item_that_it_wrote(store_with_failed_items: Any) -> None:
    """If the other one were marked too, a worker that is killed now would have lost it."""
    store = store_with_failed_items
    assert store.queue.requeue_failed(ADA) == 2

    (claim,) = store.queue.claim("worker", 60, WRITER)
    claim = store.queue.commit(claim, memory(3), lease=60, item_positions=[1])
    assert states(store) == ["remembered", "queued", "remembered"]

    store.queue.commit(claim, memory(3), lease=0, item_positions=[2])
    assert states(store) == ["remembered", "remembered", "remembered"]


def test_a_commit_does_not_mark_what_is_requeued_while_it_is_being_written(
    store_with_failed_items: Any,
) -> None:
    store = store_with_failed_items
    store.items.add(ADA, session("text", id="s4"))
    (claim,) = store.queue.claim("worker", 60, WRITER)
    store.queue.requeue_failed(ADA)

    assert store.queue.commit(claim, memory(4), lease=0, item_positions=[4]) is not None
    assert states(store) == ["queued", "queued", "remembered", "remembered"]


def test_a_commit_marks_no_failed_item_before_its_own_that_is_requeued_meanwhile(
    store: Any,
) -> None:
    """The failed item lies behind the memory, and is not in it."""
    for number in (1, 2):
        store.items.add(ADA, session("text", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", 60, WRITER)
    store.queue.fail(claim, 1, "refused", is_given_up=True)
    store.queue.requeue_failed(ADA)

    assert store.queue.commit(claim, memory(2), lease=0, item_positions=[2]) is not None
    assert states(store) == ["queued", "remembered"]


def test_an_item_that_one_worker_gave_up_and_another_one_wrote_is_remembered(store: Any) -> None:
    """Otherwise it would be written a second time when failed items are queued again."""
    store.items.add(ADA, session("text", id="s1"))
    (slow,) = store.queue.claim("slow", 0, WRITER)
    (fast,) = store.queue.claim("fast", 60, WRITER)
    store.queue.fail(fast, 1, "refused", is_given_up=True)

    assert store.queue.commit(slow, memory(1), lease=0, item_positions=[1]) is not None
    assert store.queue.requeue_failed(ADA) == 0
    assert states(store) == ["remembered"]


def test_a_retry_that_is_stopped_after_the_first_item_is_continued_with_the_second(
    store: Any,
) -> None:
    memories = Memories(build("turn-rag"), store, language_model("offline"))
    for number in range(1, 4):
        store.items.add(ADA, session(f"text {number}", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", 60, memories.writer_fingerprint)
    store.queue.fail(claim, 1, "refused", is_given_up=True)
    store.queue.fail(claim, 2, "refused", is_given_up=True)
    store.queue.release(claim)
    write_user_queue(memories, ADA)
    assert states(store) == ["failed", "failed", "remembered"]

    store.queue.requeue_failed(ADA)
    write_user_queue(memories, ADA, stop=lambda: "remembered" in states(store)[:2])
    assert states(store) == ["remembered", "queued", "remembered"]

    write_user_queue(memories, ADA)
    entries = memories.read(ADA).memory.entries()
    assert sorted(entry.text for entry in entries) == ["Ada: text 1", "Ada: text 2", "Ada: text 3"]


def test_a_retried_item_is_searched_and_finalized_though_later_items_are_finalized_already(
    store: Any,
) -> None:
    """Here the writer stops before it finalizes, as one that is killed does."""
    memories = Memories(build("fact-store"), store, language_model("offline"))
    for number in range(1, 4):
        store.items.add(ADA, session(f"I moved to town {number}.", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", 60, memories.writer_fingerprint)
    store.queue.fail(claim, 1, "refused", is_given_up=True)
    store.queue.fail(claim, 2, "refused", is_given_up=True)
    store.queue.release(claim)
    write_user_queue(memories, ADA)
    assert states(store) == ["failed", "failed", "remembered"]

    store.queue.requeue_failed(ADA)
    write_user_queue(memories, ADA, stop=lambda: states(store)[0] == "remembered")
    assert states(store) == ["remembered", "queued", "remembered"]
    pending_ids = [stored.item.id for stored in store.read(ADA).pending_items]
    assert pending_ids[:2] == ["s1", "s2"]

    write_user_queue(memories, ADA)
    snapshot = store.read(ADA)
    assert snapshot.document is not None
    assert snapshot.document.finalized_position == snapshot.document.position
    assert snapshot.pending_items == ()


def test_turns_of_an_unknown_user_do_not_begin_a_session_that_must_be_there(store: Any) -> None:
    with pytest.raises(ConflictError, match="has no open session 'chat'"):
        store.open_sessions.append(ADA, "chat", session("hello").turns, may_begin=False)


def test_a_user_with_two_things_to_do_is_claimed_once(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is in the list of memories to finalize and in the queue, and the list takes two statements."""
    monkeypatch.setattr(database, "BATCH_SIZE", 1)
    monkeypatch.setattr(queue_scan, "PART_SIZE", 4)
    for position in (1, 2):
        store.items.add(ADA, session("text", id=f"s{position}"))
    (claim,) = store.queue.claim("worker", 60, WRITER)
    store.queue.commit(claim, memory(1, finalized_position=0), lease=0, item_positions=[1])

    claims = store.queue.claim("worker", 60, WRITER, limit=8)
    assert [claim.owner for claim in claims] == [ADA]


def test_a_damaged_open_session_is_named_when_it_is_to_be_forgotten(store: Any) -> None:
    """Its turn has an id that would stay taken. The message does not say what the row holds."""
    ada = Owner("ada")
    store.open_sessions.append(ada, "chat", [Turn(id="", speaker="Ada", text="falcon")])
    with store._database.write_transaction() as transaction:
        transaction.connection.execute(
            text('UPDATE mempiler_open_turns SET json = \'{"text": "falcon\'')
        )

    with pytest.raises(StoreError, match="session 'chat': the row is damaged") as raised:
        store.forgetting.forget_session(ada, "chat")
    assert "falcon" not in str(raised.value)
    assert store.forgetting.forget_user(ada)
