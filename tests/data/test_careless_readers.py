"""Readers of one's own that trust their file: what loading and checking find nevertheless."""

import json
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np
import pandas as pd
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.dataset import Dataset, FindingListener
from mempiler.data.scorer import Score, Scorer
from mempiler.errors import DataError, ProgramError, UserError
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


def found_by_loading_and_checking(path: Path) -> tuple[str, list[str]]:
    """Return the error of loading a file, and the messages of the fatal findings of a check."""
    with pytest.raises(DataError) as refusal:
        Careless.load(path)
    report = check(f"{__name__}:Careless", path)
    problems = [f"{path}: {each.where}: {each.message}" for each in report.findings if each.fatal]
    return str(refusal.value), problems


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
    with pytest.raises(DataError, match="q1: example 1 has this id too"):
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
    with pytest.raises(DataError, match="example 1: has no id"):
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


@pytest.mark.parametrize(
    ("second_row", "problem"),
    [
        ({"labels": {**LABELS, "id": ""}, "evidence": []}, "example 2: has no id"),
        ({"labels": {**LABELS, "id": 1}, "evidence": []}, "1: example 1 has this id too"),
    ],
    ids=["an empty id", "a number and the text of it"],
)
def test_loading_and_checking_refuse_the_same_ids(
    tmp_path: Path, second_row: dict[str, Any], problem: str
) -> None:
    first_row = {"labels": {**LABELS, "id": "1"}, "evidence": []}
    error, problems = found_by_loading_and_checking(careless_file(tmp_path, first_row, second_row))
    assert [error] == problems
    assert problem in error


class OneText(Careless):
    """Gives the evidence as one text."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        for example in dataset.examples:
            example.evidence_ids = "D1:1"
        return dataset


def test_evidence_that_is_one_text_is_not_read_as_letters(tmp_path: Path) -> None:
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    with pytest.raises(DataError, match="q1: evidence_ids is the text 'D1:1'; give a list"):
        OneText.load(path)
    report = check(f"{__name__}:OneText", path)
    assert [finding.kind for finding in report.findings] == ["wrong evidence"]


class NoHistory(Careless):
    """Forgets the history of the questions of one category."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        for example in dataset.examples:
            if example.category == "pets":
                example.history = None
        return dataset


def test_a_missing_history_in_a_category_that_is_left_out_is_one_line(tmp_path: Path) -> None:
    pets = {"labels": {**LABELS, "id": "q2", "category": "pets"}, "evidence": []}
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []}, pets)
    with pytest.raises(DataError, match="q2: has no history"):
        NoHistory.load(path, categories="homes")


class Streaming(Careless):
    """Gives its examples one after the other, and only once."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        return Dataset(dataset.histories, (each for each in dataset.examples))  # type: ignore[arg-type]


def test_a_reader_may_give_its_examples_by_a_generator(tmp_path: Path) -> None:
    benchmark = Streaming.load(careless_file(tmp_path, {"labels": LABELS, "evidence": []}))
    assert benchmark.questions_by_group == {"ann": 1}


class LateMistake(Streaming):
    """Looks for a field that is missing while its examples are gone through."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        examples = (each for each in dataset.examples if each.toDict()["weight"])
        return Dataset(dataset.histories, examples)  # type: ignore[arg-type]


class NoHistories(Careless):
    """Returns examples alone."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Dataset(None, super().read(path, on_finding).examples)  # type: ignore[arg-type]


class WrongHistories(Careless):
    """Returns histories as they stand in a file."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Dataset(({"items": []},), super().read(path, on_finding).examples)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (LateMistake, r"careless reads: KeyError 'weight' \(test_careless_readers.py, line"),
        (NoHistories, "read of NoHistories returned a Dataset whose histories are None; give a"),
        (WrongHistories, r"with the history \{'items': \[\]\}; give History objects"),
    ],
)
def test_a_mistake_in_the_lists_of_a_reader_is_one_line(
    tmp_path: Path, reader: type[Benchmark], problem: str
) -> None:
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    with pytest.raises(DataError, match=problem):
        reader.load(path)
    report = check(f"{__name__}:{reader.__name__}", path)
    assert [finding.kind for finding in report.findings] == ["unreadable file"]


class AnyLabels(Careless):
    """Gives its example labels that no file could hold."""

    labels: ClassVar[dict[str, Any]] = {}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        [example] = dataset.examples
        new = dspy.Example({**example.toDict(), **cls.labels, "history": example.history})
        return Dataset(dataset.histories, (new.with_inputs("history", "question", "evidence_ids"),))


@pytest.mark.parametrize(
    ("labels", "kind", "problem"),
    [
        ({"evidence_ids": 5}, "wrong evidence", r"evidence_ids is 5; give a list of turn ids"),
        ({"evidence_ids": [["D1:1"]]}, "wrong evidence", r"evidence_ids is \[\['D1:1'\]\]; give"),
        ({"evidence_ids": np.array(["D1:1", "D1:2"])}, "wrong evidence", "evidence_ids is array"),
        ({"evidence_ids": float("nan")}, "wrong evidence", "evidence_ids is nan; give a list"),
        ({"recent": ["x"]}, "wrong recent items", r"recent is \['x'\]; give a list of items"),
        ({"recent": np.array([1, 2])}, "wrong recent items", r"recent is array\(\[1, 2\]\); give"),
        ({"id": np.float32("nan")}, "missing id", "example 1: has no id"),
        ({"id": pd.NA}, "missing id", "example 1: has no id"),
    ],
)
def test_loading_and_checking_refuse_labels_of_another_kind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    labels: dict[str, Any],
    kind: str,
    problem: str,
) -> None:
    monkeypatch.setattr(AnyLabels, "labels", labels)
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    with pytest.raises(DataError, match=problem):
        AnyLabels.load(path)
    report = check(f"{__name__}:AnyLabels", path)
    assert [finding.kind for finding in report.findings if finding.fatal] == [kind]


def test_arrays_as_other_labels_neither_stop_loading_nor_checking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.array(["one", "two"])
    labels = {"id": array, "category": array, "question": array, "answer": array}
    monkeypatch.setattr(AnyLabels, "labels", labels)
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    assert len(AnyLabels.load(path).examples) == 1
    report = check(f"{__name__}:AnyLabels", path)
    assert [finding.kind for finding in report.findings] == ["unknown category"]


class Rounded(Scorer):
    """Returns a number in the place of a score."""

    title = "rounded"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return 1.0  # type: ignore[return-value]


class Unsure(Scorer):
    """Has no value for an answer."""

    title = "unsure"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(None, "Who knows?")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scorer", "problem"),
    [
        (Rounded(), "with 1.0; it must return a Score"),
        (Unsure(), "with None; it must return a number"),
    ],
)
def test_a_scorer_that_returns_no_score_is_one_line(
    tmp_path: Path, scorer: Scorer, problem: str
) -> None:
    benchmark = Careless.load(careless_file(tmp_path, {"labels": LABELS, "evidence": []}))
    benchmark.scorer = scorer
    with pytest.raises(UserError, match=problem):
        benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Porto"))


class Unmeasured(Careless):
    """Has no metric."""

    metrics: ClassVar[dict[str, Any]] = {}


class Listed(Careless):
    """Lists its metrics without their scorers."""

    metrics: ClassVar[Any] = ["f1"]


class ListedCategories(Careless):
    """Lists its categories without their titles."""

    categories: ClassVar[Any] = ["homes"]


class Unnamed(Benchmark):
    """Has no name."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Careless.read(path, on_finding)


class Unread(Benchmark):
    """Has no reader."""

    name = "unread"


class PlainMethod(Careless):
    """Lacks the decorator of `read`."""

    def read(self, path: Path, on_finding: FindingListener) -> Dataset:  # type: ignore[override]
        raise NotImplementedError


def names_the_city(example: dspy.Example, prediction: dspy.Prediction) -> float:
    return 1.0


class MetricFunction(Careless):
    """Has a function of two arguments in the place of a scorer."""

    metrics: ClassVar[Any] = {"city": names_the_city}


class NothingReturned(Careless):
    """Reads, and forgets to return it."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return None  # type: ignore[return-value]


WRONG_CLASSES = [
    (Unmeasured, r"metrics = \{\}; name at least one scorer"),
    (Listed, r"metrics = \['f1'\]; name at least one scorer"),
    (ListedCategories, r"categories = \['homes'\]; give the title of each"),
    (Unnamed, "Unnamed has no name; give it one"),
    (Unread, r"Unread reads no files; write its classmethod read\("),
    (PlainMethod, "read is no classmethod; put @classmethod above it"),
    (MetricFunction, "metric 'city' of careless: names_the_city.. missing 2 required"),
]


@pytest.mark.parametrize(("wrong_class", "problem"), WRONG_CLASSES)
def test_a_mistake_in_a_class_is_one_line_for_loading_and_for_checking(
    tmp_path: Path, wrong_class: type[Benchmark], problem: str
) -> None:
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    with pytest.raises(ProgramError, match=problem):
        wrong_class.load(path)
    with pytest.raises(ProgramError, match=problem):
        check(f"{__name__}:{wrong_class.__name__}", path)


def test_a_class_without_a_name_makes_a_benchmark_of_examples() -> None:
    class Plain(Benchmark):
        """Changes something else than the name."""

    example = dspy.Example(
        history=[{"role": "user", "content": "Hi."}], question="Who?", answer="I"
    )
    assert Plain.from_examples([example]).name == "examples"


def test_a_reader_that_returns_nothing_is_one_line(tmp_path: Path) -> None:
    path = careless_file(tmp_path, {"labels": LABELS, "evidence": []})
    with pytest.raises(
        DataError, match="read of NothingReturned returned NoneType; return a Dataset"
    ):
        NothingReturned.load(path)
    report = check(f"{__name__}:NothingReturned", path)
    assert [finding.kind for finding in report.findings] == ["unreadable file"]
