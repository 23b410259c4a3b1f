"""What H2Memory recalls from its four parts, and what each ablation changes and leaves alone.

From logs come situations (M_G) and the background (M_B), a sentence for each aspect of life. From
dialogues come topics (M_T), each a need of the user, and principles (M_P): what the user prefers
for a type of need. An ablation is a variant of the method in which some parts are switched off.

The scripted model finds two topics in each dialogue: one on sleep, one on food.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import Context, History, Hit, Query, build
from mempiler.engines.embedders import embedder
from mempiler.programs.h2memory.memory import HeterogeneousMemory
from mempiler.runs.evidence import evidence_hits

from .conftest import Script, h2memory_script, logs_and_dialogues, prompt_field

HOW_TO_SLEEP_IN_MONTH_2 = Query(text="How does one sleep soundly in month 2?")
WORDS_ABOUT_SOLUTIONS = ["Proposed", "Preference", "Principle", "plan", "gentle"]
"""Words that stand in topics and principles only where solutions and preferences are shown."""


class Recalled(NamedTuple):
    """The result of a query, with the memory that it was asked of."""

    memory: HeterogeneousMemory
    context: Context
    engine: Any

    def hits(self, kind: str) -> list[Hit]:
        return [hit for hit in self.context.hits if hit.kind == kind]

    def text_of_topics_and_principles(self) -> str:
        return "\n".join(hit.text for hit in [*self.hits("topic"), *self.hits("principle")])


@pytest.fixture
def recall_from_six_months(scripted: Callable[..., Any]) -> Callable[..., Recalled]:
    """Return a function that writes six months of logs and dialogues, and asks a query.

    The sixth month has no dialogue yet, so it is the current session.
    """

    def recall(query: Query, script: Script | None = None, **settings: Any) -> Recalled:
        history: History = logs_and_dialogues(months=6, has_last_dialogue=False)
        program = build("h2memory", embedder=embedder(), **settings)
        lm = scripted(script or h2memory_script())
        with dspy.context(lm=lm):
            memory = program.remember(history).memory
            context = program.method.reader.recall(memory, query)
        return Recalled(memory, context, lm.engine)

    return recall


def items_behind(hit: Hit) -> set[str]:
    """Return the ids of the items that a hit rests on: "L6" if one of its turns is L6:2."""
    return {turn_id.partition(":")[0] for turn_id in hit.sources}


def test_the_parts_are_recalled_in_their_order_and_counted(recall_from_six_months: Any) -> None:
    """The current session has three situations, all of one aspect of life, so of one background.

    Three topics of dialogues are recalled by default, and the principles that they belong to: what
    the user prefers for such needs.
    """
    context = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2, clusters=2).context

    assert [hit.kind for hit in context.hits] == [
        "situation",
        "situation",
        "situation",
        "background",
        "topic",
        "topic",
        "topic",
        "principle",
        "principle",
    ]
    assert context.counts["situations"] == 3
    assert context.counts["backgrounds"] == 1
    assert context.counts["topics"] == 3
    assert context.counts["principles"] == 2


def test_the_tokens_and_model_calls_of_a_recall_are_counted(recall_from_six_months: Any) -> None:
    """Users compare methods by what they cost."""
    context = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2).context

    # Four characters are counted as a token.
    assert context.counts["tokens"] == round(len(context.text()) / 4)
    # The query is a question, so that no model had to sum it up.
    assert context.counts["calls"] == 0


def test_situations_of_the_current_session_and_their_background_are_recalled(
    recall_from_six_months: Any,
) -> None:
    """The current session has the logs L6. A situation sums up what they tell of the user.

    The logs of even months are about work, so the background sums up what L2, L4 and L6 tell of it.
    """
    recalled = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2, clusters=2)

    situations = recalled.hits("situation")
    assert situations
    for situation in situations:
        assert items_behind(situation) == {"L6"}
    [background] = recalled.hits("background")
    assert background.text == "work: known 2+4+6"
    assert items_behind(background) == {"L2", "L4", "L6"}


def test_the_nearest_topics_are_recalled(recall_from_six_months: Any) -> None:
    """Each dialogue, one a month, has a topic about sleeping and one about cooking."""
    recalled = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2)

    first, second, third = recalled.hits("topic")

    assert first.text.startswith("Need: sleeping soundly in month 2")
    assert second.text.startswith("Need: sleeping soundly in month ")
    assert third.text.startswith("Need: sleeping soundly in month ")


def test_the_principles_of_the_recalled_topics_are_recalled(recall_from_six_months: Any) -> None:
    """A principle says what the user prefers for similar needs, its members.

    Each dialogue, one a month, has a topic about sleeping and one about cooking: t1 and t2, then t3
    and t4, and so on.
    """
    recalled = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2, clusters=2)

    assert [hit.id for hit in recalled.hits("topic")] == ["t3", "t7", "t1"]
    # The one with the best topic, t3, comes first.
    assert [hit.id for hit in recalled.hits("principle")] == ["p2", "p1"]
    members = {principle.id: principle.members for principle in recalled.memory.principles}
    assert members["p2"] == ("t3", "t4", "t7", "t8")
    assert "t1" in members["p1"]


def test_a_principle_has_the_score_of_its_best_topic_and_the_turns_of_all(
    recall_from_six_months: Any,
) -> None:
    """A principle says what the user prefers for similar needs: of p2, those of D2 and D4."""
    recalled = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2, clusters=2)

    best_topic = recalled.hits("topic")[0]
    best_principle = recalled.hits("principle")[0]
    assert best_principle.id == "p2"
    assert best_principle.score == best_topic.score
    assert items_behind(best_principle) == {"D2", "D4"}
    assert len(best_principle.sources) == 4 + 4


@pytest.mark.parametrize(
    ("about", "shows_solutions"),
    [
        ("needs", False),
        ("solutions", True),
        (None, True),
    ],
)
def test_a_task_about_needs_sees_no_solution_and_no_preference(
    recall_from_six_months: Any, about: Any, shows_solutions: bool
) -> None:
    """Such a task restates what the user needs. Earlier solutions would only distract from it."""
    query = Query(text="How does one sleep soundly in month 2?", about=about)

    recalled = recall_from_six_months(query, clusters=2)

    topic = recalled.hits("topic")[0].text
    assert topic.startswith("Need: sleeping soundly in month 2")
    assert ("Proposed: plan sleeping soundly 2" in topic) is shows_solutions
    assert ("Preference: gentle sleeping soundly 2" in topic) is shows_solutions
    principle = recalled.hits("principle")[0].text
    assert principle.startswith("Type of need: type(4)")
    assert ("Principle: principle(gentle sleeping soundly 2" in principle) is shows_solutions
    for word in WORDS_ABOUT_SOLUTIONS:
        assert (word in recalled.text_of_topics_and_principles()) is shows_solutions, word


def test_a_dialogue_is_summed_up_and_the_summary_is_searched_for(
    recall_from_six_months: Any,
) -> None:
    """At the end of a dialogue, the last words of the user may not say what they need.

    So the model sums up the dialogue, and the summary is searched for. Here the summary is about
    cooking, though the dialogue is about sleeping.
    """
    query = Query(
        text="sleeping soundly", dialogue="user: hi\nassistant: yes?", modality="dialogue"
    )
    script = h2memory_script(current_need={"current_need": "cooking vegetables"})

    recalled = recall_from_six_months(query, script)

    best_topic = recalled.hits("topic")[0]
    assert "cooking" in best_topic.text
    assert recalled.engine.calls["current_need"] == 1
    assert recalled.context.counts["calls"] == 1
    _, last_prompt = recalled.engine.prompts[-1]
    shown_dialogue = prompt_field(last_prompt, "dialogue_so_far")
    assert shown_dialogue == "user: hi\nassistant: yes?\nuser: sleeping soundly"


def test_a_question_is_searched_for_as_it_is(recall_from_six_months: Any) -> None:
    """A question needs no summary. It is about sleeping, and the summary would be about cooking."""
    query = Query(
        text="sleeping soundly", dialogue="user: hi\nassistant: yes?", modality="question"
    )
    script = h2memory_script(current_need={"current_need": "cooking vegetables"})

    recalled = recall_from_six_months(query, script)

    best_topic = recalled.hits("topic")[0]
    assert "sleeping" in best_topic.text
    assert "cooking" not in best_topic.text
    assert recalled.engine.calls["current_need"] == 0
    assert recalled.context.counts["calls"] == 0


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
    recall_from_six_months: Any, settings: dict[str, Any], shown_parts: set[str]
) -> None:
    """The paper measures what each part of the memory is worth by leaving it out.

    Parts that are shown are as many as ever, even if those that lead to them are left out: the
    situations lead to the background of their aspects of life, and topics to their principles.
    """
    counts = recall_from_six_months(HOW_TO_SLEEP_IN_MONTH_2, clusters=2, **settings).context.counts

    assert counts["situations"] == (3 if "situations" in shown_parts else 0)
    assert counts["backgrounds"] == (1 if "backgrounds" in shown_parts else 0)
    assert counts["topics"] == (3 if "topics" in shown_parts else 0)
    assert (counts["principles"] > 0) is ("principles" in shown_parts)


@pytest.fixture
def four_months(scripted: Callable[..., Any]) -> HeterogeneousMemory:
    """The memory of four months of logs and dialogues, with two backgrounds and two principles."""
    with dspy.context(lm=scripted(h2memory_script())):
        program = build("h2memory", embedder=embedder(), clusters=2)
        return program.remember(logs_and_dialogues(months=4)).memory


def reader_with(**settings: Any) -> Any:
    """Return a reader of H2Memory."""
    return build("h2memory", embedder=embedder(), clusters=2, **settings).method.reader


def test_search_finds_all_parts(four_months: HeterogeneousMemory) -> None:
    """All parts are near enough, since `k` and `min_score` leave nothing out."""
    [hits] = reader_with().search(four_months, ["sleeping soundly"], k=50, min_score=-1.0)

    numbers_of_parts = Counter(hit.kind for hit in hits)
    # Four months have three situations each, and two topics. Odd months are about health, and even
    # ones about work.
    assert numbers_of_parts == {"situation": 12, "background": 2, "topic": 8, "principle": 2}
    assert {hit.id for hit in hits if hit.kind == "background"} == {"health", "work"}


def test_a_topic_that_is_found_has_its_solutions_and_preference(
    four_months: HeterogeneousMemory,
) -> None:
    """Only the need of a topic is compared with the query, and the whole topic is returned."""
    [hits] = reader_with().search(four_months, ["sleeping soundly in month 2"], k=1)

    [topic] = hits
    assert topic.text.startswith("Need: sleeping soundly in month 2")
    assert "Proposed: plan sleeping soundly 2" in topic.text
    assert "Preference: gentle sleeping soundly 2" in topic.text


def test_only_situations_and_topics_are_evidence(four_months: HeterogeneousMemory) -> None:
    """Retrieval is scored by the turns that hits rest on; the other parts sum up many turns."""
    words_of_all_parts = "sleeping type situation known"

    hits = evidence_hits(reader_with(), four_months, words_of_all_parts, k=50)

    assert hits
    assert {hit.kind for hit in hits} <= {"situation", "topic"}


def test_search_finds_no_parts_that_are_switched_off(four_months: HeterogeneousMemory) -> None:
    """Situations and backgrounds, the parts that are made from logs, are switched off."""
    reader = reader_with(use_situations=False, use_background=False)
    words_of_all_parts = "situation known type sleeping"

    [hits] = reader.search(four_months, [words_of_all_parts], k=50, min_score=-1.0)

    assert {hit.kind for hit in hits} == {"topic", "principle"}
