"""Shared by the tests of data: judges with fixed verdicts, a PAL-Set, profiles of users."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler.data.judge import ReferenceVerdict

from ..scripted_engine import Reply, ScriptedEngine


class FixedJudge:
    """A judge that gives the same verdict on everything, and records what it was asked."""

    hash = "fixed"

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.verdict


def judge_of_references(*verdicts: str) -> FixedJudge:
    """Return a judge that gives these verdicts on the references of a question, in their order.

    The verdict on a reference is "absent", or "implicit" or "explicit" if it was recalled.
    """
    reference_verdicts = [
        ReferenceVerdict(
            present=verdict != "absent", explicit=verdict == "explicit", reason="why not"
        )
        for verdict in verdicts
    ]
    return FixedJudge(tuple(reference_verdicts))


@pytest.fixture
def model_that_replies(scripted: Any) -> Callable[[Any], Any]:
    """Return a function that makes a model with the same reply to every prompt.

    `prompts_to(model)` returns what it was asked.
    """

    def make(reply: Any) -> Any:
        return scripted(lambda kind, prompt, number: reply)

    return make


def prompts_to(lm: Any) -> list[str]:
    """Return the prompts that a scripted model was asked, in their order."""
    return [prompt for _kind, prompt in lm.engine.prompts]


# What may follow each action of a dialogue (Mem-PAL, Table 8).
ASSISTANT_ACTIONS_AFTER = {
    "topic inquiry": ("requirement prediction",),
    "requirement confirmation": ("requirement prediction", "solution proposal"),
    "solution discussion": ("solution discussion",),
    "solution feedback": ("solution proposal", "feedback response"),
}
"""The actions that the assistant may take after an action of the user."""

USER_ACTIONS_AFTER = {
    "requirement prediction": ("requirement confirmation",),
    "solution proposal": ("solution discussion", "solution feedback"),
    "solution discussion": ("solution discussion", "solution feedback"),
    "feedback response": ("topic inquiry",),
}
"""The actions that the user may take after an action of the assistant."""


class MadePalset(NamedTuple):
    """The result of one synthesis of a PAL-Set."""

    files: dict[str, Any]
    """The contents of the files that were written, by name."""
    report: Any
    """The runner's report: calls, accepted answers and rejections of each step."""
    calls: Counter[str]
    """The calls of the model, by the output field that was asked for."""


def scripted_model(reply: Reply) -> Any:
    """Return a model that answers by a function, with the LM cache off.

    It is that of the fixture `scripted`, for fixtures of a whole module.
    """
    from mempiler.engines.limits import BudgetGuard
    from mempiler.engines.metered_lm import MeteredLM, Metering

    metering = Metering(guard=BudgetGuard(), answers=None, prices=None)
    engine = ScriptedEngine(reply)
    return MeteredLM(
        "scripted/test", metering, engine=engine, cache=False, temperature=0.0, num_retries=0
    )


def synthesize_palset(
    folder: Path,
    reply: Reply,
    users: int = 1,
    months: int = 2,
    language: str = "en",
    attempts: int = 2,
    reviews: int = 0,
    seed: int = 0,
    threads: int = 2,
) -> MadePalset:
    """Make a PAL-Set with a scripted model.

    Args:
        folder: Where the files are written.
        reply: Gives the model's answers; see `scripted_palset.flawless_model`.
        users: Number of users.
        months: How many months of a user's life are written; the last one is asked about.
        language: "en" or "zh".
        attempts: How often the model is asked for an answer that breaks no rule.
        reviews: How often what was written is reviewed and corrected.
        seed: Decides what is drawn: hours, and plans of dialogues.
        threads: Calls at a time.
    """
    from mempiler.data.synthesis.palset.make import make_palset
    from mempiler.data.synthesis.palset.setting import Setting
    from mempiler.data.synthesis.runner import Runner

    lm = scripted_model(reply)
    runner = Runner(attempts, threads)
    setting = Setting(language, months, seed, runner, reviews)
    with dspy.context(lm=lm):
        paths = make_palset(users, folder, setting, on_progress=lambda line: None)
    files = {path.name: json.loads(path.read_text()) for path in paths}
    return MadePalset(files, runner.report, lm.engine.calls)


@pytest.fixture
def made_palset(tmp_path: Path) -> Any:
    """Return a function that makes a PAL-Set: `made_palset(reply, users=2)`.

    Its options are those of `synthesize_palset`. The files lie in the folder "pal".
    """

    def make(reply: Reply, **options: Any) -> MadePalset:
        return synthesize_palset(tmp_path / "pal", reply, **options)

    return make


DOMAIN_SUMMARIES = {
    "Books": "Reads science fiction by the lake.",
    "Travel": "Takes night trains.",
}


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A folder with two users of PersonaLens, one in each of the two layouts that it has had."""
    folder = tmp_path / "lens"
    (folder / "user10").mkdir(parents=True)
    write_profile(folder / "user10" / "profile.json", 10)
    write_profile(folder / "user2_profile.json", 2)
    return folder


def write_profile(path: Path, number: int) -> None:
    """Write the profile of a user. Of the field "religion" nothing is known."""
    profile = {
        "demographics": {
            "user_id": f"user{number}",
            "age": f"{number} years old",
            "religion": "N/A",
        },
        "interactions": DOMAIN_SUMMARIES,
        "affinities": {
            "Music": {"Genre": ["jazz", "soul"], "Format": "vinyl"},
            "Books": {"Genre": ["history"]},
        },
    }
    path.write_text(json.dumps(profile))
