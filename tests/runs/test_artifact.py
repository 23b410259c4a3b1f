"""Saved programs: the same prompts after loading, from a folder or the hub; one line for anything that does not fit."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import dspy
import httpx
import huggingface_hub
import mempiler
import pytest
from huggingface_hub import HfApi, errors
from mempiler import History, Session, Turn, UserError, build, load, save
from mempiler.engines.embedders import embedder
from mempiler.errors import EndpointError
from mempiler.programs.adapter import adapter
from mempiler.programs.memory_r2 import writer as memory_r2_writer
from mempiler.programs.state import signature_of
from mempiler.programs.tasks import catalog as tasks
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.runs.manifest import MANIFEST, STATE, digest_of, read_manifest, sha256_of
from mempiler.runs.program_address import pin_address
from mempiler.runs.publish import push
from mempiler.signatures.memory_r2 import ExtractFactsInContext
from pydantic import BaseModel

from .evaluations import refusal


def program_of(name: str) -> Any:
    return build(name, embedder=embedder())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(program_of("turn-rag"), tmp_path / "program")
    return tmp_path / "program"


@pytest.mark.parametrize("folder", [3, None])
def test_a_path_that_is_no_folder_is_refused_in_one_line(folder: Any) -> None:
    with pytest.raises(UserError) as refused:
        load(folder)
    assert str(refused.value).startswith(f"folder = {folder}: give the folder of a saved program")


def tune(program: Any, history: History) -> None:
    """What teleprompters do: the program's own calls as demos, a labelled demo, other words in the prompts."""
    with dspy.context(trace=[]):
        program(history=history, question="Who saw Quito?")
        trace = list(dspy.settings.trace)
    for predictor in program.all_predictors().values():
        own = [(inputs, outputs) for p, inputs, outputs in trace if p is predictor]
        predictor.demos = [
            dspy.Example(augmented=True, **inputs, **outputs) for inputs, outputs in own
        ]
        predictor.demos.append(
            dspy.Example(history=history, question="What did Zoe paint?", answer="a marker")
        )
        name = list(signature_of(predictor).output_fields)[-1]
        predictor.signature = signature_of(predictor).with_updated_fields(
            name, prefix="Out:", desc="other words"
        )
        predictor.signature = predictor.signature.with_instructions("Do it well.")


def rendered(program: Any, style: str) -> dict[str, Any]:
    found = {
        name: (signature_of(each), each.demos) for name, each in program.all_predictors().items()
    }
    return {
        name: adapter(style).format(s, demos, dict.fromkeys(s.input_fields, "?"))
        for name, (s, demos) in found.items()
    }


@pytest.mark.parametrize("style", ["chat", "json"])
@pytest.mark.parametrize("name", ["turn-rag", "memory-r2"])
def test_a_round_trip_gives_the_same_prompts(
    tmp_path, scripted, fact_replies, make_history, name, style
):
    program, undated = (
        program_of(name),
        Session(id="D9", turns=(Turn(id="D9:1", speaker="Ann", text="No date here"),)),
    )
    with dspy.context(lm=scripted(fact_replies)):
        tune(program, History(id="both", items=(*make_history(2).items, undated)))
    save(program, tmp_path / "program")
    loaded = load(tmp_path / "program")
    before = rendered(program, style)
    assert rendered(loaded, style) == before
    assert before != rendered(program_of(name), style)
    # A labelled demo has the fields of the answering predictors only; writers keep what is their own.
    kept = {name: len(predictor.demos) for name, predictor in loaded.all_predictors().items()}
    assert kept == ({"task.answer": 2} if name == "turn-rag" else {**kept, "task.answer": 2})
    assert all(kept.values())


def test_the_manifest_says_what_was_saved(saved):
    manifest = read_manifest(saved)
    assert manifest.method == "turn-rag"
    assert manifest.task == "question-answering"
    assert manifest.config["k"] == 10
    assert [field[0] for field in manifest.signatures["task.answer"]] == [
        "context",
        "question",
        "answer",
    ]
    assert manifest.packages["dspy"] == dspy.__version__
    assert sorted(path.name for path in saved.iterdir()) == ["manifest.json", "state.json"]


def edit_manifest(**changes: Any) -> Any:
    def edit(folder: Path) -> None:
        found = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**found, **changes}))

    return edit


def put(name: str, content: bytes) -> Any:
    return lambda folder: (folder / name).write_bytes(content)


def rehashed(state: str) -> Any:
    """Another state, with hashes that are right for it."""

    def write(folder: Path) -> None:
        (folder / "state.json").write_text(state)
        manifest = read_manifest(folder).model_copy(update={"state_sha256": sha256_of(state)})
        edit_manifest(state_sha256=manifest.state_sha256, manifest_sha256=digest_of(manifest))(
            folder
        )

    return write


def resigned(**changes: Any) -> Any:
    """Other values in the manifest, with a hash that is right for them: whoever writes the file can do so."""

    def write(folder: Path) -> None:
        manifest = read_manifest(folder).model_copy(update=changes)
        edit_manifest(**changes, manifest_sha256=digest_of(manifest))(folder)

    return write


def instead(name: str, put: Callable[[Path], object]) -> Any:
    """Something else where a file of the program was."""

    def replace(folder: Path) -> None:
        (folder / name).rename(folder.parent / name)
        put(folder / name)

    return replace


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**27)


NO_FILE = "is a link to a file outside the folder, or no ordinary file; put the file itself there"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            instead("state.json", lambda path: path.symlink_to(path.parent.parent / path.name)),
            ("state.json", NO_FILE),
        ),
        (instead("state.json", large), ("state.json", "has 134,217,728 bytes")),
        (put("state.json", b"{}"), ("state.json", "altered after it was saved")),
        (edit_manifest(config={"k": 3}), ("manifest.json", "altered after it was saved")),
        (edit_manifest(comment="mine"), ("manifest.json", "comment", "altered")),
        (edit_manifest(method=7), ("manifest.json", "method", "altered")),
        (edit_manifest(schema_version=3), ("manifest.json", "schema version 3 is unknown")),
        (rehashed("[" * 100_000), ("state.json", "nested more than 100 levels deep")),
        (rehashed("[]"), ("state.json", "not the state of a saved program")),
        (
            rehashed('{"task.answer": {"instructions": 7}}'),
            ("state.json", "instructions: Input should be"),
        ),
        (put("manifest.json", b'{"method": '), ("manifest.json", "not valid JSON at line")),
        (lambda folder: (folder / "state.json").unlink(), ("state.json", "cannot be read")),
        (put("state.json", b"\xff\xfe\xfa"), ("state.json", "cannot be read")),
        (
            lambda folder: (folder / "manifest.json").unlink(),
            ("no saved program here", "manifest.json is missing"),
        ),
    ],
)
def test_a_damaged_folder_is_refused_by_name(saved, damage, words):
    damage(saved)
    message = refusal(load, saved)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("method", ["turn-rag", "session-rag", "logs+turn-rag", "pgr"])
@pytest.mark.parametrize(
    ("k", "range"),
    [
        (-1, "greater than or equal to 1"),
        (0, "greater than or equal to 1"),
        (10**9, "less than or equal to 1000"),
    ],
)
def test_a_number_of_entries_out_of_its_range_is_refused_in_a_folder_as_elsewhere(
    tmp_path, method, k, range
):
    program = build(method)
    save(program, tmp_path / "program")
    resigned(config={**program.config, "k": k})(tmp_path / "program")
    message = refusal(load, tmp_path / "program")
    assert message == refusal(build, method, k=k)
    assert f"k = {k}: input should be {range}" in message


def test_a_method_of_very_many_policies_is_refused_in_one_line(saved):
    resigned(method="logs+" * 2000 + "turn-rag")(saved)
    assert "2,000 policies before a method; at most 8" in refusal(load, saved)
    assert len(refusal(load, saved)) < 200


class Renamed(dspy.Signature):
    """Answer."""

    context: str = dspy.InputField()
    query: str = dspy.InputField()
    answer: str = dspy.OutputField()


def test_a_change_inside_a_nested_model_is_seen(tmp_path, monkeypatch):
    class Fact(BaseModel):
        speaker: str
        turn_id: int
        fact: str

    save(program_of("memory-r2"), tmp_path / "program")
    changed = ExtractFactsInContext.with_updated_fields("facts", type_=list[Fact])
    monkeypatch.setattr(memory_r2_writer, "ExtractFactsInContext", changed)
    message = refusal(load, tmp_path / "program")
    assert "method.writer.extract_facts" in message
    assert "'facts'" in message


class TwoSteps(QuestionAnswering):
    def __init__(self) -> None:
        super().__init__()
        self.check = dspy.Predict(Renamed)


@pytest.mark.parametrize(
    ("saved_as", "loaded_as", "where"),
    [(TwoSteps, QuestionAnswering, "code"), (QuestionAnswering, TwoSteps, "saved program")],
)
def test_a_predictor_too_few_or_too_many_is_named(
    tmp_path, monkeypatch, saved_as, loaded_as, where
):
    monkeypatch.setitem(tasks.TASKS, "question-answering", saved_as)
    save(program_of("turn-rag"), tmp_path / "program")
    monkeypatch.setitem(tasks.TASKS, "question-answering", loaded_as)
    message = refusal(load, tmp_path / "program")
    assert all(
        word in message for word in ("task.check", f"not in the {where}", "compile again")
    ), message


def test_a_link_within_the_folder_is_followed(saved):
    """As in volumes of Kubernetes."""
    (saved / "..data").mkdir()
    (saved / "state.json").rename(saved / "..data" / "state.json")
    (saved / "state.json").symlink_to("..data/state.json")
    assert load(saved).name == "turn-rag"


@pytest.mark.parametrize(
    "names", [["notes.txt"], ["manifest.json"], ["manifest.json", "state.json", "notes.txt"]]
)
def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="is no saved program; choose another"):
        save(program_of("turn-rag"), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        names, "mine"
    )


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write_text", "rename"])
def test_a_crash_while_saving_leaves_the_old_program(saved, monkeypatch, error, step):
    real = getattr(Path, step)

    def broken(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name in ("manifest.json", "new"):
            raise error
        return real(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, step, broken)
        with pytest.raises((UserError, KeyboardInterrupt)):
            save(build("turn-rag", k=3), saved)
    assert load(saved).method.config["k"] == 10
    assert [path.name for path in saved.parent.iterdir()] == ["program"]


def test_code_outside_the_package_runs_only_when_allowed(tmp_path, monkeypatch):
    source = "from mempiler.programs.baselines.turn_rag import TurnRAG\nclass Mine(TurnRAG): pass\n"
    (tmp_path / "saved_program_of_mine.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    save(build("saved_program_of_mine:Mine"), tmp_path / "program")
    (tmp_path / "saved_program_of_mine.py").write_text("raise SystemExit('imported')")
    monkeypatch.delitem(__import__("sys").modules, "saved_program_of_mine")
    message = refusal(load, tmp_path / "program")
    assert "'saved_program_of_mine:Mine'" in message
    assert "--allow-code" in message
    (tmp_path / "saved_program_of_mine.py").write_text(source + "# once more\n")
    assert load(tmp_path / "program", allow_code=True).method.config["k"] == 10


ADDRESS = "hf://ada/memory"


def refused(status: int, kind: Any = errors.HfHubHTTPError) -> Exception:
    """An error of the hub's client, of some lines as they are."""
    response = httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid"))
    return kind("the hub says\nno", response=response)


class Hub:
    """What programs ask of the hub's client, each call as its signature wants it; commits by repository and name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None
        calls = {
            "create_repo": self._create,
            "upload_folder": self._upload,
            "model_info": self._info,
        }
        places = [(HfApi, *each) for each in calls.items()] + [
            (huggingface_hub, "hf_hub_download", self._download)
        ]
        for place, name, call in places:
            monkeypatch.setattr(
                place, name, create_autospec(getattr(place, name), side_effect=self._asked(call))
            )

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Adds a commit; returns its name."""
        commits = self.repos.setdefault(repo, {})
        commits[f"{len(commits):040x}"] = files
        return list(commits)[-1]

    def _asked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def heard(*given: Any, **named: Any) -> Any:
            self.asked.append(
                named.get("filename") or (given[1] if call == self._download else call.__name__)
            )
            if self.error is not None:
                raise self.error
            return call(*given, **named)

        return heard

    def _create(self, api: Any, repo_id: str, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.repos.setdefault(repo_id, {})

    def _upload(
        self,
        api: Any,
        repo_id: str,
        folder_path: Path,
        allow_patterns: list[str],
        commit_message: str,
    ) -> Any:
        sent = {
            path.name: path.read_bytes()
            for path in folder_path.iterdir()
            if path.name in allow_patterns
        }
        return SimpleNamespace(oid=self.commit(repo_id, sent))

    def _info(self, api: Any, repo_id: str, revision: str | None) -> Any:
        if repo_id not in self.repos:
            raise refused(404, errors.RepositoryNotFoundError)
        if revision not in (None, "main", *self.repos[repo_id]):
            raise refused(404, errors.RevisionNotFoundError)
        return SimpleNamespace(sha=list(self.repos[repo_id])[-1])

    def _download(
        self, repo_id: str, filename: str, revision: str, local_dir: Path, force_download: bool
    ) -> None:
        if filename not in self.repos[repo_id][revision]:
            raise errors.EntryNotFoundError(filename)
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / filename).write_bytes(self.repos[repo_id][revision][filename])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """A hub with nothing on it, and a token."""
    monkeypatch.setenv("HF_TOKEN", "hf_ada")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return Hub(monkeypatch)


def test_a_published_program_is_loaded_and_asked_by_its_name(
    hub: Hub, saved: Path, cli: Any
) -> None:
    address = json.loads(cli("publish", saved, ADDRESS, "--json")[1])["address"]
    ((commit, files),) = hub.repos["ada/memory"].items()
    assert address == f"{ADDRESS}@{commit}"
    assert set(files) == {MANIFEST, STATE}
    assert mempiler.load(ADDRESS).name == "turn-rag"
    assert pin_address(ADDRESS) == address
    asked = len(hub.asked)
    chat = saved.parent / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]))
    found = cli("ask", address, "Where did Ada move?", "--history", chat, "--json")
    assert "Lisbon" in json.loads(found[1])["answer"]
    assert len(hub.asked) == asked  # a commit does not change: it is here
    assert (
        "nothing: there is no such folder" in cli("publish", saved.parent / "nothing", ADDRESS)[2]
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda files: files.update({STATE: files[STATE] + b" "}), "altered after it was saved"),
        (lambda files: files.pop(STATE), "no such repository, revision or program"),
        (lambda files: files.update({MANIFEST: b"{"}), "manifest.json"),
    ],
)
def test_a_fetched_program_is_checked_like_any_folder(
    hub: Hub, saved: Path, change: Any, says: str
) -> None:
    files = {path.name: path.read_bytes() for path in saved.iterdir()}
    change(files)
    hub.commit("eve/memory", {**files, "evil.py": b"raise SystemExit"})
    with pytest.raises(mempiler.UserError, match=says):
        mempiler.load("hf://eve/memory")
    assert "evil.py" not in hub.asked


@pytest.mark.parametrize(
    ("address", "error", "kind", "says"),
    [
        (
            "hf://ada/other",
            None,
            UserError,
            "no such repository on the hub, or it is private: set HF_TOKEN",
        ),
        (f"{ADDRESS}@v9", None, UserError, "no such repository, revision or program: "),
        ("hf://ada/mem?x", None, UserError, "write hf://OWNER/NAME"),
        (ADDRESS, refused(403), UserError, "refuses the token"),
        (
            ADDRESS,
            refused(503),
            EndpointError,
            "the hub cannot be reached, or fails: the hub says no",
        ),
    ],
)
def test_a_missing_or_forbidden_repository_is_one_line(
    hub, saved, address, error, kind, says
) -> None:
    push(saved, ADDRESS, private=True)
    hub.error = error
    with pytest.raises(kind, match=says):
        mempiler.load(address)


def test_a_failed_push_is_reported(hub: Hub, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="leave out @main"):
        push(saved, f"{ADDRESS}@main")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="set HF_TOKEN, or run: hf auth login"):
        push(saved, ADDRESS)
    assert hub.asked == []
