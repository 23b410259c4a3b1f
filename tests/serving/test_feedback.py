"""Feedback on answers: what is kept of an answer, and what may be said about it.

Answers are kept only where that was asked for: `feedback=True` in Python, and for a tenant of a
service `--feedback` or `feedback=on` in the token file. Every answer has an id all the same.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import openai
import pytest
from mempiler import (
    AsyncClient,
    Client,
    ConflictError,
    Context,
    Hit,
    Store,
    UnknownAnswerError,
    UserError,
    UserMemory,
    build,
)
from mempiler.memory.answers import MAX_ANSWER_LENGTH, KeptAnswer
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories.redaction import redacted_dump
from mempiler.serving.memories.user_answers import GivenAnswer

from .conftest import ADA, TOKENS, Api, StartService, StartWithStubModel, write_limits

ID = re.compile(r"ans_[0-9a-f]{32}")


def message(text: str) -> dict[str, str]:
    """Return a message of Ada's."""
    return {"role": "user", "name": "Ada", "content": text}


def kept_answers(memory: UserMemory) -> tuple[KeptAnswer, ...]:
    """Return the answers of a user that the store keeps, from the oldest to the newest."""
    return memory.store.transfer.dump(memory.owner).answers


@pytest.fixture
def memory(store: Store) -> UserMemory:
    """Ada's memory, which is empty. It keeps answers; turn RAG answers from the turns themselves.

    The offline model answers with the sentence that fits the question best.
    """
    return build("turn-rag").memory(store, "ada", lm="offline", feedback=True)


# In Python.


def test_feedback_names_the_memory_that_the_answer_was_given_from(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")], id="s")
    version_of_answer = memory.view().snapshot.version
    answer_id = memory.ask("Where did Ada move?").answer_id
    memory.add([message("I like tea.")])  # makes a new version of the memory

    feedback = memory.feedback(answer_id, right=True)

    assert feedback.memory_version == version_of_answer
    assert memory.view().snapshot.version != version_of_answer


def test_feedback_says_what_was_right_and_useful(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")], id="s")
    answer_id = memory.ask("Where did Ada move?").answer_id

    feedback = memory.feedback(answer_id, right=True, useful_entries=["s:1"])

    assert feedback.right is True
    assert feedback.useful_entries == ("s:1",)


def test_an_answer_is_kept_with_what_it_rests_on(memory: UserMemory) -> None:
    """The answer rests on "s:1", the first turn of the session "s"."""
    memory.add([message("I moved to Lisbon.")], id="s")

    prediction = memory.ask("Where did Ada move?")

    (kept,) = kept_answers(memory)
    assert kept.id == prediction.answer_id
    assert kept.question == "Where did Ada move?"
    assert kept.answer == "I moved to Lisbon."
    assert kept.position == 1  # of the last session that the answer can rest on
    assert [entry.id for entry in kept.entries] == ["s:1"]
    assert kept.sources == ("s:1",)
    assert not kept.rests_on_all


MORE_TURNS_THAN_ARE_KEPT = tuple(str(number) for number in range(1001))


@pytest.mark.parametrize(
    "context",
    [
        pytest.param(Context(notes={"summary": "Ada moved."}), id="note"),
        pytest.param(Context(hits=(Hit(id="p", text="Ada moved."),)), id="entry without sources"),
        pytest.param(
            Context(hits=(Hit(id="p", text="", sources=MORE_TURNS_THAN_ARE_KEPT),)),
            id="more turns than are kept",
        ),
    ],
)
def test_an_answer_may_rest_on_any_turn_if_nothing_says_on_which(
    memory: UserMemory, context: Context
) -> None:
    """`context` is what the memory showed to the model. The sources of a hit are its turns."""
    memory.add([message("I moved to Lisbon.")])
    answer = GivenAnswer(mempiler.new_answer_id(), "Where did Ada move?", "Lisbon", context)

    assert memory.keep_answer(answer, memory.view())

    (kept,) = kept_answers(memory)
    assert kept.rests_on_all
    assert kept.sources == ()


def test_turns_of_an_open_session_count_up_to_the_question(memory: UserMemory) -> None:
    """A chat is an open session: its turns are stored, and the last one of them is the question."""
    memory.say("chat", [message("I moved to Lisbon.")])
    (question,) = memory.say("chat", [message("Where did I move?")])

    memory.ask("Where did I move?", asked=[question.id])

    (kept,) = kept_answers(memory)
    turns_before_the_question = 1
    assert kept.open_turns == {"chat": turns_before_the_question}
    # The answer goes with the session, in which the question is stored.
    assert question.id in kept.sources


def test_without_opting_in_an_answer_has_an_id_and_nothing_is_kept(store: Store) -> None:
    memory = build("turn-rag").memory(store, "ada", lm="offline")  # without feedback=True
    memory.add([message("I moved to Lisbon.")])

    prediction = memory.ask("Where did Ada move?")

    assert ID.fullmatch(prediction.answer_id)
    assert kept_answers(memory) == ()
    with pytest.raises(ConflictError, match=r"feedback=True to program\.memory"):
        memory.feedback(prediction.answer_id, right=True)


def test_an_awaited_answer_has_the_id_that_the_caller_gives(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = mempiler.new_answer_id()

    prediction = asyncio.run(memory.aask("Where did Ada move?", answer_id=answer_id))

    assert prediction.answer_id == answer_id
    (kept,) = kept_answers(memory)
    assert kept.id == answer_id


def test_a_streamed_answer_is_kept_under_the_id_that_the_caller_gives(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = mempiler.new_answer_id()

    async def read_stream() -> str:
        stream = memory.astream("Where did Ada move?", answer_id=answer_id)
        return "".join([part async for part in stream])

    answer = asyncio.run(read_stream())

    (kept,) = kept_answers(memory)
    assert kept.id == answer_id
    assert kept.answer == answer


@pytest.mark.parametrize(
    ("arguments", "message_of_error"),
    [
        ({}, "says nothing"),
        ({"right": True, "correction": "Porto"}, "right has no correction"),
        ({"right": "yes"}, "give true or false"),
        ({"correction": " "}, "the correction is empty"),
        ({"correction": 7}, "the correction is empty"),
        ({"correction": "x" * 10_001}, "use at most 10000"),
        ({"correction": "a\0b"}, "NUL"),
        ({"useful_entries": "s:1"}, "give a list of ids"),
        ({"useful_entries": [7]}, "7 is no id"),
        ({"useful_entries": ["x" * 1025]}, "is no id"),
        ({"useful_entries": ["a\0b"]}, "NUL"),
        ({"useful_entries": ["nobody:1"]}, "is no entry of the memory and no stored turn"),
        ({"useful_entries": [str(number) for number in range(101)]}, "name at most 100"),
    ],
)
def test_feedback_that_says_nothing_sensible_is_refused(
    memory: UserMemory, arguments: dict[str, Any], message_of_error: str
) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("Where did Ada move?").answer_id

    with pytest.raises(UserError, match=message_of_error):
        memory.feedback(answer_id, **arguments)

    assert memory.store.transfer.dump(memory.owner).feedback == ()


def test_a_correction_says_that_the_answer_was_wrong(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("Where did Ada move?").answer_id

    feedback = memory.feedback(answer_id, correction="Porto")

    assert feedback.right is False


def test_useful_entries_need_not_have_been_recalled(memory: UserMemory) -> None:
    """A person may know better than the memory which turn was needed."""
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("What does Ada drink?").answer_id
    memory.add([message("Tea for me.")], id="later")

    memory.feedback(answer_id, correction="tea", useful_entries=["later:1"])

    (feedback,) = memory.store.transfer.dump(memory.owner).feedback
    (entry,) = feedback.useful_entries
    assert entry.sources == ("later:1",)


def test_a_correction_is_not_shown_if_its_useful_entry_was_deleted(memory: UserMemory) -> None:
    """The correction may quote the entry, although the answer was made from another one.

    `redacted_dump` returns what an export shows of a user.
    """
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("What does Ada drink?").answer_id
    memory.add([message("Tea for me.")], id="later")
    memory.feedback(answer_id, correction="tea", useful_entries=["later:1"])

    memory.entries.delete("later:1")

    shown = redacted_dump(memory.view(), memory.store.transfer.dump(memory.owner))
    assert shown.answers == ()
    assert shown.feedback == ()


def test_an_answer_of_somebody_else_cannot_be_rated(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id_of_ada = memory.ask("Where did Ada move?").answer_id
    memory_of_bob = memory.program.memory(memory.store, "bob", lm="offline", feedback=True)
    memory_of_bob.add([message("I moved to Lisbon.")])

    with pytest.raises(UnknownAnswerError, match="there is no answer"):
        memory_of_bob.feedback(answer_id_of_ada, right=True)


def test_an_id_of_another_form_is_refused(memory: UserMemory) -> None:
    """The id of an answer is "ans_" and 32 hexadecimal digits."""
    with pytest.raises(UserError, match="is no id of an answer"):
        memory.feedback("'; DROP TABLE mempiler_answers", right=True)


@pytest.mark.parametrize(
    "question",
    [
        pytest.param("x" * (MAX_ANSWER_LENGTH + 1), id="too long"),
        pytest.param("What is a\0b?", id="a zero byte, which no database stores"),
    ],
)
def test_a_question_that_cannot_be_kept_is_answered_all_the_same(
    memory: UserMemory, question: str
) -> None:
    memory.add([message("I moved to Lisbon.")])

    prediction = memory.ask(question)

    assert ID.fullmatch(prediction.answer_id)
    assert kept_answers(memory) == ()


def forget_user(memory: UserMemory) -> None:
    memory.forget()


def forget_session(memory: UserMemory) -> None:
    memory.forget_session("s")


@pytest.mark.parametrize("forget", [forget_user, forget_session])
def test_an_answer_is_not_kept_if_something_is_forgotten_while_the_model_works(
    store: Store, scripted: Any, forget: Callable[[UserMemory], None]
) -> None:
    """The model of this test forgets Ada, or her session "s", before it answers."""
    program = build("turn-rag")
    other_request = program.memory(store, "ada", lm="offline")
    other_request.add([message("I moved to Lisbon.")], id="s")

    def forget_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        forget(other_request)
        return {field: "Lisbon"}

    memory = program.memory(store, "ada", lm=scripted(forget_and_answer), feedback=True)

    assert memory.ask("Where did Ada move?").answer == "Lisbon"
    assert kept_answers(memory) == ()


def test_an_answer_is_given_though_the_store_fails_to_keep_it(
    memory: UserMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, but not the text of the error, which may quote what users say."""
    memory.add([message("I moved to Lisbon.")])

    def fail(*_: object) -> None:
        raise mempiler.StoreError("disk is full of SECRETS")

    monkeypatch.setattr(memory.store.answers, "keep", fail)

    assert memory.ask("Where did Ada move?").answer == "I moved to Lisbon."
    assert "could not be kept for feedback" in caplog.text
    assert "SECRETS" not in caplog.text


# Over HTTP.


def give_feedback(api: Api, answer_id: str, **feedback: Any) -> Any:
    """Send feedback on an answer that Ada got, and return the response."""
    return api.post("/v1/users/ada/feedback", json={"answer_id": answer_id, **feedback})


def error_message(response: Any) -> str:
    return response.json()["error"]["message"]


@pytest.fixture
def api(start_service: StartService) -> Api:
    """A client of the tenant `acme`, whose service keeps answers; its store is empty.

    Each of its methods sends a request: `add` a session of one message, and `ask` a question.
    """
    return start_service(feedback=True)


def test_feedback_over_http_is_stored(api: Api, store: Store) -> None:
    api.add("I moved to Lisbon.")
    answer_id = api.ask("Where did Ada move?").json()["answer_id"]

    response = give_feedback(api, answer_id, correction="Porto")

    assert response.status_code == 200
    assert response.json()["answer_id"] == answer_id
    assert response.json()["memory_version"]
    (feedback,) = store.transfer.dump(ADA).feedback
    assert feedback.answer == answer_id
    assert feedback.correction == "Porto"


@pytest.mark.parametrize(("tenant", "status"), [("acme", 200), ("globex", 409)])
def test_a_tenant_opts_in_by_the_token_file(
    start_service: StartService, tmp_path: Path, tenant: str, status: int
) -> None:
    """The service keeps no answers, but those of `acme`, whose line in the file has feedback=on."""
    api = start_service(feedback=False).as_tenant(tenant)
    write_limits(tmp_path, acme="feedback=on")
    api.add("I moved to Lisbon.")
    answer_id = api.ask("Where did Ada move?").json()["answer_id"]

    response = give_feedback(api, answer_id, right=True)

    assert response.status_code == status
    answers = api.service.store.transfer.dump(Owner("ada", tenant)).answers
    assert len(answers) == (1 if tenant == "acme" else 0)


def test_a_tenant_may_opt_out_of_what_the_service_does(
    start_service: StartService, tmp_path: Path
) -> None:
    api = start_service(feedback=True)
    write_limits(tmp_path, acme="feedback=off")
    api.add("I moved to Lisbon.")
    answer_id = api.ask("Where did Ada move?").json()["answer_id"]

    response = give_feedback(api, answer_id, right=True)

    assert response.status_code == 409
    assert "an operator sets feedback=on behind the tenant's token" in error_message(response)


def test_feedback_on_an_unknown_answer_is_404(api: Api) -> None:
    api.add("I moved to Lisbon.")
    id_of_no_answer = mempiler.new_answer_id()

    response = give_feedback(api, id_of_no_answer, right=True)

    assert response.status_code == 404
    assert "there is no answer" in error_message(response)


@pytest.mark.parametrize(
    "feedback",
    [
        pytest.param({"right": "yes"}, id="a text instead of true or false"),
        pytest.param({"correction": ""}, id="an empty correction"),
        pytest.param({"useful_entries": ["x"] * 101}, id="more than 100 entries"),
        pytest.param({"surprise": 1}, id="an unknown field"),
    ],
)
def test_malformed_feedback_is_400(api: Api, feedback: dict[str, Any]) -> None:
    api.add("I moved to Lisbon.")
    answer_id = api.ask("Where did Ada move?").json()["answer_id"]

    response = give_feedback(api, answer_id, **feedback)

    assert response.status_code == 400


# In the chat.


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_the_chat_has_an_id_under_which_it_is_rated(
    start_with_stub_model: StartWithStubModel, tmp_path: Path, model: str, stream: bool
) -> None:
    """The service has two models: the program, and the language model behind it ("-chat").

    A reply of both has the id in the field `mempiler`.
    """
    api, client, _ = start_with_stub_model(
        lambda body: "[[ ## answer ## ]]\nLisbon\n\n[[ ## completed ## ]]"
    )
    write_limits(tmp_path, acme="feedback=on")
    question: Any = {"role": "user", "content": "Where did Ada move?"}

    reply = client.chat.completions.create(
        model=model, user="ada", messages=[question], stream=stream
    )
    answer_id = extension_of(reply)["answer_id"]

    assert give_feedback(api, answer_id, right=True).status_code == 200


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
def test_an_answer_in_the_chat_is_kept_with_its_question_and_sources(
    start_with_stub_model: StartWithStubModel, store: Store, tmp_path: Path, model: str
) -> None:
    """The chat begins a session, in which the question is the first turn."""
    api, client, _ = start_with_stub_model(
        lambda body: "[[ ## answer ## ]]\nLisbon\n\n[[ ## completed ## ]]"
    )
    write_limits(tmp_path, acme="feedback=on")
    api.add("I moved to Lisbon.", id="s")
    question: Any = {"role": "user", "content": "Where did Ada move?"}

    reply = client.chat.completions.create(model=model, user="ada", messages=[question])
    session_of_chat = extension_of(reply)["session"]

    (kept,) = store.transfer.dump(ADA).answers
    assert kept.question == "Where did Ada move?"
    assert "Lisbon" in kept.answer
    turns_before_the_question = 0
    assert kept.open_turns == {session_of_chat: turns_before_the_question}
    assert set(kept.sources) == {"s:1", f"{session_of_chat}:1"}


def extension_of(reply: Any) -> dict[str, Any]:
    """Return the field `mempiler` of a reply, which may be a stream."""
    if not isinstance(reply, openai.Stream):
        return reply.mempiler
    with reply:
        (extension,) = [chunk.mempiler for chunk in reply if hasattr(chunk, "mempiler")]
    return extension


def test_a_repeated_request_gets_the_id_of_the_stored_answer(api: Api) -> None:
    """OpenAI's client marks a request that it repeats with the header `x-stainless-retry-count`."""
    api.add("I moved to Lisbon.")
    first = api.chat("Where did Ada move?").json()

    repeated = api.chat("Where did Ada move?", headers={"x-stainless-retry-count": "1"}).json()

    assert repeated["choices"][0]["message"]["content"] == "I moved to Lisbon."
    assert repeated["mempiler"]["answer_id"] == first["mempiler"]["answer_id"]


def test_the_answer_of_a_forgotten_chat_is_forgotten(api: Api, store: Store) -> None:
    session = api.chat("Where did Ada move?").json()["mempiler"]["session"]
    assert len(store.transfer.dump(ADA).answers) == 1

    api.delete(f"/v1/users/ada/sessions/{session}")

    assert store.transfer.dump(ADA).answers == ()


# By clients.


def test_clients_give_feedback(api: Api) -> None:
    with Client(api.address, TOKENS["acme"]) as client:
        memory = client.memory("ada")
        memory.add([message("I moved to Lisbon.")])
        answer_id = memory.ask("Where did Ada move?").answer_id

        feedback = memory.feedback(answer_id, correction="Porto")

    assert feedback.right is False
    assert feedback.correction == "Porto"


def test_clients_for_asyncio_give_feedback(api: Api) -> None:
    async def ask_and_rate() -> Any:
        async with AsyncClient(api.address, TOKENS["acme"]) as client:
            memory = client.memory("ada")
            await memory.add([message("I moved to Lisbon.")])
            answer = await memory.ask("Where did Ada move?")
            return await memory.feedback(answer.answer_id, right=True)

    feedback = asyncio.run(ask_and_rate())

    assert feedback.right is True


def test_the_error_of_a_client_says_how_to_opt_in(start_service: StartService) -> None:
    api = start_service(feedback=False)
    with Client(api.address, TOKENS["acme"]) as client:
        memory = client.memory("ada")
        memory.add([message("I moved to Lisbon.")])
        answer_id = memory.ask("Where did Ada move?").answer_id

        with pytest.raises(ConflictError, match="feedback=on"):
            memory.feedback(answer_id, right=True)
