"""What tests of data share: a judge with given opinions, a model that writes a PAL-Set well, profiles of users."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import dspy
import pytest
from mempiler.data.judge import ReferenceVerdict


class Fixed:
    """A judge with one opinion."""

    hash = "fixed"

    def __init__(self, said):
        self.said, self.asked = said, []

    def __call__(self, *asked):
        self.asked.append(asked)
        return self.said


def fixed_levels(*levels):
    """A judge of contexts with given opinions, one a reference: not, implicitly or explicitly there."""
    verdicts = [
        ReferenceVerdict(present=level != "not", explicit=level == "explicitly", reason="why not") for level in levels
    ]
    return Fixed(tuple(verdicts))


AFTER = {
    "user": {
        "topic inquiry": ("requirement prediction",),
        "requirement confirmation": ("requirement prediction", "solution proposal"),
        "solution discussion": ("solution discussion",),
        "solution feedback": ("solution proposal", "feedback response"),
    },
    "assistant": {
        "requirement prediction": ("requirement confirmation",),
        "solution proposal": ("solution discussion", "solution feedback"),
        "solution discussion": ("solution discussion", "solution feedback"),
        "feedback response": ("topic inquiry",),
    },
}
"""What may follow each action (Mem-PAL, Table 8): the assistant's actions after the user's, and the other way round."""
ASPECTS = ("work", "health", "family", "leisure")


def field(text, name):
    """An input of a prompt, parsed if it is JSON."""
    raw = text.split(f"[[ ## {name} ## ]]\n")[1].split("\n\n[[ ##")[0].split("Respond with")[0].strip()
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def sentences(text, count=5):
    return " ".join(f"{text} number {n}." for n in range(count))


def people(text):
    known, chinese = len(field(text, "earlier_people")), field(text, "language") == "Chinese"
    levels = dict.fromkeys(("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"), "Low")
    for n in range(known, known + int(field(text, "count"))):
        told = {
            name: sentences(f"The user {name} {n}", 2)
            for name in ("occupation", "health_status", "family_members", "hobbies")
        }
        yield {"name": f"{'李' if chinese else 'Ann'} {n}", "gender": "f", "age": 30 + n, "personality": levels} | told


def situations(text):
    month, last = field(text, "month"), field(text, "begin_after")
    start = datetime.fromisoformat(last) + timedelta(1) if last else datetime.fromisoformat(f"{month}-01")
    first = datetime.fromisoformat(f"{month}-01")
    following = (first + timedelta(32)).replace(day=1)
    types = [one.partition(":")[0] for one in field(text, "requirement_types")]
    for n, end in enumerate(
        [first + timedelta(6), first + timedelta(13), first + timedelta(20), following - timedelta(1)]
    ):
        told = sentences(f"The user lived through part {n} of {month}")
        ids = types[n : n + 1 + n % 3]
        yield {"start": f"{start:%Y-%m-%d}", "end": f"{end:%Y-%m-%d}", "requirement_ids": ids, "situation": told}
        start = end + timedelta(1)


def logs(text):
    begin = datetime.fromisoformat(field(text, "begin"))
    for n in range(20):
        content = f"The user searched for thing {n} of {begin:%m-%d} and viewed it."
        stamp = f"{begin + timedelta(minutes=7 * n):%Y-%m-%d %H:%M}"
        yield {"timestamp": stamp, "event": "e", "type": "Web Search", "content": content}


def turns(text):
    for line in field(text, "plan"):
        user, said, assistant, answered = re.findall(r"user (.*?) \((\w+)\); assistant (.*?) \((\w+)\)", line)[0]
        yield {
            "user": {"action": user, "reference": said, "content": f"I speak of {said}"},
            "assistant": {"action": assistant, "reference": answered, "content": f"I answer on {answered}"},
        }


def topic(kind, text):
    need = {"need": f"need of {kind}", "evidences": ["a detail"]}
    return {
        "requirement_type": kind,
        "user_query": f"What about {kind} in {re.findall('part . of .{7}', text)[0]}?",
        "implicit_needs": [need, {**need, "need": f"other need of {kind}"}],
        "requirement": f"The user needs {kind} and more.",
    }


def good(kind: str, text: str, n: int) -> Any:
    """A model that does everything right, and finds nothing to mend."""
    chinese = "[[ ## language ## ]]" in text and field(text, "language") == "Chinese"
    return in_chinese(written(kind, text)) if chinese else written(kind, text)


def in_chinese(value):
    """The texts of an answer with as many Chinese characters as words; what has them stays as it is."""
    if isinstance(value, str):
        words, characters = len(re.findall("[A-Za-z]{2,}", value)), len(re.findall("[一-鿿]", value))
        return f"{'用户' * words}{value}" if words > max(2, characters) else value
    if isinstance(value, dict):
        return {name: in_chinese(part) for name, part in value.items()}
    return [in_chinese(part) for part in value] if isinstance(value, list) else value


def written(kind, text):
    """What it writes, in English."""
    if kind == "people":
        return {kind: list(people(text))}
    if kind == "timeline":
        return {kind: [{"month": month, "events": sentences(month)} for month in field(text, "months")]}
    if kind == "requirement_types":
        age = field(text, "profile")["age"]
        return {
            kind: [{"aspect": one, "text": f"{one} advice {n} at {age}"} for one in reversed(ASPECTS) for n in range(4)]
        }
    if kind == "preferences":
        told = [one.split(": ") for one in field(text, "requirement_types")]
        likes = {"analysis": "So it is.", "pos": sentences("Likes", 4), "neg": sentences("Hates", 4)}
        return {kind: [{"requirement_id": id, "requirement": one} | likes for id, one in told]}
    if kind == "situations":
        return {kind: list(situations(text))}
    if kind == "experience":
        return {kind: sentences(f"The user went out, {field(text, 'situation')[:40]}", 8)}
    if kind == "topics":
        return {kind: [topic(one, text) for one in field(text, "requirement_types")]}
    if kind == "candidates":
        keys = [one.partition(":")[0] for one in field(text, "topics")]
        return {kind: [{"topic": key, "solutions": [f"Solution {m} of {key}" for m in range(8)]} for key in keys]}
    if kind == "analysis":
        chosen = [{"solution": one, "feedback_reason": "Suits the user."} for one in field(text, "candidates")]
        return {kind: "As it is.", "liked": chosen[2:4], "disliked": chosen[5:7]}
    if kind == "logs":
        return {kind: list(logs(text))}
    return {kind: list(turns(text)) if kind == "turns" else []}


@pytest.fixture
def made_palset(tmp_path, scripted):
    """Makes a data set; gives its folder's files by name, the report, and the calls by kind."""

    from mempiler.data.synthesis.palset.make import make_palset
    from mempiler.data.synthesis.palset.setting import Setting
    from mempiler.data.synthesis.runner import Runner

    def run(reply, users=1, months=2, language="en", attempts=2, reviews=0, seed=0, threads=2, out="pal"):
        lm, runner = scripted(reply), Runner(attempts, threads)
        with dspy.context(lm=lm):
            files = make_palset(
                users, tmp_path / out, Setting(language, months, seed, runner, reviews), lambda line: None
            )
        return {path.name: json.loads(path.read_text()) for path in files}, runner.report, lm.engine.calls

    return run


DOMAINS = {"Books": "Reads science fiction by the lake.", "Travel": "Takes night trains."}


@pytest.fixture
def profiles(tmp_path):
    """Two users, one in each layout of PersonaLens."""
    folder = tmp_path / "lens"
    (folder / "user10").mkdir(parents=True)
    for n, path in ((10, folder / "user10" / "profile.json"), (2, folder / "user2_profile.json")):
        about = {"user_id": f"user{n}", "age": f"{n} years old", "religion": "N/A"}
        affinities = {"Music": {"Genre": ["jazz", "soul"], "Format": "vinyl"}, "Books": {"Genre": ["history"]}}
        path.write_text(json.dumps({"demographics": about, "interactions": DOMAINS, "affinities": affinities}))
    return folder
