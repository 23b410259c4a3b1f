"""Mutated files of every form that is read, a seeded few of those of `perf/fuzz_readers.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "perf"))
from fuzz_readers import fuzz


def test_a_mutated_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    tally = fuzz(600, 0, tmp_path)
    assert tally.faults == []
    # Neither all nor none are refused: the mutants reach the readers.
    assert tally.of("read") > 100
    assert tally.of("refused") > 200
