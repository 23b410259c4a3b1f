"""Paths that a data file names stay in its folder, and options of a benchmark are of the kind that it asks for."""

import csv
import shutil
from pathlib import Path

import pytest
from mempiler.data.personamem_v2.benchmark import PersonaMemV2
from mempiler.data.samples import sample
from mempiler.errors import DataError


def linked(folder: Path, link: str) -> Path:
    """The sample with another link in its first row."""
    with sample() as samples:
        for path in samples.glob("personamem_v2*"):
            shutil.copy(path, folder)
    path = folder / "personamem_v2.csv"
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    rows[0][header.index("chat_history_32k_link")] = link
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.mark.parametrize("link", ["../secret.json", "../../etc/passwd", "{outside}", "sub/../../secret.json"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "secret.json").write_text('[{"role": "user", "content": "secret"}]')
    (tmp_path / "data").mkdir()
    path = linked(tmp_path / "data", link.format(outside=tmp_path / "secret.json"))
    with pytest.raises(DataError, match=r"line 2, column 'chat_history_32k_link': .*must name a file below"):
        PersonaMemV2.load(path)


def test_a_symbolic_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    # As deep as the folders above that are searched.
    data = tmp_path / "a/b/c/d"
    data.mkdir(parents=True)
    (tmp_path / "secret.json").write_text('[{"role": "user", "content": "secret"}]')
    path = linked(data, "inside.json")
    (data / "inside.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(DataError, match=r"'inside\.json' leads to a file outside; copy it there"):
        PersonaMemV2.load(path)


def test_the_cache_of_the_hub_where_all_files_are_links_is_read(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots/rev/benchmark/text").mkdir(parents=True)
    whole = linked(tmp_path / "blobs", "personamem_v2_0.json")
    for blob in whole.parent.iterdir():
        (tmp_path / "snapshots/rev/benchmark/text" / blob.name).symlink_to(blob)
    found = PersonaMemV2.load(tmp_path / "snapshots/rev/benchmark/text/personamem_v2.csv")
    assert len(found.examples) > 10


@pytest.mark.parametrize("link", ["a\x00b", "x" * 5000])
def test_a_link_that_is_no_path_is_a_missing_history(tmp_path: Path, link: str) -> None:
    with pytest.raises(DataError):
        PersonaMemV2.load(linked(tmp_path, link))
