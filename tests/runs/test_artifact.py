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
    """The folder of a saved turn RAG, with the files manifest.json and state.json."""
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


def compiled_by_hand(method: str, scripted: Any, fact_replies: Any, make_history: Any) -> Any:
    """Return a program of a method, after `compile_by_hand` on turns with and without a date."""
    undated = Session(id="D9", turns=(Turn(id="D9:1", speaker="Ann", text="No date here"),))
    history = History(id="both", items=(*make_history(2).items, undated))
    program = build_program(method)
    with dspy.context(lm=scripted(fact_replies)):
        compile_by_hand(program, history)
    return program


@pytest.mark.parametrize("adapter_name", ["chat", "json"])
@pytest.mark.parametrize("method", ["turn-rag", "memory-r2"])
def test_a_loaded_program_has_the_prompts_of_the_saved_one(
    tmp_path: Path,
    scripted: Any,
    fact_replies: Any,
    make_history: Any,
    method: str,
    adapter_name: str,
) -> None:
    """The saved program has other demos, instructions and descriptions than a new one."""
    program = compiled_by_hand(method, scripted, fact_replies, make_history)
    for predictor in program.all_predictors().values():
        assert predictor.demos

    save(program, tmp_path / "program")
    loaded = load(tmp_path / "program")

    assert prompts_of(loaded, adapter_name) == prompts_of(program, adapter_name)
    assert prompts_of(loaded, adapter_name) != prompts_of(build_program(method), adapter_name)


def test_the_manifest_says_what_was_saved(turn_rag_folder: Path) -> None:
    manifest = read_manifest(turn_rag_folder)

    assert manifest.method == "turn-rag"
    assert manifest.task == "question-answering"
    # By default, turn RAG recalls ten turns.
    assert manifest.config["k"] == 10
    assert manifest.packages["dspy"] == dspy.__version__
    field_names = [field[0] for field in manifest.signatures["task.answer"]]
    assert field_names == ["context", "question", "answer"]


def alter_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of a manifest without updating the digest in it, which is wrong then."""
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def forge_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of a manifest and update its digest, as an attacker would do."""
    manifest = read_manifest(folder).model_copy(update=changes)
    alter_manifest(folder, **changes, manifest_sha256=digest_of(manifest))


def forge_state(folder: Path, text: str) -> None:
    """Replace the file state.json and update all digests, as an attacker would do."""
    (folder / "state.json").write_text(text)
    forge_manifest(folder, state_sha256=sha256_of(text))


@pytest.mark.parametrize("folder", [3, None])
def test_a_value_that_is_no_path_is_refused(folder: Any) -> None:
    message = refusal(load, folder)

    assert message.startswith(f"folder = {folder}: give the folder of a saved program")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"config": {"k": 3}}, "altered after it was saved", id="another setting"),
        pytest.param(
            {"comment": "mine"},
            "field comment: Extra inputs are not permitted; the file was altered",
            id="an unknown field",
        ),
        pytest.param(
            {"method": 7},
            "field method: Input should be a valid string; the file was altered",
            id="a number in place of a text",
        ),
        pytest.param({"schema_version": 3}, "schema version 3 is unknown", id="another version"),
    ],
)
def test_an_altered_manifest_is_refused(
    turn_rag_folder: Path, changes: dict[str, Any], problem: str
) -> None:
    """The file manifest.json holds a digest of itself, which no longer fits after these changes."""
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
def test_a_damaged_file_is_refused(
    turn_rag_folder: Path, file_name: str, content: bytes, problem: str
) -> None:
    (turn_rag_folder / file_name).write_bytes(content)

    message = refusal(load, turn_rag_folder)

    assert file_name in message
    assert problem in message


@pytest.mark.parametrize(
    ("forged_state", "problem"),
    [
        pytest.param("[" * 100_000, "nested more than 100 levels deep", id="100,000 nested lists"),
        pytest.param("[]", "not the state of a saved program", id="a list"),
        pytest.param(
            '{"task.answer": {"instructions": 7}}',
            "instructions: Input should be",
            id="a number as instructions",
        ),
    ],
)
def test_a_malformed_state_is_refused_although_its_digest_is_right(
    turn_rag_folder: Path, forged_state: str, problem: str
) -> None:
    """Whoever can write another state.json can also write its digest into the manifest."""
    forge_state(turn_rag_folder, forged_state)

    message = refusal(load, turn_rag_folder)

    assert "state.json" in message
    assert problem in message


@pytest.mark.parametrize(
    ("missing_file", "problem"),
    [
        ("state.json", "state.json: cannot be read"),
        ("manifest.json", "no saved program here (manifest.json is missing)"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(
    turn_rag_folder: Path, missing_file: str, problem: str
) -> None:
    """A saved program consists of the two files state.json and manifest.json."""
    (turn_rag_folder / missing_file).unlink()

    assert problem in refusal(load, turn_rag_folder)


def test_a_link_to_a_file_outside_the_folder_is_refused(
    turn_rag_folder: Path, tmp_path: Path
) -> None:
    """A program that somebody else has made could name any file of this machine by a link."""
    (turn_rag_folder / "state.json").rename(tmp_path / "state.json")
    (turn_rag_folder / "state.json").symlink_to(tmp_path / "state.json")

    message = refusal(load, turn_rag_folder)

    assert "state.json: is a link to a file outside the folder" in message
    assert "put the file itself there" in message


def test_a_link_to_a_file_within_the_folder_is_followed(turn_rag_folder: Path) -> None:
    """Kubernetes mounts files of a volume as links to a folder `..data` beside them."""
    (turn_rag_folder / "..data").mkdir()
    (turn_rag_folder / "state.json").rename(turn_rag_folder / "..data" / "state.json")
    (turn_rag_folder / "state.json").symlink_to("..data/state.json")

    assert load(turn_rag_folder).name == "turn-rag"


def test_a_file_of_128_mebibytes_is_refused_before_it_is_read(turn_rag_folder: Path) -> None:
    os.truncate(turn_rag_folder / "state.json", 128 * 1024**2)

    message = refusal(load, turn_rag_folder)

    assert "state.json" in message
    assert "has 134,217,728 bytes" in message


@pytest.mark.parametrize("method", ["turn-rag", "logs+turn-rag"])
@pytest.mark.parametrize(
    ("k", "allowed"),
    [
        (0, "greater than or equal to 1"),
        (10**9, "less than or equal to 1000"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_load_with_the_message_of_build(
    tmp_path: Path, method: str, k: int, allowed: str
) -> None:
    """`k` is how many entries of the memory are recalled. An attacker could set it to 10**9."""
    program = build(method)
    save(program, tmp_path / "program")
    forge_manifest(tmp_path / "program", config={**program.config, "k": k})

    message = refusal(load, tmp_path / "program")

    assert f"k = {k}: input should be {allowed}" in message
    assert message == refusal(build, method, k=k)


def test_a_manifest_that_stacks_thousands_of_policies_is_refused_in_one_short_line(
    turn_rag_folder: Path,
) -> None:
    """A policy such as "logs+" wraps the method that its name precedes, as in "logs+turn-rag"."""
    forge_manifest(turn_rag_folder, method="logs+" * 2000 + "turn-rag")

    message = refusal(load, turn_rag_folder)

    assert "2,000 policies before a method; at most 8" in message
    assert len(message) < 200


class OldFact(BaseModel):
    """A fact whose `turn_id` is a number; in today's Memory-R2 it is a text."""

    speaker: str
    turn_id: int
    fact: str


def test_a_program_is_refused_if_a_type_in_its_outputs_has_changed(tmp_path: Path) -> None:
    """The prompt `extract_facts` of the saved Memory-R2 asks for a list of `OldFact`."""
    program = build_program("memory-r2")
    predictor = program.all_predictors()["method.writer.extract_facts"]
    signature = signature_of(predictor)
    predictor.signature = signature.with_updated_fields("facts", type_=list[OldFact])
    save(program, tmp_path / "program")

    message = refusal(load, tmp_path / "program")

    assert "method.writer.extract_facts" in message
    assert "'facts'" in message


def test_a_saved_prompt_that_the_code_no_longer_has_is_named(tmp_path: Path) -> None:
    """The program was saved with a second prompt, `task.check`, which turn RAG does not have."""
    program = build_program("turn-rag")
    program.task.check = dspy.Predict("context, query -> answer")
    save(program, tmp_path / "program")

    message = refusal(load, tmp_path / "program")

    assert "task.check is not in the code" in message
    assert "compile again" in message


def test_a_prompt_of_the_code_that_was_not_saved_is_named(turn_rag_folder: Path) -> None:
    """The state of a program without any prompt is an empty object."""
    forge_state(turn_rag_folder, "{}")

    message = refusal(load, turn_rag_folder)

    assert "task.answer of the code is not in the saved program" in message
    assert "compile again" in message


@pytest.mark.parametrize(
    "file_names",
    [["notes.txt"], ["manifest.json"], ["manifest.json", "state.json", "notes.txt"]],
    ids=["another file", "half a program", "a program and another file"],
)
def test_saving_overwrites_no_folder_with_the_users_own_files(
    tmp_path: Path, file_names: list[str]
) -> None:
    for name in file_names:
        (tmp_path / name).write_text("mine")

    with pytest.raises(UserError, match="is no saved program; choose another"):
        save(build_program("turn-rag"), tmp_path)

    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == dict.fromkeys(file_names, "mine")


def fail_at_file(
    monkeypatch: pytest.MonkeyPatch, operation: str, file_name: str, error: BaseException
) -> None:
    """Let an operation of `Path`, such as "rename", fail at files with a name."""
    real_operation = getattr(Path, operation)

    def fail_or_work(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == file_name:
            raise error
        return real_operation(path, *args, **kwargs)

    monkeypatch.setattr(Path, operation, fail_or_work)


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    operation: str,
    file_name: str,
) -> None:
    """The files are written into a folder `new`, which then takes the place of the old one."""
    folder = tmp_path / "program"
    save(build("turn-rag", k=10), folder)

    with monkeypatch.context() as patch:
        fail_at_file(patch, operation, file_name, error)
        with pytest.raises(raised):
            save(build("turn-rag", k=3), folder)

    assert load(folder).method.config["k"] == 10
    # No temporary folder is left beside it.
    assert [path.name for path in tmp_path.iterdir()] == ["program"]


OWN_METHOD = """
from mempiler.programs.baselines.turn_rag import TurnRAG


class Mine(TurnRAG):
    pass
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a user's module, whose method `Mine` is saved in the folder "program" beside it.

    The module is not imported yet, so loading the program would run the code in the file.
    """
    module = tmp_path / "saved_program_of_mine.py"
    module.write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    save(build("saved_program_of_mine:Mine"), tmp_path / "program")
    del sys.modules["saved_program_of_mine"]
    yield module
    sys.modules.pop("saved_program_of_mine", None)


def test_the_code_of_a_users_method_is_not_run_unless_the_user_allows_it(own_module: Path) -> None:
    """The saved program names the method `Mine` of a module, whose import would run its code.

    Somebody else may have changed the module since, as here.
    """
    own_module.write_text("raise SystemExit('this code was run')")

    message = refusal(load, own_module.parent / "program")

    assert "'saved_program_of_mine:Mine'" in message
    assert "--allow-code" in message


def test_a_program_with_a_users_method_is_loaded_if_the_user_allows_its_code(
    own_module: Path,
) -> None:
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
    """A program is published as a commit of two files in a repository of the Hugging Face hub."""
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
    chat = tmp_path / "chat.json"
    chat.write_text('[{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]')

    _, output, _ = cli("ask", "hf://ada/memory", "Where did Ada move?", "--history", chat, "--json")

    assert "Lisbon" in json.loads(output)["answer"]


def test_a_commit_on_the_hub_is_downloaded_once(hub: FakeHub, turn_rag_folder: Path) -> None:
    address_of_commit = push(turn_rag_folder, "hf://ada/memory")
    hub.requests.clear()

    first = mempiler.load(address_of_commit)
    mempiler.load(address_of_commit)

    assert first.name == "turn-rag"
    assert sorted(hub.requests) == ["manifest.json", "state.json"]


def commit_changed_program(hub: FakeHub, folder: Path, changes: dict[str, bytes | None]) -> None:
    """Commit a saved program to eve/memory, with files that are changed or left out (None).

    Beside the program there is a file `evil.py`.
    """
    files: dict[str, bytes] = {"evil.py": b"raise SystemExit"}
    for path in folder.iterdir():
        content = changes.get(path.name, path.read_bytes())
        if content is not None:
            files[path.name] = content
    hub.commit("eve/memory", files)


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
def test_a_damaged_program_on_the_hub_is_refused_and_other_files_are_not_downloaded(
    hub: FakeHub, turn_rag_folder: Path, changes: dict[str, bytes | None], problem: str
) -> None:
    commit_changed_program(hub, turn_rag_folder, changes)

    with pytest.raises(UserError, match=problem):
        mempiler.load("hf://eve/memory")

    assert "evil.py" not in hub.requests


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param(
            "hf://ada/other",
            "no such repository on the hub, or it is private: set HF_TOKEN",
            id="another repository",
        ),
        pytest.param(
            "hf://ada/memory@v9", "no such repository, revision or program: ", id="no revision v9"
        ),
        pytest.param("hf://ada/mem?x", "write hf://OWNER/NAME", id="no address"),
    ],
)
def test_an_address_that_leads_to_no_program_on_the_hub_is_refused(
    hub: FakeHub, turn_rag_folder: Path, address: str, problem: str
) -> None:
    push(turn_rag_folder, "hf://ada/memory")

    with pytest.raises(UserError, match=problem):
        mempiler.load(address)


def test_a_token_that_the_hub_refuses_is_a_mistake_of_the_user(
    hub: FakeHub, turn_rag_folder: Path
) -> None:
    push(turn_rag_folder, "hf://ada/memory", private=True)
    hub.error = hub_error(403)

    with pytest.raises(UserError, match="refuses the token"):
        mempiler.load("hf://ada/memory")


def test_a_hub_that_is_down_is_a_failure_of_an_endpoint(
    hub: FakeHub, turn_rag_folder: Path
) -> None:
    push(turn_rag_folder, "hf://ada/memory")
    hub.error = hub_error(503)

    with pytest.raises(EndpointError, match="the hub cannot be reached, or fails: the hub says no"):
        mempiler.load("hf://ada/memory")


def test_a_program_cannot_be_pushed_to_a_revision_of_a_repository(
    hub: FakeHub, turn_rag_folder: Path
) -> None:
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
