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

from .conftest import ADA, TOKENS, Api, Connect, Reach, write_limits

LISBON = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
QUESTION = "Where did Ada move?"
ID = re.compile(r"ans_[0-9a-f]{32}")


def kept_answers(memory: UserMemory) -> tuple[KeptAnswer, ...]:
    return memory.store.transfer.dump(memory.owner).answers


@pytest.fixture
def memory(store: Store) -> UserMemory:
    """Ada's memory, with one session "s", which keeps answers."""
    memory = build("turn-rag").memory(store, "ada", lm="offline", feedback=True)
    memory.add(LISBON, id="s")
    return memory


# In Python.


def test_feedback_names_the_memory_that_the_answer_was_given_from(memory: UserMemory) -> None:
    version = memory.view().snapshot.version
    answer_id = memory.ask(QUESTION).answer_id
    memory.add([{"role": "user", "content": "I like tea."}])

    feedback = memory.feedback(answer_id, right=True, useful_entries=["s:1"])

    assert feedback.right is True
    assert feedback.useful_entries == ("s:1",)
    assert feedback.memory_version == version
    assert memory.view().snapshot.version != version


def test_an_answer_is_kept_with_what_it_rests_on(memory: UserMemory) -> None:
    prediction = memory.ask(QUESTION)

    (kept,) = kept_answers(memory)

    assert kept.id == prediction.answer_id
    assert kept.question == QUESTION
    assert kept.answer == prediction.answer
    assert kept.position == 1
    assert [entry.id for entry in kept.entries] == ["s:1"]
    assert kept.sources == ("s:1",)
    assert not kept.rests_on_all


@pytest.mark.parametrize(
    "context",
    [
        pytest.param(Context(notes={"summary": "Ada moved."}), id="note"),
        pytest.param(Context(hits=(Hit(id="p", text="Ada moved."),)), id="entry without sources"),
        pytest.param(
            Context(hits=(Hit(id="p", text="", sources=tuple(map(str, range(1001)))),)),
            id="more turns than are kept",
        ),
    ],
)
def test_an_answer_may_rest_on_any_turn_if_nothing_says_on_which(
    memory: UserMemory, context: Context
) -> None:
    given = GivenAnswer(mempiler.new_answer_id(), QUESTION, "Lisbon", context)

    assert memory.keep_answer(given, memory.view())

    (kept,) = kept_answers(memory)
    assert kept.rests_on_all
    assert kept.sources == ()


def test_turns_of_an_open_session_count_up_to_the_question(memory: UserMemory) -> None:
    memory.say("chat", [{"role": "user", "content": "Hello."}])
    (question,) = memory.say("chat", [{"role": "user", "content": QUESTION}])

    memory.ask(QUESTION, asked=[question.id])

    (kept,) = kept_answers(memory)
    assert kept.open_turns == {"chat": 1}
    # The question is stored in the session, so it goes with the session.
    assert question.id in kept.sources


def test_without_opting_in_an_answer_has_an_id_and_nothing_is_kept(store: Store) -> None:
    memory = build("turn-rag").memory(store, "ada", lm="offline")
    memory.add(LISBON)

    prediction = memory.ask(QUESTION)

    assert ID.fullmatch(prediction.answer_id)
    assert kept_answers(memory) == ()
    with pytest.raises(ConflictError, match=r"feedback=True to program\.memory"):
        memory.feedback(prediction.answer_id, right=True)


def test_an_answer_that_is_streamed_or_awaited_has_the_id_that_the_caller_gives(
    memory: UserMemory,
) -> None:
    streamed_id = mempiler.new_answer_id()
    awaited_id = mempiler.new_answer_id()

    async def ask() -> str:
        parts = [part async for part in memory.astream(QUESTION, answer_id=streamed_id)]
        prediction = await memory.aask(QUESTION, answer_id=awaited_id)
        assert prediction.answer_id == awaited_id
        return "".join(parts)

    answer = asyncio.run(ask())

    streamed, awaited = kept_answers(memory)
    assert (streamed.id, streamed.answer) == (streamed_id, answer)
    assert awaited.id == awaited_id


@pytest.mark.parametrize(
    ("arguments", "message"),
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
    memory: UserMemory, arguments: dict[str, Any], message: str
) -> None:
    answer_id = memory.ask(QUESTION).answer_id

    with pytest.raises(UserError, match=message):
        memory.feedback(answer_id, **arguments)

    assert memory.store.transfer.dump(memory.owner).feedback == ()


def test_a_correction_says_that_the_answer_was_wrong(memory: UserMemory) -> None:
    answer_id = memory.ask(QUESTION).answer_id

    assert memory.feedback(answer_id, correction="Porto").right is False


def test_useful_entries_need_not_have_been_recalled(memory: UserMemory) -> None:
    """A person may know better than the memory which turn was needed."""
    answer_id = memory.ask(QUESTION).answer_id
    memory.add([{"role": "user", "content": "Tea for me."}], id="later")

    memory.feedback(answer_id, correction="tea", useful_entries=["later:1"])

    (feedback,) = memory.store.transfer.dump(memory.owner).feedback
    (entry,) = feedback.useful_entries
    assert entry.sources == ("later:1",)


def test_a_correction_is_not_shown_if_its_useful_entry_was_deleted(memory: UserMemory) -> None:
    """The correction may quote the entry, although the answer was made from another one."""
    answer_id = memory.ask(QUESTION).answer_id
    memory.add([{"role": "user", "content": "Tea for me."}], id="later")
    memory.feedback(answer_id, correction="tea", useful_entries=["later:1"])

    memory.entries.delete("later:1")

    shown = redacted_dump(memory.view(), memory.store.transfer.dump(memory.owner))
    assert shown.answers == ()
    assert shown.feedback == ()


def test_an_answer_of_somebody_else_cannot_be_rated(memory: UserMemory) -> None:
    answer_id = memory.ask(QUESTION).answer_id
    bob = memory.program.memory(memory.store, "bob", lm="offline", feedback=True)
    bob.add(LISBON)

    with pytest.raises(UnknownAnswerError, match="there is no answer"):
        bob.feedback(answer_id, right=True)


def test_an_id_that_is_none_is_refused(memory: UserMemory) -> None:
    with pytest.raises(UserError, match="is no id of an answer"):
        memory.feedback("'; DROP TABLE mempiler_answers", right=True)


@pytest.mark.parametrize("question", ["x" * (MAX_ANSWER_LENGTH + 1), "What is a\0b?"])
def test_a_question_that_cannot_be_kept_is_answered_all_the_same(
    memory: UserMemory, question: str
) -> None:
    assert memory.ask(question).answer_id
    assert kept_answers(memory) == ()


def forget_user(memory: UserMemory) -> None:
    memory.forget()


def forget_session(memory: UserMemory) -> None:
    memory.forget_session("s")


@pytest.mark.parametrize("forget", [forget_user, forget_session])
def test_an_answer_is_not_kept_if_something_is_forgotten_while_the_model_works(
    store: Store, scripted: Any, forget: Callable[[UserMemory], None]
) -> None:
    program = build("turn-rag")
    owner_memory = program.memory(store, "ada", lm="offline")
    owner_memory.add(LISBON, id="s")

    def forget_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        forget(owner_memory)
        return {field: "Lisbon"}

    memory = program.memory(store, "ada", lm=scripted(forget_and_answer), feedback=True)

    assert memory.ask(QUESTION).answer == "Lisbon"
    assert kept_answers(memory) == ()


def test_an_answer_survives_a_store_that_fails_when_it_is_kept(
    memory: UserMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise mempiler.StoreError("disk is full of SECRETS")

    monkeypatch.setattr(memory.store.answers, "keep", fail)

    assert memory.ask(QUESTION).answer == "I moved to Lisbon."
    assert "could not be kept for feedback" in caplog.text
    assert "SECRETS" not in caplog.text


# Over HTTP.


def give_feedback(api: Api, answer_id: str, **feedback: Any) -> Any:
    return api.post("/v1/users/ada/feedback", json={"answer_id": answer_id, **feedback})


def message_of(response: Any) -> str:
    return response.json()["error"]["message"]


@pytest.fixture
def api(connect: Connect) -> Api:
    """A client of `acme`, whose service keeps answers and has a session "s" of Ada's."""
    api = connect(feedback=True)
    api.add("I moved to Lisbon.", id="s")
    return api


def test_feedback_over_http_is_stored(api: Api, store: Store) -> None:
    answer_id = api.ask(QUESTION).json()["answer_id"]

    response = give_feedback(api, answer_id, correction="Porto", useful_entries=["s:1"])

    assert response.status_code == 200
    (feedback,) = store.transfer.dump(ADA).feedback
    assert feedback.answer == response.json()["answer_id"] == answer_id
    assert feedback.correction == "Porto"
    assert response.json()["memory_version"]


def test_a_tenant_opts_in_by_the_token_file(connect: Connect, tmp_path: Path) -> None:
    api = connect()
    write_limits(tmp_path, acme="feedback=on")
    globex = api.as_tenant("globex")

    for tenant_api, status in ((api, 200), (globex, 409)):
        tenant_api.add("I moved to Lisbon.")
        answer_id = tenant_api.ask(QUESTION).json()["answer_id"]
        assert give_feedback(tenant_api, answer_id, right=True).status_code == status

    assert api.service.store.transfer.dump(Owner("ada", "globex")).answers == ()


def test_a_tenant_may_opt_out_of_what_the_service_does(connect: Connect, tmp_path: Path) -> None:
    api = connect(feedback=True)
    write_limits(tmp_path, acme="feedback=off")
    api.add("I moved to Lisbon.")

    response = give_feedback(api, api.ask(QUESTION).json()["answer_id"], right=True)

    assert response.status_code == 409
    assert "an operator sets feedback=on behind the tenant's token" in message_of(response)


def test_feedback_on_an_unknown_answer_is_404(api: Api) -> None:
    response = give_feedback(api, mempiler.new_answer_id(), right=True)

    assert response.status_code == 404
    assert "there is no answer" in message_of(response)


@pytest.mark.parametrize(
    "feedback",
    [{"right": "yes"}, {"correction": ""}, {"useful_entries": ["x"] * 101}, {"surprise": 1}],
)
def test_malformed_feedback_is_400(api: Api, feedback: dict[str, Any]) -> None:
    answer_id = api.ask(QUESTION).json()["answer_id"]

    assert give_feedback(api, answer_id, **feedback).status_code == 400


# In the chat.


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_the_chat_has_an_id_under_which_it_is_rated(
    reach: Reach, store: Store, tmp_path: Path, model: str, stream: bool
) -> None:
    api, client, _ = reach(lambda body: "[[ ## answer ## ]]\nLisbon\n\n[[ ## completed ## ]]")
    write_limits(tmp_path, acme="feedback=on")
    api.add("I moved to Lisbon.", id="s")

    response: Any = client.chat.completions.create(
        model=model, user="ada", messages=[{"role": "user", "content": QUESTION}], stream=stream
    )
    extension = response.mempiler if not stream else extension_of(response)

    assert give_feedback(api, extension["answer_id"], right=True).status_code == 200
    (kept,) = store.transfer.dump(ADA).answers
    assert kept.question == QUESTION
    assert "Lisbon" in kept.answer
    # Without the question itself, which is the first turn of the session.
    assert kept.open_turns == {extension["session"]: 0}
    assert set(kept.sources) == {"s:1", f"{extension['session']}:1"}


def extension_of(stream: Any) -> dict[str, Any]:
    """Return the field `mempiler` of a stream."""
    with stream:
        (extension,) = [chunk.mempiler for chunk in stream if hasattr(chunk, "mempiler")]
    return extension


def test_a_repeated_request_gets_the_id_of_the_stored_answer(api: Api) -> None:
    first = api.chat(QUESTION).json()
    repeated = api.chat(QUESTION, headers={"x-stainless-retry-count": "1"}).json()

    assert repeated["choices"][0]["message"]["content"] == "I moved to Lisbon."
    assert repeated["mempiler"]["answer_id"] == first["mempiler"]["answer_id"]
    assert give_feedback(api, repeated["mempiler"]["answer_id"], right=True).status_code == 200


def test_a_forgotten_chat_takes_its_answer(api: Api, store: Store) -> None:
    session = api.chat(QUESTION).json()["mempiler"]["session"]
    assert len(store.transfer.dump(ADA).answers) == 1

    api.delete(f"/v1/users/ada/sessions/{session}")

    assert store.transfer.dump(ADA).answers == ()


# By clients.


def test_clients_give_feedback(api: Api) -> None:
    with Client(api.address, TOKENS["acme"]) as client:
        memory = client.memory("ada")
        feedback = memory.feedback(memory.ask(QUESTION).answer_id, correction="Porto")

    assert (feedback.right, feedback.correction) == (False, "Porto")


def test_clients_for_asyncio_give_feedback(api: Api) -> None:
    async def rate() -> Any:
        async with AsyncClient(api.address, TOKENS["acme"]) as client:
            memory = client.memory("ada")
            answer = await memory.ask(QUESTION)
            return await memory.feedback(answer.answer_id, right=True)

    assert asyncio.run(rate()).right is True


def test_a_client_is_told_how_to_opt_in(connect: Connect) -> None:
    api = connect()
    api.add("I moved to Lisbon.")
    with Client(api.address, TOKENS["acme"]) as client:
        memory = client.memory("ada")
        with pytest.raises(ConflictError, match="feedback=on"):
            memory.feedback(memory.ask(QUESTION).answer_id, right=True)
