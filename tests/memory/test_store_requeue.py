"""Items that failed and are queued again.

They lie before the position of the memory, which is that of the last item in it, and none of them
may be passed over. An item is "queued" until a commit of the memory marks it as "remembered", or a
worker gives it up: then it is "failed".
"""

import io
import threading
import time
from pathlib import Path

import pytest
from mempiler import Store, build
from mempiler.engines.lm import language_model
from mempiler.memory.store.database import Database
from mempiler.memory.store.documents import Document
from mempiler.memory.store.memories import reset_memory
from mempiler.memory.store.user_rows import lock_user
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.transfer import export_users, import_users
from mempiler.serving.memories.writing import write_user_queue

from .conftest import ADA, WRITER, session


def memory_up_to(position: int) -> Document:
    """Return a memory whose last item is the one at a position."""
    return Document(
        memory="{}",
        position=position,
        finalized=None,
        finalized_position=position,
        speakers=("Ada",),
        stamp=WRITER,
    )


def states(store: Store) -> list[str]:
    """Return the states of Ada's items, in the order of their positions."""
    return [stored.state for stored in store.items.list_all(ADA)]


@pytest.fixture
def store_with_items_1_and_2_failed(store: Store) -> Store:
    """A store in which Ada's items 1 and 2 have failed, and item 3 is in her memory."""
    for number in range(1, 4):
        store.items.add(ADA, session("text", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", lease=60, stamp=WRITER)
    store.queue.fail(claim, position=1, error="refused", is_given_up=True)
    store.queue.fail(claim, position=2, error="refused", is_given_up=True)
    store.queue.commit(claim, memory_up_to(3), lease=0, item_positions=[3])
    assert states(store) == ["failed", "failed", "remembered"]
    return store


def test_a_commit_marks_only_the_requeued_item_that_it_wrote(
    store_with_items_1_and_2_failed: Store,
) -> None:
    """If item 2 were marked with item 1, it would be lost when the worker is killed now."""
    store = store_with_items_1_and_2_failed
    assert store.queue.requeue_failed(ADA) == 2

    (claim,) = store.queue.claim("worker", lease=60, stamp=WRITER)
    claim = store.queue.commit(claim, memory_up_to(3), lease=60, item_positions=[1])
    assert states(store) == ["remembered", "queued", "remembered"]

    store.queue.commit(claim, memory_up_to(3), lease=0, item_positions=[2])
    assert states(store) == ["remembered", "remembered", "remembered"]


def test_a_commit_does_not_mark_items_that_were_requeued_after_the_claim(
    store_with_items_1_and_2_failed: Store,
) -> None:
    """The worker is writing item 4 when a user lets the failed items 1 and 2 be tried again."""
    store = store_with_items_1_and_2_failed
    store.items.add(ADA, session("text", id="s4"))
    (claim,) = store.queue.claim("worker", lease=60, stamp=WRITER)
    store.queue.requeue_failed(ADA)

    assert store.queue.commit(claim, memory_up_to(4), lease=0, item_positions=[4]) is not None
    assert states(store) == ["queued", "queued", "remembered", "remembered"]


def test_an_item_that_one_worker_gave_up_and_another_one_wrote_is_remembered(store: Store) -> None:
    """If the item stayed "failed", it would be queued again, and be written a second time."""
    store.items.add(ADA, session("text", id="s1"))
    # This lease ends at once, so another worker may claim the user, too.
    (claim_of_slow_worker,) = store.queue.claim("slow", lease=0, stamp=WRITER)
    (claim_of_fast_worker,) = store.queue.claim("fast", lease=60, stamp=WRITER)
    store.queue.fail(claim_of_fast_worker, position=1, error="refused", is_given_up=True)

    assert store.queue.commit(claim_of_slow_worker, memory_up_to(1), lease=0, item_positions=[1])
    assert store.queue.requeue_failed(ADA) == 0
    assert states(store) == ["remembered"]


def let_two_items_fail_and_write_the_third(memories: Memories, text: str) -> None:
    """Add the items `text 1` to `text 3`, let the first two fail, and write the third."""
    store = memories.store
    for number in range(1, 4):
        store.items.add(ADA, session(f"{text} {number}", id=f"s{number}"))
    (claim,) = store.queue.claim("worker", lease=60, stamp=memories.writer_fingerprint)
    store.queue.fail(claim, position=1, error="refused", is_given_up=True)
    store.queue.fail(claim, position=2, error="refused", is_given_up=True)
    store.queue.release(claim)
    write_user_queue(memories, ADA)
    assert states(store) == ["failed", "failed", "remembered"]


def test_a_retry_that_is_stopped_after_the_first_item_is_continued_with_the_second(
    store: Store,
) -> None:
    """Items 1 and 2 had failed and are queued again; item 3 is in the memory already."""

    def first_retry_is_written() -> bool:
        return "remembered" in states(store)[:2]

    memories = Memories(build("turn-rag"), store, language_model("offline"))
    let_two_items_fail_and_write_the_third(memories, "text")
    store.queue.requeue_failed(ADA)

    write_user_queue(memories, ADA, stop=first_retry_is_written)
    assert states(store) == ["remembered", "queued", "remembered"]

    write_user_queue(memories, ADA)
    entries = memories.read(ADA).memory.entries()
    assert sorted(entry.text for entry in entries) == ["Ada: text 1", "Ada: text 2", "Ada: text 3"]


def test_a_retried_item_is_finalized_although_later_items_are_finalized_already(
    store: Store,
) -> None:
    """Questions are answered from the finalized form, which is made when all items are written.

    Here the writer stops before that, as one that is killed does. Its first item is remembered, and
    still pending because it is not finalized.
    """

    def first_item_is_written() -> bool:
        return states(store)[0] == "remembered"

    memories = Memories(build("fact-store"), store, language_model("offline"))
    let_two_items_fail_and_write_the_third(memories, "I moved to town")
    store.queue.requeue_failed(ADA)

    write_user_queue(memories, ADA, stop=first_item_is_written)
    assert states(store)[0] == "remembered"
    assert "s1" in [stored.item.id for stored in store.read(ADA).pending_items]

    write_user_queue(memories, ADA)
    assert store.read(ADA).pending_items == ()


def test_a_requeued_item_is_still_queued_in_the_store_to_which_its_user_moves(
    store_with_items_1_and_2_failed: Store, tmp_path: Path
) -> None:
    """Of the two items that failed, the second one was written, and the first one still waits."""
    store = store_with_items_1_and_2_failed
    store.queue.requeue_failed(ADA)
    (claim,) = store.queue.claim("worker", lease=60, stamp=WRITER)
    store.queue.commit(claim, memory_up_to(3), lease=0, item_positions=[2])
    file = io.StringIO()
    export_users(store, file)

    with Store(tmp_path / "other.sqlite") as other:
        import_users(other, file.getvalue().splitlines(), "file")

        assert states(other) == ["queued", "remembered", "remembered"]


def test_a_failure_of_an_item_that_is_reset_in_the_same_moment_is_not_recorded(
    store: Store, database: Database
) -> None:
    """A worker gives up an item while the memory of its user is reset, in another transaction.

    It waits for the reset to end, after which the item is to be tried again.
    """
    store.items.add(ADA, session("text", id="s1"))
    (claim,) = store.queue.claim("worker", lease=60, stamp=WRITER)

    def fail() -> None:
        store.queue.fail(claim, position=1, error="refused", is_given_up=True)

    failing = threading.Thread(target=fail)
    with database.write_transaction() as transaction:
        lock_user(transaction, ADA)
        reset_memory(transaction, ADA)
        failing.start()
        # The thread has time to begin; it waits for this transaction.
        time.sleep(0.3)
    failing.join()

    (stored,) = store.items.list_all(ADA)
    assert stored.state == "queued"
    assert stored.attempts == 0
    assert stored.error == ""
