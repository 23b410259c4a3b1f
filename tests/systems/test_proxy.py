"""What a foreign program asks of a model is asked of the run's: counted, limited, and answered in OpenAI's form."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import dspy
import httpx
import numpy as np
import openai
import pytest
from mempiler.engines.embedders import embedder
from mempiler.engines.guard import Guard, Limits
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.engines.spending import measure_usage
from mempiler.errors import BudgetError
from mempiler.systems.proxy import Proxy

from .conftest import ITEM, Start

ASKED = {"messages": [{"role": "user", "content": "Ann moved to Lisbon. Where did Ann move?"}]}
ASKING = "def add(self, session): self.texts.append(['x', json.dumps(ask('/chat/completions', **{}))])".replace(
    "{}", json.dumps(ASKED)
)


def test_calls_are_those_of_the_run(start: Start) -> None:
    meter = Meter()
    system = start(ASKING)
    with dspy.context(lm=language_model("offline", meter)), measure_usage() as work:
        system.add(ITEM)
    used = meter.read()
    assert (used.calls["task"], work.taken.calls) == (1, 1)
    assert used.input_tokens == work.taken.input_tokens > 0
    answer = json.loads(system.search("x", k=1)[0]["text"])
    assert "Lisbon" in answer["choices"][0]["message"]["content"]
    assert answer["usage"]["prompt_tokens"] == used.input_tokens


def test_a_budget_ends_the_run_and_not_the_system(start: Start) -> None:
    system = start(ASKING)
    with dspy.context(lm=language_model("offline", guard=Guard(Limits(max_calls=1)))):
        system.add(ITEM)
        with pytest.raises(BudgetError, match="max-calls 1"):
            system.add(ITEM)
    assert json.loads(system.search("x", k=9)[1]["text"])["status"] == 400


def test_a_system_without_a_model_hears_so(start: Start) -> None:
    system = start(ASKING)
    system.add(ITEM)
    assert "no language model was given" in system.search("x", k=1)[0]["text"]


@contextmanager
def serving(lm: Any) -> Iterator[Proxy]:
    """A proxy of a model."""
    with dspy.context(lm=lm), closing(Proxy(embedder())) as proxy:
        proxy.serve_here()
        yield proxy


def test_a_client_of_openai_gets_what_it_asks_for() -> None:
    with serving(language_model("offline")) as proxy, openai.OpenAI(base_url=proxy.url, api_key=proxy.key) as client:
        texts = ["Ann moved", "", "Bob likes jazz"]
        rows = [each.embedding for each in client.embeddings.create(model="any", input=texts).data]
        whole = client.chat.completions.create(model="any", temperature=0.1, max_tokens=9, **ASKED)  # type: ignore
    np.testing.assert_allclose(rows, embedder().embed(texts), atol=1e-6)
    assert "Lisbon" in str(whole.choices[0].message.content)
    assert whole.choices[0].finish_reason == "stop"


REFUSED: list[tuple[str, Any, str | None, int, str]] = [
    ("/embeddings", {"input": ["x"]}, "another", 400, "the key is another"),
    ("/embeddings", {"input": [[1, 2]]}, None, 400, "a text or a list of texts"),
    ("/embeddings", {"input": "x", "dimensions": 7}, None, 400, "384 numbers, not 7"),
    ("/chat/completions", {**ASKED, "stream": True}, None, 400, "stream"),
    ("/chat/completions", ["x"], None, 422, "valid dictionary"),
    ("/audio", {}, None, 400, "there is no audio"),
]


def test_other_requests_are_refused() -> None:
    with serving(language_model("offline")) as proxy:
        for path, body, key, status, reason in REFUSED:
            headers = {"Authorization": f"Bearer {key or proxy.key}"}
            found = httpx.post(proxy.url + path, json=body, headers=headers)
            assert (found.status_code, reason in found.text) == (status, True), path


def test_many_threads_are_answered_and_counted() -> None:
    meter = Meter()
    with measure_usage() as work, serving(language_model("offline", meter)) as proxy:
        asking = [threading.Thread(target=proxy.answer, args=("chat/completions", ASKED)) for _ in range(16)]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
    assert meter.read().calls["task"] == work.taken.calls == 16
