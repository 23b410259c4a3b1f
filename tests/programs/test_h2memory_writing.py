"""How H2Memory writes: links, situations, backgrounds, topics, needs and principles.

A history has logs and dialogues: L1, D1, L2, D2, ..., one pair a month. Logs that are linked, e.g.
since one caused the other, make one situation. The background has a sentence for each aspect of
life, which new situations update. A dialogue has topics, each with a need of the user. A need is
refined with what is known from situations and background. Similar needs make a cluster, from which
the model abstracts a type of need and a principle: what the user prefers for such needs.

The scripted model `pal_script` finds two topics in each dialogue, one on sleep and one on food.
Logs of odd months are about health, those of even months about work and family. It links the second
log of each month to the first.
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

from .conftest import Written, pal, pal_script

Write = Callable[..., Written]
"""The fixture `write_with_h2memory`: called with replaced answers, a history and settings."""

MALFORMED = "nonsense"


# Situations and backgrounds.


def test_linked_logs_make_one_situation_and_every_other_log_makes_its_own(
    write_with_h2memory: Write,
) -> None:
    """The logs of a phone say what its user did. A situation sums up logs that belong together.

    The model is asked first which logs are linked. The id "L1:2" is that of the second log of L1.
    """
    logs = Logs(
        id="L1",
        time=datetime(2024, 1, 3),
        turns=(
            Turn(id="L1:1", speaker="log", text="searched for running shoes"),
            Turn(id="L1:2", speaker="log", text="bought running shoes"),
            Turn(id="L1:3", speaker="log", text="booked a table"),
            Turn(id="L1:4", speaker="log", text="called the dentist"),
        ),
    )
    search_caused_purchase = {"log_id": "L1:2", "caused_by": "L1:1", "follows": None}

    memory = write_with_h2memory(
        {"links": {"links": [search_caused_purchase]}}, History(id="ann", items=(logs,))
    ).memory

    shoes, table, dentist = memory.situations
    assert shoes.sources == ("L1:1", "L1:2")
    assert shoes.links == (link("L1:2", "caused_by", "L1:1"),)
    assert table.sources == ("L1:3",)
    assert table.links == ()
    assert dentist.sources == ("L1:4",)
    assert dentist.links == ()


def test_situations_are_numbered_over_all_batches_of_logs(write_with_h2memory: Write) -> None:
    """A batch is an item of logs: here L1 and L2, with three logs each.

    The model links the second log of a batch to the first, so each batch makes two situations.
    """
    memory = write_with_h2memory(history=pal(sessions=2, logs=3)).memory

    batches = {situation.id: situation.batch for situation in memory.situations}
    assert batches == {"s1": "L1", "s2": "L1", "s3": "L2", "s4": "L2"}
    sources = {situation.id: situation.sources for situation in memory.situations}
    assert sources == {
        "s1": ("L1:1", "L1:2"),
        "s2": ("L1:3",),
        "s3": ("L2:1", "L2:2"),
        "s4": ("L2:3",),
    }


@pytest.mark.parametrize(
    ("answered_aspects", "aspects"),
    [
        pytest.param(["family", "WORK"], ("work", "family"), id="a-list-in-any-order-and-spelling"),
        pytest.param("Health", ("health",), id="one-aspect-as-a-text"),
    ],
)
def test_a_situation_has_the_aspects_of_life_that_the_model_names(
    write_with_h2memory: Write, answered_aspects: Any, aspects: tuple[str, ...]
) -> None:
    situation_answer = {"situation": "moved near the office", "aspects": answered_aspects}
    replaced_answers = {
        "found_situation": {"found_situation": situation_answer},
        # The background is no concern of this test.
        "updating_aspects": {"updating_aspects": [], "updating_content": []},
    }

    memory = write_with_h2memory(replaced_answers, sessions=1).memory

    assert memory.situations
    for situation in memory.situations:
        assert situation.text == "moved near the office"
        assert situation.aspects == aspects


def test_the_prompt_for_a_situation_shows_the_links_between_its_logs(
    write_with_h2memory: Write,
) -> None:
    """The script says of each month that its second log was caused by its first."""
    result = write_with_h2memory(sessions=2)

    # The links of each month are asked for at once.
    assert result.calls["links"] == 2
    [prompt] = [text for text in result.texts("found_situation") if "L1:2" in text]
    # The line begins with "[L1:2]" and the date.
    assert "searched thing-1-2 <caused_by L1:1>" in prompt


def background_texts(memory: HeterogeneousMemory) -> dict[str, str]:
    """Return the sentences of the background by aspect of life."""
    return {aspect: background.text for aspect, background in memory.background.items()}


def test_backgrounds_are_updated_session_by_session(write_with_h2memory: Write) -> None:
    result = write_with_h2memory(sessions=4)

    assert background_texts(result.memory) == {
        "work": "known 2+4",
        "health": "known 1+3",
    }
    # Each prompt shows the background before its update.
    backgrounds_before = result.shown("updating_aspects", "background_before")
    assert backgrounds_before[:3] == [
        "work:\nhealth:\nfamily:\nleisure:",
        "work:\nhealth: known 1\nfamily:\nleisure:",
        "work: known 2\nhealth: known 1\nfamily:\nleisure:",
    ]
    # Months 1 and 3 are about health, and each month has three situations.
    health = result.memory.background["health"]
    assert health.situations == ("s1", "s2", "s3", "s7", "s8", "s9")


def test_an_update_of_the_background_shows_the_time_spans(write_with_h2memory: Write) -> None:
    """The prompt shows the first and the last day of the background and of the new situations."""
    # The logs of each month are of its third day.
    result = write_with_h2memory(sessions=4)

    spans_of_background = result.shown("updating_aspects", "span_before")
    assert spans_of_background == [
        "unknown",
        "2024-01-03 to 2024-01-03",
        "2024-01-03 to 2024-02-03",
        "2024-01-03 to 2024-03-03",
    ]
    spans_of_new_situations = result.shown("updating_aspects", "span_since")
    assert spans_of_new_situations[1] == "2024-02-03 to 2024-02-03"


@pytest.mark.parametrize(
    ("reply", "background"),
    [
        pytest.param({"updating_aspects": [], "updating_content": []}, {}, id="nothing"),
        pytest.param(
            {
                "updating_aspects": ["work", "family"],
                "updating_content": [{"aspect": "WORK", "summary": "w"}],
            },
            {"work": "w"},
            id="one aspect without a sentence",
        ),
        pytest.param(
            {
                "updating_aspects": [],
                "updating_content": [{"aspect": "work", "summary": " w "}],
            },
            {"work": "w"},
            id="a sentence alone",
        ),
        pytest.param(
            {
                "updating_aspects": ["work"],
                "updating_content": [{"aspect": "money", "summary": "x"}],
            },
            {},
            id="unknown aspect",
        ),
        pytest.param(MALFORMED, {}, id="malformed"),
    ],
)
def test_an_update_changes_the_aspects_it_has_sentences_for(
    write_with_h2memory: Write, reply: Any, background: dict[str, str]
) -> None:
    """The model names the aspects that change, and a sentence for each. It may forget either."""
    memory = write_with_h2memory({"updating_aspects": reply}, sessions=1).memory

    assert background_texts(memory) == background


# Needs.


def test_a_need_is_refined_with_the_situations_and_the_background_of_its_aspects(
    write_with_h2memory: Write,
) -> None:
    """The script puts the background and the situations behind the need, in angle brackets."""
    memory = write_with_h2memory(sessions=4).memory

    first_topic = memory.topics[0]
    assert first_topic.id == "t1"
    assert first_topic.stated == "sleeping soundly in month 1"
    assert first_topic.need == (
        "sleeping soundly in month 1 "
        "<health: known 1 / situation of L1:1 L1:2 situation of L1:4 situation of L1:3>"
    )


def test_a_need_is_refined_with_what_was_known_when_its_session_was_held(
    write_with_h2memory: Write,
) -> None:
    memory = write_with_h2memory(sessions=4).memory

    # Topics t1 and t2 are of session 1, t3 and t4 of session 2, and so on.
    needs = {topic.id: topic.need for topic in memory.topics}
    # Session 3 is about health, so it has what is known of health up to session 3. Work, of which
    # sessions 2 and 4 tell, does not bear on it.
    food_of_third_session = "cooking vegetables in month 3 <health: known 1+3 / situation of L3"
    assert needs["t6"].startswith(food_of_third_session)
    # Each need is refined with the logs of its own session.
    assert "L2:" in needs["t3"]
    assert "L3:" in needs["t5"]
    assert "L4:" in needs["t7"]


def test_all_logs_before_a_dialogue_belong_to_it_and_a_dialogue_right_after_has_none(
    write_with_h2memory: Write,
) -> None:
    """The history is L1, L2, D1, D2: two months of logs come before both dialogues."""
    first_logs, first_dialogue, second_logs, second_dialogue = pal(sessions=2).items
    items = (first_logs, second_logs, first_dialogue, second_dialogue)

    memory = write_with_h2memory(history=History(id="x", items=items)).memory

    # Each dialogue has two topics. `own` are the logs that belong to their dialogue.
    first, second, third, fourth = memory.topics
    assert first.own == ("L1", "L2")
    assert second.own == ("L1", "L2")
    assert third.own == ()
    assert fourth.own == ()
    # Without logs, a need stays as the dialogue states it.
    assert third.need == third.stated
    current_batches = [situation.batch for situation in memory.current_situations]
    assert current_batches == ["L1", "L1", "L1", "L2", "L2", "L2"]


def test_profiles_and_empty_items_are_not_written(write_with_h2memory: Write) -> None:
    """H2Memory reads logs and dialogues alone, and asks no model about a text without words."""
    logs, dialogue = pal(sessions=1).items
    profile = Profile(id="p", turns=(Turn(id="p:1", speaker="profile", text="Ann, nurse"),))
    empty_logs = Logs(id="e1")
    blank_dialogue = Session(id="e2", turns=(Turn(id="e2:1", speaker="user", text=" "),))

    plain = write_with_h2memory(history=History(id="x", items=(logs, dialogue)))
    all_items = (profile, logs, dialogue, empty_logs, blank_dialogue)
    with_other_items = write_with_h2memory(history=History(id="y", items=all_items))

    # No prompt shows the profile, and the memory is the same.
    assert "nurse" not in str(with_other_items.prompts)
    assert with_other_items.memory.situations == plain.memory.situations
    assert with_other_items.memory.topics == plain.memory.topics


def test_behavior_is_read_as_logs(write_with_h2memory: Write) -> None:
    """Records of behaviour say what a user did, just as logs do."""
    logs, dialogue = pal(sessions=1).items
    behavior = Behavior(id="b", turns=tuple(turn.model_copy() for turn in logs.turns))

    from_logs = write_with_h2memory(history=History(id="x", items=(logs, dialogue))).memory
    from_behavior = write_with_h2memory(history=History(id="z", items=(behavior, dialogue))).memory

    texts = [situation.text for situation in from_logs.situations]
    assert texts
    assert [situation.text for situation in from_behavior.situations] == texts


def test_needs_are_refined_while_the_background_takes_in_the_next_logs(written: Any) -> None:
    """An update of the background and the two needs of the dialogue before it are asked together.

    The model answers these three calls only when all of them are there. If one was asked after the
    others, all would fail, and no need would be refined.
    """
    three_calls = threading.Barrier(3)

    def reply(kind: str, text: str, n: int) -> Any:
        # The first update comes before any dialogue, and the last two needs have no logs after
        # them. Three sessions have six needs.
        is_later_update = kind == "updating_aspects" and n > 1
        is_earlier_need = kind == "detailed_need" and n <= 4
        if is_later_update or is_earlier_need:
            three_calls.wait(timeout=20)
        return pal_script()(kind, text, n)

    program = build("h2memory", embedder=embedder())
    memory = written(program, pal(sessions=3), reply).memory

    assert len(memory.topics) == 6
    for topic in memory.topics:
        # The script puts what is known of the user in angle brackets.
        assert "<" in topic.need


# Links between logs.
#
# The model is shown some logs, and says for each which earlier logs have caused it, or which it
# follows. Its claims may be wrong: such links are dropped. A link of both kinds counts as a cause.

LOG_IDS = [f"l{number}" for number in range(1, 31)]


def link(later: str, kind: str, earlier: str) -> Link:
    """Return the link from a log to an earlier one, which has caused it or which it follows."""
    return Link.model_validate({"later": later, "kind": kind, "earlier": earlier})


@pytest.mark.parametrize(
    ("claim", "links"),
    [
        pytest.param(
            LogLinks(log_id="l21", caused_by=["l20"], follows=["l11"]),
            [link("l21", "follows", "l11"), link("l21", "caused_by", "l20")],
            id="both kinds",
        ),
        pytest.param(
            LogLinks(log_id="l21", caused_by=["l20"], follows=["l20"]),
            [link("l21", "caused_by", "l20")],
            id="caused_by wins",
        ),
        pytest.param(LogLinks(log_id="l21", caused_by=["l22"]), [], id="to a later log"),
        pytest.param(LogLinks(log_id="l21", caused_by=["l10"]), [], id="to a log not shown"),
        pytest.param(LogLinks(log_id="l20", caused_by=["l19"]), [], id="of a log not asked about"),
        pytest.param(LogLinks(log_id="x9", caused_by=["l19", "l18"]), [], id="of an unknown log"),
    ],
)
def test_links_that_cannot_be_are_left_out(claim: LogLinks, links: list[Link]) -> None:
    """A prompt shows the logs l11 to l30, and the model is asked for the links of the last ten."""
    shown_ids = LOG_IDS[10:30]
    position_of_l21 = 10

    assert valid_links(shown_ids, first=position_of_l21, claims=[claim]) == links


def test_two_logs_are_in_one_group_if_links_lead_from_one_to_the_other() -> None:
    """Links lead from l1 over l3 to l4, and from l2 to l5. The log l6 has no link."""
    logs = [Turn(id=log_id, speaker="log") for log_id in LOG_IDS[:6]]
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
    """Models leave gaps between topics, so a topic is taken to end where the next one begins."""
    turn_ids = LOG_IDS[:8]
    named_turns: list[list[str]] = []
    for start in starts:
        # Unknown turns, and the order of turns, do not matter.
        named_turns.append([] if start is None else ["x", "l8", f"l{start}"])

    assert turns_of_topics(named_turns, turn_ids) == [
        tuple(turn_ids[first - 1 : last]) for first, last in spans
    ]


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


def test_a_later_need_joins_the_nearest_centre_which_moves_to_the_mean_of_its_members() -> None:
    # Computed by hand: (0,4) joins the first centre: (2*(0,1) + (0,4)) / 3 = (0,2).
    # (4,5) is then 5 from (0,2) and 5.66 from (8,9). It joins the first as well, which moves to
    # (3*(0,2) + (4,5)) / 4 = (1,2.75). Had the first centre not moved, (4,5) would be 5.66 from
    # both.
    # (8,7) joins the second: ((8,9) + (8,7)) / 2 = (8,8).
    # (5,5) is 4.24 from (8,8) and 4.59 from (1,2.75).
    centres = [
        Centre(mean=np.array([0.0, 1.0]), size=2),
        Centre(mean=np.array([8.0, 9.0]), size=1),
    ]
    later_needs = np.array([[0, 4], [4, 5], [8, 7], [5, 5]])

    positions_of_centres = nearest_centres(later_needs, centres)

    assert positions_of_centres == [0, 0, 1, 1]

    # The centres that were passed in are as before.
    assert centres[0].mean.tolist() == [0.0, 1.0]
    assert centres[1].mean.tolist() == [8.0, 9.0]


def test_a_centre_moves_before_the_next_need_joins() -> None:
    """The needs 4 and 5 are numbers on a line, and so are the centres 0 and 9."""
    centres = [
        Centre(mean=np.array([0.0]), size=1),
        Centre(mean=np.array([9.0]), size=1),
    ]

    # After 4 has joined, the first centre is at 2, which is 3 from 5; the second is 4 from 5.
    # Had the first centre not moved, it would be 5 from 5.
    later_needs = np.array([[4], [5]])
    assert nearest_centres(later_needs, centres) == [0, 0]


WITHOUT_LOGS = {"use_situations": False, "use_background": False}


@pytest.fixture
def write_dialogues(write_with_h2memory: Write) -> Write:
    """Return a function that writes the dialogues of months without their logs.

    `write_dialogues(sessions=6, replacements={"general_need": "no"}, clusters=2)`: the
    replacements are answers of the script, and the rest are settings of H2Memory.
    """

    def write(
        sessions: int, replacements: dict[str, Any] | None = None, **settings: Any
    ) -> Written:
        return write_with_h2memory(replacements, sessions=sessions, **WITHOUT_LOGS, **settings)

    return write


def calls_about_principles(calls: dict[str, int]) -> dict[str, int]:
    """Return the numbers of those calls of the model that make and change principles."""
    kinds = ("general_need", "general_preference", "type_verdict", "principle_verdict")
    return {kind: calls[kind] for kind in kinds if calls[kind]}


@pytest.mark.parametrize(
    ("sessions", "settings", "cluster_sizes", "mixes_sleep_and_food"),
    # Each session has a need about sleep and one about food. By default there are eight clusters,
    # and needs of the last month join the clusters of earlier months. `online_month=False` means
    # that they are clustered together with the others.
    [
        pytest.param(3, {}, [1, 1, 1, 1, 1, 1], False, id="fewer topics than clusters"),
        pytest.param(3, {"clusters": 2}, [3, 3], False, id="sleep and food"),
        pytest.param(
            6, {"clusters": 2, "online_month": False}, [6, 6], False, id="the last month as well"
        ),
        pytest.param(6, {"clusters": 1}, [12], True, id="one cluster"),
        pytest.param(
            3,
            {"clusters": 2, "clustered": False},
            [1, 1, 1, 1, 1, 1],
            False,
            id="switched off, so that each topic has its principle",
        ),
    ],
)
def test_similar_needs_are_clustered(
    write_dialogues: Write,
    sessions: int,
    settings: dict[str, Any],
    cluster_sizes: list[int],
    mixes_sleep_and_food: bool,
) -> None:
    memory = write_dialogues(sessions, **settings).memory

    # There is a principle for each cluster.
    principles = memory.principles
    assert [len(principle.members) for principle in principles] == cluster_sizes
    expected_ids = [f"p{number}" for number in range(1, len(cluster_sizes) + 1)]
    assert [principle.id for principle in principles] == expected_ids

    # Each topic is in one cluster.
    clustered_ids = [topic_id for principle in principles for topic_id in principle.members]
    assert sorted(clustered_ids) == sorted(topic.id for topic in memory.topics)

    # All needs of a cluster are "sleeping ..." or all are "cooking ...".
    needs = {topic.id: topic.need for topic in memory.topics}
    for principle in principles:
        first_words = {needs[topic_id].split()[0] for topic_id in principle.members}
        expected_words = 2 if mixes_sleep_and_food else 1
        assert len(first_words) == expected_words


def test_topics_of_the_last_month_join_principles_of_the_months_before(
    write_dialogues: Write,
) -> None:
    """A principle is asked about again when a need joins: does its type fit, and its preference?

    Such a question is a verdict. There are two clusters, sleep and food, and each gets one need
    more.
    """
    # The needs of three months are clustered, and the two of the fourth join them.
    result = write_dialogues(sessions=4, clusters=2)

    assert calls_about_principles(result.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 2,
        "principle_verdict": 2,
    }
    assert result.memory.clustered == 6
    first_principle = result.memory.principles[0]
    assert first_principle.members == ("t1", "t3", "t5", "t7")
    # The type was made of three needs. The script changes preferences, but no types.
    assert first_principle.need_type == "type(3)"
    new_preference = "sleeping soundly 3) & gentle sleeping soundly 4"
    assert first_principle.preference.endswith(new_preference)


@pytest.mark.parametrize(
    ("type_reply", "principle_reply", "expected"),
    [
        pytest.param(
            {"type_verdict": {"adjust": "No", "revised": "new"}},
            {"principle_verdict": {"adjust": "No", "revised": "new"}},
            "old",
            id="no",
        ),
        pytest.param(
            {"type_verdict": {"adjust": "YES", "revised": "new"}},
            {"principle_verdict": {"adjust": "YES", "revised": "new"}},
            "new",
            id="yes",
        ),
        pytest.param(
            {"type_verdict": {"adjust": True, "revised": " "}},
            {"principle_verdict": {"adjust": True, "revised": " "}},
            "old",
            id="yes without a text",
        ),
        pytest.param(MALFORMED, MALFORMED, "old", id="malformed"),
    ],
)
def test_types_and_principles_change_only_where_a_verdict_says_so(
    write_dialogues: Write, type_reply: Any, principle_reply: Any, expected: str
) -> None:
    """A verdict says whether to adjust the old text, and gives a revised one.

    The needs of the third month join the two clusters of earlier months, and each is a reason to
    ask for verdicts.
    """
    replacements = {
        "general_need": {"general_need": "old"},
        "general_preference": {"general_preference": "old"},
        "type_verdict": type_reply,
        "principle_verdict": principle_reply,
    }

    memory = write_dialogues(sessions=3, replacements=replacements, clusters=2).memory

    assert memory.principles
    for principle in memory.principles:
        assert principle.need_type == expected
        assert principle.preference == expected


def outlines_without_first_preference(text: str, n: int) -> dict[str, Any]:
    """Find one need in each dialogue, with a preference in all but the first dialogue."""
    preference = None if "D1:" in text else "gentle"
    return {"outlines": [{"requirement": "sleeping", "preference": preference}]}


def test_without_a_preference_a_principle_has_only_its_type_of_need(write_dialogues: Write) -> None:
    replacements = {"outlines": outlines_without_first_preference}

    result = write_dialogues(sessions=1, replacements=replacements)

    assert calls_about_principles(result.calls) == {"general_need": 1}
    assert result.memory.principles[0].text() == "Type of need: type(1)"


def test_the_first_preference_of_a_type_of_need_makes_its_principle(write_dialogues: Write) -> None:
    """The first dialogue gives a type of need without a preference. The second one adds it."""
    replacements = {"outlines": outlines_without_first_preference}

    result = write_dialogues(sessions=2, replacements=replacements, clusters=1)

    assert calls_about_principles(result.calls) == {
        "general_need": 1,
        "type_verdict": 1,
        "general_preference": 1,
    }
    assert result.memory.principles[0].preference == "principle(gentle)"


def test_a_finalized_memory_takes_in_one_dialogue_after_the_other(scripted: Any) -> None:
    """Finalizing clusters the needs, once a history has ended. More may be written afterwards."""
    writer = build("h2memory", embedder=embedder(), clusters=2, **WITHOUT_LOGS).method.writer
    dialogues = [item for item in pal(sessions=3, logs=0) if isinstance(item, Session)]
    lm = scripted(pal_script())
    memory = writer.Memory()
    cluster_sizes: list[list[int]] = []

    with dspy.context(lm=lm):
        for dialogue in dialogues:
            memory = finalize_memory(writer, write_items(writer, memory, [dialogue]))
            cluster_sizes.append([len(principle.members) for principle in memory.principles])
            # Finalizing a second time changes nothing.
            assert finalize_memory(writer, memory) == memory

    # Each dialogue adds one need to each of the two clusters.
    assert cluster_sizes == [[1, 1], [2, 2], [3, 3]]
    assert calls_about_principles(lm.engine.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 4,
        "principle_verdict": 4,
    }
