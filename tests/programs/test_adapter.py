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
OUTPUTS = outputs_name(output_schema(ANSWER_AND_SURE) or {})
"""The name of the outputs of `ANSWER_AND_SURE` in output modes.

An output mode is "schema" or "chat": what "auto" has learned about a model and its outputs.
"""


def remote_model(server: Any) -> Any:
    """Return the model of a stub server; failed calls are not repeated."""
    return language_model(server.model, api_base=server.url, retries=0)


def ask(lm: Any, chosen_adapter: dspy.Adapter, question: str = "Where?") -> dspy.Prediction:
    with dspy.context(lm=lm, adapter=chosen_adapter):
        return dspy.Predict(ANSWER_AND_SURE)(question=question)


def requests_with_schema(server: Any) -> list[bool]:
    """Return for every request to a server whether it asked for a schema."""
    return [response_format is not None for response_format in server.formats]


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
# accepts it, the output mode is "schema" from then on. If the server refuses it (status 400), the
# question is asked once more without a schema, in the "chat" layout, and so are all later ones.
# The stub server is told by `schemas` what to do: "honour" gives values that fit the schema,
# "ignore" gives any answer, and "refuse" gives status 400.


@pytest.mark.parametrize("schemas", ["honour", "ignore"])
def test_a_schema_that_is_accepted_is_sent_with_every_request(stub: Any, schemas: str) -> None:
    """The adapter "auto" asks for JSON that fits a schema, as long as a server accepts schemas.

    The stub server accepts them: it may "honour" a schema, or "ignore" it and give any answer.
    """
    server = stub(schemas=schemas)
    lm = remote_model(server)
    auto = AutoAdapter()

    for number in range(6):
        # Copies share what they learn with the original, as copies of a program do.
        assert ask(lm, copy.deepcopy(auto), f"Question {number}?").answer

    assert auto.output_modes() == {server.model: {OUTPUTS: "schema"}}
    assert requests_with_schema(server) == [True] * 6


def test_a_schema_that_is_refused_is_tried_once_by_an_adapter_and_its_copies(stub: Any) -> None:
    """The adapter "auto" asks for JSON that fits a schema, until a server refuses that.

    From then on it asks in the layout "chat". Copies share what they learn with the original.
    """
    server = stub(schemas="refuse")
    lm = remote_model(server)
    auto = AutoAdapter()

    for number in range(6):
        assert ask(lm, copy.deepcopy(auto), f"Question {number}?").answer

    assert auto.output_modes() == {server.model: {OUTPUTS: "chat"}}
    # The first question is asked twice: with the schema, and then without.
    first_question = [True, False]
    five_later_questions = [False] * 5
    assert requests_with_schema(server) == first_question + five_later_questions


@pytest.mark.parametrize(
    ("schemas", "output_mode", "expected_requests"),
    [
        ("honour", "schema", [True, True]),
        ("refuse", "chat", [True, False, False]),
    ],
)
def test_an_adapter_learns_under_asyncio_whether_a_server_accepts_schemas(
    stub: Any, schemas: str, output_mode: str, expected_requests: list[bool]
) -> None:
    """The adapter "auto" asks with a JSON schema first, and without if the server refuses it."""
    server = stub(schemas=schemas)
    auto = AutoAdapter()

    async def ask_in_loop(question: str) -> dspy.Prediction:
        with dspy.context(lm=remote_model(server), adapter=auto):
            return await dspy.Predict(ANSWER_AND_SURE).acall(question=question)

    for number in range(2):
        assert asyncio.run(ask_in_loop(f"Question {number}?")).answer

    assert auto.output_modes() == {server.model: {OUTPUTS: output_mode}}
    assert requests_with_schema(server) == expected_requests


def test_a_refused_schema_does_not_stop_the_schemas_of_other_outputs(stub: Any) -> None:
    """A server may refuse the schema of one predictor and accept that of another."""

    def refuse_schema_with_sure(request_number: int, text: str) -> str | None:
        # Only prompts with a schema ask for a JSON object.
        has_schema = "JSON object" in text
        has_output_sure = "sure" in text
        return "400" if has_schema and has_output_sure else None

    server = stub(refuse_schema_with_sure, schemas="honour")
    lm = remote_model(server)
    auto = AutoAdapter()

    signatures = [ANSWER_AND_SURE, ANSWER_ALONE, ANSWER_AND_SURE, ANSWER_ALONE]
    for number, signature in enumerate(signatures):
        with dspy.context(lm=lm, adapter=auto):
            assert dspy.Predict(signature)(question=f"Question {number}?").answer

    modes_of_model = auto.output_modes()[server.model]
    assert sorted(modes_of_model.values()) == ["chat", "schema"]
    assert modes_of_model[OUTPUTS] == "chat"
    assert requests_with_schema(server) == [
        True,  # answer and sure: refused,
        False,  # and asked again without a schema
        True,  # answer alone: accepted
        False,  # answer and sure: not tried again
        True,  # answer alone
    ]


def test_whether_schemas_work_is_tried_at_each_address(stub: Any) -> None:
    """Two servers may serve a model of the same name, and only one of them accept schemas."""
    auto = AutoAdapter()
    honouring = stub(schemas="honour")
    refusing = stub(schemas="refuse")
    model = honouring.model

    for number, server in enumerate([honouring, refusing, honouring, refusing]):
        lm = language_model(model, api_base=server.url)
        ask(lm, auto, f"Question {number}?")

    assert requests_with_schema(honouring) == [True, True]
    assert requests_with_schema(refusing) == [True, False, False]


@pytest.mark.parametrize("name_of_address", ["api_base", "base_url"])
def test_whether_schemas_work_is_tried_at_each_address_of_a_model_of_dspy(
    stub: Any, name_of_address: str
) -> None:
    """`dspy.LM` knows both names of an address."""
    auto = AutoAdapter()
    honouring = stub(schemas="honour")
    refusing = stub(schemas="refuse")

    for server in [refusing, honouring]:
        address = {name_of_address: server.url}
        lm = dspy.LM(honouring.model, api_key="key", num_retries=0, cache=False, **address)
        ask(lm, auto)

    assert requests_with_schema(refusing) == [True, False]
    assert requests_with_schema(honouring) == [True]


def test_an_output_mode_that_is_known_beforehand_is_used_without_a_trial(stub: Any) -> None:
    """The processes of a run tell one another which models refuse schemas, by name of the model."""
    server = stub(schemas="refuse")
    auto = AutoAdapter()
    auto.add_output_modes({server.model: {OUTPUTS: "chat"}})

    ask(remote_model(server), auto, "And then?")

    assert requests_with_schema(server) == [False]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("500", id="the server fails"),
        pytest.param("400", id="the prompt is refused"),
    ],
)
def test_a_fault_that_has_nothing_to_do_with_schemas_is_raised_and_not_remembered(
    stub: Any, fault: str
) -> None:
    """Only questions with the word "bad" meet the fault, be they asked with a schema or not."""

    def fault_of(request_number: int, text: str) -> str | None:
        return fault if "bad" in text else None

    server = stub(fault_of, schemas="honour")
    lm = remote_model(server)
    auto = AutoAdapter()

    with pytest.raises(LMError):
        ask(lm, auto, "bad?")
    assert auto.output_modes() == {}

    ask(lm, auto, "good?")
    assert auto.output_modes() == {server.model: {OUTPUTS: "schema"}}

    requests_before = len(server.requests)
    with pytest.raises(LMError):
        ask(lm, auto, "bad again?")
    # The schema was accepted before, so the prompt is not tried a second time without it.
    assert len(server.requests) == requests_before + 1
    assert auto.output_modes() == {server.model: {OUTPUTS: "schema"}}


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

    # The answers do not have these outputs and cannot be read. What matters is the requests.
    with suppress(AdapterParseError), dspy.context(lm=remote_model(server), adapter=AutoAdapter()):
        dspy.Predict(signature)(question="Where?")

    assert server.requests
    assert not any(requests_with_schema(server))


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
    """The second request shows the model its answer, and says what cannot be read of it."""
    lm = ReplyingLM("no number", '{"number": 3}')

    outputs = ask_under_schema(lm, "number: int")

    assert outputs == [{"number": 3}]
    second_request = lm.requests[1]
    unreadable_answer, correction = second_request[-2:]
    assert unreadable_answer == {"role": "assistant", "content": "no number"}
    assert correction["role"] == "user"
    assert "number: is missing" in correction["content"]
    # Both requests ask under the schema, and neither has a limit that the caller did not set.
    for settings in lm.settings:
        assert "max_tokens" not in settings
        assert settings["response_format"]["type"] == "json_schema"


def test_an_unreadable_answer_is_asked_for_again_under_asyncio() -> None:
    """The model answers first without a number, and then with one."""
    lm = ReplyingLM("no number", '{"number": 3}')
    signature = dspy.Signature("question -> number: int")
    schema_adapter = SchemaAdapter({"type": "object"})

    outputs = asyncio.run(schema_adapter.acall(lm, {}, signature, [], {"question": "?"}))

    assert outputs == [{"number": 3}]
    assert len(lm.requests) == 2


def test_a_cut_answer_is_asked_for_again_with_twice_the_tokens() -> None:
    """An answer is cut where it has used up its `max_tokens`."""
    # A `CutText` is a reply that ended because `max_tokens` were used up.
    lm = ReplyingLM(CutText('{"numb'), '{"number": 4}')

    outputs = ask_under_schema(lm, "number: int", max_tokens=10)

    assert outputs == [{"number": 4}]
    assert [settings["max_tokens"] for settings in lm.settings] == [10, 20]
    for settings in lm.settings:
        assert settings["response_format"]["type"] == "json_schema"


def test_a_cut_answer_that_repeats_itself_gets_no_more_tokens_but_a_correction() -> None:
    """More tokens would not end a loop; the model is told what was wrong instead."""
    loop = "The studio is on a hill, and its windows look at the sea. " * 40
    lm = ReplyingLM(CutText(f'{{"answer": "{loop}'), '{"answer": "Enough"}')

    outputs = ask_under_schema(lm, "answer", max_tokens=100)

    assert outputs == [{"answer": "Enough"}]
    assert [settings["max_tokens"] for settings in lm.settings] == [100, 100]
    first_request, second_request = lm.requests
    added_messages = second_request[len(first_request) :]
    assert [message["role"] for message in added_messages] == ["assistant", "user"]
    # The answer is not shown in full.
    for message in added_messages:
        assert len(message["content"]) < len(loop)


def test_a_long_cut_answer_without_repetitions_gets_more_tokens_and_no_correction() -> None:
    """Such an answer is no loop, only too long: the same question is asked with more tokens."""
    long_text = "No sentence comes again: " + " ".join(str(number) for number in range(400))
    lm = ReplyingLM(CutText(f'{{"answer": "{long_text}'), '{"answer": "Enough"}')

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


@pytest.mark.parametrize("thoughts", [{}, LONG_THOUGHTS], ids=["no thoughts", "long thoughts"])
@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_cut_before_its_first_word_is_asked_for_with_twice_the_tokens(
    stub: Any, content: str | None, thoughts: dict[str, str]
) -> None:
    """A reasoning model may use up all its tokens for thoughts, and have none left to answer.

    The server says so with the finish reason "length".
    """

    def answer(body: dict[str, Any]) -> Any:
        is_first_request = len(server.requests) == 1
        if is_first_request:
            return {"finish_reason": "length", "content": content, **thoughts}
        return offline_answer(body)

    server = stub(answer=answer)
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


@pytest.mark.parametrize("thoughts", [{}, LONG_THOUGHTS], ids=["no thoughts", "long thoughts"])
@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_answer_without_a_word_is_shown_to_its_model_as_empty(
    stub: Any, content: str | None, thoughts: dict[str, str]
) -> None:
    """A blank answer that was not cut is asked for again with a correction, as any other is."""

    def answer(body: dict[str, Any]) -> Any:
        is_first_request = len(server.requests) == 1
        if is_first_request:
            return {"content": content, **thoughts}
        return offline_answer(body)

    server = stub(answer=answer)

    ask(remote_model(server), adapter("chat"))

    messages = server.requests[1].body["messages"]
    # The last message is the correction.
    assert messages[-2] == {"role": "assistant", "content": "(empty)"}
    # The thoughts are not shown.
    assert len(str(messages)) < 10_000


def test_an_answer_that_is_none_is_shown_to_its_model_as_empty() -> None:
    """The model is asked once more, and the second request shows its first answer."""
    lm = ReplyingLM(None, '{"number": 3}')

    outputs = ask_under_schema(lm, "number: int")

    assert outputs == [{"number": 3}]
    second_request = lm.requests[1]
    # The last message is the correction.
    assert second_request[-2] == {"role": "assistant", "content": "(empty)"}


THOUGHTS_IN_TAGS = "<think>" + "Let me see. " * 1000 + "</think>"


@pytest.mark.parametrize("name", ["chat", "json", "compact"])
@pytest.mark.parametrize(
    ("completion", "quoted"),
    [
        pytest.param(
            f"{THOUGHTS_IN_TAGS} I do not know",
            # 1,000 times the twelve characters of "Let me see. ", and two tags.
            "LM Response: (12,015 characters of thoughts) I do not know",
            id="long thoughts",
        ),
        pytest.param("I do not know. " * 1000, "I do not k ...", id="long answer"),
    ],
)
def test_the_error_for_an_unreadable_answer_is_short_and_holds_the_whole_answer(
    name: str, completion: str, quoted: str
) -> None:
    """The message quotes little of the answer; code finds all of it in `lm_response`."""
    with pytest.raises(AdapterParseError) as caught:
        adapter(name).parse(ManageMemory, completion)

    message = str(caught.value)
    assert quoted in message
    # Both answers have more than 12,000 characters.
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
    assert short_prompt.partition("Is it")[0] == long_prompt.partition("Is it")[0]


ANSWERING_SIGNATURES: dict[str, Any] = {
    task: signature_of(build("turn-rag", task).task.answer)
    for task in TASKS
    if task != "memory-lookup"
}
ANSWERING_SIGNATURES["memory-r2"] = signature_of(build("memory-r2").task.answer)
ANSWERING_SIGNATURES["pramem"] = PredictWithExperience
"""The signatures that answer questions: one of each task, and those of two methods."""

RECALLED_FIELDS = {"context", "patterns", "first_speaker_memories"}
"""Input fields that hold what was recalled from a memory."""


def field_values(signature: Any, number: int) -> dict[str, Any]:
    """Return values of all fields of a signature: "question 8" for its question, and so on."""
    values: dict[str, Any] = {}
    for name, field in signature.fields.items():
        text = f"{name} {number}"
        values[name] = [text] if field.annotation == list[str] else text
    if "action" in values:
        # Not any text is an action.
        values["action"] = "solution proposal"
    return values


def input_values(signature: Any, number: int) -> dict[str, Any]:
    """Return the `field_values` of the inputs alone."""
    values = field_values(signature, number)
    return {name: values[name] for name in signature.input_fields}


@pytest.mark.parametrize("task", ANSWERING_SIGNATURES)
@pytest.mark.parametrize("name", [*ADAPTERS, "schema"])
def test_two_questions_differ_in_the_last_message_alone(name: str, task: str) -> None:
    """What comes before it can be cached by the provider of the model.

    The prompts have two demos, and their inputs differ in every field.
    """
    signature = ANSWERING_SIGNATURES[task]
    chosen_adapter = adapter_by_name(name, signature)
    demos = [field_values(signature, number=8), field_values(signature, number=9)]
    if "analysis" in signature.fields:
        # This signature answers with the ids of solutions.
        for demo in demos:
            demo["answer"] = ["S1", "S2"]

    first_prompt = chosen_adapter.format(signature, demos, input_values(signature, number=1))
    second_prompt = chosen_adapter.format(signature, demos, input_values(signature, number=2))

    system = ["system"]
    two_demos = ["user", "assistant"] * 2
    question = ["user"]
    assert [message["role"] for message in first_prompt] == system + two_demos + question
    assert first_prompt[:-1] == second_prompt[:-1]
    assert signature.instructions.split()[0] in str(first_prompt[0]["content"])
    # What was recalled comes before the question.
    last_message = str(first_prompt[-1]["content"])
    recalled_fields = RECALLED_FIELDS & set(signature.input_fields)
    first_recalled = min(last_message.index(f"{field} 1") for field in recalled_fields)
    assert first_recalled < last_message.index("question 1")


LIST_AND_TEXTS: Any = dspy.Signature("question -> patterns: list[str], reason: str, answer: str")
SENTENCE_OF_DSPY_FOR_A_MISSING_FIELD = "Not supplied for this particular example."


@pytest.mark.parametrize("name", ["chat", "json", "schema"])
def test_a_list_that_a_demo_lacks_is_shown_as_empty_and_a_text_as_missing(name: str) -> None:
    """A demo may lack outputs, e.g. if it is a training example that has an answer alone."""
    chosen_adapter = adapter_by_name(name, ANSWER_AND_SURE)
    demo_without_patterns_and_reason = dspy.Example(question="Who?", answer="Ann")

    messages = chosen_adapter.format(
        LIST_AND_TEXTS, [demo_without_patterns_and_reason], {"question": "Where?"}
    )

    [shown_demo] = [
        str(message["content"]) for message in messages if message["role"] == "assistant"
    ]
    # The list `patterns` and the text `reason` are missing.
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
