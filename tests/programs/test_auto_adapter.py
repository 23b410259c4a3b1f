"""The adapter "auto": endpoints are asked once what they can, and answers under a schema are read as they come."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.adapter import adapter
from mempiler.programs.auto_adapter import QUESTION, AutoAdapter, SchemaAdapter, output_schema
from mempiler.programs.correcting import CorrectingAdapter
from mempiler.programs.predictor import Predictor
from mempiler.programs.recording import recording
from mempiler.reading.cut import CutText
from mempiler.runs.run_store import RunStore
from mempiler.runs.setup import Setup
from pydantic import BaseModel, TypeAdapter

from tests.stub_server import StubServer, fill
from tests.suite import suite

SUITE = suite()
TEXT = "1"
"""What the stub writes for every text; the inputs show it as an id."""


ASKED = dspy.Signature("question -> answer, sure: bool")
"""Made once: Python 3.11 may fail with a SystemError where threads parse such texts at the same time."""


def _asked(lm: Any, chosen: dspy.Adapter, question: str = "Where?") -> dspy.Prediction:
    with dspy.context(lm=lm, adapter=chosen):
        return dspy.Predict(ASKED)(question=question)


def _model(server: Any, meter: Meter | None = None) -> Any:
    return language_model(server.model, meter, api_base=server.url, retries=0)


@pytest.mark.parametrize(("schemas", "kind"), [("honour", "schema"), ("ignore", "chat"), ("refuse", "chat")])
def test_an_endpoint_is_asked_once_over_threads_questions_and_copies(stub: Any, schemas: str, kind: str) -> None:
    server, chosen = stub(schemas=schemas, delay=0.02), AutoAdapter()
    lm, began = _model(server), threading.Barrier(8)

    def ask(n: int) -> None:
        if n < 8:
            began.wait(10)
        _asked(lm, copy.deepcopy(chosen), f"Question {n}?")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(24)))
    assert server.texts.count(QUESTION) == 1
    assert chosen.endpoints.found() == {server.model: kind}
    assert len(server.texts) == 25
    assert sum(found is not None for found in server.formats) == (25 if kind == "schema" else 1)


@pytest.mark.parametrize("said", ['{"lion": true}', "9" * 5_000], ids=["other", "digits"])
def test_a_reply_that_does_not_fit_means_chat(stub: Any, said: str) -> None:
    server = stub(answer=lambda body: said if "lion" in str(body) else "[[ ## answer ## ]]\nHere")
    chosen = AutoAdapter()
    assert isinstance(chosen.chosen(_model(server), dspy.Signature("question -> answer")), CorrectingAdapter)


def test_two_models_and_two_addresses_are_asked_each(stub: Any) -> None:
    chosen, servers = AutoAdapter(), [stub(schemas="honour"), stub(schemas="refuse")]
    name = servers[0].model
    for server in servers:
        _asked(language_model(name, api_base=server.url), chosen)
    kinds = [chosen.chosen(language_model(name, api_base=server.url), SUITE[0]) for server in servers]
    assert [type(kind) for kind in kinds] == [SchemaAdapter, CorrectingAdapter]
    assert [server.texts.count(QUESTION) for server in servers] == [1, 1]


def test_a_fault_of_the_server_is_raised_and_not_remembered(stub: Any) -> None:
    server, chosen = stub(lambda n, text: "500" if n == 1 else None, schemas="honour"), AutoAdapter()
    lm = _model(server)
    with pytest.raises(LMError):
        _asked(lm, chosen)
    assert chosen.endpoints.found() == {}
    _asked(lm, chosen)
    assert chosen.endpoints.found() == {server.model: "schema"}


def test_models_in_this_process_are_not_asked() -> None:
    lm = language_model("offline")
    _asked(lm, AutoAdapter())
    assert lm.meter.read().calls["task"] == 1


class Replying(dspy.utils.DummyLM):
    """Gives one reply after the other, and keeps the messages and settings of each request."""

    def __init__(self, *replies: str) -> None:
        super().__init__([])
        self.replies, self.asked, self.settings = list(replies), [], []

    def __call__(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.asked.append(messages)
        self.settings.append(kwargs)
        return [self.replies.pop(0)]


def _under_schema(lm: Replying, outputs: str, **settings: Any) -> Any:
    return SchemaAdapter({"type": "object"})(
        lm, settings, dspy.Signature(f"question -> {outputs}"), [], {"question": "?"}
    )


def test_an_unreadable_answer_is_asked_for_once_more_and_a_cut_one_with_more_room() -> None:
    lm = Replying("no number", '{"number": 3}', CutText('{"numb'), '{"number": 4}')
    assert _under_schema(lm, "number: int") == [{"number": 3}]
    slip, request = lm.asked[1][-2:]
    assert (slip["role"], slip["content"], request["role"]) == ("assistant", "no number", "user")
    assert "number: is missing" in request["content"]
    assert _under_schema(lm, "number: int", max_tokens=10) == [{"number": 4}]
    assert [one.get("max_tokens") for one in lm.settings] == [None, None, 10, 20]
    assert all(one["response_format"]["type"] == "json_schema" for one in lm.settings)


LOOPING = "The studio is on a hill, and its windows look at the sea. " * 40


@pytest.mark.parametrize(
    ("said", "room", "shown"),
    [(LOOPING, [100, 100], 2), ("No sentence comes again: " + " ".join(map(str, range(400))), [100, 200], 0)],
    ids=["circles", "long"],
)
def test_an_answer_that_goes_round_in_circles_gets_no_more_room(said: str, room: list[int], shown: int) -> None:
    lm = Replying(CutText(f'{{"answer": "{said}'), '{"answer": "Enough"}')
    assert _under_schema(lm, "answer", max_tokens=100) == [{"answer": "Enough"}]
    assert [one["max_tokens"] for one in lm.settings] == room
    added = lm.asked[1][len(lm.asked[0]) :]
    assert len(added) == shown
    assert all(len(message["content"]) < len(said) for message in added)


def test_an_answer_too_long_to_be_read_is_not_shown_again_in_full() -> None:
    lm = Replying('{"number": "' + "x" * 500_000 + '"}', '{"number": 3}')
    assert _under_schema(lm, "number: int") == [{"number": 3}]
    assert "more than 400,000" in lm.asked[1][-1]["content"]
    assert all(len(message["content"]) < 10_000 for message in lm.asked[1])


@pytest.mark.parametrize("signature", SUITE, ids=lambda signature: signature.__name__)
def test_schemas_are_closed_and_complete(signature: type[dspy.Signature]) -> None:
    schema = output_schema(signature)
    assert schema
    assert list(schema["properties"]) == list(signature.output_fields)
    for node in _objects(schema):
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])


def _objects(node: Any) -> list[dict[str, Any]]:
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    own = [node] if isinstance(node, dict) and node.get("type") == "object" and "properties" in node else []
    return [*own, *(found for part in parts for found in _objects(part))]


class Open(BaseModel):
    """A record with an open part."""

    title: str
    more: dict[str, str] = {}


@pytest.mark.parametrize("kind", [dict[str, str], list[dict[str, Any]], Any, tuple[int, str], Open])
def test_a_signature_without_a_strict_schema_falls_to_chat(stub: Any, kind: Any) -> None:
    signature = dspy.Signature({"question": (str, dspy.InputField()), "found": (kind, dspy.OutputField())})
    assert output_schema(signature) is None
    server = stub(schemas="honour")
    assert isinstance(AutoAdapter().chosen(_model(server), signature), CorrectingAdapter)
    assert server.texts == []


def test_a_resumed_run_knows_what_the_endpoint_can_though_a_copy_that_samples_asks_first(stub, tmp_path) -> None:
    server = stub(schemas="honour")
    for sampled in (False, True):
        with closing(RunStore(tmp_path / "run.sqlite")) as store:
            lm: Any = language_model(server.model, api_base=server.url, retries=0, answers=store.answers)
            chosen = AutoAdapter()
            _asked(lm.copy(temperature=1.0, rollout_id=3) if sampled else lm, chosen)
            assert chosen.endpoints.found() == {server.model: "schema"}
    assert server.texts.count(QUESTION) == 1


@pytest.fixture(scope="module")
def honouring() -> Any:
    """One server that holds to schemas, for all signatures."""
    with StubServer(schemas="honour") as server:
        yield server, AutoAdapter()


@pytest.mark.parametrize("signature", SUITE, ids=lambda signature: signature.__name__)
def test_under_a_schema_no_answer_is_malformed(honouring: Any, signature: type[dspy.Signature]) -> None:
    server, chosen = honouring
    lm, inputs = _model(server), {name: _simple(field) for name, field in signature.input_fields.items()}
    with dspy.context(lm=lm, adapter=chosen), recording() as record:
        Predictor(signature)(**inputs)
    (call,) = record.calls
    assert not call.asked_again
    assert not call.lost
    assert not call.faults.keys() & {"layout", "parse", "cut", "field"}, call.faults
    assert chosen.endpoints.found()[server.model] == "schema"


def _simple(field: Any) -> Any:
    if field.annotation in (str, list[str]):
        lines = [f"[{TEXT}] A text.", "[S1] Another."]
        return lines if field.annotation == list[str] else "\n".join(lines)
    kind: TypeAdapter[Any] = TypeAdapter(field.annotation)
    return kind.validate_python(fill(kind.json_schema()))


@pytest.mark.parametrize(
    ("lm", "named", "expected"),
    [
        ("offline", None, "chat"),
        ("openai/gpt-4.1-mini", None, "auto"),
        ("openai/gpt-4.1-mini", "json", "json"),
    ],
)
def test_named_models_run_under_auto_unless_told_otherwise(lm: str, named: str | None, expected: str) -> None:
    assert Setup("locomo", lm=lm, adapter=named).default_adapter == expected
    assert isinstance(adapter("auto"), AutoAdapter)
