"""Runs that fail or reach a limit: dead endpoints, refused prompts, broken runs, budgets with many calls in flight."""

import os
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import UserError, build, load, save
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.engines.prices import TokenPrices, litellm_module
from mempiler.programs.names import METHODS
from mempiler.runs.scoring import score_questions
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.manifest import is_intact
from mempiler.runs.pages.facts import usage_line
from mempiler.runs.results import Evaluation

from ..run_inputs import run_inputs

OWN = """
from mempiler import Entry, EntryReader, Memory, Method, Turn, Update, Writer

class Notebook(Memory):
    def entries(self):
        return ()

class NoteWriter(Writer):
    Memory = Notebook

    def update(self, memory, item, extraction=None):
        return item.summary.strip()

class Broken(Method):
    def __init__(self):
        super().__init__(NoteWriter(), EntryReader(5))

class Named(Memory):
    turns: tuple[Turn, ...] = ()
    def entries(self):
        return tuple(Entry(id="note", text=turn.text) for turn in self.turns)

class NamingWriter(Writer):
    Memory = Named

    def update(self, memory, item, extraction=None):
        return Update(memory.replace(turns=(*memory.turns, *item.turns)))

class SameIds(Method):
    def __init__(self):
        super().__init__(NamingWriter(), EntryReader(5))

class Store:
    def __init__(self):
        self.lines = []

    def add(self, session):
        self.lines += session.lines()

    def search(self, query, k):
        return self.lines[-k:]

class Full(Store):
    def add(self, session):
        if session.id.endswith("2"):
            raise OSError("disk full")
        super().add(session)

class NeedsAddress(Store):
    def __init__(self, url):
        super().__init__()
"""
DATA = ("--benchmark", "locomo", "--train", "6", "--dev", "8", "--test", "8")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> Any:
    """Runs a command that may name the module `own_mistakes`; gives exit code, standard output and last error line."""
    (tmp_path / "own_mistakes.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        code, out, err = cli(*words)
        return code, out, err.splitlines()[-1] if err else ""

    return run


@pytest.mark.parametrize("command", ["evaluate", "compile"])
def test_a_method_that_raises_ends_with_4_names_its_own_line_and_saves_nothing(
    call, tmp_path, command
) -> None:
    words = ["--optimizer", "labeled", "--out", tmp_path / "out"] if command == "compile" else []
    code, _, line = call(command, "own_mistakes:Broken", *words, *DATA)
    told = "'Session' object has no attribute 'summary' (own_mistakes.py:12)"
    assert code == 4
    assert (
        f"broken run: 8 of 8 questions failed, --max-failure-rate allows 10%; most often: AttributeError: {told}"
        in line
    )
    assert not (tmp_path / "out").exists()
    code, out, _ = call(*line.split("; mempiler ")[1].split(" lists all")[0].split())
    assert code == 0
    assert out.count("(own_mistakes.py:12)") == 8


def test_force_saves_a_broken_program_and_an_older_one_stays(call: Any, tmp_path: Path) -> None:
    words = [
        "compile",
        "own_mistakes:Broken",
        "--optimizer",
        "labeled",
        *DATA,
        "--out",
        tmp_path / "out",
    ]
    assert call(*words, "--force")[0] == 4
    assert is_intact(tmp_path / "out")
    save(build("turn-rag", k=3), tmp_path / "out")
    code, _, line = call(*words)
    assert code == 4
    assert "no program was saved (--force saves one)" in line
    assert load(tmp_path / "out").method.config["k"] == 3


def test_answers_that_cannot_be_read_end_with_4_before_anything_is_tuned(
    stub: Any, mempiler_cli: Any
) -> None:
    server = stub(
        lambda n, text: None if "Ingrid" in text.rsplit("question ## ]]", 1)[-1] else "garbled"
    )
    ran = mempiler_cli(server, "compile", "turn-rag", "--optimizer", "labeled", dev=12)
    assert ran.code == 4
    assert ran.out == ""
    assert "answer" in ran.line.split("most often: ")[1]
    assert (
        len(server.texts) <= 1 + 2 * 12
    )  # the adapter's own question, and each dev question twice


@pytest.mark.parametrize("command", ["evaluate", "compile"])
def test_a_store_that_loses_too_many_sessions_ends_with_4(call: Any, command: str) -> None:
    words = ["--optimizer", "labeled"] if command == "compile" else []
    code, _, line = call(command, "own_mistakes:Full", *words, *DATA)
    assert code == 4
    assert re.search(
        r"broken run: \d of \d+ writes failed, --max-failure-rate allows 10%; .*disk full", line
    )


def test_lost_sessions_within_the_allowed_share_end_with_0(call: Any) -> None:
    assert call("evaluate", "own_mistakes:Full", *DATA, "--max-failure-rate", "0.5")[0] == 0


@pytest.mark.parametrize(
    ("program", "more", "message"),
    [
        ("own_mistakes:NeedsAddress", [], "own_mistakes:NeedsAddress: cannot be made without url"),
        ("own_mistakes:SameIds", [], "own_mistakes:SameIds: entries have the same id: 'note'"),
        ("turn-rag", ["--test", "0"], "test = 0: no question would be asked"),
        ("turn-rag", ["--split", "train", "--train", "0"], "train = 0: no question would be asked"),
    ],
)
def test_options_that_could_only_give_an_empty_or_confusing_score_are_refused_in_one_line(
    call: Any, program: str, more: list[str], message: str
) -> None:
    code, out, line = call("evaluate", program, "--benchmark", "locomo", "--test", "4", *more)
    assert code == 2
    assert out == ""
    assert message in line


def always(fault: str) -> Any:
    return lambda n, text: fault


@pytest.mark.parametrize(
    ("script", "code", "words", "requests"),
    [
        (always("500"), 3, "5 times in a row, stopped: .*the server has a fault", 5),
        (always("no-json"), 3, "5 times in a row", 5),
        (always("dead"), 3, "5 times in a row", 1),
        (always("401"), 2, "refuses the key: .*no such key", 1),
        (lambda n, text: "500" if n % 3 else None, 3, "failed 14 of 20 calls", 20),
    ],
)
def test_an_endpoint_that_stays_away_stops_the_run_with_one_line(
    stub, mempiler_cli, script, code, words, requests
):
    server = stub(script)
    ran = mempiler_cli(server, "evaluate", "turn-rag", test=24)
    assert ran.code == code
    assert ran.out == ""
    assert len(server.texts) == requests
    assert re.search(
        f"^mempiler: the model's endpoint .*{words}.*; --resume \\S+ goes on", ran.line
    )


@pytest.mark.parametrize("fault", ["dead", "stall"])
def test_no_answer_to_a_few_questions_is_no_score(stub, mempiler_cli, fault):
    server = stub(always(fault))
    ran = mempiler_cli(server, "evaluate", "turn-rag", "--timeout", "0.2", test=4)
    assert ran.code == 3
    assert ran.out == ""
    assert "answered none of 4 questions" in ran.line
    assert ran.resume


WHERE = {"pramem": "movielens", "h2memory": "palbench.restate"}
SMALLER = {"pramem": {"rounds": 2}}


class Strict(OfflineEngine):
    """The offline engine, which refuses one prompt in thirty-three: by turns for its content and for its length."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.refused = 0

    def complete(self, request: Any) -> Any:
        self.asked += 1
        if self.asked % 33 == 7:
            self.refused += 1
            raise (
                InvalidRequestError("content filter")
                if self.refused % 2
                else ContextLengthError("too long")
            )
        return super().complete(request)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "no-memory"])
def test_every_method_finishes_and_loses_at_most_the_refused_calls(name: str) -> None:
    questions = benchmark(WHERE.get(name, "locomo"))
    examples = questions.examples[:20]
    engine = Strict()
    lm = MeteredLM("strict/test", engine=engine, cache=False, temperature=0.0)
    with dspy.context(lm=lm):
        program = build(name, questions.task, embedder(), **SMALLER.get(name, {}))
        found = score_questions(program, questions, examples, lm.meter, threads=1)
    assert len(found.rows) == len(examples)
    assert engine.refused > 0
    assert found.outcomes["lost"] == engine.refused
    assert {row.failure.kind for row in found.rows if row.failure} <= {"refused", "too-long"}


LIMITS = [("max_usd", 0.005), ("max_tokens", 10_000), ("max_calls", 30)]


def run(server: Any, threads: int, **limits: Any) -> Evaluation:
    """Evaluates turn RAG against a server, at the prices of a small model, within limits."""
    meter, guard = Meter(), BudgetGuard(Limits(**limits))
    prices = TokenPrices(4e-7, 1.6e-6)
    lm = language_model(server.model, meter=meter, api_base=server.url, guard=guard, prices=prices)
    asked = benchmark("locomo")
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        return score_questions(
            build("turn-rag", asked.task), asked, asked.examples[:100], meter, threads
        )


def spent(found: Evaluation) -> dict[str, float]:
    tokens = found.tokens["input"] + found.tokens["output"]
    return {"max_usd": found.cost or 0, "max_tokens": tokens, "max_calls": found.calls["task"]}


def largest(found: Evaluation) -> dict[str, float]:
    """What the largest call took of each limit; calls themselves are counted before they are made."""
    tokens = max(row.prompt_tokens + row.output_tokens for row in found.rows)
    return {
        "max_usd": max(row.cost or 0 for row in found.rows),
        "max_tokens": tokens,
        "max_calls": 0,
    }


@pytest.mark.parametrize(
    ("name", "limit", "usage", "threads"),
    [
        *((*each, True, 64) for each in LIMITS),
        *((*each, False, threads) for each in LIMITS[:2] for threads in (1, 64)),
    ],
)
def test_a_limit_is_overrun_by_one_call_at_most_where_the_endpoint_tells_no_usage_too(
    stub: Any, name: str, limit: float, usage: bool, threads: int
) -> None:
    server = stub(usage=usage, delay=0.2 if usage else 0.0)
    found = run(server, threads, **{name: limit})
    assert found.stopped == f"budget reached: {name.replace('_', '-')} {limit:g}"
    assert limit <= spent(found)[name] <= limit + largest(found)[name]
    if usage:
        assert "estimated" not in usage_line(found.metered_usage)
        return
    calls, asked = found.calls["task"], sum(map(len, server.texts)) / 4
    assert calls == found.tokens["estimated_calls"] == len(server.texts) < 30
    assert asked <= found.tokens["input"] <= 1.3 * asked
    assert (
        f"tokens (estimated for {calls} calls: the endpoint reports none, or too few)"
        in usage_line(found.metered_usage)
    )


def test_an_embedding_endpoint_is_in_limits_and_tables(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stub()

    def embedded(server: Any, **limits: Any) -> Evaluation:
        about = {"embedder": server.model, "embedder_api_base": server.url}
        return run_evaluate("turn-rag", run_inputs("locomo", test=4, threads=1, **limits, **about))

    with pytest.raises(UserError, match=f"the price of {server.model} is not known"):
        embedded(server, max_usd=1)
    monkeypatch.setitem(litellm_module().model_cost, server.model, {"input_cost_per_token": 1e-6})
    stopped = embedded(server, max_usd=150e-6)
    assert stopped.stopped == "budget reached: max-usd 0.00015"
    assert stopped.rows == ()
    assert len(server.requests) == 1
    found = embedded(server)
    # What the first of them had embedded is not asked for again.
    requests = [body["input"] for _, _, body in server.requests[1:]]
    sent = found.tokens["input"] - found.answering_usage.input_tokens
    assert found.calls["embedding"] == len(requests)
    assert sent == sum(sum(map(len, texts)) // 4 for texts in requests)
    assert found.cost == pytest.approx(sent * 1e-6)
    assert f"{found.calls['embedding']} embedding; " in usage_line(found.metered_usage)


def test_embedder_of_a_users_program_is_counted_and_keeps_to_the_limits_of_the_run(
    stub: Any,
) -> None:
    server = stub()
    remote = embedder(server.model, server.url)
    program = build("turn-rag", embedder=remote)

    limited = run_inputs("locomo", test=4, threads=1, max_calls=1)
    stopped = run_evaluate(program, limited)
    assert stopped.stopped == "budget reached: max-calls 1"
    assert len(server.requests) == 1

    whole = run_evaluate(program, run_inputs("locomo", test=4, threads=1))
    assert whole.calls["embedding"] == len(server.requests) - 1 > 0

    # The limits were those of the runs: afterwards, nobody counts what the user embeds.
    remote.embed(["something else"])
    assert whole.calls["embedding"] == len(server.requests) - 2


@pytest.mark.parametrize("status", [400, 401])
def test_a_run_whose_endpoint_repeats_the_key_keeps_and_prints_it_nowhere(
    stub: Any, mempiler_cli: Any, cli: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    key = f"sk-of-the-operator-{status}"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server = stub(lambda n, text: f"echo {status}" if n % 2 else None)
    ran = mempiler_cli(server, "evaluate", "turn-rag")
    assert ran.code in (2, 4)
    assert server.requests[0][1]["Authorization"] == f"Bearer {key}"

    _, shown, complaint = cli("show", "last", "--failed")
    assert "[secret]" in ran.err + shown
    home = Path(os.environ["MEMPILER_HOME"])
    kept = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert len(kept) > 10_000
    assert key not in ran.out + ran.err + shown + complaint
    assert key.encode() not in kept
