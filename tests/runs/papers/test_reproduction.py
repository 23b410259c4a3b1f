"""A reproduction: each variant an ordinary run of its own, a table of ours with the paper's cells beside it."""

import json
from dataclasses import replace

import pytest
from mempiler.cli import main
from mempiler.engines.guard import Limits
from mempiler.engines.meter import Meter
from mempiler.runs.compare import recorded
from mempiler.runs.papers.arrangement import plan_paper
from mempiler.runs.papers.reproduction import reproduce
from mempiler.runs.setup import Setup

SETUP = Setup(benchmark="", test=6, threads=2)
SPLIT = Setup(benchmark="", train=8, dev=4, test=4, threads=1)
TUNED = {
    "three turns": {"program": "turn-rag"},
    "demos": {
        "program": "turn-rag",
        "settings": {"k": 2},
        "tuned": {"optimizer": "labeled", "settings": {"max_labeled_demos": 2}},
    },
    "more demos": {
        "program": "turn-rag",
        "tuned": {"optimizer": "bootstrap", "start": "demos", "settings": {"max_tries": 2}},
    },
}


def rows_of(made):
    return {row["label"]: row for section in made.summary()["sections"] for row in section["rows"]}


def test_a_variant_is_a_run_of_its_own_and_equal_ones_are_one(make_paper):
    made = reproduce(make_paper(), SETUP)
    rows = rows_of(made)
    assert list(rows) == ["three turns", "nothing", "k = 1", "k = 3"]
    assert rows["three turns"]["runs"] == rows["k = 3"]["runs"]
    assert len({run for row in rows.values() for run in row["runs"]}) == 3
    alone = recorded(rows["k = 1"]["runs"][0]).evaluation
    assert rows["k = 1"]["cells"]["all"]["value"] == alone.score
    assert (rows["k = 1"]["n"], len(alone.rows)) == (alone.n, 6)
    assert json.loads((made.run / "reproduced.json").read_text()) == json.loads(json.dumps(made.summary()))


def test_a_row_has_the_papers_cell_an_interval_and_a_difference(make_paper):
    made = reproduce(make_paper(), SETUP, ["turns"])
    ours, own = rows_of(made)["three turns"], rows_of(made)["nothing"]
    cell = ours["cells"]["all"]
    assert (cell["n"], cell["printed"], own["cells"]["all"]["printed"]) == (ours["n"], (38.1,), ())
    assert cell["interval"][0] <= cell["value"] <= cell["interval"][1]
    found = ours["difference"]
    assert (found["to"], found["n"], own["difference"]) == ("nothing", ours["n"], None)
    assert found["verdict"] == "too few to tell"
    assert found["mean"] == pytest.approx(cell["value"] - own["cells"]["all"]["value"])
    assert found["interval"][0] <= found["mean"] <= found["interval"][1]
    assert (ours["takes"]["calls"], ours["failures"], ours["lost"]) == (6, 0, 0.0)


def test_a_compiled_row_is_compiled_and_then_asked_what_nothing_learned_from(make_paper):
    """The second begins from the program that the first one kept."""
    paper = make_paper(variants=TUNED, sections=[_turns(list(TUNED), own="three turns")])
    made = reproduce(paper, SPLIT)
    assert {row.label: len(row.evaluation.rows) for row in made.sections[0].rows} == dict.fromkeys(TUNED, 4)
    assert not made.failed
    found = {json.loads(path.read_text())["settings"]["command"] for path in made.run.glob("parts/*/run.json")}
    assert found == {"evaluate", "compile"}
    begun = [json.loads(path.read_text())["settings"] for path in made.run.glob("parts/bootstrap-*/run.json")]
    assert [each["begun"].partition("-turn-rag")[0] for each in begun] == ["labeled"]
    (kept,) = made.run.glob("parts/labeled-*/program/manifest.json")
    assert json.loads(kept.read_text())["config"]["k"] == 2


def test_what_learned_on_another_benchmark_is_asked_all_of_this_one(make_paper):
    """Two sections that learn alike share what was learned."""
    demos = TUNED["demos"]
    variants = {
        "three turns": {"program": "turn-rag"},
        "demos": demos,
        "abroad": {**demos, "tuned": {**demos["tuned"], "on": "locomo"}},
    }
    sections = [
        _turns(["demos"], own="demos"),
        {**_turns(["three turns", "abroad"], own="abroad"), "name": "msc", "benchmark": "msc"},
    ]
    setup = Setup(benchmark="", train=8, dev=4, threads=1)
    plan, _ = plan_paper(make_paper(variants=variants, sections=sections), setup)
    made = reproduce(make_paper(variants=variants, sections=sections), setup)
    assert not made.failed
    ran = [json.loads(path.read_text())["settings"] for path in made.run.glob("parts/*/run.json")]
    assert [(each["benchmark"], each["train"]) for each in ran if each["command"] == "compile"] == [("locomo", 8)]
    (rows,) = ([len(row.evaluation.rows) for row in each.rows] for each in made.sections if each.section.name == "msc")
    assert rows == [len(Setup(benchmark="msc").load().examples)] * 2
    assert plan.calls.high >= sum(row.evaluation.taken.calls for each in made.sections for row in each.rows)


@pytest.mark.parametrize("calls", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_a_compile_that_a_limit_broke_off_goes_on_and_pays_nothing_twice(make_paper, calls):
    paper = make_paper(variants=TUNED, sections=[_turns(list(TUNED), own="three turns")])
    meters = [Meter() for _ in range(3)]
    whole = reproduce(paper, SPLIT, meter=meters[0])
    broken = reproduce(paper, replace(SPLIT, limits=Limits(max_calls=calls)), meter=meters[1])
    resumed = reproduce(paper, replace(SPLIT, resume=str(broken.run)), meter=meters[2])
    assert (len(broken.sections[0].rows) < 3, resumed.stopped) == (True, None)
    paid = [sum(meter.read().calls.values()) for meter in meters]
    assert paid[1] + paid[2] == paid[0]
    cells = [{label: row["cells"] for label, row in rows_of(each).items()} for each in (whole, resumed)]
    assert cells[0] == cells[1]


def test_a_variant_that_fails_is_named_and_the_others_are_run(make_paper, capsys, monkeypatch):
    variants = {"three turns": {"program": "turn-rag", "settings": {"colour": 3}}, "nothing": {"program": "no-memory"}}
    paper = make_paper(
        variants=variants,
        sections=[_turns(["three turns", "nothing"])],
        not_drawn=[{"what": "Figure 7", "why": "a picture"}],
    )
    monkeypatch.setattr("mempiler.runs.papers.paper.read_paper", lambda name: paper)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "tiny", "--test", "4"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 1
    assert "failed: three turns: " in shown
    assert "colour" in shown
    assert " nothing 4 " in shown
    assert "not drawn: Figure 7: a picture" in shown


def _turns(labels, own="nothing"):
    return {
        "name": "turns",
        "title": "turns",
        "benchmark": "locomo",
        "variants": labels,
        "own": own,
        "columns": [{"name": "all", "printed": ["Avg."]}],
        "printed": ["table1"],
    }


def test_seeds_repeat_what_draws_and_nothing_else(make_paper, tmp_path, monkeypatch):
    (tmp_path / "drawing.py").write_text(
        "from mempiler.programs.baselines.retrieval import TurnRAG\n"
        "class Drawing(TurnRAG):\n"
        "    def __init__(self, k: int = 3, seed: int = 0) -> None:\n"
        "        super().__init__(k)\n"
        "        self.seed = seed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    drawing = {"program": "drawing:Drawing"}
    variants = {
        "three turns": drawing,
        "fixed": {**drawing, "settings": {"seed": 7}},
        "nothing": {"program": "no-memory"},
    }
    paper = make_paper(variants=variants, sections=[_turns(["three turns", "fixed", "nothing"])], seeds=3)
    made = reproduce(paper, SETUP)
    assert {label: len(row["runs"]) for label, row in rows_of(made).items()} == {
        "three turns": 3, "fixed": 1, "nothing": 1,
    }  # fmt: skip
    spreads = {label: row["cells"]["all"]["spread"] is not None for label, row in rows_of(made).items()}
    assert spreads == {"three turns": True, "fixed": False, "nothing": False}
    assert made.notes == ("what neither samples nor draws by a seed is run once, however many seeds there are",)


def test_a_system_that_is_not_installed_is_left_out_and_named(make_paper, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path))
    variants = {"three turns": {"program": "turn-rag"}, "the other": {"program": "system:mem0"}}
    paper = make_paper(variants=variants, sections=[_turns(list(variants), own="three turns")])
    made = reproduce(paper, Setup(benchmark="", test=4, threads=1))
    assert list(rows_of(made)) == ["three turns"]
    told = "the other is left out: system:mem0 is not installed; run: mempiler fetch system:mem0"
    assert made.notes == (told,)
