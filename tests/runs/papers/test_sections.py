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

from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.judge import ReferenceVerdict
from mempiler.engines.meter import Meter
from mempiler.errors import UserError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.pramem.settings import PracticeSettings, PraMemSettings
from mempiler.runs.config import RunConfig
from mempiler.runs.inputs import RunInputs
from mempiler.runs.papers.paper import (
    LOGO,
    PAPERS,
    Column,
    PrintedTable,
    Variant,
    read_paper,
)
from mempiler.runs.papers.reproduction import reproduce
from mempiler.runs.papers.sections import Selection, plan_paper, repetitions, resolve_sections
from mempiler.runs.planning import start_program
from mempiler.runs.repeating import resume_key
from mempiler.systems.catalog import SYSTEMS

from ...command_line import json_of, output_of
from ...run_inputs import run_config
from .small_paper import small_paper


def paper_config(**options: Any) -> RunConfig:
    """Return the configuration of a reproduction, by default with the offline engine.

    It names no benchmark: each section of a paper says which one it runs on.
    """
    return run_config(benchmark="", **options)


def test_a_reproduction_takes_as_many_calls_and_tokens_as_were_planned() -> None:
    """A plan says before a run how many it will take, at least and at most."""
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


@pytest.mark.slow
def test_a_plan_for_a_model_with_known_prices_has_its_cost() -> None:
    config = paper_config(test=8, lm="openai/gpt-4.1-mini")

    plan, _ = plan_paper(small_paper(), config, Selection(seeds=1))

    assert plan.usd is not None
    assert 0 < plan.usd.low < plan.usd.high


def test_the_calls_of_compiles_and_trainings_are_planned() -> None:
    """This section of Memory-R2 compiles, finetunes and trains the tiny model step by step.

    What a provider does for a finetuning cannot be counted. The four test questions alone would
    take far fewer than a thousand calls.
    """
    config = paper_config(test=4, dev=2, train=4)

    plan, notes = plan_paper(read_paper("memory-r2"), config, Selection(["ladder-tiny"]))

    assert plan.calls.high > 1000
    (note,) = [note for note in notes if note.startswith("not counted: ")]
    assert note.startswith("not counted: the tuning of SFT, tiny: the provider of")


def test_the_command_prints_a_plan_as_json(publish: Any, cli: Any) -> None:
    publish(small_paper())

    plan = json_of(
        cli,
        *("reproduce", "tiny"),
        *("--section", "sizes"),
        *("--test", "3"),
        *("--lm", "openai/gpt-4.1-mini"),
        *("--judge-lm", "openai/gpt-4.1"),
        "--plan",
    )

    assert set(plan["phases"]) == {"sizes"}
    assert plan["calls"]["low"] > 0
    assert "not counted: calls of the judge" in plan["notes"]


def test_the_command_prints_a_plan_as_text_and_writes_no_file(
    publish: Any, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    publish(small_paper())

    output = output_of(
        cli,
        *("reproduce", "tiny"),
        *("--section", "sizes"),
        *("--test", "3"),
        *("--lm", "openai/gpt-4.1-mini"),
        "--plan",
    )

    assert "sizes" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["nobody"], "unknown paper 'nobody'", id="paper"),
        pytest.param(
            ["pgr", "--section", "nothing"], "unknown section of pgr 'nothing'", id="section"
        ),
        pytest.param(
            ["pgr", "--data", "a", "--data", "b"],
            "--data b: say which benchmark it is of",
            id="two files without the names of their benchmarks",
        ),
        pytest.param(
            ["rgmem", "--data", "msc=x"],
            "msc=x is one file for 3 benchmarks; say --data personamem=FILE",
            id="a file of a benchmark that the paper does not have",
        ),
        pytest.param(
            ["rgmem", "--section", "table2", "--data", "personamem=x"],
            "unknown benchmark of these sections",
            id="a file of a benchmark that the section does not have",
        ),
        pytest.param(
            ["rgmem", "--section", "table2", "--benchmark-set", "colour=red"],
            "colour",
            id="setting of a benchmark",
        ),
        pytest.param(
            ["h2memory", "--section", "table3", "--lm", "openai/x"],
            "section table3 is scored by a judge",
            id="no judge",
        ),
        pytest.param(
            ["memory-r2", "--section", "grpo", "--lm", "openai/x"],
            "trains a model in this process, which openai/x is not",
            id="no model to train",
        ),
        pytest.param(
            ["rgmem", "--lm", "openai/gpt-4.1-mini"],
            "there is no key; set OPENAI_API_KEY",
            id="no key",
        ),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_before_anything_is_made(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Any,
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))

    exit_code, _, stderr = cli("reproduce", *arguments)

    assert exit_code == 2
    assert problem in stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_one_data_file_is_used_for_all_tasks_of_its_benchmark() -> None:
    """Table 2 of the paper H2Memory is on three tasks of PAL, and table 4 on another benchmark."""
    selection = Selection(["table2", "table4"], files={"palbench": "input.json"})

    sections, _ = resolve_sections(read_paper("h2memory"), paper_config(), selection)

    files = [section.config.data.file for section in sections]
    assert files == ["input.json", "input.json", "input.json", None]


def test_an_option_of_a_benchmark_goes_to_the_benchmarks_that_have_it() -> None:
    """Table 2 of the paper H2Memory is on three tasks of PAL, which have a language.

    Table 4 is on another benchmark, which has none.
    """
    config = paper_config(benchmark_set={"language": "zh"})

    sections, _ = resolve_sections(read_paper("h2memory"), config, Selection(["table2", "table4"]))

    languages = [section.config.data.settings.get("language") for section in sections]
    assert languages == ["zh", "zh", "zh", None]


def test_a_section_is_scored_by_the_judge_that_the_user_names() -> None:
    """Table 2 of the paper RGMem is on the benchmark LoCoMo."""
    config = paper_config(lm="openai/x", judge_lm="openai/gpt-4.1")

    (section,), _ = resolve_sections(read_paper("rgmem"), config, Selection(["table2"]))

    assert section.config.data.settings == {"metric": "judge"}


def test_a_section_is_scored_without_a_judge_if_the_user_names_none() -> None:
    """F1 is the overlap of words with the gold answer.

    Table 2 of the paper RGMem leaves out the adversarial questions of LoCoMo, category 5.
    """
    config = paper_config(lm="openai/x", judge_lm=None)

    (section,), _ = resolve_sections(read_paper("rgmem"), config, Selection(["table2"]))

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
    config = paper_config(lm="openai/writer", answer_lm="openai/reader")

    sections, _ = resolve_sections(read_paper("pramem"), config, Selection(["table1"]))

    answer_models = {
        section.section.name: section.config.models.answer.name for section in sections
    }
    # Where no model is named, the one that writes answers, too.
    assert answer_models == {"table1": None, "table1-transfer": "openai/reader"}
    assert {section.config.models.task.name for section in sections} == {"openai/writer"}


def test_a_note_names_the_section_in_which_another_answer_model_does_not_answer() -> None:
    config = paper_config(lm="openai/x", answer_lm="openai/y")

    _, notes = resolve_sections(read_paper("pramem"), config, Selection(["table1"]))

    note = "section table1 is answered by openai/x, as in the paper, and not by --answer-lm"
    assert note in notes


def test_without_a_model_the_offline_engine_answers_in_place_of_another_model() -> None:
    """`table1-transfer` is about memories that one model writes and another one reads.

    A user who names no model only wants to see how the section looks.
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


@pytest.mark.parametrize("label", pramem_settings())
def test_variants_of_pramem_practise_as_in_the_paper(label: str) -> None:
    """PraMem writes its memory by answering questions about old records in many rounds."""
    settings = pramem_settings()[label]

    assert settings.rounds == 80
    # Every proposal counts, also several about one record (figure 9 of the paper).
    assert settings.distinct_records is False
    # The model that reviews a memory is told which scene is the true one (figure 11).
    assert settings.blind is False


def test_the_variant_patterns_alone_of_pramem_has_no_alerts() -> None:
    assert pramem_settings()["patterns alone"].alerts is False


def test_figure_4_of_pramem_shows_the_memory_after_several_rounds() -> None:
    """PraMem practises in 80 rounds. None stands for the last one."""
    (figure,) = read_paper("pramem").select_sections(["fig4"])
    settings_by_label = pramem_settings()

    rounds = [settings_by_label[label].at_round for label in figure.variants]

    assert rounds == [10, 20, 40, 60, None]


def test_the_variants_of_figure_4_of_pramem_share_one_practice() -> None:
    """Variants with the same settings of the practice are one run."""
    (figure,) = read_paper("pramem").select_sections(["fig4"])
    settings_by_label = pramem_settings()

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
def test_every_variant_and_optimizer_that_a_paper_names_exists(paper_name: str) -> None:
    """A section names its baseline and what it compares; a compile may start from a variant."""
    paper = read_paper(paper_name)
    for section in paper.sections:
        assert section.baseline in section.variants
        for comparison in section.comparisons:
            assert comparison.one in paper.variants
            assert comparison.other in paper.variants
    for variant in paper.variants.values():
        if variant.tuned is None:
            continue
        assert variant.tuned.optimizer in (LOGO, *OPTIMIZERS)
        if variant.tuned.start:
            assert variant.tuned.start in paper.variants


def build_variant(variant: Variant, config: RunConfig) -> None:
    """Build the program of a variant, or look up the memory system that it is."""
    system = variant.program.removeprefix("system:")
    if system != variant.program:
        assert system in SYSTEMS
        return
    inputs = RunInputs(config.with_options(set=variant.program_settings))
    start_program(variant.program, inputs, RunInputs(config).benchmark)


@pytest.mark.parametrize("paper_name", PAPERS)
@pytest.mark.slow
def test_every_variant_of_every_section_can_be_built(paper_name: str) -> None:
    paper = read_paper(paper_name)

    for section in paper.sections:
        options = {**section.options, **paper.unjudged.get(section.benchmark, {})}
        config = run_config(benchmark=section.benchmark, benchmark_set=options)
        for label in section.variants:
            build_variant(paper.variants[label], config)


class AcceptingJudge:
    """A judge that finds every reference in every context."""

    def __call__(self, question: Any, references: Any, context: Any) -> Any:
        return tuple(ReferenceVerdict(present=True) for _ in references)


@pytest.mark.parametrize("section_name", ["memoryquest", "implexconv", "personamem-v2"])
def test_a_section_of_pgr_measures_every_part_that_it_has_a_column_for(section_name: str) -> None:
    """A part of a score is, for example, the recall of the references."""
    config = paper_config(lm="openai/x", judge_lm="openai/x")
    (resolved,), _ = resolve_sections(read_paper("pgr"), config, Selection([section_name]))
    benchmark = RunInputs(resolved.config).benchmark.with_judges(lambda kind: AcceptingJudge())
    example = next(example for example in benchmark.examples if benchmark.in_headline(example))
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
    ("section_name", "win_rates"),
    [
        ("memoryquest", {"GraphRAG": 90, "TaciTree": 75, "Mem0 with graph": 95, "PGR-TOT": None}),
        ("implexconv", {"GraphRAG": 70, "TaciTree": 60, "Mem0 with graph": 70, "PGR-TOT": None}),
        ("personamem-v2", {"GraphRAG": 80, "TaciTree": 65, "Mem0 with graph": 65, "PGR-TOT": None}),
    ],
)
def test_the_win_rates_by_humans_of_pgrs_table_1_are_printed(
    section_name: str, win_rates: dict[str, float | None]
) -> None:
    paper = read_paper("pgr")
    (section,) = paper.select_sections([section_name])

    (table,) = [table for table in paper.tables(section) if "Table 1 " in table.title]

    column = table.columns.index("win rate %, humans")
    assert {row[0]: row[column] for row in table.rows} == win_rates


@pytest.mark.parametrize("paper_name", PAPERS)
def test_no_variant_writes_dates_beside_words_like_yesterday(paper_name: str) -> None:
    """Our programs do so by default, but those of the papers do not."""
    paper = read_paper(paper_name)
    sections, _ = resolve_sections(paper, paper_config(lm="local:tiny"))

    assert sections
    for section in sections:
        for label in section.labels:
            variant = paper.variants[label]
            for config in (*repetitions(variant, section), section.learning_config(variant)):
                assert config.method.settings["task.dates"] is False, (section.section.name, label)


class PrintedNumber(NamedTuple):
    """What a paper prints for a cell of one of our tables."""

    paper: str
    section: str
    row: str
    column: str
    printed: tuple[float | str, ...]


PRINTED_NUMBERS = [
    PrintedNumber("rgmem", "table2", "RGMem", "all", (78.92, 86.17)),
    PrintedNumber("rgmem", "table4", "w/o RG", "context tokens", ("8,479",)),
    PrintedNumber("h2memory", "table3", "against RecurSum", "req. win", ("421 / 29 / 376",)),
    PrintedNumber("pramem", "fig4", "round 40", "Overall F1", (30.7,)),
    PrintedNumber("pramem", "table1", "PraMem", "Overall F1", (31.6,)),
    PrintedNumber("pramem", "table1-transfer", "PraMem", "Overall F1", (25.3,)),
    PrintedNumber(
        "pgr",
        "memoryquest",
        "PGR, tree",
        "recall",
        ("72.3 (Table 1)", "72.3 (Figure 3)", "72.3 (Table 4)", "72.2 (Table 5)"),
    ),
    PrintedNumber("pgr", "implexconv", "PGR, tree", "recall", ("28.6 (Table 1)",)),
    PrintedNumber("pgr", "personamem-v2", "Mem0 (no graph)", "recall", ("12.1 (Table 1)",)),
    # The authors of Memory-R2 keep notes in their repository, of which there are earlier versions.
    PrintedNumber("memory-r2", "main", "32 sessions", "J", ("87.1 (figure)",)),
    PrintedNumber("memory-r2", "main", "Memory-R1", "J", ()),
    PrintedNumber("memory-r2", "categories", "32 sessions", "J, open-domain", ("64.91 (notes)",)),
    PrintedNumber("memory-r2", "sizes", "Qwen2.5-3B, trained", "F1", ("46.8 (figure)",)),
    PrintedNumber(
        "memory-r2", "agents", "32 sessions, Qwen2.5-7B after RL answers", "F1", ("50.6 (figure)",)
    ),
    PrintedNumber("memory-r2", "curriculum", "8, then 32 sessions", "F1", ("49.68 (notes)",)),
    PrintedNumber(
        "memory-r2", "curriculum", "32 sessions at once", "F1", ("25.8 (earlier notes)",)
    ),
    PrintedNumber("memory-r2", "grpo", "32 sessions, no local groups", "F1", ("46.65 (notes)",)),
    PrintedNumber(
        "memory-r2", "ablations", "extractor as it was, manager trained", "J", ("71.31 (notes)",)
    ),
    PrintedNumber("memory-r2", "parts", "6 parts", "F1", ("49.7 (earlier notes)",)),
    PrintedNumber("memory-r2", "compression", "penalty 0.3", "memory words", ("12,390 (notes)",)),
    PrintedNumber(
        "memory-r2", "latency", "32 sessions", "seconds a conversation", ("about 66 (figure)",)
    ),
    PrintedNumber(
        "memory-r2", "transfer-longmemeval", "8 sessions of LoCoMo", "J", ("70.4 (notes)",)
    ),
]
"""If a paper prints a number in several places, each is named behind it."""


@pytest.mark.parametrize("number", PRINTED_NUMBERS)
def test_the_numbers_of_a_paper_stand_beside_the_right_cells_of_our_tables(
    number: PrintedNumber,
) -> None:
    paper = read_paper(number.paper)
    (section,) = [section for section in paper.sections if section.name == number.section]
    (column,) = [column for column in section.columns if column.name == number.column]

    assert paper.printed_cells(section, number.row, column) == number.printed


def test_the_first_of_several_sources_that_prints_a_number_is_shown_and_named() -> None:
    """The figure has a number in column A alone, and the notes have one in A and in B.

    The variant "three turns" of the small paper is the row "RAG" of these tables.
    """
    head = {"title": "a table", "model": "m", "columns": ["method", "A", "B"]}
    figure = {**head, "layer": "figure", "rows": [["RAG", 38.1, None]]}
    notes = {**head, "layer": "notes", "rows": [["RAG", 37.9, 12]]}
    paper = small_paper(printed={"table1": [figure, notes]})
    section = paper.sections[0]

    cells_of_a = paper.printed_cells(section, "three turns", Column(name="A", printed=("A",)))
    cells_of_b = paper.printed_cells(section, "three turns", Column(name="B", printed=("B",)))

    assert cells_of_a == ("38.1 (figure)",)
    assert cells_of_b == ("12 (notes)",)


def test_every_table_of_memory_r2_says_where_it_was_read() -> None:
    """The numbers are from figures and notes, in certain commits of a repository, or a model card.

    A layer is the kind of source; the source names the commit, or the model of the card.
    """
    commits_and_model = {
        "figure": "357b4ec",
        "notes": "7b3d747",
        "earlier notes": "63e3672",
        "model card": "memory-r2-7b",
    }
    for table in printed_tables("memory-r2"):
        assert commits_and_model[table.layer] in table.source, table.title


def test_a_row_that_is_about_the_trained_model_is_run_with_no_other() -> None:
    """The user has the weights of Qwen2.5-3B, so the rows about Qwen2.5-7B are left out."""
    config = paper_config(
        lm="local:models/Qwen2.5-3B-Instruct/", answer_lm="openai/openai/gpt-oss-120b"
    )

    (sizes,), notes = resolve_sections(read_paper("memory-r2"), config, Selection(["sizes"]))

    assert sizes.labels == ("Qwen2.5-3B", "Qwen2.5-3B, trained")
    reason = "it is a row of Qwen2.5-7B-Instruct; name that with --lm"
    assert f"Qwen2.5-7B is left out: {reason}" in notes


def test_a_row_that_is_about_the_model_that_answers_is_run_with_no_other() -> None:
    """The user has gpt-oss-120b, so the rows in which Qwen2.5-7B answers are left out."""
    config = paper_config(
        lm="local:models/Qwen2.5-3B-Instruct/", answer_lm="openai/openai/gpt-oss-120b"
    )

    (agents,), notes = resolve_sections(read_paper("memory-r2"), config, Selection(["agents"]))

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

    assert "RAG" in section.labels
    assert "32 sessions" not in section.labels
    reason = "it trains a model in this process, which openai/x is not; use --lm local:NAME"
    assert f"32 sessions is left out: {reason}" in notes


def test_a_section_without_its_trained_rows_is_asked_only_the_test_questions() -> None:
    """A trained row would be asked these: its program has learned nothing from them."""
    config = paper_config(lm="openai/x")

    (section,), _ = resolve_sections(read_paper("memory-r2"), config, Selection(["main"]))

    assert section.part == "test"


def learning_config_of(section_name: str, label: str) -> RunConfig:
    """Return the configuration of the training behind a row of Memory-R2.

    The user has a judge, and another model that answers.
    """
    paper = read_paper("memory-r2")
    config = paper_config(lm="local:x", judge_lm="openai/judge", answer_lm="openai/gpt-oss-120b")
    (section,), _ = resolve_sections(paper, config, Selection([section_name]))
    return section.learning_config(paper.variants[label])


@pytest.mark.parametrize(
    ("section_name", "label"),
    [
        pytest.param("agents", "32 sessions, gpt-oss-120b answers", id="another model answers"),
        pytest.param("transfer-msc", "32 sessions of LoCoMo", id="questions of another benchmark"),
    ],
)
def test_sections_share_a_training_with_the_main_table(section_name: str, label: str) -> None:
    """A training takes hours. Runs with equal keys are one run."""
    main_training = learning_config_of("main", "32 sessions")

    training = learning_config_of(section_name, label)

    assert resume_key(RunInputs(training)) == resume_key(RunInputs(main_training))


def test_the_rewards_of_a_training_need_no_judge_although_the_section_has_one() -> None:
    training = learning_config_of("main", "32 sessions")

    assert training.data.settings["metric"] == "f1"
    assert training.models.judge.name is None
    assert RunInputs(training).benchmark.scorer.required_judges == {}
