"""The words of an answer while the model writes them: whose they are, and how Python gets them."""

import asyncio
import threading
from typing import Any

import pytest
from mempiler import Store, build
from mempiler.engines.models import language_model
from mempiler.errors import AnswerChangedError
from mempiler.programs.streaming import WANTED, AnswerStream
from mempiler.programs.tasks.task import QuestionAnswering
from mempiler.records.scope import holding

from tests.stub_server import StubServer

SAID = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
ANSWER = "[[ ## answer ## ]]\nTo Lisbon."


def named(server: StubServer) -> Any:
    return language_model(server.model, api_base=server.url, cache=False, retries=0, deadline=10)


@pytest.mark.parametrize(
    ("method", "task", "calls"),
    [("turn-rag", "question-answering", 1), ("turn-rag", "personal-response", 1), ("pgr", "personal-response", 3)],
)
def test_only_the_predictor_of_the_task_is_heard(store: Store, method: str, task: str, calls: int) -> None:
    with StubServer() as server:
        memory = build(method, task).memory(store, "ada", lm=named(server))
        memory.add(SAID, remember=False)
        sent: list[str] = []
        with holding(WANTED, AnswerStream(sent.append)):
            memory.remember()
            written = len(server.requests)
            answer = memory.ask("Where did I move?").answer
        streams = [bool(body.get("stream")) for _, _, body in server.requests]
        assert len(streams) - written >= calls
        assert [n for n, stream in enumerate(streams) if stream] == [len(streams) - 1]
        assert "".join(sent) == answer != ""


class Loud(QuestionAnswering):
    """Makes something else of the answer."""

    def made(self, found: Any, query: Any) -> Any:
        found.answer = found.answer.upper()
        return found


@pytest.mark.parametrize(
    ("task", "adapter", "query"),
    [
        (Loud(), "chat", {}),
        ("multiple-choice", "chat", {"options": ["(a) Lisbon", "(b) Porto"]}),
        (None, "compact", {}),
    ],
    ids=["made", "choice", "adapter"],
)
def test_answers_that_are_not_given_as_written_are_not_sent(store, task, adapter, query) -> None:
    said = {"compact": "To Lisbon."}.get(adapter, "[[ ## answer ## ]]\n(a)")
    with StubServer(answer=lambda body: said) as server:
        program = build("turn-rag", task if isinstance(task, str) else "question-answering", adapter=adapter)
        program.task = task if isinstance(task, QuestionAnswering) else program.task
        memory, sent = program.memory(store, "ada", lm=named(server)), list[str]()
        memory.add(SAID, remember=False)
        with holding(WANTED, AnswerStream(sent.append)):
            assert memory.ask("Where did I move?", **query).answer
        assert sent == []
        assert [bool(body.get("stream")) for _, _, body in server.requests] == [False]


def test_python_gets_the_words_before_the_model_has_ended(store: Store) -> None:
    heard = threading.Event()

    def between(n: int) -> None:
        assert n < 7 or heard.wait(10)

    async def asked(memory: Any) -> list[str]:
        parts = []
        async for part in memory.astream("Where did I move?"):
            heard.set()
            parts.append(part)
        return parts

    with StubServer(answer=lambda body: f"{ANSWER} In spring.", between=between) as server:
        memory = build("turn-rag").memory(store, "ada", lm=named(server))
        memory.add(SAID, remember=False)
        assert asyncio.run(asked(memory)) == ["To", " Lisbon.", " In", " spring."]


@pytest.mark.parametrize(
    ("attempts", "sent"),
    [
        (["To Lisbon"], ["To Lisbon"]),
        (["To Lis", "To Lisbon"], ["To Lis", "bon"]),
        (["To Lisbon", "To Lis"], ["To Lisbon"]),
        (["To Lis", "To Porto", "To Lisbon"], ["To Lis", "bon"]),
        (["", "To"], ["To"]),
    ],
)
def test_attempts_go_on_where_they_say_the_same(attempts: list[str], sent: list[str]) -> None:
    found: list[str] = []
    words = AnswerStream(found.append)
    for attempt in attempts:
        words.begin("headers")(f"[[ ## answer ## ]]\n{attempt}")
    assert found == sent
    assert words.remainder("To Lisbon, she said.") == "To Lisbon, she said.".removeprefix("".join(sent))
    with pytest.raises(AnswerChangedError, match="another one"):
        words.remainder("In Lisbon")
