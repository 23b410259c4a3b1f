"""H2Memory's principles: clusters of needs, what joins them later, and when there are none."""

import dspy
import numpy as np
import pytest
from mempiler import Session, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.principles import assigned, clusters

from .conftest import pal, pal_script

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
def test_there_are_no_more_clusters_than_different_needs(rows: list, count: int, groups: list) -> None:
    assert clusters(np.array(rows, dtype=np.float32), count, seed=0) == groups


def test_a_later_need_joins_the_nearest_centre_which_moves_to_the_mean_of_its_members() -> None:
    # By hand: (0,4) joins (0,1) of two: (2*(0,1) + (0,4)) / 3 = (0,2). (4,5) is then 5 from (0,2) and 5.66 from (8,9).
    # It moves it to (3*(0,2) + (4,5)) / 4 = (1, 2.75). (8,7) joins (8,9) of one: (8,8). (5,5) is 4.24 from that one and
    # 4.59 from (1,2.75); had the first centre not moved, (4,5) had been 5.66 from both.
    centres = [np.array([0.0, 1.0]), np.array([8.0, 9.0])]
    assert assigned(np.array([[0, 4], [4, 5], [8, 7], [5, 5]]), centres, [2, 1]) == [0, 0, 1, 1]
    assert [centre.tolist() for centre in centres] == [[0.0, 1.0], [8.0, 9.0]]
    assert assigned(np.array([[4], [5]]), [np.array([0.0]), np.array([9.0])], [1, 1]) == [0, 0]


@pytest.fixture
def settled(lived):
    """Writes the dialogues of a history: `settled(6, clusters=2)`, `settled(1, {"general_need": "no"})`."""

    def settle(sessions, change=None, **settings):
        return lived(change, sessions=sessions, use_situations=False, use_background=False, **settings)

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
    assert sorted(id for one in memory.principles for id in one.members) == sorted(t.id for t in memory.topics)
    assert [one.id for one in memory.principles] == [f"p{n}" for n in range(1, len(sizes) + 1)]
    kinds = [{memory.topics[int(id[1:]) - 1].need.split()[0] for id in one.members} for one in memory.principles]
    assert all(len(kind) == 1 for kind in kinds) == (settings.get("clusters") != 1)


def test_the_last_month_joins_where_there_is_enough_before(settled):
    found = settled(4, clusters=2)
    memory = found.memory
    assert asked(found.calls) == {"general_need": 2, "general_preference": 2, "type_verdict": 2, "principle_verdict": 2}
    first = memory.principles[0]
    assert (memory.clustered, first.members) == (6, ("t1", "t3", "t5", "t7"))
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
        return {"outlines": [{"requirement": "sleeping", "preference": None if "D1:" in text else "gentle"}]}

    found = settled(1, {"outlines": outlines})
    assert asked(found.calls) == {"general_need": 1}
    assert found.memory.principles[0].text() == "Type of need: type(1)"
    later = settled(2, {"outlines": outlines}, clusters=1)
    assert asked(later.calls) == {"general_need": 1, "type_verdict": 1, "general_preference": 1}
    assert later.memory.principles[0].preference == "principle(gentle)"


def test_a_settled_memory_goes_on_one_dialogue_at_a_time(scripted):
    no_logs = {"use_situations": False, "use_background": False}
    lm, method = scripted(pal_script()), build("h2memory", embedder=embedder(), clusters=2, **no_logs).method
    history, memory, course = pal(3, logs=0), method.writer.Memory(), []
    with dspy.context(lm=lm):
        for item in (item for item in history if isinstance(item, Session)):
            memory = method.writer.settle(method.writer.write(memory, item))
            course.append(memory)
            assert method.writer.settle(memory) == memory
    assert asked(lm.engine.calls) == {
        "general_need": 2,
        "general_preference": 2,
        "type_verdict": 4,
        "principle_verdict": 4,
    }
    assert [len(one.members) for one in memory.principles] == [3, 3]
    assert [[len(one.members) for one in part.principles] for part in course] == [[1, 1], [2, 2], [3, 3]]
