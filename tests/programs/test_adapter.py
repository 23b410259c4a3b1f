"""Adapters: what "auto" tries and remembers, which answers are asked for again, what prompts show.

A signature names the inputs and outputs of a call, e.g. "question -> answer, sure: bool". An
adapter makes a prompt from it, and reads the outputs from the model's answer. The layout "chat"
asks for headers such as "[[ ## answer ## ]]", the layout "json" for a JSON object. "auto" asks for
JSON that fits a JSON schema where the server accepts schemas, and for headers elsewhere. "compact"
has prompts and answers that are as short as small models need them. A demo is an example of inputs
and outputs in a prompt.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError, LMError
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.lm import language_model
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

# The signatures are made once: Python 3.11 may fail with a SystemError where threads parse such
# texts at the same time.
ANSWER_AND_SURE = dspy.Signature("question -> answer, sure: bool")
ANSWER_ALONE = dspy.Signature("question -> answer")
NAME_OF_ANSWER_AND_SURE = outputs_name(output_schema(ANSWER_AND_SURE) or {})
"""What the adapter "auto" calls these two outputs, where it tells what it knows of a model."""


def remote_model(server: Any) -> Any:
    """Return the model of a stub server; failed calls are not repeated."""
    return language_model(server.model, api_base=server.url, retries=0)


def ask(lm: Any, chosen_adapter: dspy.Adapter, question: str = "Where?") -> dspy.Prediction:
    """Ask a model for an answer, and whether it is sure."""
    with dspy.context(lm=lm, adapter=chosen_adapter):
        return dspy.Predict(ANSWER_AND_SURE)(question=question)


def request_modes(server: Any) -> list[str]:
    """Return "schema" for each request that came with a JSON schema, and "chat" for all others."""
    return ["chat" if schema is None else "schema" for schema in server.formats]


class ReplyingLM(dspy.utils.DummyLM):
    """A model that gives one reply after the other, and keeps messages and settings of requests."""

    def __init__(self, *replies: str | None) -> None:
        super().__init__([])
        self.replies = list(replies)
        self.requests: list[list[dict[str, Any]]] = []
        self.settings: list[dict[str, Any]] = []

    def __call__(self, prompt: Any = None, messages: Any = None, **settings: Any) -> Any:
        self.requests.append(messages)
        self.settings.append(settings)
        return [self.replies.pop(0)]

    async def acall(self, prompt: Any = None, messages: Any = None, **settings: Any) -> Any:
        return self(prompt, messages, **settings)


def ask_under_schema(lm: ReplyingLM, outputs: str, **settings: Any) -> list[dict[str, Any]]:
    """Ask a model for outputs under a schema that accepts any object."""
    signature = dspy.Signature(f"question -> {outputs}")
    schema_adapter = SchemaAdapter({"type": "object"})
    return schema_adapter(lm, settings, signature, [], {"question": "?"})


def adapter_by_name(name: str, signature: Any) -> dspy.Adapter:
    """Return a new adapter; "schema" is the one that "auto" uses where schemas are accepted."""
    if name == "schema":
        return SchemaAdapter(output_schema(signature) or {})
    return adapter(name)


# What "auto" tries and remembers.
#
# The adapter "auto" sends the JSON schema of the outputs with its first request. If the server
# accepts it, all later requests have a schema, too. If the server refuses it (status 400), the
# question is asked once more without a schema, in the "chat" layout, and so are all later ones.
# The stub server is told by `schemas` what to do: "honour" gives values that fit the schema,
# "ignore" gives any answer, and "refuse" gives status 400.


@pytest.mark.parametrize("schemas", ["honour", "ignore"])
def test_a_server_that_accepts_json_schemas_gets_one_with_every_request(
    stub: Any, schemas: str
) -> None:
    """A server may accept the schema of an answer, and then keep to it ("honour") or not."""
    server = stub(schemas=schemas)
    lm = remote_model(server)
    auto = AutoAdapter()

    for question in ("Who?", "When?", "Where?"):
        assert ask(lm, auto, question).answer

    assert request_modes(server) == ["schema", "schema", "schema"]


def test_a_server_that_refuses_json_schemas_gets_one_once_from_an_adapter_and_its_copies(
    stub: Any,
) -> None:
    """The adapter "auto" tries a schema first, and asks in the layout "chat" after a refusal.

    Each copy of a program has a copy of the adapter, which must not try schemas again.
    """
    server = stub(schemas="refuse")
    lm = remote_model(server)
    auto = AutoAdapter()

    for question in ("Who?", "When?"):
        assert ask(lm, copy.deepcopy(auto), question).answer

    # "Who?" is asked twice: with a schema, and then without.
    assert request_modes(server) == ["schema", "chat", "chat"]


@pytest.mark.parametrize(
    ("schemas", "expected_modes"),
    [
        ("honour", ["schema", "schema"]),
        ("refuse", ["schema", "chat", "chat"]),
    ],
)
def test_an_adapter_learns_under_asyncio_whether_a_server_accepts_json_schemas(
    stub: Any, schemas: str, expected_modes: list[str]
) -> None:
    """The adapter "auto" tries a schema first, and asks in the layout "chat" after a refusal."""
    server = stub(schemas=schemas)
    auto = AutoAdapter()

    async def ask_in_loop(question: str) -> dspy.Prediction:
        with dspy.context(lm=remote_model(server), adapter=auto):
            return await dspy.Predict(ANSWER_AND_SURE).acall(question=question)

    assert asyncio.run(ask_in_loop("Who?")).answer
    assert asyncio.run(ask_in_loop("When?")).answer

    assert request_modes(server) == expected_modes


def refuse_schema_with_sure(request_number: int, text: str) -> str | None:
    """Refuse requests with a schema that has the output `sure`, as the script of a stub server."""
    # Only prompts with a schema ask for a JSON object.
    has_schema = "JSON object" in text
    return "400" if has_schema and "sure" in text else None


def test_a_refused_schema_does_not_stop_the_schemas_of_other_outputs(stub: Any) -> None:
    """A server may refuse the schema of one predictor and accept that of another."""
    server = stub(refuse_schema_with_sure, schemas="honour")
    auto = AutoAdapter()

    with dspy.context(lm=remote_model(server), adapter=auto):
        dspy.Predict("question -> answer, sure: bool")(question="Who?")
        dspy.Predict("question -> answer")(question="When?")
        dspy.Predict("question -> answer, sure: bool")(question="Where?")

    assert request_modes(server) == [
        "schema",  # "Who?": refused,
        "chat",  # and asked again without a schema
        "schema",  # "When?": accepted
        "chat",  # "Where?": not tried again
    ]


def test_whether_json_schemas_work_is_tried_at_each_address(stub: Any) -> None:
    """Two servers may serve a model of the same name, and only one of them accept schemas."""
    honouring = stub(schemas="honour")
    refusing = stub(schemas="refuse")
    same_name = honouring.model
    lm_at_honouring = language_model(same_name, api_base=honouring.url)
    lm_at_refusing = language_model(same_name, api_base=refusing.url)
    auto = AutoAdapter()

    ask(lm_at_honouring, auto)
    ask(lm_at_refusing, auto)

    assert request_modes(honouring) == ["schema"]
    assert request_modes(refusing) == ["schema", "chat"]


@pytest.mark.parametrize("name_of_address", ["api_base", "base_url"])
def test_whether_json_schemas_work_is_tried_at_each_address_of_a_model_of_dspy(
    stub: Any, name_of_address: str
) -> None:
    """`dspy.LM` takes the address of a server under two names."""
    honouring = stub(schemas="honour")
    refusing = stub(schemas="refuse")
    same_name = honouring.model
    auto = AutoAdapter()

    for server in (refusing, honouring):
        address = {name_of_address: server.url}
        lm = dspy.LM(same_name, api_key="key", num_retries=0, cache=False, **address)
        ask(lm, auto)

    assert request_modes(refusing) == ["schema", "chat"]
    assert request_modes(honouring) == ["schema"]


def test_an_adapter_can_be_told_that_a_model_refuses_json_schemas(stub: Any) -> None:
    """The processes of a run tell one another what they have learned about models."""
    server = stub(schemas="refuse")
    first_process = AutoAdapter()
    second_process = AutoAdapter()

    ask(remote_model(server), first_process, "Who?")
    second_process.add_output_modes(first_process.output_modes())
    ask(remote_model(server), second_process, "When?")

    assert first_process.output_modes() == {server.model: {NAME_OF_ANSWER_AND_SURE: "chat"}}
    # "Who?" is asked with a schema and without, "When?" at once without.
    assert request_modes(server) == ["schema", "chat", "chat"]


def server_that_fails_at_bad_questions(stub: Any, status: str) -> Any:
    """Return a server that accepts schemas, and answers questions with the word "bad" by a status.

    With the status 500 the server fails, with 400 it refuses the prompt.
    """

    def fault(request_number: int, text: str) -> str | None:
        return status if "bad" in text else None

    return stub(fault, schemas="honour")


@pytest.mark.parametrize("status", ["500", "400"])
def test_an_error_that_has_nothing_to_do_with_json_schemas_is_not_taken_for_their_refusal(
    stub: Any, status: str
) -> None:
    """After a refused schema, the adapter "auto" would ask all other questions without one."""
    server = server_that_fails_at_bad_questions(stub, status)
    lm = remote_model(server)
    auto = AutoAdapter()

    with pytest.raises(LMError):
        ask(lm, auto, "bad?")
    assert auto.output_modes() == {}

    ask(lm, auto, "good?")
    assert auto.output_modes() == {server.model: {NAME_OF_ANSWER_AND_SURE: "schema"}}


@pytest.mark.parametrize("status", ["500", "400"])
def test_once_json_schemas_were_accepted_an_error_is_raised_without_a_second_request(
    stub: Any, status: str
) -> None:
    """The schema cannot be the cause of the error, so to ask without it would not help."""
    server = server_that_fails_at_bad_questions(stub, status)
    lm = remote_model(server)
    auto = AutoAdapter()
    ask(lm, auto, "good?")

    with pytest.raises(LMError):
        ask(lm, auto, "bad?")

    assert request_modes(server) == ["schema", "schema"]
    assert auto.output_modes() == {server.model: {NAME_OF_ANSWER_AND_SURE: "schema"}}


def test_no_schema_is_tried_with_a_model_that_runs_in_this_process() -> None:
    """Such a model has no endpoint that could accept or refuse schemas."""
    auto = AutoAdapter()

    prediction = ask(language_model("offline"), auto)

    assert prediction.answer
    # A schema that is tried leaves an output mode, be it accepted or refused.
    assert auto.output_modes() == {}


ObjectWithOpenField = create_model(
    "ObjectWithOpenField",
    title=str,
    more=(dict[str, str], {}),
)


@pytest.mark.parametrize(
    "output_type",
    [dict[str, str], list[dict[str, Any]], Any, tuple[int, str], ObjectWithOpenField],
)
def test_a_signature_without_a_strict_schema_is_asked_in_the_chat_layout(
    stub: Any, output_type: Any
) -> None:
    """A strict schema names every property, so none describes a dict with any keys or any value.

    A strict schema has no form for tuples either. The server would accept schemas, but gets none.
    """
    signature = dspy.Signature(
        {
            "question": (str, dspy.InputField()),
            "result": (output_type, dspy.OutputField()),
        }
    )
    assert output_schema(signature) is None
    server = stub(schemas="honour")

    # The server's answers cannot be read as this type, but the test is only about the requests.
    with suppress(AdapterParseError), dspy.context(lm=remote_model(server), adapter=AutoAdapter()):
        dspy.Predict(signature)(question="Where?")

    assert set(request_modes(server)) == {"chat"}


def objects_of_schema(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema of an object with properties in a JSON schema, however deep."""
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            yield node
        for value in node.values():
            yield from objects_of_schema(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects_of_schema(value)


EVERY_SIGNATURE = suite()
"""All signatures of the package."""


@pytest.mark.parametrize("signature", EVERY_SIGNATURE, ids=lambda signature: signature.__name__)
def test_a_schema_has_all_outputs_and_allows_no_other_properties(signature: Any) -> None:
    """Endpoints take a schema as strict only if this holds at every depth."""
    schema = output_schema(signature)

    assert schema
    assert list(schema["properties"]) == list(signature.output_fields)
    for object_schema in objects_of_schema(schema):
        assert object_schema["additionalProperties"] is False
        assert object_schema["required"] == list(object_schema["properties"])


# Which answers are asked for again.
#
# The second request has the messages of the first, and after them a correction: the answer that
# cannot be read, and what was wrong with it.


def test_an_unreadable_answer_is_asked_for_again_with_what_was_wrong() -> None:
    """The second request shows the model its answer, and says that the number is missing."""
    lm = ReplyingLM("no number", '{"number": 3}')

    outputs = ask_under_schema(lm, "number: int")

    assert outputs == [{"number": 3}]
    second_request = lm.requests[1]
    unreadable_answer, correction = second_request[-2:]
    assert unreadable_answer == {"role": "assistant", "content": "no number"}
    assert correction["role"] == "user"
    assert "number: is missing" in correction["content"]


def test_a_cut_answer_is_asked_for_again_with_twice_the_tokens() -> None:
    """A `CutText` is an answer that was cut off where it had used up its `max_tokens`."""
    cut_answer = CutText('{"numb')
    lm = ReplyingLM(cut_answer, '{"number": 4}')

    outputs = ask_under_schema(lm, "number: int", max_tokens=10)

    assert outputs == [{"number": 4}]
    first_settings, second_settings = lm.settings
    assert first_settings["max_tokens"] == 10
    assert second_settings["max_tokens"] == 20
    assert second_settings["response_format"] == first_settings["response_format"]


def test_a_cut_answer_that_repeats_itself_gets_no_more_tokens_but_a_correction() -> None:
    """More tokens would not end a loop, so the model is told what was wrong instead."""
    endless_answer = CutText('{"answer": "' + "The studio is on a hill by the sea. " * 60)
    lm = ReplyingLM(endless_answer, '{"answer": "Enough"}')

    outputs = ask_under_schema(lm, "answer", max_tokens=100)

    assert outputs == [{"answer": "Enough"}]
    assert [settings["max_tokens"] for settings in lm.settings] == [100, 100]
    shown_answer, correction = lm.requests[1][-2:]
    assert len(shown_answer["content"]) < len(endless_answer), "only its beginning is shown"
    assert "it repeats itself without an end" in correction["content"]


def test_a_long_cut_answer_without_repetitions_gets_more_tokens_and_no_correction() -> None:
    """Such an answer is only too long: the same question is asked with more tokens."""
    numbers_to_400 = " ".join(str(number) for number in range(400))
    long_answer = CutText('{"answer": "' + numbers_to_400)
    lm = ReplyingLM(long_answer, '{"answer": "Enough"}')

    outputs = ask_under_schema(lm, "answer", max_tokens=100)

    assert outputs == [{"answer": "Enough"}]
    assert [settings["max_tokens"] for settings in lm.settings] == [100, 200]
    first_request, second_request = lm.requests
    assert second_request == first_request


def test_an_answer_too_long_to_be_read_is_not_shown_again_in_full() -> None:
    """The second request shows the model its unreadable answer, but shortened."""
    very_long_answer = '{"number": "' + "x" * 500_000 + '"}'
    lm = ReplyingLM(very_long_answer, '{"number": 3}')

    outputs = ask_under_schema(lm, "number: int")

    assert outputs == [{"number": 3}]
    second_request = lm.requests[1]
    # No answer of more than 400,000 characters is read.
    assert "more than 400,000" in second_request[-1]["content"]
    for message in second_request:
        assert len(message["content"]) < 10_000


LONG_THOUGHTS = {"reasoning_content": "Let me think about it. " * 1_500}
"""What a reasoning model thinks before the first word of its answer, as the protocol has it."""


def server_with_first_reply(stub: Any, **first_reply: Any) -> Any:
    """Return a stub server whose first reply has these fields; all later replies can be read."""

    def answer(body: dict[str, Any]) -> Any:
        is_first_request = len(server.requests) == 1
        return first_reply if is_first_request else offline_answer(body)

    server = stub(answer=answer)
    return server


@pytest.mark.parametrize("thoughts", [{}, LONG_THOUGHTS], ids=["no thoughts", "long thoughts"])
@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_cut_before_its_first_word_is_asked_for_with_twice_the_tokens(
    stub: Any, content: str | None, thoughts: dict[str, str]
) -> None:
    """A reasoning model may use up all its tokens for thoughts, and have none left to answer.

    The server says so with the finish reason "length".
    """
    server = server_with_first_reply(stub, content=content, finish_reason="length", **thoughts)
    lm = language_model(server.model, api_base=server.url, retries=0, max_tokens=100)

    ask(lm, adapter("chat"))

    first_body, second_body = [request.body for request in server.requests]
    assert first_body["max_completion_tokens"] == 100
    assert second_body["max_completion_tokens"] == 200
    assert first_body["messages"] == second_body["messages"]


@pytest.mark.parametrize("outputs", ["answer", "number: int"])
def test_an_answer_that_is_twice_cut_before_its_first_word_is_an_error(
    stub: Any, outputs: str
) -> None:
    """The server says with the finish reason "length" that the tokens are used up."""
    server = stub(answer=lambda body: {"finish_reason": "length", "content": None})
    signature = dspy.Signature(f"question -> {outputs}")

    with (
        dspy.context(lm=remote_model(server), adapter=adapter("chat")),
        pytest.raises(CutShortError, match="want of room"),
    ):
        dspy.Predict(signature)(question="Where?")

    assert len(server.requests) == 2


@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_without_a_word_is_shown_to_its_model_as_empty(
    stub: Any, content: str | None
) -> None:
    """A blank answer that was not cut is asked for again with a correction, as any other is.

    Some providers refuse requests with a blank message, so it is shown as "(empty)".
    """
    server = server_with_first_reply(stub, content=content)

    ask(remote_model(server), adapter("chat"))

    shown_answer, _correction = server.requests[1].body["messages"][-2:]
    assert shown_answer == {"role": "assistant", "content": "(empty)"}


@pytest.mark.parametrize("content", ["", None])
def test_the_thoughts_before_an_answer_without_a_word_are_not_shown_to_its_model(
    stub: Any, content: str | None
) -> None:
    """A reasoning model may think at length, and then answer nothing."""
    long_thoughts = "Let me think about it. " * 1_500
    server = server_with_first_reply(stub, content=content, reasoning_content=long_thoughts)

    ask(remote_model(server), adapter("chat"))

    second_request = server.requests[1].body
    assert "Let me think" not in str(second_request["messages"])


LONG_ANSWER = "I do not know. " * 1000
THOUGHTS_IN_TAGS = "<think>" + "Let me see. " * 1000 + "</think>"


@pytest.mark.parametrize("name", ["chat", "json", "compact"])
@pytest.mark.parametrize(
    ("completion", "quotation"),
    [
        pytest.param(LONG_ANSWER, "I do not k ...", id="long answer"),
        pytest.param(
            f"{THOUGHTS_IN_TAGS} I do not know",
            f"({len(THOUGHTS_IN_TAGS):,} characters of thoughts) I do not know",
            id="long thoughts",
        ),
    ],
)
def test_the_error_for_an_unreadable_answer_is_short_and_holds_the_whole_answer(
    name: str, completion: str, quotation: str
) -> None:
    """The message of the error quotes little, and `lm_response` has the whole, long answer."""
    with pytest.raises(AdapterParseError) as caught:
        adapter(name).parse(ManageMemory, completion)

    message = str(caught.value)
    assert quotation in message
    assert len(message) < 1600
    assert caught.value.lm_response == completion


# What prompts and demos show.


def prompt_with_question(name: str, question: str) -> str:
    """Return the last message of a question under an adapter, "chat" or "json"."""
    replies = {
        "chat": "[[ ## answer ## ]]\nno",
        "json": '{"answer": "[[ ## answer ## ]] no"}',
    }
    lm = ReplyingLM(replies[name])
    call = ADAPTERS[name]().acall(lm, {}, ANSWER_ALONE, [], {"question": question})
    outputs = asyncio.run(call)
    assert outputs[0]["answer"]
    return lm.requests[0][-1]["content"]


@pytest.mark.parametrize("name", ["chat", "json"])
def test_markers_are_escaped_once_in_a_long_text_as_in_a_short_one(name: str) -> None:
    """A marker like "[[ ## answer ## ]]" begins a field, so a user's text must not have one.

    It is escaped with a tilde, and a marker that is escaped already with a second one.
    """
    question = "Is it [[ ## answer ## ]], or [[ #~# answer ## ]]? "

    short_prompt = prompt_with_question(name, question)
    long_prompt = prompt_with_question(name, question * 1000)

    escaped = "Is it [[ #~# answer ## ]], or [[ #~~# answer ## ]]?"
    assert short_prompt.count(escaped) == 1
    assert long_prompt.count(escaped) == 1000


ANSWERING_SIGNATURES: dict[str, Any] = {
    task: signature_of(build("turn-rag", task).task.answer)
    for task in TASKS
    if task != "memory-lookup"
}
ANSWERING_SIGNATURES["memory-r2"] = signature_of(build("memory-r2").task.answer)
ANSWERING_SIGNATURES["pramem"] = PredictWithExperience
"""The signatures that answer questions: one of each task, and those of two methods."""


def field_values(signature: Any, number: int) -> dict[str, Any]:
    """Return values of all fields of a signature: "question 8" for its question, and so on."""
    values: dict[str, Any] = {}
    for name, field in signature.fields.items():
        text = f"{name} {number}"
        values[name] = [text] if field.annotation == list[str] else text
    # Not any text is an action, or an answer that consists of ids of solutions.
    if "action" in values:
        values["action"] = "solution proposal"
    if "analysis" in values:
        values["answer"] = ["S1", "S2"]
    return values


def input_values(signature: Any, number: int) -> dict[str, Any]:
    """Return the `field_values` of the inputs alone."""
    values = field_values(signature, number)
    return {name: values[name] for name in signature.input_fields}


@pytest.mark.parametrize("task", ANSWERING_SIGNATURES)
@pytest.mark.parametrize("name", [*ADAPTERS, "schema"])
def test_two_questions_differ_in_the_last_message_alone(name: str, task: str) -> None:
    """Whatever comes before the last message can be cached by the provider of the model.

    The two prompts have the same two demos, and inputs that differ in every field.
    """
    signature = ANSWERING_SIGNATURES[task]
    chosen_adapter = adapter_by_name(name, signature)
    demos = [field_values(signature, number=8), field_values(signature, number=9)]

    first_prompt = chosen_adapter.format(signature, demos, input_values(signature, number=1))
    second_prompt = chosen_adapter.format(signature, demos, input_values(signature, number=2))

    system = ["system"]
    two_demos = ["user", "assistant", "user", "assistant"]
    question = ["user"]
    assert [message["role"] for message in first_prompt] == system + two_demos + question
    assert first_prompt[:-1] == second_prompt[:-1]
    assert first_prompt[-1] != second_prompt[-1]


LIST_AND_TEXTS: Any = dspy.Signature("question -> patterns: list[str], reason: str, answer: str")
SENTENCE_OF_DSPY_FOR_A_MISSING_FIELD = "Not supplied for this particular example."


@pytest.mark.parametrize("name", ["chat", "json", "schema"])
def test_a_list_that_a_demo_lacks_is_shown_as_empty_and_a_text_as_missing(name: str) -> None:
    """A demo may lack outputs, e.g. if it is a training example that has an answer alone.

    The outputs are a list of patterns, a reason and an answer. Small models would copy DSPy's
    sentence for a missing field into a list.
    """
    chosen_adapter = adapter_by_name(name, ANSWER_AND_SURE)
    demo_with_answer_alone = dspy.Example(question="Who?", answer="Ann")

    messages = chosen_adapter.format(
        LIST_AND_TEXTS, [demo_with_answer_alone], {"question": "Where?"}
    )

    [shown_demo] = [
        str(message["content"]) for message in messages if message["role"] == "assistant"
    ]
    # The patterns are missing, and so is the reason.
    assert "[]" in shown_demo
    assert shown_demo.count(SENTENCE_OF_DSPY_FOR_A_MISSING_FIELD) == 1
    # A model that answers as the demo does can be read.
    outputs = chosen_adapter.parse(LIST_AND_TEXTS, shown_demo)
    assert outputs["patterns"] == []
    assert outputs["answer"] == "Ann"


@pytest.mark.parametrize("name", ["auto", "chat", "json"])
def test_the_system_message_is_rendered_again_only_when_the_instructions_change(name: str) -> None:
    """The system message holds the instructions of a signature. To render it takes time."""
    rendered_instructions: list[str] = []

    class CountingAdapter(ADAPTERS[name]):
        def format_task_description(self, signature: Any) -> str:
            rendered_instructions.append(signature.instructions)
            return super().format_task_description(signature)

    counting_adapter = CountingAdapter()
    signature = LIST_AND_TEXTS.with_instructions("First.")
    for instructions in ("First.", "First.", "Second."):
        # DSPy's InferRules changes the instructions in place, too.
        signature.instructions = instructions
        counting_adapter.format(signature, [], {"question": "Where?"})

    assert rendered_instructions == ["First.", "Second."]


# The compact adapter.


def last_compact_message(signature: type[dspy.Signature], **inputs: Any) -> str:
    """Return the message that shows the inputs in a prompt of the compact adapter."""
    return CompactAdapter().format(signature, [], inputs)[-1]["content"]


def test_compact_prompts_have_one_line_for_each_input() -> None:
    """The compact adapter makes prompts as short as small models need them."""
    context = "[D1:1] Ada: hi\n[D1:2] Ben: hello"

    message = last_compact_message(AnswerFromContext, context=context, question="Who?")

    assert message == "context: [D1:1] Ada: hi | [D1:2] Ben: hello\nquestion: Who?"


def test_compact_prompts_show_related_memories_beside_their_facts() -> None:
    """The memory m1 is related to the new fact of Ada, so it stands in brackets behind it.

    A memory is shown as its id, speaker and content: "m2", "Ben" and "Ben city Oslo".
    """
    memories = [
        StoredMemory(memory_id="m1", speaker="Ada", content="Ada pet dog"),
        StoredMemory(memory_id="m2", speaker="Ben", content="Ben city Oslo"),
    ]
    fact_of_ada = NewFact(
        speaker="Ada", turn_id="D3:1", fact="Ada pet cat", related_memory_ids=["m1"]
    )
    fact_of_ben = NewFact(speaker="Ben", turn_id="D3:2", fact="Ben dish pie", related_memory_ids=[])

    message = last_compact_message(
        ManageMemory,
        session_date="unknown",
        memories=memories,
        new_facts=[fact_of_ada, fact_of_ben],
    )

    assert message.splitlines() == [
        "session_date: unknown",
        "memories: m2 Ben Ben city Oslo",
        "new_facts: Ada D3:1 Ada pet cat (m1 Ada Ada pet dog) | Ben D3:2 Ben dish pie",
    ]


def test_compact_answers_leave_out_default_values() -> None:
    """An operation also has a speaker and a content, which a deletion leaves empty."""
    operations = [Operation(op="DELETE", memory_id="m1", turn_id="D1:1")]

    message = CompactAdapter().format_assistant_message_content(
        ManageMemory, {"operations": operations}
    )

    assert message == '[{"op": "DELETE", "memory_id": "m1", "turn_id": "D1:1"}]'


def parse_shown_outputs(signature: type[dspy.Signature], **outputs: Any) -> dict[str, Any]:
    """Show outputs as an answer of the compact adapter, and return what it reads from them.

    The answer is made as for training data, which shows a model what it should have answered.
    """
    compact = CompactAdapter()
    messages = compact.format_finetune_data(signature, [], {}, outputs)["messages"]
    return compact.parse(signature, messages[-1]["content"])


ANY_TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
TEXTS_LIKE_LAYOUTS = st.sampled_from(
    [
        "answer: yes",
        '"quoted"',
        "a\nanswer: b",
        "```json\n1\n```",
        "",
        "[1",
        "reasoning: x",
    ]
)


@given(ANY_TEXT | TEXTS_LIKE_LAYOUTS)
def test_the_compact_adapter_reads_a_text_as_it_was_written(text: str) -> None:
    """A text of a user may look like the layout of an answer, e.g. like the name of a field."""
    # A signature with one output, and one with two.
    assert parse_shown_outputs(AnswerFromContext, answer=text) == {"answer": text}
    both_outputs = {"reasoning": text, "answer": text}
    assert parse_shown_outputs(RespondPersonally, **both_outputs) == both_outputs


@pytest.mark.parametrize(
    "completion",
    [
        pytest.param("```json" + "\n" * 3_000 + "```x", id="blank lines in a fence"),
        pytest.param("[" * 20_000, id="open brackets"),
        pytest.param("9" * 5_000, id="a very large number"),
        pytest.param("[" + "1," * 1_000_000 + "1]", id="a very long list"),
        pytest.param('[{"op": "INSERT", "content": "Ada pet', id="cut"),
        pytest.param('[{"op": "PAINT"}]', id="unknown operation"),
        pytest.param("INSERT", id="no JSON"),
        pytest.param('[{"op": "NONE"}] and so on', id="prose behind JSON"),
    ],
)
def test_the_compact_adapter_refuses_a_malformed_or_hostile_answer_at_once(completion: str) -> None:
    """A hostile answer is built to make a reader work for minutes, e.g. by 20,000 open brackets.

    The compact adapter repairs nothing, and does not ask again.
    """
    start = time.process_time()
    with pytest.raises(AdapterParseError) as caught:
        CompactAdapter().parse(ManageMemory, completion)

    seconds_of_cpu = time.process_time() - start

    assert caught.value.lm_response == completion
    assert seconds_of_cpu < 2


@pytest.mark.parametrize("completion", ["", "\n "])
def test_the_compact_adapter_does_not_read_a_blank_answer_as_an_empty_text(completion: str) -> None:
    """The compact adapter asks for the bare answer, without a header before it."""
    with pytest.raises(AdapterParseError, match="the answer is empty") as caught:
        CompactAdapter().parse(AnswerFromContext, completion)

    assert caught.value.lm_response == completion


@pytest.mark.parametrize(
    "completion",
    [
        '```json\n[{"op": "none"}]\n```',
        'operations: [{"op": "NOOP"}]',
        '  [{"op": "NONE"}]\n',
    ],
)
def test_the_compact_adapter_ignores_fences_names_and_spaces_around_an_answer(
    completion: str,
) -> None:
    """It asks for a bare list of operations, but some models write more around it."""
    outputs = CompactAdapter().parse(ManageMemory, completion)

    assert outputs["operations"] == [Operation(op="NONE")]
