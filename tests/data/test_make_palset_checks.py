"""What each step of a PAL-Set must bring, rule by rule; its calendar, and the plans of its dialogues."""

import json
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.synthesis.palset.dates import draw_dialogues, months_of
from mempiler.data.synthesis.palset.dialogue import draw_script
from mempiler.data.synthesis.palset.records import Topic
from mempiler.data.synthesis.palset.texts import foreign, length_problems
from mempiler.errors import UserError
from mempiler.signatures.synthesis_palset import DraftChoice, DraftTopic

from .conftest import AFTER, field, good
from .forms import put

SENTENCE = "The user did it. "
MESSAGE, PLAN = {"type": "message sending"}, {"type": "schedule management"}
RULES = {
    "people": [
        (put("people", 0), "1 users; invent 2"),
        (put("people", 0, "gender", value=" "), "has no gender"),
        (put("people", 0, "age", value=12), "12 years"),
        (put("people", 0, "hobbies", value="One only"), "hobbies has 1 sentences; write 2 to 3"),
        (put("people", 0, "name", value="Ann 1"), "two users are called Ann 1"),
        (put("people", 0, "personality", "openness", value="低"), None),
    ],
    "timeline": [
        (put("timeline", 0), "months are []"),
        (put("timeline", 0, "events", value="..."), "2024-12 is empty"),
        (put("timeline", 0, "events", value=SENTENCE * 5 + "Ann 0 slept."), "names the user"),
    ],
    "requirement_types": [
        (put("requirement_types", 0), "leisure has 3"),
        (put("requirement_types", 0, "text", value="leisure advice 1 at 30"), "is there twice"),
    ],
    "preferences": [
        (lambda answer: answer["preferences"].reverse(), "requirement ids are ['work-4'"),
        (put("preferences", 0, "requirement", value="Rest "), "word for word"),
        (put("preferences", 0, "pos", value="One. Two."), "work-1 pos has 2 sentences"),
        (
            lambda answer: answer["preferences"][0].update(neg=answer["preferences"][0]["pos"]),
            "are the same",
        ),
    ],
    "situations": [
        (put("situations", 0), "3 situations; plan 4 to 6"),
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
        (put("topics", 0, "implicit_needs", 0), "1 implicit needs; give 2"),
        (put("topics", 0, "implicit_needs", 0, "evidences", value=[]), "1 to 5 pieces of evidence"),
        (put("topics", 0, "implicit_needs", 0, "need", value=" "), "need is empty"),
    ],
    "candidates": [
        (put("candidates", 0, "topic", value="topic-9"), "topics are ['topic-9'"),
        (put("candidates", 0, "solutions", 7), "7 solutions; give 8"),
        (
            put("candidates", 0, "solutions", 7, value="Solution 0 of topic-1 "),
            "two solutions are the same",
        ),
        (
            put(
                "candidates",
                0,
                "solutions",
                7,
                value="At 8 a.m. and 9 p.m. see Dr. Li, e.g. on foot.",
            ),
            None,
        ),
    ],
    "analysis": [
        (put("liked", 0), "1 liked solutions; give 2"),
        (put("liked", 0, "solution", value="do 9"), "'do 9' is none of the candidates"),
        (
            lambda answer: answer["disliked"][0].update(answer["liked"][0]),
            "a solution is chosen twice",
        ),
        (put("liked", 0, "feedback_reason", value=""), "feedback_reason is empty"),
    ],
    "logs": [
        (lambda answer: answer["logs"].__delitem__(slice(14, 20)), "14 entries; write 20 or more"),
        (put("logs", 3, "content", value="..."), "entry 4: the content is empty"),
        (
            put("logs", 3, "content", value="Searched for rest."),
            "entry 4: the content has to begin with 'The user'",
        ),
        (
            lambda answer: answer["logs"][3].update(MESSAGE),
            "entry 4: a message sending has to give the message",
        ),
        (
            lambda answer: answer["logs"][3].update(PLAN, content="The user planned tea"),
            "has to give when",
        ),
        (
            lambda answer: answer["logs"][3].update(timestamp=answer["logs"][2]["timestamp"]),
            "is not later than",
        ),
        (put("logs", 19, "timestamp", value="2024-12-31 23:01"), "is not within"),
        (put("logs", 3, "timestamp", value="2024-12-01 8:3"), "is no time"),
        (
            lambda answer: answer["logs"][3].update(MESSAGE, content="The user told Bo: 'Coming.'"),
            None,
        ),
        (
            lambda answer: answer["logs"][3].update(
                PLAN, content="The user planned tea, 09:00-10:00"
            ),
            None,
        ),
    ],
    "turns": [
        (lambda answer: answer["turns"].pop(), "turns; the plan has"),
        (put("turns", 0, "user", "content", value=" "), "turn 1, user: no words"),
        (
            put("turns", 0, "user", "action", value="solution feedback"),
            "turn 1, user: action is solution feedback",
        ),
        (
            put("turns", 1, "assistant", "reference", value="T9_S1"),
            "turn 2, assistant: reference is 'T9_S1'",
        ),
        (put("turns", 0, "user", "action", value="Topic Inquiry"), None),
    ],
    "faults": [(put("faults", value=[{"number": 99, "reason": "x"}]), "there is no record 99")],
    "contradictions": [
        (put("contradictions", value=[{"record": "X3", "reason": "x"}]), "there is no record 'X3'")
    ],
}
"""By output of a step: what breaks a rule of it and how that is told, alone; None where nothing is wrong."""


def test_the_model_is_asked_again_with_the_rule_that_it_broke(made_palset):
    waiting, told = {kind: list(rules) for kind, rules in RULES.items()}, []

    def reply(kind, text, n):
        told.extend(
            (kind, line[2:])
            for line in str(field(text, "complaints")).splitlines()
            if "attempt" not in line
        )
        answer = good(kind, text, n)
        if waiting.get(kind):
            waiting[kind].pop(0)[0](answer)
        return answer

    _, report, _ = made_palset(reply, users=2, months=1, attempts=12, threads=1, reviews=1)
    assert not any(waiting.values())
    assert {one.outcome for one in report.rejections if one.step != "user"} <= {
        "retried",
        "given up",
    }
    for kind, rules in RULES.items():
        wanted = [problem for _, problem in rules if problem]
        found = [problem for step, problem in told if step == kind]
        assert len(found) == len(wanted), found
        assert all(part in problem for part, problem in zip(wanted, found, strict=True)), found


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
        assert [one.partition(" is not")[0] for one in found] == (
            [] if fits else ["people[1].hobbies"]
        )


@pytest.mark.parametrize(
    "text", ["." * 40_000 + "x", ". " * 20_000, "." + " " * 40_000 + "x", "a" * 40_000]
)
def test_counting_sentences_takes_no_longer_than_the_text(text):
    started = time.process_time()
    length_problems("the text", text, 1, 1)
    foreign({"text": text}, "zh")
    assert time.process_time() - started < 2


def test_the_calendar_ends_before_january_2025():
    assert months_of("0000", 1, 0) == ["2024-12"]
    assert months_of("0000", 14, 0)[:3] == ["2023-11", "2023-12", "2024-01"]
    assert {len(months_of("0000", None, seed)) for seed in range(60)} == set(range(7, 13))


def test_a_user_without_a_month_is_refused_and_not_drawn():
    with pytest.raises(
        UserError, match="months = 0: every user has one month or more; None draws 7 to 12"
    ):
        months_of("0000", 0, 0)


@given(seed=st.integers(0, 500), per_month=st.integers(4, 6), months=st.integers(2, 12))
def test_dialogues_are_drawn_by_the_rules(seed, per_month, months):
    known = months_of("0000", months, 0)
    ends = [f"{month}-{n:02d}" for month in known for n in range(10, 10 + per_month)]
    drawn = draw_dialogues("0000", ends, known[-1], seed)
    assert "0000" not in "".join("1" if end in drawn else "0" for end in ends)
    assert set(drawn.values()) == {"history", "query"}
    assert all((part == "query") == end.startswith("2024-12") for end, part in drawn.items())
    assert drawn == draw_dialogues("0000", ends, known[-1], seed)


def test_six_of_ten_situations_get_a_dialogue_and_every_one_after_three_without():
    ends = [f"2024-11-{n:02d}" for n in range(1, 30)] + [f"2024-12-{n}" for n in range(25, 29)]
    drawn = sum(len(draw_dialogues("u", ends, "2024-12", seed)) for seed in range(300))
    # A drop run has 3 at most, so the expected length of a cycle is 1 + .4 + .16 + .064 situations.
    assert drawn / 300 / len(ends) == pytest.approx(1 / (1 + 0.4 + 0.16 + 0.064), abs=0.02)


NEED = {"need": "more rest", "evidences": ["slept badly"]}
TOPIC = {
    "requirement_type": "rest",
    "user_query": "How?",
    "implicit_needs": [NEED, NEED],
    "requirement": "All.",
}
LIKED, DISLIKED = (
    [DraftChoice(solution=f"do {n}", feedback_reason="So.") for n in two]
    for two in ((0, 1), (6, 7))
)
FRAME = Topic(DraftTopic(**TOPIC), [f"do {n}" for n in range(8)], "a", LIKED, DISLIKED)


@given(
    seed=st.integers(0, 2000), part=st.sampled_from(["history", "query"]), count=st.integers(1, 3)
)
def test_every_plan_follows_the_transitions_and_refers_to_its_framework(seed, part, count):
    planned = draw_script([FRAME] * count, part, str(seed))
    framework = json.loads(planned.framework)
    labels = {
        label
        for topic in framework.values()
        for side in ("requirements", "solutions")
        for label in topic[side]
    }
    assert list(framework) == [f"T{n}" for n in range(1, count + 1)]
    assert {utterance.reference for turn in planned.plan for utterance in turn} == labels
    told = [one for topic in framework.values() for one in topic["solutions"].values()]
    if part == "query":
        assert {one["feedback"] for one in told} == {"pos"}
    replies = ["feedback response"]
    for turn in planned.plan:
        assert turn.user.action in AFTER["assistant"][replies[-1]]
        assert turn.assistant.action in AFTER["user"][turn.user.action]
        replies.append(turn.assistant.action)
    assert replies[-1] == "feedback response"


def test_plans_are_drawn_with_the_released_chances():
    for part, wanted in (("history", [0.2, 0.4, 0.4]), ("query", [0.5, 0.5, 0.0])):
        plans = [draw_script([FRAME], part, f"{part} {seed}") for seed in range(1000)]
        topics = [json.loads(each.framework)["T1"] for each in plans]
        counts = Counter(len(each["solutions"]) for each in topics)
        assert [counts[n] / 1000 for n in (1, 2, 3)] == pytest.approx(wanted, abs=0.05)
        assert sum(len(each["requirements"]) == 2 for each in topics) / 1000 == pytest.approx(
            0.5, abs=0.05
        )
        talks = sum(
            turn.user.action == "solution discussion" for each in plans for turn in each.plan
        )
        assert talks / sum(len(each["solutions"]) for each in topics) == pytest.approx(
            0.5, abs=0.05
        )
