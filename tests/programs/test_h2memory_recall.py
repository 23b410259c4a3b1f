"""What H2Memory recalls from its four parts, and what each ablation changes and leaves alone."""

import dspy
import pytest
from mempiler import Query, build
from mempiler.engines.embedders import embedder
from mempiler.runs.evidence import evidence_hits

from .conftest import pal, pal_script, section

KINDS = ("situations", "backgrounds", "topics", "principles")
QUERY = "How does one sleep soundly in month 2?"


def made(**settings):
    return build("h2memory", embedder=embedder(), **settings)


@pytest.fixture
def recalled(scripted):
    """Memory, context and engine of a query about six months whose sixth has logs alone."""

    def recall(query=QUERY, script=None, history=None, **settings):
        asked = query if isinstance(query, Query) else Query(text=query)
        lm, program = scripted(script or pal_script()), made(**settings)
        with dspy.context(lm=lm):
            memory = program.remember(pal(6, last=False) if history is None else history).memory
            return memory, program.method.reader.recall(memory, asked), lm.engine

    return recall


def part(context, letter):
    return [hit for hit in context.hits if hit.id[0] == letter and hit.id[1:].isdigit()]


def test_each_part_is_recalled_in_its_order(recalled):
    memory, context, _ = recalled(clusters=2)
    assert {kind: context.counts[kind] for kind in KINDS} == {
        "situations": 3,
        "backgrounds": 1,
        "topics": 3,
        "principles": 2,
    }
    assert [hit.id[0] for hit in context.hits] == [*"sss", "w", *"ttt", "p", "p"]
    topics = [topic for hit in part(context, "t") for topic in memory.topics if topic.id == hit.id]
    assert [hit.id for hit in part(context, "p")] == [
        principle.id for principle in memory.principles_above(topics)
    ]
    assert {source[:3] for hit in part(context, "s") for source in hit.sources} == {"L6:"}
    assert [hit.text for hit in context.hits if hit.id == "work"] == ["work: known 2+4+6"]
    assert all("sleeping" in hit.text for hit in part(context, "t"))
    principle = part(context, "p")[0]
    assert principle.score == part(context, "t")[0].score
    assert (
        principle.sources
        == memory.source_turns(memory.principles[int(principle.id[1:]) - 1].members)
        != ()
    )
    work = next(hit for hit in context.hits if hit.id == "work")
    assert {source[:3] for source in work.sources} == {"L2:", "L4:", "L6:"}
    assert context.counts["tokens"] == round(len(context.text()) / 4)
    assert context.counts["calls"] == 0


@pytest.mark.parametrize(("about", "whole"), [("needs", False), ("solutions", True), (None, True)])
def test_a_task_about_needs_sees_no_solution_and_no_preference(recalled, about, whole):
    _, context, _ = recalled(Query(text=QUERY, about=about), clusters=2)
    shown = "\n".join(hit.text for hit in [*part(context, "t"), *part(context, "p")])
    assert "Need: sleeping" in shown
    assert "Type of need: type(" in shown
    assert [
        word in shown for word in ("Proposed", "Preference", "Principle", "plan", "gentle")
    ] == [whole] * 5


@pytest.mark.parametrize(("modality", "calls"), [("dialogue", 1), ("question", 0)])
def test_a_dialogue_is_summed_up_before_the_search(recalled, modality, calls):
    script = pal_script(current_need={"current_need": "cooking vegetables"})
    asked = Query(text="sleeping soundly", dialogue="user: hi\nassistant: yes?", modality=modality)
    _, context, engine = recalled(asked, script)
    assert context.counts["calls"] == engine.calls["current_need"] == calls
    assert ("cooking" in part(context, "t")[0].text) == bool(calls)
    if calls:
        shown = section(engine.prompts[-1][1], "dialogue_so_far")
        assert shown == "user: hi\nassistant: yes?\nuser: sleeping soundly"


NO_LOGS = {"use_situations": False, "use_background": False}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"use_situations": False}, (0, 1, 3, True)),
        ({"use_background": False}, (3, 0, 3, True)),
        ({"use_topics": False}, (3, 1, 0, True)),
        ({"use_principles": False}, (3, 1, 3, False)),
        (NO_LOGS, (0, 0, 3, True)),
        ({**NO_LOGS, "use_topics": False, "clustered": False}, (0, 0, 0, True)),
        ({**NO_LOGS, "use_principles": False}, (0, 0, 3, False)),
    ],
    ids=["w/o M_G", "w/o M_B", "w/o M_T", "w/o M_P", "M_T + M_P", "M_P", "M_T"],
)
def test_a_variant_shows_the_other_parts_and_no_more(recalled, settings, shown):
    _, context, _ = recalled(clusters=2, **settings)
    situations, background, topics, has_principles = shown
    counts = [context.counts[kind] for kind in KINDS]
    assert counts[:3] == [situations, background, topics]
    assert (counts[3] > 0) is has_principles


def test_search_finds_all_parts_and_evidence_is_what_is_concrete(scripted):
    program = made(clusters=2)
    with dspy.context(lm=scripted(pal_script())):
        memory = program.remember(pal(4)).memory
    reader = program.method.reader
    every = reader.search(
        memory, ["sleeping soundly", "situation of L1:3 known type"], k=50, min_score=-1.0
    )
    assert {hit.id[0] for hit in every[1]} == set("sthwp")
    assert len(every[0]) == len(memory.situations) + len(memory.topics) + 2 + 2
    assert every[0][0].text == next(t for t in memory.topics if t.id == every[0][0].id).text()
    evidence = evidence_hits(reader, memory, "sleeping type situation known", 50)
    assert evidence
    assert {hit.kind for hit in evidence} <= {"situation", "topic"}
    blind = made(clusters=2, use_situations=False, use_background=False).method.reader
    assert {
        hit.id[0] for hit in blind.search(memory, ["situation known type sleeping"], 50, -1.0)[0]
    } == set("tp")
