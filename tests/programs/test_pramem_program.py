"""PraMem as a program: what it recalls and shows, each ablation, compiling, saving, resuming."""

import json

import dspy
import pytest
from mempiler import Store
from mempiler.data.movielens.benchmark import MovieLens
from mempiler.engines.models import language_model
from mempiler.optimizers.compile import Compilation, compile_program
from mempiler.programs.catalog import build
from mempiler.programs.pramem.memory import COMMON_BIASES
from mempiler.records import Query

QUESTION = {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]}


def pramem(**settings):
    return build("pramem", task="behavior-prediction", **{"rounds": 5, "min_history": 5, **settings})


def test_the_answer_sees_experience_and_newest_records_and_no_proposal(
    scripted, practice_script, behavior_history, prompt_section
):
    lm, program = scripted(practice_script()), pramem()
    with dspy.context(lm=lm):
        found = program(history=behavior_history(), recent=behavior_history(40).items[-1:], **QUESTION)
    text = lm.engine.prompts[-1][1]
    assert found.answer == "Yes"
    assert json.loads(prompt_section(text, "patterns")) == ["Ann, 34, nurse", "agreed p-1"]
    assert sorted(json.loads(prompt_section(text, "alerts"))) == sorted(COMMON_BIASES)
    records = prompt_section(text, "records").splitlines()
    assert records[0].startswith("[profile:1]")
    assert records[-1].endswith("video; situation-40-x => action-40-x")
    assert "one of a" not in text
    assert len(found.memory.pool) == 12


def test_recall_names_the_records_behind_an_experience(scripted, practice_script, behavior_history):
    program = pramem()
    with dspy.context(lm=scripted(practice_script())):
        memory = program.remember(behavior_history()).memory
    context = program.method.reader.recall(memory, Query(text="what was agreed?"))
    assert context.hits[0].text == "agreed p-1"
    assert context.hits[0].sources == tuple(done.record for done in memory.journal[:3])
    assert len(context.hits) == len(memory.experiences)
    assert (context.counts["patterns"], context.counts["alerts"]) == (2, 5)
    assert program.method.reader.search(memory, ["agreed", "nurse"], k=1)[1][0].id == "pattern-1"


@pytest.mark.parametrize(("tokens", "shown"), [(8000, 30), (60, 2), (0, 0)])
def test_the_newest_records_keep_to_their_budget(
    scripted, practice_script, behavior_history, prompt_section, tokens, shown
):
    lm, program = scripted(practice_script()), pramem(predict_tokens=tokens)
    with dspy.context(lm=lm):
        program(history=behavior_history(), **QUESTION)
    assert prompt_section(lm.engine.prompts[-1][1], "records").count("=>") == shown


def test_without_options_the_answer_is_free(scripted, practice_script, behavior_history):
    answer = {"relevant_patterns": [], "relevant_alerts": [], "reasoning": "-", "answer": "skips it, yes"}
    with dspy.context(lm=scripted(practice_script(relevant_patterns=answer))):
        found = pramem()(history=behavior_history(), question="What does the user do?")
    assert found.answer == "skips it, yes"


@pytest.mark.parametrize(
    ("settings", "gone", "new"),
    [
        ({"deep_thinking": False}, {"useful_patterns"}, {"predicted_action"}),
        ({"reflection": False}, {"tasks"}, {"proposals"}),
        ({"consensus": False}, {"decisions"}, set()),
    ],
)
def test_an_ablation_takes_its_prompt_away_and_leaves_the_others(practised, settings, gone, new):
    full, less = practised(), practised(**settings)
    assert set(less.calls) == (set(full.calls) - gone) | new
    assert less.memory.counts["pooled"] == 15
    assert sorted(less.texts("plans", "virtual_scenes")) == sorted(full.texts("plans", "virtual_scenes"))


def test_without_deep_thinking_reflection_sees_no_thinking(practised):
    for deep, thinking in ((True, "p\nhm"), (False, "")):
        assert practised(deep_thinking=deep).shown("tasks", "thinking")[0] == thinking
    assert "thinking" not in practised(reflection=False).texts("proposals")[0]


@pytest.mark.parametrize(("off", "kept"), [("patterns", "alerts"), ("alerts", "patterns")])
def test_one_kind_of_experience_alone(practised, off, kept):
    full, memory = practised(consensus=False).memory, practised(consensus=False, **{off: False}).memory
    assert getattr(memory, off) == ()
    assert [part.text for part in getattr(memory, kept)] == [part.text for part in getattr(full, kept)]
    assert memory.counts["invalid"] == (10 if off == "patterns" else 5)


def test_an_empty_start_has_no_experience_but_shows_the_profile(practised):
    found = practised(start="empty", rounds=1)
    assert [found.shown("useful_patterns", field) for field in ("patterns", "alerts")] == [["[]"], ["[]"]]
    assert "Ann, 34, nurse" in found.shown("useful_patterns", "recent_records")[0]


@pytest.mark.parametrize("setting", ["weighting", "seed", "practice_tokens", "samples"])
def test_what_is_practised_is_a_setting(practised, setting):
    changed = {"weighting": "recency", "seed": 1, "practice_tokens": 60, "samples": 2}[setting]
    trials = [sorted(each.texts("useful_patterns")) for each in (practised(), practised(**{setting: changed}))]
    assert trials[0] != trials[1]
    assert len(trials[1]) == (10 if setting == "samples" else 5)


def test_an_optimizer_sees_the_trial_behind_what_was_recalled(scripted, practice_script, behavior_history):
    program = pramem()
    with dspy.context(lm=scripted(practice_script())):
        memory = program.remember(behavior_history()).memory
        with dspy.context(trace=[]):
            program(history=behavior_history(), focus=(memory.journal[2].record,), **QUESTION)
            trace = list(dspy.settings.trace or [])
    trials = [inputs["situation"] for predictor, inputs, _ in trace if predictor is program.method.writer.trial]
    assert f"[{memory.journal[2].record}]" in "".join(trials)
    assert len(trace) > 3


def test_a_stored_memory_goes_on_practising_where_it_stopped(scripted, practice_script, behavior_history, tmp_path):
    lm, items = scripted(practice_script()), behavior_history(30).items
    with Store(tmp_path / "memories.sqlite") as store:
        for part in (items[:3], items[3:]):
            memory = pramem(rounds=80).memory(store, "ann", lm=lm)
            for item in part[:-1]:
                memory.add(item, remember=False)
            memory.add(part[-1])
        found = memory.read()
    records = [int(done.record[1:]) for done in found.journal]
    assert (sorted(records[:15]), sorted(records[15:])) == (list(range(6, 21)), list(range(21, 31)))
    assert lm.engine.calls["useful_patterns"] == 25


def test_ten_rounds_of_practice_fill_the_pool_and_every_answer_is_an_option():
    # On the offline engine, which weighs no records against one another: what it scores says nothing.
    benchmark = MovieLens.load(users=3)
    split = benchmark.split(train=8)
    with dspy.context(lm=language_model("offline")):
        program = build("pramem", task=benchmark.task, rounds=10)
        compiled = compile_program(program, benchmark, split.train, Compilation("bootstrap", stage="read"))
        said = [(example, compiled(**example.inputs())) for example in split.dev]
    assert any(predictor.demos for predictor in compiled.predictors())
    for example, found in said:
        records = {*example.history.turns, *(record.id for record in example.history)}
        assert found.answer in example.options
        assert len(found.memory.journal) == 10
        assert found.memory.pool
        assert all(source in records for proposal in found.memory.pool for source in proposal.sources)
