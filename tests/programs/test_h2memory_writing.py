"""How H2Memory writes: links, situations, backgrounds, topics, needs and principles; what runs at the same time."""

import threading

import dspy
import mempiler.signatures.h2memory as prompts
import numpy as np
import pytest
from mempiler import Behavior, History, Logs, Profile, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.extraction import connected_subgraphs, turns_of_topics, valid_links
from mempiler.programs.h2memory.memory import Link
from mempiler.programs.h2memory.principles import Centre, cluster_rows, nearest_centres
from mempiler.programs.writing import finalize_memory, write_items
from mempiler.signatures.h2memory import LogLinks

from .conftest import pal, pal_script


def test_linked_logs_are_one_situation_and_the_others_one_each(lived):
    found = lived(sessions=2)
    memory = found.memory
    assert [(s.id, s.batch, s.sources) for s in memory.situations[:4]] == [
        ("s1", "L1", ("L1:1", "L1:2")),
        ("s2", "L1", ("L1:3",)),
        ("s3", "L1", ("L1:4",)),
        ("s4", "L2", ("L2:1", "L2:2")),
    ]
    assert [s.aspects for s in memory.situations[2:4]] == [("health",), ("work", "family")]
    assert memory.situations[0].links[0].model_dump() == {
        "later": "L1:2",
        "kind": "caused_by",
        "earlier": "L1:1",
    }
    assert found.calls["links"] == 2
    (shown,) = [text for text in found.texts("found_situation") if "L1:2" in text]
    assert "thing-1-2 <caused_by L1:1>" in shown


def test_backgrounds_are_updated_session_by_session(lived):
    found = lived(sessions=4)
    assert {aspect: one.text for aspect, one in found.memory.background.items()} == {
        "work": "known 2+4",
        "health": "known 1+3",
    }
    before = found.shown("updating_aspects", "background_before")
    assert before[:3] == [
        "work:\nhealth:\nfamily:\nleisure:",
        "work:\nhealth: known 1\nfamily:\nleisure:",
        "work: known 2\nhealth: known 1\nfamily:\nleisure:",
    ]
    spans = found.shown("updating_aspects", "span_before")
    assert spans == ["unknown", *(f"2024-01-03 to 2024-0{month}-03" for month in (1, 2, 3))]
    assert found.shown("updating_aspects", "span_since")[1] == "2024-02-03 to 2024-02-03"
    assert found.memory.background["health"].situations == ("s1", "s2", "s3", "s7", "s8", "s9")


@pytest.mark.parametrize(
    ("said", "background"),
    [
        ({"updating_aspects": [], "updating_content": []}, {}),
        (
            {
                "updating_aspects": ["work", "family"],
                "updating_content": [{"aspect": "WORK", "summary": "w"}],
            },
            "w",
        ),
        ({"updating_aspects": [], "updating_content": [{"aspect": "work", "summary": " w "}]}, "w"),
        (
            {
                "updating_aspects": ["work"],
                "updating_content": [{"aspect": "money", "summary": "x"}],
            },
            {},
        ),
        ("nonsense", {}),
    ],
    ids=["nothing", "one without a sentence", "a sentence alone", "unknown aspect", "malformed"],
)
def test_an_update_changes_the_aspects_it_has_sentences_for(lived, said, background):
    memory = lived({"updating_aspects": said}, sessions=1).memory
    found = {aspect: one.text for aspect, one in memory.background.items()}
    assert found == ({"work": background} if background else {})


def test_a_need_is_refined_with_its_own_session_and_the_background_of_that_time(lived):
    memory = lived(sessions=4).memory
    needs = {topic.id: (topic.stated, topic.need) for topic in memory.topics}
    assert needs["t1"] == (
        "sleeping soundly in month 1",
        "sleeping soundly in month 1 <health: known 1 / situation of L1:1 L1:2 situation of L1:4 situation of L1:3>",
    )
    # Session 3 is about health: what was learnt of work in session 2 does not bear on it, and 5 is not there yet.
    assert needs["t6"][1].startswith(
        "cooking vegetables in month 3 <health: known 1+3 / situation of L3"
    )
    assert all(f"L{n}:" in needs[id][1] for n, id in ((2, "t3"), (3, "t5"), (4, "t7")))


def test_logs_before_one_dialogue_belong_to_it_and_a_second_dialogue_has_none(lived):
    history = pal(2)
    first, dialogue, second, other = history.items
    memory = lived(history=History(id="x", items=(first, second, dialogue, other))).memory
    assert [topic.own for topic in memory.topics] == [("L1", "L2")] * 2 + [()] * 2
    assert [situation.batch for situation in memory.current_situations] == ["L1"] * 3 + ["L2"] * 3
    assert memory.topics[2].need == memory.topics[2].stated


def test_profiles_and_empty_items_are_not_written_and_behavior_is_read_as_logs(lived):
    logs, dialogue = pal(1).items
    profile = Profile(id="p", turns=(Turn(id="p:1", speaker="profile", text="Ann, nurse"),))
    behavior = Behavior(id="b", turns=tuple(turn.model_copy() for turn in logs.turns))
    empty = (Logs(id="e1"), Session(id="e2", turns=(Turn(id="e2:1", speaker="user", text=" "),)))
    plain = lived(history=History(id="x", items=(logs, dialogue))).memory
    found = lived(history=History(id="y", items=(profile, logs, dialogue, *empty)))
    assert "nurse" not in str(found.prompts)
    assert found.memory.situations == plain.situations
    assert found.memory.topics == plain.topics
    read = lived(history=History(id="z", items=(behavior, dialogue))).memory
    assert [one.text for one in read.situations] == [one.text for one in plain.situations]


def test_needs_are_refined_while_the_background_takes_in_the_next_logs(written):
    together = threading.Barrier(3)

    def reply(kind, text, n):
        # The first update has nothing to wait for; then one update goes with two needs. The last two needs wait alone.
        if (kind == "updating_aspects" and n > 1) or (kind == "detailed_need" and n <= 4):
            together.wait(timeout=20)
        return pal_script()(kind, text, n)

    memory = written(build("h2memory", embedder=embedder()), pal(3), reply).memory
    assert all("<" in topic.need for topic in memory.topics)


IDS = [f"l{n}" for n in range(1, 31)]


def claimed(log: str, caused_by: tuple[str, ...] = (), follows: tuple[str, ...] = ()) -> LogLinks:
    return LogLinks(log_id=log, caused_by=list(caused_by), follows=list(follows))


def link(later: str, kind: str, earlier: str) -> Link:
    return Link.model_validate({"later": later, "kind": kind, "earlier": earlier})


@pytest.mark.parametrize(
    ("claims", "links"),
    [
        (
            [claimed("l21", ("l20",), ("l11",))],
            [("l21", "follows", "l11"), ("l21", "caused_by", "l20")],
        ),
        ([claimed("l21", ("l20",), ("l20",))], [("l21", "caused_by", "l20")]),
        ([claimed("l21", ("l22",))], []),
        ([claimed("l21", ("l10",))], []),
        ([claimed("l20", ("l19",))], []),
        ([claimed("x9", ("l19", "l18"))], []),
    ],
    ids=["both kinds", "caused_by first", "later", "not shown", "not asked about", "unknown"],
)
def test_links_that_cannot_be_are_left_out(claims: list[LogLinks], links: list[tuple]) -> None:
    assert valid_links(IDS[10:30], 10, claims) == [link(*row) for row in links]


def test_two_logs_are_in_one_group_where_a_way_of_links_joins_them() -> None:
    links = [
        link(later, "follows", earlier)
        for later, earlier in (("l3", "l1"), ("l5", "l2"), ("l4", "l3"))
    ]
    logs = [Turn(id=id, speaker="log") for id in IDS[:6]]
    subgraphs = connected_subgraphs(logs, links)
    assert [[log.id for log in subgraph.logs] for subgraph in subgraphs] == [
        ["l1", "l3", "l4"],
        ["l2", "l5"],
        ["l6"],
    ]
    assert [[(link.later, link.earlier) for link in subgraph.links] for subgraph in subgraphs] == [
        [("l3", "l1"), ("l4", "l3")],
        [("l5", "l2")],
        [],
    ]


@pytest.mark.parametrize(
    ("form", "field", "said", "read"),
    [
        (prompts.DrawnSituation, "aspects", ["Work", " LEISURE "], ["work", "leisure"]),
        (prompts.DrawnSituation, "aspects", "family, work", ["work", "family"]),
        (prompts.DrawnSituation, "aspects", ["健康", "money", "工作", "work"], ["work", "health"]),
        (prompts.DrawnSituation, "aspects", None, []),
        (prompts.DraftOutline, "turn_span", "D1:1 - D1:4", ["D1:1", "D1:4"]),
        (prompts.DraftOutline, "turn_span", {"start": "D1:1", "end": 4}, ["D1:1", "4"]),
        (prompts.DraftOutline, "turn_span", None, []),
        (prompts.ProposedSolution, "feedback_type", "positive", "pos"),
        (prompts.ProposedSolution, "feedback_type", " Neg", "neg"),
        (prompts.ProposedSolution, "feedback_type", None, "others"),
    ],
)
def test_replies_are_read_in_any_form_that_the_prompts_allow(form, field, said, read) -> None:
    others = {"situation": "x", "requirement": "x", "solution": "x"}
    given = {name: value for name, value in others.items() if name in form.model_fields}
    assert getattr(form.model_validate({**given, field: said}), field) == read


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ((1, 5), [(1, 4), (5, 8)]),
        ((2, 5), [(1, 4), (5, 8)]),
        ((None, 4, None), [(1, 3), (4, 8), (4, 8)]),
        ((5, 1), [(1, 8), (1, 8)]),
        ((8, 8, 8), [(1, 7), (8, 8), (8, 8)]),
        ((), []),
    ],
    ids=["good", "begins late", "not named", "wrong order", "all last", "no topic"],
)
def test_topics_tile_the_dialogue_by_where_they_begin(starts: tuple, found: list) -> None:
    turns = IDS[:8]
    named = [["x", "l8", f"l{start}"] if start else [] for start in starts]
    assert turns_of_topics(named, turns) == [
        tuple(turns[first - 1 : last]) for first, last in found
    ]


TWO_HEAPS = [[0, 0], [9, 9], [0, 1], [9, 8], [1, 0]]


@pytest.mark.parametrize(
    ("rows", "count", "groups"),
    [
        ([], 8, []),
        ([[0, 0], [5, 5], [9, 0]], 8, [[0], [1], [2]]),
        ([[0, 0], [5, 5], [0, 0], [5, 5]], 8, [[0, 2], [1, 3]]),
        ([[1, 1]] * 4, 3, [[0, 1, 2, 3]]),
        (TWO_HEAPS, 2, [[0, 2, 4], [1, 3]]),
    ],
)
def test_there_are_no_more_clusters_than_different_needs(
    rows: list, count: int, groups: list
) -> None:
    assert cluster_rows(np.array(rows, dtype=np.float32), count, seed=0) == groups


def test_a_later_need_joins_the_nearest_centre_which_moves_to_the_mean_of_its_members() -> None:
    # By hand: (0,4) joins (0,1) of two: (2*(0,1) + (0,4)) / 3 = (0,2). (4,5) is then 5 from (0,2) and 5.66 from (8,9).
    # It moves it to (3*(0,2) + (4,5)) / 4 = (1, 2.75). (8,7) joins (8,9) of one: (8,8). (5,5) is 4.24 from that one and
    # 4.59 from (1,2.75); had the first centre not moved, (4,5) had been 5.66 from both.
    centres = [Centre(np.array([0.0, 1.0]), 2), Centre(np.array([8.0, 9.0]), 1)]
    assert nearest_centres(np.array([[0, 4], [4, 5], [8, 7], [5, 5]]), centres) == [0, 0, 1, 1]
    assert [centre.mean.tolist() for centre in centres] == [[0.0, 1.0], [8.0, 9.0]]
    centres = [Centre(np.array([0.0]), 1), Centre(np.array([9.0]), 1)]
    assert nearest_centres(np.array([[4], [5]]), centres) == [0, 0]


@pytest.fixture
def settled(lived):
    """Writes the dialogues of a history: `settled(6, clusters=2)`, `settled(1, {"general_need": "no"})`."""

    def settle(sessions, change=None, **settings):
        return lived(
            change, sessions=sessions, use_situations=False, use_background=False, **settings
        )

    return settle


def asked(calls):
    kinds = ("general_need", "general_preference", "type_verdict", "principle_verdict")
    return {kind: calls[kind] for kind in kinds if calls[kind]}


@pytest.mark.parametrize(
    ("sessions", "settings", "sizes"),
    [
        (3, {}, [1, 1, 1, 1, 1, 1]),
        (3, {"clusters": 2}, [3, 3]),
        (6, {"clusters": 2, "online_month": False}, [6, 6]),
        (6, {"clusters": 1}, [12]),
        (3, {"clusters": 2, "clustered": False}, [1, 1, 1, 1, 1, 1]),
    ],
    ids=["few topics", "sleep and food", "all at once", "one cluster", "one per topic"],
)
def test_needs_are_clustered(settled, sessions, settings, sizes):
    memory = settled(sessions, **settings).memory
    assert [len(one.members) for one in memory.principles] == sizes
    assert sorted(id for one in memory.principles for id in one.members) == sorted(
        t.id for t in memory.topics
    )
    assert [one.id for one in memory.principles] == [f"p{n}" for n in range(1, len(sizes) + 1)]
    kinds = [
        {memory.topics[int(id[1:]) - 1].need.split()[0] for id in one.members}
        for one in memory.principles
    ]
    assert all(len(kind) == 1 for kind in kinds) == (settings.get("clusters") != 1)


def test_the_last_month_joins_where_there_is_enough_before(settled):
    found = settled(4, clusters=2)
    memory = found.memory
    assert asked(found.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 2,
        "principle_verdict": 2,
    }
    first = memory.principles[0]
    assert memory.clustered == 6
    assert first.members == ("t1", "t3", "t5", "t7")
    assert first.need_type == "type(3)"
    assert first.preference.endswith("sleeping soundly 3) & gentle sleeping soundly 4")


@pytest.mark.parametrize(
    ("verdict", "found"),
    [
        ({"adjust": "No", "revised": "new"}, "old"),
        ({"adjust": "YES", "revised": "new"}, "new"),
        ({"adjust": True, "revised": " "}, "old"),
        ("nonsense", "old"),
    ],
    ids=["no", "yes", "yes without a text", "malformed"],
)
def test_types_and_principles_change_only_where_a_verdict_says_so(settled, verdict, found):
    said = verdict if isinstance(verdict, str) else None
    script = {
        "general_need": {"general_need": "old"},
        "general_preference": {"general_preference": "old"},
        "type_verdict": said or {"type_verdict": verdict},
        "principle_verdict": said or {"principle_verdict": verdict},
    }
    memory = settled(3, script, clusters=2).memory
    assert {(one.need_type, one.preference) for one in memory.principles} == {(found, found)}


def test_without_a_preference_there_is_no_principle_to_make(settled):
    def outlines(text, n):
        return {
            "outlines": [
                {"requirement": "sleeping", "preference": None if "D1:" in text else "gentle"}
            ]
        }

    found = settled(1, {"outlines": outlines})
    assert asked(found.calls) == {"general_need": 1}
    assert found.memory.principles[0].text() == "Type of need: type(1)"
    later = settled(2, {"outlines": outlines}, clusters=1)
    assert asked(later.calls) == {"general_need": 1, "type_verdict": 1, "general_preference": 1}
    assert later.memory.principles[0].preference == "principle(gentle)"


def test_a_settled_memory_goes_on_one_dialogue_at_a_time(scripted):
    no_logs = {"use_situations": False, "use_background": False}
    lm, method = (
        scripted(pal_script()),
        build("h2memory", embedder=embedder(), clusters=2, **no_logs).method,
    )
    history, memory, course = pal(3, logs=0), method.writer.Memory(), []
    with dspy.context(lm=lm):
        for item in (item for item in history if isinstance(item, Session)):
            memory = finalize_memory(method.writer, write_items(method.writer, memory, [item]))
            course.append(memory)
            assert finalize_memory(method.writer, memory) == memory
    assert asked(lm.engine.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 4,
        "principle_verdict": 4,
    }
    assert [len(one.members) for one in memory.principles] == [3, 3]
    assert [[len(one.members) for one in part.principles] for part in course] == [
        [1, 1],
        [2, 2],
        [3, 3],
    ]
