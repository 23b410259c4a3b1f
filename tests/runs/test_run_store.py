"""What a run keeps: memories and answers that a later process takes up where the first one stopped."""

import json
import sqlite3
import zlib
from contextlib import closing

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler import DataError, Memory, Update, UserError, Writer, build, predictor
from mempiler.engines.embedders import embedder
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.programs.cache import MemoryCache
from mempiler.programs.recording import record_failure
from mempiler.records import Failure
from mempiler.runs.folder import RunFolder
from mempiler.runs.run_store import RunStore
from mempiler.signatures.answering import AnswerFromContext

from .evaluations import row


def program_of(folder):
    store = RunStore(folder / "run.sqlite")
    return build("memory-r2", embedder=embedder(), cache=MemoryCache(store.memories), chunk_turns=3)


def test_a_later_process_reads_memories_and_their_steps_without_a_call(
    scripted, fact_replies, make_history, tmp_path
):
    def traced(program):
        with dspy.context(trace=[]):
            program(history=make_history(3), question="Where?", evidence_ids=("D2:2",))
            return [(inputs, prediction.toDict()) for _, inputs, prediction in dspy.settings.trace]

    lm = scripted(fact_replies)
    with dspy.context(lm=lm):
        first, fresh = program_of(tmp_path).remember(make_history(3)), traced(program_of(tmp_path))
        written = sum(lm.engine.calls.values()) - 1
        second, read = program_of(tmp_path).remember(make_history(3)), traced(program_of(tmp_path))
        assert sum(lm.engine.calls.values()) == written + 2
        program_of(tmp_path).remember(make_history(4))
    assert second.memory == first.memory
    assert read == fresh
    assert len(read) == 3
    assert written == 12
    assert sum(lm.engine.calls.values()) == written + 2 + 4


class Paired(Writer):
    """Keeps every item, and asks about every second one."""

    class Memory(Memory):
        seen: tuple[str, ...] = ()
        said: tuple[str, ...] = ()

    def __init__(self):
        super().__init__()
        self.call_predictor = predictor(AnswerFromContext)
        self.writes = []

    def update(self, memory, item, extraction=None):
        self.writes.append(item.id)
        seen = (*memory.seen, item.id)
        if len(seen) % 2:
            return Update(memory.model_copy(update={"seen": seen}))
        said = self.call_predictor(context=", ".join(seen), question=item.id).answer
        return Update(memory.model_copy(update={"seen": seen, "said": (*memory.said, said)}))


def numbered(scripted):
    return scripted(lambda kind, text, n: {"reasoning": "", "answer": f"answer {n}"})


def remembered(path, writer, history):
    with closing(RunStore(path)) as store:
        return MemoryCache(store.memories).get_or_write(writer, history)


def test_only_what_took_a_call_is_kept_and_the_rest_is_made_again_for_nothing(
    scripted, make_history, tmp_path
):
    path, lm = tmp_path / "run.sqlite", numbered(scripted)
    first, second = Paired(), Paired()
    with dspy.context(lm=lm):
        node = remembered(path, first, make_history(5))
        assert len(rows_of(path)) == 2
        read = remembered(path, second, make_history(5))
        assert read.memory == node.memory
        assert len(lm.engine.prompts) == 2
        assert second.writes == ["D1", "D3", "D5"]
        assert [len(each.write_calls) for each in read.ancestors()] == [
            len(each.write_calls) for each in node.ancestors()
        ]
        assert remembered(path, Paired(), make_history(6)).memory.said == (
            "answer 1",
            "answer 2",
            "answer 3",
        )


def rows_of(path):
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT id, value FROM nodes").fetchall()
    return {
        id: json.loads(zlib.decompress(value) if isinstance(value, bytes) else value)
        for id, value in rows
    }


def test_stored_memories_grow_with_the_history_and_not_with_its_square(
    scripted, fact_replies, make_history, tmp_path
):
    history = make_history(8)
    with dspy.context(lm=scripted(fact_replies)):
        program_of(tmp_path).remember(history)
    rows = rows_of(tmp_path / "run.sqlite")
    sizes = [len(json.dumps(rows[prefix]["changes"])) for prefix in history.prefixes]
    assert max(sizes) < 1.2 * min(sizes)


def test_a_memory_is_not_put_together_from_what_does_not_belong_together(
    scripted, make_history, tmp_path
):
    path, lm, history = tmp_path / "run.sqlite", numbered(scripted), make_history(4)
    with dspy.context(lm=lm):
        remembered(path, Paired(), history)
        with closing(sqlite3.connect(path)) as database:
            database.execute("DELETE FROM nodes WHERE id = ?", (history.prefixes[1],))
            database.commit()
        assert remembered(path, Paired(), history).memory.said == ("answer 3", "answer 4")
        assert remembered(path, Paired(), history).memory.said == ("answer 3", "answer 4")
    assert len(lm.engine.prompts) == 4


def test_a_memory_after_one_that_is_not_stored_is_stored_whole(scripted, make_history, tmp_path):
    path, history = tmp_path / "run.sqlite", make_history(4)
    broken = scripted(
        lambda kind, text, n: "no fields" if n < 3 else {"reasoning": "", "answer": f"answer {n}"}
    )

    class Patient(Paired):
        def update(self, memory, item, extraction=None):
            try:
                return super().update(memory, item, extraction)
            except AdapterParseError:
                record_failure(Failure(kind="parse", where="ask", message="no answer"))
                return Update(memory.model_copy(update={"seen": (*memory.seen, item.id)}))

    with dspy.context(lm=broken):
        node = remembered(path, Patient(), history)
        assert [bool(each.failures) for each in node.ancestors()] == [
            False,
            False,
            True,
            False,
            False,
        ]
        assert list(rows_of(path)) == [history.prefixes[3]]
        assert "memory" in rows_of(path)[history.prefixes[3]]
        asked = len(broken.engine.prompts)
        assert remembered(path, Patient(), history).memory == node.memory
    assert len(broken.engine.prompts) == asked + 1


@pytest.mark.parametrize(("cache", "paid"), [(True, 1), (False, 2)])
def test_equal_calls_share_an_answer_only_where_the_lm_cache_is_on(scripted, tmp_path, cache, paid):
    engine, said = scripted(lambda kind, text, n: f"answer {n}").engine, []
    for _ in range(2):
        settings = {"engine": engine, "cache": cache, "temperature": 0.0}
        answers = RunStore(tmp_path / "run.sqlite").answers
        lm = MeteredLM("scripted/answers", Metering(answers=answers), **settings)
        said.append([lm("same question"), lm("same question")])
    assert said[0] == said[1]
    assert len(engine.prompts) == paid
    dspy.cache.reset_memory_cache()


def test_an_answer_is_found_again_at_another_address_and_with_another_key(stub, tmp_path):
    server, settings, said = stub(), {"cache": False, "num_retries": 0}, []
    for url, key in ((server.url, "one"), ("http://127.0.0.1:9/v1", "two")):
        answers = RunStore(tmp_path / "run.sqlite").answers
        said.append(
            MeteredLM(
                server.model, Metering(answers=answers), api_base=url, api_key=key, **settings
            )("Where?")
        )
    assert said[0] == said[1]


def test_only_rows_of_the_same_phase_that_have_an_answer_are_known(tmp_path):
    failed = row("failed", failure=Failure(kind="endpoint", where="answer", message="gone"))
    with closing(RunStore(tmp_path / "run.sqlite")) as store:
        store.rows.put("before", row())
        store.rows.put("before", failed)
        assert list(store.rows.answered_rows("before", ["q0", "failed"])) == ["q0"]
        assert store.rows.answered_rows("after", ["q0", "failed"]) == {}
        assert store.part("variant").rows.answered_rows("before", ["q0"]) == {}


def test_a_run_is_resumed_with_the_settings_it_was_started_with_and_by_one_process():
    run = RunFolder.create("evaluate-turn-rag", {"lm": "offline", "seed": 1}).path.name
    assert RunFolder.resume(run, {"lm": "offline", "seed": 1}).path.name == run
    for other in ({"lm": "offline", "seed": 2}, {"lm": "offline"}):
        with pytest.raises(UserError, match=r"was started with seed = 1, not (2|None)"):
            RunFolder.resume(run, other)
    held = RunFolder.open(run).recording
    with held(), pytest.raises(UserError, match=f"{run} still runs in another process"), held():
        pass
    with held():  # it has ended
        pass


def test_a_damaged_value_or_file_is_one_line(tmp_path):
    with closing(RunStore(tmp_path / "run.sqlite")) as store:
        for value in ("{not", b"not compressed"):
            with closing(sqlite3.connect(store.path)) as database:
                database.execute("INSERT OR REPLACE INTO rows VALUES ('scope', 'id', ?)", (value,))
                database.commit()
            with pytest.raises(DataError, match=r"run\.sqlite: is damaged: [^\n]+$"):
                store.get("rows", "scope", "id")
    (tmp_path / "run.sqlite").write_text("no database " * 100)
    with pytest.raises(DataError, match="is no file of a run"):
        RunStore(tmp_path / "run.sqlite")
