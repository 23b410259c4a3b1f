"""Your own readers that trust their files: the mistakes that loading and checking find in them.

A user may add a benchmark: a class whose method `read` makes examples of a file. Loading stops at
the first mistake with an error. A check lists all mistakes as findings; a fatal one means that the
file cannot be loaded.
"""

import json
from collections.abc import Callable, Sequence
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
    """The reader takes the field "evidence" from every row. This row lacks it."""
    path = write_rows(tmp_path, {"labels": LABELS})
    problem = r"not of the form that careless reads: KeyError 'evidence' \(test_careless_readers.py"
    with pytest.raises(DataError, match=problem):
        Careless.load(path)


def test_a_check_names_evidence_and_categories_that_a_reader_let_through(tmp_path: Path) -> None:
    """The history has one turn, D1:1, and the benchmark declares one category, "homes"."""
    path = write_rows(tmp_path, row(evidence=["D9:1"], category="pets"))
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
    row_without_id = {"labels": {"answer": "Porto", "category": "homes"}, "evidence": []}
    path = write_rows(tmp_path, row_without_id)

    with pytest.raises(DataError, match="example 1: has no id"):
        Careless.load(path)

    assert kinds_of(Careless, path) == ["missing id"]


@pytest.mark.parametrize(
    ("second_id", "problem"),
    [
        pytest.param("", "example 2: has no id", id="an empty id"),
        pytest.param(1, "1: example 1 has this id too", id="the number 1 beside the text 1"),
    ],
)
def test_a_check_reports_a_wrong_id_in_the_words_of_the_error(
    tmp_path: Path, second_id: object, problem: str
) -> None:
    """The first of two rows has the id "1"."""
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
    """Evidence is a list of turn ids, but this reader gives the text "D1:1".

    Python goes through a text letter by letter, so it would find the turns "D", "1", ":" and "1".
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
    """The reader gives questions about pets no history. Only questions about homes are wanted."""
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


class MissesFieldLate(Streaming):
    """A reader that misses a field only while its examples are gone through."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        examples = (example for example in dataset.examples if example.toDict()["weight"])
        return Dataset(dataset.histories, examples)  # type: ignore[arg-type]


class ReturnsNoHistories(Careless):
    """A reader that returns examples only."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return Dataset(None, super().read(path, on_finding).examples)  # type: ignore[arg-type]


class ReturnsDictsAsHistories(Careless):
    """A reader that returns histories as they stand in a file."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        examples = super().read(path, on_finding).examples
        return Dataset(({"items": []},), examples)  # type: ignore[arg-type]


class ReturnsNothing(Careless):
    """A reader that forgets to return the dataset."""

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (MissesFieldLate, r"careless reads: KeyError 'weight' \(test_careless_readers.py, line"),
        (
            ReturnsNoHistories,
            "read of ReturnsNoHistories returned a Dataset whose histories are None; give a",
        ),
        (ReturnsDictsAsHistories, r"with the history \{'items': \[\]\}; give History objects"),
        (ReturnsNothing, "read of ReturnsNothing returned NoneType; return a Dataset"),
    ],
)
def test_a_reader_that_does_not_return_a_dataset_of_histories_is_refused(
    good_file: Path, reader: type[Benchmark], problem: str
) -> None:
    """The method `read` of a benchmark returns a `Dataset` of histories and examples."""
    with pytest.raises(DataError, match=problem):
        reader.load(good_file)

    assert kinds_of(reader, good_file) == ["unreadable file"]


class OtherLabels(Careless):
    """A reader that gives its only example further labels, which no JSON file can hold."""

    further_labels: ClassVar[dict[str, Any]] = {}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        dataset = super().read(path, on_finding)
        [example] = dataset.examples
        fields = {**LABELS, "question": "Where?", "evidence_ids": (), **cls.further_labels}
        other_example = dspy.Example(history=example.history, **fields)
        return Dataset(dataset.histories, (other_example.with_inputs(*INPUTS),))


@pytest.fixture
def reader_that_gives(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[Benchmark]]:
    """Return a function that makes a reader of examples with certain labels."""

    def make_reader(labels: dict[str, Any]) -> type[Benchmark]:
        monkeypatch.setattr(OtherLabels, "further_labels", labels)
        return OtherLabels

    return make_reader


def fatal_kinds(reader: type[Benchmark], path: Path) -> list[str]:
    """Return the kinds of those problems for which a file cannot be loaded."""
    return [finding.kind for finding in findings_of(reader, path) if finding.fatal]


@pytest.mark.parametrize(
    ("evidence", "problem"),
    [
        (5, "evidence_ids is 5; give a list of turn ids"),
        (float("nan"), "evidence_ids is nan; give a list"),
        ([["D1:1"]], r"evidence_ids is \[\['D1:1'\]\]; give"),
        (np.array(["D1:1", "D1:2"]), "evidence_ids is array"),
    ],
)
def test_evidence_that_is_no_list_of_turn_ids_is_refused(
    reader_that_gives: Any, good_file: Path, evidence: Any, problem: str
) -> None:
    reader = reader_that_gives({"evidence_ids": evidence})

    with pytest.raises(DataError, match=problem):
        reader.load(good_file)

    assert fatal_kinds(reader, good_file) == ["wrong evidence"]


@pytest.mark.parametrize(
    ("recent", "problem"),
    [
        (["x"], r"recent is \['x'\]; give a list of items"),
        (np.array([1, 2]), r"recent is array\(\[1, 2\]\); give"),
    ],
)
def test_recent_items_of_another_type_are_refused(
    reader_that_gives: Any, good_file: Path, recent: Any, problem: str
) -> None:
    """The field `recent` holds items of a history which a prompt shows beside the memory."""
    reader = reader_that_gives({"recent": recent})

    with pytest.raises(DataError, match=problem):
        reader.load(good_file)

    assert fatal_kinds(reader, good_file) == ["wrong recent items"]


@pytest.mark.parametrize("empty_id", [np.float32("nan"), pd.NA], ids=repr)
def test_an_empty_cell_of_a_data_frame_is_no_id(
    reader_that_gives: Any, good_file: Path, empty_id: Any
) -> None:
    reader = reader_that_gives({"id": empty_id})

    with pytest.raises(DataError, match="example 1: has no id"):
        reader.load(good_file)

    assert fatal_kinds(reader, good_file) == ["missing id"]


def test_arrays_as_labels_stop_neither_loading_nor_checking(
    reader_that_gives: Any, good_file: Path
) -> None:
    """An array is neither true nor false, so code such as `if label` would raise an error."""
    array = np.array(["one", "two"])
    reader = reader_that_gives({"id": array, "category": array, "question": array, "answer": array})

    assert len(reader.load(good_file).examples) == 1
    assert kinds_of(reader, good_file) == ["unknown category"]


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
    """A scorer must return a `Score`. These return `Score(2.0)`, the number 1.0, `Score(None)`."""
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
    """A user adds a benchmark by writing a class. Each of these classes has one mistake."""
    with pytest.raises(ProgramError, match=problem):
        wrong_class.load(good_file)
    with pytest.raises(ProgramError, match=problem):
        findings_of(wrong_class, good_file)


def test_a_benchmark_that_is_made_of_examples_needs_no_name_of_its_own() -> None:
    """Only a class that reads files needs a name; without one a benchmark is called "examples"."""

    class NamelessBenchmark(Benchmark):
        """A benchmark that changes nothing."""

    example = dspy.Example(
        history=[{"role": "user", "content": "Hi."}], question="Who?", answer="I"
    )

    assert NamelessBenchmark.from_examples([example]).name == "examples"
