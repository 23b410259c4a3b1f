"""The loop: feedback in a store, a round of `improve`, and a check of the new program.

The users are simulated (`drifting_users.py`). They ask with words that the program does not know,
and correct each answer. The model is asked by its name at a stub server, as in production, so all
caches are in use.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Improvement, Store, build, export_questions
from mempiler.engines.embedders import embedder
from mempiler.runs.decided_questions import read_decided
from mempiler.runs.results_folder import results_folder

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
    """A store in which twenty users have corrected all answers."""
    path = tmp_path / "memories.sqlite"
    with Store(path) as store:
        fill_store(store, range(20), DRIFT)
    return path


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


def test_nothing_of_a_user_is_left_who_was_forgotten_between_feedback_and_round(
    improve: Round, store_path: Path, tmp_path: Path
) -> None:
    with Store(store_path) as store:
        fill_store(store, [20], DRIFT, user_prefix="zebedee-", sentences={20: "wombats sleep"})
        memory = build("turn-rag").memory(store, "zebedee-20", lm="offline")
        memory.forget()

    improvement = improve(store=store_path)
    export = export_questions(store_path, tmp_path / "questions.jsonl")

    assert improvement.outcome == "promoted"
    assert export.users == 20
    # Another user is found, so the search works.
    assert export.path in files_with("user-19", all_folders(tmp_path))
    for text in ("zebedee", "wombat"):
        assert files_with(text, all_folders(tmp_path)) == []


def test_nothing_of_a_user_is_left_who_is_forgotten_after_the_round(
    improve: Round, store_path: Path, tmp_path: Path
) -> None:
    with Store(store_path) as store:
        fill_store(store, [20], DRIFT, user_prefix="zebedee-", sentences={20: "wombats sleep"})

        improvement = improve(store=store)
        build("turn-rag").memory(store, "zebedee-20", lm="offline").forget()

    assert improvement.outcome == "promoted"
    for text in ("zebedee", "wombat"):
        assert files_with(text, all_folders(tmp_path)) == []


def test_answers_of_a_round_do_not_stay_in_the_cache_that_runs_share(
    improve: Round, store_path: Path, server: StubServer, tmp_path: Path
) -> None:
    """Each answer quotes the user, and is another one than those of other tests."""
    server.answer = lambda body: "[[ ## answer ## ]]\nthe quokka of the user\n\n"

    improve(store=store_path)

    assert len(server.texts) > 40
    assert files_with("quokka", all_folders(tmp_path)) == []


@pytest.mark.slow
def test_vectors_of_a_round_do_not_stay_in_the_cache_that_runs_share(
    server: StubServer, model_name: str, store_path: Path, tmp_path: Path
) -> None:
    remote_embedder = embedder(server.model, server.url)
    address = register_first_version(model_name, tmp_path / "first-version", remote_embedder)
    vector_file = Path(os.environ["XDG_CACHE_HOME"]) / "mempiler" / "vectors.sqlite"
    bytes_before = vector_file.read_bytes() if vector_file.exists() else None

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
    assert (vector_file.read_bytes() if vector_file.exists() else None) == bytes_before


def test_reviewed_questions_decide_and_a_correction_makes_no_question_new(
    improve: Round, model_name: str, store_path: Path, tmp_path: Path
) -> None:
    page = tmp_path / "review.html"
    questions = tmp_path / "questions.jsonl"
    export_questions(store_path, questions, review=page)
    review(page, questions)

    first = improve(data=questions, optimizer=WriteInstruction(instruction="Answer politely."))
    ids = [json.loads(line)["id"] for line in questions.read_text().splitlines()]
    review(page, questions, **dict.fromkeys(ids, "another answer"))
    second = improve(data=questions, optimizer=WriteInstruction(instruction="Answer at once."))

    assert first.outcome == second.outcome == "kept"
    assert first.decided_questions > 0
    assert second.new_questions == first.new_questions - first.decided_questions
    assert len(read_decided(model_name)) == first.decided_questions + second.decided_questions
