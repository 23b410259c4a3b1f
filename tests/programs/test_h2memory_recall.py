"""What H2Memory recalls from its four parts, and what each ablation changes and leaves alone.

From logs of a phone come situations, and the background: what is known of the user in each aspect
of life, such as health. From dialogues come topics, each a need of the user, and principles: what
the user prefers for a type of need. An ablation is a variant of the method in which some parts are
switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from mempiler import Context, Query, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.memory import (
    Background,
    HeterogeneousMemory,
    Principle,
    Situation,
    Solution,
    Topic,
)
from mempiler.runs.evidence import evidence_hits

from .conftest import WriteResult, logs_and_dialogues, prompt_field


def h2memory_reader(**settings: Any) -> Any:
    return build("h2memory", embedder=embedder(), **settings).method.reader


def recall(memory: HeterogeneousMemory, query: Query, **settings: Any) -> Context:
    """Return what H2Memory with these settings shows of a memory for a query."""
    return h2memory_reader(**settings).recall(memory, query)


def ids(context: Context, kind: str) -> list[str]:
    """Return the ids of the hits of one kind, such as "topic"."""
    return [hit.id for hit in context.hits if hit.kind == kind]


def texts(context: Context, kind: str) -> list[str]:
    """Return the texts of the hits of one kind, such as "topic"."""
    return [hit.text for hit in context.hits if hit.kind == kind]


@pytest.fixture
def memory_of_all_parts() -> HeterogeneousMemory:
    """A memory with one situation, one background, one topic and one principle.

    The situation comes from the logs L1, and the topic from the dialogue D1.
    """
    worked_at_night = Situation(
        id="s1", batch="L1", text="worked at night", aspects=("health",), sources=("L1:1",)
    )
    sleep = Topic(
        id="t1",
        need="sleep soundly",
        solutions=(Solution(text="go to bed at ten", kind="pos"),),
        preference="no pills",
        sources=("D1:1",),
    )
    return HeterogeneousMemory(
        batches=("L1",),
        situations=(worked_at_night,),
        background={"health": Background(text="sleeps badly", situations=("s1",))},
        topics=(sleep,),
        principles=(
            Principle(id="p1", need_type="rest", preference="natural means", members=("t1",)),
        ),
    )


# Recall shows a part of each kind.


def test_the_four_parts_are_recalled_in_their_order(
    memory_of_all_parts: HeterogeneousMemory,
) -> None:
    """The memory has one part of each kind."""
    context = recall(memory_of_all_parts, Query(text="How do I sleep soundly?"))

    assert [(hit.kind, hit.text) for hit in context.hits] == [
        ("situation", "worked at night"),
        ("background", "health: sleeps badly"),
        (
            "topic",
            "Need: sleep soundly | Proposed: go to bed at ten (liked) | Preference: no pills",
        ),
        ("principle", "Type of need: rest | Principle: natural means"),
    ]


def test_the_tokens_and_model_calls_of_a_recall_are_counted(
    memory_of_all_parts: HeterogeneousMemory,
) -> None:
    """Users compare methods by what they cost."""
    context = recall(memory_of_all_parts, Query(text="How do I sleep soundly?"))

    # Four characters are counted as a token.
    assert context.counts["tokens"] == round(len(context.text()) / 4)
    # The query is a question, so that no model had to sum it up.
    assert context.counts["calls"] == 0


def test_the_three_situations_nearest_to_the_query_are_recalled() -> None:
    memory = HeterogeneousMemory(
        batches=("L1",),
        situations=(
            Situation(id="s1", batch="L1", text="ran in the rain"),
            Situation(id="s2", batch="L1", text="met the boss"),
            Situation(id="s3", batch="L1", text="ran a race"),
            Situation(id="s4", batch="L1", text="ran home"),
        ),
    )

    context = recall(memory, Query(text="When I ran, was it a race?"))

    assert ids(context, "situation")[0] == "s3"
    assert set(ids(context, "situation")) == {"s1", "s3", "s4"}
    assert context.counts["situations"] == 3


def test_situations_before_the_current_session_are_not_recalled() -> None:
    """`batches` names the logs of the current session, here L2."""
    memory = HeterogeneousMemory(
        batches=("L2",),
        situations=(
            Situation(id="s1", batch="L1", text="ran a race"),
            Situation(id="s2", batch="L2", text="met the boss"),
        ),
    )

    context = recall(memory, Query(text="When I ran, was it a race?"))

    assert ids(context, "situation") == ["s2"]


def test_the_background_is_that_of_the_recalled_situations() -> None:
    """The only situation of the current session, L2, is about work."""
    memory = HeterogeneousMemory(
        batches=("L2",),
        situations=(
            Situation(id="s1", batch="L1", text="met the boss", sources=("L1:1",)),
            Situation(
                id="s2", batch="L2", text="was promoted", aspects=("work",), sources=("L2:1",)
            ),
        ),
        background={
            "health": Background(text="sleeps badly"),
            "work": Background(text="is a head nurse", situations=("s1", "s2")),
        },
    )

    context = recall(memory, Query(text="How do I sleep soundly?"))

    [background] = [hit for hit in context.hits if hit.kind == "background"]
    assert background.text == "work: is a head nurse"
    # The background was written from situations of the current and of an earlier session.
    assert background.sources == ("L1:1", "L2:1")
    assert context.counts["backgrounds"] == 1


def test_the_three_topics_nearest_to_the_query_are_recalled() -> None:
    memory = HeterogeneousMemory(
        topics=(
            Topic(id="t1", need="sleep on a plane"),
            Topic(id="t2", need="cook vegetables"),
            Topic(id="t3", need="sleep soundly at home"),
            Topic(id="t4", need="sleep in summer"),
        )
    )

    context = recall(memory, Query(text="sleep soundly at home"))

    assert ids(context, "topic")[0] == "t3"
    assert set(ids(context, "topic")) == {"t1", "t3", "t4"}
    assert context.counts["topics"] == 3


def test_the_principles_of_the_recalled_topics_are_recalled() -> None:
    """`topics=2` recalls the two nearest topics. The members of a principle are its topics."""
    memory = HeterogeneousMemory(
        topics=(
            Topic(id="t1", need="sleep on a plane"),
            Topic(id="t2", need="cook vegetables"),
            Topic(id="t3", need="sleep soundly at home"),
        ),
        principles=(
            Principle(id="p1", need_type="travel", members=("t1",)),
            Principle(id="p2", need_type="food", members=("t2",)),
            Principle(id="p3", need_type="rest", members=("t3",)),
        ),
    )

    context = recall(memory, Query(text="sleep soundly at home"), topics=2)

    assert ids(context, "topic") == ["t3", "t1"]
    # Principles come in the order of their topics.
    assert ids(context, "principle") == ["p3", "p1"]
    assert context.counts["principles"] == 2


def test_a_principle_has_the_score_of_its_best_topic_and_the_turns_of_all() -> None:
    memory = HeterogeneousMemory(
        topics=(
            Topic(id="t1", need="cook vegetables", sources=("D1:1", "D1:2")),
            Topic(id="t2", need="sleep soundly at home", sources=("D2:1",)),
        ),
        principles=(Principle(id="p1", need_type="daily life", members=("t1", "t2")),),
    )

    context = recall(memory, Query(text="sleep soundly at home"))

    best_topic, other_topic, principle = context.hits
    assert best_topic.id == "t2"
    assert best_topic.score > other_topic.score
    assert principle.score == best_topic.score
    assert principle.sources == ("D1:1", "D1:2", "D2:1")


# A task may be about needs or about solutions.


def test_a_task_about_needs_sees_no_solution_and_no_preference(
    memory_of_all_parts: HeterogeneousMemory,
) -> None:
    """Such a task restates what the user needs. Earlier solutions would only distract from it."""
    query = Query(text="How do I sleep soundly?", about="needs")

    context = recall(memory_of_all_parts, query)

    assert texts(context, "topic") == ["Need: sleep soundly"]
    assert texts(context, "principle") == ["Type of need: rest"]


def test_a_task_about_solutions_sees_solutions_and_preferences(
    memory_of_all_parts: HeterogeneousMemory,
) -> None:
    query = Query(text="How do I sleep soundly?", about="solutions")

    context = recall(memory_of_all_parts, query)

    assert texts(context, "topic") == [
        "Need: sleep soundly | Proposed: go to bed at ten (liked) | Preference: no pills"
    ]
    assert texts(context, "principle") == ["Type of need: rest | Principle: natural means"]


# What is searched for.


@pytest.fixture
def memory_of_sleep_and_food() -> HeterogeneousMemory:
    """A memory with the topics "sleep soundly" and "cook vegetables"."""
    return HeterogeneousMemory(
        topics=(
            Topic(id="t1", need="sleep soundly"),
            Topic(id="t2", need="cook vegetables"),
        )
    )


def test_a_dialogue_is_summed_up_and_the_summary_is_searched_for(
    scripted: Callable[..., Any], memory_of_sleep_and_food: HeterogeneousMemory
) -> None:
    """At the end of a dialogue, the last words of the user may not say what they need.

    So the model sums up the dialogue. Here its summary is about cooking, though the last words are
    about sleeping.
    """
    query = Query(
        text="Or sleep soundly?",
        dialogue="user: What helps me?\nassistant: Green food.",
        modality="dialogue",
    )
    lm = scripted(lambda *_prompt: {"current_need": "cook vegetables"})

    with dspy.context(lm=lm):
        context = recall(memory_of_sleep_and_food, query, topics=1)

    assert texts(context, "topic") == ["Need: cook vegetables"]
    assert context.counts["calls"] == 1
    [(_output_field, prompt)] = lm.engine.prompts
    assert prompt_field(prompt, "dialogue_so_far") == (
        "user: What helps me?\nassistant: Green food.\nuser: Or sleep soundly?"
    )


def test_a_question_is_searched_for_as_it_is(
    scripted: Callable[..., Any], memory_of_sleep_and_food: HeterogeneousMemory
) -> None:
    """A question needs no summary, even if it was asked in a dialogue."""
    query = Query(
        text="Or sleep soundly?",
        dialogue="user: What helps me?\nassistant: Green food.",
        modality="question",
    )
    lm = scripted(lambda *_prompt: {"current_need": "cook vegetables"})

    with dspy.context(lm=lm):
        context = recall(memory_of_sleep_and_food, query, topics=1)

    assert texts(context, "topic") == ["Need: sleep soundly"]
    assert context.counts["calls"] == 0
    assert lm.engine.prompts == []


# Parts that are switched off.


def counts_of_recalled_parts(
    write_with_h2memory: Callable[..., WriteResult], **settings: Any
) -> dict[str, int]:
    """Return how many parts of each kind are recalled after three months of logs and dialogues.

    The need of every dialogue is in one cluster, which makes one principle.
    """
    history = logs_and_dialogues(months=3)
    memory = write_with_h2memory(history, clusters=1, **settings).memory
    context = recall(memory, Query(text="How do I sleep soundly?"), clusters=1, **settings)
    parts = ("situations", "backgrounds", "topics", "principles")
    return {part: context.counts[part] for part in parts}


@pytest.mark.parametrize(
    ("switch", "part"),
    [
        ("use_situations", "situations"),
        ("use_background", "backgrounds"),
        ("use_topics", "topics"),
        ("use_principles", "principles"),
    ],
)
def test_a_part_that_is_switched_off_is_not_shown_and_changes_no_other_part(
    write_with_h2memory: Callable[..., WriteResult], switch: str, part: str
) -> None:
    """The paper measures what each part of the memory is worth by leaving it out.

    The background is made from situations, and principles from topics, even if these are not shown.
    """
    all_parts = {"situations": 3, "backgrounds": 1, "topics": 3, "principles": 1}

    counts = counts_of_recalled_parts(write_with_h2memory, **{switch: False})

    assert counts == {**all_parts, part: 0}


# Search, which looks through all parts alike.


def test_search_finds_all_parts(memory_of_all_parts: HeterogeneousMemory) -> None:
    """All parts are near enough, since `k` and `min_score` leave nothing out.

    Only the need of a topic is compared with the query, and the whole topic is returned.
    """
    [hits] = h2memory_reader().search(memory_of_all_parts, ["sleep"], k=50, min_score=-1.0)

    assert {hit.kind: hit.text for hit in hits} == {
        "situation": "worked at night",
        "background": "health: sleeps badly",
        "topic": "Need: sleep soundly | Proposed: go to bed at ten (liked) | Preference: no pills",
        "principle": "Type of need: rest | Principle: natural means",
    }


def test_only_situations_and_topics_are_evidence(memory_of_all_parts: HeterogeneousMemory) -> None:
    """Retrieval is scored by the turns that hits rest on; the other parts sum up many turns."""
    word_of_each_part = "night sleeps soundly rest"

    hits = evidence_hits(h2memory_reader(), memory_of_all_parts, word_of_each_part, k=50)

    assert {hit.kind for hit in hits} == {"situation", "topic"}


def test_search_finds_no_parts_that_are_switched_off(
    memory_of_all_parts: HeterogeneousMemory,
) -> None:
    """Situations and backgrounds, the parts that are made from logs, are switched off."""
    reader = h2memory_reader(use_situations=False, use_background=False)

    [hits] = reader.search(memory_of_all_parts, ["sleep"], k=50, min_score=-1.0)

    assert {hit.kind for hit in hits} == {"topic", "principle"}
