"""Programs in the model registry: a gate before, the same program after, what it answers behind an MLflow endpoint."""

import json
import re
import shutil
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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

from .evaluations import refusal
from ..run_inputs import run_inputs

DATA = {"name": "locomo", "metric": "F1", "sha256": "d1", "split_sha256": "s1"}


def manifest_of(score: float | None = 0.5, **changes: Any) -> Manifest:
    scored = {
        "split": "dev",
        "score": score,
        "n": 20,
        "min_n": 20,
        "stopped": None,
        "lm": "offline",
        "judge": None,
    }
    scored |= {name: value for name, value in changes.items() if name in scored}
    scored |= {"scores": [score] * scored["n"], "groups": [n // 10 for n in range(scored["n"])]}
    scored |= {name: changes[name] for name in ("scores", "groups") if name in changes}
    data = DATA | {name: value for name, value in changes.items() if name in DATA}
    return Manifest(
        method="", task="", benchmark=data, scores={"gate": scored}, manifest_sha256=str(changes)
    )


Make = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Make:
    """Saves a program whose prompt is `words`, with a score on dev questions; None leaves the scores out."""

    def make(score: float | None = 0.5, words: str = "Answer.", **changes: Any) -> Path:
        built: Any = build("turn-rag", k=3)
        built.task.answer.signature = built.task.answer.signature.with_instructions(words)
        manifest = Manifest(method="", task="") if score is None else manifest_of(score, **changes)
        save(built, tmp_path / words, manifest)
        return tmp_path / words

    return make


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A registered model of the test's own: all tests share one store."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture(scope="session")
def registered(tmp_path_factory: pytest.TempPathFactory) -> RegisteredProgram:
    """One version of `shared@prod`, for tests that change nothing; one a process, whose store all tests share."""
    folder = tmp_path_factory.mktemp("registered") / "program"
    save(build("turn-rag", k=3), folder, manifest_of())
    return register(folder, "shared", "prod")


def words_of(program: Any) -> str:
    return program.task.answer.signature.instructions


def test_an_alias_follows_the_better_program_and_a_worse_one_is_refused(program, name):
    register(program(0.5, "Old."), name, "prod")
    done = register(program(0.6, "New."), name, "prod")
    assert done.version == "2"
    assert words_of(load(done.address)) == "New."
    assert words_of(load(f"models:/{name}/1")) == "Old."
    # The twenty questions are about two conversations.
    scope = "other questions about these conversations"
    assert done.gate.startswith(
        f"dev 0.600 (n = 20, offline), models:/{name}@prod has 0.500 (offline): +0.100 ["
    )
    assert done.gate.endswith(f", n = 20: better (scope: {scope})")
    assert done.scope == done.summary()["scope"] == scope
    assert find_version(done.address).tags["mempiler.scope"] == scope
    told = refusal(register, program(0.4, "Worse."), name, "prod")
    assert told.startswith(
        f"No significant gain over models:/{name}@prod on dev (-0.200 [-0.200, -0.200] (design"
    )
    assert f"; scope: {scope})" in told
    assert words_of(load(done.address)) == "New."
    assert len(client().search_model_versions(f"name = '{name}'")) == 2
    assert (
        words_of(load(register(program(0.4, "Worse."), name, "prod", force=True).address))
        == "Worse."
    )
    assert (
        find_version(done.address)
        .tags["mempiler.gate"]
        .startswith("forced: No significant gain over")
    )


@pytest.mark.parametrize(
    ("new", "old", "told"),
    [
        (manifest_of(0.4), None, None),
        (manifest_of(0.5), manifest_of(0.5), None),
        (manifest_of(None, n=0), None, "no score on dev questions"),
        (
            manifest_of(0.9, stopped="budget reached: max-calls 9"),
            None,
            "its scoring was stopped (budget reached",
        ),
        (manifest_of(0.9), manifest_of(None, n=0), "has no score on dev questions to compare with"),
        (
            manifest_of(0.9),
            Manifest(method="", task="", manifest_sha256="x"),
            "has no score on dev questions",
        ),
        (
            manifest_of(0.9, name="msc"),
            manifest_of(0.5),
            "another benchmark (msc here, locomo there)",
        ),
        (
            manifest_of(0.9, sha256="d2"),
            manifest_of(0.5),
            "another data (sha256) (d2 here, d1 there)",
        ),
        (manifest_of(0.9, judge="j2"), manifest_of(0.5), "another judge (j2 here, None there)"),
        (manifest_of(0.9, lm="openai/x"), manifest_of(0.5), None),
        # A gain on six of twenty questions, and on five.
        (manifest_of(0.65, scores=[*[0.5] * 14, *[1.0] * 6]), manifest_of(0.5), None),
        (
            manifest_of(0.62, scores=[*[0.5] * 15, *[1.0] * 5]),
            manifest_of(0.5),
            "p = .062, n = 20; scope: ",
        ),
        # The least n is that of the compile.
        (
            manifest_of(0.9, n=19),
            manifest_of(0.5, n=19, lm="x"),
            "Too few dev questions to tell a gain over models:",
        ),
        (manifest_of(0.9, n=19, min_n=19), manifest_of(0.5, n=19), None),
        (
            manifest_of(0.9, n=30),
            manifest_of(0.5),
            "another number of dev questions (30 here, 20 there)",
        ),
        (
            manifest_of(0.9, scores=[]),
            manifest_of(0.5),
            "the program keeps no score of each dev question",
        ),
        (
            manifest_of(0.9),
            manifest_of(0.5, scores=[]),
            "models:/m@prod keeps no score of each dev question",
        ),
    ],
)
def test_the_gate_accepts_a_program_or_says_why_not(new, old, told):
    if told is None:
        assert gate(new, old, "models:/m@prod").line.startswith(
            f"dev {new.scores['gate']['score']:.3f}"
        )
        return
    found = refusal(gate, new, old, "models:/m@prod")
    assert told in found
    forced = gate(new, old, "models:/m@prod", force=True).line
    assert f"{forced}; --force registers it all the same" == f"forced: {found}"


def test_a_least_number_of_questions_of_0_is_not_replaced_by_that_of_the_compile():
    new, old = manifest_of(0.9, n=8), manifest_of(0.5, n=8, lm="x")
    assert "Too few dev questions" in refusal(gate, new, old, "models:/m@prod")
    assert gate(new, old, "models:/m@prod", min_n=0).line.startswith("dev 0.900 (n = 8")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("models:/shared@canary", "canary"),
        ("models:/shared/77", "77"),
        ("models:/nobody@prod", "nobody"),
        ("models:/shared/../../etc", "write models:/NAME@ALIAS"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_an_address_that_leads_nowhere_is_one_line(address, told):
    for call in (fetch_program, load, pin_address):
        found = refusal(call, address)
        assert address in found
        assert told in found


@pytest.mark.parametrize(
    ("wrong", "alias", "told"),
    [
        *(
            (wrong, "prod", "the name of a registered model")
            for wrong in ("a/b", "a:b", "a@b", " ", "it's", 'a"b')
        ),
        *(
            (None, wrong, "an alias is one word")
            for wrong in ("v1", "V2", "latest", "a b", "a/b", "", "x" * 256)
        ),
    ],
)
def test_a_name_or_an_alias_that_cannot_stand_in_an_address_registers_nothing(
    program, name, wrong, alias, told
):
    assert told in refusal(register, program(), name if wrong is None else wrong, alias)
    assert client().search_registered_models(f"name = '{name}'") == []


def test_a_model_that_mempiler_did_not_make_is_refused(name):
    client().create_registered_model(name)
    client().create_model_version(name, "runs:/none/model")
    assert "was not made by `mempiler publish`" in refusal(fetch_program, f"models:/{name}/1")


def test_files_exchanged_below_the_registry_are_refused(program, name, tmp_path, monkeypatch):
    done = register(program(words="Mine."), name, "prod")
    store = (
        Path(str(find_version(done.address).source).removeprefix("file://"))
        / "artifacts"
        / "program"
    )
    for path in program(words="Theirs.").iterdir():
        shutil.copyfile(path, store / path.name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri())
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "elsewhere"))
    assert "was altered after it was registered" in refusal(load, done.address)
    assert list((tmp_path / "elsewhere" / "registry").iterdir()) == []


def test_a_broken_local_copy_is_fetched_anew(program, name):
    done = register(program(words="Whole."), name, "prod")
    copy = fetch_program(done.address)
    assert fetch_program(done.address) == copy
    (copy / "state.json").write_text("{}")
    assert words_of(load(done.address)) == "Whole."
    assert list(copy.parent.glob(".fetch-*")) == []


def test_a_failed_upload_registers_nothing(program, name, monkeypatch):
    monkeypatch.setattr("mlflow.MlflowClient.log_artifacts", Mock(side_effect=OSError("disk full")))
    assert "could not be stored: disk full; nothing was registered" in refusal(
        register, program(), name, "prod"
    )
    assert client().search_registered_models(f"name = '{name}'") == []


def test_evaluate_and_compile_take_an_address(registered, tmp_path):
    inputs = run_inputs(benchmark="locomo", train=4, dev=2, test=2)
    found = run_evaluate(registered.address, inputs, "test")
    assert found.program == "turn-rag"
    assert len(found.rows) == 2
    outcome = run_compile(
        registered.address, inputs, keep=KeepOptions(tmp_path / "out", force=True)
    )
    assert isinstance(outcome, CompileResult)
    assert load(tmp_path / "out").method.config["k"] == 3
    settings = json.loads((outcome.run / "run.json").read_text())["settings"]
    assert settings["program"] == "models:/shared/1"


def test_the_model_holds_text_only(registered):
    """Models from code: what was registered can be read, and holds no pickle."""
    model = Path(str(find_version(registered.address).source).removeprefix("file://"))
    files = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
    assert {
        "MLmodel",
        "program.py",
        "artifacts/program/manifest.json",
        "artifacts/program/state.json",
    } <= files
    assert {Path(name).suffix for name in files} <= {"", ".json", ".py", ".txt", ".yaml"}
    needed = [f"mlflow=={version('mlflow')}", f"mempiler=={__version__}"]
    assert (model / "requirements.txt").read_text().split() == needed


def test_the_same_program_makes_no_second_version(program, name):
    folder = program()
    first, second = register(folder, name), register(folder, name, "prod")
    assert first.version == "1"
    assert first.is_new is True
    assert second.version == "1"
    assert second.is_new is False
    assert pin_address(second.address) == f"models:/{name}/1"


SAID = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
TURN = {"id": "D1:1", "speaker": "Ada", "text": "I moved to Lisbon."}
ROW = {"question": "Where did Ada move?", "messages": [SAID]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(
        build("turn-rag", k=3),
        tmp_path / "program",
        Manifest(method="", task="", lms={"task": "offline"}),
    )
    return tmp_path / "program"


@pytest.fixture
def served(folder: Path) -> ServedProgram:
    return ServedProgram(folder)


@pytest.mark.parametrize(
    "past",
    [
        {"messages": [[SAID], [SAID]]},
        {"messages": np.array([SAID]), "history": float("nan")},
        {"history": {"items": [{"kind": "session", "id": "D1", "turns": [TURN]}]}},
    ],
)
def test_a_past_has_any_form_that_a_history_file_has(served, past):
    (found,) = served.predict([{"question": "Where did Ada move?", **past}])
    assert found["answer"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"question": "Where?"}, "row 2: give one of history and messages, not neither"),
        (
            ROW | {"history": []},
            "row 2: give one of history and messages, not history and messages",
        ),
        ({"messages": [SAID]}, "row 2: task question-answering needs question"),
        (
            ROW | {"messages": "hello"},
            "row 2: history 'row-2': expected {items: [...]} or a list of messages, got str",
        ),
        (ROW | {"messages": [{"content": "hello"}]}, "row 2: message 1 of session 1 has no role"),
    ],
)
def test_a_wrong_row_is_named_before_any_model_is_asked(served, monkeypatch, row, told):
    monkeypatch.setattr(served.program, "forward", lambda **query: pytest.fail("asked"))
    with pytest.raises(MlflowException, match="row") as caught:
        served.predict([ROW, row])
    assert told in str(caught.value)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_the_environment_names_the_model_and_an_unreadable_answer_fails_its_row_alone(
    folder, monkeypatch, stub
):
    good = "[[ ## answer ## ]]\nPorto\n\n[[ ## completed ## ]]"
    server = stub(answer=lambda body: good if "did Ada" in str(body["messages"]) else "")
    monkeypatch.setenv("MEMPILER_LM", server.model)
    monkeypatch.setenv("MEMPILER_API_BASE", server.url)
    served = ServedProgram(folder)
    assert [served.predict([ROW])[0]["answer"] for _ in range(2)] == ["Porto", "Porto"]
    assert len(server.texts) == 2, (
        "an answer came from DSPy's cache, where what users say must not lie"
    )
    first, second = served.predict([ROW, ROW | {"question": "Where did Bob go?"}])
    assert first["answer"] == "Porto"
    assert first["failure"] is None
    assert second["answer"] is None
    assert second["failure"]["kind"] == "parse"


def test_a_registered_program_answers_behind_mlflow_s_interface(folder):
    address = register(folder, "served", "prod", force=True).address
    with use_tracking_store(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of MLflow's own type hints, and of those that a signature stands for
        from mlflow.pyfunc import load_model

        loaded = load_model(address)
    (found,) = loaded.predict([ROW])
    assert found["answer"] == "I moved to Lisbon."
    assert found["sources"] == ["D1:1"]
    assert found["failure"] is None
    assert [hit["sources"] for hit in found["evidence"]] == [["D1:1"]]
    json.dumps(found)


def manifest_with_tokens(tokens: int, **changes: Any) -> Manifest:
    """Return the manifest of a program with equal scores, 100 questions about two conversations."""
    scores = [1.0, 0.0] * 50
    manifest = manifest_of(
        0.5, n=100, scores=scores, groups=[n // 50 for n in range(100)], **changes
    )
    manifest.scores["gate"]["tokens"] = [tokens + n % 3 for n in range(100)]
    return manifest.model_copy(update={"manifest_sha256": f"{tokens} {changes}"})


def test_the_gate_accepts_a_cheaper_program_within_the_margin():
    new, old = manifest_with_tokens(700), manifest_with_tokens(1000)
    decision = gate(new, old, "models:/m@prod", margin=0.05)
    assert decision.basis == "cheaper"
    assert (
        ": not worse by more than 0.05 (lower bound -0.030) and cheaper: -300 tokens a question ["
        in decision.line
    )
    assert "No significant gain" in refusal(gate, new, old, "models:/m@prod")
    told = refusal(gate, old, new, "models:/m@prod", margin=0.05)
    assert "it may not be cheaper: +300 tokens a question" in told
    told = refusal(gate, new, old, "models:/m@prod", margin=0.02)
    assert "it may be worse by more than 0.02 (lower bound -0.030)" in told


def test_the_gate_takes_the_margin_of_the_compile():
    new, old = manifest_with_tokens(700), manifest_with_tokens(1000)
    new.scores["gate"]["margin"] = 0.05
    assert gate(new, old, "models:/m@prod").basis == "cheaper"


def test_programs_of_older_versions_and_of_other_models_are_not_compared_by_tokens():
    new, old = manifest_with_tokens(700), manifest_with_tokens(1000)
    del old.scores["gate"]["tokens"]
    told = refusal(gate, new, old, "models:/m@prod", margin=0.05)
    assert "models:/m@prod keeps no tokens of each dev question; compile it again" in told
    other = manifest_with_tokens(1000, lm="openai/x")
    told = refusal(gate, new, other, "models:/m@prod", margin=0.05)
    assert "tokens of offline and of openai/x have different prices" in told


def test_the_version_of_a_program_has_a_tag_of_what_it_was_accepted_for(program, name):
    cheap, dear = program(words="Cheap."), program(words="Dear.")
    for folder, manifest in (
        (cheap, manifest_with_tokens(700)),
        (dear, manifest_with_tokens(1000)),
    ):
        save(load(folder), folder, manifest)
    register(dear, name, "prod")
    done = register(cheap, name, "prod", margin=0.05)
    assert done.basis == done.summary()["basis"] == "cheaper"
    assert find_version(done.address).tags["mempiler.basis"] == "cheaper"
