"""PraMem as a program: what it recalls and shows, each ablation, compiling, saving, resuming."""

import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import dspy
import pytest
from mempiler import Store
from mempiler.data.benchmark import Benchmark
from mempiler.data.dataset import Source
from mempiler.data.scorer import Score, Scorer
from mempiler.engines.embedders import embedder
from mempiler.optimizers.compile import Compilation, compile_program
from mempiler.programs.catalog import build
from mempiler.programs.pramem.memory import COMMON_BIASES
from mempiler.programs.remember import MemoryCache
from mempiler.records import Query
from mempiler.runs.artifact import save
from mempiler.runs.run_store import RunStore

QUESTION = {"question": "video; a clip. Does the user like it?", "options": ["Yes", "No"]}


def pramem(**settings):
    return build("pramem", task="behavior-prediction", **{"rounds": 5, "min_history": 5, **settings})


def practised(scripted, script, history, **settings):
    lm, program = scripted(script), pramem(**settings)
    with dspy.context(lm=lm):
        return lm, program.remember(history).memory


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


def test_other_tasks_and_policies_run_over_it(scripted, practice_script, behavior_history, make_history):
    script = practice_script(answer={"answer": "x"}, augmented_query={"augmented_query": "x"})
    with dspy.context(lm=scripted(script)):
        assert build("pramem", rounds=2)(history=behavior_history(), question="Who?").answer == "x"
        assert build("pramem")(history=make_history(2), question="Who?").answer == "x"
    over = build("pgr+pramem", embedder=embedder(), iterations=0, summary=False, inner_rounds=1)
    assert over.method.writer.rounds == 1


@pytest.mark.parametrize(
    ("settings", "gone", "new"),
    [
        ({"deep_thinking": False}, {"useful_patterns"}, {"predicted_action"}),
        ({"reflection": False}, {"tasks"}, {"proposals"}),
        ({"consensus": False}, {"decisions"}, set()),
    ],
)
def test_an_ablation_takes_its_prompt_away_and_leaves_the_others(
    scripted, practice_script, behavior_history, settings, gone, new
):
    full, _ = practised(scripted, practice_script(), behavior_history())
    less, memory = practised(scripted, practice_script(), behavior_history(), **settings)
    assert set(less.engine.calls) == (set(full.engine.calls) - gone) | new
    assert memory.counts["pooled"] == 15
    kept = [text for kind, text in full.engine.prompts if kind in ("plans", "virtual_scenes")]
    assert sorted(kept) == sorted(text for kind, text in less.engine.prompts if kind in ("plans", "virtual_scenes"))


def test_without_deep_thinking_reflection_sees_no_thinking(scripted, practice_script, behavior_history, prompt_section):
    for deep, thinking in ((True, "p\nhm"), (False, "")):
        lm, _ = practised(scripted, practice_script(), behavior_history(), deep_thinking=deep)
        text = next(text for kind, text in lm.engine.prompts if kind == "tasks")
        assert prompt_section(text, "thinking") == thinking
    lm, _ = practised(scripted, practice_script(), behavior_history(), reflection=False)
    assert "thinking" not in next(text for kind, text in lm.engine.prompts if kind == "proposals")


def test_without_consensus_all_that_passed_review_is_adopted(scripted, practice_script, behavior_history):
    _, memory = practised(scripted, practice_script(), behavior_history(), consensus=False)
    assert (len(memory.patterns), len(memory.alerts), memory.pool) == (11, 10, ())


@pytest.mark.parametrize(("off", "kept"), [("patterns", "alerts"), ("alerts", "patterns")])
def test_one_kind_of_experience_alone(scripted, practice_script, behavior_history, off, kept):
    full = practised(scripted, practice_script(), behavior_history(), consensus=False)[1]
    memory = practised(scripted, practice_script(), behavior_history(), consensus=False, **{off: False})[1]
    assert getattr(memory, off) == ()
    assert [part.text for part in getattr(memory, kept)] == [part.text for part in getattr(full, kept)]
    assert memory.counts["invalid"] == (10 if off == "patterns" else 5)


def test_an_empty_start_has_no_experience_but_shows_the_profile(
    scripted, practice_script, behavior_history, prompt_section
):
    lm, memory = practised(scripted, practice_script(), behavior_history(), start="empty", rounds=1)
    assert memory.at_round(0).experiences == ()
    trial = next(text for kind, text in lm.engine.prompts if kind == "useful_patterns")
    assert (prompt_section(trial, "patterns"), prompt_section(trial, "alerts")) == ("[]", "[]")
    assert "Ann, 34, nurse" in prompt_section(trial, "recent_records")


@pytest.mark.parametrize("setting", ["weighting", "seed", "practice_tokens", "samples"])
def test_what_is_practised_is_a_setting(scripted, practice_script, behavior_history, setting):
    changed = {"weighting": "recency", "seed": 1, "practice_tokens": 60, "samples": 2}[setting]
    first, _ = practised(scripted, practice_script(), behavior_history())
    second, _ = practised(scripted, practice_script(), behavior_history(), **{setting: changed})
    trials = [sorted(t for kind, t in lm.engine.prompts if kind == "useful_patterns") for lm in (first, second)]
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


class Habits(Scorer):
    title = "accuracy"

    def score(self, example, prediction):
        right = prediction.answer == example.answer
        return Score(float(right), "Right." if right else f"Say {example.answer}; mind the user's habits.")


class Quiz(Benchmark):
    name = "quiz"
    task = "behavior-prediction"
    metrics: ClassVar = {"accuracy": Habits}

    @classmethod
    def load(cls, path=None, **options):
        raise NotImplementedError


def quiz(behavior_history):
    examples = [
        dspy.Example(
            history=behavior_history(12, id=f"user{user}"),
            question=f"video; clip {n}. Does the user like it?",
            options=["Yes", "No"],
            focus=("a7",),
            answer="Yes",
            category="video",
            id=f"{user}-{n}",
        ).with_inputs("history", "question", "options", "focus")
        for user in range(4)
        for n in range(3)
    ]
    return Quiz(examples, Source("quiz", "0" * 64, False))


@pytest.mark.parametrize("optimizer", ["bootstrap", "gepa"])
def test_it_compiles(scripted, practice_script, behavior_history, optimizer):
    def answer(text, n):
        said = "Yes" if n % 3 else "No"
        return {"relevant_patterns": [], "relevant_alerts": [], "reasoning": "-", "answer": said}

    lm = scripted(practice_script(relevant_patterns=answer, new_instruction={"new_instruction": "Mind habits."}))
    settings = {"max_metric_calls": 30} if optimizer == "gepa" else {}
    benchmark = quiz(behavior_history)
    with dspy.context(lm=lm):
        how = Compilation(optimizer=optimizer, settings=settings, threads=1)
        result = compile_program(pramem(rounds=3), benchmark, benchmark.examples, how)
    if optimizer == "bootstrap":
        predictors = result.all_predictors().items()
        taught = {name for name, predictor in predictors if any(demo.get("augmented") for demo in predictor.demos)}
        assert taught >= {"task.answer", "method.writer.trial", "method.writer.reflect"}
    else:
        reflections = [text for kind, text in lm.engine.prompts if kind == "new_instruction"]
        assert any("mind the user's habits" in text for text in reflections)


def test_a_saved_program_predicts_in_a_new_process(tmp_path, behavior_history):
    save(pramem(rounds=2), tmp_path / "program")
    (tmp_path / "history.json").write_text(behavior_history(12).model_dump_json())
    code = """
import sys, dspy, mempiler
from mempiler.engines.models import language_model
program = mempiler.load(sys.argv[1])
history = mempiler.History.load(sys.argv[2])
with dspy.context(lm=language_model("offline")):
    found = program(history=history, question="video; a clip. Does the user like it?", options=["Yes", "No"])
print(program.method.writer.rounds, found.memory.rounds, len(found.memory.experiences), bool(found.answer))
"""
    paths = [str(tmp_path / "program"), str(tmp_path / "history.json")]
    ran = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["2", "2", "6", "True"], ran.stderr[-500:]


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


def test_a_killed_run_pays_for_missing_calls_alone(scripted, practice_script, behavior_history, tmp_path):
    code = """
import importlib.util, os, sys
def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
base, own = load(sys.argv[1], "base"), load(sys.argv[2], "own")
import dspy
from pathlib import Path
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.programs.catalog import build
from mempiler.programs.remember import MemoryCache
from mempiler.runs.artifact import save
from mempiler.runs.run_store import RunStore
script, store = own.PracticeScript(), RunStore(Path(sys.argv[3]))
def reply(kind, text, n):
    if kind == "tasks" and n == 8:
        os._exit(9)
    return script(kind, text, n)
engine = base.ScriptedEngine(reply, 0.005)
settings = {"cache": False, "temperature": 0.0, "num_retries": 0}
lm = MeteredLM("scripted/test", Meter(), engine=engine, answers=store.answers, **settings)
program = build("pramem", task="behavior-prediction", rounds=10, min_history=5, cache=MemoryCache(store.nodes))
with dspy.context(lm=lm):
    program.remember(own.behavior())
"""
    here, path = Path(__file__).parent, tmp_path / "run.sqlite"
    command = [sys.executable, "-c", code, str(here.parent / "conftest.py"), str(here / "conftest.py"), str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 9, ran.stderr[-500:]
    whole, expected = practised(scripted, practice_script(), behavior_history(), rounds=10)
    store = RunStore(path)
    kept = store._database.execute("SELECT count(*) FROM answers").fetchone()[0]
    lm = scripted(practice_script(), answers=store.answers)
    program = pramem(rounds=10, cache=MemoryCache(store.nodes))
    with dspy.context(lm=lm):
        assert program.remember(behavior_history()).memory == expected
    assert kept > 31  # the first five rounds with their adjustment, and a part of the next five
    assert len(lm.engine.prompts) == len(whole.engine.prompts) - kept
    with dspy.context(lm=lm):
        again = pramem(rounds=10, cache=MemoryCache(store.nodes)).remember(behavior_history())
    assert again.memory == expected
    assert len(lm.engine.prompts) == len(whole.engine.prompts) - kept
    store.close()
