"""Where the requests of a loaded program go: to the operator's server, with the operator's key.

Neither the folder of the program nor a question or a turn can change that, and saving a program
keeps neither addresses nor keys.
"""

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import mempiler
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler import UserError, build, load, save
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.runs.artifact import open_program
from mempiler.runs.artifact_embedder import choose_embedder
from mempiler.runs.manifest import Manifest, digest_of

from ..stub_server import StubServer
from .evaluations import refusal

OPERATORS_KEY = "sk-operator"

FILE_NAMES = ("state.json", "manifest.json")
"""The files of a saved program: the state of its prompts, and what it consists of."""

SUSPICIOUS_KEYS = [
    "api_base",
    "base_url",
    "api_key",
    "headers",
    "extra_body",
    "model",
    "custom_llm_provider",
    "callbacks",
    "url",
    "lm",
    "config",
    "demos",
    "signature",
    "embedder",
    "adapter",
    "allow_code",
    "fallbacks",
    "client",
    "tools",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "rollout_id",
]
"""Names under which a request could be sent elsewhere, and the settings of sampling."""

JsonPath = tuple[Any, ...]
"""The keys and indexes that lead to a value in a JSON document, as ("task.answer", "demos", 0)."""


class Servers(NamedTuple):
    """Two servers that speak the protocol of OpenAI."""

    operators: Any
    other: Any


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """The server of the operator, with a key in the environment, and another one."""
    with (
        pytest.MonkeyPatch.context() as patch,
        StubServer() as operators_server,
        StubServer() as other_server,
    ):
        patch.setenv("OPENAI_API_KEY", OPERATORS_KEY)
        yield Servers(operators_server, other_server)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two saved programs with demos and settings, by method.

    A demo is an example in a prompt. "turn-rag" needs no embedder, and "fact-store" needs one.
    """
    program_folders = {}
    for method in ("turn-rag", "fact-store"):
        program: Any = build(method, embedder=embedder())
        program.task.answer.demos = [
            dspy.Example(context="Ada: Hi.", question="Who?", answer="Ada", augmented=True)
        ]
        program.task.answer.config = {"temperature": 0.5, "max_tokens": 90, "stop": ["\n\n\n"]}
        folder = tmp_path_factory.mktemp(method) / "program"
        manifest = Manifest(method="", task="", lms={"task": "offline"}, scores={"gate": {"n": 1}})
        save(program, folder, manifest)
        program_folders[method] = folder
    return program_folders


def image_marker(url: str) -> str:
    """Return a text that DSPy turns into an image in a prompt, which the endpoint then fetches."""
    image = json.dumps([{"type": "image_url", "image_url": {"url": url}}])
    return f"<<CUSTOM-TYPE-START-IDENTIFIER>>{image}<<CUSTOM-TYPE-END-IDENTIFIER>>"


def hostile_values(url: str) -> list[Any]:
    """Return values that name another server or code, and values of any other kind."""
    return [
        url,
        {"api_base": url, "api_key": "sk-other"},
        [{"model_name": "gpt", "litellm_params": {"model": "openai/x", "api_base": url}}],
        {"Authorization": "Bearer sk-other"},
        f"huggingface/{url}",
        f"hosted_vllm/{url}",
        "openai/other",
        "os:system",
        "pgr+os:system",
        image_marker(f"{url}/image.png"),
        None,
        True,
        -1,
        10**30,
        1e308,
        [],
        {},
    ]


class Change(NamedTuple):
    """A change of a file of a saved program: the value at a path is replaced."""

    file_name: str
    path: JsonPath
    value: Any


def value_at(document: Any, path: JsonPath) -> Any:
    """Return the value of a JSON document at a path."""
    for key in path:
        document = document[key]
    return document


def paths_in(document: Any, prefix: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield the path of a JSON document, which is empty, and of every value within."""
    yield prefix
    if isinstance(document, dict):
        for key, value in document.items():
            yield from paths_in(value, (*prefix, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from paths_in(value, (*prefix, index))


def tampered_copy(source: Path, target: Path, *changes: Change) -> Path:
    """Copy a saved program with changes and with right digests, as an attacker can do.

    If an earlier change has removed what a later one would change, the later one is left out.
    """
    files = {name: json.loads((source / name).read_text()) for name in FILE_NAMES}
    for change in changes:
        *parent, key = change.path
        with suppress(LookupError, TypeError):
            container = value_at(files[change.file_name], tuple(parent))
            container[key] = copy.deepcopy(change.value)

    state = json.dumps(files["state.json"])
    manifest = files["manifest.json"]
    manifest["state_sha256"] = hashlib.sha256(state.encode()).hexdigest()
    try:
        manifest["manifest_sha256"] = digest_of(Manifest.model_validate(manifest))
    except ValueError:
        # It is no manifest any more, and has no digest.
        manifest["manifest_sha256"] = "0" * 64

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "state.json").write_text(state)
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


class Request(NamedTuple):
    """A request that came in at a server."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Destination(NamedTuple):
    """Where a request goes, and as whom."""

    path: str
    headers: dict[str, str]
    model: str


def ask(program: Any, server: Any, **fields: Any) -> list[Request]:
    """Ask a question at a server; return the requests that the server received.

    Args:
        program: Is asked.
        server: The server of the model.
        **fields: Further fields of the question.
    """
    requests_before = len(server.requests)
    lm = language_model("openai/operators", api_base=server.url, cache=False, retries=0)
    messages = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
    inputs = {"history": [messages], "question": "Where did Ada move?", **fields}
    with dspy.context(lm=lm, trace=None, disable_history=True):
        program(**inputs)
    return [Request(*request) for request in server.requests[requests_before:]]


def destination_of(request: Request) -> Destination:
    """Return where a request goes, and as whom. Its length is no part of this."""
    headers = {name: value for name, value in request.headers.items() if name != "Content-Length"}
    return Destination(request.path, headers, request.body["model"])


@st.composite
def hostile_changes(draw: st.DrawFn, documents: dict[str, Any], values: list[Any]) -> Change:
    """Draw a change of one of the files: another value in it, or a suspicious key in an object."""
    file_name = draw(st.sampled_from(FILE_NAMES))
    document = documents[file_name]
    path = draw(st.sampled_from(list(paths_in(document))))

    is_whole_file = path == ()
    is_object = isinstance(value_at(document, path), dict)
    if is_whole_file or (is_object and draw(st.booleans())):
        path = (*path, draw(st.sampled_from(SUSPICIOUS_KEYS)))
    return Change(file_name, path, draw(st.sampled_from(values)))


class TamperedPrograms:
    """Loads tampered copies of a saved program, and lets them ask at the operator's server."""

    def __init__(self, source: Path, target: Path, servers: Servers) -> None:
        self.source = source
        self.target = target
        self.servers = servers
        self.loaded = 0
        """How many copies could be loaded and asked."""
        self.refused = 0
        """How many copies were refused."""

    def requests_with(self, changes: list[Change]) -> list[Request]:
        """Return the requests of a copy with these changes; none if the copy is refused."""
        server = self.servers.operators
        folder = tampered_copy(self.source, self.target, *changes)
        requests_before = len(server.requests)
        try:
            loaded = open_program(folder)
            self.loaded += 1
            # The user chose no model, so the program may only ask the one in this process.
            with suppress(UserError):
                assert loaded.model(None) == "offline"
            ask(loaded.program, server)
        except UserError:
            self.refused += 1
        return [Request(*received) for received in server.requests[requests_before:]]


@pytest.mark.parametrize("method", ["turn-rag", "fact-store"])
def test_no_content_of_a_saved_program_changes_where_a_request_goes(
    method: str,
    folders: dict[str, Path],
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """An attacker puts values such as another server's address anywhere into a saved program.

    Either the program is refused, or its requests go to the operator's server with the operator's
    key, as before.
    """
    source = folders[method]
    tampered_programs = TamperedPrograms(
        source, tmp_path_factory.mktemp("tampered") / "program", servers
    )
    documents = {name: json.loads((source / name).read_text()) for name in FILE_NAMES}
    values = hostile_values(servers.other.url)
    usual_destination = destination_of(ask(load(source), servers.operators)[-1])
    assert usual_destination.headers["Authorization"] == f"Bearer {OPERATORS_KEY}"

    @settings(max_examples=90)
    @given(st.lists(hostile_changes(documents, values), min_size=1, max_size=2))
    def check_a_tampered_program(changes: list[Change]) -> None:
        for request in tampered_programs.requests_with(changes):
            assert destination_of(request) == usual_destination
            for message in request.body["messages"]:
                # A list in place of a text would hold images or files to fetch.
                assert isinstance(message["content"], str)
        assert not servers.other.requests

    check_a_tampered_program()
    # Both happen often, so the test is not passed by refusing everything.
    assert tampered_programs.loaded > 5
    assert tampered_programs.refused > 5


HOSTILE_IMAGE = image_marker("http://evil/x.png")
"""A text for which an endpoint would fetch an image from another server."""
DEMO: JsonPath = ("task.answer", "demos", 0)
"""Where the only demo of a saved program is in its `state.json`."""
SETTINGS: JsonPath = ("task.answer", "config")
"""Where the settings of the model are."""


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ((*DEMO, "question"), HOSTILE_IMAGE, "a saved demo holds the address"),
        (DEMO, {"question": "?", "lm": "x"}, "a saved demo has 'lm'"),
        ((*DEMO, "augmented"), {"config": 1}, "a saved demo has 'augmented'"),
        (("task.answer", "decisions"), {"answer": {"lm": 1}}, "saved decisions do not fit"),
        (SETTINGS, {"api_base": "http://evil"}, "saved setting 'api_base'"),
        (SETTINGS, {"lm": "x"}, "saved setting 'lm'"),
        (SETTINGS, {"url": "http://evil"}, "saved setting 'url'"),
        (SETTINGS, {"n": 10_000}, "saved setting 'n'"),
        (SETTINGS, {"seed": {"api_base": "x"}}, "saved setting 'seed'"),
    ],
)
def test_a_state_that_names_a_server_a_model_or_a_file_is_refused(
    path: JsonPath, value: Any, problem: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """The file state.json may hold prompts with their demos, and some settings of sampling.

    An attacker has put a value at a path of it, e.g. an address among the settings.
    """
    change = Change("state.json", path, value)
    folder = tampered_copy(folders["turn-rag"], tmp_path / "program", change)

    message = refusal(load, folder)

    assert f"task.answer: {problem}" in message


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("adapter", "os:system", "its adapter 'os:system' is none of auto, chat"),
        ("method", "os:system", "is code outside Mempiler"),
        ("method", "http://evil/v1", "is an address or a file; no saved program is one"),
        ("task", "os:system", "unknown task 'os:system'"),
        ("config", {"embedder": "x"}, "its config holds 'embedder'"),
        ("config", {"api_base": "http://evil"}, "has no setting 'api_base'"),
        ("signatures", {"task.lm": []}, "saved predictor task.lm is not in the code"),
    ],
)
def test_a_manifest_that_names_code_or_a_server_is_refused(
    field: str, value: Any, problem: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Loading must neither import code that a folder names, nor ask a server that it names."""
    change = Change("manifest.json", (field,), value)
    folder = tampered_copy(folders["turn-rag"], tmp_path / "program", change)

    message = refusal(load, folder)

    assert problem in message


SECRET = "sk-0123456789"


def turn_rag_with_secrets() -> Any:
    """Return a program with a key wherever a user may have put one, and with a temperature."""
    program: Any = build("turn-rag")
    answer = program.task.answer
    answer.config = {
        "temperature": 0.3,
        "api_base": SECRET,
        "base_url": SECRET,
        "api_key": SECRET,
        "azure_ad_token": SECRET,
        "seed": SECRET,
        "headers": {"X-Key": SECRET},
        "extra_headers": {"X-Key": SECRET},
    }
    answer.lm = dspy.LM("openai/x", api_key=SECRET)
    answer.demos = [
        dspy.Example(question="Who?", answer="Ada", lm=SECRET, config={"api_key": SECRET})
    ]
    answer.fields = {"answer": {"api_key": SECRET}}
    return program


def test_no_file_of_a_saved_program_holds_a_key_of_the_user(tmp_path: Path) -> None:
    """What is no secret is kept: a temperature, and a demo with a question and an answer."""
    save(turn_rag_with_secrets(), tmp_path / "program")

    saved_files = list((tmp_path / "program").iterdir())
    assert len(saved_files) == 2
    for path in saved_files:
        assert SECRET not in path.read_text()
    loaded: Any = load(tmp_path / "program")
    assert loaded.task.answer.config == {"temperature": 0.3}
    assert loaded.task.answer.fields == {}
    (demo,) = loaded.task.answer.demos
    assert demo.toDict() == {"question": "Who?", "answer": "Ada"}


def test_a_demo_with_an_image_is_not_saved(tmp_path: Path) -> None:
    """The endpoint of a model would fetch the image from its address.

    `HOSTILE_IMAGE` is the text that DSPy turns into an image in a prompt.
    """
    program: Any = build("turn-rag")
    contexts = ["Ada: Hi.", HOSTILE_IMAGE, f"Bob: {HOSTILE_IMAGE} said so"]
    program.task.answer.demos = [
        dspy.Example(context=context, question="Who?", answer="Ada") for context in contexts
    ]

    save(program, tmp_path / "program")

    loaded: Any = load(tmp_path / "program")
    assert [demo.context for demo in loaded.task.answer.demos] == ["Ada: Hi."]


def test_fields_of_a_question_do_not_change_where_its_request_goes(
    folders: dict[str, Path], servers: Servers
) -> None:
    """DSPy takes some inputs of a call, such as `lm` and `config`, as settings of the request.

    So whoever writes the questions could send them elsewhere.
    """
    program = load(folders["turn-rag"])
    (usual_request,) = ask(program, servers.operators)

    (request,) = ask(
        program,
        servers.operators,
        config={"api_base": servers.other.url},
        lm=servers.other.model,
        demos=[],
        signature="a -> b",
        api_base=servers.other.url,
        temperature=2.0,
    )

    assert destination_of(request) == destination_of(usual_request)
    assert request.body["temperature"] == usual_request.body["temperature"]
    assert not servers.other.requests


REMOTE_EMBEDDER = f"openai/far-{os.getpid()}"
"""An embedder behind an endpoint; no other run of the tests knows its vectors.

An embedder is sent all texts of a memory. So a program may name one, but only the user may let it
be asked.
"""


@pytest.fixture
def folder_with_remote_embedder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A saved program that names an embedder behind an endpoint, `REMOTE_EMBEDDER`."""
    change = Change("manifest.json", ("embedder",), REMOTE_EMBEDDER)
    return tampered_copy(folders["fact-store"], tmp_path / "program", change)


def test_a_remote_embedder_of_a_saved_program_is_not_used_unless_the_user_names_it(
    folder_with_remote_embedder: Path,
) -> None:
    """An embedder is sent all texts of a memory, so only the user may let a remote one be asked.

    `choose_embedder` returns None if no embedder may be asked; then the program is not loaded.
    """
    message = f"was made with the embedder '{REMOTE_EMBEDDER}'; give --embedder {REMOTE_EMBEDDER}"

    with pytest.raises(UserError, match=message):
        mempiler.load(folder_with_remote_embedder)
    assert choose_embedder(folder_with_remote_embedder, embedder="openai/another") is None


@pytest.mark.parametrize("option", ["embedder", "embedder_api_base"])
def test_a_remote_embedder_of_a_saved_program_is_used_if_the_user_gives_its_name_or_address(
    folder_with_remote_embedder: Path, servers: Servers, option: str
) -> None:
    values = {"embedder": REMOTE_EMBEDDER, "embedder_api_base": servers.operators.url}

    chosen = choose_embedder(folder_with_remote_embedder, **{option: values[option]})

    assert chosen is not None
    loaded = load(folder_with_remote_embedder, embedder=chosen)
    assert loaded.method.embedder.name == REMOTE_EMBEDDER


def test_the_offline_embedder_of_a_saved_program_is_used_whatever_the_user_names(
    folders: dict[str, Path],
) -> None:
    """The offline embedder runs in this process and sends no text anywhere."""
    chosen = choose_embedder(folders["fact-store"], embedder="openai/another")

    assert chosen is not None
    assert chosen.name == "offline"
