"""The loop: feedback in a store, a round of `improve`, and a check of the new program.

The users are simulated (`drifting_users.py`). They ask with words that the program does not know,
and correct each answer. The model is asked by its name at a stub server, as in production, so all
caches are in use.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import mempiler
import pytest
from mempiler import Improvement, Store, build, export_questions
from mempiler.engines.embedders import embedder
from mempiler.engines.prices import litellm_module
from mempiler.runs.decided_questions import read_decided
from mempiler.runs.results_folder import results_folder
from mempiler.runs.round_split import MIN_TRAIN, MIN_USERS
from mempiler.runs.statistics import MIN_N

from ..conftest import within
from ..pages import Page
from ..scripted_engine import chat_fields
from ..serving.served import free_port
from ..stub_server import StubServer
from .drifting_users import DRIFT, answer_request, fill_store, register_first_version
from .test_improve import WriteInstruction, files_with, version_of

Round = Callable[..., Improvement]
"""Runs a round with its options."""


@pytest.fixture
def model_name(request: pytest.FixtureRequest) -> str:
    """A name for a registered model that no other test uses, since all tests share one store."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def address(model_name: str, tmp_path: Path) -> str:
    """The address of a registered program that knows only the old words of the users."""
    return register_first_version(model_name, tmp_path / "first-version")


@pytest.fixture
def server() -> Iterator[StubServer]:
    """A server whose model answers by what its instruction explains."""
    with StubServer(answer=answer_request) as stub:
        yield stub


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A store in which the users user-0 to user-19 have corrected all answers."""
    path = tmp_path / "memories.sqlite"
    with Store(path) as store:
        fill_store(store, range(20), DRIFT)
    return path


def add_zebedee(store: Store) -> None:
    """Let one more user, "zebedee-20", say "wombats sleep", ask questions, and correct answers."""
    fill_store(store, [20], DRIFT, user_prefix="zebedee-", sentences={20: "wombats sleep"})


def forget_zebedee(store: Store) -> None:
    """Forget the user "zebedee-20"."""
    build("turn-rag").memory(store, "zebedee-20", lm="offline").forget()


def files_with_zebedee(tmp_path: Path) -> list[Path]:
    """Return all files of the test, of its runs and of caches that name the user or quote them."""
    folders = all_folders(tmp_path)
    return [*files_with("zebedee", folders), *files_with("wombat", folders)]


@pytest.fixture
def improve(address: str, server: StubServer) -> Round:
    """A function that runs a round whose optimizer explains the new words."""

    def run_round(**options: Any) -> Improvement:
        defaults: dict[str, Any] = {
            "lm": server.model,
            "api_base": server.url,
            "metric": "exact",
            "optimizer": WriteInstruction(),
            "progress": False,
        }
        return mempiler.improve(address, **{**defaults, **options})

    return run_round


def all_folders(tmp_path: Path) -> list[Path]:
    """Return the folders in which a test, its runs and all caches write."""
    caches = [Path(os.environ[name]) for name in ("DSPY_CACHEDIR", "XDG_CACHE_HOME")]
    return [tmp_path, results_folder(), *caches]


def review(page: Path, questions: Path, **corrections: str) -> None:
    """Accept all questions of a review page, some with another answer, as a browser would.

    Args:
        page: The page.
        questions: Gets the accepted rows, as the page lets a person download them.
        **corrections: Other answers, by the id of the question.
    """
    _, _, rest = page.read_text(encoding="utf-8").partition('type="application/json" id="data">')
    data = json.loads(rest.partition("</script>")[0])
    lines: list[str] = []
    for question in data["questions"]:
        row = question["row"]
        # The page puts the id last.
        row_id = row.pop("id")
        answer = corrections.get(row_id, row["answer"])
        lines.append(json.dumps({**row, "answer": answer, "id": row_id}))
    questions.write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
def test_feedback_in_a_store_leads_to_a_better_program_that_passes_a_check(
    improve: Round, address: str, model_name: str, server: StubServer, store_path: Path
) -> None:
    """The check compares the new version of the program with version 1 on the users' questions."""
    improvement = improve(
        store=store_path, optimizer="gepa", optimizer_set={"max_metric_calls": 60}
    )
    questions = export_questions(store_path, store_path.parent / "questions.jsonl").path
    check = mempiler.check(
        address,
        against=f"models:/{model_name}/1",
        benchmark="jsonl",
        data=questions,
        metric="exact",
        lms=[server.model],
        api_base=server.url,
        progress=False,
    )

    assert improvement.outcome == "promoted"
    assert version_of(address) == "2"
    assert check.passed
    (decisive_row,) = check.decisive_rows
    assert decisive_row.verdict == "better"


def test_a_round_uses_nothing_of_a_user_who_was_forgotten_after_giving_feedback(
    improve: Round, store_path: Path, tmp_path: Path
) -> None:
    with Store(store_path) as store:
        add_zebedee(store)
        forget_zebedee(store)

    improvement = improve(store=store_path)
    export = export_questions(store_path, tmp_path / "questions.jsonl")

    assert improvement.outcome == "promoted"
    assert export.users == 20
    # Another user is found in the export, so the search works.
    assert export.path in files_with("user-19", all_folders(tmp_path))
    assert files_with_zebedee(tmp_path) == []


def test_a_round_leaves_nothing_of_a_user_who_is_forgotten_after_it(
    improve: Round, store_path: Path, tmp_path: Path
) -> None:
    with Store(store_path) as store:
        add_zebedee(store)

        improvement = improve(store=store)
        forget_zebedee(store)

    assert improvement.outcome == "promoted"
    assert files_with_zebedee(tmp_path) == []


def test_answers_of_a_round_do_not_stay_in_the_cache_that_runs_share(
    improve: Round, store_path: Path, server: StubServer, tmp_path: Path
) -> None:
    """Every answer of the model quotes a user, whose word "quokka" occurs nowhere else."""
    server.answer = lambda body: chat_fields(answer="the quokka of the user")

    improve(store=store_path)

    assert len(server.texts) > 40
    assert files_with("quokka", all_folders(tmp_path)) == []


def content_of_vector_cache() -> bytes | None:
    """Return the file in which runs share what they have embedded; None if there is no file."""
    file = Path(os.environ["XDG_CACHE_HOME"]) / "mempiler" / "vectors.sqlite"
    return file.read_bytes() if file.exists() else None


@pytest.mark.slow
def test_vectors_of_a_round_do_not_stay_in_the_cache_that_runs_share(
    server: StubServer, model_name: str, store_path: Path, tmp_path: Path
) -> None:
    """The embedder of the program is behind a server, and is sent texts of the users."""
    remote_embedder = embedder(server.model, server.url)
    address = register_first_version(model_name, tmp_path / "first-version", remote_embedder)
    cache_before = content_of_vector_cache()

    improvement = mempiler.improve(
        address,
        store=store_path,
        lm=server.model,
        api_base=server.url,
        embedder=server.model,
        embedder_api_base=server.url,
        metric="exact",
        optimizer=WriteInstruction(),
        progress=False,
    )

    assert improvement.outcome == "promoted"
    assert any(request.path.endswith("/embeddings") for request in server.requests)
    assert content_of_vector_cache() == cache_before


def test_a_question_that_is_reviewed_again_after_a_round_does_not_decide_again(
    improve: Round, model_name: str, store_path: Path, tmp_path: Path
) -> None:
    """In a second review, a person gives another answer to every question.

    They are still the questions of the first round, which decided by some of them.
    """
    page = tmp_path / "review.html"
    questions = tmp_path / "questions.jsonl"
    export_questions(store_path, questions, review=page)
    review(page, questions)

    first = improve(data=questions, optimizer=WriteInstruction(instruction="Answer politely."))
    ids = [json.loads(line)["id"] for line in questions.read_text().splitlines()]
    review(page, questions, **dict.fromkeys(ids, "another answer"))
    second = improve(data=questions, optimizer=WriteInstruction(instruction="Answer at once."))

    assert first.outcome == "kept"
    assert second.outcome == "kept"
    assert first.decided_questions > 0
    assert second.new_questions == first.new_questions - first.decided_questions
    assert len(read_decided(model_name)) == first.decided_questions + second.decided_questions


# --- docs/production/loop.md ------------------------------------------------------------------

LOOP = Page("production/loop.md")
COUNTRIES = {
    "Lisbon": "Portugal",
    "Oslo": "Norway",
    "Quito": "Ecuador",
    "Hanoi": "Vietnam",
    "Dakar": "Senegal",
    "Perth": "Australia",
}
"""Those of the page, by city."""
PRICES = {"input_cost_per_token": 1e-7, "output_cost_per_token": 1e-7}
"""US dollars. The page limits costs, for which prices must be known."""


# The commands of the page's table stand between backquotes.
ROLLBACK = re.search(r"`(mempiler publish models:/memory/1 .*?)`", LOOP.text)


def answer_with_country(body: dict[str, Any]) -> str:
    """Answer a request as a model that adds the country only if its instruction says so.

    If it is asked to propose an instruction, it proposes to add the country.
    """
    system = body["messages"][0]["content"]
    prompt = body["messages"][-1]["content"]
    if "`new_instruction`" in system:
        return json.dumps({"new_instruction": "Answer with the city and its country."})

    context, _, question = prompt.partition("[[ ## question ## ]]")
    verb = "My office is" if "office" in question else "I live"
    city = re.findall(rf"{verb} in (\w+)", context)[0]
    if "country" in system:
        return chat_fields(answer=f"{city}, {COUNTRIES[city]}")
    return chat_fields(answer=city)


@contextmanager
def served(command: str, folder: Path, port: int) -> Iterator[str]:
    """Run a command that serves, in a folder; yield the address of the service."""
    environment = {
        **os.environ,
        "MEMPILER_HOME": str(folder / "runs"),
        "MEMPILER_PORT": str(port),
    }
    words = [sys.executable, "-m", "mempiler", *shlex.split(command)[1:]]
    process = subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    address = f"http://localhost:{port}"

    def is_ready() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{address}/ready").is_success
        return False

    try:
        assert within(180, is_ready)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_page_names_the_limits_that_the_code_has() -> None:
    """The page is docs/production/loop.md."""
    assert f"needs {MIN_N} new questions of {MIN_USERS} users" in LOOP.text
    assert f"and {MIN_TRAIN} of other users" in LOOP.text


class ResultsOfPage(NamedTuple):
    """What the commands of the page have printed, and an answer of the program in the end."""

    evaluation: dict[str, Any]
    improvement: dict[str, Any]
    check: dict[str, Any]
    answer: str


def run_page(folder: Path) -> ResultsOfPage:
    """Run the commands of the page in their order, in a folder with the files of the page.

    In between, a person reviews questions in a browser; `review` takes the place of the person.
    """
    first, publish, serve, use, export, evaluate, show, improve, check, serve_again = LOOP.commands
    assert serve == serve_again
    port = free_port()
    LOOP.write(folder)
    users = folder / "users.py"
    users.write_text(users.read_text().replace("localhost:8000", f"localhost:{port}"))

    LOOP.run([first, publish], folder)
    with served(serve, folder, port):
        LOOP.run([use], folder)
    LOOP.run([export], folder)
    review(folder / "review.html", folder / "questions.jsonl")
    results = LOOP.run([evaluate, show, improve, check], folder)
    with served(serve_again, folder, port) as address, mempiler.Client(address) as client:
        answer = client.memory("user-0").ask("Where do I live?").answer
    return ResultsOfPage(results[evaluate], results[improve], results[check], answer)


@pytest.mark.slow
def test_the_commands_of_the_page_lead_from_a_served_program_to_a_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is docs/production/loop.md. The better program answers with city and country.

    In the end, a command of the page lets the alias name version 1 again.
    """
    assert LOOP.untested() == []
    assert len(LOOP.commands) == 10
    with StubServer(answer=answer_with_country) as server:
        monkeypatch.setenv("MEMPILER_LM", server.model)
        monkeypatch.setenv("MEMPILER_API_BASE", server.url)
        monkeypatch.setitem(litellm_module().model_cost, server.model, PRICES)

        results = run_page(tmp_path)

    assert results.evaluation["n"] == 48
    assert results.evaluation["score"] < 1
    assert results.improvement["outcome"] == "promoted", results.improvement["reason"]
    assert results.improvement["version_after"] == "2"
    assert results.check["passed"]
    assert results.answer == "Lisbon, Portugal"
    assert ROLLBACK is not None
    roll_back = ROLLBACK.group(1)
    assert LOOP.run([roll_back], tmp_path)[roll_back]["version"] == "1"
