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

from .conftest import H2MEMORY_ANSWERS, h2memory_script, logs_and_dialogues, prompt_field

UNREADABLE = "nonsense"
SLEEPS_BADLY = {
    "updating_aspects": ["health"],
    "updating_content": [{"aspect": "health", "summary": "sleeps badly"}],
}


class StepwiseWriter:
    """H2Memory, which writes items one by one, with a model whose answers cannot all be read.

    Args:
        scripted: The fixture that makes a scripted model.
        **settings: Those of H2Memory.
    """

    def __init__(self, scripted: Callable[..., Any], **settings: Any) -> None:
        self._writer = build("h2memory", embedder=embedder(), **settings).method.writer
        self.memory: HeterogeneousMemory = self._writer.Memory()
        self.unreadable_turns: set[str] = set()
        """Ids of turns. No answer to a prompt that shows one of them can be read."""
        script = h2memory_script(
            found_situation=self._find_situation,
            outlines=self._outline,
            updating_aspects=SLEEPS_BADLY,
        )
        self.lm = scripted(script)

    # No answer depends on `n`, the number of the call.
    def _find_situation(self, prompt: str, n: int) -> Any:
        if self._shows_unreadable(prompt, "linked_logs"):
            return UNREADABLE
        return H2MEMORY_ANSWERS["found_situation"](prompt)

    def _outline(self, prompt: str, n: int) -> Any:
        if self._shows_unreadable(prompt, "conversation"):
            return UNREADABLE
        return H2MEMORY_ANSWERS["outlines"](prompt)

    def _shows_unreadable(self, prompt: str, field: str) -> bool:
        shown = prompt_field(prompt, field)
        return any(f"[{turn_id}]" in shown for turn_id in self.unreadable_turns)

    def write(self, *items: Item) -> None:
        """Write items one by one; items that failed before are tried again with the next one."""
        for item in items:
            self.memory = write_items(self._writer, self.memory, [item])

    def retry_in_vain(self) -> None:
        """Try failed items again, which still cannot be read."""
        self.memory = retry_failed(self._writer, self.memory, max_attempts=99)
        assert self.memory.failed_items

    def retry_with_good_answers(self) -> None:
        """Try failed items again, now that every answer can be read."""
        self.unreadable_turns = set()
        self.memory = retry_failed(self._writer, self.memory, max_attempts=99)
        assert not self.memory.failed_items

    def finalize(self) -> None:
        """Do what is left to do at the end of a history, e.g. refine the last needs."""
        self.memory = finalize_memory(self._writer, self.memory)

    def topics_of(self, dialogue: str) -> list[Topic]:
        return [topic for topic in self.memory.topics if topic.dialogue == dialogue]

    def logs_of(self, dialogue: str) -> set[tuple[str, ...]]:
        """Return which logs the topics of a dialogue have; {("L1",)} if all have L1 alone."""
        return {topic.own for topic in self.topics_of(dialogue)}


@pytest.fixture
def writer(scripted: Callable[..., Any]) -> Iterator[StepwiseWriter]:
    """H2Memory with an empty memory."""
    stepwise_writer = StepwiseWriter(scripted, use_principles=False)
    with dspy.context(lm=stepwise_writer.lm):
        yield stepwise_writer


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


def outlines_unless_all_of_d1_is_shown(prompt: str, n: int) -> Any:
    """Answer well unless a prompt shows both the first and the last turn of the dialogue D1."""
    conversation = prompt_field(prompt, "conversation")
    if "[D1:1]" in conversation and "[D1:4]" in conversation:
        return UNREADABLE
    return H2MEMORY_ANSWERS["outlines"](prompt)


def test_a_dialogue_that_is_read_in_halves_has_the_logs_before_it(
    write_with_h2memory: Callable[..., Any],
) -> None:
    """D1 cannot be read as a whole, so it is tried again in halves. Both halves follow the logs L1.

    The scripted model finds two topics in each half.
    """
    memory = write_with_h2memory(
        logs_and_dialogues(months=1), answers={"outlines": outlines_unless_all_of_d1_is_shown}
    ).memory

    assert [topic.dialogue for topic in memory.topics] == ["D1", "D1", "D1", "D1"]
    # `own` are the logs that belong to a topic.
    assert [topic.own for topic in memory.topics] == [("L1",), ("L1",), ("L1",), ("L1",)]
    for topic in memory.topics:
        assert is_refined(topic)
        assert "situation of L1:1" in topic.need


def test_a_retried_dialogue_has_the_logs_before_it_and_leaves_later_ones_to_the_next(
    writer: StepwiseWriter,
) -> None:
    """D1 cannot be read at first, and is read after the logs L2 were written.

    The logs right before a dialogue belong to it, so D1 has L1 alone. D2 comes later and has L2.
    """
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = turn_ids(dialogue_1)
    writer.write(logs_1, dialogue_1, logs_2)

    writer.retry_with_good_answers()
    writer.write(dialogue_2)
    writer.finalize()

    assert writer.logs_of("D1") == {("L1",)}
    assert writer.logs_of("D2") == {("L2",)}
    assert all(is_refined(topic) for topic in writer.memory.topics)
    assert not writer.memory.waiting


def test_a_dialogue_that_fails_once_more_keeps_its_logs(writer: StepwiseWriter) -> None:
    """D1 cannot be read when it is written, nor when it is tried again, but the time after that.

    The logs right before a dialogue belong to it, however late it can be read.
    """
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = turn_ids(dialogue_1)
    writer.write(logs_1, dialogue_1, logs_2, dialogue_2)

    writer.retry_in_vain()
    writer.retry_with_good_answers()

    assert writer.logs_of("D1") == {("L1",)}
    assert writer.logs_of("D2") == {("L2",)}
    # The current session is still the second one.
    assert current_batches(writer.memory) == {"L2"}


def test_a_failed_dialogue_after_another_has_no_logs_when_it_is_retried(
    writer: StepwiseWriter,
) -> None:
    """Logs belong to the dialogue right after them, so L1 to D1. D2 follows D1 at once.

    D2 cannot be read until the logs L2 have come, which are not its logs either.
    """
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = turn_ids(dialogue_2)
    writer.write(logs_1, dialogue_1, dialogue_2, logs_2)

    writer.retry_with_good_answers()

    assert writer.logs_of("D1") == {("L1",)}
    assert writer.logs_of("D2") == {()}


def test_logs_that_are_read_in_two_attempts_are_listed_once(
    writer: StepwiseWriter,
) -> None:
    """The log L1:3 cannot be read with the others of L1, and is read by the second attempt."""
    logs, dialogue = logs_and_dialogues(months=1).items
    writer.unreadable_turns = {"L1:3"}
    writer.write(logs)

    writer.retry_with_good_answers()
    writer.write(dialogue)

    # `batches` are the items of logs of the current session.
    assert writer.memory.batches == ("L1",)
    assert writer.logs_of("D1") == {("L1",)}
    remembered_ids: set[str] = set()
    for situation in writer.memory.situations:
        remembered_ids.update(situation.sources)
    assert remembered_ids == turn_ids(logs)


def test_old_logs_that_are_retried_begin_no_session(writer: StepwiseWriter) -> None:
    """Logs that are new after a dialogue begin a session. L1:3, read after D2, is not new."""
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = {"L1:3"}
    writer.write(logs_1, dialogue_1, logs_2, dialogue_2)

    writer.retry_with_good_answers()

    assert current_batches(writer.memory) == {"L2"}
    # `answered` says that the current session has its dialogue, D2.
    assert writer.memory.answered


def test_old_logs_that_are_retried_update_the_background(writer: StepwiseWriter) -> None:
    """The background is what is known of the user, and rests on the situations that logs show."""
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = {"L1:3"}
    writer.write(logs_1, dialogue_1, logs_2, dialogue_2)

    writer.retry_with_good_answers()

    late_situation = writer.memory.situations[-1]
    assert late_situation.batch == "L1"
    assert late_situation.sources == ("L1:3",)
    assert late_situation.id in writer.memory.background["health"].situations


def test_old_logs_of_which_nothing_was_read_begin_no_session(writer: StepwiseWriter) -> None:
    """The logs L1 come before L2, so a late attempt must not make them the current session."""
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    # Nothing in the memory names L1: there is no situation of it, and no topic of a dialogue
    # after it.
    writer.unreadable_turns = turn_ids(logs_1)
    dialogue_without_turns = dialogue_1.select_turns([])
    writer.write(logs_1, dialogue_without_turns, logs_2, dialogue_2)

    writer.retry_with_good_answers()

    assert {situation.batch for situation in writer.memory.situations} == {"L1", "L2"}
    assert current_batches(writer.memory) == {"L2"}
    assert writer.logs_of("D2") == {("L2",)}


def test_old_logs_that_are_retried_leave_the_next_dialogue_its_logs(writer: StepwiseWriter) -> None:
    """The log L1:3 is read after L2, but belongs to D1. So D2 has the logs L2 alone."""
    logs_1, dialogue_1, logs_2, dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = {"L1:3"}
    writer.write(logs_1, dialogue_1, logs_2)

    writer.retry_with_good_answers()
    writer.write(dialogue_2)

    assert writer.logs_of("D2") == {("L2",)}


def test_a_need_is_refined_with_logs_that_could_only_be_read_after_its_dialogue(
    writer: StepwiseWriter,
) -> None:
    """When D1 is written, nothing is known from the logs L1 yet, so its needs stay unrefined.

    They are refined when the next logs, L2, are written, if L1 could be read by then.
    """
    logs_1, dialogue_1, logs_2, _dialogue_2 = logs_and_dialogues(months=2).items
    writer.unreadable_turns = turn_ids(logs_1)
    writer.write(logs_1)
    # L1 is tried a second time before the dialogue is written, and fails again.
    writer.write(dialogue_1)
    assert not writer.memory.situations

    writer.retry_with_good_answers()
    writer.write(logs_2)

    assert not writer.memory.waiting
    for topic in writer.topics_of("D1"):
        assert is_refined(topic)
        assert "situation of L1:" in topic.need


def test_the_logs_of_a_failed_dialogue_are_in_the_json_of_a_memory(writer: StepwiseWriter) -> None:
    """Memories are stored as JSON, so that another process can try the dialogue again."""
    logs, dialogue = logs_and_dialogues(months=1).items
    writer.unreadable_turns = turn_ids(dialogue)
    writer.write(logs, dialogue)

    memory_json = writer.memory.model_dump_json()
    writer.memory = HeterogeneousMemory.model_validate_json(memory_json)
    writer.retry_with_good_answers()

    assert writer.logs_of("D1") == {("L1",)}


def write_and_retry(scripted: Callable[..., Any], unreadable: set[str]) -> HeterogeneousMemory:
    """Write three months in which turns cannot be read at first, and retry what failed."""
    history: History = logs_and_dialogues(months=3)
    writer = StepwiseWriter(scripted, use_principles=False)
    writer.unreadable_turns = unreadable
    with dspy.context(lm=writer.lm):
        writer.write(*history.items)
        writer.retry_with_good_answers()
        writer.finalize()
    return writer.memory


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
