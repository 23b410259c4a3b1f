"""Every shipped system through its real package, in a new environment: `make integrations`.

A shipped system is a memory of other people, such as mem0, that Mempiler can evaluate. One whose
environment cannot be made is skipped, with the reason; one that stores or finds nothing, or loses
what it stored, fails. A scripted model answers the prompts of all systems.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import mempiler
import pytest
from dspy import lm15
from mempiler.engines.call_context import measure_usage
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.engines.offline.engine import OfflineEngine, request_texts
from mempiler.programs.external._model_calls import recorded_model_calls
from mempiler.records import Session, Turn
from mempiler.systems import process
from mempiler.systems.catalog import SYSTEMS, factory, shipped
from mempiler.systems.process import SystemFailedError
from mempiler.systems.proxy import Proxy

from ..stub_server import StubServer, every
from .conftest import installed

FRAMEWORKS = {
    "dspy",
    *(pins.stem for pins in (Path(__file__).parent / "pins").glob("*.txt")),
} - SYSTEMS.keys()
NAMED = os.environ.get("SYSTEMS", "").split() or list(SYSTEMS)
CHOSEN = [name for name in NAMED if name not in FRAMEWORKS]
"""Names of systems to run; frameworks have a file of their own."""

TOLD = (
    ("Ann", "I moved to Lisbon in spring."),
    ("Bob", "My sister Clara became a veterinarian."),
    ("Ann", "I adopted a greyhound called Pixel."),
    ("Bob", "I sold my motorcycle yesterday."),
)
WORDS = (
    "kitchen bicycle orchard library concert lantern holiday airport teacher doctor garden village"
)
LATER = (
    ("Ann", "Pixel the greyhound won a marathon."),
    ("Bob", "I began to learn the accordion."),
    *(
        (who, f"This week I wrote about the {word}.")
        for word in WORDS.split()
        for who in ("Ann", "Bob")
    ),
)
"""The second session.

It is long enough for a system that writes only when its short-term memory is full.
"""


def _session(name: str, time: str, told: tuple[tuple[str, str], ...]) -> Session:
    """Return a session in which these speakers say these texts; its turns are numbered."""
    turns = tuple(
        Turn(id=f"{name}:{n}", speaker=who, text=what) for n, (who, what) in enumerate(told, 1)
    )
    return Session.model_validate({"id": name, "time": time, "turns": turns})


FIRST_SESSION, SECOND_SESSION = (
    _session("D1", "2024-05-01T10:00:00", TOLD),
    _session("D2", "2024-06-01T10:00:00", LATER),
)


@pytest.fixture(scope="module", params=CHOSEN)
def name(request: pytest.FixtureRequest) -> str:
    """A system whose environment was made."""
    return installed(shipped(request.param).environment).name


class SystemUse(NamedTuple):
    """What a system did with two sessions and a question."""

    entries: list[dict[str, Any]]
    """What it found for the question which greyhound Ann adopted."""
    prompts: list[str]
    """The prompts that it sent while it wrote, sorted."""


def use_system(name: str, folder: Path) -> SystemUse:
    """Give a new system two sessions, and ask it a question. Its model calls must be counted."""
    meter = Meter()
    lm = scripted_lm(meter)
    make_system = factory(name)
    with dspy.context(lm=lm), closing(make_system(folder, embedder=embedder())) as system:
        with measure_usage() as writing:
            system.add(FIRST_SESSION)
            system.add(SECOND_SESSION)
        prompts = sorted(lm.engine.prompts)
        assert writing.usage.calls == meter.read().calls["task"]
        assert writing.usage.calls > 0
        entries = system.search("Which greyhound did Ann adopt?", k=5)
    return SystemUse(entries, prompts)


def test_system_finds_what_it_was_told(name: str, tmp_path: Path) -> None:
    """Ann says in the turn D1:3 that she adopted a greyhound, and in D2:1 that it won a race."""
    entries = use_system(name, tmp_path).entries

    assert 0 < len(entries) <= 5
    assert any("greyhound" in entry["text"] for entry in entries)
    sources: set[str] = set()
    for entry in entries:
        sources.update(entry.get("ids", ()))
    assert {"D1:3", "D2:1"} & sources


def test_system_asks_the_same_prompts_each_time(name: str, tmp_path: Path) -> None:
    """A run that was killed finds the answers to its prompts in a store, and pays for none twice.

    That needs prompts without times, random ids and the like.
    """
    first_use = use_system(name, tmp_path / "first")
    second_use = use_system(name, tmp_path / "second")
    assert second_use.prompts == first_use.prompts


RULES = "Keep every place that somebody moved to."


def test_a_text_that_is_set_reaches_the_prompts_of_the_package(name: str, tmp_path: Path) -> None:
    """Mempiler compiles texts of a system, such as its rules. They must get into its prompts."""
    if not SYSTEMS[name].has_texts:
        pytest.skip(f"{name} has no texts that can be set")
    make_system = factory(name)
    texts = dict.fromkeys(make_system.TEXTS, RULES)

    with (
        dspy.context(lm=scripted_lm()),
        closing(make_system(tmp_path, embedder=embedder(), texts=texts)) as system,
        recorded_model_calls() as calls,
    ):
        system.add(FIRST_SESSION)

    assert any(RULES in call.prompt for call in calls)


def test_numbers_that_are_set_are_taken_by_the_package(name: str, tmp_path: Path) -> None:
    """All numbers of a system, such as thresholds, are set to the highest value allowed."""
    make_system = factory(name)
    declared = getattr(make_system, "NUMBERS", {})
    if not declared:
        pytest.skip(f"{name} has no numbers that can be set")
    numbers = {number_name: number["high"] for number_name, number in declared.items()}

    with (
        dspy.context(lm=scripted_lm()),
        closing(make_system(tmp_path, embedder=embedder(), numbers=numbers)) as system,
    ):
        system.add(FIRST_SESSION)
        entries = system.search("Which greyhound did Ann adopt?", k=5)

    if name == "mem0":
        # Its highest threshold leaves out what is not nearly the same as the query.
        assert entries == []
    else:
        assert entries


DAY = 24 * 3600


class FaultyEndpoint:
    """Takes the place of a system's `Proxy`; a server that answers no request is behind it."""

    def __init__(self, server: StubServer) -> None:
        self.url = server.url
        self.key = "a key"

    def serve_here(self) -> None: ...

    def take_failure(self) -> None: ...

    def close(self) -> None: ...


def test_a_package_waits_for_the_models_of_the_run_and_asks_them_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mempiler's models have time limits and retries of their own, so a package needs none.

    The server answers with status 500, after which a client of OpenAI would ask again. The client's
    headers tell how often it has asked before, and how many seconds it waits, if not forever.
    """
    with StubServer(script=every("500")) as server:
        monkeypatch.setattr(process, "Proxy", lambda embedder: FaultyEndpoint(server))
        with closing(factory(name)(tmp_path, embedder=embedder())) as system:
            # MemoryOS asks no model before the second session.
            for session in (FIRST_SESSION, SECOND_SESSION):
                with suppress(SystemFailedError):
                    system.add(session)
            # Not before: LangMem embeds the session first, and then would not ask its model.
            server.embedding_fault = lambda: "500"
            with suppress(SystemFailedError):
                system.search("Which greyhound did Ann adopt?", k=5)

    assert {request.path for request in server.requests} == {
        "/v1/chat/completions",
        "/v1/embeddings",
    }
    for request in server.requests:
        headers = {key.lower(): value for key, value in request.headers.items()}
        assert headers["x-stainless-retry-count"] == "0"
        assert float(headers.get("x-stainless-read-timeout", "inf")) > DAY


@pytest.mark.parametrize(
    ("settings", "shown_sessions"),
    [
        pytest.param({"numbers": {"earlier_sessions": 0}}, 0, id="none"),
        pytest.param({"numbers": {"earlier_sessions": 2}}, 2, id="two"),
        pytest.param({}, 10, id="by default"),
    ],
)
def test_graphiti_shows_its_model_so_many_earlier_sessions(
    settings: dict[str, Any], shown_sessions: int, tmp_path: Path
) -> None:
    """The first prompt for a session shows the latest ones before it, from old to new."""
    if "graphiti" not in CHOSEN:
        pytest.skip("SYSTEMS does not name graphiti")
    installed(shipped("graphiti").environment)
    make_system = factory("graphiti")
    days = range(1, 13)

    with (
        dspy.context(lm=scripted_lm()),
        closing(make_system(tmp_path, embedder=embedder(), **settings)) as system,
    ):
        for day in days:
            with recorded_model_calls() as calls:
                told = (("Ann", f"I read chapter {day}."),)
                system.add(_session(f"D{day}", f"2024-05-{day:02d}T10:00:00", told))

    # The calls for the last session.
    days_in_prompt = re.findall(r"chapter (\d+)", calls[0].prompt)
    assert days_in_prompt == [str(day) for day in days[-1 - shown_sessions :]]


CITIES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Dakar", "Perth", "Turin", "Kyoto")


def question(number: int) -> dspy.Example:
    """Return a question about what one user said."""
    city = CITIES[number % len(CITIES)]
    messages = [
        {"role": "user", "name": "Ann", "content": f"I moved to {city} in spring."},
        {"role": "user", "name": "Ann", "content": f"My dog is called Rex{number}."},
    ]
    return dspy.Example(
        history=messages, question="Where did Ann move?", answer=city, user=f"user-{number}"
    )


def test_instructions_of_langmem_are_compiled_and_their_export_keeps_the_same(
    tmp_path: Path,
) -> None:
    """The model obeys: it keeps places only if the instructions say so, as GEPA's model proposes.

    The exported code runs in LangMem's environment, without Mempiler; a proxy is its model.
    """
    if "langmem" not in CHOSEN:
        pytest.skip("SYSTEMS does not name langmem")
    environment = installed(shipped("langmem").environment)
    lm = MeteredLM("scripted/obedient-1", engine=ObedientEngine(), cache=False)

    result = mempiler.compile(
        "system:langmem",
        trainset=[question(number) for number in range(4)],
        valset=[question(number) for number in range(4, 8)],
        metric="exact",
        stage="write",
        optimizer=mempiler.optimizers.Gepa(max_metric_calls=8),
        lm=lm,
        # So few questions give no verdict. Each takes a process that imports LangMem.
        force=True,
        progress=False,
    )

    assert result.before.score == 0.0
    assert result.after.score == 1.0
    assert RULES in result.export()

    with dspy.context(lm=lm), closing(Proxy(embedder())) as proxy:
        proxy.serve_here()
        script = tmp_path / "exported.py"
        script.write_text(BEFORE_EXPORT + result.export() + AFTER_EXPORT, encoding="utf-8")
        command = [str(environment.python()), "-I", str(script), proxy.url, proxy.key]
        kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert kept == "Ann: I moved to Lisbon in spring.\n"


BEFORE_EXPORT = """
import sys
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

model = ChatOpenAI(model="task-model", base_url=sys.argv[1], api_key=sys.argv[2])
store = InMemoryStore()
"""

AFTER_EXPORT = """
lines = "Ann: I moved to Lisbon in spring.\\nAnn: My dog is called Rex."
manager.invoke({"messages": [{"role": "user", "content": lines}]})
for item in store.search(("memories",)):
    print(item.value["content"]["content"])
"""


LINE = re.compile(r"\b(Ann|Bob|Gina|Jon)(?: says)?: ([^\n\"\\<]+)")
WORD = re.compile(r"\b[a-z]{6,}\b")


class ScriptedEngine(OfflineEngine):
    """Answers every prompt of the shipped systems, from the lines that the prompt quotes."""

    supports_function_calling = True

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []
        """What it was asked, but for calls of tools."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answers one request, with calls of tools where there are any."""
        if not request.tools:
            return super().complete(request)
        parts = self.memories(request)
        usage = lm15.Usage(input_tokens=1, output_tokens=1)
        message = lm15.Message("assistant", tuple(parts) or lm15.Message.assistant("nothing").parts)
        reason = "tool_call" if parts else "stop"
        return lm15.Response(None, request.model, message, finish_reason=reason, usage=usage)

    def memories(self, request: lm15.Request) -> list[lm15.ToolCallPart]:
        """Return a memory for every line, all at once."""
        lines = spoken("\n".join(request_texts(request)))
        return [
            lm15.ToolCallPart(f"call-{n}", "Memory", {"content": line})
            for n, line in enumerate(lines)
        ]

    def reply(self, request: lm15.Request) -> str:
        """The first form that the prompt asks for."""
        self.prompts.append(repr(request))
        prompt = "\n".join(request_texts(request))
        wanted = prompt + json.dumps(request.config.response_format or {})
        lines = spoken(prompt)
        for marker, form in FORMS.items():
            if re.search(marker, wanted):
                found = form(lines, prompt)
                return found if isinstance(found, str) else json.dumps(found)
        return " ".join(lines) or "none"


class ObedientEngine(ScriptedEngine):
    """Keeps lines as the instructions in the prompt say, and proposes better instructions."""

    def memories(self, request: lm15.Request) -> list[lm15.ToolCallPart]:
        """Return a memory for each line that the instructions say to keep."""
        wanted_word = "moved" if RULES in "\n".join(request_texts(request)) else "called"
        parts: list[lm15.ToolCallPart] = []
        for part in super().memories(request):
            if wanted_word in part.input["content"]:
                parts.append(part)
        return parts

    def reply(self, request: lm15.Request) -> str:
        """Return a proposal, or the city in a context."""
        prompt = "\n".join(request_texts(request))
        if "new_instruction" in prompt:
            return json.dumps({"new_instruction": RULES})
        known_cities = [city for city in CITIES if city in prompt]
        answer = known_cities[-1] if known_cities else "unknown"
        return f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


def scripted_lm(meter: Meter | None = None) -> MeteredLM:
    """The model, counted as any."""
    return MeteredLM(
        "scripted/words-1", Metering(meter or Meter()), engine=ScriptedEngine(), cache=False
    )


def spoken(text: str) -> list[str]:
    """The lines of the conversation in a prompt, each once, with their speakers."""
    return list(dict.fromkeys(f"{who}: {what.strip()}" for who, what in LINE.findall(text)))


def _facts(lines: list[str], prompt: str) -> dict[str, Any]:
    return {
        "memory": [
            {"id": str(n), "text": line, "attributed_to": "user"} for n, line in enumerate(lines)
        ]
    }


def _values(lines: list[str], prompt: str) -> dict[str, Any]:
    kind = {"memory_type": "UserMemory", "tags": ["said"]}
    return {
        "memory list": [{"key": line[:30], "value": line, **kind} for line in lines],
        "summary": "said",
    }


def _note(lines: list[str], prompt: str) -> dict[str, Any]:
    words = WORD.findall(lines[-1] if lines else "")
    return {"keywords": words, "context": "What friends tell each other.", "tags": ["friends"]}


def _themes(lines: list[str], prompt: str) -> list[dict[str, Any]]:
    return [
        {"theme": "friends", "keywords": WORD.findall(" ".join(lines)), "content": " ".join(lines)}
    ]


def _evolution(lines: list[str], prompt: str) -> dict[str, Any]:
    near = re.findall(r"memory_id:(\S+)", prompt)
    same: dict[str, Any] = {"new_context_neighborhood": [], "new_tags_neighborhood": []}
    return {
        "should_evolve": True,
        "actions": ["strengthen"],
        "suggested_connections": near[:1],
        "tags_to_update": ["linked"],
        **same,
    }


def _entities(lines: list[str], prompt: str) -> dict[str, Any]:
    names = [*dict.fromkeys(line.partition(":")[0] for line in lines), *_things(lines)]
    return {
        "extracted_entities": [
            {"name": name, "entity_type_id": 0, "episode_indices": [0]} for name in names
        ]
    }


def _edges(lines: list[str], prompt: str) -> dict[str, Any]:
    told = [(line.partition(":")[0], thing, line) for line in lines for thing in _things([line])]
    known = [each for each in told if f'"{each[1]}"' in prompt or f"'{each[1]}'" in prompt]
    return {
        "edges": [
            {
                "source_entity_name": who,
                "target_entity_name": thing,
                "relation_type": "TOLD_OF",
                "fact": line,
            }
            for who, thing, line in known
        ]
    }


def _things(lines: list[str]) -> list[str]:
    """The last long word of each line."""
    words = [WORD.findall(line.partition(":")[2]) for line in lines]
    return list(dict.fromkeys(found[-1] for found in words if found))


FORMS: dict[str, Callable[[list[str], str], Any]] = {
    "should_evolve": _evolution,
    '"theme":': _themes,
    '"keywords": \\[': _note,
    "memory list": _values,
    '"memory": ?\\[': _facts,
    "ExtractedEntities": _entities,
    "ExtractedEdges": _edges,
    "NodeResolutions": lambda lines, prompt: {"entity_resolutions": []},
    "EdgeDuplicate": lambda lines, prompt: {"duplicate_facts": [], "contradicted_facts": []},
    "BatchEdgeTimestamps": lambda lines, prompt: {"timestamps": []},
    "EdgeTimestamps": lambda lines, prompt: {},
    "SummarizedEntities": lambda lines, prompt: {"summaries": []},
}
"""For each pattern in a prompt or its schema: the function that makes the answer.

Some systems want facts, others notes, or the entities and edges of a graph.
"""
