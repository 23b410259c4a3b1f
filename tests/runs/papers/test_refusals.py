"""What a paper does not have, or cannot be run with, is one line before anything is asked."""

import pytest
from mempiler.cli import main
from mempiler.runs.papers.arrangement import arrange
from mempiler.runs.papers.paper import read_paper
from mempiler.runs.setup import Setup


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "unknown paper 'nobody'"),
        (["pgr", "--section", "nothing"], "unknown section of pgr 'nothing'"),
        (["pgr", "--data", "a", "--data", "b"], "--data b: say which benchmark it is of"),
        (["rgmem", "--data", "msc=x"], "msc=x is one file for 3 benchmarks; say --data personamem=FILE"),
        (["rgmem", "--section", "table2", "--data", "personamem=x"], "unknown benchmark of these sections"),
        (["rgmem", "--section", "table2", "--option", "colour=red"], "colour"),
        (
            ["h2memory", "--section", "table3", "--lm", "openai/x"],
            "section table3 is scored by a judge",
        ),
        (["memory-r2", "--lm", "openai/x"], "trains a model in this process, which openai/x is not"),
        (["rgmem", "--lm", "openai/gpt-4.1-mini"], "there is no key; set OPENAI_API_KEY"),
        (["rgmem", "--judge-lm", "openai/gpt-4.1-mini"], "there is no key; set OPENAI_API_KEY"),
        (["rgmem", "--on", "locomo"], "No such option"),
    ],
)
def test_a_wrong_word_is_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *words])
    assert ended.value.code == 2
    *before, line = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert not any("Traceback" in other for other in before)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_suite_is_that_of_its_parts_and_an_option_goes_where_it_is_known():
    setup = Setup(benchmark="", options={"language": "zh"})
    arranged, _ = arrange(read_paper("h2memory"), setup, ["table2", "table4"], {"palbench": "input.json"})
    assert [each.setup.data for each in arranged] == ["input.json"] * 3 + [None]
    assert ["language" in each.setup.options for each in arranged] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("judge", "options"),
    [("openai/gpt-4.1", {"metric": "judge"}), (None, {"metric": "f1", "categories": "1,2,3,4"})],
)
def test_a_metric_without_a_judge_stands_in(judge, options):
    (found,), _ = arrange(read_paper("rgmem"), Setup(benchmark="", judge_lm=judge, lm="openai/x"), ["table2"])
    assert found.setup.options == options


def test_what_cannot_be_run_is_said_and_the_rest_is_run():
    arranged, notes = arrange(read_paper("h2memory"), Setup(benchmark="", lm="openai/x"))
    assert {each.section.name for each in arranged}.isdisjoint({"table3", "table11"})
    assert "section table3 is scored by a judge; name its model with --judge-lm" in notes
    offline, told = arrange(read_paper("h2memory"), Setup(benchmark=""), ["table3"])
    assert (offline[0].setup.judge_lm, offline[0].setup.test) == ("offline", 4)
    assert told == ("on the bundled samples: 4 questions a section; --test N takes others",)
