"""Which file of a release is read, and what is shown of a skill that is not in it."""

import shutil
from importlib import resources
from pathlib import Path

import pytest
from mempiler.data.check import check
from mempiler.data.personamem.benchmark import PersonaMem
from mempiler.errors import DataError, MempilerError, UnknownNameError, UserError
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.setup import Setup


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder of two lengths; the longer has one question less."""
    samples = Path(str(resources.files("mempiler.data.samples")))
    questions = (samples / "personamem_questions.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for length, lines in (("32k", questions), ("128k", questions[:-1])):
        (tmp_path / f"questions_{length}.csv").write_text("".join(lines), encoding="utf-8")
        shutil.copy(samples / "personamem_shared_contexts.jsonl", tmp_path / f"shared_contexts_{length}.jsonl")
    return tmp_path


def test_the_length_chooses_the_file(release):
    long, short = (PersonaMem.load(release, length=length) for length in ("128k", "32k"))
    assert len(short.examples) == len(long.examples) + 1
    assert Path(long.source.path).name == "questions_128k.csv"
    assert PersonaMem.load(release / "questions_32k.csv", length="128k").source.path == long.source.path


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, DataError, "choose with --option length="),
        ({"length": "1M"}, DataError, "holds no questions_1M.csv"),
        ({"length": "64k"}, UnknownNameError, "length of context"),
    ],
)
def test_a_length_that_is_not_there_is_one_line(release, options, error: type[MempilerError], message):
    with pytest.raises(error, match=message):
        PersonaMem.load(release, **options)


@pytest.mark.parametrize("option", ["length", "contexts"])
def test_the_sample_takes_neither_length_nor_contexts(option):
    with pytest.raises(UserError, match="--data"):
        PersonaMem.load(**{option: "32k"})


def test_the_check_takes_the_same_options(release):
    report = check("personamem", release, length="128k")
    assert report.ok
    assert report.counts["questions"] == len(PersonaMem.load(release, length="128k").examples)
    with pytest.raises(UnknownNameError, match="option of the check of locomo"):
        check("locomo", release, length="128k")


def test_a_skill_without_a_question_is_listed_with_none():
    found = run_evaluate("no-memory", Setup(benchmark="personamem", options={"categories": "suggest_new_ideas"}))
    by = found.by_category()
    assert len(by) == 7
    latest = by["acknowledge_latest_user_preferences"]
    assert (latest["n"], latest["score"], latest["context_tokens"]) == (0, None, None)
    assert by["suggest_new_ideas"]["n"] == found.n > 0
