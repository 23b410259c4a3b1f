"""What each step of a PAL-Set must bring, rule by rule; its calendar, and the plans of its dialogues."""

import json
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.synthesis.palset.dialogue import (
    candidate_problems,
    choice_problems,
    script,
    topic_problems,
    turn_problems,
)
from mempiler.data.synthesis.palset.life import (
    draw,
    experience_problems,
    in_time,
    log_problems,
    moments,
    situation_problems,
)
from mempiler.data.synthesis.palset.people import (
    Topic,
    foreign,
    length_problems,
    months_of,
    people_problems,
    preference_problems,
    timeline_problems,
    type_problems,
)
from mempiler.signatures.synthesis_palset import (
    DraftCandidates,
    DraftChoice,
    DraftMonth,
    DraftPerson,
    DraftPreference,
    DraftSituation,
    DraftTopic,
    DraftType,
)
from mempiler.signatures.synthesis_palset_records import DraftLog, DraftTurn

from .conftest import AFTER

FIVE, FOUR, NAME = "One. Two! Three? Four. Five.", "One. Two. Three. Four.", "Ann Bell"


def has(found, problem):
    """None: nothing may be found; otherwise exactly the rule that was broken, and nothing else."""
    assert bool(found) == (problem is not None), found
    assert all(problem in text for text in found)


def person(**changes):
    traits = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
    told = dict.fromkeys(("occupation", "health_status", "family_members", "hobbies"), "Works. Rests.")
    about = {"name": NAME, "gender": "f", "age": 40, "personality": dict.fromkeys(traits, "HIGH")}
    return DraftPerson(**{**about, **told, **changes})


def test_levels_are_read_in_any_letter_case_and_in_chinese_and_others_refused():
    assert person().personality.openness == "high"
    assert person(personality=dict.fromkeys(person().personality.model_dump(), "低")).personality.openness == "low"
    with pytest.raises(ValueError, match="low"):
        person(personality={**person().personality.model_dump(), "openness": "average"})


def profiles(*found):
    return people_problems(found, 1, ["Cy"])


def timeline(**changes):
    first, second = (DraftMonth(month=month, events=FIVE) for month in ("2024-11", "2024-12"))
    return timeline_problems([first.model_copy(update=changes), second], ["2024-11", "2024-12"], NAME)


def types(count):
    aspects = [aspect for aspect in ("Work", "health", "family", "leisure") for _ in range(4)][4 - count :]
    return type_problems([DraftType(aspect=each, text=f"{each} {n}") for n, each in enumerate(aspects)])


def preference(**changes):
    told = {"requirement_id": "work-1", "requirement": "rest", "analysis": "So.", "pos": FIVE, "neg": FOUR}
    return preference_problems([DraftPreference(**(told | changes))], {"work-1": "rest"}, NAME)


def month(**changes):
    days = [("2024-01-31", "2024-02-07"), ("2024-02-08", "2024-02-14"), ("2024-02-16", "2024-02-20")]
    rows = [
        {"start": start, "end": end, "requirement_ids": ["work-1", "work-2"], "situation": FIVE}
        for start, end in [*days, ("2024-02-21", "2024-02-27")]
    ]
    for key, change in changes.items():
        rows[int(key[1:])].update(change)
    return [DraftSituation(**row) for row in rows]


def situations(rows):
    return situation_problems(rows, "2024-02", "2024-01-30", {"work-1": "rest", "work-2": "order"}, NAME)


NEED = {"need": "more rest", "evidences": ["slept badly"]}
TOPIC = {"requirement_type": "rest", "user_query": "How?", "implicit_needs": [NEED, NEED], "requirement": "All."}


def topic(**changes):
    return topic_problems([DraftTopic(**(TOPIC | changes))], ["rest"], NAME)


EIGHT = [f"do {n}" for n in range(8)]


def candidates(last, topic="topic-1"):
    return candidate_problems([DraftCandidates(topic=topic, solutions=[*EIGHT[:7], *last])], ["topic-1"])


def choices(*numbers, reason="So."):
    return [DraftChoice(solution=f"do {n}", feedback_reason=reason) for n in numbers]


def chosen(liked, disliked):
    return choice_problems(liked, disliked, EIGHT, NAME)


SPAN = ("2024-02-01 08:00", "2024-02-07 20:00")


def entries(count=15, **changes):
    rows = [
        {"timestamp": f"2024-02-01 08:{n:02d}", "event": "e", "type": "Web_Search", "content": f"The user c{n}"}
        for n in range(count)
    ]
    for key, change in changes.items():
        rows[int(key[1:])].update(change)
    return [DraftLog(**row) for row in rows]


def logs(rows):
    return log_problems(rows, *SPAN)


SENT, PLANNED = {"type": "message sending"}, {"type": "schedule management"}
RULES = [
    (profiles(person(hobbies="用户没有爱好。他常看电视。")), None),
    (profiles(), "0 users; invent 1"),
    (profiles(person(gender=" ")), "has no gender"),
    (profiles(person(age=12)), "12 years"),
    (profiles(person(hobbies="One only")), "hobbies has 1 sentences; write 2 to 3"),
    (profiles(person(name="Cy")), "called Cy"),
    (timeline(month="2024-10"), "months are ['2024-10', '2024-12']"),
    (timeline(events="..."), "2024-11 is empty"),
    (timeline(events=f"{FIVE} {NAME} slept."), "names the user"),
    (types(3), "work has 3"),
    (preference(requirement_id="work-2"), "requirement ids are ['work-2']"),
    (preference(requirement="Rest "), "word for word"),
    (preference(pos="One. Two."), "work-1 pos has 2 sentences"),
    (preference(neg=FIVE), "pos and neg are the same"),
    (situations(month(s0={"start": "2024-02-03"})), "begins on 2024-02-03"),
    (situations(month(s2={"start": "2024-02-14"})), "begins on 2024-02-14"),
    (situations(month(s3={"end": "2024-02-26"})), "the last situation ends on 2024-02-26"),
    (situations(month(s1={"end": "Feb 14"})), "'Feb 14' have to be days"),
    (situations(month(s0={"requirement_ids": ["work-9"]})), "no requirement type work-9"),
    (situations(month(s0={"requirement_ids": ["work-1", "work-1"]})), "a requirement id is there twice"),
    (situations(month(s0={"requirement_ids": []})), "0 requirement ids"),
    (experience_problems("x" * 100, NAME), None),
    (experience_problems("x" * 99, NAME), "only 99 characters"),
    (topic(requirement_type="order"), "requirement types are ['order']"),
    (topic(user_query=FOUR), "user_query has 4 sentences; write 1 to 2"),
    (topic(implicit_needs=[NEED]), "1 implicit needs; give 2"),
    (topic(implicit_needs=[NEED, {**NEED, "evidences": []}]), "1 to 5 evidences"),
    (topic(implicit_needs=[NEED, {**NEED, "need": " "}]), "need is empty"),
    (candidates(["At 8 a.m. and 9 p.m. see Dr. Li, e.g. on foot."]), None),
    (candidates(["早起；散步；早睡；少看手机。"]), None),
    (candidates(["do 7"], "topic-2"), "topics are ['topic-2']"),
    (candidates([]), "7 solutions; give 8"),
    (candidates(["do 0 "]), "two solutions are the same"),
    (chosen(choices(0), choices(6, 7)), "1 liked solutions; give 2"),
    (chosen(choices(0, 9), choices(6, 7)), "'do 9' is none of the candidates"),
    (chosen(choices(0, 1), choices(1, 7)), "a solution is chosen twice"),
    (chosen(choices(0, 1, reason=""), choices(6, 7)), "feedback_reason is empty"),
    (logs(entries(e14={"timestamp": "2024-02-07 20:00"})), None),
    (logs(entries(14)), "14 entries; write 20 or more"),
    (logs(entries(e3={"content": "..."})), "entry 4: the content is empty"),
    (logs(entries(e3={"content": "Searched for rest."})), "entry 4: the content has to begin with 'The user'"),
    (logs(entries(e3=SENT | {"content": "The user sent a message to Bo: 'Coming.'"})), None),
    (logs(entries(e3=SENT | {"content": "The user told Bo to come"})), "a message sending has to give the message"),
    (logs(entries(e3=PLANNED | {"content": "The user planned tea, 09:00-10:00, at home"})), None),
    (logs(entries(e3=PLANNED | {"content": "The user planned tea"})), "a schedule management has to give when"),
    (logs(entries(e3={"timestamp": "2024-02-01 08:02"})), "entry 4: 2024-02-01 08:02 is not later"),
    (logs(entries(e14={"timestamp": "2024-02-07 20:01"})), "is not within"),
    (logs(entries(e3={"timestamp": "2024-02-01 8:3"})), "is no time"),
]


@pytest.mark.parametrize(("found", "problem"), RULES)
def test_the_rule_that_was_broken_is_told_and_no_other(found, problem):
    has(found, problem)


def test_the_number_of_situations_and_the_first_day_of_all():
    rows, types = month(s0={"start": "2024-02-02"}), {"work-1": "rest", "work-2": "order"}
    assert situation_problems(rows, "2024-02", "", types, NAME) == []
    assert "3 situations; plan 4 to 6" in situation_problems(rows[:3], "2024-02", "", types, NAME)


def test_entries_out_of_time_are_left_out_and_the_rest_is_ordered():
    rows = entries(
        16, e0={"timestamp": "2023-01-01 08:00"}, e5={"timestamp": "soon"}, e7={"timestamp": "2024-02-01 08:06"}
    )
    rows[15].content = "Somebody else did it"
    kept = in_time(rows[::-1], *SPAN)
    assert [int(one.content[10:]) for one in kept] == [1, 2, 3, 4, 7, *range(8, 15)]
    assert log_problems(kept, *SPAN) == ["12 entries; write 20 or more"]


@pytest.mark.parametrize(
    ("text", "in_chinese", "in_english"),
    [
        ("The user slept badly.", False, True),
        ("用户睡得不好。", True, False),
        ("用户在手机上打开了 Smart Home App", True, False),
        ("The user typed 早 into Smart Home App", False, True),
        ("T1_N1", True, True),
        ("2024-02-01 08:03", True, True),
    ],
)
def test_a_text_is_in_the_language_that_has_more_of_it(text, in_chinese, in_english):
    for language, fits in (("zh", in_chinese), ("en", in_english)):
        found = foreign({"people": [{"hobbies": text}]}, language)
        assert [one.partition(" is not")[0] for one in found] == ([] if fits else ["people[1].hobbies"])


@pytest.mark.parametrize("text", ["." * 40_000 + "x", ". " * 20_000, "." + " " * 40_000 + "x", "a" * 40_000])
def test_counting_sentences_takes_no_longer_than_the_text(text):
    started = time.perf_counter()
    length_problems("the text", text, 1, 1)
    foreign({"text": text}, "zh")
    assert time.perf_counter() - started < 2


def test_the_calendar_ends_before_january_2025():
    assert months_of("0000", 1, 0) == ["2024-12"]
    assert months_of("0000", 14, 0)[:3] == ["2023-11", "2023-12", "2024-01"]
    assert {len(months_of("0000", None, seed)) for seed in range(60)} == set(range(7, 13))


@given(seed=st.integers(0, 500), per_month=st.integers(4, 6), months=st.integers(2, 12))
def test_dialogues_are_drawn_by_the_rules(seed, per_month, months):
    known = months_of("0000", months, 0)
    ends = [f"{month}-{n:02d}" for month in known for n in range(10, 10 + per_month)]
    drawn = draw("0000", ends, known[-1], seed)
    assert "0000" not in "".join("1" if end in drawn else "0" for end in ends)
    assert set(drawn.values()) == {"history", "query"}
    assert all((part == "query") == end.startswith("2024-12") for end, part in drawn.items())
    assert drawn == draw("0000", ends, known[-1], seed)


def test_six_of_ten_situations_get_a_dialogue_and_every_one_after_three_without():
    ends = [f"2024-11-{n:02d}" for n in range(1, 30)] + [f"2024-12-{n}" for n in range(25, 29)]
    drawn = sum(len(draw("u", ends, "2024-12", seed)) for seed in range(300))
    # A drop run has 3 at most, so the expected length of a cycle is 1 + .4 + .16 + .064 situations.
    assert drawn / 300 / len(ends) == pytest.approx(1 / (1 + 0.4 + 0.16 + 0.064), abs=0.02)


def test_situations_begin_in_the_morning_and_end_in_the_afternoon():
    times = [moments("0000", "2024-02-01", "2024-02-07", seed) for seed in range(300)]
    assert {begin[11:] for begin, _ in times} == {f"{hour:02d}:00:00" for hour in range(7, 13)}
    assert {end for _, end in times} == {f"2024-02-07 {hour:02d}:00:00" for hour in range(12, 22)}


FRAME = Topic(DraftTopic(**TOPIC), EIGHT, "a", choices(0, 1), choices(6, 7))


@given(seed=st.integers(0, 2000), part=st.sampled_from(["history", "query"]), count=st.integers(1, 3))
def test_every_plan_follows_the_transitions_and_refers_to_its_framework(seed, part, count):
    planned = script([FRAME] * count, part, str(seed))
    framework = json.loads(planned.framework)
    labels = {label for topic in framework.values() for side in ("requirements", "solutions") for label in topic[side]}
    assert list(framework) == [f"T{n}" for n in range(1, count + 1)]
    assert {label for one in planned.plan for _, label in one.values()} == labels
    told = [one for topic in framework.values() for one in topic["solutions"].values()]
    assert part == "history" or {one["feedback"] for one in told} == {"pos"}
    replies = ["feedback response"]
    for one in planned.plan:
        assert one["user"][0] in AFTER["assistant"][replies[-1]]
        assert one["assistant"][0] in AFTER["user"][one["user"][0]]
        replies.append(one["assistant"][0])
    assert replies[-1] == "feedback response"


def test_plans_are_drawn_with_the_released_chances():
    counts = {"history": Counter(), "query": Counter()}
    needs, talks, proposals = Counter(), 0, 0
    for seed in range(1500):
        for part, counter in counts.items():
            planned = script([FRAME], part, f"{part} {seed}")
            topic = json.loads(planned.framework)["T1"]
            counter[len(topic["solutions"])] += 1
            needs[len(topic["requirements"]) - 1] += 1
            talks += sum(one["user"][0] == "solution discussion" for one in planned.plan)
            proposals += len(topic["solutions"])
    share = {part: [counter[n] / 1500 for n in (1, 2, 3)] for part, counter in counts.items()}
    assert share["history"] == pytest.approx([0.2, 0.4, 0.4], abs=0.04)
    assert share["query"] == pytest.approx([0.5, 0.5, 0.0], abs=0.04)
    assert needs[1] / 3000 == pytest.approx(0.5, abs=0.03)
    assert talks / proposals == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda turns: None, None),
        (lambda turns: turns.pop(), "turns; the plan has"),
        (lambda turns: turns[0]["user"].update(content=" "), "turn 1, user: no words"),
        (lambda turns: turns[0]["user"].update(action="solution feedback"), "turn 1, user: action is solution feed"),
        (lambda turns: turns[1]["assistant"].update(reference="T9_S1"), "turn 2, assistant: reference is 'T9_S1'"),
    ],
)
def test_dialogues_follow_their_plan(change, problem):
    plan = script([FRAME], "history", "7").plan
    turns = [
        {
            role: {"action": said.title(), "reference": f" {label}", "content": "words"}
            for role, (said, label) in one.items()
        }
        for one in plan
    ]
    change(turns)
    has(turn_problems([DraftTurn(**turn) for turn in turns], plan), problem)
