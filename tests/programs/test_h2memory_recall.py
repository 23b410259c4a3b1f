"""What H2Memory recalls from its four parts, and what each ablation changes and leaves alone.

From logs come situations (M_G) and the background (M_B), a sentence for each aspect of life. From
dialogues come topics (M_T), each a need of the user, and principles (M_P): what the user prefers
for a type of need. An ablation is a variant of the method in which some parts are switched off.

The scripted model finds two topics in each dialogue: one on sleep, one on food.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import Context, History, Hit, Query, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.memory import HeterogeneousMemory
from mempiler.runs.evidence import evidence_hits

from .conftest import Script, pal, pal_script, section

QUERY = "How does one sleep soundly in month 2?"
WORDS_ABOUT_SOLUTIONS = ["Proposed", "Preference", "Principle", "plan", "gentle"]
"""Words that stand in topics and principles only where solutions and preferences are shown."""


class Recalled(NamedTuple):
    """The result of a query, with the memory that it was asked of."""

    memory: HeterogeneousMemory
    context: Context
    engine: Any

    def hits(self, kind: str) -> list[Hit]:
        return [hit for hit in self.context.hits if hit.kind == kind]


@pytest.fixture
def recall(scripted: Callable[..., Any]) -> Callable[..., Recalled]:
    """Return a function that writes six months of logs and dialogues, and asks a query.

    The sixth month has no dialogue yet, so it is the current session. By default the query is
    `QUERY`.
    """

    def recall_from_six_months(
        query: Query | None = None, script: Script | None = None, **settings: Any
    ) -> Recalled:
        history: History = pal(sessions=6, has_last_dialogue=False)
        program = build("h2memory", embedder=embedder(), **settings)
        lm = scripted(script or pal_script())
        with dspy.context(lm=lm):
            memory = program.remember(history).memory
            context = program.method.reader.recall(memory, query or Query(text=QUERY))
        return Recalled(memory, context, lm.engine)

    return recall_from_six_months


def items_behind(hit: Hit) -> set[str]:
    """Return the ids of the items that a hit rests on: "L6" if one of its turns is L6:2."""
    return {turn_id.partition(":")[0] for turn_id in hit.sources}


def test_the_parts_are_recalled_in_their_order_and_counted(recall: Any) -> None:
    recalled = recall(clusters=2)

    context = recalled.context
    # The current session has three situations, all of one aspect, and three topics is the default.
    # The nearest topics belong to both principles, of which there are as many as clusters.
    assert [hit.kind for hit in context.hits] == [
        *("situation", "situation", "situation"),
        "background",
        *("topic", "topic", "topic"),
        *("principle", "principle"),
    ]
    assert context.counts["situations"] == 3
    assert context.counts["backgrounds"] == 1
    assert context.counts["topics"] == 3
    assert context.counts["principles"] == 2
    # Four characters are counted as a token.
    assert context.counts["tokens"] == round(len(context.text()) / 4)
    # The query is a question, so that no model had to sum it up.
    assert context.counts["calls"] == 0


def test_situations_of_the_current_session_and_their_background_are_recalled(recall: Any) -> None:
    """The current session has the logs L6. Its background sums up work in months 2, 4 and 6."""
    recalled = recall(clusters=2)

    situations = recalled.hits("situation")
    assert situations
    for situation in situations:
        assert items_behind(situation) == {"L6"}
    # The logs of even months are about work.
    [background] = recalled.hits("background")
    assert background.id == "work"
    assert background.text == "work: known 2+4+6"
    assert items_behind(background) == {"L2", "L4", "L6"}


def test_the_nearest_topics_and_their_principles_are_recalled(recall: Any) -> None:
    recalled = recall(clusters=2)
    memory = recalled.memory

    # The query asks about sleeping.
    topic_hits = recalled.hits("topic")
    assert topic_hits
    for hit in topic_hits:
        assert "sleeping" in hit.text

    topics_by_id = {topic.id: topic for topic in memory.topics}
    recalled_topics = [topics_by_id[hit.id] for hit in topic_hits]
    principles = memory.principles_above(recalled_topics)
    principle_hits = recalled.hits("principle")
    assert [hit.id for hit in principle_hits] == [principle.id for principle in principles]

    # A principle has the score of the best of its topics, and rests on the turns of all of them.
    first_hit = principle_hits[0]
    assert first_hit.score == topic_hits[0].score
    assert first_hit.sources
    assert first_hit.sources == memory.source_turns(principles[0].members)


@pytest.mark.parametrize(
    ("about", "shows_solutions"),
    [
        ("needs", False),
        ("solutions", True),
        (None, True),
    ],
)
def test_a_task_about_needs_sees_no_solution_and_no_preference(
    recall: Any, about: Any, shows_solutions: bool
) -> None:
    """Such a task restates what the user needs. Earlier solutions would only distract from it."""
    query_of_task = Query(text=QUERY, about=about)

    recalled = recall(query_of_task, clusters=2)

    shown_hits = [*recalled.hits("topic"), *recalled.hits("principle")]
    shown_text = "\n".join(hit.text for hit in shown_hits)
    assert "Need: sleeping" in shown_text
    assert "Type of need: type(" in shown_text
    for word in WORDS_ABOUT_SOLUTIONS:
        assert (word in shown_text) is shows_solutions, word


def query_in_dialogue(modality: Any) -> Query:
    """Return a query about sleeping that ends a dialogue."""
    dialogue = "user: hi\nassistant: yes?"
    return Query(text="sleeping soundly", dialogue=dialogue, modality=modality)


SUMMARY_ABOUT_COOKING = {"current_need": "cooking vegetables"}
"""The summary that the model makes of a dialogue about sleeping, so that it can be told apart."""


def test_a_dialogue_is_summed_up_and_the_summary_is_searched_for(recall: Any) -> None:
    """At the end of a dialogue, the last words of the user may not say what they need.

    So the model sums up the dialogue, and the summary is searched for. Here the summary is about
    cooking, though the dialogue is about sleeping.
    """
    script = pal_script(current_need=SUMMARY_ABOUT_COOKING)

    recalled = recall(query_in_dialogue(modality="dialogue"), script)

    assert recalled.engine.calls["current_need"] == 1
    assert recalled.context.counts["calls"] == 1
    best_topic = recalled.hits("topic")[0]
    assert "cooking" in best_topic.text
    _, last_prompt = recalled.engine.prompts[-1]
    shown_dialogue = section(last_prompt, "dialogue_so_far")
    assert shown_dialogue == "user: hi\nassistant: yes?\nuser: sleeping soundly"


def test_a_question_is_searched_for_as_it_is(recall: Any) -> None:
    """A question needs no summary. It is about sleeping, and the summary would be about cooking."""
    script = pal_script(current_need=SUMMARY_ABOUT_COOKING)

    recalled = recall(query_in_dialogue(modality="question"), script)

    assert recalled.engine.calls["current_need"] == 0
    assert recalled.context.counts["calls"] == 0
    best_topic = recalled.hits("topic")[0]
    assert "cooking" not in best_topic.text


WITHOUT_LOGS = {"use_situations": False, "use_background": False}


@pytest.mark.parametrize(
    ("settings", "shown_parts"),
    [
        pytest.param(
            {"use_situations": False},
            {"backgrounds", "topics", "principles"},
            id="without M_G",
        ),
        pytest.param(
            {"use_background": False},
            {"situations", "topics", "principles"},
            id="without M_B",
        ),
        pytest.param(
            {"use_topics": False},
            {"situations", "backgrounds", "principles"},
            id="without M_T",
        ),
        pytest.param(
            {"use_principles": False},
            {"situations", "backgrounds", "topics"},
            id="without M_P",
        ),
        pytest.param(WITHOUT_LOGS, {"topics", "principles"}, id="M_T and M_P"),
        pytest.param(
            {**WITHOUT_LOGS, "use_topics": False, "clustered": False},
            {"principles"},
            id="M_P alone",
        ),
        pytest.param({**WITHOUT_LOGS, "use_principles": False}, {"topics"}, id="M_T alone"),
    ],
)
def test_a_variant_shows_the_parts_that_are_switched_on_and_no_others(
    recall: Any, settings: dict[str, Any], shown_parts: set[str]
) -> None:
    """Parts that are shown are as many as without ablations: the others lead to them as before.

    Situations lead to the background of their aspects, and topics to their principles.
    """
    counts = recall(clusters=2, **settings).context.counts

    assert counts["situations"] == (3 if "situations" in shown_parts else 0)
    assert counts["backgrounds"] == (1 if "backgrounds" in shown_parts else 0)
    assert counts["topics"] == (3 if "topics" in shown_parts else 0)
    assert (counts["principles"] > 0) is ("principles" in shown_parts)


@pytest.fixture
def four_months(scripted: Callable[..., Any]) -> HeterogeneousMemory:
    """The memory of four months of logs and dialogues, with two backgrounds and two principles."""
    with dspy.context(lm=scripted(pal_script())):
        program = build("h2memory", embedder=embedder(), clusters=2)
        return program.remember(pal(sessions=4)).memory


def reader_with(**settings: Any) -> Any:
    """Return a reader of H2Memory."""
    return build("h2memory", embedder=embedder(), clusters=2, **settings).method.reader


def test_search_finds_all_parts_with_their_whole_text(four_months: HeterogeneousMemory) -> None:
    queries = ["sleeping soundly", "situation of L1:3 known type"]

    # All parts are near enough: k and min_score leave nothing out.
    sleep_hits, other_hits = reader_with().search(four_months, queries, k=50, min_score=-1.0)

    kinds = {hit.kind for hit in other_hits}
    assert kinds == {"situation", "topic", "background", "principle"}
    assert {hit.id for hit in other_hits if hit.kind == "background"} == {"health", "work"}
    backgrounds_and_principles = 2 + 2
    situations_and_topics = len(four_months.situations) + len(four_months.topics)
    assert len(sleep_hits) == situations_and_topics + backgrounds_and_principles
    # A topic has its solutions and preference, though only its need is compared with the query.
    topics_by_id = {topic.id: topic for topic in four_months.topics}
    best_hit = sleep_hits[0]
    assert best_hit.text == topics_by_id[best_hit.id].text()


def test_only_situations_and_topics_are_evidence(four_months: HeterogeneousMemory) -> None:
    """Retrieval is scored by the turns that hits rest on; the other parts sum up many turns."""
    query = "sleeping type situation known"

    hits = evidence_hits(reader_with(), four_months, query, k=50)

    assert hits
    assert {hit.kind for hit in hits} <= {"situation", "topic"}


def test_search_finds_no_parts_that_are_switched_off(four_months: HeterogeneousMemory) -> None:
    """Situations and backgrounds, the parts that are made from logs, are switched off."""
    reader = reader_with(**WITHOUT_LOGS)
    queries = ["situation known type sleeping"]

    [hits] = reader.search(four_months, queries, k=50, min_score=-1.0)

    assert {hit.kind for hit in hits} == {"topic", "principle"}
