"""Adapters: what "auto" tries and remembers, what is asked for again, what prompts and demos show; the compact one."""

import asyncio
import copy
import time
from contextlib import suppress
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError, LMError
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.programs._json_adapter import SchemaAdapter
from mempiler.programs._output_schema import output_schema, outputs_name
from mempiler.programs.adapter import ADAPTERS, adapter
from mempiler.programs.auto_adapter import AutoAdapter
from mempiler.programs.catalog import build
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.state import signature_of
from mempiler.programs.tasks.catalog import TASKS
from mempiler.reading.cut_texts import CutText
from mempiler.reading.failures import CutShortError
from mempiler.signatures.answering import AnswerFromContext, RespondPersonally
from mempiler.signatures.memory_r2 import ManageMemory, NewFact, Operation, StoredMemory
from mempiler.signatures.pramem import PredictWithExperience
from pydantic import create_model

from tests.conftest import suite
from tests.stub_server import offline_answer

ASKED = dspy.Signature("question -> answer, sure: bool")
"""Made once: Python 3.11 may fail with a SystemError where threads parse such texts at the same time."""


PLAIN = dspy.Signature("question -> answer")
OUTPUTS = outputs_name(output_schema(ASKED) or {})
"""What the outputs of `ASKED` are called."""


def _asked(lm: Any, chosen: dspy.Adapter, question: str = "Where?") -> dspy.Prediction:
    with dspy.context(lm=lm, adapter=chosen):
        return dspy.Predict(ASKED)(question=question)


def _model(server: Any, meter: Meter | None = None) -> Any:
    return language_model(server.model, meter=meter, api_base=server.url, retries=0)


@pytest.mark.parametrize(("schemas", "kind"), [("honour", "schema"), ("ignore", "schema"), ("refuse", "chat")])
def test_a_schema_is_tried_once_over_questions_and_copies(stub: Any, schemas: str, kind: str) -> None:
    server, chosen = stub(schemas=schemas), AutoAdapter()
    lm = _model(server)
    for n in range(6):
        assert _asked(lm, copy.deepcopy(chosen), f"Question {n}?").answer
    assert chosen.output_modes() == {server.model: {OUTPUTS: kind}}
    assert sum(found is not None for found in server.formats) == (1 if kind == "chat" else 6)
    assert len(server.texts) == (7 if kind == "chat" else 6)


@pytest.mark.parametrize(("schemas", "kind"), [("honour", "schema"), ("refuse", "chat")])
def test_a_schema_is_tried_once_under_asyncio(stub: Any, schemas: str, kind: str) -> None:
    server, chosen = stub(schemas=schemas), AutoAdapter()

    async def ask(question: str) -> Any:
        with dspy.context(lm=_model(server), adapter=chosen):
            return await dspy.Predict(ASKED).acall(question=question)

    assert all(asyncio.run(ask(f"Question {n}?")).answer for n in range(2))
    assert chosen.output_modes() == {server.model: {OUTPUTS: kind}}
    requests_with_schema = [found is not None for found in server.formats]
    assert requests_with_schema == ([True, True] if kind == "schema" else [True, False, False])


def test_an_unreadable_answer_is_asked_for_again_under_asyncio() -> None:
    lm = Replying("no number", '{"number": 3}')
    signature = dspy.Signature("question -> number: int")
    answer = asyncio.run(SchemaAdapter({"type": "object"}).acall(lm, {}, signature, [], {"question": "?"}))
    assert answer == [{"number": 3}]
    assert len(lm.asked) == 2


def test_outputs_whose_schema_is_refused_fall_back_alone(stub: Any) -> None:
    refused = lambda n, text: "400" if "JSON object" in text and "sure" in text else None  # noqa: E731
    server, chosen = stub(refused, schemas="honour"), AutoAdapter()
    lm = _model(server)
    for n, signature in enumerate((ASKED, PLAIN, ASKED, PLAIN)):
        with dspy.context(lm=lm, adapter=chosen):
            assert dspy.Predict(signature)(question=f"Question {n}?").answer
    assert list(chosen.output_modes()[server.model].values()) == ["schema", "chat"]
    assert [found is not None for found in server.formats] == [True, False, True, False, True]


def test_whether_schemas_work_is_tried_at_each_address(stub: Any) -> None:
    chosen, servers = AutoAdapter(), [stub(schemas="honour"), stub(schemas="refuse")]
    name = servers[0].model
    for n, server in enumerate(servers * 2):
        _asked(language_model(name, api_base=server.url), chosen, f"Question {n}?")
    tried = [[found is not None for found in server.formats] for server in servers]
    assert tried == [[True, True], [True, False, False]]


def test_an_output_mode_from_elsewhere_holds_at_any_address(stub: Any) -> None:
    chosen = AutoAdapter()
    server = stub(schemas="refuse")
    chosen.add_output_modes({server.model: {OUTPUTS: "chat"}})
    _asked(language_model(server.model, api_base=server.url), chosen, "And then?")
    assert server.formats == [None]


@pytest.mark.parametrize("fault", ["500", "400"], ids=["server", "prompt"])
def test_a_fault_that_is_none_of_the_schemas_is_raised_and_not_remembered(stub: Any, fault: str) -> None:
    server, chosen = stub(lambda n, text: fault if "bad" in text else None, schemas="honour"), AutoAdapter()
    lm = _model(server)
    with pytest.raises(LMError):
        _asked(lm, chosen, "bad?")
    assert chosen.output_modes() == {}
    _asked(lm, chosen)
    asked = len(server.texts)
    with pytest.raises(LMError):
        _asked(lm, chosen, "bad again?")
    # Of outputs whose schema was taken before, a prompt is not asked twice.
    assert len(server.texts) == asked + 1
    assert chosen.output_modes() == {server.model: {OUTPUTS: "schema"}}


class Replying(dspy.utils.DummyLM):
    """Gives one reply after the other, and keeps the messages and settings of each request."""

    def __init__(self, *replies: str | None) -> None:
        super().__init__([])
        self.replies, self.asked, self.settings = list(replies), [], []

    def __call__(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.asked.append(messages)
        self.settings.append(kwargs)
        return [self.replies.pop(0)]

    async def acall(self, *asked: Any, **named: Any) -> Any:
        return self(*asked, **named)


def _under_schema(lm: Replying, outputs: str, **settings: Any) -> Any:
    return SchemaAdapter({"type": "object"})(
        lm, settings, dspy.Signature(f"question -> {outputs}"), [], {"question": "?"}
    )


@pytest.mark.parametrize("name", ["chat", "json"])
def test_a_long_text_is_escaped_once_and_shown_as_a_short_one_is(name: str) -> None:
    marked = "Is it [[ ## answer ## ]], or [[ #~# answer ## ]]? "
    prompts: list[str] = []
    for question in (marked, marked * 1000):
        lm = Replying('{"answer": "[[ ## answer ## ]] no"}' if name == "json" else "[[ ## answer ## ]]\nno")
        run = ADAPTERS[name]().acall(lm, {}, PLAIN, [], {"question": question})
        assert asyncio.run(run)[0]["answer"]
        prompts.append(lm.asked[0][-1]["content"])
    short, long = prompts
    shown = "Is it [[ #~# answer ## ]], or [[ #~~# answer ## ]]?"
    assert short.count(shown) == 1
    assert long.count(shown) == 1000
    assert short.partition("Is it")[0] == long.partition("Is it")[0]


def test_an_unreadable_answer_is_asked_for_once_more_and_a_cut_one_with_more_room() -> None:
    lm = Replying("no number", '{"number": 3}', CutText('{"numb'), '{"number": 4}')
    assert _under_schema(lm, "number: int") == [{"number": 3}]
    slip, request = lm.asked[1][-2:]
    assert slip["role"] == "assistant"
    assert slip["content"] == "no number"
    assert request["role"] == "user"
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


THOUGHTS = "Let me think about it. " * 1_500
"""What a reasoning model thinks before the first word of its answer."""


@pytest.mark.parametrize("thoughts", [{}, {"reasoning_content": THOUGHTS}], ids=["none", "long"])
@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_cut_before_its_first_word_is_asked_for_with_twice_the_tokens(
    stub: Any, content: str | None, thoughts: dict[str, str]
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if len(server.requests) == 1:
            return {"finish_reason": "length", "content": content, **thoughts}
        return offline_answer(body)

    server = stub(answer=answer)
    lm = language_model(server.model, api_base=server.url, retries=0, max_tokens=100)

    _asked(lm, adapter("chat"))

    first_body, second_body = [body for _, _, body in server.requests]
    assert first_body["max_completion_tokens"] == 100
    assert second_body["max_completion_tokens"] == 200
    assert first_body["messages"] == second_body["messages"]


@pytest.mark.parametrize("outputs", ["answer", "number: int"])
def test_an_answer_that_stays_without_a_word_was_cut_short(stub: Any, outputs: str) -> None:
    server = stub(answer=lambda body: {"finish_reason": "length", "content": None})
    signature = dspy.Signature(f"question -> {outputs}")

    with (
        dspy.context(lm=_model(server), adapter=adapter("chat")),
        pytest.raises(CutShortError, match="want of room"),
    ):
        dspy.Predict(signature)(question="Where?")
    assert len(server.requests) == 2


@pytest.mark.parametrize("thoughts", [{}, {"reasoning_content": THOUGHTS}], ids=["none", "long"])
@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_without_a_word_is_shown_as_empty(
    stub: Any, content: str | None, thoughts: dict[str, str]
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if len(server.requests) == 1:
            return {"content": content, **thoughts}
        return offline_answer(body)

    server = stub(answer=answer)

    _asked(_model(server), adapter("chat"))

    messages = server.requests[1][2]["messages"]
    assert messages[-2] == {"role": "assistant", "content": "(empty)"}
    assert len(str(messages)) < 10_000


def test_an_answer_that_is_none_is_shown_as_empty() -> None:
    lm = Replying(None, '{"number": 3}')
    assert _under_schema(lm, "number: int") == [{"number": 3}]
    assert lm.asked[1][-2] == {"role": "assistant", "content": "(empty)"}


def test_schemas_are_closed_and_complete() -> None:
    for signature in suite():
        schema = output_schema(signature)
        assert schema
        assert list(schema["properties"]) == list(signature.output_fields)
        assert all(node["additionalProperties"] is False for node in _objects(schema))
        assert all(node["required"] == list(node["properties"]) for node in _objects(schema))


def test_models_of_this_process_are_asked_in_the_chat_layout() -> None:
    _asked(language_model("offline"), chosen := adapter("auto"))
    assert chosen.output_modes() == {}


def _objects(node: Any) -> list[dict[str, Any]]:
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    own = [node] if isinstance(node, dict) and node.get("type") == "object" and "properties" in node else []
    return [*own, *(found for part in parts for found in _objects(part))]


OPEN = create_model("Open", title=str, more=(dict[str, str], {}))


@pytest.mark.parametrize("kind", [dict[str, str], list[dict[str, Any]], Any, tuple[int, str], OPEN])
def test_a_signature_without_a_strict_schema_falls_to_chat(stub: Any, kind: Any) -> None:
    signature = dspy.Signature({"question": (str, dspy.InputField()), "found": (kind, dspy.OutputField())})
    assert output_schema(signature) is None
    server = stub(schemas="honour")
    with suppress(AdapterParseError), dspy.context(lm=_model(server), adapter=AutoAdapter()):
        dspy.Predict(signature)(question="Where?")
    assert set(server.formats) == {None}


SIGNATURES = {name: signature_of(build("turn-rag", name).task.answer) for name in TASKS if name != "memory-lookup"} | {
    "memory-r2": signature_of(build("memory-r2").task.answer),
    "pramem": PredictWithExperience,
}
LATE = {"context", "patterns", "first_speaker_memories"}


def values(signature: Any, n: int) -> dict[str, Any]:
    """Values of all fields that differ by `n`; an action has to be one that exists."""
    kinds = {name: field.annotation for name, field in signature.fields.items()}
    texts = {name: [f"{name} {n}"] if kinds[name] == list[str] else f"{name} {n}" for name in kinds}
    return {**texts, **({"action": "solution proposal"} if "action" in kinds else {})}


def _adapter(name: str, signature: Any) -> dspy.Adapter:
    return SchemaAdapter(output_schema(signature) or {}) if name == "schema" else adapter(name)


@pytest.mark.parametrize("task", SIGNATURES)
@pytest.mark.parametrize("name", [*ADAPTERS, "schema"])
def test_two_questions_differ_in_the_last_message_alone(name, task):
    signature: Any = SIGNATURES[task]
    chosen = _adapter(name, signature)
    if "analysis" in signature.fields:
        demos = [{**values(signature, n), "answer": ["S1", "S2"]} for n in (8, 9)]
    else:
        demos = [values(signature, n) for n in (8, 9)]
    one, two = (
        chosen.format(signature, demos, {key: values(signature, n)[key] for key in signature.input_fields})
        for n in (1, 2)
    )
    assert [message["role"] for message in one] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert one[:-1] == two[:-1]
    last = str(one[-1]["content"])
    recalled = min(last.index(f"{field} 1") for field in LATE & set(signature.input_fields))
    assert recalled < last.index("question 1")
    assert signature.instructions.split()[0] in str(one[0]["content"])


LISTED: Any = dspy.Signature("question -> patterns: list[str], reason: str, answer: str")
LACKS = "Not supplied for this particular example."
"""DSPy's sentence."""


@pytest.mark.parametrize("name", ["chat", "json", "schema"])
def test_lists_that_a_demo_lacks_are_empty_and_texts_are_said_to_be_missing(name: str) -> None:
    chosen = _adapter(name, ASKED)
    messages = chosen.format(LISTED, [dspy.Example(question="Who?", answer="Ann")], {"question": "Where?"})
    [shown] = [str(message["content"]) for message in messages if message["role"] == "assistant"]
    assert "[]" in shown
    assert shown.count(LACKS) == 1
    # A model that answers as the demo does is read.
    read = chosen.parse(LISTED, shown)
    assert read["patterns"] == []
    assert read["answer"] == "Ann"


@pytest.mark.parametrize("name", ["auto", "chat", "json"])
def test_the_beginning_of_a_prompt_is_rendered_anew_only_when_its_instruction_changes(name, monkeypatch) -> None:
    rendered: list[str] = []
    plain = dspy.ChatAdapter.format_task_description

    def counted(self: Any, signature: Any) -> str:
        rendered.append(signature.instructions)
        return plain(self, signature)

    monkeypatch.setattr(dspy.ChatAdapter, "format_task_description", counted)
    chosen, own = adapter(name), LISTED.with_instructions("First.")
    for words in ("First.", "First.", "Second."):
        own.instructions = words  # in place, as InferRules does
        chosen.format(own, [], {"question": "Where?"})
    assert rendered == ["First.", "Second."]


MEMORIES = [
    StoredMemory(memory_id="m1", speaker="Ada", content="Ada pet dog"),
    StoredMemory(memory_id="m2", speaker="Ben", content="Ben city Oslo"),
]
FACTS = [
    NewFact(speaker="Ada", turn_id="D3:1", fact="Ada pet cat", related_memory_ids=["m1"]),
    NewFact(speaker="Ben", turn_id="D3:2", fact="Ben dish pie", related_memory_ids=[]),
]
text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)


def user(signature: type[dspy.Signature], **inputs: Any) -> str:
    return CompactAdapter().format(signature, [], inputs)[-1]["content"]


def back(signature: type[dspy.Signature], **outputs: Any) -> dict[str, Any]:
    shown = CompactAdapter().format_finetune_data(signature, [], {}, outputs)["messages"][-1]["content"]
    return CompactAdapter().parse(signature, shown)


def test_each_input_is_one_line_related_memories_are_written_out_and_an_answer_leaves_out_defaults() -> None:
    shown = user(AnswerFromContext, context="[D1:1] Ada: hi\n[D1:2] Ben: hello", question="Who?")
    assert shown == "context: [D1:1] Ada: hi | [D1:2] Ben: hello\nquestion: Who?"
    shown = user(ManageMemory, session_date="unknown", memories=MEMORIES, new_facts=FACTS)
    assert shown.splitlines() == [
        "session_date: unknown",
        "memories: m2 Ben Ben city Oslo",
        "new_facts: Ada D3:1 Ada pet cat (m1 Ada Ada pet dog) | Ben D3:2 Ben dish pie",
    ]
    ops = [Operation(op="DELETE", memory_id="m1", turn_id="D1:1")]
    shown = CompactAdapter().format_assistant_message_content(ManageMemory, {"operations": ops})
    assert shown == '[{"op": "DELETE", "memory_id": "m1", "turn_id": "D1:1"}]'


@given(text | st.sampled_from(["answer: yes", '"quoted"', "a\nanswer: b", "```json\n1\n```", "", "[1", "reasoning: x"]))
def test_a_text_is_read_as_it_was_written(value: str) -> None:
    assert back(AnswerFromContext, answer=value) == {"answer": value}
    assert back(RespondPersonally, reasoning=value, answer=value) == {"reasoning": value, "answer": value}


HOSTILE = ["```json" + "\n" * 3_000 + "```x", "[" * 20_000, "9" * 5_000, "[" + "1," * 1_000_000 + "1]"]
MALFORMED = ['[{"op": "INSERT", "content": "Ada pet', '[{"op": "PAINT"}]', "INSERT", '[{"op": "NONE"}] and so on']


@pytest.mark.parametrize("completion", [*HOSTILE, *MALFORMED], ids=lambda text: text[:8])
def test_a_malformed_or_hostile_answer_is_refused_at_once_with_its_text(completion: str) -> None:
    started = time.process_time()
    with pytest.raises(AdapterParseError) as caught:
        CompactAdapter().parse(ManageMemory, completion)
    assert caught.value.lm_response == completion
    assert time.process_time() - started < 2


@pytest.mark.parametrize("completion", ["", "\n "])
def test_a_blank_answer_is_no_empty_text(completion: str) -> None:
    with pytest.raises(AdapterParseError, match="the answer is empty") as caught:
        CompactAdapter().parse(AnswerFromContext, completion)
    assert caught.value.lm_response == completion


@pytest.mark.parametrize(
    "completion", ['```json\n[{"op": "none"}]\n```', 'operations: [{"op": "NOOP"}]', '  [{"op": "NONE"}]\n']
)
def test_fences_names_and_spaces_around_an_answer_are_no_error(completion: str) -> None:
    assert CompactAdapter().parse(ManageMemory, completion)["operations"] == [Operation(op="NONE")]


THOUGHTS = "<think>" + "Let me see. " * 1000 + "</think>"


@pytest.mark.parametrize("name", ["chat", "json", "compact"])
@pytest.mark.parametrize(
    ("completion", "quoted"),
    [
        (f"{THOUGHTS} I do not know", "LM Response: (12,015 characters of thoughts) I do not know"),
        ("I do not know. " * 1000, "I do not k ..."),
    ],
    ids=["thoughts", "long"],
)
def test_the_error_for_an_unreadable_answer_is_short_and_keeps_the_answer(
    name: str, completion: str, quoted: str
) -> None:
    with pytest.raises(AdapterParseError) as caught:
        adapter(name).parse(ManageMemory, completion)
    assert quoted in str(caught.value)
    assert len(str(caught.value)) < 1600
    assert caught.value.lm_response == completion
