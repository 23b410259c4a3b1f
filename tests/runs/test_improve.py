"""`mempiler.improve`: rounds that compile a registered program on new questions of its users.

The users are simulated (`drifting_users.py`). After a drift they ask with words that the program
does not know, and the scripted model explains one new word with each instruction that it proposes.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import dspy
import mempiler
import pytest
from mempiler import Improvement, Limits
from mempiler.errors import EndpointError, RunInterrupted, UserError
from mempiler.optimizers.optimizer import Optimizer
from mempiler.runs.decided_questions import TAG_PREFIX, read_decided, reserve_questions
from mempiler.runs.model_registry import find_version
from mempiler.runs.promotion import DevResults, judge_candidate
from mempiler.runs.results_folder import results_folder
from mempiler.runs.tracking.store import client

from .drifting_users import (
    DRIFT,
    DriftingModel,
    register_first_version,
    register_under_another_name,
    write_questions,
)
from .evaluations import refusal

EXPLANATIONS = "town means city, hue means colour, companion means pet"
"""An instruction with which the model understands all new words of the users."""

Round = Callable[..., Improvement]
"""Runs a round: the address of a model, the file of questions, and further options."""


@dataclass(frozen=True, kw_only=True)
class WriteInstruction(Optimizer):
    """An optimizer that writes an instruction, and asks no model."""

    name: ClassVar[str] = "write-instruction"
    changes_in_program: ClassVar[str] = "the instruction"
    cost_description: ClassVar[str] = "nothing"

    instruction: str = EXPLANATIONS
    on_run: Callable[[], object] | None = None
    """Is called while the round runs, before the instruction is written."""

    def run(self, job: Any) -> Any:
        if self.on_run is not None:
            self.on_run()
        student = job.student.deepcopy()
        for predictor in student.predictors():
            predictor.signature = predictor.signature.with_instructions(self.instruction)
        return student


GAINS_NOTHING = WriteInstruction(instruction="Answer politely.")
"""An optimizer whose program is no better than the one before."""


@dataclass(frozen=True, kw_only=True)
class AddDemo(WriteInstruction):
    """A `WriteInstruction` that also adds a training question as demo."""

    name: ClassVar[str] = "add-demo"

    def run(self, job: Any) -> Any:
        student = super().run(job)
        example = job.train[0]
        for predictor in student.predictors():
            predictor.demos = [
                dspy.Example(context="", question=example.question, answer=example.answer)
            ]
        return student


def asking(model: Any, scripted: Callable[..., Any]) -> Any:
    """Return an LM that a scripted model answers; the model can look at the instruction."""
    lm = scripted(model)
    model.engine = lm.engine
    return lm


@pytest.fixture
def model_name(request: pytest.FixtureRequest) -> str:
    """A name for a registered model that no other test uses, since all tests share one store."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture(scope="module")
def first_version(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a registered program that knows only the old words of the users."""
    return register_first_version("first-version", tmp_path_factory.mktemp("first-version"))


@pytest.fixture
def address(first_version: str, model_name: str) -> str:
    """The address of that program under a name that no other test uses."""
    return register_under_another_name(first_version, model_name)


@pytest.fixture
def improve(scripted: Any) -> Round:
    """The function `mempiler.improve` with the drifting model.

    If a test names no optimizer, it writes the instruction that explains all new words.
    """
    lm = asking(DriftingModel(), scripted)

    def improve_with_drifting_model(address: str, data: Path | None, **options: Any) -> Improvement:
        defaults: dict[str, Any] = {
            "lm": lm,
            "metric": "exact",
            # The model looks at the instruction of the latest call.
            "threads": 1,
            "optimizer": WriteInstruction(instruction=EXPLANATIONS),
            "progress": False,
        }
        return mempiler.improve(address, data=data, **{**defaults, **options})

    return improve_with_drifting_model


@pytest.fixture
def questions_in_new_words(tmp_path: Path) -> Path:
    """A file of questions of twenty users, such as "What is Ann's hue?" for her colour."""
    return write_questions(tmp_path / "questions.jsonl", users=range(20), words=DRIFT)


def version_of(address: str) -> str:
    """Return the version that an address names."""
    return str(find_version(address).version)


def instruction_of(address: str) -> str:
    """Return the instruction of a program's answer prompt."""
    program: Any = mempiler.load(address)
    return program.task.answer.signature.instructions


def questions_by_round(name: str) -> list[set[str]]:
    """Return the digests of the questions by which each round of a model decided."""
    rounds: dict[str, set[str]] = {}
    for tag, value in client().get_registered_model(name).tags.items():
        if tag.startswith(TAG_PREFIX):
            round_id, _, _ = tag.removeprefix(TAG_PREFIX).rpartition(".")
            rounds.setdefault(round_id, set()).update(re.findall(".{12}", value))
    return [rounds[round_id] for round_id in sorted(rounds)]


def files_with(text: str, folders: Iterable[Path]) -> list[Path]:
    """Return the files in some folders that hold the bytes of a text."""
    found: list[Path] = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(path)
    return found


def test_a_better_program_is_registered_as_a_new_version_that_the_alias_names(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    """Users ask with new words. The model understands those that the instruction explains."""
    explaining = WriteInstruction(
        instruction="town means city, hue means colour, companion means pet"
    )

    improvement = improve(address, questions_in_new_words, optimizer=explaining)

    assert improvement.outcome == "promoted"
    assert improvement.version_before == "1"
    assert improvement.version_after == "2"
    assert version_of(address) == "2"
    assert instruction_of(address) == "town means city, hue means colour, companion means pet"
    assert find_version(address).tags["mempiler.gate"].startswith("improve: dev 1.000 (n = ")


def write_blue_questions(file: Path) -> Path:
    """Write two questions to each of twenty users, whose right answer is "blue"."""
    lines: list[str] = []
    for user in range(20):
        for colour in ("hue", "tint"):
            message = {"role": "user", "content": f"My {colour} is blue, says {user}."}
            row = {
                "user": f"user-{user}",
                "messages": [message],
                "question": f"What is my {colour}?",
                "answer": "blue",
            }
            lines.append(json.dumps(row))
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


class BlueModel:
    """A scripted model that answers "blue" if its instruction is `EXPLANATIONS`."""

    def __init__(self) -> None:
        self.engine: Any = None

    def __call__(self, kind: str, text: str, number: int) -> dict[str, Any]:
        if kind != "answer":
            return {kind: []}
        return {"answer": "blue" if EXPLANATIONS in self.engine.system else "no idea"}


@pytest.mark.parametrize(("method", "needs_rebuild"), [("fact-store", True), ("turn-rag", False)])
def test_a_round_says_whether_memories_have_to_be_written_anew(
    scripted: Any, model_name: str, tmp_path: Path, method: str, needs_rebuild: bool
) -> None:
    """The optimizer changes all prompts. The fact store also has prompts that write memories.

    So its old memories are not those that the new program would write.
    """
    lm = asking(BlueModel(), scripted)
    address = register_first_version(model_name, tmp_path / "first-version", method=method)

    improvement = mempiler.improve(
        address,
        data=write_blue_questions(tmp_path / "blue.jsonl"),
        lm=lm,
        metric="exact",
        threads=1,
        optimizer=WriteInstruction(instruction=EXPLANATIONS),
        progress=False,
    )

    assert improvement.outcome == "promoted"
    assert improvement.needs_rebuild is needs_rebuild
    advice = f"run mempiler memories rebuild {address} --store STORE"
    assert (advice in str(improvement)) is needs_rebuild


def test_a_program_that_is_no_better_is_not_registered(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    polite = WriteInstruction(instruction="Answer politely.")

    improvement = improve(address, questions_in_new_words, optimizer=polite)

    assert improvement.outcome == "kept"
    assert improvement.reason.startswith("No significant gain on dev")
    assert improvement.version_after == "1"
    assert version_of(address) == "1"


class UnreadableModel(DriftingModel):
    """Gives an answer that cannot be parsed if the instruction has the explanations."""

    def __call__(self, kind: str, text: str, number: int) -> str | dict[str, Any]:
        if EXPLANATIONS in self.engine.system:
            return "the secret of the user"
        return super().__call__(kind, text, number)


def test_the_reason_to_reject_a_broken_program_quotes_no_answer_about_a_user(
    improve: Round, address: str, scripted: Any, questions_in_new_words: Path
) -> None:
    """With the new instruction, every answer is the unreadable text "the secret of the user"."""
    lm = asking(UnreadableModel(), scripted)

    improvement = improve(address, questions_in_new_words, lm=lm)

    assert improvement.outcome == "kept"
    assert improvement.reason == "Too many questions failed with the new program"


def test_a_question_that_has_decided_in_one_round_does_not_decide_in_the_next(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    """A round decides by some of the new questions whether the new program is better."""
    first_round = improve(address, questions_in_new_words, optimizer=GAINS_NOTHING)
    second_round = improve(address, questions_in_new_words, optimizer=GAINS_NOTHING)

    some_questions, other_questions = questions_by_round(model_name)
    assert some_questions.isdisjoint(other_questions)
    # Rounds that begin in the same second come in any order.
    assert {len(some_questions), len(other_questions)} == {
        first_round.decided_questions,
        second_round.decided_questions,
    }
    questions_left = first_round.new_questions - first_round.decided_questions
    assert second_round.new_questions == questions_left


def add_session(file: Path) -> None:
    """Let the history of every question in a file go on for a session."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    turn = {"id": "D9:1", "speaker": "Ann", "text": "see you"}
    for row in rows:
        row["history"]["items"].append({"id": "D9", "turns": [turn], "kind": "session"})
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def test_a_question_does_not_decide_again_when_its_user_has_said_more(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    improve(address, questions_in_new_words, optimizer=GAINS_NOTHING)
    add_session(questions_in_new_words)

    improve(address, questions_in_new_words, optimizer=GAINS_NOTHING)

    some_questions, other_questions = questions_by_round(model_name)
    assert some_questions.isdisjoint(other_questions)


@pytest.mark.parametrize(
    ("users", "options", "missing"),
    [
        pytest.param(
            2, {}, "more questions that no earlier round decided on", id="too few questions"
        ),
        pytest.param(8, {"min_users": 9}, "1 more users with such questions", id="too few users"),
        pytest.param(
            9,
            {"min_n": 40},
            "more questions of other users to learn from",
            id="too few questions to learn from",
        ),
    ],
)
def test_a_round_with_too_few_questions_says_what_is_missing_and_asks_nothing(
    improve: Round,
    address: str,
    scripted: Any,
    tmp_path: Path,
    users: int,
    options: dict[str, Any],
    missing: str,
) -> None:
    few = write_questions(tmp_path / "few.jsonl", users=range(users), words=DRIFT)
    lm = scripted(DriftingModel())

    improvement = improve(address, few, lm=lm, **options)

    assert improvement.outcome == "too few questions"
    assert missing in improvement.reason
    assert lm.engine.prompts == []


def fail() -> None:
    """Stands for the end of the process."""
    raise RuntimeError("killed")


def test_the_questions_of_a_round_that_is_killed_decide_in_no_later_round(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    """Somebody may have seen scores of these questions before the round was killed."""
    with pytest.raises(RuntimeError):
        improve(address, questions_in_new_words, optimizer=WriteInstruction(on_run=fail))

    assert len(read_decided(model_name)) >= 20


def test_the_questions_of_a_round_whose_endpoint_fails_can_decide_in_a_later_round(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path, stub: Any
) -> None:
    server = stub()

    with pytest.raises(EndpointError):
        improve(
            address,
            questions_in_new_words,
            lm=server.model,
            api_base=server.url,
            optimizer=WriteInstruction(on_run=server.die),
            retries=0,
        )

    assert read_decided(model_name) == frozenset()


def test_the_questions_of_a_round_whose_budget_ends_early_can_decide_in_a_later_round(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    """Three calls are not enough to compare a new program with the old one."""
    improvement = improve(address, questions_in_new_words, limits=Limits(max_calls=3))

    assert improvement.outcome == "kept"
    assert improvement.decided_questions == 0
    assert read_decided(model_name) == frozenset()


def test_the_questions_of_a_round_that_changes_nothing_can_decide_in_a_later_round(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    unchanged = WriteInstruction(instruction=instruction_of(address))

    improvement = improve(address, questions_in_new_words, optimizer=unchanged)

    assert improvement.outcome == "kept"
    assert improvement.reason == "The optimizer found no better program"
    assert read_decided(model_name) == frozenset()


def test_an_optimizer_that_puts_users_questions_into_prompts_is_refused(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    message = refusal(improve, address, questions_in_new_words, optimizer="bootstrap")

    assert message.startswith("--optimizer bootstrap puts questions of users into prompts")


def test_an_optimizer_that_only_tunes_settings_is_allowed(
    improve: Round, address: str, tmp_path: Path
) -> None:
    """The two users have too few questions for a round, so it ends after the check."""
    few_questions = write_questions(tmp_path / "few.jsonl", users=range(2), words=DRIFT)

    improvement = improve(address, few_questions, optimizer="settings")

    assert improvement.outcome == "too few questions"


def test_an_optimizer_that_trains_weights_is_refused_although_user_text_is_allowed(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    message = refusal(
        improve, address, questions_in_new_words, optimizer="finetune", allow_user_text=True
    )

    assert message.startswith("--optimizer finetune trains weights")


def test_a_program_whose_prompt_shows_a_users_question_is_not_registered(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    """The optimizer puts a training question into the prompt as an example, which is a demo."""
    improvement = improve(address, questions_in_new_words, optimizer=AddDemo())

    assert improvement.outcome == "kept"
    assert "contain 1 demos, which are questions of users" in improvement.reason
    assert version_of(address) == "1"


def test_a_program_whose_prompt_shows_a_users_question_is_registered_if_that_is_allowed(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    improvement = improve(
        address, questions_in_new_words, optimizer=AddDemo(), allow_user_text=True
    )

    assert improvement.outcome == "promoted"
    assert version_of(address) == "2"


def test_a_program_whose_instruction_quotes_a_user_is_not_registered(
    improve: Round, address: str, tmp_path: Path
) -> None:
    """The instruction would be better: it also explains the new words of the users."""
    sentence = "our spare key lies under the third flowerpot beside the door"
    questions = write_questions(
        tmp_path / "q.jsonl", users=range(20), words=DRIFT, sentences={7: sentence}
    )
    quoting = WriteInstruction(instruction=f"{EXPLANATIONS}. {sentence}")

    improvement = improve(address, questions, optimizer=quoting)

    assert improvement.outcome == "kept"
    assert "contain 8 words in a row of a user" in improvement.reason
    assert version_of(address) == "1"


def test_an_instruction_may_have_words_that_three_users_have_said(
    improve: Round, address: str, tmp_path: Path
) -> None:
    """Words that several users have said are a form of speech, and tell nothing about one."""
    sentence = "it was very nice to talk to you today"
    questions = write_questions(
        tmp_path / "q.jsonl",
        users=range(20),
        words=DRIFT,
        sentences={7: sentence, 8: sentence, 9: sentence},
    )
    polite = WriteInstruction(instruction=f"{EXPLANATIONS}. End with: {sentence}")

    improvement = improve(address, questions, optimizer=polite)

    assert improvement.outcome == "promoted"


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_round_leaves_nothing_of_the_users_in_files_or_in_mlflow(
    improve: Round, address: str, tmp_path: Path
) -> None:
    """All users have names with "zebedee", questions about "quokka", and say "wombat"."""
    questions = write_questions(
        tmp_path / "q.jsonl",
        users=range(20),
        words=DRIFT,
        user_prefix="zebedee-",
        category="quokka",
        sentences=dict.fromkeys(range(20), "the wombat sleeps"),
    )
    folders = [results_folder(), Path(os.environ["DSPY_CACHEDIR"])]

    improvement = improve(
        address, questions, optimizer="gepa", optimizer_set={"max_metric_calls": 60}
    )

    assert improvement.outcome == "promoted"
    # The program itself is found, so the search works.
    assert files_with(" means ", folders)
    for text in ("zebedee", "quokka", "wombat"):
        assert files_with(text, folders) == []


def stop() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def test_a_round_that_the_user_stops_says_that_nothing_has_changed(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    """Whoever stops a round may have seen its scores, so its questions decide in no later one."""
    with pytest.raises(RunInterrupted) as interrupted:
        improve(address, questions_in_new_words, optimizer=WriteInstruction(on_run=stop))

    assert interrupted.value.kept == f"{address} stays as it was"
    assert interrupted.value.resume == ()
    assert read_decided(model_name)
    assert not (results_folder() / "improve" / model_name).exists()


def test_the_registry_remembers_more_questions_than_fit_into_a_tag(
    address: str, model_name: str
) -> None:
    """A question is remembered by a digest of 12 letters, and a tag of MLflow has 5,000 at most."""
    digests = {f"{number:012x}" for number in range(900)}

    reserve_questions(model_name, "round", digests)

    assert read_decided(model_name) == digests
    tags = client().get_registered_model(model_name).tags
    assert max(len(value) for value in tags.values()) <= 5_000


def fail_with_name_of_user() -> None:
    """Fail with a message that names a user."""
    raise RuntimeError("the user yolanda-1 cannot be read")


def test_a_round_that_fails_leaves_nothing_of_the_users_in_files(
    improve: Round, address: str, tmp_path: Path
) -> None:
    questions = write_questions(
        tmp_path / "q.jsonl", users=range(20), words=DRIFT, user_prefix="yolanda-"
    )

    with pytest.raises(RuntimeError):
        improve(address, questions, optimizer=WriteInstruction(on_run=fail_with_name_of_user))

    assert files_with("yolanda", [results_folder()]) == []


def test_a_round_removes_the_files_that_a_killed_round_has_left(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    file_of_killed_round = results_folder() / "improve" / model_name / "run.sqlite"
    file_of_killed_round.parent.mkdir(parents=True)
    file_of_killed_round.write_text("what a user said")

    improve(address, questions_in_new_words)

    assert not file_of_killed_round.parent.exists()


def test_only_one_process_improves_a_model_at_a_time(
    improve: Round, address: str, questions_in_new_words: Path
) -> None:
    """A second round begins while the optimizer of the first one runs, and is refused."""
    messages: list[str] = []

    def start_another_round() -> None:
        messages.append(refusal(improve, address, questions_in_new_words))

    improve(address, questions_in_new_words, optimizer=WriteInstruction(on_run=start_another_round))

    (message,) = messages
    assert "another process is improving it" in message


def test_a_round_registers_nothing_if_somebody_moved_the_alias_meanwhile(
    improve: Round, address: str, model_name: str, questions_in_new_words: Path
) -> None:
    """While the optimizer runs, somebody registers version 2 and lets the alias "prod" name it."""

    def move_alias() -> None:
        source = find_version(address).source
        version = client().create_model_version(model_name, source).version
        client().set_registered_model_alias(model_name, "prod", version)

    message = refusal(
        improve, address, questions_in_new_words, optimizer=WriteInstruction(on_run=move_alias)
    )

    assert "named version 1 when the round began, and names 2 now" in message
    assert len(client().search_model_versions(f"name = '{model_name}'")) == 2


@pytest.mark.parametrize("address", ["models:/memory/1", "models:/memory", "my-program"])
def test_only_a_program_with_an_alias_can_be_improved(
    questions_in_new_words: Path, address: str
) -> None:
    """A round moves the alias to the better version."""
    message = refusal(mempiler.improve, address, data=questions_in_new_words)

    assert message.endswith("names no alias of a model; write models:/NAME@ALIAS")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each export of a store; no store is read.

    In place of a store, a test gives a file of questions, which the export copies.
    """
    exports: list[dict[str, Any]] = []

    def export_questions(store: Path, out: Path, *, tenant: str | None = None) -> None:
        exports.append({"store": store, "out": out, "tenant": tenant})
        shutil.copyfile(store, out)

    module = types.ModuleType("feedback_questions")
    module.export_questions = export_questions  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mempiler.runs.feedback_questions", module)
    return exports


def test_a_round_removes_the_questions_that_it_has_exported_from_a_store(
    improve: Round, address: str, questions_in_new_words: Path, exported: list[dict[str, Any]]
) -> None:
    improvement = improve(address, None, store=questions_in_new_words, tenant="acme")

    assert improvement.outcome == "promoted"
    (export,) = exported
    assert export["tenant"] == "acme"
    assert not export["out"].exists()


def test_a_round_with_a_store_without_feedback_lacks_all_questions(
    improve: Round, address: str, tmp_path: Path, exported: list[dict[str, Any]]
) -> None:
    empty_store = tmp_path / "store"
    empty_store.touch()

    improvement = improve(address, None, store=empty_store)

    assert improvement.outcome == "too few questions"
    assert improvement.reason.startswith("missing: 20 more questions")
    assert len(exported) == 1


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param({}, id="none"),
        pytest.param({"data": "questions.jsonl", "store": "memories.sqlite"}, id="both"),
    ],
)
def test_a_round_takes_its_questions_from_either_a_store_or_a_file(
    address: str, sources: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="give one of --store and --data"):
        mempiler.improve(address, **sources, progress=False)


@pytest.mark.slow
def test_the_score_recovers_within_three_rounds_after_the_users_changed_their_words(
    improve: Round, address: str, tmp_path: Path
) -> None:
    """Each round has the questions of twenty more users. Those after the first use new words.

    GEPA has a small budget, so that it explains one or two words in a round.
    """
    file = tmp_path / "questions.jsonl"
    options: dict[str, Any] = {"optimizer": "gepa", "optimizer_set": {"max_metric_calls": 50}}

    before_drift = improve(address, write_questions(file, range(20)), **options)
    after_drift: list[Improvement] = []
    for users in (range(20, 40), range(40, 60), range(60, 80)):
        after_drift.append(improve(address, write_questions(file, users, DRIFT), **options))

    assert before_drift.score_before is not None
    assert before_drift.score_before > 0.9
    assert after_drift[0].score_before is not None
    assert after_drift[0].score_before < 0.7
    assert after_drift[-1].score_after is not None
    assert after_drift[-1].score_after > 0.9


def is_promoted_by_chance(seed: int) -> bool:
    """Return whether one of two equally good programs is promoted over the other.

    The programs are compared on 30 questions of 8 users, some of whom ask harder questions. Both
    answer a question rightly with the same probability.
    """
    rng = random.Random(seed)
    users = [number % 8 for number in range(30)]
    groups = [f"user {user}" for user in users]
    chances = [rng.uniform(0.2, 0.8) for _ in range(8)]
    current_scores = [float(rng.random() < chances[user]) for user in users]
    candidate_scores = [float(rng.random() < chances[user]) for user in users]

    promotion = judge_candidate(
        DevResults(candidate_scores, groups, tokens=(), lm="simulated"),
        DevResults(current_scores, groups, tokens=(), lm="simulated"),
    )
    return promotion.rejection_reason is None


def test_of_a_hundred_programs_that_are_no_better_at_most_five_are_promoted_by_chance() -> None:
    promoted = [seed for seed in range(100) if is_promoted_by_chance(seed)]

    assert len(promoted) <= 5
