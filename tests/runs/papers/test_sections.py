"""The papers' files, what they run on, and their plans; what a paper does not have is one line before."""

import json

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.cli import app
from mempiler.data.catalog import BENCHMARKS
from mempiler.data.judge import ReferenceVerdict
from mempiler.engines.meter import Meter
from mempiler.errors import UserError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.pramem.settings import PracticeSettings, PraMemSettings
from mempiler.runs.inputs import RunInputs
from mempiler.runs.papers.paper import LOGO, PAPERS, Column, read_paper
from mempiler.runs.papers.reproduction import reproduce
from mempiler.runs.papers.sections import Selection, plan_paper, repetitions, resolve_sections
from mempiler.runs.planning import start_program
from mempiler.runs.repeating import resume_key
from mempiler.systems.catalog import SYSTEMS

from ...run_inputs import run_config

SETUP = run_config(benchmark="", test=8, threads=2)


def test_the_usage_of_a_run_lies_within_its_plan(make_paper):
    paper, meter = make_paper(), Meter()
    plan, _ = plan_paper(paper, SETUP)
    reproduce(paper, SETUP, meter=meter)
    used = meter.read()
    assert plan.calls.low <= sum(used.calls.values()) <= plan.calls.high
    assert plan.tokens.low <= used.input_tokens + used.output_tokens <= plan.tokens.high


@pytest.mark.slow
def test_seeds_multiply_what_samples_alone(make_paper):
    once, thrice = (
        plan_paper(make_paper(), SETUP, Selection(seeds=seeds)).plan for seeds in (1, 3)
    )
    assert once == thrice
    named = run_config(benchmark="", test=8, lm="openai/gpt-4.1-mini")
    asked = [plan_paper(make_paper(), named, Selection(seeds=seeds)).plan for seeds in (1, 3)]
    assert asked[1].calls.high == pytest.approx(3 * asked[0].calls.high)
    assert asked[0].usd is not None
    assert 0 < asked[0].usd.low < asked[0].usd.high


def test_compiles_and_trainings_are_planned():
    config = run_config(benchmark="", test=4, dev=2, train=4)
    plan, notes = plan_paper(read_paper("memory-r2"), config, Selection(["ladder-tiny"]))
    assert plan.calls.high > 1000
    assert not any("LoGo-GRPO" in note for note in notes)
    assert any(
        note.startswith("not counted: the tuning of SFT, tiny: the provider of") for note in notes
    )


def test_the_command_prints_a_plan_and_makes_nothing(make_paper, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    monkeypatch.setattr("mempiler.runs.papers.paper.read_paper", lambda name: make_paper())
    words = [
        "reproduce",
        "tiny",
        "--section",
        "sizes",
        "--plan",
        "--test",
        "3",
        "--lm",
        "openai/gpt-4.1-mini",
    ]
    app.main([*words, "--judge-lm", "openai/gpt-4.1", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert set(found["phases"]) == {"sizes"}
    assert found["calls"]["low"] > 0
    assert "not counted: calls of the judge" in found["notes"]
    app.main(words, standalone_mode=False)
    assert "sizes" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "unknown paper 'nobody'"),
        (["pgr", "--section", "nothing"], "unknown section of pgr 'nothing'"),
        (["pgr", "--data", "a", "--data", "b"], "--data b: say which benchmark it is of"),
        (
            ["rgmem", "--data", "msc=x"],
            "msc=x is one file for 3 benchmarks; say --data personamem=FILE",
        ),
        (
            ["rgmem", "--section", "table2", "--data", "personamem=x"],
            "unknown benchmark of these sections",
        ),
        (["rgmem", "--section", "table2", "--benchmark-set", "colour=red"], "colour"),
        (
            ["h2memory", "--section", "table3", "--lm", "openai/x"],
            "section table3 is scored by a judge",
        ),
        (
            ["memory-r2", "--section", "grpo", "--lm", "openai/x"],
            "trains a model in this process, which openai/x is not",
        ),
        (["rgmem", "--lm", "openai/gpt-4.1-mini"], "there is no key; set OPENAI_API_KEY"),
    ],
)
def test_a_wrong_word_is_one_line(words, said, tmp_path, monkeypatch, cli):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    code, _, err = cli("reproduce", *words)
    assert code == 2
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_suite_is_that_of_its_parts_and_an_option_goes_where_it_is_known():
    config = run_config(benchmark="", benchmark_set={"language": "zh"})
    resolved, _ = resolve_sections(
        read_paper("h2memory"), config, Selection(["table2", "table4"], {"palbench": "input.json"})
    )
    assert [each.config.data.file for each in resolved] == ["input.json"] * 3 + [None]
    assert ["language" in each.config.data.settings for each in resolved] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("judge", "options"),
    [("openai/gpt-4.1", {"metric": "judge"}), (None, {"metric": "f1", "categories": "1,2,3,4"})],
)
def test_a_metric_without_a_judge_stands_in(judge, options):
    (found,), _ = resolve_sections(
        read_paper("rgmem"),
        run_config(benchmark="", judge_lm=judge, lm="openai/x"),
        Selection(["table2"]),
    )
    assert found.config.data.settings == options


def test_another_model_reads_the_memories_of_its_own_section_alone():
    paper, config = read_paper("pramem"), run_config(benchmark="", lm="openai/x")
    without, notes = resolve_sections(paper, config, Selection(["table1"]))
    assert [each.section.name for each in without] == ["table1"]
    assert (
        "section table1-transfer asks another model about what openai/x wrote; name that with --answer-lm"
        in notes
    )
    found, notes = resolve_sections(
        paper, config.with_options(answer_lm="openai/y"), Selection(["table1"])
    )
    models = {
        each.section.name: (each.config.models.task.name, each.config.models.answer.name)
        for each in found
    }
    assert models == {"table1": ("openai/x", None), "table1-transfer": ("openai/x", "openai/y")}
    assert (
        "section table1 is answered by openai/x, as in the paper, and not by --answer-lm" in notes
    )
    offline, _ = resolve_sections(paper, run_config(benchmark=""), Selection(["table1-transfer"]))
    assert offline[0].config.models.answer.name == "offline"


def test_practice_has_the_papers_settings_and_figure_4_reads_one_run():
    paper = read_paper("pramem")
    by_label = {label: PraMemSettings.model_validate(dict(v.settings))
                for label, v in paper.variants.items() if v.program == "pramem"}  # fmt: skip
    for settings in by_label.values():
        assert settings.rounds == 80
        assert settings.distinct_records is False
        assert settings.blind is False
    (fig4,) = paper.select_sections(["fig4"])
    assert [by_label[label].at_round for label in fig4.variants] == [10, 20, 40, 60, None]
    assert (
        len({by_label[label].restrict_to(PracticeSettings) for label in ("PraMem", *fig4.variants)})
        == 1
    )
    assert by_label["patterns alone"].alerts is False


def test_rows_that_cannot_be_run_are_named_and_the_rest_is_run():
    resolved, notes = resolve_sections(
        read_paper("h2memory"), run_config(benchmark="", lm="openai/x")
    )
    assert {each.section.name for each in resolved}.isdisjoint({"table3", "table11"})
    assert "section table3 is scored by a judge; name its model with --judge-lm" in notes
    offline, told = resolve_sections(
        read_paper("h2memory"), run_config(benchmark=""), Selection(["table3"])
    )
    assert offline[0].config.models.judge.name == "offline"
    assert offline[0].config.data.test == 4
    assert told == ("on the bundled samples: 4 questions a section; --test N takes others",)


@pytest.mark.parametrize("name", PAPERS)
def test_every_name_in_the_description_of_a_paper_exists(name):
    paper = read_paper(name)
    tables = [table for found in paper.printed.values() for table in found]
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    shown = {key for each in (*paper.sections, *paper.not_reproduced) for key in each.printed}
    assert shown == paper.printed.keys()
    for section in paper.sections:
        assert section.baseline in section.variants
        assert {
            end for pair in section.comparisons for end in (pair.one, pair.other)
        } <= paper.variants.keys()
    starts = {variant.tuned.start for variant in paper.variants.values() if variant.tuned}
    assert starts <= {"", *paper.variants}


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.slow
def test_every_variant_of_every_section_can_be_built(name):
    paper = read_paper(name)
    assert paper.name == name
    for section in paper.sections:
        assert section.benchmark in BENCHMARKS
        options = {**section.options, **paper.unjudged.get(section.benchmark, {})}
        config = run_config(benchmark=section.benchmark, benchmark_set=options)
        benchmark = RunInputs(config).benchmark
        for label in section.variants:
            variant = paper.variants[label]
            if variant.program.startswith("system:"):
                assert variant.program.removeprefix("system:") in SYSTEMS
            else:
                start_program(
                    variant.program,
                    RunInputs(config.with_options(set=variant.program_settings)),
                    benchmark,
                )
            if variant.tuned is not None:
                assert variant.tuned.optimizer in (LOGO, *OPTIMIZERS)


class Acknowledges:
    """A judge that finds every reference in every context."""

    def __call__(self, question, references, context):
        return tuple(ReferenceVerdict(present=True) for _ in references)


@pytest.mark.parametrize("name", ["memoryquest", "implexconv", "personamem-v2"])
def test_a_section_of_pgr_measures_every_part_that_it_has_a_column_for(name):
    (resolved,), _ = resolve_sections(
        read_paper("pgr"),
        run_config(benchmark="", lm="openai/x", judge_lm="openai/x"),
        Selection([name]),
    )
    benchmark = RunInputs(resolved.config).benchmark
    example = next(each for each in benchmark.examples if benchmark.in_headline(each))
    hit = Hit(id="f1", text="something", sources=tuple(example.history.turns))
    prediction = dspy.Prediction(answer="Rest.", context=Context(hits=(hit,)))
    parts = benchmark.with_judges(lambda kind: Acknowledges()).score(example, prediction).parts
    shown = {column.key for column in resolved.section.columns if column.of == "part"}
    assert "recall" in shown
    assert shown <= set(parts)


def test_pgr_asks_the_opposed_questions_of_implexconv():
    (resolved,), _ = resolve_sections(
        read_paper("pgr"), run_config(benchmark="", lm="openai/x"), Selection(["implexconv"])
    )
    assert {example.category for example in RunInputs(resolved.config).benchmark.examples} == {
        "opposed"
    }


@pytest.mark.parametrize(
    ("section", "rates"),
    [("memoryquest", (90, 75, 95)), ("implexconv", (70, 60, 70)), ("personamem-v2", (80, 65, 65))],
)
def test_the_win_rates_by_humans_of_pgrs_table_1_are_printed(section, rates):
    """Source: PGR, Table 1, columns "Humans", rows GraphRAG, TaciTree and Mem0 with graph."""
    paper = read_paper("pgr")
    (found,) = paper.select_sections([section])
    (table,) = (each for each in paper.tables(found) if "Table 1 " in each.title)
    place = table.columns.index("win rate %, humans")
    assert [row[0] for row in table.rows] == ["GraphRAG", "TaciTree", "Mem0 with graph", "PGR-TOT"]
    assert tuple(row[place] for row in table.rows) == (*rates, None)


@pytest.mark.parametrize("name", PAPERS)
def test_no_variant_resolves_relative_dates_which_no_paper_does(name):
    paper = read_paper(name)
    resolved, _ = resolve_sections(paper, run_config(benchmark="", lm="local:tiny"))
    for section in resolved:
        for label in section.labels:
            variant = paper.variants[label]
            configs = repetitions(variant, section)
            for config in (*configs, section.learning_config(variant)):
                assert config.method.settings["task.dates"] is False, (section.section.name, label)


@pytest.mark.parametrize(
    ("name", "section", "label", "column", "cells"),
    [
        ("rgmem", "table2", "RGMem", "all", (78.92, 86.17)),
        ("rgmem", "table4", "w/o RG", "context tokens", ("8,479",)),
        ("h2memory", "table3", "against RecurSum", "req. win", ("421 / 29 / 376",)),
        ("pramem", "fig4", "round 40", "Overall F1", (30.7,)),
        ("pramem", "table1", "PraMem", "Overall F1", (31.6,)),
        ("pramem", "table1-transfer", "PraMem", "Overall F1", (25.3,)),
        (
            "pgr",
            "memoryquest",
            "PGR, tree",
            "recall",
            ("72.3 (Table 1)", "72.3 (Figure 3)", "72.3 (Table 4)", "72.2 (Table 5)"),
        ),
        ("pgr", "implexconv", "PGR, tree", "recall", ("28.6 (Table 1)",)),
        ("pgr", "personamem-v2", "Mem0 (no graph)", "recall", ("12.1 (Table 1)",)),
        # Memory-R2: of the figures first, then of the notes at 7b3d747, then of the earlier ones.
        ("memory-r2", "main", "32 sessions", "J", ("87.1 (figure)",)),
        ("memory-r2", "main", "Memory-R1", "J", ()),
        ("memory-r2", "categories", "32 sessions", "J, multi-hop", ("85.1 (figure)",)),
        ("memory-r2", "categories", "32 sessions", "J, open-domain", ("64.91 (notes)",)),
        ("memory-r2", "sizes", "Qwen2.5-3B, trained", "F1", ("46.8 (figure)",)),
        (
            "memory-r2",
            "agents",
            "32 sessions, Qwen2.5-7B after RL answers",
            "F1",
            ("50.6 (figure)",),
        ),
        ("memory-r2", "curriculum", "8, then 32 sessions", "F1", ("49.68 (notes)",)),
        ("memory-r2", "curriculum", "32 sessions at once", "F1", ("25.8 (earlier notes)",)),
        ("memory-r2", "curriculum", "32 sessions at once", "M-Fail, %", ("72.1 (figure)",)),
        ("memory-r2", "grpo", "16 sessions, no local groups", "J, temporal", ("77.6 (figure)",)),
        ("memory-r2", "grpo", "32 sessions, no local groups", "F1", ("46.65 (notes)",)),
        ("memory-r2", "ablations", "extractor as it was, manager trained", "J", ("71.31 (notes)",)),
        ("memory-r2", "parts", "1 part", "F1", ("47.86 (notes)",)),
        ("memory-r2", "parts", "6 parts", "F1", ("49.7 (earlier notes)",)),
        ("memory-r2", "compression", "penalty 0.3", "memory words", ("12,390 (notes)",)),
        ("memory-r2", "compression", "penalty 0.5", "F1", ()),
        ("memory-r2", "latency", "32 sessions", "seconds a conversation", ("about 66 (figure)",)),
        ("memory-r2", "transfer-longmemeval", "8 sessions of LoCoMo", "J", ("70.4 (notes)",)),
    ],
)
def test_the_papers_cells_stand_beside_the_right_ones_of_ours(name, section, label, column, cells):
    paper = read_paper(name)
    (found,) = (each for each in paper.sections if each.name == section)
    (wanted,) = (each for each in found.columns if each.name == column)
    assert paper.printed_cells(found, label, wanted) == cells


def layered(layer, *row):
    return {
        "title": layer,
        "model": "m",
        "columns": ["method", "A", "B"],
        "rows": [list(row)],
        "layer": layer,
    }


def test_the_first_of_several_sources_that_prints_a_cell_is_taken_and_named(make_paper):
    paper = make_paper(
        printed={
            "table1": [layered("figure", "RAG", 38.1, None), layered("notes", "RAG", 37.9, 12)]
        }
    )
    section = paper.sections[0]
    columns = [Column(name=name, printed=(name,)) for name in ("A", "B")]
    cells = [paper.printed_cells(section, "three turns", column) for column in columns]
    assert cells == [("38.1 (figure)",), ("12 (notes)",)]


def test_every_number_of_memory_r2_says_where_it_was_read():
    commits = {
        "figure": "357b4ec",
        "notes": "7b3d747",
        "earlier notes": "63e3672",
        "model card": "memory-r2-7b",
    }
    tables = [table for tables in read_paper("memory-r2").printed.values() for table in tables]
    assert tables
    for table in tables:
        assert commits[table.layer] in table.source, table.title


def test_a_row_of_certain_weights_is_run_with_no_others():
    paper = read_paper("memory-r2")
    config = run_config(
        benchmark="", lm="local:models/Qwen2.5-3B-Instruct/", answer_lm="openai/openai/gpt-oss-120b"
    )
    resolved, notes = resolve_sections(paper, config, Selection(["sizes", "agents"]))
    assert [each.labels for each in resolved] == [
        ("Qwen2.5-3B", "Qwen2.5-3B, trained"),
        ("start, gpt-oss-120b answers", "32 sessions, gpt-oss-120b answers"),
    ]
    assert (
        "Qwen2.5-7B is left out: it is a row of Qwen2.5-7B-Instruct; name that with --lm" in notes
    )
    left_out = (
        "start, Qwen2.5-7B answers is left out: it is a row of answers by Qwen2.5-7B-Instruct"
    )
    assert f"{left_out}; name that with --answer-lm" in notes
    with pytest.raises(UserError, match=r"is left out: it is a row of Qwen2\.5-3B-Instruct"):
        resolve_sections(paper, config.with_options(lm="local:tiny"), Selection(["sizes"]))


def test_rows_that_need_no_training_are_run_with_a_model_elsewhere():
    (found,), notes = resolve_sections(
        read_paper("memory-r2"), run_config(benchmark="", lm="openai/x"), Selection(["main"])
    )
    assert {"start", "RAG"} <= set(found.labels)
    assert "32 sessions" not in found.labels
    # Those that nothing learned from, as beside a trained row.
    assert found.part == "test"
    told = "32 sessions is left out: it trains a model in this process, which openai/x is not; use --lm local:NAME"
    assert told in notes


def test_a_training_is_shared_by_all_sections_whatever_judges_and_answers_in_them():
    """Rewards are of a metric without a judge."""
    config = run_config(
        benchmark="", lm="local:x", judge_lm="openai/judge", answer_lm="openai/gpt-oss-120b"
    )
    paper = read_paper("memory-r2")
    resolved, _ = resolve_sections(paper, config, Selection(["main", "agents", "transfer-msc"]))
    trained = {
        "main": "32 sessions",
        "agents": "32 sessions, gpt-oss-120b answers",
        "transfer-msc": "32 sessions of LoCoMo",
    }
    learning = [
        each.learning_config(paper.variants[trained[each.section.name]]) for each in resolved
    ]
    keys = [resume_key(RunInputs(each)) for each in learning]
    assert keys[0] == keys[1] == keys[2]
    first = learning[0]
    assert first.data.benchmark == "locomo"
    assert first.data.settings["metric"] == "f1"
    assert first.models.judge.name is None
    assert resolved[0].config.data.settings["metric"] == "judge"
    assert {RunInputs(each).benchmark.scorer.required_judges == {} for each in learning} == {True}
