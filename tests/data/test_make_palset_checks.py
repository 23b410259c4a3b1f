"""What each step of a PAL-Set must bring, rule by rule."""

import time

import pytest
from mempiler.data.synthesis.palset.framework_checks import (
    candidate_problems,
    choice_problems,
    experience_problems,
    situation_problems,
    topic_problems,
)
from mempiler.data.synthesis.palset.life import in_time, log_problems
from mempiler.data.synthesis.palset.people import Situation
from mempiler.data.synthesis.palset.persona_checks import (
    people_problems,
    preference_problems,
    timeline_problems,
    type_problems,
)
from mempiler.data.synthesis.palset.wording import foreign, length_problems, sentences
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
        ([person(gender=" ")], "has no gender"),
        ([person(age=12)], "12 years"),
        ([person(hobbies="One only")], "hobbies has 1 sentences; write 2 to 3"),
        ([person(name="Cy")], "called Cy"),
        ([person(hobbies="Reads. Walks. Sings. Dr. Li.")], "hobbies has 5 sentences; write 2 to 3"),
        ([person(hobbies="Reads. Walks. Sees Dr. Li.")], None),
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
        ({"pos": f"{FIVE} Six. Seven."}, "work-1 pos has 7 sentences; write 4 to 5"),
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
        (month(s0={"start": "2024-02-03"}), "begins on 2024-02-03"),
        (month(s2={"start": "2024-02-14"}), "begins on 2024-02-14"),
        (month(s3={"end": "2024-02-26"}), "the last situation ends on 2024-02-26"),
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
        ({"user_query": FOUR}, "user_query has 4 sentences; write 1 to 2"),
        ({"implicit_needs": [NEED, {**NEED, "need": "This. That. More."}]}, "need has 3 sentences; write 1"),
        ({"requirement": ""}, "requirement is empty"),
        ({"implicit_needs": [NEED]}, "1 implicit needs; give 2"),
        ({"implicit_needs": [NEED, {**NEED, "evidences": []}]}, "1 to 5 evidences"),
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
        ("topic-1", [*EIGHT[:7], "At 8 a.m. and 9 p.m. see Dr. Li, e.g. on foot."], None),
        ("topic-1", [*EIGHT[:7], "早起；散步；早睡；少看手机。"], None),
        ("topic-1", [*EIGHT[:7], "Do it. Then rest. Then go."], "solution 8 has 3 sentences; write 1"),
        ("topic-1", [*EIGHT[:7], ""], "solution 8 is empty"),
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
        (choices(0, 1, reason="So. And so. And so on."), choices(6, 7), "has 3 sentences; write 1"),
    ],
)
def test_liked_and_disliked(liked, disliked, problem):
    has(choice_problems(liked, disliked, EIGHT, NAME), problem)


SITUATION = Situation("2024-02-01", "2024-02-07", "2024-02-01 08:00:00", "2024-02-07 20:00:00", ["work-1"], FIVE)


def entries(count=15, **changes):
    rows = [
        {"timestamp": f"2024-02-01 08:{n:02d}", "event": "e", "type": "Web_Search", "content": f"The user c{n}"}
        for n in range(count)
    ]
    for key, change in changes.items():
        rows[int(key[1:])].update(change)
    return [DraftLog(**row) for row in rows]


SENT, PLANNED = {"type": "message sending"}, {"type": "schedule management"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (entries(), None),
        (entries(e14={"timestamp": "2024-02-07 20:00"}), None),
        (entries(14), "14 entries; write 20 or more"),
        (entries(e3={"content": "..."}), "entry 4: the content is empty"),
        (entries(e3={"content": "Searched for rest."}), "entry 4: the content has to begin with 'The user'"),
        (entries(e3={"content": "用户搜索了休息的方法。"}), None),
        (entries(e3={"event": "One. Two. Three."}), "entry 4: the event has 3 sentences; write 1"),
        (entries(e3=SENT | {"content": "The user sent a message to Bo: 'Coming.'"}), None),
        (entries(e3=SENT | {"content": "用户给李波发消息：“我到了”"}), None),
        (
            entries(e3=SENT | {"content": "The user told Bo to come"}),
            "a message sending has to give the message",
        ),
        (entries(e3=PLANNED | {"content": "The user planned tea, 09:00-10:00, at home"}), None),
        (entries(e3=PLANNED | {"content": "The user planned tea"}), "a schedule management has to give when"),
        (entries(e3={"timestamp": "2024-02-01 08:02"}), "entry 4: 2024-02-01 08:02 is not later"),
        (entries(e14={"timestamp": "2024-02-07 20:01"}), "is not within"),
        (entries(e3={"timestamp": "2024-02-01 8:3"}), "is no time"),
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
    rows[15].content = "Somebody else did it"
    kept = in_time(rows[::-1], SITUATION)
    assert [int(one.content[10:]) for one in kept] == [1, 2, 3, 4, 7, *range(8, 15)]
    assert log_problems(kept, SITUATION) == ["12 entries; write 20 or more"]


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


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("...", 0), ("no stop", 1), ("It cost 3.5 euros. Yes!", 2), ("一。二！三？", 3), ('"Go." He went.', 2)],
)
def test_sentences_are_counted(text, count):
    assert sentences(text) == count


@pytest.mark.parametrize("text", ["." * 40_000 + "x", ". " * 20_000, "." + " " * 40_000 + "x", "a" * 40_000])
def test_counting_sentences_takes_no_longer_than_the_text(text):
    started = time.perf_counter()
    length_problems("the text", text, 1, 1)
    foreign({"text": text}, "zh")
    assert time.perf_counter() - started < 2
