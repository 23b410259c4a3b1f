"""Recipes: sections of variants on the same questions, their cells printed apart from the paper's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mempiler.cli import app, main
from mempiler.engines.guard import Limits
from mempiler.errors import UnknownNameError, UserError
from mempiler.runs.recipes.beside import differences
from mempiler.runs.recipes.catalog import RECIPES, recipe
from mempiler.runs.recipes.columns import calls, category, count, over_all, part, score, tokens
from mempiler.runs.recipes.made import Made
from mempiler.runs.recipes.pictures import Picture, bars, lines, matrix, save, scatter
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.section import Duel, Section, Sweep, Variant
from mempiler.runs.recipes.tables import OurTable, PaperTable
from mempiler.runs.results import Evaluation, Row
from mempiler.runs.setup import Setup
from mempiler.runs.tracking import client
from mempiler.systems.catalog import SYSTEMS

TURNS = Section(
    name="turns",
    title="turns against nothing",
    benchmark="locomo",
    variants=(Variant("three turns", "turn-rag", {"k": 3}), Variant("nothing", "no-memory")),
    paper=(PaperTable("Nobody, Table 1", "no model", ("method", "score"), (("x", 0.5),)),),
    duels=(Duel("turns over nothing", "three turns", "nothing"),),
    others=("msc",),
)
SIZES = Section(
    name="sizes",
    title="how many turns",
    benchmark="locomo",
    sweeps=(Sweep("k", (1, 3, 5), "turn-rag", lines=(score(), part("bleu1"))),),
)
TINY = Recipe(name="tiny", summary="two baselines", sections=(TURNS, SIZES))
SETUP = Setup(benchmark="", test=6, threads=2)


class PrefersFirstAnswer:
    """A judge that prefers whichever response is longer."""

    hash = "none"

    def __call__(self, example, first, second):
        from mempiler.data.preference import Preferred

        side = "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"
        return Preferred(side)


@pytest.fixture(scope="module")
def made():
    return run_recipe(TINY, SETUP)


def test_every_variant_is_scored_on_the_same_questions(made):
    assert [row.label for row in made.rows] == ["three turns", "nothing", "k = 1", "k = 3", "k = 5"]
    assert len({tuple(row.id for row in entry.evaluation.rows) for entry in made.rows}) == 1
    assert made.win_rates == {}


def test_equal_variants_are_evaluated_once(made):
    """`three turns` and the sweep's `k = 3` are the same program: one run, two rows."""
    runs = {entry.label: entry.evaluation.run_id for entry in made.rows}
    assert runs["three turns"] == runs["k = 3"]
    assert len(set(runs.values())) == 4


def test_win_rates_come_from_the_judge():
    found = run_recipe(TINY, SETUP, PrefersFirstAnswer(), only=("turns",))
    ours, theirs = ({row.id: len(row.answer) for row in entry.evaluation.rows} for entry in found.rows)
    wins = [1.0 if ours[id] > theirs[id] else 0.0 for id in ours]
    assert found.win_rates == {"turns over nothing": sum(wins) / len(wins)}
    table = found.sections[0].beside[0]
    (row,) = table.rows
    assert (table.title, row[:2], row[2].n) == ("win rates", ("turns over nothing", "6"), 6)
    assert row[2].interval[0] <= row[2].value <= row[2].interval[1]


def test_paper_and_ours_are_kept_apart(made):
    summary = made.summary()
    assert summary["paper"][0]["rows"] == (("x", 0.5),)
    assert all("score" in row and row["comparable"] is False for row in summary["ours"])
    assert all("wiring check, not comparable" in table["heading"] for table in summary["tables"])


def test_a_sweep_gives_a_table_and_a_picture(made):
    table = made.sections[1].tables[0]
    assert table.columns == ("k", "n", "score", "bleu1", "context tokens")
    assert [row[0] for row in table.rows] == ["1", "3", "5"]
    picture = made.sections[1].pictures[0]
    assert (picture.parent.parent, picture.name) == (made.run, "sizes-k.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_there_is_one_parent_run_and_every_other_is_nested_in_it(made):
    mlflow = client()
    parent = mlflow.get_run(made.run_id)
    assert parent.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in parent.data.tags
    for entry in made.rows:
        assert mlflow.get_run(entry.evaluation.run_id).data.tags["mlflow.parentRunId"] == made.run_id
    assert [file.path for file in mlflow.list_artifacts(made.run_id, "pictures")] == ["pictures/sizes-k.png"]


def test_a_failing_analysis_leaves_no_run_open(tmp_path, monkeypatch):
    # A home of its own: other tests kill runs, which stay open.
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))

    def broken(material):
        raise UserError("no such thing")

    section = Section("broken", "", "locomo", (Variant("nothing", "no-memory"),), analyses=(broken,))
    with pytest.raises(UserError, match="no such thing"):
        run_recipe(Recipe("broken", "", (section,)), SETUP)
    mlflow = client()
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("mempiler").experiment_id], "status = 'RUNNING'")
    assert list(runs) == []


def test_an_analysis_sees_memories_of_every_step_without_new_calls():
    seen = {}

    def growth(material):
        history = material.histories()[0]
        before = material.bench.meter.read()
        memories = material.memories("summary", history)
        seen.update(
            history=history, memories=memories, calls=sum((material.bench.meter.read() - before).calls.values())
        )
        yield OurTable("growth", ("session", "words"), tuple((str(n), 1.0) for n, _ in enumerate(memories)))
        yield Picture("growth", lines("growth", "session", {"words": ([1, 2], [1, None])}))

    section = Section("growth", "", "locomo", (Variant("summary", "recursive-summary"),), analyses=(growth,))
    found = run_recipe(Recipe("growth", "", (section,)), Setup(benchmark="", test=2, threads=1))
    assert len(seen["memories"]) == len(seen["history"])
    assert seen["calls"] == 0
    assert [table.title for table in found.sections[0].tables] == ["", "growth"]
    assert [path.name for path in found.sections[0].pictures] == ["growth.png"]


def test_seeds_repeat_what_draws_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "drawing.py").write_text(
        "from mempiler.programs.baselines.turn_rag import TurnRAG\n"
        "class Drawing(TurnRAG):\n"
        "    def __init__(self, k: int = 3, seed: int = 0) -> None:\n"
        "        super().__init__(k)\n"
        "        self.seed = seed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    variants = (Variant("drawing", "drawing:Drawing"), Variant("fixed", "drawing:Drawing", {"seed": 7}))
    section = Section("seeds", "", "locomo", (*variants, Variant("still", "no-memory")), columns=(score(),))
    found = run_recipe(Recipe("seeds", "", (section,)), SETUP, seeds=3)
    assert [len(entry.evaluations) for entry in found.rows] == [3, 1, 1]
    assert len({each.run_id for each in found.rows[0].evaluations}) == 3
    asked, *cells = (str(row[1]) for row in found.sections[0].tables[0].rows)
    assert (asked, ["±" in cell for cell in cells]) == (str(found.rows[0].evaluation.n), [True, False, False])
    assert "3 seeds" in found.notes[0]


def test_a_sampling_model_is_asked_anew_for_every_seed():
    from mempiler.engines.models import language_model

    first, second, still = (
        language_model("openai/gpt-4.1-mini", repeat=repeat, temperature=temperature)
        for repeat, temperature in ((0, 1.0), (1, 1.0), (1, 0.0))
    )
    assert ["rollout_id" in lm.kwargs for lm in (first, second, still)] == [False, True, False]


def test_a_limit_holds_for_the_whole_recipe():
    found = run_recipe(TINY, Setup(benchmark="", test=6, threads=1, limits=Limits(max_calls=8)))
    assert "max-calls" in str(found.stopped)
    assert [entry.label for entry in found.rows] == ["three turns", "k = 3"]
    mlflow = client()
    nested = mlflow.search_runs(
        [mlflow.get_experiment_by_name("mempiler").experiment_id], f"tags.`mlflow.parentRunId` = '{found.run_id}'"
    )
    assert sum(run.data.metrics["evaluation.calls_task"] for run in nested) == 8
    assert json.loads((found.run / "run.json").read_text())["status"] == "stopped"


def test_small_offline_sizes_are_said():
    small = Recipe("small", "", (TURNS,), offline_test=3)
    assert "3 questions a section" in run_recipe(small, Setup(benchmark="")).notes[0]
    assert run_recipe(small, SETUP).notes == ()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_variants_and_duels_that_exist(name):
    found = recipe(name)
    assert found.name == name
    for section in found.sections:
        labels = [variant.label for variant in (*section.all_variants(), *section.rivals)]
        assert len(labels) == len(set(labels))
        assert {rival.method for rival in section.rivals} <= {f"system:{system}" for system in SYSTEMS}
        assert {side for duel in section.duels for side in (duel.one, duel.other)} <= set(labels)
        assert section.own in {"", *labels}
        assert all(len(row) == len(table.columns) for table in section.paper for row in table.rows)


@pytest.mark.parametrize(
    ("only", "benchmark", "error", "message"),
    [
        (("nothing",), "", UnknownNameError, "section of tiny"),
        ((), "personamem", UnknownNameError, "benchmark of this recipe"),
        (("sizes",), "msc", UserError, "no section of sizes runs on msc"),
    ],
)
def test_what_a_recipe_does_not_have_is_refused(only, benchmark, error, message):
    with pytest.raises(error, match=message):
        TINY.chosen(only, benchmark)


def test_a_benchmark_chooses_the_sections_that_run_on_it():
    assert [(section.name, section.benchmark) for section in TINY.chosen((), "msc")] == [("turns", "msc")]


def test_one_file_for_two_benchmarks_is_refused():
    two = Recipe("two", "", (TURNS, Section("chats", "", "msc", TURNS.variants)))
    with pytest.raises(UserError, match="--data locomo=FILE --data msc=FILE"):
        run_recipe(two, Setup(benchmark="", data="x.json"))
    with pytest.raises(UnknownNameError, match="benchmark of these sections"):
        run_recipe(two, SETUP, only=("turns",), data={"msc": "x"})


def test_an_unknown_recipe_is_refused():
    with pytest.raises(UnknownNameError, match="unknown recipe"):
        recipe("nobody")


def test_columns_read_scores_parts_sizes_and_counts(made):
    entry = made.rows[0]
    found = entry.evaluation
    assert str(score().cell(entry)) == f"{found.score:.3f}"
    assert part("f1").cell(entry) == score().cell(entry)
    assert str(category("4").cell(entry)) == f"{found.by_category()['4']['score']:.3f}"
    absent = category("9")
    assert (absent.cell(entry), absent.size(entry)) == (None, 0)
    assert str(tokens().cell(entry)) == f"{found.context()['tokens']:,.0f}"
    assert str(count("calls").cell(entry)) == "0.00"
    assert str(calls().cell(entry)) == "1.00"


def test_a_cell_has_its_questions_and_the_interval_that_its_score_has_anywhere(made):
    entry = made.rows[0]
    summary = entry.evaluation.summary()
    cell = score().cell(entry)
    assert (cell.n, list(cell.interval), cell.unit) == (summary["n"], summary["interval"], summary["interval_unit"])
    one = category("4").cell(entry)
    assert one.n == summary["by"]["4"]["n"] < cell.n


def rows(scores: list[float], groups: int) -> tuple[Row, ...]:
    """Questions of some users with these scores, answered right where the score is 1."""
    plain = {"category": "x", "counts": True, "question": "", "parts": {}, "recall": {}, "sources": (), "seconds": 0.0}
    return tuple(
        Row(id=str(n), group=f"u{n % groups}", gold="1", answer=str(score), score=score, **plain)
        for n, score in enumerate(scores)
    )


def evaluated(scores: list[float], groups: int = 6) -> Evaluation:
    return Evaluation(
        program="x",
        benchmark="x",
        lm="x",
        embedder=None,
        comparable=False,
        rows=rows(scores, groups),
        calls={},
        tokens={},
        cost=None,
        aggregate={"best": max(scores)},
        write_failures=0,
        seconds=0.0,
    )


def best(found):
    return {"best": max(row.score for row in found)} if found else {}


@pytest.mark.parametrize(("groups", "unit"), [(6, "group"), (2, "question")])
def test_a_metric_of_all_answers_is_computed_anew_for_every_draw(groups, unit):
    """The best of twelve scores, of which one is 1: a draw without it has 0.5 at best."""
    entry = Made("x", (evaluated([0.5] * 11 + [1.0], groups),), best)
    cell = over_all("best").cell(entry)
    assert (cell.value, cell.n, cell.interval, cell.unit) == (1.0, 12, (0.5, 1.0), unit)


def test_variants_are_compared_with_the_own_one_question_by_question():
    ours, other, same = (
        Made(label, (evaluated(scores),))
        for label, scores in (("ours", [1.0] * 24), ("other", [0.0] * 12 + [1.0] * 12), ("same", [1.0] * 24))
    )
    table = differences([other, ours, same], "ours")
    assert table is not None
    assert [row[0] for row in table.rows] == ["other", "same"]
    first, second = ([str(cell) for cell in row[1:]] for row in table.rows)
    assert (first[0], first[1], first[3:6], first[-1]) == ("24", "-0.500", ["0", "12", "12"], "worse")
    assert (second[1], second[-1]) == ("0.000", "not told apart")
    few = differences([Made("a", (evaluated([1.0] * 4),)), Made("b", (evaluated([0.0] * 4),))])
    assert few is not None
    assert few.rows[0][-1] == "too few to tell"
    assert differences([ours]) is None
    assert [row[0] for row in differences([other, ours]).rows] == ["ours"]


def test_what_a_variant_takes_is_told_apart_for_writing_and_answering(made):
    """Two baselines without writing, one call a question, however many calls were paid by another variant."""
    table = next(table for table in made.sections[1].beside if table.title == "what it takes")
    cells = dict(zip(table.columns, table.rows[1], strict=True))
    assert cells["variant"] == "k = 3"
    assert (cells["calls to write"], cells["calls a question"], cells["US$ to answer"]) == ("0.0", "1.0", "-")
    assert float(str(cells["tokens a question"])) > 0
    answering = made.sections[1].made[1].evaluation.answering
    assert answering.calls == answering.units == 6


@pytest.mark.parametrize(
    "figure",
    [
        lambda: lines("a", "x", {"one $": ([1, 2], [0.1, None]), "two": ([1], [0.3])}, spread={"two": [0.1]}),
        lambda: scatter("a", "x", "y", {"one": (0.1, 0.2)}),
        lambda: bars("a", ["g", "h"], {"one": [0.1, None], "two": [0.3, 0.4]}),
        lambda: matrix("a", ["1", "2"], [[3, 1], [0, 0]]),
    ],
    ids=["lines", "scatter", "bars", "matrix"],
)
def test_pictures_are_drawn_without_a_window(figure, tmp_path: Path):
    assert save(Picture("picture", figure()), tmp_path).read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_both(capsys):
    app.main(["reproduce", "pgr", "--test", "4", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in found["ours"]] == [each.label for each in RECIPES["pgr"].sections[0].variants]
    assert found["paper"][0]["rows"][-1][:2] == ["PGR-TOT", 0.723]
    assert found["win_rates"] == {}
    gap = next(table for table in found["tables"] if "Figure 3" in table["title"])
    assert [(row[0], len(row)) for row in gap["rows"]] == [("query only", 3), ("PGR, tree", 3)]
    assert [Path(path).name for path in found["pictures"]] == ["fig3-gap.png"]
    effort = next(table for table in found["tables"] if "Table 7" in table["title"])
    assert effort["columns"] == ["variant", "LM calls", "facts, phase 1", "new facts, phase 2", "rounds"]
    rows = {label: [float(cell) for cell in cells] for label, *cells in effort["rows"]}
    assert rows["query only"][0] == 1
    # One to imagine, one a round, one to sum up, one to answer.
    assert all(rows[f"PGR, {name}"][0] == rows[f"PGR, {name}"][3] + 3 for name in ("tree", "chain"))
    assert rows["PGR, tree, base"][2] == 0


def test_the_sections_are_listed_and_nothing_is_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    app.main(["reproduce", "rgmem", "--sections", "--on", "locomo", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert [row["section"] for row in found["sections"]] == [
        each.name for each in RECIPES["rgmem"].chosen((), "locomo")
    ]
    assert found["sections"][1]["variants"] == ["w/o L0", "w/o L1", "w/o RG", "RGMem"]
    app.main(["reproduce", "rgmem", "--sections"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert all(each.name in shown for each in RECIPES["rgmem"].sections)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", RECIPES["pgr"].sections[0].paper, ids=lambda table: table.title)
def test_a_table_of_pgr_is_told_with_the_data_that_it_is_of(table):
    """A table over several data sets names each of them, and one over MemoryQuest alone no other."""
    cells = " ".join(map(str, (table.title, *table.columns, *(row[0] for row in table.rows))))
    named = {name for name in ("MemoryQuest", "ImplexConv", "PersonaMem") if name in cells} or {"MemoryQuest"}
    if "humans" in cells:
        named = {"MemoryQuest", "ImplexConv", "PersonaMem"}
    assert {name for name in ("MemoryQuest", "ImplexConv", "PersonaMem") if name in table.model} == named


@pytest.mark.parametrize("words", [["--only", "nothing"], ["--data", "a", "--data", "b"], ["--set", "colour=3"]])
def test_a_wrong_word_on_the_command_line_is_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "pgr", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("mempiler: ")


@pytest.mark.parametrize(
    ("name", "section", "labels"),
    [
        ("pgr", "ablations", ("query only", "PGR, tree", "PGR, chain")),
        ("rgmem", "table1", ("turn RAG", "RGMem")),
        ("h2memory", "table2-select", ("Vanilla (with log)", "H2Memory")),
        ("pramem", "table1", ("Long-context", "RAG")),
        ("pramem", "fig3", ("Truncation", "RAG")),
    ],
)
def test_no_answer_of_an_offline_table_is_unreadable(name, section, labels):
    """Answers have only forms that can be read, so that nothing has to be compiled first."""
    found = RECIPES[name]
    wanted = next(each for each in found.sections if each.name == section)
    few = replace(
        wanted, variants=tuple(each for each in wanted.variants if each.label in labels), analyses=(), duels=()
    )
    made = run_recipe(replace(found, sections=(few,)), Setup(benchmark="", test=4, embedder="offline"))
    assert [each.label for each in made.rows] == list(labels)
    for each in made.rows:
        answers = {end: count for ends in each.evaluation.answers.values() for end, count in ends.items()}
        assert (each.evaluation.n, each.evaluation.failures, set(answers)) == (4, 0, {"ok"}), each.label
        unread = {
            key: value for key, value in each.evaluation.aggregate.items() if key.startswith(("failed", "invalid"))
        }
        assert set(unread.values()) <= {0}


@pytest.mark.parametrize("name", RECIPES)
def test_every_column_but_the_number_of_questions_has_an_interval(name):
    sections = RECIPES[name].sections
    columns = [column for each in sections for column in (*each.columns, *(c for s in each.sweeps for c in s.lines))]
    assert [column.name for column in columns if column.each is None and not column.key] == []
