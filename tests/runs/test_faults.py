"""Runs that fail or reach a limit: dead endpoints, refused prompts, broken programs, budgets.

A command ends with exit code 2 after a mistake of the user, with 3 if the endpoint of the model
fails, and with 4 if a run is broken: if more than 10 % of its questions fail, or of the sessions
that a memory stores. `--max-failure-rate` sets another share.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.manifest import is_intact
from mempiler.runs.pages.facts import usage_line
from mempiler.runs.results import Evaluation
from mempiler.runs.scoring import score_questions

from ..run_inputs import run_inputs

OWN_MISTAKES = """
from mempiler import Entry, EntryReader, Memory, Method, Turn, Update, Writer


class Notebook(Memory):
    def entries(self):
        return ()


class NoteWriter(Writer):
    Memory = Notebook

    def update(self, memory, item, extraction=None):
        return item.summary.strip()  # line 14: a session has no summary


class Broken(Method):
    def __init__(self):
        super().__init__(NoteWriter(), EntryReader(5))


class TurnList(Memory):
    turns: tuple[Turn, ...] = ()

    def entries(self):
        return tuple(Entry(id="note", text=turn.text) for turn in self.turns)


class TurnListWriter(Writer):
    Memory = TurnList

    def update(self, memory, item, extraction=None):
        return Update(memory.replace(turns=(*memory.turns, *item.turns)))


class SameIds(Method):
    def __init__(self):
        super().__init__(TurnListWriter(), EntryReader(5))


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

"""
"""A user's module, with methods and memory systems that make mistakes."""

EIGHT_TEST_QUESTIONS = ["--benchmark", "locomo", "--train", "6", "--dev", "8", "--test", "8"]
"""A few questions of the bundled sample: eight of them are asked in an evaluation."""

IN_THIS_PROCESS = ["--set", "isolated=false"]
"""Use a user's store in this process. To start one for it takes a second."""


class Outcome(NamedTuple):
    """What a command left behind."""

    exit_code: int
    output: str
    last_error_line: str


@pytest.fixture
def run_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> Callable[..., Outcome]:
    """A function that runs a command, which may name the user's module `own_mistakes`."""
    (tmp_path / "own_mistakes.py").write_text(OWN_MISTAKES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def run(*words: object) -> Outcome:
        exit_code, output, error_output = cli(*words)
        error_lines = error_output.splitlines() or [""]
        return Outcome(exit_code, output, error_lines[-1])

    return run


COMPILE_BROKEN_METHOD = (
    "compile",
    "own_mistakes:Broken",
    "--optimizer",
    "labeled",
    *EIGHT_TEST_QUESTIONS,
)
"""A compile of a method that makes a mistake in line 14 of its module, at every question."""


def every_request(fault: str) -> Callable[[int, str], str]:
    """Return a script for a stub server that meets every request with the same fault.

    A fault is the status of a reply, as "500", or a word: "dead" for a server that cuts the
    connection and listens no more, "stall" for one that does not reply.
    """

    def meet_with_fault(request_number: int, prompt: str) -> str:
        return fault

    return meet_with_fault


def test_a_mistake_in_a_users_method_is_reported_with_its_line(run_command: Any) -> None:
    """`Broken` asks every session for an attribute that it lacks, in line 14 of its module."""
    outcome = run_command("evaluate", "own_mistakes:Broken", *EIGHT_TEST_QUESTIONS)

    assert outcome.exit_code == 4
    message = outcome.last_error_line
    assert "broken run: 8 of 8 questions failed, --max-failure-rate allows 10%" in message
    mistake = "AttributeError: 'Session' object has no attribute 'summary' (own_mistakes.py:14)"
    assert f"most often: {mistake}" in message


def advised_command(error_line: str) -> list[str]:
    """Return the words of the command in "...; mempiler show RUN --failed lists all"."""
    _, _, advice = error_line.partition("; mempiler ")
    command, _, _ = advice.partition(" lists all")
    return command.split()


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "own_mistakes:Broken"],
        ["compile", "own_mistakes:Broken", "--optimizer", "labeled"],
    ],
    ids=["evaluate", "compile"],
)
def test_a_broken_run_advises_a_command_that_lists_all_failures(
    run_command: Any, command: list[str]
) -> None:
    """All eight questions fail, because `Broken` makes a mistake in line 14 of its module."""
    broken = run_command(*command, *EIGHT_TEST_QUESTIONS)

    shown = run_command(*advised_command(broken.last_error_line))

    assert shown.exit_code == 0
    assert shown.output.count("(own_mistakes.py:14)") == 8


def test_a_broken_compile_saves_its_program_by_force(run_command: Any, tmp_path: Path) -> None:
    """The exit code says that the run is broken, and the user has the program all the same."""
    out = tmp_path / "out"

    outcome = run_command(*COMPILE_BROKEN_METHOD, "--out", out, "--force")

    assert outcome.exit_code == 4
    assert is_intact(out)


def test_a_broken_compile_leaves_an_older_program_as_it_was(
    run_command: Any, tmp_path: Path
) -> None:
    """The older program recalls three entries (`k`), and a new one ten."""
    out = tmp_path / "out"
    save(build("turn-rag", k=3), out)

    outcome = run_command(*COMPILE_BROKEN_METHOD, "--out", out)

    assert outcome.exit_code == 4
    assert "no program was saved (--force saves one)" in outcome.last_error_line
    assert load(out).method.config["k"] == 3


def garble_answers_but_those_about_ingrid(request_number: int, prompt: str) -> str | None:
    """Script a stub server whose answers can be read only if the question names Ingrid."""
    question = prompt.rpartition("question ## ]]")[2]
    return None if "Ingrid" in question else "garbled"


def test_a_compile_whose_start_program_is_broken_does_not_pay_for_the_optimizer(
    stub: Any, mempiler_cli: Any
) -> None:
    """A compile first scores the dev questions with the program as it is.

    Here most answers cannot be read, so this first scoring fails.
    """
    server = stub(garble_answers_but_those_about_ingrid)

    result = mempiler_cli(server, "compile", "turn-rag", "--optimizer", "labeled", dev=12)

    assert result.code == 4
    assert result.out == ""
    _, _, most_often = result.error_line.partition("most often: ")
    assert "answer" in most_often
    # The adapter asks one question itself; each question of dev is asked twice at most.
    assert len(server.texts) <= 1 + 2 * 12


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "own_mistakes:Full"],
        ["compile", "own_mistakes:Full", "--optimizer", "labeled"],
    ],
    ids=["evaluate", "compile"],
)
def test_a_run_is_broken_if_the_users_store_loses_more_than_a_tenth_of_the_sessions(
    run_command: Any, command: list[str]
) -> None:
    """`Full` raises "disk full" for sessions whose id ends with 2, which is one in five."""
    outcome = run_command(*command, *EIGHT_TEST_QUESTIONS, *IN_THIS_PROCESS)

    assert outcome.exit_code == 4
    message = r"broken run: \d of \d+ writes failed, --max-failure-rate allows 10%; .*disk full"
    assert re.search(message, outcome.last_error_line)


def test_a_store_may_lose_the_share_of_sessions_that_the_user_allows(run_command: Any) -> None:
    """`Full` loses one session in five, and half of them may be lost."""
    outcome = run_command(
        "evaluate",
        "own_mistakes:Full",
        *EIGHT_TEST_QUESTIONS,
        *IN_THIS_PROCESS,
        "--max-failure-rate",
        "0.5",
    )

    assert outcome.exit_code == 0


def test_a_users_method_whose_entries_all_have_one_id_is_refused(run_command: Any) -> None:
    """Nobody could tell then which entry was recalled. `SameIds` calls all its entries "note"."""
    outcome = run_command("evaluate", "own_mistakes:SameIds", *EIGHT_TEST_QUESTIONS)

    assert outcome.exit_code == 2
    assert outcome.output == ""
    message = "own_mistakes:SameIds: entries have the same id: 'note'"
    assert message in outcome.last_error_line


def two_of_three_fail(request_number: int, prompt: str) -> str | None:
    """Answer every third request, and fail the others."""
    return None if request_number % 3 == 0 else "500"


@pytest.mark.parametrize(
    ("fault", "problem", "request_count"),
    [
        pytest.param("500", ".*the server has a fault", 5, id="errors of the server"),
        pytest.param("no-json", "", 5, id="replies that are not JSON"),
        # Only the first request gets a connection and reaches the server.
        pytest.param("dead", "", 1, id="a dead server"),
    ],
)
def test_a_run_gives_an_endpoint_up_after_five_failures_in_a_row(
    stub: Any, mempiler_cli: Any, fault: str, problem: str, request_count: int
) -> None:
    server = stub(every_request(fault))

    result = mempiler_cli(server, "evaluate", "turn-rag", test=24)

    assert result.code == 3
    assert result.out == ""
    assert len(server.texts) == request_count
    failures = f"5 times in a row, stopped: {problem}"
    message = rf"^mempiler: the model's endpoint .*{failures}.*; --resume \S+ goes on"
    assert re.search(message, result.error_line)


def test_a_run_gives_an_endpoint_up_if_more_than_half_of_20_calls_fail(
    stub: Any, mempiler_cli: Any
) -> None:
    """Two of three requests fail, so there are never five failures in a row."""
    server = stub(two_of_three_fail)

    result = mempiler_cli(server, "evaluate", "turn-rag", test=24)

    assert result.code == 3
    assert result.out == ""
    assert len(server.texts) == 20
    message = r"^mempiler: the model's endpoint .*failed 14 of 20 calls.*; --resume \S+ goes on"
    assert re.search(message, result.error_line)


def test_a_key_that_the_endpoint_refuses_stops_the_run_at_the_first_call(
    stub: Any, mempiler_cli: Any
) -> None:
    """With this key no call would succeed. To give another one is up to the user: exit code 2."""
    server = stub(every_request("401"))

    result = mempiler_cli(server, "evaluate", "turn-rag", test=24)

    assert result.code == 2
    assert result.out == ""
    assert len(server.texts) == 1
    message = r"^mempiler: the model's endpoint .*refuses the key: .*no such key"
    assert re.search(message, result.error_line)


@pytest.mark.parametrize("fault", ["dead", "stall"])
def test_a_run_without_a_single_answer_fails_however_few_questions_it_has(
    stub: Any, mempiler_cli: Any, fault: str
) -> None:
    """An endpoint is given up after five failures in a row, and here only four questions fail."""
    server = stub(every_request(fault))

    result = mempiler_cli(server, "evaluate", "turn-rag", "--timeout", "0.2", test=4)

    assert result.code == 3
    assert result.out == ""
    assert "answered none of 4 questions" in result.error_line
    assert result.resumable_run


class StrictEngine(OfflineEngine):
    """The offline engine, which refuses the 7th prompt and every 33rd after it, and counts these.

    It refuses by turns for the content and for the length.
    """

    def __init__(self) -> None:
        super().__init__()
        self.prompt_count = 0
        self.refusal_count = 0

    def complete(self, request: Any) -> Any:
        self.prompt_count += 1
        is_refused = self.prompt_count % 33 == 7
        if not is_refused:
            return super().complete(request)

        self.refusal_count += 1
        if self.refusal_count % 2 == 1:
            raise InvalidRequestError("content filter")
        raise ContextLengthError("too long")


OTHER_BENCHMARKS = {"pramem": "movielens", "h2memory": "palbench.restate"}
"""The benchmarks of the methods that cannot answer the questions of LoCoMo."""
FEWER_ROUNDS: dict[str, dict[str, Any]] = {"pramem": {"rounds": 2}}
"""A method that by default makes many rounds of calls."""


@pytest.mark.parametrize("method", [name for name in METHODS if name != "no-memory"])
def test_every_method_goes_on_if_the_model_refuses_some_of_its_prompts(method: str) -> None:
    """Models refuse some prompts, for what they say or for their length; so does `StrictEngine`.

    Each of these calls is counted as lost, and the method continues without its answer.
    """
    questions = benchmark(OTHER_BENCHMARKS.get(method, "locomo"))
    examples = questions.examples[:8]
    engine = StrictEngine()
    lm = MeteredLM("strict/test", engine=engine, cache=False, temperature=0.0)

    with dspy.context(lm=lm):
        program = build(method, questions.task, embedder(), **FEWER_ROUNDS.get(method, {}))
        evaluation = score_questions(program, questions, examples, lm.meter, threads=1)

    assert len(evaluation.rows) == len(examples)
    assert engine.refusal_count > 0
    assert evaluation.outcomes["lost"] == engine.refusal_count
    failure_kinds = {row.failure.kind for row in evaluation.rows if row.failure}
    assert failure_kinds <= {"refused", "too-long"}


def evaluate_within_limits(server: Any, threads: int, **limits: Any) -> Evaluation:
    """Evaluate turn RAG at a server, at the prices of a small model.

    A million tokens of a prompt cost 40 cents, and of an answer 1.60 dollars.
    """
    meter = Meter()
    lm = language_model(
        server.model,
        meter=meter,
        api_base=server.url,
        guard=BudgetGuard(Limits(**limits)),
        prices=TokenPrices(input=4e-7, output=1.6e-6),
    )
    locomo = benchmark("locomo")
    program = build("turn-rag", locomo.task)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        return score_questions(program, locomo, locomo.examples[:100], meter, threads)


def amount_spent(evaluation: Evaluation, limit_name: str) -> float:
    """Return how much of what a limit counts was spent."""
    if limit_name == "max_usd":
        return evaluation.cost or 0
    if limit_name == "max_tokens":
        return evaluation.tokens["input"] + evaluation.tokens["output"]
    return evaluation.calls["task"]


def largest_overrun(evaluation: Evaluation, limit_name: str) -> float:
    """Return how much a limit may be overrun: by what the largest call took.

    Calls themselves are counted before they are made, so their limit is never overrun.
    """
    if limit_name == "max_usd":
        return max(row.cost or 0 for row in evaluation.rows)
    if limit_name == "max_tokens":
        return max(row.prompt_tokens + row.output_tokens for row in evaluation.rows)
    return 0


def assert_stopped_at(evaluation: Evaluation, limit_name: str, limit: float) -> None:
    """Check that a run reached a limit, and overran it by one call at most."""
    option = limit_name.replace("_", "-")
    assert evaluation.stopped == f"budget reached: {option} {limit:g}"
    spent = amount_spent(evaluation, limit_name)
    assert limit <= spent <= limit + largest_overrun(evaluation, limit_name)


@pytest.mark.parametrize(
    ("limit_name", "limit"),
    [
        ("max_usd", 0.005),
        ("max_tokens", 10_000),
        ("max_calls", 30),
    ],
)
def test_64_threads_overrun_a_limit_by_one_call_at_most(
    stub: Any, limit_name: str, limit: float
) -> None:
    """Nobody knows before a call how many tokens it takes, so the last one may exceed a limit.

    The server takes 0.2 seconds for an answer, so 64 threads wait for one at the same time.
    """
    server = stub(usage=True, delay=0.2)

    evaluation = evaluate_within_limits(server, threads=64, **{limit_name: limit})

    assert_stopped_at(evaluation, limit_name, limit)
    # The server reports tokens, so none are estimated.
    assert "estimated" not in usage_line(evaluation.metered_usage)


@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize(("limit_name", "limit"), [("max_usd", 0.005), ("max_tokens", 10_000)])
def test_a_limit_is_kept_although_the_endpoint_reports_no_tokens(
    stub: Any, limit_name: str, limit: float, threads: int
) -> None:
    """The tokens of every call are estimated then, and count as if they were reported."""
    server = stub(usage=False)

    evaluation = evaluate_within_limits(server, threads, **{limit_name: limit})

    assert_stopped_at(evaluation, limit_name, limit)
    calls = evaluation.calls["task"]
    assert calls < 30
    assert calls == len(server.texts)
    assert calls == evaluation.tokens["estimated_calls"]


def test_tokens_that_the_endpoint_does_not_report_are_estimated_by_the_length_of_the_prompts(
    stub: Any,
) -> None:
    """Four characters are about one token. A message has a few tokens of its own."""
    server = stub(usage=False)

    evaluation = evaluate_within_limits(server, threads=1, max_calls=5)

    characters = sum(len(prompt) for prompt in server.texts)
    assert characters / 4 <= evaluation.tokens["input"] <= 1.3 * characters / 4
    note = "tokens (estimated for 5 calls: the endpoint reports none, or too few)"
    assert note in usage_line(evaluation.metered_usage)


def evaluate_with_remote_embedder(server: Any, **limits: Any) -> Evaluation:
    """Evaluate turn RAG with the offline model and an embedder at a server."""
    inputs = run_inputs(
        "locomo",
        test=4,
        threads=1,
        embedder=server.model,
        embedder_api_base=server.url,
        **limits,
    )
    return run_evaluate("turn-rag", inputs)


def test_a_limit_of_costs_is_refused_if_the_price_of_the_embedder_is_not_known(stub: Any) -> None:
    """An embedder turns texts into vectors; this one is asked at a server, like a model."""
    server = stub()

    with pytest.raises(UserError, match=f"the price of {server.model} is not known"):
        evaluate_with_remote_embedder(server, max_usd=1)


@pytest.fixture
def priced_server(stub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server whose model costs a millionth of a dollar per token."""
    server = stub()
    monkeypatch.setitem(litellm_module().model_cost, server.model, {"input_cost_per_token": 1e-6})
    return server


def embedded_tokens(server: Any) -> int:
    """Return how many tokens a server was sent to embed; it counts four characters as one."""
    tokens = 0
    for _, _, body in server.requests:
        tokens += sum(len(text) for text in body["input"]) // 4
    return tokens


def test_an_embedder_that_reaches_the_limit_of_costs_stops_the_run(priced_server: Any) -> None:
    """The limit is enough for 150 tokens, and the first texts of the memory have more."""
    stopped = evaluate_with_remote_embedder(priced_server, max_usd=150e-6)

    assert stopped.stopped == "budget reached: max-usd 0.00015"
    assert stopped.rows == ()
    assert len(priced_server.requests) == 1


def test_the_calls_of_an_embedder_count_towards_the_costs_of_a_run(priced_server: Any) -> None:
    """The model runs in this process and costs nothing, so the embedder causes all costs."""
    evaluation = evaluate_with_remote_embedder(priced_server)

    assert evaluation.calls["embedding"] == len(priced_server.requests)
    embedding_tokens = evaluation.tokens["input"] - evaluation.answering_usage.input_tokens
    assert embedding_tokens == embedded_tokens(priced_server)
    assert evaluation.cost == pytest.approx(embedding_tokens * 1e-6)
    assert f"{len(priced_server.requests)} embedding; " in usage_line(evaluation.metered_usage)


def test_a_limit_of_calls_holds_for_the_embedder_of_a_users_program(stub: Any) -> None:
    """The embedder belongs to the program, and every request to its server counts as a call."""
    server = stub()
    program = build("turn-rag", embedder=embedder(server.model, server.url))

    stopped = run_evaluate(program, run_inputs("locomo", test=4, threads=1, max_calls=1))

    assert stopped.stopped == "budget reached: max-calls 1"
    assert len(server.requests) == 1


def test_the_embedder_of_a_users_program_is_counted_during_a_run_and_not_after_it(
    stub: Any,
) -> None:
    """The embedder belongs to the user, who may go on using it."""
    server = stub()
    users_embedder = embedder(server.model, server.url)
    program = build("turn-rag", embedder=users_embedder)

    evaluation = run_evaluate(program, run_inputs("locomo", test=4, threads=1))
    assert evaluation.calls["embedding"] == len(server.requests)

    users_embedder.embed(["something else"])
    assert evaluation.calls["embedding"] == len(server.requests) - 1


def repeat_headers_at_times(status: int) -> Callable[[int, str], str | None]:
    """Return a script for a stub server that refuses every second request with a status.

    The message of the refusal repeats the headers of the request, and so the key in them.
    """

    def refuse_every_second_request(request_number: int, prompt: str) -> str | None:
        return f"echo {status}" if request_number % 2 == 1 else None

    return refuse_every_second_request


def files_of_home() -> list[bytes]:
    """Return the contents of all files in the folder of the results."""
    home = Path(os.environ["MEMPILER_HOME"])
    return [path.read_bytes() for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("status", [400, 401])
def test_a_key_that_an_endpoint_repeats_in_its_errors_is_neither_printed_nor_kept(
    stub: Any, mempiler_cli: Any, cli: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The message of the endpoint is shown with "[secret]" in place of the key."""
    key = f"sk-of-the-operator-{status}"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server = stub(repeat_headers_at_times(status))

    result = mempiler_cli(server, "evaluate", "turn-rag")
    _, shown, show_errors = cli("show", "last", "--failed")

    assert result.code in (2, 4)
    _, request_headers, _ = server.requests[0]
    assert request_headers["Authorization"] == f"Bearer {key}"
    assert "[secret]" in result.err + shown
    assert key not in result.out + result.err + shown + show_errors
    file_contents = files_of_home()
    assert sum(len(content) for content in file_contents) > 10_000
    for content in file_contents:
        assert key.encode() not in content
