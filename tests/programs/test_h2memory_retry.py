"""What H2Memory remembers of items that could not be read at first, when they are tried again.

Items are written in order: logs L1, dialogue D1, logs L2, dialogue D2. Logs and the dialogue after
them are a session; the latest is the current session. From logs the model reads situations, and
from a dialogue topics, each with a need of the user. The need is refined with what is known from
the logs of the same session. So whenever a dialogue is tried, its topics should have the logs right
before it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dspy
import pytest
from mempiler import History, Item, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.memory import HeterogeneousMemory, Topic
from mempiler.programs.retry import retry_failed
from mempiler.programs.writing import finalize_memory, write_items

from .conftest import PAL, pal, pal_script, section

UNREADABLE = "nonsense"
SLEEPS_BADLY = {
    "updating_aspects": ["health"],
    "updating_content": [{"aspect": "health", "summary": "sleeps badly"}],
}


class Person:
    """A user whose items are written one by one, by a model whose answers cannot all be read.

    Args:
        scripted: The fixture that makes a scripted model.
        **settings: Those of H2Memory.
    """

    def __init__(self, scripted: Callable[..., Any], **settings: Any) -> None:
        self.writer = build("h2memory", embedder=embedder(), **settings).method.writer
        self.memory: HeterogeneousMemory = self.writer.Memory()
        self.unreadable: set[str] = set()
        """Ids of turns: an answer to a prompt that shows one of them cannot be read."""
        script = pal_script(
            found_situation=self._find_situation,
            outlines=self._outline,
            updating_aspects=SLEEPS_BADLY,
        )
        self.lm = scripted(script)

    # No answer depends on `n`, the number of the call.
    def _find_situation(self, prompt: str, n: int) -> Any:
        if self._shows_unreadable(prompt, "linked_logs"):
            return UNREADABLE
        return PAL["found_situation"](prompt)

    def _outline(self, prompt: str, n: int) -> Any:
        if self._shows_unreadable(prompt, "conversation"):
            return UNREADABLE
        return PAL["outlines"](prompt)

    def _shows_unreadable(self, prompt: str, field: str) -> bool:
        shown = section(prompt, field)
        return any(f"[{turn_id}]" in shown for turn_id in self.unreadable)

    def write(self, *items: Item) -> None:
        """Write items one by one; items that failed before are tried again with the next one."""
        for item in items:
            self.memory = write_items(self.writer, self.memory, [item])

    def retry(self) -> None:
        """Try failed items again, as the command `retry` does: however often they were tried."""
        self.unreadable = set()
        self.memory = retry_failed(self.writer, self.memory, max_attempts=99)
        assert not self.memory.failed_items

    def finalize(self) -> None:
        """Do what is left to do at the end of a history, e.g. refine the last needs."""
        self.memory = finalize_memory(self.writer, self.memory)

    def topics_of(self, dialogue: str) -> list[Topic]:
        return [topic for topic in self.memory.topics if topic.dialogue == dialogue]

    def logs_of(self, dialogue: str) -> set[tuple[str, ...]]:
        """Return which logs the topics of a dialogue have; {("L1",)} if all have L1 alone."""
        return {topic.own for topic in self.topics_of(dialogue)}


@pytest.fixture
def person(scripted: Callable[..., Any]) -> Iterator[Person]:
    """A user of whom nothing is written yet."""
    person = Person(scripted, use_principles=False)
    with dspy.context(lm=person.lm):
        yield person


def turn_ids(item: Item) -> set[str]:
    """Return the ids of all turns of an item."""
    return {turn.id for turn in item.turns}


def logs_by_dialogue(memory: HeterogeneousMemory) -> dict[str, tuple[str, ...]]:
    """Return the ids of the logs that the topics of each dialogue have."""
    return {topic.dialogue: topic.own for topic in memory.topics}


def is_refined(topic: Topic) -> bool:
    """Return whether the need was refined: the script adds what is known in angle brackets."""
    return topic.need.startswith(topic.stated + " <")


def current_batches(memory: HeterogeneousMemory) -> set[str]:
    """Return the ids of the logs that belong to the current session."""
    return {situation.batch for situation in memory.current_situations}


def test_a_dialogue_that_is_read_in_halves_has_the_logs_before_it(
    write_with_h2memory: Callable[..., Any],
) -> None:
    """A dialogue that cannot be read is tried again in halves. Both halves follow the logs L1."""

    def outlines(prompt: str, n: int) -> Any:
        # All four turns of D1 cannot be read together, each half of them can.
        conversation = section(prompt, "conversation")
        if "[D1:1]" in conversation and "[D1:4]" in conversation:
            return UNREADABLE
        return PAL["outlines"](prompt)

    memory = write_with_h2memory({"outlines": outlines}, sessions=2).memory

    topics = [topic for topic in memory.topics if topic.dialogue == "D1"]
    # The model finds two topics in each half.
    assert len(topics) == 4
    assert {topic.own for topic in topics} == {("L1",)}
    assert all(is_refined(topic) for topic in topics)
    assert "situation of L1:1" in topics[0].need


def test_a_retried_dialogue_has_the_logs_before_it_and_leaves_later_ones_to_the_next(
    person: Person,
) -> None:
    """D1 is read after the logs L2 are written, but has L1 alone. D2 comes later and has L2."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    person.unreadable = turn_ids(first_dialogue)
    person.write(first_logs, first_dialogue, second_logs)

    person.retry()
    person.write(second_dialogue)
    person.finalize()

    assert person.logs_of("D1") == {("L1",)}
    assert person.logs_of("D2") == {("L2",)}
    assert all(is_refined(topic) for topic in person.memory.topics)
    assert not person.memory.waiting


def test_a_dialogue_that_fails_once_more_keeps_its_logs(person: Person) -> None:
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    person.unreadable = turn_ids(first_dialogue)
    # D1 is tried a second time, in vain, before D2 is written.
    person.write(first_logs, first_dialogue, second_logs, second_dialogue)
    assert {failed.attempts for failed in person.memory.failed_items} == {2}

    # The third attempt fails, too, and the fourth succeeds.
    person.memory = retry_failed(person.writer, person.memory, max_attempts=3)
    assert {failed.attempts for failed in person.memory.failed_items} == {3}
    person.retry()

    assert person.logs_of("D1") == {("L1",)}
    assert person.logs_of("D2") == {("L2",)}
    assert current_batches(person.memory) == {"L2"}


def test_a_failed_dialogue_after_another_has_no_logs_when_it_is_retried(person: Person) -> None:
    """The logs L1 belong to D1, which came right after them. L2 came too late for D2."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    person.unreadable = turn_ids(second_dialogue)
    # D2 follows D1 at once, and the logs L2 come after it.
    person.write(first_logs, first_dialogue, second_dialogue, second_logs)

    person.retry()

    assert person.logs_of("D1") == {("L1",)}
    assert person.logs_of("D2") == {()}


def test_logs_that_are_read_in_two_attempts_are_listed_once(
    person: Person,
) -> None:
    """The log L1:3 cannot be read with the others, and is read by the second attempt."""
    logs, dialogue = pal(sessions=1).items
    person.unreadable = {"L1:3"}
    person.write(logs)

    person.retry()
    person.write(dialogue)

    # `batches` are the items of logs of the current session.
    assert person.memory.batches == ("L1",)
    assert person.logs_of("D1") == {("L1",)}
    remembered_ids: set[str] = set()
    for situation in person.memory.situations:
        remembered_ids.update(situation.sources)
    assert remembered_ids == turn_ids(logs)


def test_old_logs_that_are_retried_begin_no_session(person: Person) -> None:
    """Logs after a dialogue begin a session. L1:3 is read after D2, but belongs before D1."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    person.unreadable = {"L1:3"}
    person.write(first_logs, first_dialogue, second_logs, second_dialogue)

    person.retry()

    late_situation = person.memory.situations[-1]
    assert late_situation.batch == "L1"
    assert late_situation.sources == ("L1:3",)
    assert late_situation.id in person.memory.background["health"].situations
    assert current_batches(person.memory) == {"L2"}
    # The current session has its dialogue.
    assert person.memory.answered


def test_old_logs_of_which_nothing_was_read_begin_no_session(person: Person) -> None:
    """L1 comes before L2, so a late attempt to read it must not make it the current session."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    # Nothing in the memory names L1: there is no situation of it, and no topic of a dialogue
    # after it.
    person.unreadable = turn_ids(first_logs)
    dialogue_without_turns = first_dialogue.select_turns([])
    person.write(first_logs, dialogue_without_turns, second_logs, second_dialogue)

    person.retry()

    assert {situation.batch for situation in person.memory.situations} == {"L1", "L2"}
    assert current_batches(person.memory) == {"L2"}
    assert person.logs_of("D2") == {("L2",)}


def test_old_logs_that_are_retried_leave_the_next_dialogue_its_logs(person: Person) -> None:
    """L1:3 is read after L2, but belongs to D1. So D2 has the logs L2 alone."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    person.unreadable = {"L1:3"}
    person.write(first_logs, first_dialogue, second_logs)

    person.retry()
    person.write(second_dialogue)

    assert person.logs_of("D2") == {("L2",)}


def test_a_need_is_refined_with_logs_that_could_only_be_read_after_its_dialogue(
    person: Person,
) -> None:
    """When D1 is written, nothing is known from the logs L1 yet, so its needs stay unrefined."""
    logs, dialogue, second_logs, _ = pal(sessions=2).items
    person.unreadable = turn_ids(logs)
    person.write(logs)
    # A second attempt fails as well, before the dialogue is written.
    person.write(dialogue)
    assert not person.memory.situations

    person.retry()
    # Both topics of D1 wait to be refined. This happens when the next logs are written.
    assert len(person.memory.waiting) == 2
    person.write(second_logs)

    assert not person.memory.waiting
    for topic in person.topics_of("D1"):
        assert is_refined(topic)
        assert "situation of L1:" in topic.need


def test_no_logs_are_stored_for_failed_dialogues_if_none_failed(person: Person) -> None:
    """Logs before a dialogue are stored only for a later attempt, so that memories stay small."""
    person.write(*pal(sessions=2).items)
    person.finalize()

    assert person.memory.logs_of_failed == {}


def test_the_logs_of_a_failed_dialogue_are_in_the_json_of_a_memory(person: Person) -> None:
    """Memories are stored as JSON, so that another process can try the dialogue again."""
    logs, dialogue = pal(sessions=1).items
    person.unreadable = turn_ids(dialogue)
    person.write(logs, dialogue)

    memory_json = person.memory.model_dump_json()
    person.memory = HeterogeneousMemory.model_validate_json(memory_json)
    person.retry()

    assert person.logs_of("D1") == {("L1",)}


def write_and_retry(scripted: Callable[..., Any], unreadable: set[str]) -> HeterogeneousMemory:
    """Write three months in which turns cannot be read at first, and retry what failed."""
    history: History = pal(sessions=3)
    person = Person(scripted, use_principles=False)
    person.unreadable = unreadable
    with dspy.context(lm=person.lm):
        person.write(*history.items)
        person.retry()
        person.finalize()
    return person.memory


def test_a_retried_history_has_the_sessions_of_one_that_never_failed(
    scripted: Callable[..., Any],
) -> None:
    """Two dialogues fail as they come and in halves, and can be read at the end."""
    undisturbed = write_and_retry(scripted, unreadable=set())
    # Turns of both halves of D1, and of both halves of D2.
    retried = write_and_retry(scripted, unreadable={"D1:1", "D1:4", "D2:2", "D2:3"})

    # The current session: its logs, and whether its dialogue has come.
    assert retried.batches == undisturbed.batches
    assert retried.answered == undisturbed.answered
    assert logs_by_dialogue(retried) == logs_by_dialogue(undisturbed)
