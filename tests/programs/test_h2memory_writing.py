"""How H2Memory writes: links, situations, backgrounds, topics, needs and principles.

A history has logs and dialogues: L1, D1, L2, D2, ..., one pair a month. Logs that are linked, e.g.
since one caused the other, make one situation. The background has a sentence for each aspect of
life, which new situations update. A dialogue has topics, each with a need of the user. A need is
refined with what is known from situations and background. Similar needs make a cluster, from which
the model abstracts a type of need and a principle: what the user prefers for such needs.

The scripted model `h2memory_script` finds two topics in each dialogue, one on sleep and one on
food. Logs of odd months are about health, those of even months about work and family. It links the
second log of each month to the first.
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

from .conftest import WriteResult, h2memory_script, logs_and_dialogues

Write = Callable[..., WriteResult]
"""The fixture `write_with_h2memory`: called with a history, replaced answers and settings."""

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
        History(id="ann", items=(logs,)),
        answers={"links": {"links": [search_caused_purchase]}},
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

    The scripted model links the second log of a batch to the first. Linked logs make one situation,
    so each batch makes two.
    """
    history = logs_and_dialogues(months=2, logs=3)

    memory = write_with_h2memory(history).memory

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
    """A situation sums up what a user did; its aspects are parts of life, such as health."""
    situation = {"situation": "moved near the office", "aspects": answered_aspects}
    answers = {
        "found_situation": {"found_situation": situation},
        # The background is no concern of this test.
        "updating_aspects": {"updating_aspects": [], "updating_content": []},
    }

    memory = write_with_h2memory(logs_and_dialogues(months=1), answers).memory

    assert memory.situations
    for situation in memory.situations:
        assert situation.text == "moved near the office"
        assert situation.aspects == aspects


def test_the_prompt_for_a_situation_shows_the_links_between_its_logs(
    write_with_h2memory: Write,
) -> None:
    """Logs say what a user did on a phone, here "searched thing-1-2" as the second log of month 1.

    The model is asked first which logs are linked, and then to sum up linked logs as a situation.
    """
    second_caused_by_first = {"log_id": "L1:2", "caused_by": "L1:1", "follows": None}

    result = write_with_h2memory(
        logs_and_dialogues(months=1), answers={"links": {"links": [second_caused_by_first]}}
    )

    [prompt] = [text for text in result.prompts_of("found_situation") if "L1:2" in text]
    assert "searched thing-1-2 <caused_by L1:1>" in prompt


def test_the_links_of_a_month_are_asked_for_at_once(write_with_h2memory: Write) -> None:
    """One call finds out which of the four logs of a month are linked, e.g. by cause."""
    result = write_with_h2memory(logs_and_dialogues(months=2, logs=4))

    assert result.calls["links"] == 2


def background_texts(memory: HeterogeneousMemory) -> dict[str, str]:
    """Return the sentences of the background by aspect of life."""
    return {aspect: background.text for aspect, background in memory.background.items()}


def test_backgrounds_are_updated_month_by_month(write_with_h2memory: Write) -> None:
    """The background is what is known of each aspect of the user's life, such as work.

    The scripted model adds the number of the month to what is known: of health in months 1 and 3,
    and of work in months 2 and 4.
    """
    result = write_with_h2memory(logs_and_dialogues(months=4))

    assert background_texts(result.memory) == {"work": "known 2+4", "health": "known 1+3"}
    # Each prompt shows the background before its update.
    backgrounds_before = result.prompt_fields("updating_aspects", "background_before")
    assert backgrounds_before[:3] == [
        "work:\nhealth:\nfamily:\nleisure:",
        "work:\nhealth: known 1\nfamily:\nleisure:",
        "work: known 2\nhealth: known 1\nfamily:\nleisure:",
    ]


def test_a_background_rests_on_the_situations_that_it_was_written_from(
    write_with_h2memory: Write,
) -> None:
    """The logs of month 1 make the situations s1 and s2, those of month 2 make s3 and s4.

    The scripted model says that months 1 and 3 are about health, and month 2 is about work.
    """
    memory = write_with_h2memory(logs_and_dialogues(months=3, logs=3)).memory

    assert memory.background["health"].situations == ("s1", "s2", "s5", "s6")
    assert memory.background["work"].situations == ("s3", "s4")


def test_an_update_of_the_background_shows_the_time_spans(write_with_h2memory: Write) -> None:
    """The prompt shows the first and the last day of the background and of the new situations."""
    # The logs of each month are of its third day.
    result = write_with_h2memory(logs_and_dialogues(months=3))

    spans_of_background = result.prompt_fields("updating_aspects", "span_before")
    assert spans_of_background == [
        "unknown",
        "2024-01-03 to 2024-01-03",
        "2024-01-03 to 2024-02-03",
    ]
    spans_of_new_situations = result.prompt_fields("updating_aspects", "span_since")
    assert spans_of_new_situations == [
        "2024-01-03 to 2024-01-03",
        "2024-02-03 to 2024-02-03",
        "2024-03-03 to 2024-03-03",
    ]


@pytest.mark.parametrize(
    ("answer", "background"),
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
    write_with_h2memory: Write, answer: Any, background: dict[str, str]
) -> None:
    """The background has a sentence for each aspect of the user's life, such as work.

    The model names the aspects that change, and a sentence for each. It may forget either.
    """
    history = logs_and_dialogues(months=1)

    memory = write_with_h2memory(history, answers={"updating_aspects": answer}).memory

    assert background_texts(memory) == background


# Needs.


def test_a_need_is_refined_with_the_situations_and_the_background_of_its_aspects(
    write_with_h2memory: Write,
) -> None:
    """A dialogue tells what the user needs, and the logs before it tell more of the user.

    The scripted model puts what is known behind the need, in angle brackets: the background, and
    the situations.
    """
    memory = write_with_h2memory(logs_and_dialogues(months=1, logs=3)).memory

    first_topic = memory.topics[0]
    assert first_topic.stated == "sleeping soundly in month 1"
    assert first_topic.need == (
        "sleeping soundly in month 1 <health: known 1 / situation of L1:1 L1:2 situation of L1:3>"
    )


def test_a_need_is_refined_with_what_was_known_when_its_dialogue_was_held(
    write_with_h2memory: Write,
) -> None:
    """A dialogue has two needs: t1 and t2 are those of month 1, t3 and t4 those of month 2.

    The scripted model puts what is known behind a need: months 1 and 3 tell of health, months 2 and
    4 of work.
    """
    memory = write_with_h2memory(logs_and_dialogues(months=4)).memory

    needs = {topic.id: topic.need for topic in memory.topics}
    assert "<health: known 1 / situation of L1" in needs["t1"]
    assert "<work: known 2 / situation of L2" in needs["t3"]
    assert "<health: known 1+3 / situation of L3" in needs["t5"]
    assert "<work: known 2+4 / situation of L4" in needs["t7"]


def test_all_logs_before_a_dialogue_belong_to_it_and_a_dialogue_right_after_has_none(
    write_with_h2memory: Write,
) -> None:
    """The history is L1, L2, D1, D2: two months of logs come before both dialogues.

    The scripted model finds two topics in each dialogue.
    """
    first_logs, first_dialogue, second_logs, second_dialogue = logs_and_dialogues(months=2).items
    items = (first_logs, second_logs, first_dialogue, second_dialogue)

    memory = write_with_h2memory(History(id="x", items=items)).memory

    # `own` are the logs that belong to the dialogue of a topic.
    logs_of_topics = [(topic.dialogue, topic.own) for topic in memory.topics]
    assert logs_of_topics == [("D1", ("L1", "L2"))] * 2 + [("D2", ())] * 2
    current_batches = [situation.batch for situation in memory.current_situations]
    assert current_batches == ["L1", "L1", "L1", "L2", "L2", "L2"]


def test_a_need_of_a_dialogue_without_logs_stays_as_it_was_stated(
    write_with_h2memory: Write,
) -> None:
    """Needs are refined with what the logs before their dialogue tell of the user."""
    _logs, dialogue = logs_and_dialogues(months=1).items

    memory = write_with_h2memory(History(id="x", items=(dialogue,))).memory

    assert [topic.need for topic in memory.topics] == [
        "sleeping soundly in month 1",
        "cooking vegetables in month 1",
    ]


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


def test_needs_are_refined_while_the_background_takes_in_the_next_logs(write_memory: Any) -> None:
    """An update of the background and the two needs of the dialogue before it are asked together.

    The model answers these three calls only when all of them are there. If one was asked after the
    others, all would fail, and no need would be refined.
    """
    three_calls = threading.Barrier(3)

    def reply(kind: str, text: str, n: int) -> Any:
        # The first update comes before any dialogue, and the last two needs have no logs after
        # them. Three months have six needs.
        is_later_update = kind == "updating_aspects" and n > 1
        is_earlier_need = kind == "detailed_need" and n <= 4
        if is_later_update or is_earlier_need:
            three_calls.wait(timeout=20)
        return h2memory_script()(kind, text, n)

    program = build("h2memory", embedder=embedder())
    memory = write_memory(program, logs_and_dialogues(months=3), reply).memory

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


def test_a_later_need_joins_the_nearest_centre() -> None:
    """Needs are vectors, and the centre of a cluster is the mean of its members."""
    centres = [
        Centre(mean=np.array([0.0, 1.0]), size=1),
        Centre(mean=np.array([8.0, 9.0]), size=1),
    ]
    later_needs = np.array([[0, 2], [8, 7]])

    assert nearest_centres(later_needs, centres) == [0, 1]
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


def test_a_centre_moves_the_less_the_more_members_it_has() -> None:
    """It is the mean of its members, here of numbers on a line."""
    centres = [
        Centre(mean=np.array([0.0]), size=3),
        Centre(mean=np.array([9.0]), size=1),
    ]

    # After 4 has joined, the first centre is at (3 * 0 + 4) / 4 = 1, which is 4.1 from 5.1; the
    # second is 3.9 from it. At the middle of 0 and 4 the first centre would be nearer.
    later_needs = np.array([[4], [5.1]])
    assert nearest_centres(later_needs, centres) == [0, 1]


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


def calls_about_principles(calls: dict[str, int]) -> dict[str, int]:
    """Return the numbers of those calls of the model that make and change principles."""
    kinds = ("general_need", "general_preference", "type_verdict", "principle_verdict")
    return {kind: calls[kind] for kind in kinds if calls[kind]}


@pytest.mark.parametrize(
    ("months", "settings", "clusters"),
    # By default there are eight clusters, and needs of the last month join the clusters of earlier
    # months. `online_month=False` means that they are clustered together with the others.
    [
        pytest.param(2, {}, [["t1"], ["t2"], ["t3"], ["t4"]], id="fewer topics than clusters"),
        pytest.param(
            3,
            {"clusters": 2},
            [["t1", "t3", "t5"], ["t2", "t4", "t6"]],
            id="sleep and food",
        ),
        pytest.param(
            3,
            {"clusters": 2, "online_month": False},
            [["t1", "t3", "t5"], ["t2", "t4", "t6"]],
            id="the last month as well",
        ),
        pytest.param(3, {"clusters": 1}, [["t1", "t2", "t3", "t4", "t5", "t6"]], id="one cluster"),
        pytest.param(
            2,
            {"clusters": 2, "clustered": False},
            [["t1"], ["t2"], ["t3"], ["t4"]],
            id="switched off, so that each topic has its principle",
        ),
    ],
)
def test_similar_needs_are_clustered(
    write_dialogues: Write,
    months: int,
    settings: dict[str, Any],
    clusters: list[list[str]],
) -> None:
    """Each dialogue, one a month, has a need about sleep, t1, t3, ..., and one about food, t2, ...

    For each cluster of needs there is a principle: what the user prefers for such needs.
    """
    memory = write_dialogues(months, **settings).memory

    assert [list(principle.members) for principle in memory.principles] == clusters
    principle_ids = [principle.id for principle in memory.principles]
    assert principle_ids == [f"p{number}" for number in range(1, len(clusters) + 1)]


def test_topics_of_the_last_month_join_principles_of_the_months_before(
    write_dialogues: Write,
) -> None:
    """Needs are clustered by what they are about, here sleep and food, with a principle for each.

    Each month has one need of both: t1 and t2, t3 and t4, ... The needs of three months are
    clustered, and those of the fourth, t7 and t8, join the clusters.
    """
    result = write_dialogues(months=4, clusters=2)

    about_sleep, about_food = result.memory.principles
    assert about_sleep.members == ("t1", "t3", "t5", "t7")
    assert about_food.members == ("t2", "t4", "t6", "t8")
    assert result.memory.clustered == 6


def test_a_principle_is_judged_anew_when_a_need_joins_it(write_dialogues: Write) -> None:
    """A verdict says whether a type of need still fits, or what the user prefers for it.

    Two clusters are made of the needs of three months, and one need of the fourth joins each. The
    scripted model leaves types as they are, and adds to preferences.
    """
    result = write_dialogues(months=4, clusters=2)

    assert calls_about_principles(result.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 2,
        "principle_verdict": 2,
    }
    about_sleep = result.memory.principles[0]
    # The type was made of three needs.
    assert about_sleep.need_type == "type(3)"
    new_preference = "sleeping soundly 3) & gentle sleeping soundly 4"
    assert about_sleep.preference.endswith(new_preference)


@pytest.mark.parametrize(
    ("type_verdict", "principle_verdict", "expected"),
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
    write_dialogues: Write, type_verdict: Any, principle_verdict: Any, expected: str
) -> None:
    """A principle says what the user prefers for a type of need.

    When another need of the type comes, in the third month, the model is asked for verdicts:
    whether to adjust the type and the preference, and to which text.
    """
    answers = {
        "general_need": {"general_need": "old"},
        "general_preference": {"general_preference": "old"},
        "type_verdict": type_verdict,
        "principle_verdict": principle_verdict,
    }

    memory = write_dialogues(months=3, answers=answers, clusters=2).memory

    assert memory.principles
    for principle in memory.principles:
        assert principle.need_type == expected
        assert principle.preference == expected


def test_without_a_preference_a_principle_has_only_its_type_of_need(write_dialogues: Write) -> None:
    """A principle says what the user prefers for a type of need."""
    need_alone = {"requirement": "sleeping", "preference": None}

    result = write_dialogues(months=1, answers={"outlines": {"outlines": [need_alone]}})

    assert calls_about_principles(result.calls) == {"general_need": 1}
    [principle] = result.memory.principles
    assert principle.text() == "Type of need: type(1)"


def test_the_first_preference_of_a_type_of_need_makes_its_principle(write_dialogues: Write) -> None:
    """The first dialogue, D1, gives a type of need without a preference. The second one adds it."""

    def outlines(prompt: str, n: int) -> dict[str, Any]:
        preference = None if "D1:" in prompt else "gentle"
        return {"outlines": [{"requirement": "sleeping", "preference": preference}]}

    result = write_dialogues(months=2, answers={"outlines": outlines}, clusters=1)

    assert calls_about_principles(result.calls) == {
        "general_need": 1,
        "type_verdict": 1,
        "general_preference": 1,
    }
    assert result.memory.principles[0].preference == "principle(gentle)"


def test_a_finalized_memory_takes_in_one_dialogue_after_the_other(scripted: Any) -> None:
    """Finalizing clusters the needs, once a history has ended. More may be written afterwards.

    Each dialogue has a need about sleep and one about food, so it adds one to each cluster.
    """
    writer = build("h2memory", embedder=embedder(), clusters=2, **WITHOUT_LOGS).method.writer
    dialogues = [item for item in logs_and_dialogues(months=3, logs=0) if isinstance(item, Session)]
    lm = scripted(h2memory_script())
    memory = writer.Memory()
    cluster_sizes: list[list[int]] = []

    with dspy.context(lm=lm):
        for dialogue in dialogues:
            memory = finalize_memory(writer, write_items(writer, memory, [dialogue]))
            cluster_sizes.append([len(principle.members) for principle in memory.principles])
            # Finalizing a second time changes nothing.
            assert finalize_memory(writer, memory) == memory

    assert cluster_sizes == [[1, 1], [2, 2], [3, 3]]
    assert calls_about_principles(lm.engine.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 4,
        "principle_verdict": 4,
    }
