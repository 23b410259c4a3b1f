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
from mempiler.memory.answers import MAX_ANSWER_LENGTH, MAX_SOURCES, KeptAnswer
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories.redaction import redacted_dump
from mempiler.serving.memories.user_answers import GivenAnswer

from .conftest import ADA, TOKENS, Api, StartService, StartWithStubModel, write_limits

ID = re.compile(r"ans_[0-9a-f]{32}")


def message(text: str) -> dict[str, str]:
    """Return a message of Ada's."""
    return {"role": "user", "name": "Ada", "content": text}


def kept_answers(store: Store, tenant: str = "default") -> tuple[KeptAnswer, ...]:
    """Return the answers to Ada that the store keeps, from the oldest to the newest.

    A memory that is made in Python belongs to the tenant "default".
    """
    return store.transfer.dump(Owner("ada", tenant)).answers


@pytest.fixture
def memory(store: Store) -> UserMemory:
    """Ada's memory, which is empty. It keeps answers; turn RAG answers from the turns themselves.

    The offline model answers with the sentence that fits the question best.
    """
    return build("turn-rag").memory(store, "ada", lm="offline", feedback=True)


# In Python.


def test_feedback_names_the_version_of_the_memory_that_the_answer_was_given_from(
    memory: UserMemory,
) -> None:
    memory.add([message("I moved to Lisbon.")])
    version_of_answer = memory.view().snapshot.version
    answer_id = memory.ask("Where did Ada move?").answer_id
    memory.add([message("I like tea.")])
    assert memory.view().snapshot.version != version_of_answer

    feedback = memory.feedback(answer_id, right=True)

    assert feedback.memory_version == version_of_answer


def test_feedback_says_what_was_right_and_useful(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")], id="s")
    answer_id = memory.ask("Where did Ada move?").answer_id

    feedback = memory.feedback(answer_id, right=True, useful_entries=["s:1"])

    assert feedback.right is True
    assert feedback.useful_entries == ("s:1",)


def test_an_answer_is_kept_with_its_question(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])

    prediction = memory.ask("Where did Ada move?")

    (kept,) = kept_answers(memory.store)
    assert kept.id == prediction.answer_id
    assert kept.question == "Where did Ada move?"
    assert kept.answer == "I moved to Lisbon."


def test_an_answer_is_kept_with_what_it_rests_on(memory: UserMemory) -> None:
    """The entry "s:1" is the first turn of the session "s"."""
    memory.add([message("I moved to Lisbon.")], id="s")

    memory.ask("Where did Ada move?")

    (kept,) = kept_answers(memory.store)
    assert [entry.id for entry in kept.entries] == ["s:1"]
    assert kept.sources == ("s:1",)
    assert not kept.rests_on_all
    assert kept.position == 1  # of the last session that the answer can rest on


MORE_TURNS_THAN_ARE_KEPT = tuple(str(number) for number in range(MAX_SOURCES + 1))


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
def test_an_answer_rests_on_all_turns_if_its_context_does_not_say_on_which(
    memory: UserMemory, context: Context
) -> None:
    """The context is what the model was shown for the answer. It goes if any turn is forgotten."""
    memory.add([message("I moved to Lisbon.")])
    answer = GivenAnswer(
        id=mempiler.new_answer_id(),
        question="Where did Ada move?",
        answer="Lisbon",
        context=context,
    )

    memory.keep_answer(answer, memory.view())

    (kept,) = kept_answers(memory.store)
    assert kept.rests_on_all
    assert kept.sources == ()


def test_an_answer_is_kept_with_the_number_of_turns_before_its_question_in_the_open_session(
    memory: UserMemory,
) -> None:
    """A chat is an open session, in which the question is a turn as well."""
    memory.say("chat", [message("I moved to Lisbon.")])
    (question,) = memory.say("chat", [message("Where did I move?")])

    memory.ask("Where did I move?", asked=[question.id])

    (kept,) = kept_answers(memory.store)
    assert kept.open_turns == {"chat": 1}
    # If the chat is forgotten, the answer goes with it.
    assert question.id in kept.sources


def test_without_opting_in_an_answer_has_an_id_and_nothing_is_kept(store: Store) -> None:
    memory = build("turn-rag").memory(store, "ada", lm="offline")  # without feedback=True
    memory.add([message("I moved to Lisbon.")])

    prediction = memory.ask("Where did Ada move?")

    assert ID.fullmatch(prediction.answer_id)
    assert kept_answers(memory.store) == ()
    with pytest.raises(ConflictError, match=r"feedback=True to program\.memory"):
        memory.feedback(prediction.answer_id, right=True)


def test_an_awaited_answer_has_the_id_that_the_caller_gives(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = mempiler.new_answer_id()

    prediction = asyncio.run(memory.aask("Where did Ada move?", answer_id=answer_id))

    assert prediction.answer_id == answer_id
    (kept,) = kept_answers(memory.store)
    assert kept.id == answer_id


def test_a_streamed_answer_is_kept_under_the_id_that_the_caller_gives(memory: UserMemory) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = mempiler.new_answer_id()

    async def read_stream() -> str:
        stream = memory.astream("Where did Ada move?", answer_id=answer_id)
        return "".join([part async for part in stream])

    answer = asyncio.run(read_stream())

    (kept,) = kept_answers(memory.store)
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
    ],
)
def test_a_malformed_judgement_is_refused(
    memory: UserMemory, arguments: dict[str, Any], message_of_error: str
) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("Where did Ada move?").answer_id

    with pytest.raises(UserError, match=message_of_error):
        memory.feedback(answer_id, **arguments)

    assert memory.store.transfer.dump(memory.owner).feedback == ()


@pytest.mark.parametrize(
    ("useful_entries", "message_of_error"),
    [
        ("s:1", "give a list of ids"),
        ([7], "7 is no id"),
        (["x" * 1025], "is no id"),
        (["a\0b"], "NUL"),
        (["nobody:1"], "is no entry of the memory and no stored turn"),
        ([str(number) for number in range(101)], "name at most 100"),
    ],
)
def test_malformed_useful_entries_are_refused(
    memory: UserMemory, useful_entries: Any, message_of_error: str
) -> None:
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("Where did Ada move?").answer_id

    with pytest.raises(UserError, match=message_of_error):
        memory.feedback(answer_id, useful_entries=useful_entries)

    assert memory.store.transfer.dump(memory.owner).feedback == ()


def test_an_answer_that_is_corrected_counts_as_wrong(memory: UserMemory) -> None:
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


def test_an_export_leaves_out_a_correction_whose_useful_entry_was_deleted(
    memory: UserMemory,
) -> None:
    """The correction "tea" quotes the entry "later:1", and would keep its text."""
    memory.add([message("I moved to Lisbon.")])
    answer_id = memory.ask("What does Ada drink?").answer_id
    memory.add([message("Tea for me.")], id="later")
    memory.feedback(answer_id, correction="tea", useful_entries=["later:1"])

    memory.entries.delete("later:1")

    exported = redacted_dump(memory.view(), memory.store.transfer.dump(memory.owner))
    assert exported.feedback == ()
    assert exported.answers == ()


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
    assert kept_answers(memory.store) == ()


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
    memory_of_other_request = program.memory(store, "ada", lm="offline")
    memory_of_other_request.add([message("I moved to Lisbon.")], id="s")

    def forget_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        forget(memory_of_other_request)
        return {field: "Lisbon"}

    memory = program.memory(store, "ada", lm=scripted(forget_and_answer), feedback=True)

    assert memory.ask("Where did Ada move?").answer == "Lisbon"
    assert kept_answers(store) == ()


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


def test_an_answer_is_kept_for_a_tenant_that_opts_in_by_the_token_file(
    start_service: StartService, store: Store, tmp_path: Path
) -> None:
    """The line of `acme` in the token file has feedback=on; the service itself keeps no answers."""
    acme = start_service(feedback=False)
    write_limits(tmp_path, acme="feedback=on")
    acme.add("I moved to Lisbon.")
    answer_id = acme.ask("Where did Ada move?").json()["answer_id"]

    assert give_feedback(acme, answer_id, right=True).status_code == 200
    assert len(kept_answers(store, "acme")) == 1


def test_no_answer_is_kept_for_a_tenant_that_has_not_opted_in(
    start_service: StartService, store: Store, tmp_path: Path
) -> None:
    """Only `acme` has opted in."""
    globex = start_service(feedback=False).as_tenant("globex")
    write_limits(tmp_path, acme="feedback=on")
    globex.add("I moved to Lisbon.")
    answer_id = globex.ask("Where did Ada move?").json()["answer_id"]

    assert give_feedback(globex, answer_id, right=True).status_code == 409
    assert kept_answers(store, "globex") == ()


def test_no_answer_is_kept_for_a_tenant_that_opts_out_by_the_token_file(
    start_service: StartService, store: Store, tmp_path: Path
) -> None:
    """The service keeps answers; the line of `acme` in the token file has feedback=off."""
    acme = start_service(feedback=True)
    write_limits(tmp_path, acme="feedback=off")
    acme.add("I moved to Lisbon.")
    answer_id = acme.ask("Where did Ada move?").json()["answer_id"]

    response = give_feedback(acme, answer_id, right=True)

    assert response.status_code == 409
    assert "an operator sets feedback=on behind the tenant's token" in error_message(response)
    assert kept_answers(store, "acme") == ()


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


SAYS_LISBON = "[[ ## answer ## ]]\nLisbon\n\n[[ ## completed ## ]]"
"""An answer of a model in the form that a program can read."""
WHERE_DID_ADA_MOVE: Any = {"role": "user", "content": "Where did Ada move?"}


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_the_chat_has_an_id_under_which_it_is_rated(
    start_with_stub_model: StartWithStubModel, model: str, stream: bool
) -> None:
    """The service offers its program, and the language model behind the program ("-chat")."""
    api, client, _ = start_with_stub_model(SAYS_LISBON, settings={"feedback": True})

    reply = client.chat.completions.create(
        model=model, user="ada", messages=[WHERE_DID_ADA_MOVE], stream=stream
    )
    answer_id = extension_of(reply)["answer_id"]

    assert give_feedback(api, answer_id, right=True).status_code == 200


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
def test_an_answer_in_the_chat_is_kept_with_its_question_and_sources(
    start_with_stub_model: StartWithStubModel, store: Store, model: str
) -> None:
    """Its sources are what was said before, and the question, the first turn of the chat."""
    api, client, _ = start_with_stub_model(SAYS_LISBON, settings={"feedback": True})
    api.add("I moved to Lisbon.", id="earlier")

    reply = client.chat.completions.create(model=model, user="ada", messages=[WHERE_DID_ADA_MOVE])
    chat = extension_of(reply)["session"]

    (kept,) = kept_answers(store, "acme")
    assert kept.question == "Where did Ada move?"
    assert "Lisbon" in kept.answer
    assert set(kept.sources) == {"earlier:1", f"{chat}:1"}
    turns_before_the_question = 0
    assert kept.open_turns == {chat: turns_before_the_question}


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
    chat = api.chat("Where did Ada move?").json()["mempiler"]["session"]
    assert len(kept_answers(store, "acme")) == 1

    api.delete(f"/v1/users/ada/sessions/{chat}")

    assert kept_answers(store, "acme") == ()


# By clients.


def test_clients_give_feedback(api: Api, store: Store) -> None:
    with Client(api.address, TOKENS["acme"]) as client:
        memory = client.memory("ada")
        memory.add([message("I moved to Lisbon.")])
        answer_id = memory.ask("Where did Ada move?").answer_id

        feedback = memory.feedback(answer_id, correction="Porto")

    assert feedback.right is False
    assert feedback.correction == "Porto"
    (stored_feedback,) = store.transfer.dump(ADA).feedback
    assert stored_feedback.answer == answer_id
    assert stored_feedback.correction == "Porto"


def test_clients_for_asyncio_give_feedback(api: Api) -> None:
    async def ask_and_rate() -> Any:
        async with AsyncClient(api.address, TOKENS["acme"]) as client:
            memory = client.memory("ada")
            await memory.add([message("I moved to Lisbon.")])
            answer = await memory.ask("Where did Ada move?")
            return await memory.feedback(answer.answer_id, right=True)

    feedback = asyncio.run(ask_and_rate())

    assert feedback.right is True
