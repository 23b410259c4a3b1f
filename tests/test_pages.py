"""Pages of `docs` work as they stand: files, commands, agents, and an installed package of one's own."""

import ast
import importlib
import json
import re
import runpy
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.data.check import check
from mempiler.engines.lm import language_model
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.writers import write_all_queued

from tests.pages import OF_A_GRAPH, OWN_SYSTEMS, Page

from .conftest import package_files, within
from .integrations.agent import blocks
from .serving.conftest import TOKENS, service_over, serving
from .stub_server import StubServer

EXTEND = Page("extend.md")
DECLARED = [text for _, text in EXTEND.blocks if text.startswith(("METHODS", "BENCHMARKS"))]
CHECKS = [text for _, text in EXTEND.blocks if text.startswith("from mempiler.testing")]
(ENTRY_POINTS,) = [text for language, text in EXTEND.blocks if language == "toml"]
(SNIPPET,) = [text for kind, text in OWN_SYSTEMS.blocks if kind == "python" and text not in OWN_SYSTEMS.files.values()]


def test_every_code_block_of_a_page_is_run() -> None:
    assert EXTEND.untested(*DECLARED, *CHECKS, ENTRY_POINTS) == OWN_SYSTEMS.untested(SNIPPET) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of `docs/extend.md` and nothing else."""
    return EXTEND.write(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What each command of `docs/extend.md` prints, by its first words."""
    return {" ".join(line.split()[1:5]): found for line, found in EXTEND.run(EXTEND.commands, folder).items()}


@pytest.mark.parametrize("text", CHECKS)
def test_the_page_s_method_and_benchmark_keep_the_promises(text: str, folder: Path) -> None:
    (folder / "checks.py").write_text(text, encoding="utf-8")
    EXTEND.run(["python checks.py"], folder, folder)


def test_a_custom_method_is_short() -> None:
    lines = [line for line in EXTEND.files["session_notes.py"].splitlines() if line]
    assert len(lines) <= 45


def test_a_custom_benchmark_is_short() -> None:
    lines = [line for line in EXTEND.files["trivia.py"].splitlines() if line]
    assert len(lines) <= 40


QUESTIONS = Page("questions.md")


@pytest.mark.slow
def test_the_questions_of_the_page_are_checked_and_scored(tmp_path: Path) -> None:
    QUESTIONS.write(tmp_path)
    check_command, score_command = QUESTIONS.commands
    assert check_command == f"{score_command} --check"
    assert check("jsonl", tmp_path / "questions.jsonl").findings == ()
    (scored,) = QUESTIONS.run([score_command], tmp_path, tmp_path).values()
    assert scored["n"] == 2
    assert set(scored["by"]) == {"all", "time"}


def test_questions_made_of_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    QUESTIONS.write(tmp_path)
    runpy.run_path("make_questions.py")
    benchmark = mempiler.benchmark("jsonl", "questions.jsonl")
    assert [list(example.evidence) for example in benchmark.examples] == [["D1:1"], ["D2:1"]]
    assert benchmark.conversations == {"ada"}


SUPPORT = Page("support.md")


def test_the_memory_of_the_page_is_scored_without_answers(tmp_path: Path) -> None:
    SUPPORT.write(tmp_path)
    assert SUPPORT.untested() == []
    (found,) = SUPPORT.run(["python score_facts.py"], tmp_path, tmp_path).values()
    assert found.score == 0.5
    assert found.calls["task"] == 0
    printed = str(found)
    lines = [line.strip() for line in SUPPORT.text.splitlines() if line.startswith("    ") and "stored" in line]
    results = [line for line in lines if line[0].isdigit() or line.startswith("of the stored")]
    assert len(results) == 2
    assert all(line in printed for line in results)


@pytest.mark.slow
def test_the_commands_of_the_support_page_score_and_plan(tmp_path: Path) -> None:
    commands = [line for line in SUPPORT.commands if line.startswith("mempiler")]
    scored, planned = SUPPORT.run(commands, tmp_path).values()
    assert 0 < scored["score"] < 1
    assert planned["phases"]["proposals"]["high"] > 0


NAMED = ["evaluate session-notes --benchmark trivia --data trivia.json", "list methods", "list benchmarks"]
"""What works once Mempiler knows the two by their names."""


@pytest.mark.slow
def test_both_come_with_an_installed_package(folder: Path, tmp_path: Path) -> None:
    information = tmp_path / "trivia_notes-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: trivia-notes\nVersion: 1.0\n", encoding="utf-8")
    groups = tomllib.loads(ENTRY_POINTS)["project"]["entry-points"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {path}\n" for name, path in each.items()) for group, each in groups.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    for name in ("session_notes.py", "trivia.py"):
        (tmp_path / name).write_text(EXTEND.files[name], encoding="utf-8")
    scored, methods, benchmarks = EXTEND.run([f"mempiler {line}" for line in NAMED], folder, tmp_path).values()
    assert scored["n"] == 2
    assert scored["failures"] == 0
    assert "session-notes" in json.dumps(methods)
    assert "trivia" in json.dumps(benchmarks)


@pytest.mark.slow
def test_the_method_is_compiled_and_saved_with_demos_and_the_benchmark_scored(folder, results) -> None:
    assert results["compile session_notes:SessionNotes --benchmark locomo"]["promoted"]
    state = json.loads((folder / "notes" / "state.json").read_text(encoding="utf-8"))
    assert [name for name, predictor in state.items() if predictor["demos"]] == [
        "method.writer.take_notes",
        "task.answer",
    ]
    found = results["evaluate turn-rag --benchmark trivia:Trivia"]
    assert found["benchmark"] == "trivia"
    assert found["n"] == 2
    assert found["score"] == 1.0
    assert set(found["by"]) == {"homes", "pets"}


@pytest.mark.slow
def test_own_systems_are_scored_compiled_and_asked(tmp_path: Path) -> None:
    OWN_SYSTEMS.write(tmp_path)
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    lines = [line for line in OWN_SYSTEMS.commands if line not in OF_A_GRAPH]
    found = OWN_SYSTEMS.run([*lines, "python snippet.py"], tmp_path, tmp_path)
    scored = {line.split()[2]: each for line, each in found.items() if " evaluate " in line}
    assert set(scored) == {"mine:Store", "module:Agent", "answers.jsonl"}
    assert {name: each["failures"] for name, each in scored.items()} == dict.fromkeys(scored, 0)
    assert scored["answers.jsonl"]["n"] == 136
    assert 10 < scored["mine:Store"]["n"] <= 20
    assert scored["mine:Store"]["retrieval"]["shown"] > 0.5
    assert scored["answers.jsonl"]["answering"]["calls"] == 160
    (compiled,) = [each for line, each in found.items() if " compile " in line]
    assert compiled["dev"] is not None
    assert compiled["program"]
    asked = found["python snippet.py"].to_dict()
    assert asked["program"] == "mine:Store"
    assert asked["context"]["hits"] == 5


DSPY_PROGRAM = Page("dspy_program.md")


@pytest.mark.slow
def test_the_page_for_dspy_programs_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    module, script, *snippets = [text for language, text in DSPY_PROGRAM.blocks if language == "python"]
    (tmp_path / "agent.py").write_text(module, encoding="utf-8")
    (tmp_path / "compile_agent.py").write_text(script, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = vars(importlib.import_module("compile_agent"))
    assert len(snippets) == 5
    for snippet in snippets:
        exec(compile(snippet, "dspy_program.md", "exec"), names)
    sys.modules.pop("compile_agent")
    sys.modules.pop("agent")
    assert (tmp_path / "my-program" / "manifest.json").is_file()
    assert (tmp_path / "agent.json").is_file()


ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def test_the_page_names_the_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r"pip install '\.\[([\w-]+)\]'", PAGE))
    assert named == {"langchain", "langgraph", "llamaindex", "mcp", "openai-agents"} & set(extras)


def acting(kind: str, text: str, n: int) -> dict[str, Any]:
    """An agent that looks once, and a memory that answers from the turns in its prompt."""
    if kind == "next_thought":
        looked = "observation_0" in text.rpartition("[[ ## question ## ]]")[2]
        tool, args = ("finish", {}) if looked else ("ask_memory", {"question": "Where did Ada move?"})
        return {"next_thought": "Look.", "next_tool_name": tool, "next_tool_args": args}
    told = {"reasoning": "It says so."} if kind == "reasoning" else {}
    return {**told, "answer": "To Lisbon." if "Lisbon" in text else "unknown"}


def test_agent_is_compiled_with_the_memory_inside_it(scripted, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lm = scripted(acting)
    known: dict[str, Any] = {"dspy": dspy, "mempiler": mempiler, "lm": lm, "__name__": "page"}
    for block in blocks("DSPy")[2:]:
        exec(compile(block, "docs/agents.md", "exec"), known)
    agent = known["Agent"]()
    agent.load("agent.json")
    demos = {name: len(predictor.demos) for name, predictor in agent.named_predictors()}
    assert {"memory.task.answer", "react.react", "react.extract.predict"} == set(demos)
    assert all(demos.values())
    before = len(lm.engine.prompts)
    with dspy.context(lm=lm):
        found = agent(history=known["example"].history, question="Where did Ada go?")
    assert found.answer == "To Lisbon."
    assert found.trajectory["observation_0"] == "To Lisbon."
    (asked,) = [text for kind, text in lm.engine.prompts[before:] if kind == "answer"]
    assert asked.count("I moved to Lisbon.") == 2  # once in the demo that the compile put there


def test_any_client_of_openai_remembers(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> str:
        return "To Lisbon." if "Lisbon" in body["messages"][-1]["content"] else "unknown"

    (code,) = blocks("Any OpenAI client")[1:]
    with StubServer(answer=answer) as stub, mempiler.Store(tmp_path / "memories.sqlite") as store:
        lm = language_model(stub.model, api_base=stub.url, cache=False)
        with serving(service_over(store, tmp_path, lm)) as api:
            served = code.replace("http://127.0.0.1:8000", api.address).replace("a token of the file", TOKENS["acme"])
            served = served.replace('"mempiler-chat"', '"my-model-chat"')
            known: dict[str, Any] = {}
            exec(compile(served, "docs/agents.md", "exec"), known)
            with known["client"]:
                known["answer"]("ada", "I moved to Lisbon.")
                said = [known["answer"](user, "Where did I move?") for user in ("ben", "ada")]
    assert said == ["unknown", "To Lisbon."]


def test_the_parts_of_a_program_are_called_alone_as_concepts_show() -> None:
    (code,) = [code for language, code in Page("concepts.md").blocks if language == "python"]
    names: dict[str, Any] = {"mempiler": mempiler}
    with dspy.context(lm=language_model("offline")):
        exec(compile(code, "docs/concepts.md", "exec"), names)
    assert names["answer"] == "I moved to Lisbon."
    assert names["context"].sources == ("D1:1",)


FASTAPI = Page("production/fastapi.md")


def test_the_fastapi_application_answers_adds_writes_in_the_background_and_forgets(tmp_path, monkeypatch) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    mempiler.save(mempiler.build("turn-rag"), "my-program")
    text = FASTAPI.files["app.py"].replace('"openai/gpt-4.1-mini"', '"offline"')
    (tmp_path / "app.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("app")
    sys.modules.pop("app")
    assert FASTAPI.untested() == []

    session = {"id": "chat-17", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}
    with TestClient(module.app, headers={"X-User": "ada"}) as client:
        assert [client.post("/sessions", json=session).status_code for _ in range(2)] == [201, 201]
        asked = client.post("/ask", json={"question": "Where did I move?"}).json()
        assert asked == {"answer": "I moved to Lisbon.", "sources": ["chat-17:1"]}
        other = client.post("/ask", json={"question": "Where did I move?"}, headers={"X-User": "ben"}).json()
        assert other["sources"] == []
        chat = {"session": "monday", "text": "Where did I move?"}
        assert client.post("/chat", json=chat, headers={"X-User": "cem"}).json()["reply"]
        ended = [client.post("/chat/monday/end", headers={"X-User": "cem"}).json() for _ in range(2)]
        assert ended == [{"ended": True}, {"ended": False}]
        changed = {**session, "messages": [{"role": "user", "content": "I moved to Porto."}]}
        assert client.post("/sessions", json=changed).status_code == 409
        assert client.post("/sessions", json={"id": "", "messages": []}).status_code == 400

        memory = module.app.state.program.memory(module.app.state.store, "ada")
        assert within(20, lambda: memory.status().queued == 0)
        assert client.delete("/memory").json()["sessions"] == 1
        assert memory.status() is None

        async def fail(*_: object) -> None:
            raise mempiler.StoreError("store postgresql://secret.host: the server is gone")

        monkeypatch.setattr(mempiler.UserMemory, "aask", fail)
        refused = client.post("/ask", json={"question": "Where?"})
        assert refused.status_code == 503
        assert "secret" not in refused.text


class Mem0:
    """A stand-in for `mem0.Memory` that finds all messages of a user."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Mem0":
        # mem0's database refuses a folder that another one has open.
        Path(config["vector_store"]["config"]["path"]).mkdir(parents=True)
        return cls()

    def add(self, messages: list[dict[str, str]], user_id: str) -> None:
        self.messages.setdefault(user_id, []).extend(message["content"] for message in messages)

    def search(self, query: str, top_k: int, filters: dict[str, str]) -> dict[str, Any]:
        return {"results": [{"memory": text} for text in self.messages[filters["user_id"]][:top_k]]}


BESIDE = Page("production/beside.md")


def test_a_memory_beside_the_present_one_is_written_searched_and_compared(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    monkeypatch.setitem(sys.modules, "mem0", types.SimpleNamespace(Memory=Mem0))
    monkeypatch.syspath_prepend(BESIDE.write(tmp_path))
    mempiler.save(mempiler.build("turn-rag"), "my-program")
    assert BESIDE.untested() == []

    both = importlib.import_module("both")
    sys.modules.pop("both")
    message = {"role": "user", "content": "I moved to Lisbon."}
    both.add("ada", "chat-17", [message])
    write_all_queued(Memories(both.program, "memories.sqlite", "offline"))
    assert both.search("ada", "Lisbon") == ["I moved to Lisbon."]
    logged = json.loads(Path("searches.jsonl").read_text(encoding="utf-8"))
    assert logged["present"] == ["I moved to Lisbon."]
    assert logged["mempiler"] == ["user: I moved to Lisbon."]
    runpy.run_path("differences.py")
    assert "user: I moved to Lisbon." in capsys.readouterr().out
    assert check("jsonl", Path("questions.jsonl")).findings == ()

    # A failure of the second memory does not reach the agent.
    both.store.close()
    monkeypatch.setattr(both, "store", "postgresql://nobody@127.0.0.1:9/none")
    both.add("ada", "chat-18", [message])
    assert both.search("ada", "Lisbon")[0] == "I moved to Lisbon."


@pytest.mark.slow
def test_the_present_memory_is_scored(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    monkeypatch.setitem(sys.modules, "mem0", types.SimpleNamespace(Memory=Mem0))
    monkeypatch.syspath_prepend(BESIDE.write(tmp_path))
    present = importlib.import_module("present")
    sys.modules.pop("present")
    scored = mempiler.evaluate(present.Present, benchmark="locomo", test=5, split="test", lm="offline")
    assert scored.n > 0
    assert scored.failures == 0


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code() -> None:
    page = Page("production/troubleshooting.md").text
    symptoms = re.findall(r"^\| (?:[^|`]*\| )?(?:\w+: )?((?:`[^`|]+`(?:, )?)+) \|", page, re.MULTILINE)
    messages = [message for cell in symptoms for message in re.findall(r"`([^`]+)`", cell)]
    messages += re.findall(r"^`([^`]+)`$", page, re.MULTILINE)
    assert len(messages) > 25

    texts = "\n".join(text for file in package_files() for text in _texts(ROOT / file))
    parts = [part for message in messages for part in re.split(r"\.\.\.|NAME", message) if len(part.strip()) > 3]
    assert [part for part in parts if part.strip() not in texts] == []


def _texts(file: Path) -> Iterator[str]:
    """The texts of a source file, each as it is when it is joined over lines, with a line break for a value in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
