"""The rules of a PAL-Set: what every step checks, the calendar, and the plans of the dialogues.

A PAL-Set is data of made-up users, with logs of their devices and dialogues with an assistant (see
`test_make_palset.py`). A language model writes it in steps. Code checks each answer; if it breaks a
rule, the next prompt tells the model which one.

Before a dialogue is written, its plan is drawn at random: what user and assistant do in each turn.
"""

import json
import time
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.synthesis.palset.dates import draw_dialogues, months_of
from mempiler.data.synthesis.palset.dialogue import Script, draw_script
from mempiler.data.synthesis.palset.records import Topic
from mempiler.data.synthesis.palset.texts import foreign, length_problems
from mempiler.errors import UserError
from mempiler.signatures.synthesis_palset import DraftChoice, DraftTopic

from .conftest import ASSISTANT_ACTIONS_AFTER, USER_ACTIONS_AFTER, MadePalset, synthesize_palset
from .forms import Change, put, remove, value_at
from .scripted_palset import flawless_model, prompt_field

SENTENCE = "The user did it. "


def copy_value(source: tuple[Any, ...], target: tuple[Any, ...]) -> Change:
    """Return a change that sets the value at the path `target` to the one at `source`."""

    def change(answer: Any) -> None:
        put(*target, value=value_at(answer, source))(answer)

    return change


def reverse(field: str) -> Change:
    """Return a change that reverses a list."""

    def change(answer: Any) -> None:
        answer[field].reverse()

    return change


def shorten(field: str, length: int) -> Change:
    """Return a change that keeps only the first entries of a list."""

    def change(answer: Any) -> None:
        answer[field] = answer[field][:length]

    return change


def log_entry(number: int, kind: str, content: str) -> Change:
    """Return a change of the type and the content of a log entry."""

    def change(answer: Any) -> None:
        answer["logs"][number].update(type=kind, content=content)

    return change


REFUSED_CHANGES: dict[str, list[tuple[Change, str]]] = {
    "people": [
        (remove("people", 0), "1 users; invent 2"),
        (put("people", 0, "gender", value=" "), "has no gender"),
        (put("people", 0, "age", value=12), "12 years"),
        (put("people", 0, "hobbies", value="One only"), "hobbies has 1 sentences; write 2 to 3"),
        (put("people", 0, "name", value="Ann 1"), "two users are called Ann 1"),
    ],
    "timeline": [
        (remove("timeline", 0), "months are []"),
        (put("timeline", 0, "events", value="..."), "2024-12 is empty"),
        (put("timeline", 0, "events", value=SENTENCE * 5 + "Ann 0 slept."), "names the user"),
    ],
    "requirement_types": [
        (remove("requirement_types", 0), "leisure has 3"),
        (put("requirement_types", 0, "text", value="leisure advice 1 at 30"), "is there twice"),
    ],
    "preferences": [
        (reverse("preferences"), "requirement ids are ['work-4'"),
        (put("preferences", 0, "requirement", value="Rest "), "word for word"),
        (put("preferences", 0, "pos", value="One. Two."), "work-1 pos has 2 sentences"),
        (copy_value(("preferences", 0, "pos"), ("preferences", 0, "neg")), "are the same"),
    ],
    "situations": [
        (remove("situations", 0), "3 situations; plan 4 to 6"),
        (put("situations", 0, "start", value="2024-11-30"), "begins on 2024-11-30, not in 2024-12"),
        (
            put("situations", 1, "start", value="2024-12-07"),
            "begins on 2024-12-07; it has to follow",
        ),
        (put("situations", 3, "end", value="2024-12-26"), "the last situation ends on 2024-12-26"),
        (put("situations", 1, "end", value="Dec 14"), "'Dec 14' have to be days"),
        (put("situations", 0, "requirement_ids", value=["work-9"]), "no requirement type work-9"),
        (
            put("situations", 0, "requirement_ids", value=["work-1", "work-1"]),
            "a requirement id is there twice",
        ),
        (put("situations", 0, "requirement_ids", value=[]), "0 requirement ids"),
    ],
    "experience": [(put("experience", value="x" * 99), "only 99 characters")],
    "topics": [
        (put("topics", 0, "requirement_type", value="order"), "requirement types are ['order'"),
        (
            put("topics", 0, "user_query", value=SENTENCE * 4),
            "user_query has 4 sentences; write 1 to 2",
        ),
        (remove("topics", 0, "implicit_needs", 0), "1 implicit needs; give 2"),
        (put("topics", 0, "implicit_needs", 0, "evidences", value=[]), "1 to 5 pieces of evidence"),
        (put("topics", 0, "implicit_needs", 0, "need", value=" "), "need is empty"),
    ],
    "candidates": [
        (put("candidates", 0, "topic", value="topic-9"), "topics are ['topic-9'"),
        (remove("candidates", 0, "solutions", 7), "7 solutions; give 8"),
        (
            put("candidates", 0, "solutions", 7, value="Solution 0 of topic-1 "),
            "two solutions are the same",
        ),
    ],
    "analysis": [
        (remove("liked", 0), "1 liked solutions; give 2"),
        (put("liked", 0, "solution", value="do 9"), "'do 9' is none of the candidates"),
        (copy_value(("liked", 0), ("disliked", 0)), "a solution is chosen twice"),
        (put("liked", 0, "feedback_reason", value=""), "feedback_reason is empty"),
    ],
    "logs": [
        (shorten("logs", length=14), "14 entries; write 20 or more"),
        (put("logs", 3, "content", value="..."), "entry 4: the content is empty"),
        (
            put("logs", 3, "content", value="Searched for rest."),
            "entry 4: the content has to begin with 'The user'",
        ),
        (
            put("logs", 3, "type", value="message sending"),
            "entry 4: a message sending has to give the message",
        ),
        (
            log_entry(3, kind="schedule management", content="The user planned tea"),
            "has to give when",
        ),
        (copy_value(("logs", 2, "timestamp"), ("logs", 3, "timestamp")), "is not later than"),
        (put("logs", 19, "timestamp", value="2024-12-31 23:01"), "is not within"),
        (put("logs", 3, "timestamp", value="2024-12-01 8:3"), "is no time"),
    ],
    "turns": [
        (remove("turns", -1), "turns; the plan has"),
        (put("turns", 0, "user", "content", value=" "), "turn 1, user: no words"),
        (
            put("turns", 0, "user", "action", value="solution feedback"),
            "turn 1, user: action is solution feedback",
        ),
        (
            put("turns", 1, "assistant", "reference", value="T9_S1"),
            "turn 2, assistant: reference is 'T9_S1'",
        ),
    ],
    "faults": [(put("faults", value=[{"number": 99, "reason": "x"}]), "there is no record 99")],
    "contradictions": [
        (put("contradictions", value=[{"record": "X3", "reason": "x"}]), "there is no record 'X3'")
    ],
}
"""By output field: changes of a good answer that break one rule, and a part of the complaint."""


def complaints_of(prompt: str) -> list[str]:
    """Return what a prompt says was wrong with the last answer, without the number of attempts."""
    lines = str(prompt_field(prompt, "complaints")).splitlines()
    return [line.removeprefix("- ") for line in lines if "attempt" not in line]


class CarelessSynthesis(NamedTuple):
    """A synthesis by a model that breaks every rule of `REFUSED_CHANGES` once."""

    palset: MadePalset
    complaints: dict[str, list[str]]
    """What the model was told about its answers, by the output field that was asked for."""


@pytest.fixture(scope="module")
def careless_synthesis(tmp_path_factory: pytest.TempPathFactory) -> CarelessSynthesis:
    """A synthesis whose first answers of each kind break one rule each.

    If three rules are listed for a kind, its first three answers break them, and all later answers
    are right.
    """
    complaints: dict[str, list[str]] = {kind: [] for kind in REFUSED_CHANGES}

    def reply(kind: str, prompt: str, number: int) -> Any:
        answer = flawless_model(kind, prompt, number)
        if kind in REFUSED_CHANGES:
            complaints[kind].extend(complaints_of(prompt))
            changes = [change for change, _ in REFUSED_CHANGES[kind]]
            if number <= len(changes):
                changes[number - 1](answer)
        return answer

    palset = synthesize_palset(
        tmp_path_factory.mktemp("careless"),
        reply,
        users=2,
        months=1,
        attempts=12,
        threads=1,
        reviews=1,
    )
    return CarelessSynthesis(palset, complaints)


@pytest.mark.parametrize("kind", REFUSED_CHANGES)
def test_the_model_is_told_which_rule_it_broke_and_nothing_else(
    careless_synthesis: CarelessSynthesis, kind: str
) -> None:
    """A model breaks each rule for each kind of answer once, and is told so in its next prompt.

    For example, it invents a user who is 12 years old, and reads "12 years" in the complaint.
    """
    complaints = careless_synthesis.complaints[kind]
    expected_problems = [problem for _change, problem in REFUSED_CHANGES[kind]]

    for complaint, problem in zip(complaints, expected_problems, strict=True):
        assert problem in complaint


def test_every_answer_that_breaks_a_rule_is_asked_for_again(
    careless_synthesis: CarelessSynthesis,
) -> None:
    """The report says what became of each refused answer: it was "retried".

    Both users are given up in the end, because they have a single month and so no history.
    """
    outcomes: set[str] = set()
    for rejection in careless_synthesis.palset.report.rejections:
        if rejection.step not in ("user", "whole user"):
            outcomes.add(rejection.outcome)

    assert outcomes == {"retried"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(
            "people",
            put("people", 0, "personality", "openness", value="低"),
            id="a level in Chinese",
        ),
        pytest.param(
            "candidates",
            put("candidates", 0, "solutions", 7, value="At 8 a.m. see Dr. Li, e.g. on foot."),
            id="points that end no sentence",
        ),
        pytest.param(
            "logs",
            log_entry(3, kind="message sending", content="The user told Bo: 'Coming.'"),
            id="a message with its text",
        ),
        pytest.param(
            "logs",
            log_entry(3, kind="schedule management", content="The user planned tea, 09:00-10:00"),
            id="a plan with its time",
        ),
        pytest.param(
            "turns",
            put("turns", 0, "user", "action", value="Topic Inquiry"),
            id="an action with capital letters",
        ),
    ],
)
def test_an_odd_answer_that_breaks_no_rule_is_accepted(
    made_palset: Any, kind: str, change: Change
) -> None:
    """The first answer of one kind, such as the one with the people, is odd."""

    def answer_oddly_at_first(output_field: str, prompt: str, number: int) -> Any:
        answer = flawless_model(output_field, prompt, number)
        if output_field == kind and number == 1:
            change(answer)
        return answer

    palset = made_palset(answer_oddly_at_first, threads=1)

    assert palset.report.rejections == []
    assert palset.calls[kind] > 0


@pytest.mark.parametrize(
    "text", ["用户睡得不好。", "用户在手机上打开了 Smart Home App", "T1_N1", "2024-02-01 08:03"]
)
def test_a_chinese_text_may_have_some_english_words_an_id_or_a_time(text: str) -> None:
    """`foreign` lists the texts of an answer that are not in the wanted language."""
    assert foreign({"people": [{"hobbies": text}]}, language="zh") == []


@pytest.mark.parametrize(
    "text",
    [
        "The user slept badly.",
        "The user typed 早 into Smart Home App",
        "T1_N1",
        "2024-02-01 08:03",
    ],
)
def test_an_english_text_may_have_some_chinese_words_an_id_or_a_time(text: str) -> None:
    """`foreign` lists the texts of an answer that are not in the wanted language."""
    assert foreign({"people": [{"hobbies": text}]}, language="en") == []


@pytest.mark.parametrize(
    ("text", "language"), [("The user slept badly.", "zh"), ("用户睡得不好。", "en")]
)
def test_a_text_in_another_language_is_named_by_its_place(text: str, language: Any) -> None:
    """The text is the field `hobbies` of the first of some invented people."""
    [problem] = foreign({"people": [{"hobbies": text}]}, language)
    assert problem.startswith("people[1].hobbies is not in")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("." * 40_000 + "x", id="points"),
        pytest.param(". " * 20_000, id="points and spaces"),
        pytest.param("." + " " * 40_000 + "x", id="spaces"),
        pytest.param("a" * 40_000, id="letters"),
    ],
)
def test_the_checks_of_a_long_text_take_less_than_two_seconds(text: str) -> None:
    """Regular expressions that go back over the text again and again would take minutes."""
    started = time.process_time()

    length_problems("the text", text, min_sentences=1, max_sentences=1)
    foreign({"text": text}, language="zh")

    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("count", "months"), [(1, ["2024-12"]), (3, ["2024-10", "2024-11", "2024-12"])]
)
def test_the_months_of_a_user_s_life_end_with_december_2024(count: int, months: list[str]) -> None:
    assert months_of("0000", count=count, seed=0) == months


def test_without_a_number_7_to_12_months_are_drawn() -> None:
    drawn_numbers = {len(months_of("0000", count=None, seed=seed)) for seed in range(60)}
    assert drawn_numbers == {7, 8, 9, 10, 11, 12}


def test_zero_months_are_refused_and_not_taken_for_a_missing_number() -> None:
    problem = "months = 0: every user has one month or more; None draws 7 to 12"
    with pytest.raises(UserError, match=problem):
        months_of("0000", count=0, seed=0)


def last_days_of_situations(months: list[str], situations_each: int) -> list[str]:
    """Return the days by which the situations of some months are named: "2024-12-10" and so on."""
    last_days: list[str] = []
    for month in months:
        last_days.extend(f"{month}-{day}" for day in range(10, 10 + situations_each))
    return last_days


SITUATIONS_OF_A_MONTH = st.integers(4, 6)


@given(seed=st.integers(0, 500), situations=SITUATIONS_OF_A_MONTH)
def test_four_situations_in_a_row_without_a_dialogue_never_happen(
    seed: int, situations: int
) -> None:
    """A situation is a part of a month, named by its last day. Some of them get a dialogue."""
    last_days = last_days_of_situations(["2024-11", "2024-12"], situations)

    part_by_day = draw_dialogues("0000", last_days, last_month="2024-12", seed=seed)

    for start in range(len(last_days) - 3):
        assert any(day in part_by_day for day in last_days[start : start + 4])


@given(seed=st.integers(0, 500), situations=SITUATIONS_OF_A_MONTH)
def test_the_dialogues_of_the_last_month_are_the_query_set(seed: int, situations: int) -> None:
    """The query set is what the benchmark asks about. Earlier dialogues are the history.

    It is drawn which situations of a month get a dialogue. Both parts get one at least.
    """
    last_days = last_days_of_situations(["2024-11", "2024-12"], situations)

    part_by_day = draw_dialogues("0000", last_days, last_month="2024-12", seed=seed)

    assert set(part_by_day.values()) == {"history", "query"}
    for day, part in part_by_day.items():
        assert part == ("query" if day.startswith("2024-12") else "history")


def test_the_first_situation_gets_a_dialogue_with_probability_0_6() -> None:
    """A situation is a part of a month, named by its last day."""
    last_days = last_days_of_situations(["2024-11", "2024-12"], situations_each=5)

    drawn = [
        last_days[0] in draw_dialogues("u", last_days, last_month="2024-12", seed=seed)
        for seed in range(1000)
    ]

    assert sum(drawn) / 1000 == pytest.approx(0.6, abs=0.05)


def choices(*solutions: str) -> list[DraftChoice]:
    """Return chosen solutions, each with a reason."""
    return [DraftChoice(solution=solution, feedback_reason="So.") for solution in solutions]


NEED = {"need": "more rest", "evidences": ["slept badly"]}
TOPIC = Topic(
    draft=DraftTopic(
        requirement_type="rest",
        user_query="How?",
        implicit_needs=[NEED, NEED],
        requirement="All.",
    ),
    candidates=["do 0", "do 1", "do 2", "do 3", "do 4", "do 5", "do 6", "do 7"],
    analysis="a",
    liked=choices("do 0", "do 1"),
    disliked=choices("do 6", "do 7"),
)
"""A topic with two needs, two liked solutions and two disliked ones."""


def framework_of(script: Script) -> dict[str, Any]:
    """Return what a dialogue is about, by topic: T1, T2 and so on.

    A topic has requirements and solutions, each with a label such as T1_N1 or T1_S1.
    """
    return json.loads(script.framework)


SEEDS = st.integers(0, 2000)
PARTS = st.sampled_from(["history", "query"])
TOPIC_COUNTS = st.integers(1, 3)


@given(seed=SEEDS, part=PARTS, topic_count=TOPIC_COUNTS)
def test_a_plan_refers_to_everything_in_its_framework_and_to_nothing_else(
    seed: int, part: Any, topic_count: int
) -> None:
    """The framework lists the requirements and solutions of a dialogue, with labels like T1_S1.

    The plan says what user and assistant do in each turn, and which label they refer to.
    """
    script = draw_script([TOPIC] * topic_count, part, str(seed))

    labels: set[str] = set()
    for topic in framework_of(script).values():
        labels.update(topic["requirements"])
        labels.update(topic["solutions"])
    references: set[str] = set()
    for turn in script.plan:
        references.add(turn.user.reference)
        references.add(turn.assistant.reference)
    assert references == labels


@given(seed=SEEDS, topic_count=TOPIC_COUNTS)
def test_a_query_dialogue_proposes_only_solutions_that_the_user_likes(
    seed: int, topic_count: int
) -> None:
    """A query dialogue is one that the benchmark asks about.

    Solutions that the user likes have the feedback "pos", disliked ones "neg".
    """
    script = draw_script([TOPIC] * topic_count, part="query", seed=str(seed))

    for topic in framework_of(script).values():
        assert topic["solutions"]
        for solution in topic["solutions"].values():
            assert solution["feedback"] == "pos"


@given(seed=SEEDS, part=PARTS, topic_count=TOPIC_COUNTS)
def test_every_plan_follows_the_transitions(seed: int, part: Any, topic_count: int) -> None:
    """Only some actions may follow an action: after a proposal the user discusses it, or rates it.

    `USER_ACTIONS_AFTER` and `ASSISTANT_ACTIONS_AFTER` are tables of the paper Mem-PAL.
    """
    script = draw_script([TOPIC] * topic_count, part, str(seed))

    # A topic begins as if the assistant had just answered the feedback on another one.
    last_reply = "feedback response"
    for turn in script.plan:
        assert turn.user.action in USER_ACTIONS_AFTER[last_reply]
        assert turn.assistant.action in ASSISTANT_ACTIONS_AFTER[turn.user.action]
        last_reply = turn.assistant.action
    assert last_reply == "feedback response"


def draw_1000_scripts(part: Any) -> list[Script]:
    """Draw plans of dialogues about one topic."""
    return [draw_script([TOPIC], part, f"{part} {seed}") for seed in range(1000)]


@pytest.mark.parametrize(
    ("part", "chances"),
    [
        ("history", [0.2, 0.4, 0.4]),
        ("query", [0.5, 0.5, 0.0]),
    ],
)
def test_the_number_of_solutions_is_drawn_with_the_released_chances(
    part: Any, chances: list[float]
) -> None:
    """One, two or three solutions are proposed. The authors of PAL-Bench released the chances."""
    numbers = Counter(
        len(framework_of(script)["T1"]["solutions"]) for script in draw_1000_scripts(part)
    )

    shares = [numbers[1] / 1000, numbers[2] / 1000, numbers[3] / 1000]
    assert shares == pytest.approx(chances, abs=0.05)


@pytest.mark.parametrize("part", ["history", "query"])
def test_one_or_two_needs_are_drawn_with_equal_chances(part: Any) -> None:
    """The user asks a question, and has one or two needs that the assistant must guess.

    The framework calls all of them requirements.
    """
    numbers: Counter[int] = Counter()
    for script in draw_1000_scripts(part):
        requirements = framework_of(script)["T1"]["requirements"]
        number_of_needs = len(requirements) - 1
        numbers[number_of_needs] += 1

    assert set(numbers) == {1, 2}
    assert numbers[1] / 1000 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("part", ["history", "query"])
def test_every_second_solution_is_discussed(part: Any) -> None:
    """The user may discuss a proposed solution before saying whether it is welcome."""
    solutions = 0
    discussions = 0
    for script in draw_1000_scripts(part):
        solutions += len(framework_of(script)["T1"]["solutions"])
        discussions += sum(turn.user.action == "solution discussion" for turn in script.plan)

    assert discussions / solutions == pytest.approx(0.5, abs=0.05)
