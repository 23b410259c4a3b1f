"""`docs/agents.md`: what needs no package of others runs here, as it stands.

`tests/integrations/test_frameworks.py` runs the other sections.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import dspy
import mempiler
from mempiler.engines.models import language_model

from .integrations.agent import blocks
from .serving.conftest import TOKENS, service_over, serving
from .stub_server import StubServer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def test_extras_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r"pip install '\.\[([\w-]+)\]'", PAGE))
    assert named == {"langchain", "langgraph", "llamaindex", "openai-agents"} & set(extras)


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
