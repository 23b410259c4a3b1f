"""Saved programs: the same prompts after loading, from a folder or from the Hugging Face hub.

A saved program is a folder of two files. `manifest.json` says what the program consists of, and
`state.json` holds its prompts. The manifest also holds digests of both, by which a changed file is
noticed. Whoever changes a file on purpose can write a new digest, too, so what the files hold is
checked as well.
"""

import json
import os
import sys
from collections.abc import Iterator
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
from mempiler.programs.state import signature_of
from mempiler.runs.manifest import digest_of, read_manifest, sha256_of
from mempiler.runs.program_address import pin_address
from mempiler.runs.publish import push
from pydantic import BaseModel

from .evaluations import refusal


def build_program(method: str) -> Any:
    """Build a method with the offline embedder."""
    return build(method, embedder=embedder())


@pytest.fixture
def turn_rag_folder(tmp_path: Path) -> Path:
    """The folder of a saved program, a turn RAG: manifest.json and state.json."""
    save(build_program("turn-rag"), tmp_path / "program")
    return tmp_path / "program"


def compile_by_hand(program: Any, history: History) -> None:
    """Change all that optimizers change: add demos, and replace instructions and descriptions."""
    with dspy.context(trace=[]):
        program(history=history, question="Who saw Quito?")
        calls = list(dspy.settings.trace)

    for predictor in program.all_predictors().values():
        # The program's own calls become demos, as bootstrapping makes them.
        predictor.demos = []
        for called_predictor, inputs, outputs in calls:
            if called_predictor is predictor:
                predictor.demos.append(dspy.Example(augmented=True, **inputs, **outputs))
        # So does a training question with its gold answer.
        predictor.demos.append(
            dspy.Example(history=history, question="What did Zoe paint?", answer="a marker")
        )

        signature = signature_of(predictor)
        last_output = list(signature.output_fields)[-1]
        signature = signature.with_updated_fields(last_output, prefix="Out:", desc="other words")
        predictor.signature = signature.with_instructions("Do it well.")


def prompts_of(program: Any, adapter_name: str) -> dict[str, Any]:
    """Return the prompt of each predictor, with "?" for all inputs."""
    prompts = {}
    for name, predictor in program.all_predictors().items():
        signature = signature_of(predictor)
        inputs = dict.fromkeys(signature.input_fields, "?")
        prompts[name] = adapter(adapter_name).format(signature, predictor.demos, inputs)
    return prompts


@pytest.mark.parametrize("adapter_name", ["chat", "json"])
@pytest.mark.parametrize(
    ("method", "predictor_names"),
    [
        ("turn-rag", {"task.answer"}),
        (
            "memory-r2",
            {"method.writer.extract_facts", "method.writer.manage", "task.answer"},
        ),
    ],
)
def test_a_loaded_program_has_the_prompts_of_the_saved_one(
    tmp_path: Path,
    scripted: Any,
    fact_replies: Any,
    make_history: Any,
    method: str,
    predictor_names: set[str],
    adapter_name: str,
) -> None:
    """Before saving, `compile_by_hand` changes all parts of the prompts.

    Turn RAG has one prompt, which answers. Memory-R2 has two more, which write its memory: one
    finds facts, the other decides what to store. Its demos show turns with a date and without.
    """
    undated = Session(id="D9", turns=(Turn(id="D9:1", speaker="Ann", text="No date here"),))
    history = History(id="both", items=(*make_history(2).items, undated))
    program = build_program(method)
    with dspy.context(lm=scripted(fact_replies)):
        compile_by_hand(program, history)

    save(program, tmp_path / "program")
    loaded = load(tmp_path / "program")

    assert prompts_of(loaded, adapter_name) == prompts_of(program, adapter_name)
    assert prompts_of(loaded, adapter_name) != prompts_of(build_program(method), adapter_name)
    demo_counts = {
        name: len(predictor.demos) for name, predictor in loaded.all_predictors().items()
    }
    assert set(demo_counts) == predictor_names
    assert all(demo_counts.values())
    # The predictor that answers has two: its own call, and the training question. Others have only
    # their own calls, since they lack the fields of a question.
    assert demo_counts["task.answer"] == 2


def test_the_manifest_says_what_was_saved(turn_rag_folder: Path) -> None:
    """The saved program is a turn RAG, which recalls ten turns (`k`) by default."""
    manifest = read_manifest(turn_rag_folder)

    assert manifest.method == "turn-rag"
    assert manifest.task == "question-answering"
    assert manifest.config["k"] == 10
    assert manifest.packages["dspy"] == dspy.__version__
    field_names = [field[0] for field in manifest.signatures["task.answer"]]
    assert field_names == ["context", "question", "answer"]
    assert sorted(path.name for path in turn_rag_folder.iterdir()) == [
        "manifest.json",
        "state.json",
    ]


def alter_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of a manifest, whose digest is then wrong."""
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def forge_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of a manifest, and its digest: whoever writes the file can do so."""
    manifest = read_manifest(folder).model_copy(update=changes)
    alter_manifest(folder, **changes, manifest_sha256=digest_of(manifest))


def forge_state(folder: Path, text: str) -> None:
    """Replace the state of the predictors, with digests that are right for it."""
    (folder / "state.json").write_text(text)
    forge_manifest(folder, state_sha256=sha256_of(text))


@pytest.mark.parametrize("folder", [3, None])
def test_a_path_that_is_no_folder_is_refused_in_one_line(folder: Any) -> None:
    message = refusal(load, folder)

    assert message.startswith(f"folder = {folder}: give the folder of a saved program")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config": {"k": 3}}, "altered after it was saved"),
        (
            {"comment": "mine"},
            "field comment: Extra inputs are not permitted; the file was altered",
        ),
        ({"method": 7}, "field method: Input should be a valid string; the file was altered"),
        ({"schema_version": 3}, "schema version 3 is unknown"),
    ],
)
def test_an_altered_manifest_is_refused(
    turn_rag_folder: Path, changes: dict[str, Any], problem: str
) -> None:
    """The manifest holds a digest of itself, which is wrong after these changes."""
    alter_manifest(turn_rag_folder, **changes)
    message = refusal(load, turn_rag_folder)

    assert "manifest.json" in message
    assert problem in message


@pytest.mark.parametrize(
    ("file_name", "content", "problem"),
    [
        pytest.param("state.json", b"{}", "altered after it was saved", id="another state"),
        pytest.param(
            "state.json", b"\xff\xfe\xfa", "cannot be read", id="a state that is not UTF-8"
        ),
        pytest.param(
            "manifest.json", b'{"method": ', "not valid JSON at line", id="half a manifest"
        ),
    ],
)
def test_a_file_with_other_content_is_refused(
    turn_rag_folder: Path, file_name: str, content: bytes, problem: str
) -> None:
    (turn_rag_folder / file_name).write_bytes(content)
    message = refusal(load, turn_rag_folder)

    assert file_name in message
    assert problem in message


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        pytest.param("[" * 100_000, "nested more than 100 levels deep", id="nested"),
        pytest.param("[]", "not the state of a saved program", id="a list"),
        pytest.param(
            '{"task.answer": {"instructions": 7}}', "instructions: Input should be", id="a number"
        ),
    ],
)
def test_a_state_of_another_shape_is_refused_even_if_its_digest_is_right(
    turn_rag_folder: Path, state: str, problem: str
) -> None:
    """Whoever writes another state can also write its digest."""
    forge_state(turn_rag_folder, state)
    message = refusal(load, turn_rag_folder)

    assert "state.json" in message
    assert problem in message


@pytest.mark.parametrize(
    ("file_name", "problem"),
    [
        ("state.json", "state.json: cannot be read"),
        ("manifest.json", "no saved program here (manifest.json is missing)"),
    ],
)
def test_a_folder_without_one_of_its_files_is_refused(
    turn_rag_folder: Path, file_name: str, problem: str
) -> None:
    (turn_rag_folder / file_name).unlink()

    assert problem in refusal(load, turn_rag_folder)


def test_a_link_to_a_file_outside_the_folder_is_refused(
    turn_rag_folder: Path, tmp_path: Path
) -> None:
    (turn_rag_folder / "state.json").rename(tmp_path / "state.json")
    (turn_rag_folder / "state.json").symlink_to(tmp_path / "state.json")
    message = refusal(load, turn_rag_folder)

    assert "state.json: is a link to a file outside the folder" in message
    assert "put the file itself there" in message


def test_a_link_within_the_folder_is_followed(turn_rag_folder: Path) -> None:
    # Volumes of Kubernetes hold their files like this.
    (turn_rag_folder / "..data").mkdir()
    (turn_rag_folder / "state.json").rename(turn_rag_folder / "..data" / "state.json")
    (turn_rag_folder / "state.json").symlink_to("..data/state.json")

    assert load(turn_rag_folder).name == "turn-rag"


def test_a_very_large_file_is_refused_before_it_is_read(turn_rag_folder: Path) -> None:
    os.truncate(turn_rag_folder / "state.json", 2**27)
    message = refusal(load, turn_rag_folder)

    assert "state.json" in message
    assert "has 134,217,728 bytes" in message


@pytest.mark.parametrize("method", ["turn-rag", "session-rag", "logs+turn-rag", "pgr"])
@pytest.mark.parametrize(
    ("k", "allowed"),
    [
        (-1, "greater than or equal to 1"),
        (0, "greater than or equal to 1"),
        (10**9, "less than or equal to 1000"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_in_a_saved_program_as_in_a_built_one(
    tmp_path: Path, method: str, k: int, allowed: str
) -> None:
    """All these methods have the setting `k`: how many entries of the memory are recalled."""
    program = build(method)
    save(program, tmp_path / "program")
    forge_manifest(tmp_path / "program", config={**program.config, "k": k})

    message = refusal(load, tmp_path / "program")

    assert f"k = {k}: input should be {allowed}" in message
    assert message == refusal(build, method, k=k)


def test_a_method_of_very_many_policies_is_refused_in_one_short_line(turn_rag_folder: Path) -> None:
    """A policy changes the method whose name it precedes, as "logs+" in "logs+turn-rag"."""
    forge_manifest(turn_rag_folder, method="logs+" * 2000 + "turn-rag")
    message = refusal(load, turn_rag_folder)

    assert "2,000 policies before a method; at most 8" in message
    assert len(message) < 200


def test_a_program_is_refused_if_a_type_in_its_outputs_has_changed(tmp_path: Path) -> None:
    """Memory-R2 asks the model for a list of facts.

    The program was saved when a fact had a number as `turn_id`; today the id is a text.
    """

    class Fact(BaseModel):
        """A fact with a number where today's has a text."""

        speaker: str
        turn_id: int
        fact: str

    program = build_program("memory-r2")
    predictor = program.all_predictors()["method.writer.extract_facts"]
    signature = signature_of(predictor)
    predictor.signature = signature.with_updated_fields("facts", type_=list[Fact])
    save(program, tmp_path / "program")

    message = refusal(load, tmp_path / "program")

    assert "method.writer.extract_facts" in message
    assert "'facts'" in message


def test_a_saved_predictor_that_the_code_lacks_is_named(tmp_path: Path) -> None:
    """A predictor is one prompt of a program; this program was saved with a second one."""
    program = build_program("turn-rag")
    program.task.check = dspy.Predict("context, query -> answer")
    save(program, tmp_path / "program")

    message = refusal(load, tmp_path / "program")

    assert "task.check is not in the code" in message
    assert "compile again" in message


def test_a_predictor_that_was_not_saved_is_named(turn_rag_folder: Path) -> None:
    forge_state(turn_rag_folder, "{}")
    message = refusal(load, turn_rag_folder)

    assert "task.answer of the code is not in the saved program" in message
    assert "compile again" in message


@pytest.mark.parametrize(
    "file_names",
    [["notes.txt"], ["manifest.json"], ["manifest.json", "state.json", "notes.txt"]],
)
def test_a_folder_that_holds_anything_else_is_not_overwritten(
    tmp_path: Path, file_names: list[str]
) -> None:
    for name in file_names:
        (tmp_path / name).write_text("mine")

    with pytest.raises(UserError, match="is no saved program; choose another"):
        save(build_program("turn-rag"), tmp_path)

    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == dict.fromkeys(file_names, "mine")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(OSError(28, "No space left on device"), UserError, id="disk full"),
        pytest.param(KeyboardInterrupt(), KeyboardInterrupt, id="interrupted"),
    ],
)
@pytest.mark.parametrize(
    ("operation", "file_name"),
    [
        pytest.param("write_text", "manifest.json", id="while the new files are written"),
        pytest.param("rename", "new", id="while the new folder takes its place"),
    ],
)
def test_a_crash_while_saving_leaves_the_old_program(
    turn_rag_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    operation: str,
    file_name: str,
) -> None:
    """The old program recalls ten entries, which is the default, and the new one three."""
    real_operation = getattr(Path, operation)

    def fail_at_one_file(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == file_name:
            raise error
        return real_operation(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, operation, fail_at_one_file)
        with pytest.raises(raised):
            save(build("turn-rag", k=3), turn_rag_folder)

    assert load(turn_rag_folder).method.config["k"] == 10
    # No temporary folder is left beside it.
    assert [path.name for path in turn_rag_folder.parent.iterdir()] == ["program"]


OWN_METHOD = """
from mempiler.programs.baselines.turn_rag import TurnRAG


class Mine(TurnRAG):
    pass
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a user's module with a method `Mine`, of which "program" beside it is saved."""
    module = tmp_path / "saved_program_of_mine.py"
    module.write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    save(build("saved_program_of_mine:Mine"), tmp_path / "program")
    # A later import runs the code of the module again.
    del sys.modules["saved_program_of_mine"]
    yield module
    sys.modules.pop("saved_program_of_mine", None)


def test_code_outside_the_package_is_not_run_unless_it_is_allowed(own_module: Path) -> None:
    """A saved program may name a method of the user's, as `module:Class`.

    To import a module runs its code. Somebody else may have changed it, so the user must allow
    that.
    """
    own_module.write_text("raise SystemExit('this code was run')")

    message = refusal(load, own_module.parent / "program")

    assert "'saved_program_of_mine:Mine'" in message
    assert "--allow-code" in message


def test_code_outside_the_package_is_run_if_it_is_allowed(own_module: Path) -> None:
    loaded = load(own_module.parent / "program", allow_code=True)

    assert type(loaded.method).__name__ == "Mine"


def hub_error(status_code: int, kind: type[Exception] = errors.HfHubHTTPError) -> Exception:
    """Return an error as the hub's client raises it, with a message of two lines."""
    request = httpx.Request("GET", "https://hub.invalid")
    response = httpx.Response(status_code, request=request)
    return kind("the hub says\nno", response=response)  # pyright: ignore[reportCallIssue]


class FakeHub:
    """Takes the place of the Hugging Face hub behind its client's functions.

    The tests use no network. Repositories and their commits are held in memory. The address of the
    program in a repository is "hf://ada/memory" or, of a certain commit, "hf://ada/memory@COMMIT".
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        """Files by repository, commit and name."""
        self.requests: list[str] = []
        """The names of functions that were called, and of files that were downloaded."""
        self.error: Exception | None = None
        """What every request fails with, if anything."""
        functions = [
            (HfApi, "create_repo", self._create_repository),
            (HfApi, "upload_folder", self._upload_folder),
            (HfApi, "model_info", self._model_info),
            (huggingface_hub, "hf_hub_download", self._download_file),
        ]
        for owner, name, fake in functions:
            # An automatic specification refuses arguments that the real function does not take.
            function = create_autospec(getattr(owner, name), side_effect=fake)
            monkeypatch.setattr(owner, name, function)

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        """Add a commit to a repository; return its name."""
        commits = self.repositories.setdefault(repository, {})
        name = f"{len(commits):040x}"
        commits[name] = files
        return name

    def _receive(self, request: str) -> None:
        self.requests.append(request)
        if self.error is not None:
            raise self.error

    def _create_repository(self, api: Any, repo_id: str, private: bool, exist_ok: bool) -> None:
        self._receive("create_repo")
        assert exist_ok
        self.repositories.setdefault(repo_id, {})

    def _upload_folder(
        self,
        api: Any,
        repo_id: str,
        folder_path: Path,
        allow_patterns: list[str],
        commit_message: str,
    ) -> Any:
        self._receive("upload_folder")
        files = {}
        for path in folder_path.iterdir():
            if path.name in allow_patterns:
                files[path.name] = path.read_bytes()
        return SimpleNamespace(oid=self.commit(repo_id, files))

    def _model_info(self, api: Any, repo_id: str, revision: str | None) -> Any:
        self._receive("model_info")
        if repo_id not in self.repositories:
            raise hub_error(404, errors.RepositoryNotFoundError)
        commits = list(self.repositories[repo_id])
        if revision not in (None, "main", *commits):
            raise hub_error(404, errors.RevisionNotFoundError)
        return SimpleNamespace(sha=commits[-1])

    def _download_file(
        self, repo_id: str, filename: str, revision: str, local_dir: Path, force_download: bool
    ) -> None:
        self._receive(filename)
        files = self.repositories[repo_id][revision]
        if filename not in files:
            raise errors.EntryNotFoundError(filename)
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / filename).write_bytes(files[filename])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHub:
    """A hub with nothing on it, and a token for it."""
    monkeypatch.setenv("HF_TOKEN", "hf_ada")
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return FakeHub(monkeypatch)


def test_a_program_is_published_to_the_hub(hub: FakeHub, turn_rag_folder: Path, cli: Any) -> None:
    _, output, _ = cli("publish", turn_rag_folder, "hf://ada/memory", "--json")

    (commit,) = hub.repositories["ada/memory"]
    assert json.loads(output)["address"] == f"hf://ada/memory@{commit}"
    assert set(hub.repositories["ada/memory"][commit]) == {"manifest.json", "state.json"}


def test_a_folder_that_does_not_exist_is_not_published(
    hub: FakeHub, tmp_path: Path, cli: Any
) -> None:
    _, _, error_output = cli("publish", tmp_path / "nothing", "hf://ada/memory")

    assert "nothing: there is no such folder" in error_output
    assert hub.requests == []


def test_a_program_on_the_hub_is_loaded_by_its_address(hub: FakeHub, turn_rag_folder: Path) -> None:
    push(turn_rag_folder, "hf://ada/memory")

    assert mempiler.load("hf://ada/memory").name == "turn-rag"


def test_the_address_of_a_pushed_program_names_its_commit(
    hub: FakeHub, turn_rag_folder: Path
) -> None:
    """An address with a commit always leads to the same program."""
    address = push(turn_rag_folder, "hf://ada/memory")

    (commit,) = hub.repositories["ada/memory"]
    assert address == f"hf://ada/memory@{commit}"
    assert pin_address("hf://ada/memory") == address


def test_a_program_on_the_hub_is_asked_by_its_address(
    hub: FakeHub, turn_rag_folder: Path, tmp_path: Path, cli: Any
) -> None:
    push(turn_rag_folder, "hf://ada/memory")
    messages = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(messages))

    _, output, _ = cli("ask", "hf://ada/memory", "Where did Ada move?", "--history", chat, "--json")

    assert "Lisbon" in json.loads(output)["answer"]


def test_a_commit_on_the_hub_is_downloaded_once(hub: FakeHub, turn_rag_folder: Path) -> None:
    address_of_commit = push(turn_rag_folder, "hf://ada/memory")
    hub.requests.clear()

    mempiler.load(address_of_commit)
    mempiler.load(address_of_commit)

    assert sorted(hub.requests) == ["manifest.json", "state.json"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"state.json": b"{} "}, "altered after it was saved", id="an altered state"),
        pytest.param(
            {"state.json": None}, "no such repository, revision or program", id="a missing state"
        ),
        pytest.param({"manifest.json": b"{"}, "manifest.json", id="a broken manifest"),
    ],
)
def test_a_damaged_program_on_the_hub_is_refused(
    hub: FakeHub, turn_rag_folder: Path, changes: dict[str, bytes | None], problem: str
) -> None:
    """The changes give files other contents, or take a file away (None).

    Files beside the two of a program, as `evil.py`, are not even downloaded.
    """
    files: dict[str, bytes] = {"evil.py": b"raise SystemExit"}
    for path in turn_rag_folder.iterdir():
        content = changes.get(path.name, path.read_bytes())
        if content is not None:
            files[path.name] = content
    hub.commit("eve/memory", files)

    with pytest.raises(UserError, match=problem):
        mempiler.load("hf://eve/memory")
    assert "evil.py" not in hub.requests


@pytest.mark.parametrize(
    ("address", "error", "kind", "problem"),
    [
        pytest.param(
            "hf://ada/other",
            None,
            UserError,
            "no such repository on the hub, or it is private: set HF_TOKEN",
            id="no repository",
        ),
        pytest.param(
            "hf://ada/memory@v9",
            None,
            UserError,
            "no such repository, revision or program: ",
            id="no revision",
        ),
        pytest.param("hf://ada/mem?x", None, UserError, "write hf://OWNER/NAME", id="no address"),
        pytest.param(
            "hf://ada/memory", hub_error(403), UserError, "refuses the token", id="forbidden"
        ),
        pytest.param(
            "hf://ada/memory",
            hub_error(503),
            EndpointError,
            "the hub cannot be reached, or fails: the hub says no",
            id="down",
        ),
    ],
)
def test_a_program_that_the_hub_does_not_give_is_refused_with_the_reason(
    hub: FakeHub,
    turn_rag_folder: Path,
    address: str,
    error: Exception | None,
    kind: type[Exception],
    problem: str,
) -> None:
    """The hub has one program, at hf://ada/memory. If there is an `error`, it answers with that."""
    push(turn_rag_folder, "hf://ada/memory", private=True)
    hub.error = error

    with pytest.raises(kind, match=problem):
        mempiler.load(address)


def test_a_program_is_not_pushed_to_a_revision(hub: FakeHub, turn_rag_folder: Path) -> None:
    with pytest.raises(UserError, match="leave out @main"):
        push(turn_rag_folder, "hf://ada/memory@main")

    assert hub.requests == []


def test_a_program_is_not_pushed_without_a_token(
    hub: FakeHub, turn_rag_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")

    with pytest.raises(UserError, match="set HF_TOKEN, or run: hf auth login"):
        push(turn_rag_folder, "hf://ada/memory")
    assert hub.requests == []
