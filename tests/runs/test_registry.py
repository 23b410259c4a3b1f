"""Programs in the model registry: gate, addresses, and answers behind an MLflow endpoint.

A registered model is a name with versions, each a compiled program. An alias, such as "prod", leads
to one of them. The gate decides if a new version may have the alias: it has to be better on the dev
questions than the version that has it now.
"""

import json
import re
import shutil
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import mempiler
import numpy as np
import pytest
from mempiler import __version__, build, load, save
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.compile_result import CompileResult
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.gate import gate
from mempiler.runs.manifest import Manifest
from mempiler.runs.model_registry import find_version
from mempiler.runs.program_address import fetch_program, pin_address
from mempiler.runs.publish import RegisteredProgram, register
from mempiler.runs.registered_model import ServedProgram
from mempiler.runs.tracking.store import client, tracking_uri, use_tracking_store
from mlflow.exceptions import MlflowException

from ..run_inputs import run_inputs
from ..scripted_engine import chat_fields
from .drifting_users import write_questions
from .evaluations import refusal
from .test_improve import WriteInstruction, files_with


def manifest_with_dev_score(
    score: float | None = 0.5,
    *,
    n: int = 20,
    min_n: int = 20,
    scores: Sequence[float] | None = None,
    tokens: int | None = None,
    lm: str = "offline",
    judge: str | None = None,
    stopped: str | None = None,
    benchmark: str = "locomo",
    data_sha256: str = "d1",
) -> Manifest:
    """Return the manifest of a compiled program, with its scores on dev questions.

    There are ten questions per conversation. By default all of them have the same score.

    Args:
        score: The mean score; None if there are no dev questions.
        n: The number of dev questions.
        min_n: The smallest number of questions that the compile took for enough.
        scores: The score of each question.
        tokens: About how many tokens a question took; None if that was not recorded.
        lm: The model that was asked.
        judge: The model that scored the answers.
        stopped: Why the scoring was stopped.
        benchmark: The name of the benchmark.
        data_sha256: The digest of its file.
    """
    gate_scores: dict[str, Any] = {
        "split": "dev",
        "score": score,
        "n": n,
        "min_n": min_n,
        "stopped": stopped,
        "lm": lm,
        "judge": judge,
        "scores": [score] * n if scores is None else list(scores),
        "groups": [number // 10 for number in range(n)],
    }
    if tokens is not None:
        # They vary a little from question to question.
        gate_scores["tokens"] = [tokens + number % 3 for number in range(n)]

    benchmark_fields = {
        "name": benchmark,
        "metric": "F1",
        "sha256": data_sha256,
        "split_sha256": "s1",
    }
    return Manifest(
        method="",
        task="",
        benchmark=benchmark_fields,
        scores={"gate": gate_scores},
        # Programs with equal digests are the same program, so the digest depends on all of it.
        manifest_sha256=json.dumps([benchmark_fields, gate_scores]),
    )


ProgramMaker = Callable[..., Path]


@pytest.fixture
def make_program(tmp_path: Path) -> ProgramMaker:
    """A function that saves a program with an instruction, and returns its folder."""

    def make(instruction: str = "Answer.", manifest: Manifest | None = None) -> Path:
        program: Any = build("turn-rag", k=3)
        answer = program.task.answer
        answer.signature = answer.signature.with_instructions(instruction)
        folder = tmp_path / instruction
        save(program, folder, manifest or manifest_with_dev_score())
        return folder

    return make


@pytest.fixture
def model_name(request: pytest.FixtureRequest) -> str:
    """A name for a registered model that no other test uses, since all tests share one store."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture(scope="session")
def shared_program(tmp_path_factory: pytest.TempPathFactory) -> RegisteredProgram:
    """Version 1 of the model `shared`, at the alias `prod`, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("registered") / "program"
    save(build("turn-rag", k=3), folder, manifest_with_dev_score())
    return register(folder, "shared", "prod")


def instruction_of(program: Any) -> str:
    """Return the instruction of a program's answer prompt."""
    return program.task.answer.signature.instructions


def tags_of(address: str) -> dict[str, str]:
    """Return the tags of the version that an address leads to."""
    return find_version(address).tags


def model_folder(address: str) -> Path:
    """Return the folder in which the registry keeps a version."""
    source = str(find_version(address).source)
    return Path(source.removeprefix("file://"))


def test_an_alias_moves_to_a_better_program(make_program, model_name):
    old_program = make_program("Old.", manifest_with_dev_score(0.5))
    new_program = make_program("New.", manifest_with_dev_score(0.6))
    register(old_program, model_name, "prod")

    better = register(new_program, model_name, "prod")

    assert better.version == "2"
    assert instruction_of(load(f"models:/{model_name}@prod")) == "New."
    assert instruction_of(load(f"models:/{model_name}/1")) == "Old."


def test_a_version_is_registered_with_the_comparison_that_let_it_pass(make_program, model_name):
    """The twenty dev questions are about two conversations, too few to speak of other ones."""
    old_program = make_program("Old.", manifest_with_dev_score(0.5, n=20))
    new_program = make_program("New.", manifest_with_dev_score(0.6, n=20))
    register(old_program, model_name, "prod")

    better = register(new_program, model_name, "prod")

    scope = "other questions about these conversations"
    assert better.gate.startswith(
        f"dev 0.600 (n = 20, offline), models:/{model_name}@prod has 0.500 (offline): +0.100 ["
    )
    assert better.gate.endswith(f", n = 20: better (scope: {scope})")
    assert better.scope == scope
    assert better.summary()["scope"] == scope
    assert tags_of(better.address)["mempiler.scope"] == scope


def answer_oslo_and_write_secrets(kind: str, text: str, number: int) -> str | dict[str, Any]:
    """A scripted model that answers "Oslo", and whose notes of a memory cannot be read."""
    return {"answer": "Oslo"} if kind == "answer" else "the secret wombat"


@pytest.mark.slow
def test_a_registered_version_has_no_text_of_users(scripted, tmp_path, model_name):
    """The result of the compile does: messages of failed writes name users and quote the model."""
    questions = write_questions(
        tmp_path / "q.jsonl", range(12), user_prefix="zebedee-", category="quokka"
    )
    result = mempiler.compile(
        "fact-store",
        benchmark="jsonl",
        data=questions,
        lm=scripted(answer_oslo_and_write_secrets),
        optimizer=WriteInstruction(),
        max_failure_rate=1,
        progress=False,
    )
    failures = json.dumps(result.to_dict()["before"]["failed_writes"])
    assert "zebedee" in failures
    assert "wombat" in failures

    registered = register(result.folder, model_name, force=True)

    version_folder = model_folder(registered.address)
    assert files_with('"score"', [version_folder])
    assert files_with("zebedee", [version_folder]) == []
    assert files_with("wombat", [version_folder]) == []
    assert files_with("quokka", [version_folder]) == []


def test_a_worse_program_is_refused(make_program, model_name):
    current_program = make_program("Current.", manifest_with_dev_score(0.6))
    worse_program = make_program("Worse.", manifest_with_dev_score(0.4))
    current = register(current_program, model_name, "prod")

    message = refusal(register, worse_program, model_name, "prod")

    assert message.startswith(
        f"No significant gain over models:/{model_name}@prod on dev (-0.200 [-0.200, -0.200]"
    )
    assert instruction_of(load(current.address)) == "Current."
    assert len(client().search_model_versions(f"name = '{model_name}'")) == 1


def test_a_worse_program_can_be_forced(make_program, model_name):
    current_program = make_program("Current.", manifest_with_dev_score(0.6))
    worse_program = make_program("Worse.", manifest_with_dev_score(0.4))
    register(current_program, model_name, "prod")

    forced = register(worse_program, model_name, "prod", force=True)

    assert instruction_of(load(forced.address)) == "Worse."
    gate_tag = tags_of(forced.address)["mempiler.gate"]
    assert gate_tag.startswith("forced: No significant gain over")


def test_the_gate_accepts_a_first_version_without_a_comparison():
    decision = gate(manifest_with_dev_score(0.4), None)

    assert decision.line.startswith("dev 0.400")


def test_the_gate_accepts_the_current_program_once_more():
    current = manifest_with_dev_score(0.5)

    assert gate(current, current).line.startswith("dev 0.500")


def test_the_gate_compares_programs_that_were_made_for_different_models():
    new = manifest_with_dev_score(0.9, lm="openai/x")
    current = manifest_with_dev_score(0.5, lm="offline")

    assert gate(new, current).line.startswith("dev 0.900")


def test_the_gate_accepts_a_gain_on_six_of_twenty_questions():
    """All six differences have one sign, so p is 2 / 2^6 = .031, which is below .05."""
    new = manifest_with_dev_score(0.65, scores=[0.5] * 14 + [1.0] * 6)
    current = manifest_with_dev_score(0.5, scores=[0.5] * 20)

    assert gate(new, current).line.startswith("dev 0.650")


def test_the_gate_refuses_a_gain_on_five_of_twenty_questions():
    """All five differences have one sign, so p is 2 / 2^5 = .062, which is above .05."""
    new = manifest_with_dev_score(0.62, scores=[0.5] * 15 + [1.0] * 5)
    current = manifest_with_dev_score(0.5, scores=[0.5] * 20)

    assert "p = .062, n = 20" in refusal(gate, new, current)


@pytest.mark.parametrize(
    ("new", "current", "reason"),
    [
        pytest.param(
            manifest_with_dev_score(None, n=0),
            None,
            "no score on dev questions",
            id="without a score",
        ),
        pytest.param(
            manifest_with_dev_score(0.9, stopped="budget reached: max-calls 9"),
            None,
            "its scoring was stopped (budget reached",
            id="stopped",
        ),
        pytest.param(
            manifest_with_dev_score(0.9, scores=[]),
            manifest_with_dev_score(0.5),
            "the program keeps no score of each dev question",
            id="without scores of questions",
        ),
        pytest.param(
            manifest_with_dev_score(0.9),
            manifest_with_dev_score(None, n=0),
            "has no score on dev questions to compare with",
            id="current without a score",
        ),
        pytest.param(
            manifest_with_dev_score(0.9),
            Manifest(method="", task="", manifest_sha256="x"),
            "has no score on dev questions",
            id="current was not compiled",
        ),
        pytest.param(
            manifest_with_dev_score(0.9),
            manifest_with_dev_score(0.5, scores=[]),
            "models:/m@prod keeps no score of each dev question",
            id="current without scores of questions",
        ),
    ],
)
def test_the_gate_refuses_a_program_if_scores_are_missing(new, current, reason):
    message = refusal(gate, new, current, "models:/m@prod")

    assert reason in message
    assert message.endswith("; --force registers it all the same")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"benchmark": "msc"}, "another benchmark (msc here, locomo there)"),
        ({"data_sha256": "d2"}, "another data (sha256) (d2 here, d1 there)"),
        ({"judge": "j2"}, "another judge (j2 here, None there)"),
        ({"n": 30}, "another number of dev questions (30 here, 20 there)"),
    ],
)
def test_the_gate_refuses_scores_that_were_made_under_other_conditions(changed, reason):
    new = manifest_with_dev_score(0.9, **changed)
    current = manifest_with_dev_score(0.5)

    assert reason in refusal(gate, new, current, "models:/m@prod")


def test_the_gate_needs_as_many_questions_as_the_compile_did():
    new = manifest_with_dev_score(0.9, n=19, min_n=20)
    current = manifest_with_dev_score(0.5, n=19)

    message = refusal(gate, new, current, "models:/m@prod")

    assert "Too few dev questions to tell a gain over models:" in message


def test_the_gate_accepts_fewer_questions_if_the_compile_did():
    new = manifest_with_dev_score(0.9, n=19, min_n=19)
    current = manifest_with_dev_score(0.5, n=19)

    assert gate(new, current).line.startswith("dev 0.900")


def test_the_user_may_let_the_gate_decide_by_fewer_questions_than_the_compile_needed():
    new = manifest_with_dev_score(0.9, n=8, min_n=20)
    current = manifest_with_dev_score(0.5, n=8, min_n=20)

    decision = gate(new, current, min_n=0)

    assert decision.line.startswith("dev 0.900 (n = 8")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("models:/shared@canary", "canary"),
        ("models:/shared/77", "77"),
        ("models:/nobody@prod", "nobody"),
        ("models:/shared/../../etc", "write models:/NAME@ALIAS"),
    ],
)
@pytest.mark.parametrize("open_address", [fetch_program, load, pin_address])
@pytest.mark.usefixtures("shared_program")
def test_an_address_that_leads_nowhere_is_refused(open_address, address, problem):
    """The registry has the model `shared`, with version 1 and the alias `prod`."""
    message = refusal(open_address, address)

    assert address in message
    assert problem in message


@pytest.mark.parametrize("wrong_name", ["a/b", "a:b", "a@b", " ", "it's", 'a"b'])
def test_a_name_that_cannot_stand_in_an_address_is_refused(make_program, wrong_name):
    message = refusal(register, make_program(), wrong_name, "prod")

    assert "the name of a registered model" in message
    assert wrong_name not in [model.name for model in client().search_registered_models()]


@pytest.mark.parametrize("wrong_alias", ["v1", "V2", "latest", "a b", "a/b", "", "x" * 256])
def test_an_alias_that_cannot_stand_in_an_address_is_refused(make_program, model_name, wrong_alias):
    message = refusal(register, make_program(), model_name, wrong_alias)

    assert "an alias is one word" in message
    assert client().search_registered_models(f"name = '{model_name}'") == []


def test_a_model_that_mempiler_did_not_make_is_refused(model_name):
    """Others may keep their models in the same registry of MLflow."""
    client().create_registered_model(model_name)
    client().create_model_version(model_name, "runs:/none/model")

    message = refusal(fetch_program, f"models:/{model_name}/1")

    assert "was not made by `mempiler publish`" in message


def test_files_that_were_exchanged_in_the_registry_are_refused(
    make_program, model_name, tmp_path, monkeypatch
):
    """The registry has a digest of the program beside its files."""
    registered = register(make_program("Mine."), model_name, "prod")
    stored_program = model_folder(registered.address) / "artifacts" / "program"
    for path in make_program("Theirs.").iterdir():
        shutil.copyfile(path, stored_program / path.name)
    # A user with an empty folder for results has no copy of the program, and has to download it.
    empty_home = tmp_path / "elsewhere"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri())
    monkeypatch.setenv("MEMPILER_HOME", str(empty_home))

    message = refusal(load, registered.address)

    assert "was altered after it was registered" in message
    assert list((empty_home / "registry").iterdir()) == []


def test_a_program_is_downloaded_once(make_program, model_name):
    registered = register(make_program(), model_name, "prod")
    first_copy = fetch_program(registered.address) / "state.json"
    inode_of_first_copy = first_copy.stat().st_ino

    second_copy = fetch_program(registered.address) / "state.json"

    assert second_copy == first_copy
    assert second_copy.stat().st_ino == inode_of_first_copy


def test_a_damaged_copy_of_a_downloaded_program_is_replaced(make_program, model_name):
    registered = register(make_program("Original."), model_name, "prod")
    local_copy = fetch_program(registered.address)
    (local_copy / "state.json").write_text("{}")

    program = load(registered.address)

    assert instruction_of(program) == "Original."
    half_downloaded_folders = list(local_copy.parent.glob(".fetch-*"))
    assert half_downloaded_folders == []


def test_a_failed_upload_registers_nothing(make_program, model_name, monkeypatch):
    def fail_to_upload(client: Any, run_id: str, folder: str, *rest: Any, **options: Any) -> None:
        raise OSError("disk full")

    # Only the library can meet a full disk here, so the library is patched.
    monkeypatch.setattr("mlflow.MlflowClient.log_artifacts", fail_to_upload)

    message = refusal(register, make_program(), model_name, "prod")

    assert "could not be stored: disk full; nothing was registered" in message
    assert client().search_registered_models(f"name = '{model_name}'") == []


def test_a_registered_program_is_evaluated_by_its_address(shared_program):
    inputs = run_inputs(benchmark="locomo", train=4, dev=2, test=2)

    evaluation = run_evaluate(shared_program.address, inputs, "test")

    assert evaluation.program == "turn-rag"
    assert len(evaluation.rows) == 2


def test_a_registered_program_is_compiled_by_its_address_and_its_version_is_recorded(
    shared_program, tmp_path
):
    inputs = run_inputs(benchmark="locomo", train=4, dev=2, test=2)
    keep = KeepOptions(tmp_path / "out", force=True)

    result = run_compile(shared_program.address, inputs, keep=keep)

    assert isinstance(result, CompileResult)
    assert load(tmp_path / "out").method.config["k"] == 3
    # An alias may point to another version later, so the number is recorded.
    settings = json.loads((result.run / "run.json").read_text())["settings"]
    assert settings["program"] == "models:/shared/1"


def test_a_registered_model_consists_of_text_files(shared_program):
    """So a user can read what was registered, and loading it runs no pickle."""
    folder = model_folder(shared_program.address)

    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    assert files >= {
        "MLmodel",
        "program.py",
        "artifacts/program/manifest.json",
        "artifacts/program/state.json",
    }
    assert {Path(name).suffix for name in files} <= {"", ".json", ".py", ".txt", ".yaml"}


def test_a_registered_model_requires_these_versions_of_mlflow_and_mempiler(shared_program):
    requirements_file = model_folder(shared_program.address) / "requirements.txt"

    assert requirements_file.read_text().split() == [
        f"mlflow=={version('mlflow')}",
        f"mempiler=={__version__}",
    ]


def test_the_same_program_makes_no_second_version(make_program, model_name):
    folder = make_program()

    first = register(folder, model_name)
    second = register(folder, model_name, "prod")

    assert first.version == "1"
    assert first.is_new is True
    assert second.version == "1"
    assert second.is_new is False
    assert pin_address(second.address) == f"models:/{model_name}/1"


MESSAGE = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
TURN = {"id": "D1:1", "speaker": "Ada", "text": "I moved to Lisbon."}


def row_with(**fields: Any) -> dict[str, Any]:
    """Return a row of a request to a served program: a question and a history, or other fields."""
    return {"question": "Where did Ada move?", "messages": [MESSAGE], **fields}


@pytest.fixture
def program_folder(tmp_path: Path) -> Path:
    """The folder of a program that was compiled with the offline engine."""
    folder = tmp_path / "program"
    save(build("turn-rag", k=3), folder, Manifest(method="", task="", lms={"task": "offline"}))
    return folder


@pytest.mark.parametrize(
    "history_fields",
    [
        pytest.param({"messages": [[MESSAGE], [MESSAGE]]}, id="two sessions of messages"),
        pytest.param(
            # In a row of a table, an empty cell is not a number.
            {"messages": np.array([MESSAGE]), "history": float("nan")},
            id="row of a table",
        ),
        pytest.param(
            {"history": {"items": [{"kind": "session", "id": "D1", "turns": [TURN]}]}},
            id="content of a history file",
        ),
    ],
)
def test_a_request_may_give_the_history_in_several_forms(program_folder, history_fields):
    """A request to a served program has rows, each with a question and a history."""
    served = ServedProgram(program_folder)

    (answer,) = served.predict([{"question": "Where did Ada move?", **history_fields}])

    assert answer["answer"]


@pytest.mark.parametrize(
    ("wrong_row", "problem"),
    [
        pytest.param(
            {"question": "Where?"},
            "row 2: give one of history and messages, not neither",
            id="no history",
        ),
        pytest.param(
            row_with(history=[]),
            "row 2: give one of history and messages, not history and messages",
            id="two histories",
        ),
        pytest.param(
            {"messages": [MESSAGE]},
            "row 2: task question-answering needs question",
            id="no question",
        ),
        pytest.param(
            row_with(messages="hello"),
            "row 2: history 'row-2': expected {items: [...]} or a list of messages, got str",
            id="messages are text",
        ),
        pytest.param(
            row_with(messages=[{"content": "hello"}]),
            "row 2: message 1 of session 1 has no role",
            id="message without a role",
        ),
    ],
)
def test_a_wrong_row_is_refused_before_any_model_is_asked(served_with_stub, wrong_row, problem):
    """The first of the two rows of the request is right."""
    with pytest.raises(MlflowException) as error:
        served_with_stub.program.predict([row_with(), wrong_row])

    assert problem in str(error.value)
    assert error.value.error_code == "INVALID_PARAMETER_VALUE"
    assert served_with_stub.server.requests == []


class ServedWithStub(NamedTuple):
    """A served program, and the stub server that the environment names as its model."""

    program: ServedProgram
    server: Any


@pytest.fixture
def served_with_stub(
    program_folder: Path, monkeypatch: pytest.MonkeyPatch, stub: Callable[..., Any]
) -> ServedWithStub:
    """A served program, whose model answers "Porto" to questions about Ada.

    To other questions the model answers nothing readable.
    """

    def reply(body: dict[str, Any]) -> str:
        if "did Ada" in str(body["messages"]):
            return chat_fields(answer="Porto")
        return ""

    server = stub(answer=reply)
    monkeypatch.setenv("MEMPILER_LM", server.model)
    monkeypatch.setenv("MEMPILER_API_BASE", server.url)
    return ServedWithStub(ServedProgram(program_folder), server)


def test_answers_of_a_served_program_are_not_cached(served_with_stub):
    """The cache of DSPy is a file, and no text of users goes there."""
    row = row_with(question="Where did Ada move?")

    served_with_stub.program.predict([row])
    served_with_stub.program.predict([row])

    assert len(served_with_stub.server.texts) == 2


def test_an_unreadable_answer_of_a_served_program_fails_only_its_row(served_with_stub):
    """The stub answers "Porto" to questions about Ada, and nothing readable to others."""
    row_about_ada = row_with(question="Where did Ada move?")
    row_about_bob = row_with(question="Where did Bob go?")

    readable, unreadable = served_with_stub.program.predict([row_about_ada, row_about_bob])

    assert readable["answer"] == "Porto"
    assert readable["failure"] is None
    assert unreadable["answer"] is None
    assert unreadable["failure"]["kind"] == "parse"


def test_a_registered_program_answers_when_mlflow_loads_it(program_folder):
    registered = register(program_folder, "served", "prod", force=True)
    with use_tracking_store(), warnings.catch_warnings():
        # MLflow warns of its own type hints, and of those that a signature stands for.
        warnings.simplefilter("ignore")
        from mlflow.pyfunc import load_model

        model = load_model(registered.address)

    message = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
    (answer,) = model.predict([{"question": "Where did Ada move?", "messages": [message]}])

    assert answer["answer"] == "I moved to Lisbon."
    assert answer["sources"] == ["D1:1"]
    assert answer["failure"] is None
    (hit,) = answer["evidence"]
    assert hit["sources"] == ["D1:1"]
    # An endpoint sends the answer as JSON.
    json.dumps(answer)


def manifest_with_tokens(tokens: int, lm: str = "offline") -> Manifest:
    """Return the manifest of a program that took so many tokens a question.

    All these programs have equal scores of the same 100 questions, which are about two
    conversations. So few questions only show that one is worse than another by 0.03 at most (see
    `runs/non_inferiority.py`).
    """
    manifest = manifest_with_dev_score(0.5, n=100, scores=[1.0, 0.0] * 50, tokens=tokens, lm=lm)
    manifest.scores["gate"]["groups"] = [number // 50 for number in range(100)]
    return manifest


def test_the_gate_accepts_a_cheaper_program_that_is_not_worse_by_more_than_the_margin():
    """Scores are equal; 100 questions show that the cheap program is worse by 0.03 at most."""
    cheap = manifest_with_tokens(700)
    expensive = manifest_with_tokens(1000)

    decision = gate(cheap, expensive, "models:/m@prod", margin=0.05)

    assert decision.basis == "cheaper"
    assert "not worse by more than 0.05 (lower bound -0.030)" in decision.line
    assert "and cheaper: -300 tokens a question [" in decision.line


def test_the_gate_refuses_a_cheaper_program_without_a_margin():
    """Scores are equal, and without a margin only a gain counts."""
    cheap = manifest_with_tokens(700)
    expensive = manifest_with_tokens(1000)

    message = refusal(gate, cheap, expensive, "models:/m@prod")

    assert "No significant gain" in message


def test_the_gate_refuses_a_more_expensive_program_that_is_no_better():
    """Scores are equal. A question takes 1000 tokens instead of 700."""
    cheap = manifest_with_tokens(700)
    expensive = manifest_with_tokens(1000)

    message = refusal(gate, expensive, cheap, "models:/m@prod", margin=0.05)

    assert "it may not be cheaper: +300 tokens a question" in message


def test_the_gate_refuses_a_cheaper_program_that_may_be_worse_by_more_than_the_margin():
    """Scores are equal; 100 questions show that the cheap program is worse by 0.03 at most."""
    cheap = manifest_with_tokens(700)
    expensive = manifest_with_tokens(1000)

    message = refusal(gate, cheap, expensive, "models:/m@prod", margin=0.02)

    assert "it may be worse by more than 0.02 (lower bound -0.030)" in message


def test_the_gate_takes_the_margin_of_the_compile():
    """The user gave a margin when the program was compiled, and gives none to the gate."""
    cheap = manifest_with_tokens(700)
    cheap.scores["gate"]["margin"] = 0.05

    decision = gate(cheap, manifest_with_tokens(1000), "models:/m@prod")

    assert decision.basis == "cheaper"


def test_costs_are_not_compared_with_a_program_whose_tokens_were_not_recorded():
    """Older versions of Mempiler recorded no tokens."""
    current = manifest_with_tokens(1000)
    del current.scores["gate"]["tokens"]

    message = refusal(gate, manifest_with_tokens(700), current, "models:/m@prod", margin=0.05)

    assert "models:/m@prod keeps no tokens of each dev question; compile it again" in message


def test_tokens_of_different_models_are_not_compared():
    """Fewer tokens of a model with higher prices may cost more."""
    new = manifest_with_tokens(700, lm="offline")
    current = manifest_with_tokens(1000, lm="openai/x")

    message = refusal(gate, new, current, "models:/m@prod", margin=0.05)

    assert "tokens of offline and of openai/x have different prices" in message


def test_a_version_has_a_tag_that_says_what_it_was_accepted_for(make_program, model_name):
    """Both programs have equal scores, and the second one is cheaper."""
    expensive_program = make_program("Expensive.", manifest_with_tokens(1000))
    cheap_program = make_program("Cheap.", manifest_with_tokens(700))
    register(expensive_program, model_name, "prod")

    registered = register(cheap_program, model_name, "prod", margin=0.05)

    assert registered.basis == "cheaper"
    assert registered.summary()["basis"] == "cheaper"
    assert tags_of(registered.address)["mempiler.basis"] == "cheaper"
