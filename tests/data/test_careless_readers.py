"""Readers of one's own that trust their file: what loading and checking find nevertheless."""

import json
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.dataset import Dataset, FindingListener
from mempiler.data.scorer import Score, Scorer
from mempiler.errors import DataError, UserError
from mempiler.records import History, read_json


class Careless(Benchmark):
    """Reads rows as they are, and trusts them."""

    name = "careless"
    categories: ClassVar[dict[str, str]] = {"homes": "homes"}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        history = History.parse([{"role": "user", "content": "We moved to Porto."}], id="ann")
        examples = [
            dspy.Example(
                history=history,
                evidence_ids=tuple(row["evidence"]),
                question="Where?",
                **row["labels"],
            )
            for row in read_json(path)
        ]
        return Dataset(
            (history,),
            tuple(each.with_inputs("history", "question", "evidence_ids") for each in examples),
        )


def careless_file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "careless.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


LABELS = {"id": "q1", "answer": "Porto", "category": "homes"}


def test_a_reader_that_misses_a_field_is_a_data_error_that_names_its_line(tmp_path: Path) -> None:
    path = careless_file(tmp_path, {"labels": LABELS})
    with pytest.raises(
        DataError,
        match=r"not of the form that careless reads: KeyError 'evidence' \(test_careless_readers.py",
    ):
        Careless.load(path)


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    path = careless_file(
        tmp_path, {"labels": LABELS, "evidence": []}, {"labels": LABELS, "evidence": []}
    )
    with pytest.raises(DataError, match="2 examples have the id 'q1'"):
        Careless.load(path)


def test_a_check_names_evidence_and_categories_that_a_reader_let_through(tmp_path: Path) -> None:
    path = careless_file(tmp_path, {"labels": {**LABELS, "category": "pets"}, "evidence": ["D9:1"]})
    report = check(f"{__name__}:Careless", path)
    assert [finding.kind for finding in report.findings] == ["unknown evidence", "unknown category"]


def test_a_value_that_a_reader_cannot_convert_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "careless.json"
    path.write_text(json.dumps([{"labels": LABELS, "evidence": []}]), encoding="utf-8")

    class Strict(Careless):
        @classmethod
        def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
            int("x")
            return super().read(path, on_finding)

    with pytest.raises(DataError, match="not of the form that careless reads: ValueError"):
        Strict.load(path)


def test_an_example_without_an_id_is_refused_by_its_number(tmp_path: Path) -> None:
    labels = {"answer": "Porto", "category": "homes"}
    path = careless_file(tmp_path, {"labels": labels, "evidence": []})
    with pytest.raises(DataError, match="example 1 has no id"):
        Careless.load(path)
    report = check(f"{__name__}:Careless", path)
    assert [finding.kind for finding in report.findings] == ["missing id"]


class Generous(Scorer):
    """Gives more than there is."""

    title = "generous"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(2.0, "Well done.")


def test_a_score_outside_of_0_to_1_is_refused_with_its_question(tmp_path: Path) -> None:
    benchmark = Careless.load(careless_file(tmp_path, {"labels": LABELS, "evidence": []}))
    benchmark.scorer = Generous()
    with pytest.raises(UserError, match="'generous' of careless scored 'q1'"):
        benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Porto"))
