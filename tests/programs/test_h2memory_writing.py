"""How H2Memory writes: links, situations, backgrounds, topics, needs and principles.

A history has logs and dialogues: L1, D1, L2, D2, ..., one pair a month. Logs that are linked, e.g.
since one caused the other, make one situation. The background has a sentence for each aspect of
life, which new situations update. A dialogue has topics, each with a need of the user. A need is
refined with what is known from situations and background. Similar needs make a cluster, from which
the model abstracts a type of need and a principle: what the user prefers for such needs.

Where a test does not say what the model answers, it is the scripted model of conftest.py. That one
finds a topic on sleep and one on food in each dialogue, and links the second log of a month to the
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import dspy
import mempiler.signatures.h2memory as prompts
import numpy as np
import pytest
from mempiler import Behavior, History, Logs, Profile, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.extraction import connected_subgraphs, turns_of_topics, valid_links
from mempiler.programs.h2memory.memory import HeterogeneousMemory, Link
from mempiler.programs.h2memory.principles import Centre, cluster_rows, nearest_centres
from mempiler.programs.writing import finalize_memory, write_items
from mempiler.signatures.h2memory import LogLinks

from .conftest import WriteResult, h2memory_script, logs_and_dialogues, prompt_field

Write = Callable[..., WriteResult]
"""The fixture `write_with_h2memory`: called with a history, replaced answers and settings."""

MALFORMED = "nonsense"


# What a phone and a user say.


def phone_logs(*texts: str, logs_id: str = "L1", time: datetime | None = None) -> Logs:
    """Return logs that say what the user of a phone did; their ids are L1:1, L1:2, ..."""
    turns: list[Turn] = []
    for number, text in enumerate(texts, start=1):
        turns.append(Turn(id=f"{logs_id}:{number}", speaker="log", text=text))
    return Logs(id=logs_id, time=time, turns=tuple(turns))


def dialogue(text: str, dialogue_id: str = "D1") -> Session:
    """Return a dialogue in which the user says one thing."""
    turn = Turn(id=f"{dialogue_id}:1", speaker="user", text=text)
    return Session(id=dialogue_id, turns=(turn,))


# What the model answers. The keys are the output fields that a prompt asks for.


def links_answer(*links: dict[str, Any]) -> dict[str, Any]:
    """Return the answer which logs are linked, e.g. since one caused the other."""
    return {"links": list(links)}


def situation_answer(text: str, aspects: Any) -> dict[str, Any]:
    """Return the answer which situation some linked logs show, and which aspects of life."""
    return {"found_situation": {"situation": text, "aspects": aspects}}


def background_answer(**sentences: str) -> dict[str, Any]:
    """Return the answer which aspects of the background change: `health="sleeps badly"`."""
    return background_answer_naming(list(sentences), **sentences)


def background_answer_naming(aspects: list[str], **sentences: str) -> dict[str, Any]:
    """Return the same answer, which names other aspects than it has sentences for."""
    contents: list[dict[str, str]] = []
    for aspect, sentence in sentences.items():
        contents.append({"aspect": aspect, "summary": sentence})
    return {"updating_aspects": aspects, "updating_content": contents}


def topics_answer(*needs: str) -> dict[str, Any]:
    """Return the answer which topics a dialogue has: one for each need."""
    return {"outlines": [{"requirement": need} for need in needs]}


def in_turn(*answers: dict[str, Any]) -> Callable[[str, int], dict[str, Any]]:
    """Return a script that gives the first answer to the first call, and so on."""

    def answer(prompt: str, n: int) -> dict[str, Any]:
        return answers[n - 1]

    return answer


# Situations and backgrounds.


def test_linked_logs_make_one_situation_and_every_other_log_makes_its_own(
    write_with_h2memory: Write,
) -> None:
    """A situation sums up logs that belong together. The model is asked first which logs do.

    The logs have the ids L1:1 to L1:3.
    """
    logs = phone_logs("searched for running shoes", "bought running shoes", "called the dentist")
    search_caused_purchase = {"log_id": "L1:2", "caused_by": "L1:1", "follows": None}

    memory = write_with_h2memory(
        History(id="ann", items=(logs,)),
        answers={"links": links_answer(search_caused_purchase)},
    ).memory

    shoes, dentist = memory.situations
    assert shoes.sources == ("L1:1", "L1:2")
    assert shoes.links == (link("L1:2", "caused_by", "L1:1"),)
    assert dentist.sources == ("L1:3",)
    assert dentist.links == ()


def test_situations_are_numbered_over_all_batches_of_logs(write_with_h2memory: Write) -> None:
    """A batch is an item of logs. No logs are linked, so each makes a situation of its own."""
    first_batch = phone_logs("bought shoes", "booked a table", logs_id="L1")
    second_batch = phone_logs("called the dentist", "ran a race", logs_id="L2")

    memory = write_with_h2memory(
        History(id="ann", items=(first_batch, second_batch)),
        answers={"links": links_answer()},
    ).memory

    batches = {situation.id: situation.batch for situation in memory.situations}
    assert batches == {"s1": "L1", "s2": "L1", "s3": "L2", "s4": "L2"}
    sources = {situation.id: situation.sources for situation in memory.situations}
    assert sources == {"s1": ("L1:1",), "s2": ("L1:2",), "s3": ("L2:1",), "s4": ("L2:2",)}


def test_the_prompt_for_a_situation_shows_the_links_between_its_logs(
    write_with_h2memory: Write,
) -> None:
    """The model is asked first which logs are linked, and then to sum up linked logs."""
    logs = phone_logs("searched for running shoes", "bought running shoes")
    search_caused_purchase = {"log_id": "L1:2", "caused_by": "L1:1", "follows": None}

    result = write_with_h2memory(
        History(id="ann", items=(logs,)),
        answers={"links": links_answer(search_caused_purchase)},
    )

    [linked_logs] = result.prompt_fields("found_situation", "linked_logs")
    assert "bought running shoes <caused_by L1:1>" in linked_logs


def background_texts(memory: HeterogeneousMemory) -> dict[str, str]:
    """Return the sentences of the background by aspect of life."""
    return {aspect: background.text for aspect, background in memory.background.items()}


def test_backgrounds_are_updated_month_by_month(write_with_h2memory: Write) -> None:
    """The background has a sentence for each aspect of the user's life, such as work."""
    updates = in_turn(
        background_answer(health="sleeps badly"),
        background_answer(work="is a nurse"),
        background_answer(health="sleeps well"),
    )

    memory = write_with_h2memory(
        logs_and_dialogues(months=3), answers={"updating_aspects": updates}
    ).memory

    assert background_texts(memory) == {"work": "is a nurse", "health": "sleeps well"}


def health_if_a_doctor_else_work(prompt: str, n: int) -> dict[str, Any]:
    """Answer that a situation is about health if its logs name a doctor, and else about work."""
    is_about_health = "doctor" in prompt_field(prompt, "linked_logs")
    return situation_answer("some situation", "health" if is_about_health else "work")


def test_a_background_rests_on_the_situations_that_it_was_written_from(
    write_with_h2memory: Write,
) -> None:
    """Each log makes a situation: s1 is about health, s2 about work, and s3 about health again."""
    saw_doctor = phone_logs("saw the doctor", logs_id="L1")
    met_boss = phone_logs("met the boss", logs_id="L2")
    called_doctor = phone_logs("called the doctor", logs_id="L3")
    updates = in_turn(
        background_answer(health="sleeps badly"),
        background_answer(work="is a nurse"),
        background_answer(health="sleeps well"),
    )

    memory = write_with_h2memory(
        History(id="ann", items=(saw_doctor, met_boss, called_doctor)),
        answers={"found_situation": health_if_a_doctor_else_work, "updating_aspects": updates},
    ).memory

    assert memory.background["health"].situations == ("s1", "s3")
    assert memory.background["work"].situations == ("s2",)


def test_an_update_of_the_background_shows_the_time_spans(write_with_h2memory: Write) -> None:
    """The prompt shows the first and the last day of the background and of the new situations."""
    in_january = phone_logs("bought shoes", logs_id="L1", time=datetime(2024, 1, 3))
    in_february = phone_logs("ran a race", logs_id="L2", time=datetime(2024, 2, 4))
    in_march = phone_logs("won a race", logs_id="L3", time=datetime(2024, 3, 5))

    result = write_with_h2memory(
        History(id="ann", items=(in_january, in_february, in_march)),
        answers={"updating_aspects": background_answer(leisure="likes to run")},
    )

    spans_of_background = result.prompt_fields("updating_aspects", "span_before")
    assert spans_of_background == [
        "unknown",
        "2024-01-03 to 2024-01-03",
        "2024-01-03 to 2024-02-04",
    ]
    spans_of_new_situations = result.prompt_fields("updating_aspects", "span_since")
    assert spans_of_new_situations == [
        "2024-01-03 to 2024-01-03",
        "2024-02-04 to 2024-02-04",
        "2024-03-05 to 2024-03-05",
    ]


@pytest.mark.parametrize(
    ("answer", "background"),
    [
        pytest.param(background_answer(), {}, id="nothing"),
        pytest.param(
            background_answer_naming(["work", "family"], WORK="is a nurse"),
            {"work": "is a nurse"},
            id="no sentence for family",
        ),
        pytest.param(
            background_answer_naming([], work=" is a nurse "),
            {"work": "is a nurse"},
            id="a sentence for an aspect that was not named",
        ),
        pytest.param(
            background_answer_naming(["work"], money="is rich"), {}, id="no aspect of the memory"
        ),
        pytest.param(MALFORMED, {}, id="malformed"),
    ],
)
def test_an_update_changes_the_aspects_it_has_sentences_for(
    write_with_h2memory: Write, answer: Any, background: dict[str, str]
) -> None:
    """The background has a sentence for each aspect of the user's life, such as work.

    The model names the aspects that change, and a sentence for each. It may forget either.
    """
    history = logs_and_dialogues(months=1)

    memory = write_with_h2memory(history, answers={"updating_aspects": answer}).memory

    assert background_texts(memory) == background


# Needs.


def test_a_need_is_refined_with_the_situations_and_the_background_of_their_aspects(
    write_with_h2memory: Write,
) -> None:
    """A dialogue tells what the user needs, and the logs before it may tell why.

    The prompt shows what is known of health, since the situation is about health, and not of work.
    """
    history = History(
        id="ann", items=(phone_logs("came home at six"), dialogue("How can I sleep better?"))
    )
    answers = {
        "found_situation": situation_answer("worked at night", "health"),
        "updating_aspects": background_answer(health="sleeps badly", work="is a nurse"),
        "outlines": topics_answer("sleep better"),
        "detailed_need": {"detailed_need": "sleep better after a night at work"},
    }

    result = write_with_h2memory(history, answers)

    assert result.prompt_fields("detailed_need", "stated_need") == ["sleep better"]
    assert result.prompt_fields("detailed_need", "recent_situations") == ["worked at night"]
    assert result.prompt_fields("detailed_need", "overall_background") == ["health: sleeps badly"]
    [topic] = result.memory.topics
    assert topic.stated == "sleep better"
    assert topic.need == "sleep better after a night at work"


def outline_nights_or_days(prompt: str, n: int) -> dict[str, Any]:
    """Answer that a dialogue is about better nights if it names nights, and else better days."""
    names_nights = "nights" in prompt_field(prompt, "conversation")
    return topics_answer("better nights" if names_nights else "better days")


def test_a_need_is_refined_with_what_was_known_when_its_dialogue_was_held(
    write_with_h2memory: Write,
) -> None:
    """After the first dialogue, the logs L2 change what is known of the user's health.

    The need of that dialogue is refined with what was known before.
    """
    history = History(
        id="ann",
        items=(
            phone_logs("came home at six", logs_id="L1"),
            dialogue("What about my nights?", dialogue_id="D1"),
            phone_logs("went to bed at ten", logs_id="L2"),
            dialogue("What about my days?", dialogue_id="D2"),
        ),
    )
    answers = {
        "found_situation": situation_answer("some situation", "health"),
        "updating_aspects": in_turn(
            background_answer(health="sleeps badly"), background_answer(health="sleeps well")
        ),
        "outlines": outline_nights_or_days,
    }

    result = write_with_h2memory(history, answers)

    needs = result.prompt_fields("detailed_need", "stated_need")
    backgrounds = result.prompt_fields("detailed_need", "overall_background")
    assert dict(zip(needs, backgrounds, strict=True)) == {
        "better nights": "health: sleeps badly",
        "better days": "health: sleeps well",
    }


def test_all_logs_before_a_dialogue_belong_to_it_and_a_dialogue_right_after_has_none(
    write_with_h2memory: Write,
) -> None:
    """`own` are the logs that belong to the dialogue of a topic."""
    history = History(
        id="ann",
        items=(
            phone_logs("came home at six", logs_id="L1"),
            phone_logs("went to bed at ten", logs_id="L2"),
            dialogue("How can I sleep better?", dialogue_id="D1"),
            dialogue("What is there to eat?", dialogue_id="D2"),
        ),
    )

    memory = write_with_h2memory(history, answers={"outlines": topics_answer("some need")}).memory

    logs_by_dialogue = {topic.dialogue: topic.own for topic in memory.topics}
    assert logs_by_dialogue == {"D1": ("L1", "L2"), "D2": ()}


def test_the_current_situations_come_from_all_logs_before_the_last_dialogues(
    write_with_h2memory: Write,
) -> None:
    """No logs have come since the dialogues, so those right before them are still current."""
    history = History(
        id="ann",
        items=(
            phone_logs("came home at six", logs_id="L1"),
            phone_logs("went to bed at ten", logs_id="L2"),
            dialogue("How can I sleep better?", dialogue_id="D1"),
            dialogue("What is there to eat?", dialogue_id="D2"),
        ),
    )

    memory = write_with_h2memory(history).memory

    assert [situation.batch for situation in memory.current_situations] == ["L1", "L2"]


def test_a_need_of_a_dialogue_without_logs_stays_as_it_was_stated(
    write_with_h2memory: Write,
) -> None:
    """Needs are refined with what the logs before their dialogue tell of the user."""
    history = History(id="ann", items=(dialogue("How can I sleep better?"),))
    answers = {
        "outlines": topics_answer("sleep better"),
        "detailed_need": {"detailed_need": "sleep better after a night at work"},
    }

    memory = write_with_h2memory(history, answers).memory

    assert [topic.need for topic in memory.topics] == ["sleep better"]


def test_profiles_and_empty_items_are_not_written(write_with_h2memory: Write) -> None:
    """H2Memory reads logs and dialogues alone, and asks no model about a text without words."""
    logs, dialogue = logs_and_dialogues(months=1).items
    profile = Profile(id="p", turns=(Turn(id="p:1", speaker="profile", text="Ann, nurse"),))
    empty_logs = Logs(id="e1")
    blank_dialogue = Session(id="e2", turns=(Turn(id="e2:1", speaker="user", text=" "),))

    plain = write_with_h2memory(History(id="x", items=(logs, dialogue)))
    all_items = (profile, logs, dialogue, empty_logs, blank_dialogue)
    with_other_items = write_with_h2memory(History(id="y", items=all_items))

    # No prompt shows the profile, and the memory is the same.
    assert "nurse" not in str(with_other_items.prompts)
    assert with_other_items.memory.situations == plain.memory.situations
    assert with_other_items.memory.topics == plain.memory.topics


def test_behavior_is_read_as_logs(write_with_h2memory: Write) -> None:
    """Records of behaviour say what a user did, just as logs do."""
    logs, dialogue = logs_and_dialogues(months=1).items
    behavior = Behavior(id="b", turns=logs.turns)

    from_logs = write_with_h2memory(History(id="x", items=(logs, dialogue))).memory
    from_behavior = write_with_h2memory(History(id="z", items=(behavior, dialogue))).memory

    texts = [situation.text for situation in from_logs.situations]
    assert texts
    assert [situation.text for situation in from_behavior.situations] == texts


def test_needs_are_refined_while_the_background_takes_in_the_next_logs(
    write_with_h2memory: Write,
) -> None:
    """The two needs of D1 and the update of the background with the logs L2 are asked together.

    The model answers these three calls only when all of them are there. If one was asked after the
    others, all would fail, and no need would be refined.
    """
    three_calls = threading.Barrier(3)

    def update_background(prompt: str, n: int) -> dict[str, Any]:
        # The first update, with the logs L1, comes before any dialogue.
        if n > 1:
            three_calls.wait(timeout=20)
        return background_answer(health="sleeps badly")

    def refine_need(prompt: str, n: int) -> dict[str, Any]:
        three_calls.wait(timeout=20)
        return {"detailed_need": "a refined need"}

    first_logs, first_dialogue, second_logs, _ = logs_and_dialogues(months=2).items
    memory = write_with_h2memory(
        History(id="ann", items=(first_logs, first_dialogue, second_logs)),
        answers={
            "outlines": topics_answer("one need", "another need"),
            "updating_aspects": update_background,
            "detailed_need": refine_need,
        },
    ).memory

    assert [topic.need for topic in memory.topics] == ["a refined need", "a refined need"]


# Links between logs.
#
# The model is shown some logs, and says for each which earlier logs have caused it, or which it
# follows. Its claims may be wrong: such links are dropped. A link of both kinds counts as a cause.


def link(later: str, kind: str, earlier: str) -> Link:
    """Return the link from a log to an earlier one, which has caused it or which it follows."""
    return Link.model_validate({"later": later, "kind": kind, "earlier": earlier})


@pytest.mark.parametrize(
    ("claim", "links"),
    [
        pytest.param(
            LogLinks(log_id="l4", caused_by=["l3"], follows=["l2"]),
            [link("l4", "follows", "l2"), link("l4", "caused_by", "l3")],
            id="both kinds",
        ),
        pytest.param(
            LogLinks(log_id="l4", caused_by=["l3"], follows=["l3"]),
            [link("l4", "caused_by", "l3")],
            id="caused_by wins",
        ),
        pytest.param(LogLinks(log_id="l4", caused_by=["l5"]), [], id="to a later log"),
        pytest.param(LogLinks(log_id="l4", caused_by=["l1"]), [], id="to a log not shown"),
        pytest.param(LogLinks(log_id="l3", caused_by=["l2"]), [], id="of a log not asked about"),
        pytest.param(LogLinks(log_id="x9", caused_by=["l2", "l3"]), [], id="of an unknown log"),
    ],
)
def test_links_that_cannot_be_are_left_out(claim: LogLinks, links: list[Link]) -> None:
    """A prompt shows the logs l2 to l5, and asks for the links of the last two: l4 and l5."""
    shown_ids = ["l2", "l3", "l4", "l5"]
    position_of_l4 = 2

    assert valid_links(shown_ids, first=position_of_l4, claims=[claim]) == links


def test_two_logs_are_in_one_group_if_links_lead_from_one_to_the_other() -> None:
    """Links lead from l1 over l3 to l4, and from l2 to l5. The log l6 has no link."""
    log_ids = ["l1", "l2", "l3", "l4", "l5", "l6"]
    logs = [Turn(id=log_id, speaker="log") for log_id in log_ids]
    l1_to_l3 = link("l3", "follows", "l1")
    l2_to_l5 = link("l5", "follows", "l2")
    l3_to_l4 = link("l4", "follows", "l3")

    subgraphs = connected_subgraphs(logs, [l1_to_l3, l2_to_l5, l3_to_l4])

    assert [[log.id for log in subgraph.logs] for subgraph in subgraphs] == [
        ["l1", "l3", "l4"],
        ["l2", "l5"],
        ["l6"],
    ]
    assert [list(subgraph.links) for subgraph in subgraphs] == [
        [l1_to_l3, l3_to_l4],
        [l2_to_l5],
        [],
    ]


# Replies of the model.


@pytest.mark.parametrize(
    ("aspects", "expected"),
    [
        (["Work", " LEISURE "], ["work", "leisure"]),
        ("family, work", ["work", "family"]),
        (["健康", "money", "工作", "work"], ["work", "health"]),
        (None, []),
    ],
)
def test_aspects_are_read_in_any_form_that_the_prompts_allow(
    aspects: Any, expected: list[str]
) -> None:
    """The aspects are work, health, family and leisure, in this order. Others are left out.

    健康 is Chinese for health, and 工作 for work.
    """
    situation = prompts.DrawnSituation.model_validate({"situation": "x", "aspects": aspects})

    assert situation.aspects == expected


@pytest.mark.parametrize(
    ("turn_span", "expected"),
    [
        ("D1:1 - D1:4", ["D1:1", "D1:4"]),
        ({"start": "D1:1", "end": 4}, ["D1:1", "4"]),
        (None, []),
    ],
)
def test_turn_spans_are_read_in_any_form_that_the_prompts_allow(
    turn_span: Any, expected: list[str]
) -> None:
    """The span of a topic is its first and its last turn."""
    outline = prompts.DraftOutline.model_validate({"requirement": "x", "turn_span": turn_span})

    assert outline.turn_span == expected


@pytest.mark.parametrize(
    ("feedback_type", "expected"),
    [
        ("positive", "pos"),
        (" Neg", "neg"),
        (None, "others"),
    ],
)
def test_feedback_is_read_in_any_form_that_the_prompts_allow(
    feedback_type: Any, expected: str
) -> None:
    """Feedback says whether the user liked or rejected a solution, or neither."""
    solution = prompts.ProposedSolution.model_validate(
        {"solution": "x", "feedback_type": feedback_type}
    )

    assert solution.feedback_type == expected


@pytest.mark.parametrize(
    ("starts", "spans"),
    # A start is the number of the first turn that the model names for a topic. A span is the
    # numbers of the first and the last turn that the topic gets.
    [
        pytest.param([1, 5], [(1, 4), (5, 8)], id="as asked for"),
        pytest.param([2, 5], [(1, 4), (5, 8)], id="the first begins late"),
        pytest.param([None, 4, None], [(1, 3), (4, 8), (4, 8)], id="not named"),
        pytest.param([5, 1], [(1, 8), (1, 8)], id="wrong order"),
        pytest.param([8, 8, 8], [(1, 7), (8, 8), (8, 8)], id="all begin with the last turn"),
        pytest.param([], [], id="no topic"),
    ],
)
def test_topics_cover_the_dialogue_by_where_they_begin(
    starts: list[int | None], spans: list[tuple[int, int]]
) -> None:
    """Models leave gaps between topics, so a topic is taken to end where the next one begins.

    The dialogue has the eight turns t1 to t8.
    """
    turn_ids = ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"]
    named_turns = [[] if start is None else [f"t{start}"] for start in starts]

    topics = turns_of_topics(named_turns, turn_ids)

    first_and_last_turns = [(topic[0], topic[-1]) for topic in topics]
    assert first_and_last_turns == [(f"t{first}", f"t{last}") for first, last in spans]


def test_a_topic_begins_with_the_earliest_turn_that_the_model_names_for_it() -> None:
    """Unknown turns, here "x", and the order of turns do not matter."""
    turn_ids = ["t1", "t2", "t3", "t4"]

    topics = turns_of_topics([["t2", "t1"], ["x", "t4", "t3"]], turn_ids)

    assert topics == [("t1", "t2"), ("t3", "t4")]


# Clusters of needs, and the principles that are made of them.


@pytest.mark.parametrize(
    # A cluster is a list of positions of rows.
    ("rows", "wanted_clusters", "clusters"),
    [
        pytest.param([], 8, [], id="no rows"),
        pytest.param([[0, 0], [5, 5], [9, 0]], 8, [[0], [1], [2]], id="few rows"),
        pytest.param(
            [[0, 0], [5, 5], [0, 0], [5, 5]], 8, [[0, 2], [1, 3]], id="two different rows"
        ),
        pytest.param([[1, 1], [1, 1], [1, 1], [1, 1]], 3, [[0, 1, 2, 3]], id="all alike"),
        pytest.param(
            [[0, 0], [9, 9], [0, 1], [9, 8], [1, 0]], 2, [[0, 2, 4], [1, 3]], id="two heaps"
        ),
    ],
)
def test_there_are_no_more_clusters_than_different_rows(
    rows: list[list[int]], wanted_clusters: int, clusters: list[list[int]]
) -> None:
    """A row is the vector of a need. Equal rows make one cluster, however many are wanted."""
    vectors = np.array(rows, dtype=np.float32)

    assert cluster_rows(vectors, wanted_clusters, seed=0) == clusters


def test_a_later_need_joins_the_nearest_centre_which_moves_before_the_next_need_joins() -> None:
    """Needs are vectors, here numbers on a line. A centre is the mean of the members of a cluster.

    The first need, 4, joins the centre 0, which moves to 2. The second need, 5, is nearer to 2 than
    to 9, the other centre.
    """
    centres = [
        Centre(mean=np.array([0.0]), size=1),
        Centre(mean=np.array([9.0]), size=1),
    ]
    later_needs = np.array([[4], [5]])

    assert nearest_centres(later_needs, centres) == [0, 0]


def test_a_centre_moves_the_less_the_more_members_it_has() -> None:
    """Needs are vectors, here numbers on a line. A centre is the mean of the members of a cluster.

    The first need, 4, joins the centre 0, which has three members and moves to 1, not to 2. So the
    second need, 5.1, is nearer to 9, the other centre.
    """
    centres = [
        Centre(mean=np.array([0.0]), size=3),
        Centre(mean=np.array([9.0]), size=1),
    ]
    later_needs = np.array([[4], [5.1]])

    assert nearest_centres(later_needs, centres) == [0, 1]


# The model is asked to name the type of the needs of a cluster, and the preference that they share.
# When another need joins the cluster, it is asked for a verdict: whether to adjust the type, and
# whether to adjust the preference.

WITHOUT_LOGS = {"use_situations": False, "use_background": False}


@pytest.fixture
def write_dialogues(write_with_h2memory: Write) -> Write:
    """Return a function that writes the dialogues of some months without their logs.

    `write_dialogues(months=6, answers={"general_need": "no"}, clusters=2)`: the answers replace
    those of the script, and the rest are settings of H2Memory.
    """

    def write(months: int, answers: dict[str, Any] | None = None, **settings: Any) -> WriteResult:
        history = logs_and_dialogues(months=months)
        return write_with_h2memory(history, answers, **WITHOUT_LOGS, **settings)

    return write


CALLS_ABOUT_PRINCIPLES = {
    "general_need": "name a type",
    "general_preference": "name a preference",
    "type_verdict": "verdict on a type",
    "principle_verdict": "verdict on a preference",
}
"""What the model is asked for, by the first output field of the prompt."""


def calls_about_principles(calls: dict[str, int]) -> dict[str, int]:
    """Return how often the model was asked for what: {"name a type": 2}."""
    counts: dict[str, int] = {}
    for output_field, purpose in CALLS_ABOUT_PRINCIPLES.items():
        if calls[output_field]:
            counts[purpose] = calls[output_field]
    return counts


# Each dialogue, one a month, has a need about sleep, t1, t3, ..., and one about food, t2, t4, ...
# For each cluster of needs there is a principle: what the user prefers for such needs. By default
# there are eight clusters, and needs of the last month join the clusters of earlier months.


def clustered_needs(result: WriteResult) -> list[list[str]]:
    """Return the ids of the needs in each cluster."""
    return [list(principle.members) for principle in result.memory.principles]


def test_without_clustering_each_need_has_a_principle_of_its_own(write_dialogues: Write) -> None:
    """Each of two dialogues has two needs."""
    result = write_dialogues(months=2, clusters=2, clustered=False)

    assert clustered_needs(result) == [["t1"], ["t2"], ["t3"], ["t4"]]
    assert [principle.id for principle in result.memory.principles] == ["p1", "p2", "p3", "p4"]


def test_similar_needs_are_clustered(write_dialogues: Write) -> None:
    """Each dialogue has a need about sleep, t1, t3 and t5, and one about food, t2, t4 and t6."""
    result = write_dialogues(months=3, clusters=2)

    assert clustered_needs(result) == [["t1", "t3", "t5"], ["t2", "t4", "t6"]]


def test_needs_of_the_last_month_can_be_clustered_together_with_the_others(
    write_dialogues: Write,
) -> None:
    """With `online_month=False`, no need joins a principle that is named already.

    So the model is asked for no verdict whether to adjust one.
    """
    result = write_dialogues(months=3, clusters=2, online_month=False)

    assert clustered_needs(result) == [["t1", "t3", "t5"], ["t2", "t4", "t6"]]
    assert calls_about_principles(result.calls) == {"name a type": 2, "name a preference": 2}


def test_verdicts_are_asked_for_when_a_need_joins_a_principle(write_dialogues: Write) -> None:
    """A need about sleep and one about food come every month, and make two clusters.

    The clusters are named after three months; then a need of the fourth joins each.
    """
    result = write_dialogues(months=4, clusters=2)

    assert calls_about_principles(result.calls) == {
        "name a type": 2,
        "name a preference": 2,
        "verdict on a type": 2,
        "verdict on a preference": 2,
    }


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        pytest.param({"adjust": "No", "revised": "new text"}, "old text", id="no"),
        pytest.param({"adjust": "YES", "revised": "new text"}, "new text", id="yes"),
        pytest.param({"adjust": True, "revised": " "}, "old text", id="yes without a text"),
        pytest.param(MALFORMED, "old text", id="malformed"),
    ],
)
def test_types_and_preferences_change_only_where_a_verdict_says_so(
    write_dialogues: Write, verdict: Any, expected: str
) -> None:
    """The need of the third month joins the cluster of the first two, and brings the verdicts."""
    answers = {
        "general_need": {"general_need": "old text"},
        "general_preference": {"general_preference": "old text"},
        "type_verdict": {"type_verdict": verdict},
        "principle_verdict": {"principle_verdict": verdict},
    }

    memory = write_dialogues(months=3, answers=answers, clusters=1).memory

    [principle] = memory.principles
    assert principle.need_type == expected
    assert principle.preference == expected


def test_without_a_preference_a_principle_has_only_its_type_of_need(write_dialogues: Write) -> None:
    answers = {
        "outlines": {"outlines": [{"requirement": "sleep in summer", "preference": None}]},
        "general_need": {"general_need": "rest"},
    }

    result = write_dialogues(months=1, answers=answers)

    assert calls_about_principles(result.calls) == {"name a type": 1}
    [principle] = result.memory.principles
    assert principle.text() == "Type of need: rest"


def outline_without_preference_in_d1(prompt: str, n: int) -> dict[str, Any]:
    """Answer with a need for sleep: the user likes tea, but has no preference in D1."""
    is_first_dialogue = "[D1:1]" in prompt_field(prompt, "conversation")
    preference = None if is_first_dialogue else "likes tea"
    return {"outlines": [{"requirement": "sleeping", "preference": preference}]}


def test_the_first_preference_of_a_type_of_need_makes_its_principle(write_dialogues: Write) -> None:
    """The first dialogue gives a type of need without a preference. The second one adds it.

    There is no preference to adjust, so it is named, and no verdict on it is asked for.
    """
    answers = {
        "outlines": outline_without_preference_in_d1,
        "general_preference": {"general_preference": "likes gentle means"},
    }

    result = write_dialogues(months=2, answers=answers, clusters=1)

    assert calls_about_principles(result.calls) == {
        "name a type": 1,
        "verdict on a type": 1,
        "name a preference": 1,
    }
    [principle] = result.memory.principles
    assert principle.preference == "likes gentle means"


def test_a_finalized_memory_takes_in_one_dialogue_after_the_other(scripted: Any) -> None:
    """Finalizing clusters the needs, once a history has ended. More may be written afterwards.

    Each dialogue has a need about sleep and one about food, so it adds one to each cluster. The
    first dialogue names both clusters, and the two others adjust them.
    """
    writer = build("h2memory", embedder=embedder(), clusters=2, **WITHOUT_LOGS).method.writer
    _, dialogue_1, _, dialogue_2, _, dialogue_3 = logs_and_dialogues(months=3).items
    lm = scripted(h2memory_script())
    memory = writer.Memory()
    cluster_sizes: list[list[int]] = []

    with dspy.context(lm=lm):
        for session in (dialogue_1, dialogue_2, dialogue_3):
            memory = write_items(writer, memory, [session])
            memory = finalize_memory(writer, memory)
            cluster_sizes.append([len(principle.members) for principle in memory.principles])

    assert cluster_sizes == [[1, 1], [2, 2], [3, 3]]
    assert calls_about_principles(lm.engine.calls) == {
        "name a type": 2,
        "name a preference": 2,
        "verdict on a type": 2 * 2,
        "verdict on a preference": 2 * 2,
    }


def test_finalizing_a_second_time_changes_nothing(scripted: Any) -> None:
    writer = build("h2memory", embedder=embedder(), clusters=2, **WITHOUT_LOGS).method.writer
    history = logs_and_dialogues(months=2)

    with dspy.context(lm=scripted(h2memory_script())):
        memory = write_items(writer, writer.Memory(), history.items)
        once_finalized = finalize_memory(writer, memory)
        twice_finalized = finalize_memory(writer, once_finalized)

    assert once_finalized.principles
    assert twice_finalized == once_finalized
