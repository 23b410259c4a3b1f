"""Where requests of a loaded program go: to whoever the operator named, with the operator's headers.

Whatever the folder, a question or a turn says; and what of an address or a key is saved: nothing.
"""

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler import UserError, build, load, save
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.programs._sampling import Sampling
from mempiler.runs.artifact import open_program
from mempiler.runs.artifact_embedder import choose_embedder
from mempiler.runs.manifest import Manifest, digest_of

from ..stub_server import StubServer
from .evaluations import refusal

MARK = "<<CUSTOM-TYPE-START-IDENTIFIER>>", "<<CUSTOM-TYPE-END-IDENTIFIER>>"
KEY = "sk-operator"
SAID = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
KEYS = [
    *(
        "api_base",
        "base_url",
        "api_key",
        "headers",
        "extra_body",
        "model",
        "custom_llm_provider",
        "callbacks",
        "url",
    ),
    *(
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
    ),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Any, Any]]:
    """The operator's server and another one."""
    with pytest.MonkeyPatch.context() as patch, StubServer() as one, StubServer() as other:
        patch.setenv("OPENAI_API_KEY", KEY)
        yield one, other


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two saved programs, one of which needs an embedder, with demos and settings."""
    found = {}
    for method in ("turn-rag", "fact-store"):
        program: Any = build(method, embedder=embedder())
        program.task.answer.demos = [
            dspy.Example(context="Ada: Hi.", question="Who?", answer="Ada", augmented=True)
        ]
        program.task.answer.config = {"temperature": 0.5, "max_tokens": 90, "stop": ["\n\n\n"]}
        found[method] = tmp_path_factory.mktemp(method) / "program"
        save(
            program,
            found[method],
            Manifest(method="", task="", lms={"task": "offline"}, scores={"gate": {"n": 1}}),
        )
    return found


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    yield path
    for key, value in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        yield from places(value, (*path, key))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def poisons(url: str) -> list[Any]:
    """Values that name another server, or code."""
    image = json.dumps([{"type": "image_url", "image_url": {"url": f"{url}/image.png"}}])
    return [
        url,
        {"api_base": url, "api_key": "sk-other"},
        [{"model_name": "gpt", "litellm_params": {"model": "openai/x", "api_base": url}}],
        {"Authorization": "Bearer sk-other"},
        *(f"huggingface/{url}", f"hosted_vllm/{url}", "openai/other", "os:system", "pgr+os:system"),
        f"{MARK[0]}{image}{MARK[1]}",
        *(None, True, -1, 10**30, 1e308, [], {}),
    ]


def tampered(source: Path, target: Path, *changes: tuple[str, tuple[Any, ...], Any]) -> Path:
    """A copy of a program with values in the place of others, whose hashes are right again: anybody can make them."""
    files = {
        name: json.loads((source / name).read_text()) for name in ("state.json", "manifest.json")
    }
    for name, path, value in changes:
        with suppress(LookupError, TypeError):  # an earlier change took the place away
            at(files[name], path[:-1])[path[-1]] = copy.deepcopy(value)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    state, manifest = json.dumps(files["state.json"]), files["manifest.json"]
    (target / "state.json").write_text(state)
    manifest["state_sha256"] = hashlib.sha256(state.encode()).hexdigest()
    try:
        manifest["manifest_sha256"] = digest_of(Manifest.model_validate(manifest))
    except ValueError:
        manifest["manifest_sha256"] = "0" * 64
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def place(file: Any, number: int, key: str | None) -> tuple[Any, ...]:
    """A place in a JSON value: one that it has, or a key of one that is an object."""
    paths = [path for path in places(file) if path or key]
    path = paths[number % len(paths)]
    return (*path, key) if key is not None and isinstance(at(file, path), dict) else path or (key,)


def ask(program: Any, good: Any, **fields: Any) -> list[tuple[str, dict[str, str], dict[str, Any]]]:
    """The requests that one question takes."""
    before = len(good.requests)
    lm = language_model("openai/operators", api_base=good.url, cache=False, retries=0)
    with dspy.context(lm=lm, trace=None, disable_history=True):
        program(**{"history": [SAID], "question": "Where did Ada move?"} | fields)
    return good.requests[before:]


def shape(request: tuple[str, dict[str, str], dict[str, Any]]) -> tuple[str, dict[str, str], str]:
    """What of a request tells where it goes, and as whom."""
    path, headers, body = request
    return (
        path,
        {name: value for name, value in headers.items() if name != "Content-Length"},
        body["model"],
    )


changes = st.lists(
    st.tuples(
        st.sampled_from(["state.json", "manifest.json"]),
        st.integers(0, 10_000),
        st.sampled_from([*KEYS, *Sampling.model_fields, None]),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=2,
)


@pytest.mark.parametrize("method", ["turn-rag", "fact-store"])
def test_no_content_of_a_folder_changes_where_a_request_goes(
    method, folders, servers, tmp_path_factory
):
    good, evil = servers
    target = tmp_path_factory.mktemp("tampered") / "program"
    usual = shape(ask(load(folders[method]), good)[-1])
    assert usual[1]["Authorization"] == f"Bearer {KEY}"
    values = poisons(evil.url)
    files = {
        name: json.loads((folders[method] / name).read_text())
        for name in ("state.json", "manifest.json")
    }
    loaded = refused = 0

    @settings(max_examples=90)
    @given(changes)
    def asked(drawn: list[tuple[str, int, str | None, int]]) -> None:
        nonlocal loaded, refused
        made = [
            (name, place(files[name], number, key), values[n % len(values)])
            for name, number, key, n in drawn
        ]
        folder = tampered(folders[method], target, *made)
        before = len(good.requests)
        try:
            opened = open_program(folder)
            loaded += 1
            with suppress(UserError):
                assert opened.model(None) == "offline"
            ask(opened.program, good)
        except UserError:
            refused += 1
        for request in good.requests[before:]:
            assert shape(request) == usual
            assert all(isinstance(message["content"], str) for message in request[2]["messages"])
        assert not evil.requests

    asked()
    assert min(loaded, refused) > 5


IMAGE = f'{MARK[0]}[{{"type": "image_url", "image_url": {{"url": "http://evil/x.png"}}}}]{MARK[1]}'


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        (
            "state.json",
            ("task.answer", "demos", 0, "question"),
            IMAGE,
            "task.answer: a saved demo holds the address",
        ),
        (
            "state.json",
            ("task.answer", "demos", 0),
            {"question": "?", "lm": "x"},
            "task.answer: a saved demo has 'lm'",
        ),
        (
            "state.json",
            ("task.answer", "demos", 0, "augmented"),
            {"config": 1},
            "a saved demo has 'augmented'",
        ),
        (
            "state.json",
            ("task.answer", "decisions"),
            {"answer": {"lm": 1}},
            "task.answer: saved decisions do not fit",
        ),
        *(
            (
                "state.json",
                ("task.answer", "config"),
                {key: value},
                f"task.answer: saved setting '{key}'",
            )
            for key, value in {
                "api_base": "http://evil",
                "lm": "x",
                "url": "http://evil",
                "n": 10_000,
            }.items()
        ),
        (
            "state.json",
            ("task.answer", "config"),
            {"seed": {"api_base": "x"}},
            "task.answer: saved setting 'seed'",
        ),
        (
            "manifest.json",
            ("adapter",),
            "os:system",
            "its adapter 'os:system' is none of auto, chat",
        ),
        ("manifest.json", ("method",), "os:system", "is code outside Mempiler"),
        (
            "manifest.json",
            ("method",),
            "http://evil/v1",
            "is an address or a file; no saved program is one",
        ),
        ("manifest.json", ("task",), "os:system", "unknown task 'os:system'"),
        ("manifest.json", ("config",), {"embedder": "x"}, "its config holds 'embedder'"),
        ("manifest.json", ("config",), {"api_base": "http://evil"}, "has no setting 'api_base'"),
        (
            "manifest.json",
            ("signatures",),
            {"task.lm": []},
            "saved predictor task.lm is not in the code",
        ),
    ],
)
def test_a_value_that_is_no_prompt_is_refused_in_one_line(
    name, path, value, words, folders, tmp_path
):
    assert words in refusal(
        load, tampered(folders["turn-rag"], tmp_path / "program", (name, path, value))
    )


def test_saving_keeps_no_secret(tmp_path):
    program: Any = build("turn-rag")
    secret = "sk-0123456789"
    places = dict.fromkeys(("api_base", "base_url", "api_key", "azure_ad_token", "seed"), secret)
    headers = {key: {"X-Key": secret} for key in ("headers", "extra_headers")}
    program.task.answer.config = {"temperature": 0.3, **places, **headers}
    program.task.answer.lm = dspy.LM("openai/x", api_key=secret)
    program.task.answer.demos = [
        dspy.Example(question="Who?", answer="Ada", lm=secret, config={"api_key": secret})
    ]
    program.task.answer.fields = {"answer": {"api_key": secret}}
    save(program, tmp_path / "program")
    assert secret not in "".join(path.read_text() for path in (tmp_path / "program").iterdir())
    loaded: Any = load(tmp_path / "program")
    assert loaded.task.answer.config == {"temperature": 0.3}
    assert loaded.task.answer.fields == {}
    assert [demo.toDict() for demo in loaded.task.answer.demos] == [
        {"question": "Who?", "answer": "Ada"}
    ]


def test_a_demo_that_shows_a_file_is_not_saved(tmp_path):
    program: Any = build("turn-rag")
    said = ("Ada: Hi.", IMAGE, f"Bob: {IMAGE} said so")
    program.task.answer.demos = [
        dspy.Example(context=each, question="Who?", answer="Ada") for each in said
    ]
    save(program, tmp_path / "program")
    assert [
        demo.context for demo in load(tmp_path / "program").all_predictors()["task.answer"].demos
    ] == ["Ada: Hi."]


def test_fields_of_a_question_are_no_settings_of_a_request(folders, servers):
    good, evil = servers
    program = load(folders["turn-rag"])
    usual = shape(ask(program, good)[-1])
    special = {
        "config": {"api_base": evil.url},
        "lm": evil.model,
        "demos": [],
        "signature": "a -> b",
    }
    found = ask(program, good, **special, api_base=evil.url, temperature=2.0)
    assert [shape(request) for request in found] == [usual]
    assert found[0][2]["temperature"] == 0.5
    assert not evil.requests


def test_a_folder_does_not_choose_its_embedder(folders, tmp_path, servers):
    far = f"openai/far-{os.getpid()}"
    folder = tampered(
        folders["fact-store"], tmp_path / "program", ("manifest.json", ("embedder",), far)
    )
    with pytest.raises(
        UserError, match=f"was made with the embedder '{far}'; give --embedder {far}"
    ):
        mempiler.load(folder)
    for chosen in ((far, None), (None, servers[0].url)):
        made = choose_embedder(folder, *chosen)
        assert made is not None
        assert load(folder, embedder=made).method.embedder.name == far
    assert choose_embedder(folder, "openai/another", None) is None
    assert (
        getattr(choose_embedder(folders["fact-store"], "openai/another", None), "name", None)
        == "offline"
    )
