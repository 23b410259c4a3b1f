"""Mutations fit the sources, and a mutant is told from what the tests of its method notice."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

PERF = Path(__file__).parents[2] / "perf"
TEST = "tests/programs/test_pramem_rule.py"


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PERF))
    import mutants

    return mutants


@pytest.fixture
def nursery(mutants, tmp_path, monkeypatch):
    """A copy of a repository of two files: a source, and its test."""
    root = tmp_path / "root"
    files = {
        "programs/pramem/rule.py": "LIMIT = 3\nOTHER = 4\n",
        TEST: "from mempiler.programs.pramem.rule import LIMIT\n\ndef test_limit():\n    assert LIMIT == 3\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=root, check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    return mutants.MutantTree(tmp_path, timeout=60)


@pytest.fixture
def mutation(mutants):
    return mutants.Mutation("pramem", "programs/pramem/rule.py", "LIMIT = 3", "LIMIT = 5", "the limit is ignored")


def test_every_old_text_stands_in_its_file_exactly_once(mutants):
    assert mutants.misplaced(mutants.MUTATIONS) == []


def test_the_tests_that_noticed_are_there_and_of_mutations_that_are_there(mutants):
    assert set(mutants.noticers()) <= {f"{each.method}: {each.breaks}" for each in mutants.MUTATIONS}
    for noticed in mutants.noticers().values():
        file, _, test = noticed.partition("[")[0].partition("::")
        assert f"def {test}(" in (PERF.parent / file).read_text(encoding="utf-8")


def test_there_are_eighty_of_the_methods_forty_of_the_rest_and_some_of_every_group(mutants):
    assert len(mutants.METHODS) >= 80
    assert len(mutants.ROOMS) >= 40
    assert all(list(PERF.parent.glob(pattern)) for patterns in mutants.TESTS.values() for pattern in patterns)
    assert {each.method for each in mutants.MUTATIONS} == set(mutants.TESTS)
    assert len({(each.method, each.breaks) for each in mutants.MUTATIONS}) == len(mutants.MUTATIONS)


def test_a_text_that_is_gone_twice_there_or_unchanged_is_told(mutants, mutation, tmp_path):
    source = tmp_path / mutation.file
    source.parent.mkdir(parents=True)
    for text, times in (("", 0), ("LIMIT = 3\nLIMIT = 3\n", 2)):
        source.write_text(text)
        (told,) = mutants.misplaced([mutation], tmp_path)
        assert told == f"programs/pramem/rule.py: 'the limit is ignored': its old text stands there {times} times"
    source.write_text("LIMIT = 3\n")
    assert mutants.misplaced([mutation], tmp_path) == []
    assert len(mutants.misplaced([replace(mutation, new=mutation.old)], tmp_path)) == 1


def test_a_mutant_is_noticed_or_survives(mutants, mutation, nursery):
    unnoticed = replace(mutation, old="OTHER = 4", new="OTHER = 5", breaks="nothing that is tested")
    # A test that noticed it last and is gone is none that notices it.
    nursery.noticers = {"pramem: nothing that is tested": "tests/gone.py::test_limit"}
    found = list(mutants.outcomes(nursery, [mutation, unnoticed]))
    assert [each.noticed for each in found] == ["", f"{TEST}::test_limit", ""]
    assert found[1].line().endswith(f"{TEST}::test_limit")
    assert found[2].line().endswith("SURVIVED")
    assert (nursery.copy / mutation.file).read_text() == "LIMIT = 3\nOTHER = 4\n"

    (nursery.copy / mutation.file).write_text("LIMIT = 4\n")
    with pytest.raises(SystemExit, match="test_limit fails without any mutation"):
        list(mutants.outcomes(nursery, [mutation]))
