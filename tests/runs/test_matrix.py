"""Scores over all answers: in the evaluation, its JSON and table, the run folder and MLflow."""

import contextlib
import io
import json

import pytest
from mempiler.cli import main
from mempiler.data.confusion import Confusion
from mempiler.errors import UserError
from mempiler.runs.folder import RunFolder
from mempiler.runs.matrix import confusion_picture, write
from mempiler.runs.tracking import client


def test_a_matrix_is_drawn_with_its_counts(tmp_path):
    figure = confusion_picture(Confusion(labels=("a", "$b"), counts=((3, 1), (0, 2))), "x on y")
    assert [text.get_text() for text in figure.axes[0].texts] == ["3", "1", "0", "2"]
    write(figure, tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="cannot be written"):
        write(figure, tmp_path / "no" / "m.png")


@pytest.fixture(scope="module")
def printed():
    """The table and the JSON of eight ratings that are predicted without a memory, offline."""
    found = []
    for words in ((), ("--json",)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["evaluate", "no-memory", "--on", "movielens", "--test", "8", *words])
        found.append(out.getvalue())
    return found[0], json.loads(found[1])


def test_an_evaluation_prints_and_tells_its_scores_over_all_answers(printed):
    table, summary = printed
    counts = summary["confusion"]["counts"]
    assert sum(map(sum, counts)) + summary["aggregate"]["failed parses"] == 8
    assert summary["aggregate"]["accuracy"] == sum(counts[k][k] for k in range(5)) / sum(map(sum, counts))
    line = next(line for line in table.splitlines() if line.startswith("over all answers"))
    assert f"macro-F1 {summary['aggregate']['macro-F1']:.3f}" in line
    assert line.endswith("failed parses 0")


def test_the_picture_is_in_the_run_folder_and_in_mlflow(printed):
    _, summary = printed
    assert (RunFolder.open(summary["run_id"]).path / "evaluation_confusion.png").is_file()
    logged = client()
    names = {file.path for file in logged.list_artifacts(summary["run_id"])}
    assert "evaluation_confusion.png" in names
    metrics = logged.get_run(summary["run_id"]).data.metrics
    assert metrics["evaluation.diagonal dominance"] == pytest.approx(summary["aggregate"]["diagonal dominance"])
