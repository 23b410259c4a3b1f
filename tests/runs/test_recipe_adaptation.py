"""What a user changes in a recipe: settings of all variants of a method, and compiled programs in their place."""

import json
from pathlib import Path

import pytest
from mempiler.cli import main
from mempiler.engines.embedders import embedder
from mempiler.errors import UnknownNameError, UserError
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save
from mempiler.runs.recipes.adaptation import Adaptation, setting_of
from mempiler.runs.recipes.pgr import PGR
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.section import Section, Sweep, Variant
from mempiler.runs.setup import Setup

SETUP = Setup(benchmark="", test=2, threads=2)
SECTION = Section(
    "turns",
    "",
    "locomo",
    (
        Variant("RAG", "turn-rag"),
        Variant("RAG, dense", "turn-rag", {"hybrid": False}),
        Variant("logs", "logs+turn-rag"),
    ),
    sweeps=(Sweep("k", (1, 2), "session-rag"),),
)
RECIPE = Recipe("turns", "", (SECTION,))


def configs(adaptation: Adaptation) -> dict[str, dict[str, object]]:
    (section,) = adaptation.of((SECTION,))
    return {variant.label: dict(variant.config) for variant in section.all_variants()}


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"turn_rag.k": 7}, {"RAG": {"k": 7}, "RAG, dense": {"hybrid": False, "k": 7}}),
        ({"hybrid": True}, {"RAG": {"hybrid": True}, "logs": {"inner_hybrid": True}, "k = 1": {"hybrid": True}}),
        ({"logs+turn_rag.earlier": "summary"}, {"logs": {"earlier": "summary"}}),
    ],
    ids=["of a method", "what a variant says itself goes first", "below a policy"],
)
def test_a_setting_goes_to_every_variant_that_has_it(settings, changed):
    before, after = configs(Adaptation()), configs(Adaptation(settings))
    for label, config in changed.items():
        assert after[label] == {**config, **before[label]}
    assert {label for label in after if after[label] != before[label]} <= {*changed, "k = 2"}


@pytest.mark.parametrize(
    ("adaptation", "said"),
    [
        (
            Adaptation({"colour": 1}),
            "--set colour: no variant has this setting; the methods",
        ),
        (Adaptation({"rgmem.k": 1}), "--set rgmem.k: no variant has this setting"),
        (Adaptation({"k": 1}), "--set k: turns goes through its values"),
        (Adaptation({"turn_rag.hybrid": 5}), "hybrid = 5 is no bool"),
        (Adaptation(programs={"turn-rag": "/nowhere"}), "no saved program is there"),
    ],
)
def test_what_fits_no_variant_is_one_line_before_anything_is_made(adaptation, said, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    with pytest.raises(UserError, match=said):
        run_recipe(RECIPE, SETUP, adaptation=adaptation)
    assert list(tmp_path.iterdir()) == []


def test_a_program_of_a_method_that_no_variant_has_is_refused():
    with pytest.raises(UnknownNameError, match="method of these sections"):
        Adaptation(programs={"rgmem": "."}).of((SECTION,))


def test_settings_of_every_recipe_have_one_name_in_a_method():
    assert setting_of("pgr", "iterations") == setting_of("pgr", "pgr.iterations") == "iterations"
    assert setting_of("pgr", "embedder") is None


def compiled(folder: Path) -> Path:
    """A saved PGR of three rounds whose prompts were changed."""
    program = build("pgr", "personal-response", embedder(), iterations=3)
    for name, predictor in program.all_predictors().items():
        predictor.signature = predictor.signature.with_instructions(f"Tuned: {name}.")
    save(program, folder)
    return folder


def test_a_compiled_program_stands_for_its_method_ablations_included(tmp_path):
    """Every prompt of every variant is the compiled one, and the ablation keeps what the program was saved with."""
    folder = compiled(tmp_path / "program")
    seen = {}

    def look(material):
        for label in ("PGR, tree", "PGR, tree, base", "query only"):
            with material.program(label) as program:
                told = {each.signature.instructions.startswith("Tuned:") for each in program.all_predictors().values()}
                seen[label] = (told, program.method.config.get("iterations"))
        return ()

    section = PGR.sections[0]
    kept = tuple(each for each in section.variants if each.label in ("PGR, tree", "PGR, tree, base", "query only"))
    one = Section("one", "", "memoryquest", kept, analyses=(look,))
    made = run_recipe(
        Recipe("one", "", (one,), offline_options=PGR.offline_options),
        SETUP,
        adaptation=Adaptation(programs={"pgr": str(folder)}),
    )
    assert seen == {"PGR, tree": ({True}, 3), "PGR, tree, base": ({True}, 0), "query only": ({False}, None)}
    assert any(str(folder) in note for note in made.notes)


def test_the_command_takes_both_and_says_so(tmp_path, capsys):
    folder = compiled(tmp_path / "program")
    words = ["--program", f"pgr={folder}", "--set", "fact-store.k=3", "--test", "2", "--threads", "2"]
    main(["reproduce", "pgr", *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    first, second, *others = (note for note in found["notes"] if "is left out" not in note)
    assert first == "fact_store.k = 3 in every variant that has it"
    assert second == f"pgr: the saved program {folder}"
    assert [each.partition(":")[0] for each in others] == [
        "PGR, chain",
        "PGR, chain, base",
        "PGR, chain, no summary",
    ], "a tree's prompt is no chain's"
    only = next(row for row in found["ours"] if row["label"] == "query only")
    assert only["context"]["hits"] <= 3


@pytest.mark.parametrize("words", [["--program", "pgr"], ["--program", "pgr=nowhere"], ["--set", "pgr.colour=1"]])
def test_a_wrong_word_is_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "pgr", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("mempiler: ")
