"""The Python API: a user's own module, examples and metric, without a benchmark's name.

To compile a program means to let an optimizer improve its prompts with the training examples. The
dev examples (`valset`) decide if the result is kept, and the test examples are only for the report.
A demo is an example that a prompt shows. The offline engine answers by rules, with words from the
prompt, and needs no network.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import mempiler
import pytest
from gepa.utils.stop_condition import CompositeStopper, NoImprovementStopper, ScoreThresholdStopper
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.errors import DataError, UnknownNameError, UserError
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.runs.api import make_compilation
from mempiler.runs.results_folder import results_folder

from ..scripted_engine import chat_fields

CITIES = [
    "Lisbon",
    "Oslo",
    "Quito",
    "Hanoi",
    "Dakar",
    "Perth",
    "Turin",
    "Kyoto",
    "Leeds",
    "Porto",
]


class Agent(dspy.Module):
    """A user's own program, which shows the newest lines of the history to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.ChainOfThought("lines: list[str], question -> answer")

    def forward(self, history: mempiler.History, question: str) -> dspy.Prediction:
        lines: list[str] = []
        for item in history:
            lines.extend(item.lines())
        return self.say(lines=lines[-50:], question=question)


def names_the_city(example: dspy.Example, prediction: dspy.Prediction) -> tuple[float, str]:
    """A user's own metric, with feedback."""
    if example.answer in prediction.answer:
        return 1.0, ""
    return 0.0, f"Name the city, {example.answer}."


def make_example(number: int, **changes: Any) -> dspy.Example:
    """Return a question to one user, about what they said; `changes` gives other fields."""
    city = CITIES[number % len(CITIES)]
    messages = [
        {"role": "user", "name": f"User{number}", "content": f"I moved to {city} in May."},
        {"role": "assistant", "content": "What is it like?"},
        {"role": "user", "name": f"User{number}", "content": "My dog is called Rex."},
    ]
    fields = {
        "history": messages,
        "question": f"Where did User{number} move?",
        "answer": city,
        "evidence": ["D1:1"],
        "user": f"user-{number}",
    }
    return dspy.Example(**{**fields, **changes})


def make_examples(count: int, first: int = 0) -> list[dspy.Example]:
    """Return one question to each of `count` users; `first` is the number of the first user."""
    return [make_example(number) for number in range(first, first + count)]


TRAINSET = make_examples(20)
"""The questions to users 0 to 19."""
VALSET = make_examples(20, first=20)
"""The questions to users 20 to 39."""
TESTSET = make_examples(20, first=40)
"""The questions to users 40 to 59."""


def compile_agent(
    train_count: int, dev_count: int, *, agent: Agent | None = None, **options: Any
) -> mempiler.CompileResult:
    """Compile an agent with the offline engine; keep the compiled program whatever dev shows."""
    options = {"optimizer": "bootstrap", "lm": "offline", **options}
    return mempiler.compile(
        agent or Agent(),
        trainset=make_examples(train_count),
        valset=make_examples(dev_count, first=train_count),
        force=True,
        progress=False,
        **options,
    )


def demos_of(compiled: mempiler.CompileResult) -> list[Any]:
    """Return the demos of the only predictor of a compiled agent."""
    (predictor,) = compiled.program.module.predictors()
    return predictor.demos


def demo_questions(compiled: mempiler.CompileResult) -> list[str]:
    """Return the questions of the demos of a compiled agent."""
    return [demo["question"] for demo in demos_of(compiled)]


@pytest.fixture(scope="module")
def compiled_agent() -> mempiler.CompileResult:
    """An agent that was compiled with the metric `names_the_city`, and shows two demos."""
    return mempiler.compile(
        Agent(),
        trainset=TRAINSET,
        valset=VALSET,
        testset=TESTSET,
        metric=names_the_city,
        optimizer=mempiler.optimizers.Bootstrap(max_bootstrapped_demos=2, max_labeled_demos=0),
        lm="offline",
        force=True,
        progress=False,
    )


def test_a_result_has_the_scores_of_the_testset_before_and_after_the_compile(
    compiled_agent: mempiler.CompileResult,
) -> None:
    scored_questions = {row.question for row in compiled_agent.after.rows}
    test_questions = {example.question for example in TESTSET}

    assert scored_questions == test_questions
    assert compiled_agent.before.n == len(TESTSET)
    assert compiled_agent.after.n == len(TESTSET)
    assert compiled_agent.difference.n == len(TESTSET)
    assert compiled_agent.verdict in ("better", "worse", "not told apart", "too few to tell")


def test_answers_are_scored_by_the_users_metric(compiled_agent: mempiler.CompileResult) -> None:
    """The metric `names_the_city` gives 1 if the right city is in the answer, and else 0."""
    rows = compiled_agent.after.rows

    assert len(rows) == len(TESTSET)
    for row in rows:
        names_right_city = row.gold in row.answer
        assert row.parts["names_the_city"] == float(names_right_city)


def test_the_demos_of_a_compiled_program_are_training_questions(
    compiled_agent: mempiler.CompileResult,
) -> None:
    """The optimizer was allowed two demos, which are examples that a prompt shows."""
    training_questions = {example.question for example in TRAINSET}
    questions_of_demos = set(demo_questions(compiled_agent))

    assert len(questions_of_demos) == 2
    assert questions_of_demos <= training_questions


def test_compiling_does_not_change_the_users_agent_object() -> None:
    """The compiled program is a copy of the agent, so the agent itself gets no demos."""
    agent = Agent()

    compile_agent(train_count=4, dev_count=4, agent=agent)

    assert agent.say.predict.demos == []
    assert type(agent.say.predict) is dspy.Predict


def test_a_loaded_program_answers_as_the_program_that_was_saved(
    compiled_agent: mempiler.CompileResult, tmp_path: Path
) -> None:
    """The class of the agent is code of the user's, so `load` needs `allow_code`."""
    compiled_agent.save(tmp_path / "program")

    loaded = mempiler.load(tmp_path / "program", allow_code=True)

    evaluation = mempiler.evaluate(
        loaded, TESTSET, metric=names_the_city, lm="offline", progress=False
    )
    answers = [row.answer for row in evaluation.rows]
    assert answers == [row.answer for row in compiled_agent.after.rows]


def test_a_compiled_module_can_be_saved_and_loaded_with_dspy_alone(
    compiled_agent: mempiler.CompileResult, tmp_path: Path
) -> None:
    """A user can give up Mempiler and keep what it has compiled."""
    compiled_agent.program.module.save(tmp_path / "agent.json")

    agent = Agent()
    agent.load(tmp_path / "agent.json")

    loaded_questions = [demo["question"] for demo in agent.say.predict.demos]
    assert loaded_questions == demo_questions(compiled_agent)


def test_an_evaluation_does_not_make_dspy_warn_about_direct_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """DSPy logs that it is "discouraged" to call `forward` of a module directly."""
    lm = language_model("offline")

    evaluation = mempiler.evaluate(Agent(), make_examples(2), lm=lm, progress=False)

    assert evaluation.n == 2
    assert "discouraged" not in caplog.text


def test_two_evaluations_are_compared_question_by_question(
    compiled_agent: mempiler.CompileResult,
) -> None:
    """The same agents on the same questions give the difference that the compile reported."""
    options: dict[str, Any] = {"metric": names_the_city, "lm": "offline", "progress": False}
    original = mempiler.evaluate(Agent(), TESTSET, **options)
    compiled = mempiler.evaluate(compiled_agent.program, TESTSET, **options)

    comparison = mempiler.compare(original, compiled)

    assert comparison.difference == compiled_agent.difference
    assert list(comparison.to_pandas().columns) == ["id", "category", "question", "gold", "A", "B"]
    assert f"{comparison.difference.mean:+.3f}" in str(comparison)


def test_a_result_is_shown_as_text_and_in_a_notebook_as_a_table(
    compiled_agent: mempiler.CompileResult,
) -> None:
    gain = compiled_agent.difference.mean

    assert f"{gain:+.3f}" in str(compiled_agent)
    assert "<table>" in compiled_agent._repr_html_()


def test_a_result_is_exported_as_json_and_as_a_data_frame_of_the_test_questions(
    compiled_agent: mempiler.CompileResult,
) -> None:
    json_text = json.dumps(compiled_agent.to_dict())

    assert json.loads(json_text)["before"]["score"] == compiled_agent.before.score
    assert len(compiled_agent.to_pandas()) == len(TESTSET)
    assert len(compiled_agent.before.to_pandas()) == len(TESTSET)


def test_a_script_in_the_users_data_is_escaped_in_the_html_of_a_result() -> None:
    example = make_example(0, category="<script>alert(1)</script>")

    evaluation = mempiler.evaluate(Agent(), [example], lm="offline", progress=False)
    html = evaluation._repr_html_()

    assert "alert(1)" in html
    assert "<script>" not in html


def test_progress_is_written_to_standard_error_or_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Standard output is for what the user's own code prints."""
    mempiler.evaluate(Agent(), make_examples(2), lm="offline", progress=True)
    with_progress = capsys.readouterr()
    mempiler.evaluate(Agent(), make_examples(2), lm="offline", progress=False)
    without_progress = capsys.readouterr()

    assert with_progress.out == ""
    assert "2 questions" in with_progress.err
    assert without_progress.out == ""
    assert without_progress.err == ""


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        pytest.param(
            [dspy.Example(query="Where?", gold="Lisbon")],
            "lacks history, question, answer; found: query, gold",
            id="fields with other names",
        ),
        pytest.param(
            [dspy.Example(history=[], question="Where?", answer="Lisbon")],
            "its history holds no turns",
            id="an empty history",
        ),
        pytest.param(
            [dspy.Example(history=[{"content": "Hi"}], question="Where?", answer="x")],
            "has no role",
            id="a message without a role",
        ),
        pytest.param(
            [{"history": 3}], "lacks question, answer", id="a dictionary without a question"
        ),
        pytest.param(
            ["Where?"], "expected a dspy.Example, got str", id="a text in place of an example"
        ),
        pytest.param(
            [make_example(0, evidence=["D9:9"])],
            "'D9:9' is no turn",
            id="evidence that is not in the history",
        ),
        pytest.param(
            [make_example(0, id="same"), make_example(1, id="same")],
            "'same' is used twice",
            id="two examples with one id",
        ),
    ],
)
def test_malformed_examples_are_refused_with_a_one_line_reason(
    examples: list[Any], message: str
) -> None:
    with pytest.raises(DataError) as refused:
        mempiler.evaluate(Agent(), examples, lm="offline", progress=False)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        pytest.param({}, "nothing to ask", id="no questions"),
        pytest.param({"testset": TESTSET, "benchmark": "locomo"}, "not both", id="two sources"),
        pytest.param(
            {"testset": TESTSET, "test": 0},
            "test = 0: no question would be asked",
            id="at most 0 test questions",
        ),
        pytest.param(
            {"testset": TESTSET, "split": "dev", "dev": 0},
            "dev = 0: no question would be asked",
            id="at most 0 dev questions",
        ),
    ],
)
def test_an_evaluation_needs_questions_from_exactly_one_source(
    questions: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        mempiler.evaluate(Agent(), lm="offline", progress=False, **questions)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        pytest.param({"thread": 1}, "did you mean 'threads'", id="misspelled name"),
        pytest.param({"optimizer": 1}, "choose one of: adapter, ", id="option of a compile"),
        pytest.param({"metric": "f2"}, "f2", id="unknown metric"),
        pytest.param({"limits": 3}, "limits = 3: give mempiler.Limits(...)", id="wrong type"),
        pytest.param(
            {"lm": 3}, "expected the name of a model or a dspy.LM, got int", id="no model"
        ),
        pytest.param(
            {"limits": mempiler.Limits(max_calls=3), "max_calls": 3},
            "max_calls = 3",
            id="a limit that is given twice",
        ),
    ],
)
def test_a_wrong_option_of_an_evaluation_is_refused_in_one_line(
    option: dict[str, Any], message: str
) -> None:
    options = {"lm": "offline", "progress": False, **option}

    with pytest.raises(UserError) as refused:
        mempiler.evaluate(Agent(), TESTSET, **options)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_single_list_of_examples_is_split_into_training_dev_and_test_examples() -> None:
    """The user gives neither a `valset` nor a `testset`."""
    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(60),
        metric=names_the_city,
        optimizer="bootstrap",
        lm="offline",
        force=True,
        progress=False,
    )

    test_questions = {row.question for row in compiled.after.rows}
    training_questions = set(demo_questions(compiled))
    assert test_questions
    assert training_questions
    assert test_questions.isdisjoint(training_questions)


def test_without_test_examples_the_report_says_that_its_scores_are_those_of_dev() -> None:
    """Dev examples decide whether a program is kept, so their scores are too favourable."""
    compiled = compile_agent(train_count=8, dev_count=8)

    assert compiled.before.n == 8
    assert compiled.after.n == 8
    assert "dev questions, which also decided" in str(compiled)


def test_an_optimizer_may_be_a_function_that_makes_a_dspy_teleprompter() -> None:
    """Mempiler calls the function with a metric, and lets the teleprompter compile the agent."""
    received_metrics: list[Any] = []

    def my_optimizer(metric: Any) -> dspy.teleprompt.Teleprompter:
        received_metrics.append(metric)
        return dspy.LabeledFewShot(k=3)

    compiled = compile_agent(train_count=9, dev_count=3, optimizer=my_optimizer)

    assert len(demos_of(compiled)) == 3
    assert received_metrics
    assert callable(received_metrics[0])


@dataclass(frozen=True, kw_only=True)
class LongestAnswers(mempiler.optimizers.Optimizer):
    """A user's optimizer, the example in the docstring of `mempiler.optimizers.optimizer`."""

    name = "longest-answers"
    changes_in_program = "demos: the training questions with the longest answers"
    cost_description = "no calls"

    num_demos: int = 4

    def run(self, job: Any) -> Any:
        longest_first = sorted(job.train, key=lambda example: -len(example.answer))
        for predictor in job.student.predictors():
            predictor.demos = longest_first[: self.num_demos]
        return job.student


class OwnLabeled(mempiler.optimizers.Labeled):
    """A subclass of one of our optimizers, whose only demo is the first training question."""

    def run(self, job: Any) -> Any:
        for predictor in job.student.predictors():
            predictor.demos = list(job.train[:1])
        return job.student


def recorded_settings(compiled: mempiler.CompileResult) -> dict[str, Any]:
    """Return the settings in the file that a run keeps about itself."""
    return json.loads((compiled.run / "run.json").read_text())["settings"]


def test_a_users_optimizer_class_is_run_and_is_recorded_with_its_settings() -> None:
    optimizer = LongestAnswers(num_demos=2)

    compiled = compile_agent(train_count=9, dev_count=3, optimizer=optimizer)

    assert len(demos_of(compiled)) == 2
    assert recorded_settings(compiled)["optimizer"] == "LongestAnswers"
    assert recorded_settings(compiled)["settings"] == {"num_demos": 2}


def test_a_users_subclass_of_labeled_is_not_mistaken_for_labeled() -> None:
    """`OwnLabeled` makes a single demo. Mempiler's `Labeled` would make more."""
    compiled = compile_agent(train_count=9, dev_count=3, optimizer=OwnLabeled())

    assert len(demos_of(compiled)) == 1
    assert recorded_settings(compiled)["optimizer"] == "OwnLabeled"


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        pytest.param(
            mempiler.optimizers.Gepa(max_metric_calls=4, extra={"max_metric_calls": 9}),
            "max_metric_calls is a setting of Gepa itself; give it there",
            id="a setting that is given twice",
        ),
        pytest.param(
            mempiler.optimizers.Gepa(extra=3),  # pyright: ignore[reportArgumentType]
            "extra = 3: give settings by name, as in Gepa(extra={NAME: VALUE})",
            id="settings without names",
        ),
        pytest.param(
            mempiler.optimizers.Gepa(extra={"nope": 1}),
            "optimizer 'gepa' has no setting 'nope'",
            id="an unknown setting",
        ),
        pytest.param(
            mempiler.optimizers.Knn, "write mempiler.optimizers.Knn()", id="a class of ours"
        ),
        pytest.param(LongestAnswers, "write LongestAnswers()", id="a class of the user's"),
    ],
)
def test_a_wrong_optimizer_object_is_refused_before_a_run_is_created(
    optimizer: Any, message: str
) -> None:
    """The results folder has one folder for each run, and gets no new one."""
    runs_before = set(results_folder().glob("*"))

    with pytest.raises(UserError) as refused:
        mempiler.compile(
            Agent(), trainset=TRAINSET, optimizer=optimizer, lm="offline", progress=False
        )

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert set(results_folder().glob("*")) == runs_before


def recorded_gepa_settings(**extra: Any) -> Any:
    """Return what a run records of these settings of GEPA.

    GEPA is an optimizer that searches for better instructions. A stopper is an object that ends the
    search.
    """
    return make_compilation(mempiler.optimizers.Gepa(extra=extra)).recorded_settings()


def test_objects_among_the_settings_are_recorded_with_their_arguments() -> None:
    """The record of a run is a file, so an object can only be described in it.

    A stopper is an object that tells GEPA when to stop its search. The composite one stops it if
    one of the stoppers in it says so.
    """
    stopper = CompositeStopper(NoImprovementStopper(5), ScoreThresholdStopper(0.9))

    recorded = recorded_gepa_settings(stop_callbacks=[stopper])

    (description,) = recorded["stop_callbacks"]
    assert description.startswith("CompositeStopper(")
    assert "NoImprovementStopper(max_iterations_without_improvement=5)" in description
    assert "0.9" in description


def test_a_model_among_the_settings_is_recorded_without_its_key() -> None:
    """A setting of the optimizer may be a model that the user has made with a key."""
    lm = dspy.LM("openai/x", api_key="a-secret-key")

    recorded = recorded_gepa_settings(reflection_lm=lm)

    assert recorded["reflection_lm"] == "LM"
    assert "a-secret-key" not in str(recorded)


def test_counters_that_change_during_a_run_are_not_recorded_as_settings() -> None:
    """A run can only be resumed with the settings that it was started with.

    A stopper counts rounds while GEPA works. If the count were recorded as a setting, the settings
    would seem to have changed.
    """
    stopper = NoImprovementStopper(5)
    settings_at_start = recorded_gepa_settings(stop_callbacks=stopper)

    stopper.iterations_without_improvement = 3
    settings_later = recorded_gepa_settings(stop_callbacks=stopper)

    assert settings_later == settings_at_start


def test_without_a_model_the_one_that_dspy_is_configured_with_is_asked() -> None:
    with dspy.context(lm=language_model("offline")):
        evaluation = mempiler.evaluate(Agent(), make_examples(2), progress=False)

    assert evaluation.lm == "offline"


def test_the_metric_of_a_benchmark_can_be_given_to_dspy() -> None:
    """Most of DSPy's optimizers call a metric with a question and an answer, and want a number.

    GEPA also gives a trace and the name and the trace of a predictor, and wants feedback as well.
    """
    locomo = mempiler.benchmark("locomo")
    example = locomo.test[0]
    right = dspy.Prediction(answer=example.answer)
    wrong = dspy.Prediction(answer="no idea")

    score = locomo.metric(example, right)
    result_for_gepa = locomo.metric(example, wrong, None, "answer", [])

    assert score == 1.0
    assert result_for_gepa.score < 1
    assert result_for_gepa.feedback


each_optimizer_that_proposes = pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(
            mempiler.optimizers.Gepa(
                max_metric_calls=24, extra={"stop_callbacks": [NoImprovementStopper(5)]}
            ),
            id="gepa",
        ),
        pytest.param(
            mempiler.optimizers.Mipro(
                num_candidates=2, num_trials=2, max_bootstrapped_demos=1, max_labeled_demos=0
            ),
            id="mipro",
        ),
    ],
)
"""Two optimizers that let the model propose prompts."""


@each_optimizer_that_proposes
def test_every_call_of_a_users_dspy_model_is_counted_while_a_module_is_compiled(
    optimizer: Any, stub: Any
) -> None:
    """Calls that answer questions are "task" calls; those that propose prompts are "prompt" calls.

    The server, too, counts the calls that it has answered. And the key of the model must be neither
    in the result nor in the files of the run.
    """
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key")

    compiled = compile_agent(
        train_count=12, dev_count=6, metric=names_the_city, optimizer=optimizer, lm=lm
    )

    assert compiled.before.lm == server.model
    calls = compiled.usage["calls"]
    assert calls["task"] + calls["prompt"] == server.answered
    assert "a-key" not in json.dumps(compiled.to_dict())
    run_files = [path for path in compiled.run.rglob("*") if path.is_file()]
    assert run_files
    for path in run_files:
        assert b"a-key" not in path.read_bytes(), path


def test_a_plan_of_a_users_module_gives_its_calls_and_its_split() -> None:
    """A plan says before a run how many calls it will make, and how its questions are split."""
    plan = mempiler.plan(
        Agent(), trainset=make_examples(30), optimizer="bootstrap", lm="offline", progress=False
    )

    assert plan.calls.low > 0
    assert plan.split is not None


def test_a_metric_that_calls_exit_ends_the_run_and_not_the_users_process() -> None:
    """`exit` raises SystemExit, which would end Python if nobody caught it."""

    def exiting_metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        raise SystemExit(0)

    with pytest.raises(UserError, match=r"metric .*exiting_metric' failed on .*: SystemExit: 0"):
        mempiler.evaluate(
            Agent(), make_examples(2), metric=exiting_metric, lm="offline", progress=False
        )


class ExitingModel(dspy.BaseLM):
    """A model of the user's that calls `exit`."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        raise SystemExit(3)


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("program", ["turn-rag", "memory-r2"])
def test_a_model_that_calls_exit_fails_its_questions_and_not_the_process(program: str) -> None:
    """Memory-R2 asks the model already when it writes its memory, turn RAG when it answers."""
    lm = ExitingModel("own/model")

    evaluation = mempiler.evaluate(program, make_examples(2), lm=lm, metric="f1", progress=False)

    assert evaluation.failures == 2
    # The message says where in the user's code it was.
    assert "SystemExit: 3 (test_api.py:" in evaluation.breakage


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_calls_exit_fails_its_questions_under_asyncio() -> None:
    lm = ExitingModel("own/model")

    evaluation = asyncio.run(
        mempiler.aevaluate("memory-r2", make_examples(2), lm=lm, metric="f1", progress=False)
    )

    assert evaluation.failures == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compile_ends_normally_although_its_model_calls_exit() -> None:
    compiled = mempiler.compile(
        "turn-rag",
        trainset=make_examples(9),
        lm=ExitingModel("own/model"),
        optimizer="bootstrap",
        force=True,
        progress=False,
        max_failure_rate=1.0,
    )

    assert compiled.before.rows
    assert compiled.before.failures == len(compiled.before.rows)


class ExitingReader(mempiler.EntryReader[Any]):
    """A user's own search that calls `exit`."""

    def search(self, *_: Any, **__: Any) -> Any:
        raise SystemExit(0)


class ExitingSearch(mempiler.Method):
    """A user's own method: turns are kept, and searching them calls `exit`."""

    def __init__(self) -> None:
        super().__init__(TurnWriter(), ExitingReader(k=5))


def test_a_users_search_that_calls_exit_fails_its_questions() -> None:
    """A method of the user's is named as `module:Class`; this one is in this file."""
    evaluation = mempiler.evaluate(
        f"{__name__}:ExitingSearch", benchmark="locomo", test=2, lm="offline", progress=False
    )

    assert evaluation.failures == 2


@pytest.mark.parametrize("function", [mempiler.compile, mempiler.plan])
def test_an_unknown_stage_is_refused_with_the_stage_that_was_meant(function: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'read'"):
        function("turn-rag", benchmark="locomo", stage="reed", lm="offline", progress=False)


@pytest.mark.parametrize(
    "function",
    [mempiler.evaluate, partial(mempiler.plan, optimizer=None)],
    ids=["evaluate", "plan"],
)
def test_an_unknown_split_is_refused_with_the_split_that_was_meant(function: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'test'"):
        function("turn-rag", benchmark="locomo", split="tset", lm="offline", progress=False)


def test_a_model_with_a_limit_of_its_own_is_refused() -> None:
    """The limits of a run belong to the run, so they hold for all its models together."""
    lm = language_model("offline", guard=BudgetGuard(Limits(max_calls=2)))

    with pytest.raises(UserError, match="give limits= to the run instead"):
        mempiler.evaluate(Agent(), make_examples(2), lm=lm, progress=False)


class CutOffModel(dspy.BaseLM):
    """A model of the user's whose answer "Lisbon" is cut off after "Lis" by its token limit."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        message = SimpleNamespace(content=chat_fields(answer="Lis"), tool_calls=None)
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        choice = SimpleNamespace(message=message, finish_reason="length")
        return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_that_the_token_limit_cut_off_are_counted_and_reported() -> None:
    """`CutOffModel` is asked twice for each of two answers, and stops after "Lis" each time.

    In the end the run takes what there is.
    """
    lm = CutOffModel("own/model")

    evaluation = mempiler.evaluate("turn-rag", make_examples(2), lm=lm, metric="f1", progress=False)

    assert [row.answer for row in evaluation.rows] == ["Lis", "Lis"]
    assert evaluation.faults == {"task.answer": {"cut": 4}}
    assert "4 answers were cut off at the token limit" in str(evaluation)
