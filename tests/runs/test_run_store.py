"""A run stores memories and answers, so that a later process continues where it stopped.

A history consists of sessions. A program writes them into a memory one by one, and may ask a model
for each of them. The memory after each session is kept, so a session is written only once.
"""

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler import DataError, History, Memory, Update, UserError, Writer, build, predictor
from mempiler.engines.embedders import embedder
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.programs.cache import CachedMemory, MemoryCache
from mempiler.programs.program import MemoryProgram
from mempiler.programs.recording import record_failure
from mempiler.records import Failure
from mempiler.runs.folder import RunFolder
from mempiler.runs.run_store import RunStore
from mempiler.signatures.answering import AnswerFromContext

from .evaluations import row

CALLS_PER_SESSION = 4
"""`new_program` writes a session of six turns in two chunks of three, with two calls each."""


def new_program(store_folder: Path) -> MemoryProgram:
    """Return Memory-R2 with the memories of a store, as a later process would make it."""
    store = RunStore(store_folder / "run.sqlite")
    cache = MemoryCache(store.memories)
    return build("memory-r2", embedder=embedder(), cache=cache, chunk_turns=3)


def trace_of_question(program: MemoryProgram, history: History) -> list[tuple[Any, Any]]:
    """Ask a question, and return inputs and outputs of the calls that its trace shows.

    Optimizers read such traces. They show the calls that wrote the evidence of the question, which
    is turn D2:2, even if an earlier process made them.
    """
    with dspy.context(trace=[]):
        program(history=history, question="Where?", evidence_ids=("D2:2",))
        return [(inputs, outputs.toDict()) for _, inputs, outputs in dspy.settings.trace]


def test_a_later_process_reads_memories_from_the_store(
    scripted, fact_replies, make_history, tmp_path
):
    history = make_history(sessions=3)
    lm = scripted(fact_replies)

    with dspy.context(lm=lm):
        first = new_program(tmp_path).remember(history)
        calls_of_first_process = len(lm.engine.prompts)
        second = new_program(tmp_path).remember(history)

    assert calls_of_first_process > 0
    assert len(lm.engine.prompts) == calls_of_first_process
    assert second.memory == first.memory


def test_a_later_process_reads_the_calls_that_wrote_the_evidence_from_the_store(
    scripted, fact_replies, make_history, tmp_path
):
    """The trace shows the two calls that wrote the evidence, and the one that answered."""
    history = make_history(sessions=3)
    lm = scripted(fact_replies)

    with dspy.context(lm=lm):
        first_trace = trace_of_question(new_program(tmp_path), history)
        calls_of_first_process = len(lm.engine.prompts)
        second_trace = trace_of_question(new_program(tmp_path), history)

    assert len(first_trace) == 3
    assert second_trace == first_trace
    # Only the question was asked again.
    assert len(lm.engine.prompts) == calls_of_first_process + 1


def test_a_longer_history_costs_only_the_calls_of_its_new_session(
    scripted, fact_replies, make_history, tmp_path
):
    lm = scripted(fact_replies)

    with dspy.context(lm=lm):
        new_program(tmp_path).remember(make_history(sessions=3))
        calls_before = len(lm.engine.prompts)
        new_program(tmp_path).remember(make_history(sessions=4))

    assert calls_before == 3 * CALLS_PER_SESSION
    assert len(lm.engine.prompts) - calls_before == CALLS_PER_SESSION


class EverySecondWriter(Writer):
    """A writer that keeps the ids of all items, and asks the model about every second one."""

    class Memory(Memory):
        """The ids of the items, and the answers about every second one."""

        item_ids: tuple[str, ...] = ()
        answers: tuple[str, ...] = ()

    def __init__(self):
        super().__init__()
        self.ask = predictor(AnswerFromContext)
        self.updated_items = []

    def update(self, memory, item, extraction=None):
        self.updated_items.append(item.id)
        item_ids = (*memory.item_ids, item.id)
        if len(item_ids) % 2 == 1:
            return Update(memory.model_copy(update={"item_ids": item_ids}))

        answer = self.ask(context=", ".join(item_ids), question=item.id).answer
        answers = (*memory.answers, answer)
        return Update(memory.model_copy(update={"item_ids": item_ids, "answers": answers}))


def numbered_answer(kind: str, text: str, n: int) -> dict[str, str]:
    """A scripted model whose first answer is "answer 1", whose second is "answer 2", and so on."""
    return {"reasoning": "", "answer": f"answer {n}"}


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """The path of a run's store, which is not there yet."""
    return tmp_path / "run.sqlite"


def remember(store_path: Path, writer: Writer, history: History) -> CachedMemory:
    """Write the memory of a history, or read it from the store, as a later process would."""
    with closing(RunStore(store_path)) as store:
        return MemoryCache(store.memories).get_or_write(writer, history)


def stored_memories(store_path: Path) -> dict[str, Any]:
    """Return the stored memories by what they are of.

    A memory is of the first so many sessions of a history, which `history.prefixes` names.
    """
    with closing(sqlite3.connect(store_path)) as database:
        rows = database.execute("SELECT id, value FROM nodes").fetchall()
    memories: dict[str, Any] = {}
    for prefix, value in rows:
        is_compressed = isinstance(value, bytes)
        memories[prefix] = json.loads(zlib.decompress(value) if is_compressed else value)
    return memories


def test_only_memories_that_took_a_call_are_stored(scripted, make_history, store_path):
    """`EverySecondWriter` asks the model about the second and the fourth of five sessions."""
    with dspy.context(lm=scripted(numbered_answer)):
        remember(store_path, EverySecondWriter(), make_history(5))

    assert len(stored_memories(store_path)) == 2


def test_a_later_process_writes_the_sessions_that_took_no_call_again(
    scripted, make_history, store_path
):
    """To write them costs nothing, so storing them would only take room."""
    lm = scripted(numbered_answer)
    second_writer = EverySecondWriter()

    with dspy.context(lm=lm):
        first = remember(store_path, EverySecondWriter(), make_history(5))
        calls_of_first_process = len(lm.engine.prompts)
        second = remember(store_path, second_writer, make_history(5))

    assert len(lm.engine.prompts) == calls_of_first_process
    assert second_writer.updated_items == ["D1", "D3", "D5"]
    assert second.memory == first.memory
    # The calls that wrote each memory are known, too.
    calls_of_first = [len(memory.write_calls) for memory in first.ancestors()]
    calls_of_second = [len(memory.write_calls) for memory in second.ancestors()]
    assert calls_of_second == calls_of_first


def test_a_longer_history_continues_from_what_is_stored(scripted, make_history, store_path):
    """`EverySecondWriter` asks the model about the second, the fourth and the sixth session."""
    with dspy.context(lm=scripted(numbered_answer)):
        remember(store_path, EverySecondWriter(), make_history(5))

        longer = remember(store_path, EverySecondWriter(), make_history(6))

    # The model numbers its answers. The first two are from the store.
    assert longer.memory.answers == ("answer 1", "answer 2", "answer 3")


def test_the_stored_memories_of_all_sessions_take_about_the_same_room(
    scripted, fact_replies, make_history, store_path
):
    """Each session adds six turns to the memory. Only what a session changed is stored."""
    history = make_history(8)

    with dspy.context(lm=scripted(fact_replies)):
        new_program(store_path.parent).remember(history)

    memories = stored_memories(store_path)
    lengths = [len(json.dumps(memories[prefix]["changes"])) for prefix in history.prefixes]
    assert len(lengths) == 8
    assert max(lengths) < 1.2 * min(lengths)


def delete_stored_memory(store_path: Path, prefix: str) -> None:
    """Delete the memory of the first so many sessions of a history from a store."""
    with closing(sqlite3.connect(store_path)) as database:
        database.execute("DELETE FROM nodes WHERE id = ?", (prefix,))
        database.commit()


def test_a_stored_memory_is_not_used_if_the_one_before_it_is_missing(
    scripted, make_history, store_path
):
    """A memory is stored as what has changed since the one before.

    `EverySecondWriter` asks the model about the second and the fourth session. The memory after the
    second session is lost, so both are asked about again.
    """
    history = make_history(4)
    _, prefix_of_two_sessions, _, _ = history.prefixes

    with dspy.context(lm=scripted(numbered_answer)):
        remember(store_path, EverySecondWriter(), history)
        delete_stored_memory(store_path, prefix_of_two_sessions)

        rewritten = remember(store_path, EverySecondWriter(), history)
        reread = remember(store_path, EverySecondWriter(), history)

    # The model numbers its answers: 1 and 2 are those of the first process.
    assert rewritten.memory.answers == ("answer 3", "answer 4")
    assert reread.memory.answers == ("answer 3", "answer 4")


class PatientWriter(EverySecondWriter):
    """A writer that records an answer that it cannot read as a failure, and goes on."""

    def update(self, memory, item, extraction=None):
        try:
            return super().update(memory, item, extraction)
        except AdapterParseError:
            record_failure(Failure(kind="parse", where="ask", message="no answer"))
            item_ids = (*memory.item_ids, item.id)
            return Update(memory.model_copy(update={"item_ids": item_ids}))


def unreadable_at_first(kind: str, text: str, n: int) -> dict[str, str] | str:
    """A scripted model whose first two answers cannot be read: that to a question, and a retry."""
    return "no fields" if n < 3 else numbered_answer(kind, text, n)


def test_a_memory_after_one_with_a_failure_is_stored_completely(scripted, make_history, store_path):
    """`PatientWriter` asks the model about the second and the fourth session.

    It cannot read the first answer, so the second memory has a failure and is not stored. The
    fourth could not be restored from what has changed since then.
    """
    history = make_history(4)
    *_, prefix_of_four_sessions = history.prefixes

    with dspy.context(lm=scripted(unreadable_at_first)):
        remember(store_path, PatientWriter(), history)

    memories = stored_memories(store_path)
    assert list(memories) == [prefix_of_four_sessions]
    # A memory that is stored as changes has the key "changes" instead.
    assert "memory" in memories[prefix_of_four_sessions]


def test_a_later_process_asks_again_about_a_session_that_failed(scripted, make_history, store_path):
    """The answer about the second session could not be read; that about the fourth is stored."""
    history = make_history(4)
    lm = scripted(unreadable_at_first)

    with dspy.context(lm=lm):
        first = remember(store_path, PatientWriter(), history)
        calls_of_first_process = len(lm.engine.prompts)
        second = remember(store_path, PatientWriter(), history)

    assert len(lm.engine.prompts) == calls_of_first_process + 1
    assert second.memory == first.memory


def number_of_call(kind: str, text: str, n: int) -> str:
    """A scripted model that numbers its answers."""
    return f"answer {n}"


@pytest.mark.parametrize(
    ("cache", "call_count"),
    [
        pytest.param(True, 1, id="DSPy's cache is on: the second call takes the first answer"),
        pytest.param(False, 2, id="the cache is off"),
    ],
)
def test_a_later_process_gets_the_answers_to_equal_calls_in_the_same_order(
    scripted, store_path, cache, call_count
):
    engine = scripted(number_of_call).engine

    def ask_twice() -> list[Any]:
        """Ask the same question twice, as a process with the store of the run would."""
        metering = Metering(answers=RunStore(store_path).answers)
        lm = MeteredLM("scripted/answers", metering, engine=engine, cache=cache, temperature=0.0)
        return [lm("same question"), lm("same question")]

    answers_of_first_process = ask_twice()
    answers_of_second_process = ask_twice()

    assert answers_of_second_process == answers_of_first_process
    assert len(engine.prompts) == call_count
    dspy.cache.reset_memory_cache()


def test_a_stored_answer_is_known_under_another_address_and_another_key(stub, store_path):
    """A run may be resumed at another server. Nothing listens at the second address here."""
    server = stub()

    def ask(address: str, key: str) -> Any:
        metering = Metering(answers=RunStore(store_path).answers)
        lm = MeteredLM(
            server.model, metering, api_base=address, api_key=key, cache=False, num_retries=0
        )
        return lm("Where?")

    first_answer = ask(server.url, "first-key")
    second_answer = ask("http://127.0.0.1:9/v1", "second-key")

    assert second_answer == first_answer


def test_a_stored_row_is_known_only_in_its_phase(store_path):
    """A compile scores the same questions before and after."""
    with closing(RunStore(store_path)) as store:
        store.rows.put("before", row("q1"))

        assert list(store.rows.answered_rows("before", ["q1"])) == ["q1"]
        assert store.rows.answered_rows("after", ["q1"]) == {}


def test_a_stored_row_is_known_only_in_its_part(store_path):
    """A reproduction has several parts, which score the same questions."""
    with closing(RunStore(store_path)) as store:
        store.rows.put("before", row("q1"))

        assert store.part("variant").rows.answered_rows("before", ["q1"]) == {}


def test_a_question_that_failed_is_asked_again(store_path):
    failure = Failure(kind="endpoint", where="answer", message="gone")
    with closing(RunStore(store_path)) as store:
        store.rows.put("before", row("q1", failure=failure))

        assert store.rows.answered_rows("before", ["q1"]) == {}


@pytest.mark.parametrize(
    "content",
    [[], {}, {"settings": []}, {"settings": {"options": []}}, {"settings": {}, "parameters": []}],
)
def test_a_run_json_of_another_form_is_refused(content):
    """A user may name a folder that another program wrote."""
    folder = RunFolder.create("evaluate-turn-rag", {})
    (folder.path / "run.json").write_text(json.dumps(content))

    with pytest.raises(DataError, match=r"run\.json: is not the record of a run"):
        folder.read()


def test_a_run_is_worked_on_by_one_process_at_a_time():
    """A process that works on a run holds its recording."""
    run_name = RunFolder.create("evaluate-turn-rag", {}).path.name
    folder = RunFolder.open(run_name)

    with folder.recording():
        second_recording = folder.recording()
        with pytest.raises(UserError, match=f"{run_name} still runs in another process"):
            second_recording.__enter__()


@pytest.mark.parametrize("damaged_value", ["{not", b"not compressed"])
def test_a_damaged_value_in_a_store_is_named_in_one_line(store_path, damaged_value):
    """A value is JSON, which is compressed if it is long."""
    with closing(RunStore(store_path)) as store:
        with closing(sqlite3.connect(store.path)) as database:
            database.execute("INSERT INTO rows VALUES ('scope', 'id', ?)", (damaged_value,))
            database.commit()

        with pytest.raises(DataError, match=r"run\.sqlite: is damaged: ") as error:
            store.get("rows", "scope", "id")

    assert "\n" not in str(error.value)


def test_a_file_that_is_no_store_is_refused(store_path):
    store_path.write_text("no database " * 100)

    with pytest.raises(DataError, match="is no file of a run"):
        RunStore(store_path)
