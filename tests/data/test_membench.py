"""MemBench: the forms of its files, both ways of counting target steps, what is kept, and capacity."""

import dspy
import pytest
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.errors import UserError

from .forms import FORMS, lines, write

FORM = FORMS["membench"]["simple.json"]["roles"][0]
PLAIN, FACT = FORM["message_list"][1][0], FORM["message_list"][0][1]
HEARD = [
    {"message": "Hello.", "time": "'2024-09-30 08:00' Monday", "place": "Faro"},
    {"message": "She sings.", "time": "'2024-10-01 08:05' Tuesday", "place": "Faro"},
]
LOADED = [f"{each['message']} (place: Faro; time{each['time']})" for each in HEARD]
PAIRS = [{"user": text, "agent": "Good."} for text in LOADED]


def asked(messages, targets):
    """A trajectory."""
    return {"message_list": messages, "QA": {**FORM["QA"], "target_step_id": targets}}


@pytest.mark.parametrize(
    ("name", "content", "id", "evidence"),
    [
        ("noisy", {"events": [asked(HEARD, [1])]}, "third:noisy:events:1", ["D2:1"]),
        ("highlevel", {"food": [asked([HEARD], [[1, 0]])]}, "third:highlevel:food:1", ["D2:1"]),
        ("joined", {"simple": {"roles": [asked(LOADED, [1])]}}, "third:simple:roles:1", ["D2:1"]),
        (
            "joined",
            {"noisy": {"book": [asked(PAIRS, [1])]}},
            "first:noisy:book:1",
            ["D2:1", "D2:2"],
        ),
        (
            "all_sampled20",
            {"Emotion": [asked([PAIRS[:1], PAIRS[1:]], [[1, 1]])]},
            "first:Emotion:1",
            ["D2:1", "D2:2"],
        ),
    ],
)
def test_every_form_is_read_with_its_agent_its_days_and_its_evidence(
    tmp_path, name, content, id, evidence
):
    (example,) = benchmark("membench", write(tmp_path, {f"{name}.json": content})).examples
    assert example.id == id
    assert list(example.evidence) == evidence
    assert (
        lines(example)[-len(evidence)]
        == "[D2:1] (1 October 2024, Tuesday 08:05) user: She sings. (place: Faro)"
    )


@pytest.mark.parametrize(
    ("second", "target", "evidence"),
    [
        ([FACT, PLAIN, PLAIN], [2, 1], ["D2:1", "D2:2"]),
        ([PLAIN, PLAIN, FACT], [2, 1], ["D2:5", "D2:6"]),
        ([PLAIN, PLAIN, PLAIN], [2, 1], ["D2:1"]),
        ([PLAIN, PLAIN, PLAIN], [0, 1], ["D2:1"]),
    ],
)
def test_the_file_decides_whether_steps_count_in_their_session(tmp_path, second, target, evidence):
    path = write(tmp_path, {"simple.json": {"roles": [asked([[PLAIN, PLAIN], second], [target])]}})
    assert list(benchmark("membench", path).examples[0].evidence) == evidence


@pytest.mark.parametrize("method", ["turn-rag", "memory-bank"])
def test_the_time_of_a_question_is_in_the_prompt_and_in_what_the_memory_is_searched_with(
    scripted, method
):
    loaded = benchmark("membench")
    example = next(each for each in loaded.examples if each.date)
    asked = f"{example.question} (asked on {example.date})"
    program, lm = build(method, loaded.task), scripted(lambda kind, text, n: {kind: "(a)"})
    with dspy.context(lm=lm):
        program(**example.inputs())
    assert program.query_of(example).search_text == asked
    assert f"[[ ## question ## ]]\n{asked}\n" in lm.engine.prompts[-1][1]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"agent": "third"}, 12),
        ({"level": "high"}, 4),
        ({"types": "simple, noisy"}, 6),
        ({"scenarios": "food"}, 2),
    ],
)
def test_options_keep_a_part_of_the_sample(options, count):
    assert len(benchmark("membench", **options).examples) == count
    with pytest.raises(UserError, match=r"unknown \w+ of these questions 'x'|should be"):
        benchmark("membench", **dict.fromkeys(options, "x"))


def test_one_question_in_two_files_of_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="'first:simple:roles:1' is in another file too"):
        benchmark(
            "membench",
            write(tmp_path, {f"{who}Agent/simple.json": {"roles": [FORM]} for who in "AB"}).parents[
                1
            ],
        )


def test_findings_stand_in_the_order_of_the_file(tmp_path):
    content = {
        "simple": {"roles": [asked(HEARD, [7])]},
        "noisy": {"roles": [{}, asked(HEARD, [1])]},
    }
    report = check("membench", write(tmp_path, {"joined.json": content}))
    places = [finding.where.partition(", field")[0] for finding in report.findings]
    assert list(dict.fromkeys(places)) == [
        "joined.json, simple, roles, trajectory 1",
        "joined.json, noisy, roles, trajectory 1",
    ]
