"""The sections of papers: what they run on, what they show, and what a paper lacks or refuses.

`mempiler reproduce PAPER` runs the experiments of a paper on memory again. RGMem, PGR, PraMem,
H2Memory and Memory-R2 are such papers, and the methods that they propose.

A section is a table of a paper, or the part of one that is on one benchmark. Its rows are variants
(programs with settings), which `reproduce` runs. To resolve a section means to find out which of
its variants can be run with the models that the user named, and on which questions; notes say what
is left out, and why.

Some sections are scored by a judge, a model that compares answers with gold answers. If the
user names no model, the offline engine takes its place: it answers by rules, and costs nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.catalog import BENCHMARKS
from mempiler.data.judge import ReferenceVerdict
from mempiler.engines.meter import Meter
from mempiler.errors import UserError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.pramem.settings import PracticeSettings, PraMemSettings
from mempiler.runs.config import RunConfig
from mempiler.runs.inputs import RunInputs
from mempiler.runs.papers.paper import LOGO, PAPERS, Column, PrintedTable, read_paper
from mempiler.runs.papers.reproduction import reproduce
from mempiler.runs.papers.sections import Selection, plan_paper, repetitions, resolve_sections
from mempiler.runs.planning import start_program
from mempiler.runs.repeating import resume_key
from mempiler.systems.catalog import SYSTEMS

from ...run_inputs import run_config
from .small_paper import small_paper


def paper_config(**options: Any) -> RunConfig:
    """Return the configuration of a reproduction, by default with the offline engine.

    It names no benchmark: each section of a paper says which one it runs on.
    """
    return run_config(benchmark="", **options)


def test_the_usage_of_a_run_lies_within_its_plan() -> None:
    """A plan says before a run how many calls and tokens it will take, at least and at most."""
    paper = small_paper()
    config = paper_config(test=8, threads=2)
    meter = Meter()

    plan, _ = plan_paper(paper, config)
    reproduce(paper, config, meter=meter)

    usage = meter.read()
    assert plan.calls.low <= sum(usage.calls.values()) <= plan.calls.high
    tokens = usage.input_tokens + usage.output_tokens
    assert plan.tokens.low <= tokens <= plan.tokens.high


@pytest.mark.slow
def test_more_seeds_take_no_more_calls_of_a_model_that_always_answers_alike() -> None:
    """The offline engine does not sample, so a second seed would only repeat the first."""
    config = paper_config(test=8, lm="offline")

    one_seed, _ = plan_paper(small_paper(), config, Selection(seeds=1))
    three_seeds, _ = plan_paper(small_paper(), config, Selection(seeds=3))

    assert three_seeds == one_seed


@pytest.mark.slow
def test_three_seeds_take_three_times_the_calls_of_a_model_that_samples() -> None:
    config = paper_config(test=8, lm="openai/gpt-4.1-mini")

    one_seed, _ = plan_paper(small_paper(), config, Selection(seeds=1))
    three_seeds, _ = plan_paper(small_paper(), config, Selection(seeds=3))

    assert three_seeds.calls.high == pytest.approx(3 * one_seed.calls.high)
    assert one_seed.usd is not None
    assert 0 < one_seed.usd.low < one_seed.usd.high


def test_the_calls_of_compiles_and_trainings_are_planned() -> None:
    """This section of Memory-R2 compiles, finetunes and trains the tiny model step by step."""
    config = paper_config(test=4, dev=2, train=4)

    plan, notes = plan_paper(read_paper("memory-r2"), config, Selection(["ladder-tiny"]))

    # The evaluations alone take far fewer.
    assert plan.calls.high > 1000
    not_counted = "not counted: the tuning of SFT, tiny: the provider of"
    assert any(note.startswith(not_counted) for note in notes)
    assert not any("LoGo-GRPO" in note for note in notes)


def test_the_command_prints_a_plan_as_json_and_writes_no_file(
    publish: Any, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    publish(small_paper())
    command = ["reproduce", "tiny", "--section", "sizes", "--plan", "--test", "3", "--json"]
    models = ["--lm", "openai/gpt-4.1-mini", "--judge-lm", "openai/gpt-4.1"]

    exit_code, output, error_output = cli(*command, *models)

    assert exit_code == 0, error_output
    plan = json.loads(output)
    assert set(plan["phases"]) == {"sizes"}
    assert plan["calls"]["low"] > 0
    assert "not counted: calls of the judge" in plan["notes"]
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_a_plan_as_text_and_writes_no_file(
    publish: Any, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    publish(small_paper())

    command = ["reproduce", "tiny", "--section", "sizes", "--plan", "--test", "3"]

    exit_code, output, error_output = cli(*command, "--lm", "openai/gpt-4.1-mini")

    assert exit_code == 0, error_output
    assert "sizes" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_a_wrong_option_is_refused_in_one_line_before_anything_is_made(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Any,
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    exit_code, _, error_output = cli("reproduce", *options)

    assert exit_code == 2
    assert message in error_output.splitlines()[-1]
    assert "Traceback" not in error_output
    assert list(tmp_path.iterdir()) == []


def test_one_data_file_is_used_for_all_tasks_of_its_benchmark() -> None:
    """Table 2 of the paper H2Memory is on the three tasks of PAL, table 4 on another benchmark."""
    selection = Selection(["table2", "table4"], files={"palbench": "input.json"})

    sections, _ = resolve_sections(read_paper("h2memory"), paper_config(), selection)

    files = [section.config.data.file for section in sections]
    assert files == ["input.json", "input.json", "input.json", None]


def test_an_option_of_a_benchmark_goes_to_the_benchmarks_that_have_it() -> None:
    """Table 2 of the paper H2Memory is on the three tasks of PAL, which have a language.

    Table 4 is on another benchmark, which has none.
    """
    config = paper_config(benchmark_set={"language": "zh"})

    sections, _ = resolve_sections(read_paper("h2memory"), config, Selection(["table2", "table4"]))

    has_language = ["language" in section.config.data.settings for section in sections]
    assert has_language == [True, True, True, False]


def test_a_section_has_the_judged_settings_of_its_paper_if_the_user_names_a_judge() -> None:
    """A description of a paper has two sets of settings for a benchmark, with and without a judge.

    Table 2 of the paper RGMem is on the benchmark LoCoMo.
    """
    paper = read_paper("rgmem")
    assert paper.judged["locomo"] == {"metric": "judge"}
    config = paper_config(lm="openai/x", judge_lm="openai/gpt-4.1")

    (section,), _ = resolve_sections(paper, config, Selection(["table2"]))

    assert section.config.data.settings == {"metric": "judge"}


def test_a_section_has_the_unjudged_settings_of_its_paper_if_the_user_names_no_judge() -> None:
    """F1 is the overlap of words with the gold answer, which needs no judge.

    Table 2 of the paper RGMem leaves out the adversarial questions of LoCoMo, category 5.
    """
    paper = read_paper("rgmem")
    assert paper.unjudged["locomo"] == {"metric": "f1", "categories": "1,2,3,4"}
    config = paper_config(lm="openai/x", judge_lm=None)

    (section,), _ = resolve_sections(paper, config, Selection(["table2"]))

    assert section.config.data.settings == {"metric": "f1", "categories": "1,2,3,4"}


def test_a_section_that_needs_another_answer_model_is_left_out_without_one() -> None:
    """`table1-transfer` is about memories that one model writes and another one reads."""
    config = paper_config(lm="openai/x")

    sections, notes = resolve_sections(read_paper("pramem"), config, Selection(["table1"]))

    assert [section.section.name for section in sections] == ["table1"]
    reason = "asks another model about what openai/x wrote; name that with --answer-lm"
    assert f"section table1-transfer {reason}" in notes


def test_another_answer_model_answers_only_in_the_section_that_is_about_it() -> None:
    """`table1-transfer` is about memories that one model writes and another one reads."""
    config = paper_config(lm="openai/x", answer_lm="openai/y")

    sections, notes = resolve_sections(read_paper("pramem"), config, Selection(["table1"]))

    own_answers, transfer = sections
    assert own_answers.section.name == "table1"
    assert own_answers.config.models.task.name == "openai/x"
    assert own_answers.config.models.answer.name is None
    assert transfer.section.name == "table1-transfer"
    assert transfer.config.models.task.name == "openai/x"
    assert transfer.config.models.answer.name == "openai/y"
    note = "section table1 is answered by openai/x, as in the paper, and not by --answer-lm"
    assert note in notes


def test_the_offline_engine_answers_in_place_of_another_model() -> None:
    """The section is about memories that one model writes and another one reads.

    A user who names no model only wants to see how it looks.
    """
    selection = Selection(["table1-transfer"])

    (section,), _ = resolve_sections(read_paper("pramem"), paper_config(), selection)

    assert section.config.models.answer.name == "offline"


def pramem_settings() -> dict[str, PraMemSettings]:
    """Return the settings of all variants of PraMem, by label."""
    settings = {}
    for label, variant in read_paper("pramem").variants.items():
        if variant.program == "pramem":
            settings[label] = PraMemSettings.model_validate(dict(variant.settings))
    return settings


def test_variants_of_pramem_practise_as_in_the_paper() -> None:
    """PraMem writes its memory by answering questions about old records in many rounds."""
    settings_by_label = pramem_settings()

    assert settings_by_label
    for settings in settings_by_label.values():
        assert settings.rounds == 80
        # Every proposal counts, also several about one record (figure 9 of the paper).
        assert settings.distinct_records is False
        # The model that reviews a memory is told which scene is the true one (figure 11).
        assert settings.blind is False
    assert settings_by_label["patterns alone"].alerts is False


def test_figure_4_of_pramem_reads_one_run_after_several_rounds() -> None:
    """PraMem practises in 80 rounds. The figure shows its score after some of them."""
    settings_by_label = pramem_settings()
    (figure,) = read_paper("pramem").select_sections(["fig4"])

    # None stands for the last round.
    rounds = [settings_by_label[label].at_round for label in figure.variants]
    assert rounds == [10, 20, 40, 60, None]
    # Variants with the same practice share its run.
    practice = settings_by_label["PraMem"].restrict_to(PracticeSettings)
    for label in figure.variants:
        assert settings_by_label[label].restrict_to(PracticeSettings) == practice


def test_sections_that_need_a_judge_are_left_out_and_named_without_one() -> None:
    config = paper_config(lm="openai/x")

    sections, notes = resolve_sections(read_paper("h2memory"), config)

    names = [section.section.name for section in sections]
    assert names
    assert "table3" not in names
    assert "table11" not in names
    assert "section table3 is scored by a judge; name its model with --judge-lm" in notes


def test_without_a_model_a_judged_section_is_tried_out_on_four_questions() -> None:
    """The offline engine judges, so that a user can see how a section looks, without costs."""
    selection = Selection(["table3"])

    (section,), notes = resolve_sections(read_paper("h2memory"), paper_config(), selection)

    assert section.config.models.judge.name == "offline"
    assert section.config.data.test == 4
    assert notes == ("on the bundled samples: 4 questions a section; --test N takes others",)


def printed_tables(paper_name: str) -> list[PrintedTable]:
    """Return all tables that a paper prints."""
    tables: list[PrintedTable] = []
    for group in read_paper(paper_name).printed.values():
        tables.extend(group)
    assert tables
    return tables


@pytest.mark.parametrize("paper_name", PAPERS)
def test_rows_of_printed_tables_are_as_long_as_their_heads(paper_name: str) -> None:
    """Our descriptions of papers hold their tables of results, as they print them."""
    for table in printed_tables(paper_name):
        for row in table.rows:
            assert len(row) == len(table.columns), table.title


@pytest.mark.parametrize("paper_name", PAPERS)
def test_every_printed_table_of_a_paper_is_shown_somewhere(paper_name: str) -> None:
    """A section shows it, or it stands among what is not reproduced."""
    paper = read_paper(paper_name)
    shown_keys: set[str] = set()
    for section in paper.sections:
        shown_keys.update(section.printed)
    for omission in paper.not_reproduced:
        shown_keys.update(omission.printed)

    assert shown_keys == set(paper.printed)


@pytest.mark.parametrize("paper_name", PAPERS)
def test_every_variant_that_a_paper_names_exists(paper_name: str) -> None:
    paper = read_paper(paper_name)
    for section in paper.sections:
        assert section.baseline in section.variants
        for comparison in section.comparisons:
            assert comparison.one in paper.variants
            assert comparison.other in paper.variants
    for variant in paper.variants.values():
        if variant.tuned and variant.tuned.start:
            assert variant.tuned.start in paper.variants


@pytest.mark.parametrize("paper_name", PAPERS)
@pytest.mark.slow
def test_every_variant_of_every_section_can_be_built(paper_name: str) -> None:
    paper = read_paper(paper_name)

    assert paper.name == paper_name
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
                inputs = RunInputs(config.with_options(set=variant.program_settings))
                start_program(variant.program, inputs, benchmark)
            if variant.tuned is not None:
                assert variant.tuned.optimizer in (LOGO, *OPTIMIZERS)


class AcceptingJudge:
    """A judge that finds every reference in every context."""

    def __call__(self, question: Any, references: Any, context: Any) -> Any:
        return tuple(ReferenceVerdict(present=True) for _ in references)


@pytest.mark.parametrize("section_name", ["memoryquest", "implexconv", "personamem-v2"])
def test_a_section_of_pgr_measures_every_part_that_it_has_a_column_for(section_name: str) -> None:
    config = paper_config(lm="openai/x", judge_lm="openai/x")
    (resolved,), _ = resolve_sections(read_paper("pgr"), config, Selection([section_name]))
    benchmark = RunInputs(resolved.config).benchmark.with_judges(lambda kind: AcceptingJudge())
    headline_examples = [
        example for example in benchmark.examples if benchmark.in_headline(example)
    ]
    example = headline_examples[0]
    hit = Hit(id="f1", text="something", sources=tuple(example.history.turns))
    prediction = dspy.Prediction(answer="Rest.", context=Context(hits=(hit,)))

    measured_parts = set(benchmark.score(example, prediction).parts)

    shown_parts = {column.key for column in resolved.section.columns if column.of == "part"}
    assert "recall" in shown_parts
    assert shown_parts <= measured_parts


def test_pgr_asks_the_opposed_questions_of_implexconv() -> None:
    """The benchmark ImplexConv has two kinds of questions, opposed and supportive.

    The paper PGR is about the opposed ones.
    """
    config = paper_config(lm="openai/x")

    (section,), _ = resolve_sections(read_paper("pgr"), config, Selection(["implexconv"]))

    examples = RunInputs(section.config).benchmark.examples
    assert {example.category for example in examples} == {"opposed"}


# Source: PGR, Table 1, columns "Humans".
@pytest.mark.parametrize(
    ("section_name", "graphrag", "tacitree", "mem0"),
    [
        ("memoryquest", 90, 75, 95),
        ("implexconv", 70, 60, 70),
        ("personamem-v2", 80, 65, 65),
    ],
)
def test_the_win_rates_by_humans_of_pgrs_table_1_are_printed(
    section_name: str, graphrag: int, tacitree: int, mem0: int
) -> None:
    paper = read_paper("pgr")
    (section,) = paper.select_sections([section_name])
    (table,) = [table for table in paper.tables(section) if "Table 1 " in table.title]
    column = table.columns.index("win rate %, humans")
    win_rates = {row[0]: row[column] for row in table.rows}

    assert win_rates == {
        "GraphRAG": graphrag,
        "TaciTree": tacitree,
        "Mem0 with graph": mem0,
        "PGR-TOT": None,
    }


@pytest.mark.parametrize("paper_name", PAPERS)
def test_no_variant_writes_dates_beside_words_like_yesterday(paper_name: str) -> None:
    """Our programs do so by default, but no paper does."""
    paper = read_paper(paper_name)
    config = paper_config(lm="local:tiny")
    sections, _ = resolve_sections(paper, config)

    assert sections
    for section in sections:
        for label in section.labels:
            variant = paper.variants[label]
            configs = [*repetitions(variant, section), section.learning_config(variant)]
            for variant_config in configs:
                settings = variant_config.method.settings
                assert settings["task.dates"] is False, (section.section.name, label)


@pytest.mark.parametrize(
    ("paper_name", "section_name", "label", "column_name", "cells"),
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
def test_the_numbers_of_a_paper_stand_beside_the_right_cells_of_our_tables(
    paper_name: str,
    section_name: str,
    label: str,
    column_name: str,
    cells: tuple[float | str, ...],
) -> None:
    """The last column is what the paper prints.

    It may print a number in several places: then the cell names the place, such as a figure or the
    notes of the authors.
    """
    paper = read_paper(paper_name)
    (section,) = [section for section in paper.sections if section.name == section_name]
    (column,) = [column for column in section.columns if column.name == column_name]

    assert paper.printed_cells(section, label, column) == cells


def test_the_first_of_several_sources_that_prints_a_cell_is_shown_and_named() -> None:
    columns = ["method", "A", "B"]
    figure = {
        "title": "a figure",
        "model": "m",
        "layer": "figure",
        "columns": columns,
        "rows": [["RAG", 38.1, None]],
    }
    notes = {
        "title": "the notes",
        "model": "m",
        "layer": "notes",
        "columns": columns,
        "rows": [["RAG", 37.9, 12]],
    }
    paper = small_paper(printed={"table1": [figure, notes]})
    section = paper.sections[0]

    # The variant "three turns" is the row "RAG" of the paper.
    cell_of_both = paper.printed_cells(section, "three turns", Column(name="A", printed=("A",)))
    cell_of_notes = paper.printed_cells(section, "three turns", Column(name="B", printed=("B",)))

    assert cell_of_both == ("38.1 (figure)",)
    assert cell_of_notes == ("12 (notes)",)


def test_every_number_of_memory_r2_says_where_it_was_read() -> None:
    """The paper prints numbers in figures, in notes of its repository, and on a model card."""
    # Commits of the repository, and the name of the model.
    sources = {
        "figure": "357b4ec",
        "notes": "7b3d747",
        "earlier notes": "63e3672",
        "model card": "memory-r2-7b",
    }
    for table in printed_tables("memory-r2"):
        assert sources[table.layer] in table.source, table.title


def test_a_row_that_is_about_a_certain_model_is_run_with_no_other() -> None:
    """The user has the weights of Qwen2.5-3B, so the rows about Qwen2.5-7B are left out."""
    config = paper_config(
        lm="local:models/Qwen2.5-3B-Instruct/", answer_lm="openai/openai/gpt-oss-120b"
    )
    selection = Selection(["sizes", "agents"])

    (sizes, agents), notes = resolve_sections(read_paper("memory-r2"), config, selection)

    assert sizes.labels == ("Qwen2.5-3B", "Qwen2.5-3B, trained")
    reason = "it is a row of Qwen2.5-7B-Instruct; name that with --lm"
    assert f"Qwen2.5-7B is left out: {reason}" in notes
    assert agents.labels == ("start, gpt-oss-120b answers", "32 sessions, gpt-oss-120b answers")
    reason = "it is a row of answers by Qwen2.5-7B-Instruct; name that with --answer-lm"
    assert f"start, Qwen2.5-7B answers is left out: {reason}" in notes


def test_a_section_whose_rows_are_all_about_other_models_is_refused() -> None:
    """The rows are about Qwen2.5-3B and Qwen2.5-7B, and the user has the tiny model."""
    config = paper_config(lm="local:tiny", answer_lm="openai/openai/gpt-oss-120b")

    with pytest.raises(UserError, match=r"is left out: it is a row of Qwen2\.5-3B-Instruct"):
        resolve_sections(read_paper("memory-r2"), config, Selection(["sizes"]))


def test_with_a_model_behind_an_endpoint_only_rows_without_a_training_are_run() -> None:
    """A training needs the weights of the model in this process."""
    config = paper_config(lm="openai/x")

    (section,), notes = resolve_sections(read_paper("memory-r2"), config, Selection(["main"]))

    assert "start" in section.labels
    assert "RAG" in section.labels
    assert "32 sessions" not in section.labels
    # Questions that nothing learned from are asked, as beside a trained row.
    assert section.part == "test"
    reason = "it trains a model in this process, which openai/x is not; use --lm local:NAME"
    assert f"32 sessions is left out: {reason}" in notes


def test_sections_that_differ_in_judge_or_answer_model_share_a_training() -> None:
    """A training takes hours, so it is done once for all sections that have it in a row."""
    config = paper_config(
        lm="local:x",
        judge_lm="openai/judge",
        answer_lm="openai/gpt-oss-120b",
    )
    paper = read_paper("memory-r2")
    selection = Selection(["main", "agents", "transfer-msc"])
    resolved, _ = resolve_sections(paper, config, selection)
    sections = {section.section.name: section for section in resolved}

    label_by_section = {
        "main": "32 sessions",
        "agents": "32 sessions, gpt-oss-120b answers",
        "transfer-msc": "32 sessions of LoCoMo",
    }
    trainings = []
    for section_name, label in label_by_section.items():
        trainings.append(sections[section_name].learning_config(paper.variants[label]))

    # Runs with equal keys are one run.
    keys = [resume_key(RunInputs(training)) for training in trainings]
    assert keys[1] == keys[0]
    assert keys[2] == keys[0]
    # Rewards are of a metric without a judge, whatever scores the section.
    assert sections["main"].config.data.settings["metric"] == "judge"
    for training in trainings:
        assert training.data.benchmark == "locomo"
        assert training.data.settings["metric"] == "f1"
        assert training.models.judge.name is None
        assert RunInputs(training).benchmark.scorer.required_judges == {}
