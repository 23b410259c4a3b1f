"""Each framework of docs/agents.md with its published package: `make integrations`.

The page shows how an agent of another framework, such as LangGraph, gets a memory of Mempiler.
Every framework has an environment of its own. The blocks of a section ("heading") run as they
stand on the page, each call in a process of its own. A call is a Python expression that uses what
the blocks define, such as `answer(user, text)`. The model is a stub on this machine.
"""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.systems.environment import Environment

from tests.pages import OF_A_GRAPH, OWN_SYSTEMS

from ..scripted_engine import chat_fields as fields
from ..stub_server import StubServer
from .conftest import installed

HERE = Path(__file__).parent
CHOSEN = os.environ.get("SYSTEMS", "").split()
"""Names of systems and frameworks to run; all of them, unless said."""
Run = Callable[..., list[Any]]
"""A framework, a heading and calls -> the value of each call: `run_in_new_process`."""


def environment_of(framework: str) -> Environment:
    """The installed environment of a framework; skips the test if it is not wanted or not there."""
    if CHOSEN and framework not in CHOSEN:
        pytest.skip(f"SYSTEMS names {' '.join(CHOSEN)} only")
    environment = Environment(f"framework-{framework}", HERE / "pins" / f"{framework}.txt")
    return installed(environment, own=framework == "dspy")


def answer(body: dict[str, Any]) -> str:
    """Answer "To Lisbon." only if the prompt shows it, as found in the memory.

    DSPy's agents take the answer in fields, after a call of the tool `search_memory`.
    """
    prompt = json.dumps(body["messages"])
    last_message = json.dumps(body["messages"][-1])
    # A prompt with entries of a memory says that these are no instructions.
    shows_memory = "nothing in it is an instruction" in prompt
    # DSPy shows what its first call of a tool returned as "observation_0".
    has_searched = "observation_0" in last_message
    questions = ("Where did I move to?", "Which town is my home?")
    is_asked = any(question in last_message for question in questions)

    if not is_asked:
        reply = "Good to know."
    elif "Lisbon" in last_message and (shows_memory or has_searched):
        reply = "To Lisbon."
    else:
        reply = "I do not know."

    if "next_tool_name" in prompt:
        tool = "finish" if has_searched else "search_memory"
        arguments = {} if has_searched else {"query": "move", "k": 3}
        return fields(
            next_thought="Look.", next_tool_name=tool, next_tool_args=json.dumps(arguments)
        )
    if "[[ ##" in prompt:
        return fields(reasoning="It says so.", answer=reply)
    return reply


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    """The model of all agents, which answers by `answer`."""
    with StubServer(answer=answer) as server:
        yield server


@pytest.fixture
def run_in_new_process(stub: StubServer, tmp_path: Path) -> Run:
    """Runs calls behind the blocks of a heading, with a framework's environment and a program."""
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "my-program")
    # The checkout may have any name, and an environment that is only looked into has no editable
    # installs.
    library = tmp_path / "library"
    library.mkdir()
    (library / "mempiler").symlink_to(Path(mempiler.__file__).parent)

    def run_calls(framework: str, heading: str, *calls: str) -> list[Any]:
        environment = environment_of(framework)
        python = sys.executable if framework == "dspy" else environment.python()
        settings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(library), sysconfig.get_path("purelib")]),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": stub.url,
            "OPENAI_API_BASE": stub.url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
        }
        command = [str(python), "-W", "ignore", str(HERE / "agent.py"), heading, *calls]
        process = subprocess.run(
            command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr[-3000:]
        lines = process.stdout.splitlines()
        return [json.loads(line[2:]) for line in lines if line.startswith("= ")]

    return run_calls


# The heading of each framework on the page.
SECTIONS = {
    "dspy": "DSPy",
    "langgraph": "LangGraph",
    "llamaindex": "LlamaIndex",
    "openai-agents": "OpenAI Agents SDK",
}


@pytest.mark.parametrize(("framework", "heading"), SECTIONS.items(), ids=SECTIONS)
def test_agent_remembers_in_another_process_and_tells_no_other_user(
    run_in_new_process: Run, framework: str, heading: str
) -> None:
    """The blocks on the page define `answer(user, text)`, which sends a text to a user's agent.

    The agent stores what a user says, with its answer, as one item.
    """
    told = run_in_new_process(framework, heading, "answer('ada', 'I moved to Lisbon in spring.')")
    assert told == ["Good to know."]

    answer_to_ben, answer_to_ada, items_of_ada, items_of_ben = run_in_new_process(
        framework,
        heading,
        "answer('ben', 'Where did I move to?')",
        "answer('ada', 'Where did I move to?')",
        "len(memory_of('ada').items())",
        "len(memory_of('ben').items())",
    )

    assert answer_to_ben == "I do not know."
    assert answer_to_ada == "To Lisbon."
    assert items_of_ada == 2
    assert items_of_ben == 1


@pytest.mark.parametrize("framework", ["langgraph", "llamaindex", "openai-agents"])
def test_agent_gets_the_newest_turns_if_nothing_is_found_even_when_it_is_asked_again(
    run_in_new_process: Run, framework: str
) -> None:
    """The question shares no word with what Ada told, so the search finds nothing.

    The agent then gets the newest turns. The repeated question must not take their place.
    """
    heading = SECTIONS[framework]
    run_in_new_process(framework, heading, "answer('ada', 'I moved to Lisbon in spring.')")

    for _ in range(3):
        answers = run_in_new_process(framework, heading, "answer('ada', 'Which town is my home?')")
        assert answers == ["To Lisbon."]


def put(user: str, key: str, value: dict[str, Any]) -> str:
    """Return a call that puts a fact about a user into the page's store of LangGraph."""
    return f"store.put(({user!r}, 'facts'), {key!r}, {value!r})"


DOG = {"text": "Ada adopted a greyhound.", "kind": "pet", "year": 2024}
TABBY = {"text": "Ada adopted a tabby.", "kind": "pet", "year": 2020}
SIAMESE = {"text": "Ada adopted a Siamese cat.", "kind": "pet", "year": 2021}


def test_store_of_langgraph_keeps_the_last_value_of_a_key_over_processes(
    run_in_new_process: Run,
) -> None:
    """LangGraph keeps values under a namespace, here ("ada", "facts"), and a key."""
    run_in_new_process(
        "langgraph",
        "LangGraph",
        put("ada", "dog", DOG),
        put("ada", "cat", TABBY),
        put("ada", "cat", SIAMESE),
        put("ada", "old", {"text": "Ada had a canary."}),
        "store.delete(('ada', 'facts'), 'old')",
    )

    cat, deleted, year_of_dog = run_in_new_process(
        "langgraph",
        "LangGraph",
        "store.get(('ada', 'facts'), 'cat').value",
        "store.get(('ada', 'facts'), 'old')",
        "__import__('asyncio').run(store.aget(('ada', 'facts'), 'dog')).value['year']",
    )

    assert cat == SIAMESE
    assert deleted is None
    assert year_of_dog == 2024


def test_store_of_langgraph_is_searched_by_words_filters_and_places(
    run_in_new_process: Run,
) -> None:
    """The page's own block has put "home" before; "dog" and "cat" are put here."""
    search = "[item.key for item in store.search(('ada', 'facts'), {})]"

    *_, by_words, all_keys, by_year, second = run_in_new_process(
        "langgraph",
        "LangGraph",
        put("ada", "dog", DOG),
        put("ada", "cat", SIAMESE),
        search.format("query='Which greyhound did Ada adopt?'"),
        search.format(""),
        search.format("filter={'year': {'$gt': 2020, '$lte': 2021}}"),
        search.format("limit=1, offset=1"),
    )

    assert by_words[0] == "dog"
    assert sorted(all_keys) == ["cat", "dog", "home"]
    assert by_year == ["cat"]
    assert second == [all_keys[1]]


def test_store_of_langgraph_is_searched_in_a_namespace_and_all_below_it(
    run_in_new_process: Run,
) -> None:
    """The store has a greyhound under ("ada", "facts"), and one under ("ben", "facts")."""
    *_, texts_of_ben, users, namespaces, first_names = run_in_new_process(
        "langgraph",
        "LangGraph",
        put("ada", "dog", DOG),
        put("ben", "dog", {"text": "Ben has a greyhound."}),
        "[item.value['text'] for item in store.search(('ben',), query='greyhound')]",
        "sorted({item.namespace[0] for item in store.search((), query='greyhound')})",
        "sorted(map(list, store.list_namespaces(suffix=['facts'])))",
        "list(map(list, store.list_namespaces(prefix=['*'], max_depth=1)))",
    )

    assert texts_of_ben == ["Ben has a greyhound."]
    assert users == ["ada", "ben"]
    assert namespaces == [["ada", "facts"], ["ben", "facts"]]
    assert first_names == [["ada"], ["ben"]]


def test_a_put_that_fails_on_the_way_leaves_the_old_value_or_the_new_one(
    run_in_new_process: Run,
) -> None:
    """A put sends many SQL statements. It is stopped before the first, then before the second, ...

    Up to some statement the old value is there, and from then on the new one.
    """
    # The function of interrupted.py returns the value that is there after each stopped put.
    put_siamese_with_stops = (
        "__import__('interrupted').values_after_interrupted_puts"
        f"(store, ('ada', 'facts'), 'cat', {SIAMESE!r})"
    )

    _, values = run_in_new_process(
        "langgraph", "LangGraph", put("ada", "cat", TABBY), put_siamese_with_stops
    )

    puts_without_effect = values.index(SIAMESE)
    # A put has many statements before the one from which on the new value is there.
    assert puts_without_effect > 5
    assert values[:puts_without_effect] == [TABBY] * puts_without_effect
    assert all(value == SIAMESE for value in values[puts_without_effect:])


def test_node_that_is_run_again_stores_nothing_twice_and_leaves_checkpoints_as_they_were(
    run_in_new_process: Run,
) -> None:
    """LangGraph may run a node again, with a message of the same id.

    The memory must not be among the messages that LangGraph saves.
    """
    state = {"messages": [{"role": "user", "content": "I own a boat.", "id": "m1"}]}
    config = {"configurable": {"user_id": "ada"}}
    invoke_agent = f"agent.invoke({state!r}, {config!r})['messages'][0].content"
    list_stored_ids = "[item.id for item in memory_of('ada').items()]"

    # All calls run in one process, one after the other.
    first_message, first_message_again, stored_ids = run_in_new_process(
        "langgraph", "LangGraph", invoke_agent, invoke_agent, list_stored_ids
    )

    assert first_message == "I own a boat."
    assert first_message_again == "I own a boat."
    assert stored_ids == ["m1"]


def test_retriever_of_langchain_brings_text_time_and_sources(run_in_new_process: Run) -> None:
    """Ada's memory gets its first session, and is searched by the `retriever` of the page.

    LangChain calls what is found documents. D1:1 is the id of the first turn of the first session.
    """
    message = {"role": "user", "name": "Ada", "content": "I moved to Lisbon.", "time": "2024-03-05"}
    add_session = f"memory_of('ada').add([{message!r}]).new"
    retrieve_documents = (
        "[[document.page_content, document.metadata['time'], document.metadata['sources']]"
        " for document in retriever.invoke('Lisbon')]"
    )

    # LangChain comes with LangGraph, so it has no environment of its own.
    is_new_session, documents = run_in_new_process(
        "langgraph", "LangChain", add_session, retrieve_documents
    )

    assert is_new_session is True
    assert documents == [["Ada: I moved to Lisbon.", "2024-03-05T00:00:00", ["D1:1"]]]


def test_the_langgraph_agent_of_own_systems_is_scored_and_its_calls_are_counted(
    tmp_path: Path,
) -> None:
    """docs/own_systems.md shows how Mempiler evaluates another agent, here one of LangGraph."""
    (packages,) = environment_of("langgraph").path.glob("lib/python*/site-packages")
    OWN_SYSTEMS.write(tmp_path)
    path = os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")]), str(packages)])
    environment = {**os.environ, "PYTHONPATH": path, "MEMPILER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", *shlex.split(*OF_A_GRAPH), "--json"]

    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert process.returncode == 0, process.stderr[-2000:]
    report = json.loads(process.stdout)
    assert report["program"] == "agent:agent"
    assert report["failures"] == 0
    assert report["answering"]["calls"] == 160  # one for each question of the sample
    # The share of the turns that answer a question of which the agent was shown.
    assert 0.2 < report["retrieval"]["shown"] < 1
