"""A MemoryQuest is written from profiles: what is checked, asked for again, and left out.

MemoryQuest is a benchmark of requests to an assistant, such as "Plan party". A good response needs
references: facts that the user told in earlier sessions. A language model writes such data about
the users of PersonaLens, whose profiles list their interests by domain. For each user it writes

- requests with their references (the output field "queries"),
- a plan of events for each request, some of which tell a reference ("events"),
- and a dialogue for each event, which becomes a session ("turns").

`flawless_model` plays the language model; a test puts mistakes into its answers. The report lists
what was refused, and whether it was retried, given up or left out.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from dspy.lm15 import InvalidRequestError
from mempiler.data.memoryquest import MemoryQuest
from mempiler.data.synthesis.memoryquest.make import make_memoryquest
from mempiler.data.synthesis.memoryquest.profiles import read_profiles
from mempiler.data.synthesis.runner import Runner
from mempiler.errors import DataError, UserError

from ..scripted_engine import Reply
from .scripted_memoryquest import RequestEmbedder, dialogue, events, flawless_model, request
from .scripted_palset import prompt_field


class MadeQuest(NamedTuple):
    """The result of one synthesis of a MemoryQuest."""

    users: list[dict[str, Any]]
    """The contents of the files that were written, one for each user."""
    report: Any
    """The runner's report: calls, accepted answers and rejections of each step."""
    calls: Counter[str]
    """The calls of the model, by the output field that was asked for."""


@pytest.fixture
def make_quest(tmp_path: Path, scripted: Any, profiles: Path) -> Callable[..., MadeQuest]:
    """Return a function that writes the data of the first profile into the folder "quest"."""

    def make(reply: Any, attempts: int = 3, threads: int = 2) -> MadeQuest:
        lm = scripted(reply)
        runner = Runner(attempts, threads)
        first_profile = read_profiles(profiles)[:1]
        with dspy.context(lm=lm):
            paths = make_memoryquest(
                first_profile, tmp_path / "quest", runner, RequestEmbedder(), lambda line: None
            )
        users = [json.loads(path.read_text()) for path in paths]
        return MadeQuest(users, runner.report, lm.engine.calls)

    return make


def test_profiles_are_read_in_the_order_of_their_numbers(profiles: Path) -> None:
    """The folder has the files user10/profile.json and user2_profile.json."""
    assert [profile.user_id for profile in read_profiles(profiles)] == ["user2", "user10"]


def write_profile(folder: Path, **fields: Any) -> None:
    """Write the profile of user 1 with these fields."""
    profile = {"demographics": {"user_id": "user1"}, **fields}
    (folder / "user1_profile.json").write_text(json.dumps(profile))


def test_demographics_that_are_not_available_are_left_out(tmp_path: Path) -> None:
    write_profile(
        tmp_path,
        demographics={"user_id": "user1", "age": "40 years old", "religion": "N/A"},
        interactions={"Books": "Reads science fiction."},
    )

    [profile] = read_profiles(tmp_path)

    assert profile.demographics == {"age": "40 years old"}


def test_affinities_describe_the_domains_that_have_no_summary(tmp_path: Path) -> None:
    """The field "interactions" summarizes domains; "affinities" lists what a user likes in them."""
    write_profile(
        tmp_path,
        interactions={"Books": "Reads science fiction."},
        affinities={"Books": {"Genre": ["history"]}, "Music": {"Genre": ["jazz", "soul"]}},
    )

    [profile] = read_profiles(tmp_path)

    assert profile.domain_summaries == {
        "Books": "Reads science fiction.",
        "Music": "Genre: jazz, soul",
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", r"is \[\], expected an object"),
        ('{"demographics": {"user_id": "u/1"}}', "cannot name a file"),
        ('{"demographics": {"user_id": "u1"}}', "nothing"),
        ("{", "not valid JSON"),
    ],
)
def test_a_broken_profile_is_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "user0_profile.json").write_text(content)
    with pytest.raises(DataError, match=problem):
        read_profiles(tmp_path)


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none with a user's profile\.json"):
        read_profiles(tmp_path)


def test_a_user_file_has_sessions_in_the_order_of_their_dates(make_quest: Any) -> None:
    """The model is asked for requests in three rounds, and writes two requests in each.

    It plans five events for every request. Every event becomes a dialogue, that is, a session.
    """
    quest = make_quest(flawless_model)

    assert quest.report.rejections == []
    [user] = quest.users
    session_ids = [session["session_id"] for session in user["sessions"]]
    assert len(session_ids) == 3 * 2 * 5
    assert session_ids == [f"s{number}" for number in range(1, 31)]
    dates = [session["date"] for session in user["sessions"]]
    assert dates == sorted(dates)


def test_the_benchmark_reads_a_user_file(make_quest: Any, tmp_path: Path) -> None:
    """Each request that the model wrote is a question of the benchmark MemoryQuest."""
    [user] = make_quest(flawless_model).users

    examples = MemoryQuest.load(tmp_path / "quest").examples

    questions = [example.question for example in examples]
    assert questions == [query["query"] for query in user["queries"]]
    for example in examples:
        assert example.evidence_ids


def write_in_rounds(requests: list[dict[str, Any]]) -> Reply:
    """Return a model that writes the next eight of these requests in each of the three rounds."""

    def reply(kind: str, prompt: str, number: int) -> dict[str, Any]:
        if kind == "queries":
            return {"queries": requests[8 * (number - 1) : 8 * number]}
        return flawless_model(kind, prompt, number)

    return reply


def problems_at(step: str, quest: MadeQuest) -> list[str]:
    """Return the problems of each answer that was refused or left out at a step."""
    return [
        "\n".join(rejection.problems)
        for rejection in quest.report.rejections
        if rejection.step == step
    ]


def test_a_request_that_is_too_much_like_its_references_is_left_out(make_quest: Any) -> None:
    """A request must not be answerable by a search for its words.

    The embedder finds cosines of 0.29 and 0.31 between requests and references. 0.3 is the limit.
    """
    requests = [request(0, cosine=0.29), request(1, cosine=0.31)]

    quest = make_quest(write_in_rounds(requests))

    [user] = quest.users
    assert [query["query"] for query in user["queries"]] == [requests[0]["query"]]
    assert "mean cosine 0.310 is over 0.3" in problems_at("gate", quest)


def test_at_most_the_fifteen_requests_least_like_their_references_are_kept(
    make_quest: Any,
) -> None:
    """Sixteen requests have cosines of 0.10, 0.11, ... to 0.25 to their references."""
    cosines = [hundredths / 100 for hundredths in range(10, 26)]
    requests = [request(number, cosine) for number, cosine in enumerate(cosines)]

    quest = make_quest(write_in_rounds(requests))

    [user] = quest.users
    kept_texts = [query["query"] for query in user["queries"]]
    assert kept_texts == [lowest["query"] for lowest in requests[:15]]
    assert "15 others are lower" in problems_at("gate", quest)


def test_a_request_without_all_its_dialogues_is_left_out(make_quest: Any) -> None:
    """The first request rests on three lanterns. The model never tells of the blue one.

    So none of its dialogues is kept, not even those about the other two lanterns.
    """

    def never_tell_of_blue_lantern(kind: str, prompt: str, number: int) -> dict[str, Any]:
        if kind == "turns" and "lantern0blue" in prompt:
            return {"turns": dialogue("nothing of that kind")}
        return flawless_model(kind, prompt, number)

    quest = make_quest(never_tell_of_blue_lantern)

    [user] = quest.users
    assert user["queries"]
    assert "lantern0" not in json.dumps(user)
    assert problems_at("query", quest) == ["left out: no dialogue for 2024-04-10"]


def test_a_user_without_requests_gets_no_file(make_quest: Any) -> None:
    """The model writes no request at all, so first the step and then the user is given up."""
    quest = make_quest(lambda kind, prompt, number: {"queries": []})

    assert quest.users == []
    steps_given_up = [
        rejection.step for rejection in quest.report.rejections if rejection.outcome == "given up"
    ]
    assert steps_given_up == ["queries", "user"]


REFERENCES = request()["references"]

REFUSED_ANSWERS: dict[str, list[tuple[list[Any], str]]] = {
    "queries": [
        ([request(date="June 1st")], "'June 1st' is no day"),
        ([request(date="2024-04-10")], "2024-04-10 is not older"),
        ([request(references=REFERENCES[:2])], "2 references"),
        ([request(references=[REFERENCES[0]] * 3)], "say the same"),
    ],
    "events": [
        (events()[:4], "4 events; plan 5 to 10"),
        (events({3: {"date": "2024-02-20"}}), "not in ascending order"),
        (events({0: {"date": "2023-11-01"}}), "not shortly"),
        (events({4: {"date": "2024-06-01"}}), "not before the request"),
        (
            events({1: {"references": []}}),
            "reference r1 is told in 0 events; tell it in exactly one",
        ),
        (events({0: {"references": ["r9"]}}), "no reference 'r9'"),
        (
            events({1: {"references": []}, 0: {"references": ["r1"]}}),
            "r1 belongs to 2024-02-10",
        ),
        (events({0: {"domains": ["Chess"]}}), "domains ['Chess']"),
        (events({0: {"summary": " "}}), "no summary"),
    ],
    "turns": [
        (dialogue("x", turn_count=4), "4 turns; write 5 to 30"),
        (dialogue("x")[1:], "the user has to begin"),
        (dialogue("x")[:3] + dialogue("x")[2:], "alternate"),
        ([*dialogue("x")[:5], {"speaker": "assistant", "text": ""}], "a turn is empty"),
    ],
}
"""By output field: answers that break a rule, and a part of what the model is told about it."""

STEP_NAMES = {"queries": "queries", "events": "timeline", "turns": "dialogue"}
"""The names of the steps in a report, by their output field."""


@pytest.mark.parametrize("refused_kind", REFUSED_ANSWERS)
def test_the_model_is_asked_again_with_the_rule_that_it_broke(
    make_quest: Any, refused_kind: str
) -> None:
    """The model's first answers of one kind break a rule each; all later ones are right.

    For example, it writes a request of the day "June 1st". The next prompt holds the complaint
    "'June 1st' is no day".
    """
    refused_answers = [answer for answer, _ in REFUSED_ANSWERS[refused_kind]]
    expected_problems = [problem for _, problem in REFUSED_ANSWERS[refused_kind]]
    complaints: list[str] = []

    def break_rules_first(kind: str, prompt: str, number: int) -> dict[str, Any]:
        complaints.append(str(prompt_field(prompt, "complaints")))
        if kind == refused_kind and number <= len(refused_answers):
            return {kind: refused_answers[number - 1]}
        return flawless_model(kind, prompt, number)

    quest = make_quest(break_rules_first, attempts=12, threads=1)

    reported_problems = problems_at(STEP_NAMES[refused_kind], quest)
    for reported_problem, problem in zip(reported_problems, expected_problems, strict=True):
        assert problem in reported_problem
        assert problem in "\n".join(complaints)


def test_a_request_that_exists_already_is_left_out(make_quest: Any) -> None:
    """The model's first answer has the same request twice."""

    def repeat_request(kind: str, prompt: str, number: int) -> dict[str, Any]:
        if kind == "queries" and number == 1:
            return {"queries": [request(0), request(0)]}
        return flawless_model(kind, prompt, number)

    report = make_quest(repeat_request, threads=1).report

    assert report.count("queries", "left out") == 1
    [rejection] = report.rejections
    assert "exists already" in rejection.problems[0]


def tell_instead_of_red_lantern(fact: str) -> Reply:
    """Return a model that tells another fact in its first dialogue about the red lantern."""
    is_first_answer = True

    def reply(kind: str, prompt: str, number: int) -> dict[str, Any]:
        nonlocal is_first_answer
        facts = str(prompt_field(prompt, "facts")) if kind == "turns" else ""
        if is_first_answer and "lantern0red" in facts:
            is_first_answer = False
            return {"turns": dialogue(fact)}
        return flawless_model(kind, prompt, number)

    return reply


def test_a_dialogue_that_does_not_tell_its_reference_is_refused(make_quest: Any) -> None:
    """The reference is "Bought lantern0red for grandmother"."""
    model = tell_instead_of_red_lantern("I like lakes")

    [rejection] = make_quest(model, threads=1).report.rejections

    assert rejection.step == "dialogue"
    assert "does not tell this: Bought lantern0red" in rejection.problems[0]


def test_a_dialogue_may_tell_its_reference_in_another_order_of_words(make_quest: Any) -> None:
    """The reference is "Bought lantern0red for grandmother"."""
    model = tell_instead_of_red_lantern(
        "lantern0red, which I bought, is a present for my grandmother"
    )
    assert make_quest(model, threads=1).report.rejections == []


def test_if_the_endpoint_refuses_a_prompt_it_is_reported_and_sent_again(make_quest: Any) -> None:
    """The content filter of the model's endpoint refuses the first prompt for a plan of events."""

    def refuse_first_plan(kind: str, prompt: str, number: int) -> dict[str, Any]:
        if kind == "events" and number == 1:
            raise InvalidRequestError("flagged by the content filter")
        return flawless_model(kind, prompt, number)

    quest = make_quest(refuse_first_plan, threads=1)

    # One plan for each request, and the one that was refused.
    [user] = quest.users
    assert quest.calls["events"] == len(user["queries"]) + 1
    [rejection] = quest.report.rejections
    assert rejection.step == "timeline"
    assert rejection.outcome == "retried"
    assert "flagged by the content filter" in rejection.problems[0]


def test_the_offline_embedder_is_refused(tmp_path: Path, profiles: Path) -> None:
    """Requests and references are compared by meaning, which needs an embedding model.

    The offline embedder, which needs no model, compares spelling.
    """
    with pytest.raises(UserError, match="compares spelling"):
        make_memoryquest(read_profiles(profiles), tmp_path, Runner(), RequestEmbedder("offline"))
