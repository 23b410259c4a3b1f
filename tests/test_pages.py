"""Pages of the documentation work as they stand: their files, commands and code.

A `Page` has the code blocks, the files and the commands of a page. `page.write(folder)` writes the
files, `page.run(commands, folder)` runs commands, and `page.untested()` returns the code blocks
that are neither. Without `--lm`, a command is answered by the offline engine, which copies
sentences from the prompt. LoCoMo is a benchmark of questions about long conversations.
"""

import ast
import importlib
import json
import re
import runpy
import sys
import tomllib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.data.check import check
from mempiler.engines.lm import language_model
from mempiler.memory.answers import (
    MAX_ANSWER_LENGTH,
    MAX_ANSWERS,
    MAX_CORRECTION_LENGTH,
    MAX_SOURCES,
    MAX_USEFUL_ENTRIES,
)
from mempiler.programs.external.export import export_system
from mempiler.programs.external.program import build_external_program
from mempiler.runs.improve import OPTIMIZERS_WITHOUT_DEMOS
from mempiler.runs.round_split import MIN_TRAIN, MIN_USERS
from mempiler.runs.statistics import MIN_N
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.writers import write_all_queued

from tests.pages import OF_A_GRAPH, OWN_SYSTEMS, Page

from .conftest import package_files, within
from .integrations.agent import blocks
from .serving.conftest import TOKENS, service_over, serving
from .stub_server import StubServer

ROOT = Path(__file__).parents[1]


def import_fresh(name: str) -> types.ModuleType:
    """Import a module of a page's folder, so that the next test can import one of that name."""
    module = importlib.import_module(name)
    sys.modules.pop(name)
    return module


def run_code(code: str, page: str, names: dict[str, Any]) -> None:
    """Run code of a page with these names; the names that it defines are added to them."""
    exec(compile(code, page, "exec"), names)


# --- docs/extend.md -------------------------------------------------------------------------

EXTEND = Page("extend.md")
CATALOG_SNIPPETS = [
    block.text for block in EXTEND.blocks if block.text.startswith(("METHODS", "BENCHMARKS"))
]
CHECK_SNIPPETS = [
    block.text for block in EXTEND.blocks if block.text.startswith("from mempiler.testing")
]
ENTRY_POINTS = EXTEND.blocks_of("toml")[0]


@pytest.fixture(scope="module")
def extension_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of `docs/extend.md` and nothing else."""
    return EXTEND.write(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("code", CHECK_SNIPPETS)
def test_own_method_and_benchmark_keep_their_promises(code: str, extension_folder: Path) -> None:
    """The page shows how an author checks both, by `check_method` and `check_benchmark`."""
    (extension_folder / "checks.py").write_text(code, encoding="utf-8")

    EXTEND.run(["python checks.py"], extension_folder, extension_folder)


@pytest.mark.slow
def test_own_method_and_benchmark_are_known_once_their_package_is_installed(
    extension_folder: Path, tmp_path: Path
) -> None:
    """A package can declare both as entry points; then their short names work in commands."""
    install_package(tmp_path)
    commands = [
        "mempiler evaluate session-notes --benchmark trivia --data trivia.json",
        "mempiler list methods",
        "mempiler list benchmarks",
    ]

    evaluation, methods, benchmarks = EXTEND.run(commands, extension_folder, tmp_path).values()

    assert evaluation["n"] == 2
    assert evaluation["failures"] == 0
    assert "session-notes" in json.dumps(methods)
    assert "trivia" in json.dumps(benchmarks)


def install_package(folder: Path) -> None:
    """Put the page's modules into a folder, as an installed package with its entry points."""
    for name in ("session_notes.py", "trivia.py"):
        (folder / name).write_text(EXTEND.files[name], encoding="utf-8")

    information = folder / "trivia_notes-1.0.dist-info"
    information.mkdir()
    metadata = "Metadata-Version: 2.1\nName: trivia-notes\nVersion: 1.0\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")

    lines: list[str] = []
    for group, paths_by_name in tomllib.loads(ENTRY_POINTS)["project"]["entry-points"].items():
        lines.append(f"[{group}]")
        lines.extend(f"{name} = {path}" for name, path in paths_by_name.items())
    (information / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def results_of_extend(extension_folder: Path) -> dict[str, Any]:
    """The result of each command of `docs/extend.md`, by its words two to five."""
    results: dict[str, Any] = {}
    for command, result in EXTEND.run(EXTEND.commands, extension_folder).items():
        results[" ".join(command.split()[1:5])] = result
    return results


@pytest.mark.slow
def test_own_method_is_compiled_and_saved_with_demos(
    extension_folder: Path, results_of_extend: dict[str, Any]
) -> None:
    """Demos are the worked examples that an optimizer puts into a prompt.

    The method has two prompts: one takes notes, the other answers. `--force` promotes the compiled
    program whatever it gains.
    """
    state = json.loads((extension_folder / "notes" / "state.json").read_text(encoding="utf-8"))
    with_demos = [name for name, predictor in state.items() if predictor["demos"]]

    assert results_of_extend["compile session_notes:SessionNotes --benchmark locomo"]["promoted"]
    assert with_demos == ["method.writer.take_notes", "task.answer"]


@pytest.mark.slow
def test_own_benchmark_scores_a_method(results_of_extend: dict[str, Any]) -> None:
    """The file of the page has one question about a home and one about a pet."""
    evaluation = results_of_extend["evaluate turn-rag --benchmark trivia:Trivia"]

    assert evaluation["benchmark"] == "trivia"
    assert evaluation["n"] == 2
    assert evaluation["score"] == 1.0
    assert set(evaluation["by"]) == {"homes", "pets"}


# --- docs/questions.md ----------------------------------------------------------------------

QUESTIONS = Page("questions.md")


@pytest.mark.slow
def test_own_questions_are_checked_and_scored(tmp_path: Path) -> None:
    """The page has two questions, of which one has the category "time" and one has none."""
    QUESTIONS.write(tmp_path)
    check_command, score_command = QUESTIONS.commands
    assert check_command == f"{score_command} --check"

    assert check("jsonl", tmp_path / "questions.jsonl").findings == ()
    evaluation = QUESTIONS.run([score_command], tmp_path, tmp_path)[score_command]

    assert evaluation["n"] == 2
    assert set(evaluation["by"]) == {"all", "time"}


def test_questions_made_of_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script of the page turns logs into two questions, each with the turn that answers it."""
    monkeypatch.chdir(tmp_path)
    QUESTIONS.write(tmp_path)

    runpy.run_path("make_questions.py")
    benchmark = mempiler.benchmark("jsonl", "questions.jsonl")

    evidence = [list(example.evidence) for example in benchmark.examples]
    assert evidence == [["D1:1"], ["D2:1"]]
    assert benchmark.conversations == {"ada"}


# --- docs/support.md ------------------------------------------------------------------------

SUPPORT = Page("support.md")


def test_memory_of_the_support_page_is_scored_without_answers(tmp_path: Path) -> None:
    """The metric `support` asks whether the words of the right answer are in the memory.

    The page has two questions, and its method stores only the last line of each session. That line
    answers one of them, so the score is .5. No model is asked for an answer.
    """
    SUPPORT.write(tmp_path)

    evaluation = SUPPORT.run(["python score_facts.py"], tmp_path, tmp_path)["python score_facts.py"]

    assert evaluation.score == 0.5
    assert evaluation.calls["task"] == 0
    # The page shows these two lines of what is printed.
    for words in ("of the stored entries", "words stored for each word said"):
        (printed_line,) = [line for line in str(evaluation).splitlines() if words in line]
        assert printed_line.strip() in SUPPORT.text


@pytest.mark.slow
def test_commands_of_the_support_page_score_and_plan(tmp_path: Path) -> None:
    """The second command has `--plan`, which estimates the calls of a compilation in advance."""
    commands = [command for command in SUPPORT.commands if command.startswith("mempiler")]

    evaluation, plan = SUPPORT.run(commands, tmp_path).values()

    assert 0 < evaluation["score"] < 1
    assert plan["phases"]["proposals"]["high"] > 0


# --- docs/own_systems.md --------------------------------------------------------------------

SNIPPETS_OF_OWN_SYSTEMS = [
    code for code in OWN_SYSTEMS.blocks_of("python") if code not in OWN_SYSTEMS.files.values()
]


@pytest.fixture(scope="module")
def results_of_own_systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands of the page and its snippet give; those that need LangGraph are left out.

    The key is the verb of `mempiler` and the system, such as "evaluate mine:Store", or "snippet".
    """
    folder = OWN_SYSTEMS.write(tmp_path_factory.mktemp("own-systems"))
    (snippet,) = SNIPPETS_OF_OWN_SYSTEMS
    (folder / "snippet.py").write_text(snippet, encoding="utf-8")
    commands = [command for command in OWN_SYSTEMS.commands if command not in OF_A_GRAPH]

    results_by_command = OWN_SYSTEMS.run([*commands, "python snippet.py"], folder, folder)

    results: dict[str, Any] = {"snippet": results_by_command["python snippet.py"]}
    for command, result in results_by_command.items():
        program, *words = command.split()
        if program == "mempiler":
            verb, system = words[:2]
            results[f"{verb} {system}"] = result
    return results


@pytest.mark.slow
@pytest.mark.parametrize("system", ["mine:Store", "module:Agent", "answers.jsonl"])
def test_systems_of_the_page_are_scored_without_a_failure(
    results_of_own_systems: dict[str, Any], system: str
) -> None:
    """The page scores a store, a DSPy module, and a file of answers that were made elsewhere."""
    assert results_of_own_systems[f"evaluate {system}"]["failures"] == 0


@pytest.mark.slow
def test_store_of_the_page_is_asked_twenty_questions_and_finds_the_evidence(
    results_of_own_systems: dict[str, Any],
) -> None:
    """The command has `--test 20`. Adversarial questions among the twenty do not count in `n`.

    "shown" is the share of questions whose evidence is in what the store finds.
    """
    evaluation = results_of_own_systems["evaluate mine:Store"]

    assert 10 < evaluation["n"] <= 20
    assert evaluation["retrieval"]["shown"] > 0.5


@pytest.mark.slow
def test_file_of_answers_is_scored_with_the_calls_that_it_reports(
    results_of_own_systems: dict[str, Any],
) -> None:
    """The file has an answer to each question of the sample, and says that each took one call.

    Adversarial questions, LoCoMo's category 5, are answered, but do not count in the score.
    """
    questions = mempiler.benchmark("locomo").examples
    adversarial = [example for example in questions if example.category == "5"]

    evaluation = results_of_own_systems["evaluate answers.jsonl"]

    assert evaluation["answering"]["calls"] == len(questions)
    assert evaluation["n"] == len(questions) - len(adversarial)


@pytest.mark.slow
def test_a_system_of_the_page_is_compiled(results_of_own_systems: dict[str, Any]) -> None:
    (compilation,) = [
        result for name, result in results_of_own_systems.items() if name.startswith("compile ")
    ]

    assert compilation["dev"] is not None
    assert compilation["program"]


@pytest.mark.slow
def test_snippet_of_the_page_scores_the_store_with_five_hits_in_each_context(
    results_of_own_systems: dict[str, Any],
) -> None:
    """The snippet sets `k` to 5."""
    evaluation = results_of_own_systems["snippet"].to_dict()

    assert evaluation["program"] == "mine:Store"
    assert evaluation["context"]["hits"] == 5


# --- docs/settings_search.md ----------------------------------------------------------------

SETTINGS_SEARCH = Page("settings_search.md")
TUNING, FRONTIER, OWN_SETTINGS = SETTINGS_SEARCH.blocks_of("python")


def test_settings_of_the_page_on_tuning_have_values_to_try() -> None:
    """The page shows a class `NoteSettings`, whose number `k` may be 1 to 50."""
    names: dict[str, Any] = {}

    run_code(OWN_SETTINGS, "docs/settings_search.md", names)

    metadata = names["NoteSettings"].model_fields["k"].metadata
    assert mempiler.TuningRange(1, 50, log=True) in metadata


@pytest.mark.slow
def test_settings_are_tuned_in_python_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways ask a model equally often, and find the same on the bundled sample: nothing better.

    The optimizer says so in a note, which the page quotes.
    """
    [command] = SETTINGS_SEARCH.commands
    result_of_command = SETTINGS_SEARCH.run([command], tmp_path)[command]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    names: dict[str, Any] = {}
    run_code(TUNING, "docs/settings_search.md", names)
    run_code(FRONTIER, "docs/settings_search.md", names)

    result_in_python = names["result"]
    [note] = result_in_python.optimizer_problems.notes
    assert note in SETTINGS_SEARCH.text
    calls_in_python = result_in_python.usage["calls"]["task"]
    assert calls_in_python == result_of_command["usage"]["calls"]["task"]
    assert f"LM calls, whole run: {calls_in_python} task; " in SETTINGS_SEARCH.text
    assert (tmp_path / "tuned-turn-rag" / "manifest.json").is_file()


# --- docs/compile_systems.md ----------------------------------------------------------------

COMPILE_SYSTEMS = Page("compile_systems.md")
BETTER_RULES = "Keep every line. Write one fact a line."


def reply_of_obedient_model(kind: str, text: str, number: int) -> str:
    """Answer for the store and the adapter of the page: by what the rules say to keep."""
    if "```" in text:
        # The adapter of gepa has better texts proposed, which stand between these marks.
        return f"```\n{BETTER_RULES}\n```"
    if "Answer in a few words" in text:
        return text
    return text if BETTER_RULES in text else "nothing"


@pytest.mark.parametrize("system", ["langmem", "mem0", "graphiti"])
def test_page_on_compiling_systems_names_the_pinned_version_of_the_package(system: str) -> None:
    """The names of settings in the table were read in this version."""
    pins = (ROOT / "systems" / "pins" / f"{system}.txt").read_text(encoding="utf-8")
    [row] = re.findall(
        rf"^\| `system:{system}` \| `([\w-]+)` ([\d.]+) \|", COMPILE_SYSTEMS.text, re.M
    )

    package, version = row
    assert f"{package}=={version}" in pins


def test_export_of_the_page_is_what_its_store_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export is code that makes the store with its texts; the page shows it as a text."""
    COMPILE_SYSTEMS.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    notes = import_fresh("notes")
    program = build_external_program(notes.Notes, "notes:Notes", "question-answering")

    exported_code = export_system(program)

    assert exported_code in COMPILE_SYSTEMS.blocks_of("text")


@pytest.mark.slow
def test_texts_of_a_store_are_compiled_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    """On the command line the store runs in a process of its own, and gets its texts there.

    The page says: "The example above makes about 70 model calls."
    """
    COMPILE_SYSTEMS.write(tmp_path)
    command = COMPILE_SYSTEMS.commands[0]

    results = COMPILE_SYSTEMS.run([command, "python compile_notes.py"], tmp_path, tmp_path)

    compiled = results[command]
    assert compiled["before"]["failures"] == 0
    assert compiled["candidates"]
    assert 60 <= sum(compiled["usage"]["calls"].values()) <= 80


@pytest.mark.slow
def test_numbers_of_a_store_are_tuned_on_the_command_line(tmp_path: Path) -> None:
    """The store of the page recalls its newest lines; the number of them is tuned."""
    COMPILE_SYSTEMS.write(tmp_path)
    [command] = [line for line in COMPILE_SYSTEMS.commands if "newest:NewestLines" in line]

    results = COMPILE_SYSTEMS.run([command], tmp_path, tmp_path)

    compiled = results[command]
    assert compiled["before"]["failures"] == 0
    [note] = compiled["optimizer"]["notes"]
    assert note.startswith("settings: newest 1 -> ")


@pytest.mark.slow
def test_an_adapter_of_gepa_tunes_texts_by_our_metric(
    scripted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter of the page lets the library gepa tune the rules of a store.

    The scripted model proposes `BETTER_RULES`, with which the store keeps what is asked for.
    """
    lm = scripted(reply_of_obedient_model)
    monkeypatch.setattr(mempiler, "language_model", lambda name: lm)
    COMPILE_SYSTEMS.write(tmp_path)

    results = COMPILE_SYSTEMS.run(["python tune_notes.py"], tmp_path, tmp_path)

    assert results["python tune_notes.py"] == {"rules": BETTER_RULES}


# --- docs/dspy_program.md -------------------------------------------------------------------

DSPY_PROGRAM = Page("dspy_program.md")


@pytest.mark.slow
def test_page_on_dspy_programs_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two blocks of the page are files; the others go on with the names of the script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    monkeypatch.syspath_prepend(tmp_path)
    module, script, *snippets = DSPY_PROGRAM.blocks_of("python")
    (tmp_path / "agent.py").write_text(module, encoding="utf-8")
    (tmp_path / "compile_agent.py").write_text(script, encoding="utf-8")

    names = vars(importlib.import_module("compile_agent"))
    for snippet in snippets:
        run_code(snippet, "docs/dspy_program.md", names)
    sys.modules.pop("compile_agent")
    sys.modules.pop("agent")

    assert len(snippets) == 5
    assert (tmp_path / "my-program" / "manifest.json").is_file()
    assert (tmp_path / "agent.json").is_file()


# --- docs/agents.md -------------------------------------------------------------------------

AGENTS_TEXT = Page("agents.md").text


def test_page_on_agents_names_extras_that_there_are() -> None:
    """An extra is an optional set of packages, one for each framework of agents."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named_extras = set(re.findall(r"pip install '\.\[([\w-]+)\]'", AGENTS_TEXT))

    assert named_extras == {"langchain", "langgraph", "llamaindex", "mcp", "openai-agents"}
    assert named_extras <= set(project["optional-dependencies"])


def reply_of_agent(kind: str, text: str, number: int) -> dict[str, Any]:
    """Answer for an agent that asks its memory once, and for the memory."""
    if kind == "next_thought":
        current_question = text.rpartition("[[ ## question ## ]]")[2]
        if "observation_0" in current_question:
            tool = "finish"
            arguments = {}
        else:
            tool = "ask_memory"
            arguments = {"question": "Where did Ada move?"}
        return {"next_thought": "Look.", "next_tool_name": tool, "next_tool_args": arguments}

    answer = "To Lisbon." if "Lisbon" in text else "unknown"
    if kind == "reasoning":
        return {"reasoning": "It says so.", "answer": answer}
    return {"answer": answer}


def test_agent_is_compiled_with_the_memory_inside_it(scripted, tmp_path, monkeypatch) -> None:
    """An agent of the page has a memory program as a part, and asks it by a tool.

    The optimizer must find demos, which are worked examples, for the prompts of both.
    `blocks("DSPy")` returns the code of that section; the first two blocks are not about such an
    agent.
    """
    monkeypatch.chdir(tmp_path)
    lm = scripted(reply_of_agent)
    names: dict[str, Any] = {"dspy": dspy, "mempiler": mempiler, "lm": lm, "__name__": "page"}

    for block in blocks("DSPy")[2:]:
        run_code(block, "docs/agents.md", names)
    agent = names["Agent"]()
    agent.load("agent.json")
    with dspy.context(lm=lm):
        prediction = agent(history=names["example"].history, question="Where did Ada go?")

    demos = {name: predictor.demos for name, predictor in agent.named_predictors()}
    assert set(demos) == {"memory.task.answer", "react.react", "react.extract.predict"}
    assert all(demos.values())
    assert prediction.answer == "To Lisbon."
    # What the memory answered to the agent.
    assert prediction.trajectory["observation_0"] == "To Lisbon."


@contextmanager
def lisbon_model() -> Iterator[Any]:
    """A model that answers "To Lisbon." if the word is in the prompt, and "unknown" otherwise."""

    def answer(body: dict[str, Any]) -> str:
        return "To Lisbon." if "Lisbon" in body["messages"][-1]["content"] else "unknown"

    with StubServer(answer=answer) as stub:
        yield language_model(stub.model, api_base=stub.url, cache=False)


def run_openai_client(address: str) -> dict[str, Any]:
    """Run the page's code of a client, for a service at an address; return the names it defines.

    These are the `client`, and `answer`, a function that sends a user's message.
    """
    code = blocks("Any OpenAI client")[1]
    code = code.replace("http://127.0.0.1:8000", address)
    code = code.replace("a token of the file", TOKENS["acme"])
    code = code.replace('"mempiler-chat"', '"my-model-chat"')
    names: dict[str, Any] = {}
    run_code(code, "docs/agents.md", names)
    return names


def test_any_openai_client_gets_answers_from_the_memory(tmp_path: Path) -> None:
    """The service stands between an OpenAI client and the model, and adds what a user said.

    The stub model answers "To Lisbon." only if the prompt has the word, which Ada has said and Ben
    has not.
    """
    with (
        mempiler.Store(tmp_path / "memories.sqlite") as store,
        lisbon_model() as lm,
        serving(service_over(store, tmp_path, lm)) as api,
    ):
        names = run_openai_client(api.address)
        with names["client"]:
            names["answer"]("ada", "I moved to Lisbon.")
            answer_to_ben = names["answer"]("ben", "Where did I move?")
            answer_to_ada = names["answer"]("ada", "Where did I move?")

    assert answer_to_ben == "unknown"
    assert answer_to_ada == "To Lisbon."


# --- docs/concepts.md -----------------------------------------------------------------------


def test_parts_of_a_program_are_called_alone_as_the_concepts_show() -> None:
    """The code of the page stores "I moved to Lisbon." and asks where the user moved."""
    code_blocks = Page("concepts.md").blocks_of("python")
    assert len(code_blocks) == 1

    names: dict[str, Any] = {"mempiler": mempiler}
    with dspy.context(lm=language_model("offline")):
        run_code(code_blocks[0], "docs/concepts.md", names)

    assert names["answer"] == "I moved to Lisbon."
    assert names["context"].sources == ("D1:1",)


# --- docs/production/fastapi.md -------------------------------------------------------------

FASTAPI = Page("production/fastapi.md")
LISBON_SESSION = {"id": "chat-17", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}


@pytest.fixture
def fastapi_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The page's application, with the offline engine as its model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mempiler.save(mempiler.build("turn-rag"), "my-program")
    text = FASTAPI.files["app.py"].replace('"openai/gpt-4.1-mini"', '"offline"')
    (tmp_path / "app.py").write_text(text, encoding="utf-8")
    return import_fresh("app")


@pytest.fixture
def fastapi_client(fastapi_module: types.ModuleType) -> Iterator[Any]:
    """A client of the page's application, for the user Ada."""
    from fastapi.testclient import TestClient

    with TestClient(fastapi_module.app, headers={"X-User": "ada"}) as client:
        yield client


def test_fastapi_application_answers_from_sessions(fastapi_client: Any) -> None:
    message = {"role": "user", "content": "I moved to Lisbon."}
    fastapi_client.post("/sessions", json={"id": "chat-17", "messages": [message]})

    answer = fastapi_client.post("/ask", json={"question": "Where did I move?"}).json()

    assert answer == {"answer": "I moved to Lisbon.", "sources": ["chat-17:1"]}


def test_fastapi_application_stores_a_session_once_that_is_sent_twice(
    fastapi_client: Any,
) -> None:
    """The page says that repeating is safe."""
    first = fastapi_client.post("/sessions", json=LISBON_SESSION)
    second = fastapi_client.post("/sessions", json=LISBON_SESSION)
    answer = fastapi_client.post("/ask", json={"question": "Where did I move?"}).json()

    assert first.status_code == 201
    assert second.status_code == 201
    assert answer["sources"] == ["chat-17:1"]


def test_fastapi_application_refuses_an_empty_session(fastapi_client: Any) -> None:
    response = fastapi_client.post("/sessions", json={"id": "", "messages": []})

    assert response.status_code == 400


def test_fastapi_application_shows_a_user_no_other_memory(fastapi_client: Any) -> None:
    """The header X-User names the user: by default Ada, who sends the session."""
    message = {"role": "user", "content": "I moved to Lisbon."}
    fastapi_client.post("/sessions", json={"id": "chat-17", "messages": [message]})

    answer_to_ben = fastapi_client.post(
        "/ask", json={"question": "Where did I move?"}, headers={"X-User": "ben"}
    ).json()

    assert answer_to_ben["sources"] == []


def test_fastapi_application_chats_until_the_session_ends(fastapi_client: Any) -> None:
    """A chat is kept as an open session; ending it twice does no harm."""
    message = {"session": "monday", "text": "Where did I move?"}

    reply = fastapi_client.post("/chat", json=message).json()
    first_end = fastapi_client.post("/chat/monday/end").json()
    second_end = fastapi_client.post("/chat/monday/end").json()

    assert reply["reply"]
    assert first_end == {"ended": True}
    assert second_end == {"ended": False}


def test_fastapi_application_refuses_other_messages_of_a_stored_session(
    fastapi_client: Any,
) -> None:
    lisbon = {"role": "user", "content": "I moved to Lisbon."}
    porto = {"role": "user", "content": "I moved to Porto."}
    fastapi_client.post("/sessions", json={"id": "chat-17", "messages": [lisbon]})

    response = fastapi_client.post("/sessions", json={"id": "chat-17", "messages": [porto]})

    assert response.status_code == 409


def test_fastapi_application_writes_in_the_background_and_forgets(
    fastapi_client: Any, fastapi_module: types.ModuleType
) -> None:
    """A posted session waits in a queue, and a task of the application writes it."""
    fastapi_client.post("/sessions", json=LISBON_SESSION)
    state = fastapi_module.app.state
    memory = state.program.memory(state.store, "ada")
    assert within(20, lambda: memory.status().queued == 0)

    receipt = fastapi_client.delete("/memory").json()

    assert receipt["sessions"] == 1
    assert memory.status() is None


def test_fastapi_application_shows_no_address_of_the_store(
    fastapi_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address may have a password, which must not reach those who use the application."""

    async def fail(*_: object) -> None:
        raise mempiler.StoreError("store postgresql://secret.host: the server is gone")

    monkeypatch.setattr(mempiler.UserMemory, "aask", fail)

    response = fastapi_client.post("/ask", json={"question": "Where?"})

    assert response.status_code == 503
    assert "secret" not in response.text


# --- docs/production/beside.md --------------------------------------------------------------

BESIDE = Page("production/beside.md")


class Mem0:
    """Stands in for `mem0.Memory`; it finds all messages of a user."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Mem0":
        # mem0's database refuses a folder that another one has open.
        Path(config["vector_store"]["config"]["path"]).mkdir(parents=True)
        return cls()

    def add(self, messages: list[dict[str, str]], user_id: str) -> None:
        contents = [message["content"] for message in messages]
        self.messages.setdefault(user_id, []).extend(contents)

    def search(self, query: str, top_k: int, filters: dict[str, str]) -> dict[str, Any]:
        texts = self.messages[filters["user_id"]][:top_k]
        return {"results": [{"memory": text} for text in texts]}


@pytest.fixture
def beside_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's files and `Mem0` as the package `mem0`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    monkeypatch.setitem(sys.modules, "mem0", types.SimpleNamespace(Memory=Mem0))
    monkeypatch.syspath_prepend(BESIDE.write(tmp_path))
    return tmp_path


def test_a_second_memory_is_written_searched_and_compared(
    beside_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page tries Mempiler beside a memory that is in use, here mem0.

    `both.py` adds messages to both memories. Its search returns what mem0 finds, and logs what both
    find. `differences.py` prints what only Mempiler found.
    """
    mempiler.save(mempiler.build("turn-rag"), "my-program")
    both = import_fresh("both")
    message = {"role": "user", "content": "I moved to Lisbon."}

    both.add("ada", "chat-17", [message])
    write_all_queued(Memories(both.program, "memories.sqlite", "offline"))
    hits = both.search("ada", "Lisbon")
    logged_search = json.loads(Path("searches.jsonl").read_text(encoding="utf-8"))
    runpy.run_path("differences.py")

    assert hits == ["I moved to Lisbon."]
    assert logged_search["present"] == ["I moved to Lisbon."]
    assert logged_search["mempiler"] == ["user: I moved to Lisbon."]
    assert "user: I moved to Lisbon." in capsys.readouterr().out
    assert check("jsonl", Path("questions.jsonl")).findings == ()


def test_a_failure_of_the_second_memory_does_not_reach_the_agent(
    beside_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page tries Mempiler beside a memory that is in use, here mem0.

    If Mempiler fails, the agent still gets what mem0 finds.
    """
    mempiler.save(mempiler.build("turn-rag"), "my-program")
    both = import_fresh("both")
    both.store.close()
    # Nothing listens at this address.
    monkeypatch.setattr(both, "store", "postgresql://nobody@127.0.0.1:9/none")

    both.add("ada", "chat-17", [{"role": "user", "content": "I moved to Lisbon."}])
    hits = both.search("ada", "Lisbon")

    assert hits == ["I moved to Lisbon."]


@pytest.mark.slow
@pytest.mark.usefixtures("beside_folder")
def test_the_present_memory_is_scored() -> None:
    """The present memory is the one in use, mem0; the page shows how a benchmark scores it."""
    present = import_fresh("present")

    evaluation = mempiler.evaluate(
        present.Present, benchmark="locomo", test=5, split="test", lm="offline"
    )

    assert evaluation.n > 0
    assert evaluation.failures == 0


# --- docs/production/feedback.md ------------------------------------------------------------

FEEDBACK = Page("production/feedback.md")


PRINTED_ROW = FEEDBACK.blocks_of("text")[0]


def test_the_page_on_feedback_makes_questions_that_are_evaluated(tmp_path: Path) -> None:
    """A script of the page asks a question and corrects the answer.

    Two commands export this as a question, and evaluate a program on it.
    """
    results = FEEDBACK.run(FEEDBACK.commands, FEEDBACK.write(tmp_path))

    _, export, evaluation = results.values()
    assert export["questions"] == 1
    assert export["corrected"] == 1
    assert evaluation["n"] == 1
    assert evaluation["score"] > 0
    row = json.loads((tmp_path / "questions.jsonl").read_text(encoding="utf-8"))
    assert without_id_and_time(row) == without_id_and_time(json.loads(PRINTED_ROW))


def without_id_and_time(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of feedback on one session without what differs from run to run."""
    (session,) = row["history"]["items"]
    del row["id"], session["time"]
    return row


def test_the_page_on_feedback_has_the_limits_of_the_code() -> None:
    """The page writes numbers such as 1,000, which are constants of the code."""
    _, _, section = FEEDBACK.text.partition("## Limits")

    assert f"The newest {MAX_ANSWERS:,} answers" in section
    assert f"above {MAX_ANSWER_LENGTH:,} characters" in section
    assert f"A correction has at most {MAX_CORRECTION_LENGTH:,}" in section
    assert f"{MAX_USEFUL_ENTRIES} entries" in section
    assert f"more than {MAX_SOURCES:,} turns" in FEEDBACK.text


# --- docs/production/improve.md -------------------------------------------------------------

IMPROVE = Page("production/improve.md")


def test_the_page_on_improving_has_the_numbers_of_the_code() -> None:
    """A round of `mempiler improve` needs some questions of several users, by these options."""
    assert f"| `--min-n` | {MIN_N} |" in IMPROVE.text
    assert f"| `--min-users` | {MIN_USERS} |" in IMPROVE.text
    assert f"| none, fixed | {MIN_TRAIN} | questions of other users" in IMPROVE.text
    # The users who decide, and one other user to learn from.
    questions = MIN_N + MIN_TRAIN
    assert f"at least {questions} questions of {MIN_USERS + 1} users" in IMPROVE.text
    assert f"at least {questions} of at least {MIN_USERS + 1} users" in FEEDBACK.text


def test_the_page_on_improving_names_the_optimizers_that_are_not_refused() -> None:
    """A round refuses optimizers that put questions of users (demos) into prompts."""
    _, _, section = IMPROVE.text.partition("- **The optimizer.**")
    paragraph, _, _ = section.partition("\n- **Demos.**")

    for name in OPTIMIZERS_WITHOUT_DEMOS:
        assert f"`{name}`" in paragraph


def test_the_page_on_improving_quotes_the_message_about_another_process() -> None:
    message = "another process is improving it, so nothing was done"

    assert f"`{message}`" in IMPROVE.text
    assert message in (ROOT / "runs" / "round_folder.py").read_text(encoding="utf-8")


# --- docs/production/troubleshooting.md -----------------------------------------------------


def test_messages_of_the_troubleshooting_page_stand_in_the_code() -> None:
    """Users search the page for a message, so its words must stand in the source as they are."""
    source_texts = "\n".join(text for file in package_files() for text in texts_of(ROOT / file))
    messages = messages_of_troubleshooting()
    assert len(messages) > 25

    unknown_parts: list[str] = []
    for message in messages:
        # "..." and NAME stand for what differs from case to case.
        for part in re.split(r"\.\.\.|NAME", message):
            if len(part) > 3 and part.strip() not in source_texts:
                unknown_parts.append(part)
    assert unknown_parts == []


def messages_of_troubleshooting() -> list[str]:
    """Return the messages in the first column of the page's tables, or on a line of their own."""
    text = Page("production/troubleshooting.md").text
    # | message or messages | ..., or | what happens | message |, e.g. "| `a`, `b` | ... |".
    cell_of_messages = r"^\| (?:[^|`]*\| )?(?:\w+: )?((?:`[^`|]+`(?:, )?)+) \|"
    messages: list[str] = []
    for cell in re.findall(cell_of_messages, text, re.MULTILINE):
        messages.extend(re.findall(r"`([^`]+)`", cell))
    messages.extend(re.findall(r"^`([^`]+)`$", text, re.MULTILINE))
    return messages


def texts_of(file: Path) -> Iterator[str]:
    """Return the texts of a source file; those that span several lines are joined."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


# --- All pages ------------------------------------------------------------------------------

EXPORTED_CODE = COMPILE_SYSTEMS.blocks_of("text")
SNIPPETS_OF_EXTEND = [*CATALOG_SNIPPETS, *CHECK_SNIPPETS, ENTRY_POINTS]


@pytest.mark.parametrize(
    ("page", "snippets"),
    [
        pytest.param(EXTEND, SNIPPETS_OF_EXTEND, id="extend"),
        pytest.param(SUPPORT, [], id="support"),
        pytest.param(OWN_SYSTEMS, SNIPPETS_OF_OWN_SYSTEMS, id="own systems"),
        pytest.param(COMPILE_SYSTEMS, EXPORTED_CODE, id="compile systems"),
        pytest.param(FASTAPI, [], id="fastapi"),
        pytest.param(BESIDE, [], id="beside"),
        pytest.param(FEEDBACK, [PRINTED_ROW], id="feedback"),
    ],
)
def test_every_code_block_of_a_page_is_tested(page: Page, snippets: list[str]) -> None:
    """A code block is a file of the page, a command, or a snippet that one of the tests uses."""
    assert page.untested(*snippets) == []
