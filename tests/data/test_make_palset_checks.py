"""The rules of a PAL-Set, one by one: what each step must bring, the calendar, the plans, and the finished data."""

import copy
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.check import check
from mempiler.data.palbench.dialogue import FOLLOWS
from mempiler.data.synthesis.palset.calendar import days_left, draw, moments, months_back, months_of
from mempiler.data.synthesis.palset.framework_checks import (
    candidate_problems,
    choice_problems,
    experience_problems,
    situation_problems,
    topic_problems,
)
from mempiler.data.synthesis.palset.life import in_time, log_problems
from mempiler.data.synthesis.palset.people import Choice, Situation, Topic
from mempiler.data.synthesis.palset.persona_checks import (
    people_problems,
    preference_problems,
    sentences,
    timeline_problems,
    type_problems,
)
from mempiler.data.synthesis.palset.script import script, turn_problems
from mempiler.data.synthesis.palset.validate import faults, validate
from mempiler.errors import DataError
from mempiler.signatures.synthesis_palset import DraftMonth, DraftPerson, DraftPreference, DraftType
from mempiler.signatures.synthesis_palset_records import DraftLog, DraftTurn
from mempiler.signatures.synthesis_palset_situations import DraftCandidates, DraftChoice, DraftSituation, DraftTopic

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


@pytest.mark.parametrize(
    ("people", "problem"),
    [
        ([person()], None),
        ([person(hobbies="用户没有爱好。他常看电视。")], None),
        ([], "0 users; invent 1"),
        ([person(), person(name="Bo")], "2 users; invent 1"),
        ([person(gender=" ")], "has no gender"),
        ([person(age=12)], "12 years"),
        ([person(hobbies="One only")], "hobbies needs two"),
        ([person(name="Cy")], "called Cy"),
    ],
)
def test_profiles(people, problem):
    has(people_problems(people, 1, ["Cy"]), problem)


def test_levels_are_read_in_any_letter_case_and_in_chinese_and_others_refused():
    assert person().personality.openness == "high"
    assert person(personality=dict.fromkeys(person().personality.model_dump(), "低")).personality.openness == "low"
    with pytest.raises(ValueError, match="low"):
        person(personality={**person().personality.model_dump(), "openness": "average"})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"month": "2024-10"}, "months are ['2024-10', '2024-12']"),
        ({"events": FOUR}, "2024-11 has 4 sentences"),
        ({"events": "..."}, "2024-11 is empty"),
        ({"events": f"{FIVE} {NAME} slept."}, "names the user"),
    ],
)
def test_timelines(changes, problem):
    months = [DraftMonth(month=month, events=FIVE) for month in ("2024-11", "2024-12")]
    has(timeline_problems([months[0].model_copy(update=changes), months[1]], ["2024-11", "2024-12"], NAME), problem)


@pytest.mark.parametrize(
    ("counts", "text", "problem"),
    [
        ((4, 5, 4, 5), "kind", None),
        ((3, 4, 4, 4), "kind", "work has 3"),
        ((4, 4, 4, 6), "kind", "leisure has 6"),
        ((4, 4, 4, 4), None, "is there twice"),
    ],
)
def test_requirement_types(counts, text, problem):
    aspects = ("Work", "health", "family", "leisure")
    types = [
        DraftType(aspect=aspect, text=f"{text} {aspect} {n}" if text else f"same {aspect}")
        for aspect, count in zip(aspects, counts, strict=True)
        for n in range(count)
    ]
    has(type_problems(types), problem)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"requirement_id": "work-2"}, "requirement ids are ['work-2']"),
        ({"requirement": "Rest "}, "word for word"),
        ({"requirement": " rest "}, None),
        ({"analysis": ""}, "work-1 analysis is empty"),
        ({"pos": "One. Two."}, "work-1 pos has 2 sentences"),
        ({"neg": FIVE}, "pos and neg are the same"),
        ({"neg": f"{FOUR} So says {NAME}."}, "work-1 neg names the user"),
    ],
)
def test_preferences(changes, problem):
    told = {"requirement_id": "work-1", "requirement": "rest", "analysis": "So.", "pos": FIVE, "neg": FOUR}
    has(preference_problems([DraftPreference(**(told | changes))], {"work-1": "rest"}, NAME), problem)


def month(**changes):
    days = [("2024-01-31", "2024-02-07"), ("2024-02-08", "2024-02-14"), ("2024-02-16", "2024-02-20")]
    rows = [
        {"start": start, "end": end, "requirement_ids": ["work-1", "work-2"], "situation": FIVE}
        for start, end in [*days, ("2024-02-21", "2024-02-27")]
    ]
    for key, change in changes.items():
        rows[int(key[1:])].update(change)
    return [DraftSituation(**row) for row in rows]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (month(), None),
        (month(s3={"end": "2024-02-29"}), None),
        (month(s0={"requirement_ids": "work-1"}), None),
        (month(s0={"start": "2024-01-30"}), "begins on 2024-01-30"),
        (month(s0={"start": "2024-02-03"}), "begins on 2024-02-03"),
        (month(s2={"start": "2024-02-14"}), "begins on 2024-02-14"),
        (month(s3={"end": "2024-02-26"}), "the last situation ends on 2024-02-26"),
        (month(s3={"end": "2024-03-01"}), "situation 4: ends on 2024-03-01"),
        (month(s3={"start": "2024-02-27"}), "situation 4: "),
        (month(s1={"end": "Feb 14"}), "'Feb 14' have to be days"),
        (month(s0={"requirement_ids": ["work-9"]}), "no requirement type work-9"),
        (month(s0={"requirement_ids": ["work-1", "work-1"]}), "a requirement id is there twice"),
        (month(s0={"requirement_ids": []}), "0 requirement ids"),
        (month(s0={"situation": FOUR}), "has 4 sentences"),
        (month()[1:], "situation"),
    ],
)
def test_situations(rows, problem):
    types = {"work-1": "rest", "work-2": "order"}
    has(situation_problems(rows, "2024-02", "2024-01-30", types, NAME), problem)


def test_the_number_of_situations_and_the_first_day_of_all():
    rows, types = month(s0={"start": "2024-02-02"}), {"work-1": "rest", "work-2": "order"}
    assert situation_problems(rows, "2024-02", "", types, NAME) == []
    assert situation_problems(month(), "2024-02", "", types, NAME) == [
        "situation 1: begins on 2024-01-31, not in 2024-02"
    ]
    assert "3 situations; plan 4 to 6" in situation_problems(rows[:3], "2024-02", "", types, NAME)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("x" * 100, None), ("x" * 99, "only 99 characters"), (f"{'x' * 99} {NAME}", "names the user")],
)
def test_experiences(text, problem):
    has(experience_problems(text, NAME), problem)


NEED = {"need": "more rest", "evidences": ["slept badly"]}
TOPIC = {"requirement_type": "rest", "user_query": "How?", "implicit_needs": [NEED, NEED], "requirement": "All."}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"implicit_needs": [NEED, {**NEED, "evidences": "a lone one"}]}, None),
        ({"requirement_type": "order"}, "requirement types are ['order']"),
        ({"user_query": "..."}, "user_query is empty"),
        ({"requirement": ""}, "requirement is empty"),
        ({"implicit_needs": [NEED]}, "1 implicit needs; give 2"),
        ({"implicit_needs": NEED}, "1 implicit needs; give 2"),
        ({"implicit_needs": [NEED, {**NEED, "evidences": []}]}, "1 to 5 evidences"),
        ({"implicit_needs": [NEED, {**NEED, "evidences": ["x"] * 6}]}, "1 to 5 evidences"),
        ({"implicit_needs": [NEED, {**NEED, "need": " "}]}, "need is empty"),
        ({"requirement": f"{NAME} needs all."}, "names the user"),
    ],
)
def test_topics(changes, problem):
    has(topic_problems([DraftTopic(**(TOPIC | changes))], ["rest"], NAME), problem)


EIGHT = [f"do {n}" for n in range(8)]


@pytest.mark.parametrize(
    ("topic", "solutions", "problem"),
    [
        ("topic-1", EIGHT, None),
        ("topic-2", EIGHT, "topics are ['topic-2']"),
        ("topic-1", EIGHT[:7], "7 solutions; give 8"),
        ("topic-1", [*EIGHT[:7], "do 0 "], "two solutions are the same"),
        ("topic-1", [*EIGHT[:7], ""], "a solution is empty"),
    ],
)
def test_candidates(topic, solutions, problem):
    has(candidate_problems([DraftCandidates(topic=topic, solutions=solutions)], ["topic-1"]), problem)


def choices(*numbers, reason="So."):
    return [DraftChoice(solution=f"do {n}", feedback_reason=reason) for n in numbers]


@pytest.mark.parametrize(
    ("liked", "disliked", "problem"),
    [
        (choices(0, 1), choices(6, 7), None),
        (choices(0), choices(6, 7), "1 liked solutions; give 2"),
        (choices(0, 1), choices(5, 6, 7), "3 disliked solutions; give 2"),
        (choices(0, 9), choices(6, 7), "'do 9' is none of the candidates"),
        (choices(0, 1), choices(1, 7), "a solution is chosen twice"),
        (choices(0, 1, reason=""), choices(6, 7), "feedback_reason is empty"),
    ],
)
def test_liked_and_disliked(liked, disliked, problem):
    has(choice_problems(liked, disliked, EIGHT, NAME), problem)


SITUATION = Situation("2024-02-01", "2024-02-07", "2024-02-01 08:00:00", "2024-02-07 20:00:00", ["work-1"], FIVE)


def entries(count=15, **changes):
    rows = [
        {"timestamp": f"2024-02-01 08:{n:02d}", "event": "e", "type": "Web_Search", "content": f"c{n}"}
        for n in range(count)
    ]
    for key, change in changes.items():
        rows[int(key[1:])].update(change)
    return [DraftLog(**row) for row in rows]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (entries(), None),
        (entries(e14={"timestamp": "2024-02-07 20:00"}), None),
        (entries(14), "14 entries; write 20 or more"),
        (entries(e3={"content": "..."}), "entry 4: the content is empty"),
        (entries(e3={"timestamp": "2024-02-01 08:02"}), "entry 4: 2024-02-01 08:02 is not later"),
        (entries(e0={"timestamp": "2024-02-01 07:59"}), "is not within"),
        (entries(e14={"timestamp": "2024-02-07 20:01"}), "is not within"),
        (entries(e3={"timestamp": "2024-02-01 8:3"}), "is no time"),
        (entries(e3={"timestamp": "2024-02-30 08:03"}), "is no time"),
    ],
)
def test_logs(rows, problem):
    has(log_problems(rows, SITUATION), problem)


def test_types_and_actions_are_read_in_chinese():
    assert entries(1, e0={"type": "“交易记录”"})[0].type == "transaction record"
    turn = {"user": {"action": "方案讨论", "reference": "T1_S1", "content": "c"}}
    turn["assistant"] = {"action": "方案讨论", "reference": "T1_S1", "content": "c"}
    assert {said.action for said in (DraftTurn(**turn).user, DraftTurn(**turn).assistant)} == {"solution discussion"}
    with pytest.raises(ValueError, match="web search"):
        entries(1, e0={"type": "telepathy"})


def test_entries_out_of_time_are_left_out_and_the_rest_is_ordered():
    rows = entries(
        16, e0={"timestamp": "2023-01-01 08:00"}, e5={"timestamp": "soon"}, e7={"timestamp": "2024-02-01 08:06"}
    )
    kept = in_time(rows[::-1], SITUATION)
    assert [one.content for one in kept] == ["c1", "c2", "c3", "c4", "c7", *(f"c{n}" for n in range(8, 16))]
    assert log_problems(kept, SITUATION) == ["13 entries; write 20 or more"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("...", 0), ("no stop", 1), ("It cost 3.5 euros. Yes!", 2), ("一。二！三？", 3), ('"Go." He went.', 2)],
)
def test_sentences_are_counted(text, count):
    assert sentences(text) == count


def test_the_calendar_ends_before_january_2025():
    assert months_back(1) == ["2024-12"]
    assert months_back(14)[:3] == ["2023-11", "2023-12", "2024-01"]
    assert {len(months_of("0000", None, seed)) for seed in range(60)} == set(range(7, 13))
    assert months_of("0000", 3, 0) == ["2024-10", "2024-11", "2024-12"]


@given(seed=st.integers(0, 500), per_month=st.integers(4, 6), months=st.integers(2, 12))
def test_dialogues_are_drawn_by_the_rules(seed, per_month, months):
    known = months_back(months)
    ends = [f"{month}-{n:02d}" for month in known for n in range(10, 10 + per_month)]
    history, query = draw("0000", ends, known[-1], seed)
    kept = [end in {*history, *query} for end in ends]
    assert "0000" not in "".join("1" if one else "0" for one in kept)
    assert query
    assert {end[:7] for end in query} == {"2024-12"}
    assert history
    assert not any(end.startswith("2024-12") for end in history)
    assert (history, query) == draw("0000", ends, known[-1], seed)


def test_six_of_ten_situations_get_a_dialogue_and_every_one_after_three_without():
    ends = [f"2024-11-{n:02d}" for n in range(1, 30)] + ["2024-12-28"] * 4
    drawn = sum(len(part) for seed in range(300) for part in draw("u", ends, "2024-12", seed))
    # A drop run has 3 at most, so the expected length of a cycle is 1 + .4 + .16 + .064 situations.
    assert drawn / 300 / len(ends) == pytest.approx(1 / (1 + 0.4 + 0.16 + 0.064), abs=0.02)


def test_situations_begin_in_the_morning_and_end_in_the_afternoon():
    times = [moments("0000", "2024-02-01", "2024-02-07", seed) for seed in range(300)]
    assert {int(begin[11:13]) for begin, _ in times} == set(range(7, 13))
    assert {int(end[11:13]) for _, end in times} == set(range(12, 22))
    assert all(begin.endswith(":00:00") and end.startswith("2024-02-07") for begin, end in times)


@pytest.mark.parametrize(("day", "left"), [("2024-02-27", 2), ("2024-12-31", 0), ("2023-02-28", 0), ("2024-12-29", 2)])
def test_days_left_of_a_month(day, left):
    from datetime import date

    assert days_left(date.fromisoformat(day)) == left


FRAME = Topic("work-1", DraftTopic(**TOPIC), EIGHT, Choice(analysis="a", liked=choices(0, 1), disliked=choices(6, 7)))


@given(seed=st.integers(0, 2000), part=st.sampled_from(["history", "query"]), count=st.integers(1, 3))
def test_every_plan_follows_the_transitions_and_refers_to_its_framework(seed, part, count):
    planned = script([FRAME] * count, part, str(seed))
    framework = json.loads(planned.framework)
    labels = {label for topic in framework.values() for side in ("requirements", "solutions") for label in topic[side]}
    assert list(framework) == [f"T{n}" for n in range(1, count + 1)]
    assert {one.user_reference for one in planned.plan} | {one.assistant_reference for one in planned.plan} == labels
    assert all(one.assistant in FOLLOWS[one.user] for one in planned.plan)
    told = [one for topic in framework.values() for one in topic["solutions"].values()]
    assert part == "history" or {one["feedback"] for one in told} == {"pos"}
    assert len(planned.lines) == len(planned.plan)
    turns = [
        {
            "user": {"action": one.user, "content": "words"},
            "assistant": {"action": one.assistant, "content": "words"},
        }
        for one in planned.plan
    ]
    found = finished()
    found["0000"]["query"][0]["dialogue"] = {f"turn_{n}": turn for n, turn in enumerate(turns, 1)}
    assert list(faults(found)) == []


def test_plans_are_drawn_with_the_released_chances():
    counts = {"history": Counter(), "query": Counter()}
    needs, talks, proposals = Counter(), 0, 0
    for seed in range(1500):
        for part, counter in counts.items():
            planned = script([FRAME], part, f"{part} {seed}")
            topic = json.loads(planned.framework)["T1"]
            counter[len(topic["solutions"])] += 1
            needs[len(topic["requirements"]) - 1] += 1
            talks += sum(one.user == "solution discussion" for one in planned.plan)
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
        (
            lambda turns: turns[0]["user"].update(action="solution feedback"),
            "turn 1, user: action is solution feedback",
        ),
        (lambda turns: turns[1]["assistant"].update(reference="T9_S1"), "turn 2, assistant: reference is 'T9_S1'"),
    ],
)
def test_dialogues_follow_their_plan(change, problem):
    plan = script([FRAME], "history", "7").plan
    turns = [
        {
            "user": {"action": one.user.title(), "reference": one.user_reference, "content": "words"},
            "assistant": {"action": one.assistant, "reference": f" {one.assistant_reference}", "content": "words"},
        }
        for one in plan
    ]
    change(turns)
    has(turn_problems([DraftTurn(**turn) for turn in turns], plan), problem)


def finished():
    """The content of a data file with one history and one query sample."""
    said = [
        ("话题询问", "需求推测"), ("需求确认", "方案提议"), ("方案讨论", "方案讨论"), ("方案反馈", "反馈回应"),
    ]  # fmt: skip
    feedback = ["pos", "pos", "neg", "neg", "neu", "neu", "neu", "neu"]
    topic = {
        "user_query": "How?",
        "implicit_needs": ["a", "b"],
        "requirement": "All.",
        "solution": {"pos": EIGHT[:2], "neg": EIGHT[2:4]},
        "candidate_solutions": [{"solution": s, "feedback": f} for s, f in zip(EIGHT, feedback, strict=True)],
    }
    samples = [
        {
            "sample_id": f"0000_sample{n}",
            "dialogue_timestamp": f"2024-{month}-20 20:00:00",
            "logs": [{"timestamp": f"2024-{month}-20 {hour}:00", "content": "c"} for hour in (10, 20)],
            "dialogue": {
                f"turn_{t}": {"user": {"action": u, "content": "c"}, "assistant": {"action": a, "content": "c"}}
                for t, (u, a) in enumerate(said, 1)
            },
            "topics": {"topic-1": copy.deepcopy(topic)},
        }
        for n, month in enumerate(("11", "12"))
    ]
    return {"0000": {"history": samples[:1], "query": samples[1:]}}


def sample(change):
    def doctored():
        found = finished()
        change(found["0000"]["query"][0])
        return found

    return doctored


def first_topic(change):
    return sample(lambda row: change(row["topics"]["topic-1"]))


DOCTORED = {
    "an object with user ids": list,
    "'history' and 'query'": lambda: {"0000": {"history": []}},
    "its query set is empty": lambda: {"0000": {**finished()["0000"], "query": []}},
    "expected an object with sample_id": sample(lambda row: row.pop("logs")),
    "ids count on": sample(lambda row: row.update(sample_id="0000_sample2")),
    "is not YYYY-MM-DD HH:MM:SS": sample(lambda row: row.update(dialogue_timestamp="2024-12-20 20:00")),
    "not after the one before": lambda: {"0000": {"history": [], "query": swapped()}},
    "no logs": sample(lambda row: row["logs"].clear()),
    "no object with timestamp and content": sample(lambda row: row["logs"][0].update(content=" ")),
    "is not YYYY-MM-DD HH:MM": sample(lambda row: row["logs"][0].update(timestamp="2024-12-20 10:00:00")),
    "not between the dialogues": sample(lambda row: row["logs"][1].update(timestamp="2024-12-20 20:01")),
    "is not between the dialogues of 2024-11": sample(lambda row: row["logs"][0].update(timestamp="2024-11-20 20:00")),
    "is earlier than": sample(lambda row: row["logs"].reverse()),
    "turns are": sample(lambda row: row["dialogue"].update(turn_9=row["dialogue"].pop("turn_4"))),
    "the user has no action": sample(lambda row: row["dialogue"]["turn_1"].pop("user")),
    "no action of the user": sample(lambda row: row["dialogue"]["turn_1"]["user"].update(action="需求推测")),
    "cannot follow": sample(lambda row: row["dialogue"]["turn_2"]["assistant"].update(action="feedback response")),
    "ends with solution discussion": sample(lambda row: row["dialogue"].pop("turn_4")),
    "expected topic-1": sample(lambda row: row["topics"].clear()),
    "expected user_query": first_topic(lambda topic: topic.pop("requirement")),
    "two implicit needs": first_topic(lambda topic: topic["implicit_needs"].pop()),
    "expected 8 different ones": first_topic(lambda topic: topic["candidate_solutions"].pop()),
    "no object with solution and feedback": first_topic(lambda topic: topic["candidate_solutions"][0].pop("feedback")),
    "solution.pos is not": first_topic(lambda topic: topic["solution"].update(pos=EIGHT[1:3])),
    "is none of pos, neg, neu": first_topic(lambda topic: topic["candidate_solutions"][7].update(feedback="so-so")),
    "not the last month alone": sample(lambda row: None),
}


def swapped():
    found = finished()["0000"]
    return [*found["query"], *found["history"]]


@pytest.mark.parametrize("problem", DOCTORED)
def test_the_validator_sees_what_was_doctored(problem):
    content = DOCTORED[problem]()
    if "last month" in problem:
        content["0000"]["history"][0]["dialogue_timestamp"] = "2024-12-01 20:00:00"
    assert any(problem in fault.message for fault in faults(content))


def test_the_validator_finds_nothing_in_good_data_and_reads_files(tmp_path):
    assert list(faults(finished())) == []
    path = tmp_path / "input.json"
    path.write_text(json.dumps(finished()))
    assert validate(path) == []
    path.write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        validate(path)


@given(
    st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["history", "query", "logs", "dialogue", "topics", "user"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_the_validator_copes_with_anything(value):
    for content in (value, {"0000": value}, {"0000": {"history": [], "query": [value]}}):
        assert list(faults(content))


def test_the_check_of_the_benchmark_lists_faults_when_it_is_strict(tmp_path):
    content = finished()
    content["0000"]["query"][0]["sample_id"] = "0000_sample9"
    (tmp_path / "input.json").write_text(json.dumps(content))
    assert check("palbench", tmp_path).rows == ()
    report = check("palbench", tmp_path, strict=True)
    assert report.kinds == {"form": 1}
    assert report.ok
