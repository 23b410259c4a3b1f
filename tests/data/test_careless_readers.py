"""Your own readers that trust their files: the mistakes that loading and checking find in them.

A user may add a benchmark: a class whose method `read` makes examples of a file. Loading stops at
the first mistake with an error. A check lists all mistakes as findings; a fatal one means that the
file cannot be loaded.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np
import pandas as pd
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.dataset import Dataset, Finding, FindingListener
from mempiler.data.scorer import Score, Scorer
from mempiler.errors import DataError, ProgramError, UserError
from mempiler.records import History, read_json

INPUTS = ("history", "question", "evidence_ids")


class Careless(Benchmark):
    """A benchmark that takes the labels and the evidence of each row as they are."""

    name = "careless"
    categories: ClassVar[dict[str, str]] = {"homes": "homes"}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        history = History.parse([{"role": "user", "content": "We moved to Porto."}], id="ann")
        examples: list[dspy.Example] = []
        for content in read_json(path):
            example = dspy.Example(
                history=history,
                evidence_ids=tuple(content["evidence"]),
                question="Where?",
                **content["labels"],
            )
            examples.append(example.with_inputs(*INPUTS))
        return Dataset((history,), tuple(examples))


LABELS = {"id": "q1", "answer": "Porto", "category": "homes"}


def row(evidence: Sequence[str] = (), **labels: object) -> dict[str, Any]:
    """Return a row of the file: the question q1 of the category "homes", or with other labels."""
    return {"labels": {**LABELS, **labels}, "evidence": list(evidence)}


def write_rows(folder: Path, *rows: dict[str, Any]) -> Path:
    """Write the file of a careless reader."""
    path = folder / "careless.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def good_file(tmp_path: Path) -> Path:
    """A file with one row, which is right."""
    return write_rows(tmp_path, row())


def findings_of(reader: type[Benchmark], path: Path) -> list[Finding]:
    """Check a file, as `mempiler evaluate --check` does for a class of one's own."""
    return list(check(f"{__name__}:{reader.__name__}", path).findings)


def kinds_of(reader: type[Benchmark], path: Path) -> list[str]:
    """Return the kinds of problems that a check of a file finds."""
    return [finding.kind for finding in findings_of(reader, path)]


def test_a_field_that_the_reader_misses_is_named_with_the_line_of_the_reader(
    tmp_path: Path,
) -> None:
    """The row has no field "evidence", which the reader `Careless` takes from every row."""
    path = write_rows(tmp_path, {"labels": LABELS})
    problem = r"not of the form that careless reads: KeyError 'evidence' \(test_careless_readers.py"
    with pytest.raises(DataError, match=problem):
        Careless.load(path)


def test_two_questions_with_the_same_id_are_refused(tmp_path: Path) -> None:
    """The user's reader takes the ids of the rows as they are."""
    path = write_rows(tmp_path, row(id="q1"), row(id="q1"))
    with pytest.raises(DataError, match="q1: example 1 has this id too"):
        Careless.load(path)


def test_a_check_names_evidence_and_categories_that_a_reader_let_through(tmp_path: Path) -> None:
    """The history has the turn D1:1 only, and "homes" is the only category."""
    path = write_rows(tmp_path, row(category="pets", evidence=["D9:1"]))
    assert kinds_of(Careless, path) == ["unknown evidence", "unknown category"]


class FailingConversion(Careless):
    """A reader that fails to convert a value."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        int("x")
        return super().read(path, on_finding)


def test_a_value_that_a_reader_cannot_convert_is_a_data_error(good_file: Path) -> None:
    """The reader calls int("x"), which raises a ValueError."""
    with pytest.raises(DataError, match="not of the form that careless reads: ValueError"):
        FailingConversion.load(good_file)


def test_an_example_without_an_id_is_refused_by_its_number(tmp_path: Path) -> None:
    """The user's reader takes the labels of a row as they are. Here the id is missing."""
    row_without_id = {"labels": {"answer": "Porto", "category": "homes"}, "evidence": []}
    path = write_rows(tmp_path, row_without_id)

    with pytest.raises(DataError, match="example 1: has no id"):
        Careless.load(path)

    assert kinds_of(Careless, path) == ["missing id"]


@pytest.mark.parametrize(
    ("second_id", "problem"),
    [
        pytest.param("", "example 2: has no id", id="an empty id"),
        pytest.param(1, "1: example 1 has this id too", id="a number and the text of it"),
    ],
)
def test_loading_and_checking_refuse_the_same_ids(
    tmp_path: Path, second_id: object, problem: str
) -> None:
    """The message of the error and that of the check are the same."""
    path = write_rows(tmp_path, row(id="1"), row(id=second_id))

    with pytest.raises(DataError) as refusal:
        Careless.load(path)
    [fatal_finding] = [finding for finding in findings_of(Careless, path) if finding.fatal]

    message = str(refusal.value)
    assert problem in message
    assert message == f"{path}: {fatal_finding.where}: {fatal_finding.message}"


class EvidenceAsText(Careless):
    """A reader that gives the evidence as one text."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        for example in dataset.examples:
            example.evidence_ids = "D1:1"
        return dataset


def test_evidence_that_is_one_text_is_not_read_as_letters(good_file: Path) -> None:
    """Evidence is a list of turn ids, but the reader gives the text "D1:1".

    Python would take the text apart, into D, 1, : and 1.
    """
    problem = "q1: evidence_ids is the text 'D1:1'; give a list"
    with pytest.raises(DataError, match=problem):
        EvidenceAsText.load(good_file)

    assert kinds_of(EvidenceAsText, good_file) == ["wrong evidence"]


class NoHistoryOfPets(Careless):
    """A reader that forgets the history of the questions about pets."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        for example in dataset.examples:
            if example.category == "pets":
                example.history = None
        return dataset


def test_a_missing_history_is_refused_even_in_a_category_that_is_left_out(tmp_path: Path) -> None:
    """Only the category "homes" is chosen. The reader gives questions about pets no history."""
    homes = row(id="q1", category="homes")
    pets = row(id="q2", category="pets")
    path = write_rows(tmp_path, homes, pets)
    with pytest.raises(DataError, match="q2: has no history"):
        NoHistoryOfPets.load(path, categories="homes")


class Streaming(Careless):
    """A reader that gives its examples by a generator, so only once."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        return Dataset(dataset.histories, (example for example in dataset.examples))  # type: ignore[arg-type]


def test_a_reader_may_give_its_examples_by_a_generator(good_file: Path) -> None:
    """A generator gives its examples only once, so loading must keep them."""
    assert Streaming.load(good_file).questions_by_group == {"ann": 1}


class LateMistake(Streaming):
    """A reader that misses a field only while its examples are gone through."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        examples = (example for example in dataset.examples if example.toDict()["weight"])
        return Dataset(dataset.histories, examples)  # type: ignore[arg-type]


class NoHistories(Careless):
    """A reader that returns examples only."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Dataset(None, super().read(path, on_finding).examples)  # type: ignore[arg-type]


class WrongHistories(Careless):
    """A reader that returns histories as they stand in a file."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        examples = super().read(path, on_finding).examples
        return Dataset(({"items": []},), examples)  # type: ignore[arg-type]


class NothingReturned(Careless):
    """A reader that forgets to return the dataset."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (LateMistake, r"careless reads: KeyError 'weight' \(test_careless_readers.py, line"),
        (NoHistories, "read of NoHistories returned a Dataset whose histories are None; give a"),
        (WrongHistories, r"with the history \{'items': \[\]\}; give History objects"),
        (NothingReturned, "read of NothingReturned returned NoneType; return a Dataset"),
    ],
)
def test_a_mistake_in_what_a_reader_returns_is_refused(
    good_file: Path, reader: type[Benchmark], problem: str
) -> None:
    """`read` must return a `Dataset` of histories and examples; these readers do not."""
    with pytest.raises(DataError, match=problem):
        reader.load(good_file)

    assert kinds_of(reader, good_file) == ["unreadable file"]


ARRAY = np.array(["one", "two"])

STRANGE_LABELS: dict[str, dict[str, Any]] = {
    "evidence is a number": {"evidence_ids": 5},
    "evidence is a list of lists": {"evidence_ids": [["D1:1"]]},
    "evidence is an array": {"evidence_ids": np.array(["D1:1", "D1:2"])},
    "evidence is not a number": {"evidence_ids": float("nan")},
    "recent is a list of texts": {"recent": ["x"]},
    "recent is an array": {"recent": np.array([1, 2])},
    "id is not a number": {"id": np.float32("nan")},
    "id is missing": {"id": pd.NA},
    "arrays": {"id": ARRAY, "category": ARRAY, "question": ARRAY, "answer": ARRAY},
}
"""Labels that no JSON file can hold, by a name for them."""


class StrangeLabels(Careless):
    """A reader that looks up the labels of its only row in `STRANGE_LABELS`."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        [example] = dataset.examples
        fields = {**LABELS, "question": "Where?", "evidence_ids": ()}
        fields.update(STRANGE_LABELS[example.case])
        strange_example = dspy.Example(history=example.history, **fields)
        return Dataset(dataset.histories, (strange_example.with_inputs(*INPUTS),))


def write_case(folder: Path, case: str) -> Path:
    """Write a file that names the labels to look up."""
    return write_rows(folder, {"labels": {"case": case}, "evidence": []})


@pytest.mark.parametrize(
    ("case", "kind", "problem"),
    [
        ("evidence is a number", "wrong evidence", "evidence_ids is 5; give a list of turn ids"),
        (
            "evidence is a list of lists",
            "wrong evidence",
            r"evidence_ids is \[\['D1:1'\]\]; give",
        ),
        ("evidence is an array", "wrong evidence", "evidence_ids is array"),
        ("evidence is not a number", "wrong evidence", "evidence_ids is nan; give a list"),
        (
            "recent is a list of texts",
            "wrong recent items",
            r"recent is \['x'\]; give a list of items",
        ),
        ("recent is an array", "wrong recent items", r"recent is array\(\[1, 2\]\); give"),
        ("id is not a number", "missing id", "example 1: has no id"),
        ("id is missing", "missing id", "example 1: has no id"),
    ],
)
def test_loading_and_checking_refuse_labels_of_another_kind(
    tmp_path: Path, case: str, kind: str, problem: str
) -> None:
    """`case` names odd labels in `STRANGE_LABELS`, which the reader gives to its example."""
    path = write_case(tmp_path, case)

    with pytest.raises(DataError, match=problem):
        StrangeLabels.load(path)

    fatal_kinds = [finding.kind for finding in findings_of(StrangeLabels, path) if finding.fatal]
    assert fatal_kinds == [kind]


def test_arrays_as_other_labels_stop_neither_loading_nor_checking(tmp_path: Path) -> None:
    """An array is neither true nor false, so a check such as `if label` raises an error."""
    path = write_case(tmp_path, "arrays")
    assert len(StrangeLabels.load(path).examples) == 1
    assert kinds_of(StrangeLabels, path) == ["unknown category"]


class Generous(Scorer):
    """A scorer that gives more than there is."""

    title = "generous"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(2.0, "Well done.")


class PlainNumber(Scorer):
    """A scorer that returns a number in the place of a score."""

    title = "plain number"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return 1.0  # type: ignore[return-value]


class Unsure(Scorer):
    """A scorer that has no value for an answer."""

    title = "unsure"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(None, "Who knows?")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scorer", "problem"),
    [
        (Generous(), "'generous' of careless scored 'q1'"),
        (PlainNumber(), "with 1.0; it must return a Score"),
        (Unsure(), "with None; it must return a number"),
    ],
)
def test_a_scorer_that_returns_no_score_from_0_to_1_is_refused(
    good_file: Path, scorer: Scorer, problem: str
) -> None:
    """A scorer must return a `Score`. These give 2.0, a plain number, and None."""
    benchmark = Careless.load(good_file)
    benchmark.scorer = scorer
    with pytest.raises(UserError, match=problem):
        benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Porto"))


class WithoutMetric(Careless):
    """A benchmark without a metric."""

    metrics: ClassVar[dict[str, Any]] = {}


class MetricsAsList(Careless):
    """A benchmark that lists its metrics without their scorers."""

    metrics: ClassVar[Any] = ["f1"]


class CategoriesAsList(Careless):
    """A benchmark that lists its categories without their titles."""

    categories: ClassVar[Any] = ["homes"]


class WithoutName(Benchmark):
    """A benchmark without a name."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Careless.read(path, on_finding)


class WithoutReader(Benchmark):
    """A benchmark that reads no files."""

    name = "unread"


class ReaderAsPlainMethod(Careless):
    """A benchmark whose reader lacks its decorator."""

    def read(self, path: Path, on_finding: FindingListener) -> Dataset:  # type: ignore[override]
        raise NotImplementedError


def names_the_city(example: dspy.Example, prediction: dspy.Prediction) -> float:
    return 1.0


class MetricAsFunction(Careless):
    """A benchmark with a function in the place of a class of scorers."""

    metrics: ClassVar[Any] = {"city": names_the_city}


@pytest.mark.parametrize(
    ("wrong_class", "problem"),
    [
        (WithoutMetric, r"metrics = \{\}; name at least one scorer"),
        (MetricsAsList, r"metrics = \['f1'\]; name at least one scorer"),
        (CategoriesAsList, r"categories = \['homes'\]; give the title of each"),
        (WithoutName, "WithoutName has no name; give it one"),
        (WithoutReader, r"WithoutReader reads no files; write its classmethod read\("),
        (ReaderAsPlainMethod, "read is no classmethod; put @classmethod above it"),
        (MetricAsFunction, "metric 'city' of careless: names_the_city.. missing 2 required"),
    ],
)
def test_loading_and_checking_refuse_a_mistake_in_a_class(
    good_file: Path, wrong_class: type[Benchmark], problem: str
) -> None:
    """`WithoutName`, for example, is a benchmark of the user's that has no name."""
    with pytest.raises(ProgramError, match=problem):
        wrong_class.load(good_file)
    with pytest.raises(ProgramError, match=problem):
        findings_of(wrong_class, good_file)


def test_a_class_without_a_name_makes_a_benchmark_of_examples() -> None:
    class NamelessBenchmark(Benchmark):
        """A benchmark that changes something other than the name."""

    example = dspy.Example(
        history=[{"role": "user", "content": "Hi."}], question="Who?", answer="I"
    )

    assert NamelessBenchmark.from_examples([example]).name == "examples"
