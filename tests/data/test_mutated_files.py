"""Mutated files of every form that is read: each is read, or refused in one line that can be printed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from mempiler.errors import MempilerError

from tests.data.specimens import Specimen, changed, specimens


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Specimen]:
    return specimens(tmp_path_factory.mktemp("made"))


def test_every_specimen_is_read_as_it_is(made: list[Specimen], tmp_path: Path) -> None:
    for number, specimen in enumerate(made):
        specimen.write(tmp_path / str(number))
        specimen.read(tmp_path / str(number))


@pytest.mark.parametrize("examples", [100, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_mutated_file_is_read_or_refused_in_one_line(made: list[Specimen], tmp_path: Path, examples: int) -> None:
    verdicts = Counter[str]()

    @hypothesis.settings(max_examples=examples, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.data())
    def holds(data: Any) -> None:
        specimen = data.draw(st.sampled_from(made))
        name = data.draw(st.sampled_from(sorted(specimen.files)))
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        specimen.write(folder)
        (folder / name).write_bytes(changed(data.draw, name, specimen.files[name]))
        try:
            specimen.read(folder)
            verdicts["read"] += 1
        except MempilerError as error:
            verdicts["refused"] += 1
            told = str(error)
            assert "\n" not in told
            assert len(told) <= 2000
            assert told.encode()

    holds()
    # Neither all nor none are refused: the mutants reach the readers.
    assert min(verdicts["read"], verdicts["refused"]) > examples // 6
