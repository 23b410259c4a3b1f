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
    """Return questions to `count` users, of whom each has one; `first` numbers the first user."""
    return [make_example(number) for number in range(first, first + count)]


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
    """An agent that was compiled with a user's metric, and shows two demos.

    Users 0 to 19 ask the training questions, users 20 to 39 the dev questions, and users 40 to 59
    the test questions: one each.
    """
    return compile_agent(
        train_count=20,
        dev_count=20,
        testset=make_examples(20, first=40),
        metric=names_the_city,
        optimizer=mempiler.optimizers.Bootstrap(max_bootstrapped_demos=2, max_labeled_demos=0),
    )


def test_a_result_holds_scores_before_and_after_on_the_test_examples(
    compiled_agent: mempiler.CompileResult,
) -> None:
    """The test questions are those of users 40 to 59.

    The scores of the original agent are in `before`, those of the compiled one in `after`.
    """
    test_questions = {example.question for example in make_examples(20, first=40)}

    assert {row.question for row in compiled_agent.after.rows} == test_questions
    assert compiled_agent.before.n == 20
    assert compiled_agent.after.n == 20
    assert compiled_agent.difference.n == 20
    assert compiled_agent.verdict in ("better", "worse", "not told apart", "too few to tell")


def test_the_metric_of_the_user_scores_the_answers(compiled_agent: mempiler.CompileResult) -> None:
    """The user's metric gives 1 if the answer names the right city, and else 0."""
    assert len(compiled_agent.after.rows) == 20
    for row in compiled_agent.after.rows:
        names_city = row.gold in row.answer
        assert row.parts["names_the_city"] == float(names_city)


def test_the_compiled_program_shows_demos_of_the_trainset(
    compiled_agent: mempiler.CompileResult,
) -> None:
    """The optimizer was allowed two demos. The training questions are those of users 0 to 19."""
    training_questions = {example.question for example in make_examples(20)}
    questions = set(demo_questions(compiled_agent))

    assert len(questions) == 2
    assert questions <= training_questions


def test_the_agent_that_is_compiled_stays_as_it_was() -> None:
    """The compiled program is a copy of the user's agent."""
    agent = Agent()

    compile_agent(train_count=4, dev_count=4, agent=agent)

    assert agent.say.predict.demos == []
    assert type(agent.say.predict) is dspy.Predict


def test_a_compiled_program_is_saved_and_loaded(
    compiled_agent: mempiler.CompileResult, tmp_path: Path
) -> None:
    """The class of the agent is code of the user's, so loading must be allowed to import it."""
    compiled_agent.save(tmp_path / "program")

    loaded = mempiler.load(tmp_path / "program", allow_code=True)

    evaluation = mempiler.evaluate(
        loaded, make_examples(20, first=40), metric=names_the_city, lm="offline", progress=False
    )
    answers = [row.answer for row in evaluation.rows]
    assert answers == [row.answer for row in compiled_agent.after.rows]


def test_the_compiled_module_is_saved_and_loaded_by_dspy_alone(
    compiled_agent: mempiler.CompileResult, tmp_path: Path
) -> None:
    compiled_agent.program.module.save(tmp_path / "agent.json")

    agent = Agent()
    agent.load(tmp_path / "agent.json")

    loaded_questions = [demo["question"] for demo in agent.say.predict.demos]
    assert loaded_questions == demo_questions(compiled_agent)


def test_an_evaluation_logs_no_warning_of_dspy(caplog: pytest.LogCaptureFixture) -> None:
    # DSPy discourages that `forward` is called directly.
    evaluation = mempiler.evaluate(
        Agent(), make_examples(2), lm=language_model("offline"), progress=False
    )

    assert evaluation.n == 2
    assert "discouraged" not in caplog.text


def test_two_evaluations_are_compared_question_by_question(
    compiled_agent: mempiler.CompileResult,
) -> None:
    examples = make_examples(20, first=40)
    options: dict[str, Any] = {"metric": names_the_city, "lm": "offline", "progress": False}
    of_agent = mempiler.evaluate(Agent(), examples, **options)
    of_compiled_agent = mempiler.evaluate(compiled_agent.program, examples, **options)

    comparison = mempiler.compare(of_agent, of_compiled_agent)

    assert comparison.difference == compiled_agent.difference
    assert list(comparison.to_pandas().columns) == ["id", "category", "question", "gold", "A", "B"]
    assert f"{comparison.difference.mean:+.3f}" in str(comparison)


def test_a_result_is_shown_as_text(compiled_agent: mempiler.CompileResult) -> None:
    text = str(compiled_agent)

    gain = compiled_agent.difference.mean
    assert f"{gain:+.3f}" in text


def test_a_result_is_shown_in_a_notebook_as_a_table(
    compiled_agent: mempiler.CompileResult,
) -> None:
    assert "<table>" in compiled_agent._repr_html_()


def test_a_score_of_the_offline_engine_is_called_a_smoke_test(
    compiled_agent: mempiler.CompileResult,
) -> None:
    """The engine answers by rules, so such a score says nothing about a program."""
    assert "smoke test" in str(compiled_agent.before)


def test_a_result_is_exported_as_json(compiled_agent: mempiler.CompileResult) -> None:
    text = json.dumps(compiled_agent.to_dict())

    assert json.loads(text)["before"]["score"] == compiled_agent.before.score


def test_a_result_is_exported_as_a_data_frame_of_the_test_questions(
    compiled_agent: mempiler.CompileResult,
) -> None:
    assert len(compiled_agent.to_pandas()) == 20
    assert len(compiled_agent.before.to_pandas()) == 20


def test_html_of_a_result_escapes_what_models_and_users_wrote() -> None:
    hostile = make_example(0, category="<script>alert(1)</script>")

    evaluation = mempiler.evaluate(Agent(), [hostile], lm="offline", progress=False)
    html = evaluation._repr_html_()

    assert "alert(1)" in html
    assert "<script>" not in html


def test_progress_is_written_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    mempiler.evaluate(Agent(), make_examples(2), lm="offline")
    captured = capsys.readouterr()

    assert captured.out == ""
    assert "2 questions" in captured.err


def test_nothing_is_written_without_progress(capsys: pytest.CaptureFixture[str]) -> None:
    mempiler.evaluate(Agent(), make_examples(2), lm="offline", progress=False)
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err == ""


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        pytest.param(
            [dspy.Example(query="Where?", gold="Lisbon")],
            "lacks history, question, answer; found: query, gold",
            id="fields of other names",
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
        pytest.param([{"history": 3}], "lacks question, answer", id="a dictionary"),
        pytest.param(["Where?"], "expected a dspy.Example, got str", id="a text"),
        pytest.param([make_example(0, evidence=["D9:9"])], "'D9:9' is no turn", id="evidence"),
        pytest.param(
            [make_example(0, id="same"), make_example(1, id="same")],
            "'same' is used twice",
            id="an id that is used twice",
        ),
    ],
)
def test_examples_that_do_not_fit_are_refused_in_one_line(
    examples: list[Any], message: str
) -> None:
    with pytest.raises(DataError) as refused:
        mempiler.evaluate(Agent(), examples, lm="offline", progress=False)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UserError, "nothing to ask"),
        ({"testset": make_examples(1), "benchmark": "locomo"}, UserError, "not both"),
        ({"testset": make_examples(1), "thread": 1}, UnknownNameError, "did you mean 'threads'"),
        (
            {"testset": make_examples(1), "optimizer": 1},
            UnknownNameError,
            "choose one of: adapter, ",
        ),
        (
            {"testset": make_examples(1), "limits": 3},
            UserError,
            "limits = 3: give mempiler.Limits(...)",
        ),
        (
            {"testset": make_examples(1), "test": 0},
            UserError,
            "test = 0: no question would be asked",
        ),
        (
            {"testset": make_examples(3), "split": "dev", "dev": 0},
            UserError,
            "dev = 0: no question would be asked",
        ),
        ({"testset": make_examples(1), "metric": "f2"}, UnknownNameError, "f2"),
        (
            {"testset": make_examples(1), "lm": 3},
            UserError,
            "expected the name of a model or a dspy.LM, got int",
        ),
        (
            {"testset": make_examples(1), "limits": mempiler.Limits(max_calls=3), "max_calls": 3},
            UserError,
            "max_calls = 3",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        mempiler.evaluate(Agent(), **{"lm": "offline", "progress": False, **options})

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_list_of_examples_is_split_into_three_parts() -> None:
    """Neither dev nor test examples are given, so they are taken out of the sixty."""
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
    assert compiled.before.n > 0
    assert training_questions
    assert test_questions.isdisjoint(training_questions)


def test_without_test_examples_the_report_shows_the_scores_of_the_dev_examples() -> None:
    """Dev examples also decide if the compiled program is kept, so the report says so."""
    compiled = compile_agent(train_count=8, dev_count=8)

    assert compiled.before.n == 8
    assert compiled.after.n == 8
    assert "dev questions, which also decided" in str(compiled)


def test_an_optimizer_may_be_a_function_that_makes_a_teleprompter() -> None:
    """A teleprompter is an optimizer of DSPy; this one shows three demos."""
    metrics: list[Any] = []

    def my_optimizer(metric: Any) -> dspy.teleprompt.Teleprompter:
        metrics.append(metric)
        return dspy.LabeledFewShot(k=3)

    compiled = compile_agent(train_count=9, dev_count=3, optimizer=my_optimizer)

    assert len(demos_of(compiled)) == 3
    assert metrics
    assert callable(metrics[0])


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


@pytest.mark.parametrize(
    ("optimizer", "demo_count", "settings"),
    [
        (LongestAnswers(num_demos=2), 2, {"num_demos": 2}),
        (OwnLabeled(), 1, {}),
    ],
    ids=["a class of its own", "a subclass of ours"],
)
def test_a_users_optimizer_class_is_run_and_is_recorded_under_its_name(
    optimizer: Any, demo_count: int, settings: dict[str, Any]
) -> None:
    """A subclass of one of our optimizers is not mistaken for that optimizer.

    Our `Labeled` would show more than the one demo, and would be recorded as "labeled".
    """
    compiled = compile_agent(train_count=9, dev_count=3, optimizer=optimizer)

    assert len(demos_of(compiled)) == demo_count
    recorded = json.loads((compiled.run / "run.json").read_text())["settings"]
    assert recorded["optimizer"] == type(optimizer).__name__
    assert recorded["settings"] == settings


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            mempiler.optimizers.Gepa(max_metric_calls=4, extra={"max_metric_calls": 9}),
            "max_metric_calls is a setting of Gepa itself; give it there",
        ),
        (
            mempiler.optimizers.Gepa(extra=3),  # pyright: ignore[reportArgumentType]
            "extra = 3: give settings by name, as in Gepa(extra={NAME: VALUE})",
        ),
        (mempiler.optimizers.Gepa(extra={"nope": 1}), "optimizer 'gepa' has no setting 'nope'"),
        (mempiler.optimizers.Knn, "write mempiler.optimizers.Knn()"),
        (LongestAnswers, "write LongestAnswers()"),
    ],
)
def test_an_optimizer_that_does_not_fit_is_refused_before_there_is_a_run(
    optimizer: Any, message: str
) -> None:
    """The results folder has one folder for each run, and gets no new one."""
    runs_before = set(results_folder().glob("*"))

    with pytest.raises(UserError) as refused:
        mempiler.compile(
            Agent(), trainset=make_examples(30), optimizer=optimizer, lm="offline", progress=False
        )

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert set(results_folder().glob("*")) == runs_before


def test_a_wrong_setting_of_a_named_optimizer_makes_no_run() -> None:
    """The results folder has one folder for each run, and gets no new one."""
    runs_before = set(results_folder().glob("*"))

    with pytest.raises(UserError, match="k = 0: it is 1 or more"):
        mempiler.compile(
            Agent(),
            trainset=make_examples(30),
            optimizer="knn",
            optimizer_set={"k": 0},
            lm="offline",
            progress=False,
        )

    assert set(results_folder().glob("*")) == runs_before


def recorded_gepa_settings(**extra: Any) -> Any:
    """Return what a run records of these settings of GEPA.

    GEPA is an optimizer that searches for better instructions. A stopper is an object that ends the
    search.
    """
    return make_compilation(mempiler.optimizers.Gepa(extra=extra)).recorded_settings()


def test_objects_among_the_settings_are_recorded_with_their_arguments() -> None:
    recorded = recorded_gepa_settings(stop_callbacks=[NoImprovementStopper(5)])

    description = "NoImprovementStopper(max_iterations_without_improvement=5)"
    assert recorded["stop_callbacks"] == [description]


def test_objects_within_an_object_are_recorded_with_their_arguments() -> None:
    either_stopper = CompositeStopper(NoImprovementStopper(5), ScoreThresholdStopper(0.9))

    recorded = recorded_gepa_settings(stop_callbacks=either_stopper)

    description = recorded["stop_callbacks"]
    assert "max_iterations_without_improvement=5" in description
    assert "0.9" in description


def test_a_model_among_the_settings_is_recorded_without_its_key() -> None:
    lm = dspy.LM("openai/x", api_key="a-secret-key")

    recorded = recorded_gepa_settings(reflection_lm=lm)

    assert recorded["reflection_lm"] == "LM"
    assert "a-secret-key" not in str(recorded)


def test_what_a_stopper_counts_while_it_works_is_not_recorded() -> None:
    """A stopper counts rounds, so it changes while a run works.

    If the count were recorded, a stopped run could not be resumed: its settings would have changed.
    """
    stopper = NoImprovementStopper(5)
    recorded_before = recorded_gepa_settings(stop_callbacks=stopper)

    stopper.iterations_without_improvement = 3
    recorded_after = recorded_gepa_settings(stop_callbacks=stopper)

    assert recorded_after == recorded_before


def test_the_model_of_dspy_configure_is_asked_when_none_is_given() -> None:
    lm = language_model("offline")
    with dspy.context(lm=lm):
        evaluation = mempiler.evaluate(Agent(), make_examples(2), progress=False)

    assert evaluation.lm == "offline"


def test_limits_stop_a_run_that_can_be_resumed() -> None:
    """The agent makes one call per question, so two calls answer two of six questions."""
    examples = make_examples(6)
    options: dict[str, Any] = {"lm": "offline", "threads": 1, "progress": False}

    stopped = mempiler.evaluate(Agent(), examples, limits=mempiler.Limits(max_calls=2), **options)
    resumed = mempiler.evaluate(Agent(), examples, resume=stopped.run_id, **options)

    assert stopped.stopped is not None
    assert len(stopped.rows) == 2
    assert len(resumed.rows) == 6
    # The two answers of the stopped run are not asked for again.
    assert resumed.calls["task"] == 4


def test_a_benchmark_has_three_parts() -> None:
    locomo = mempiler.benchmark("locomo")

    assert locomo.train
    assert locomo.dev
    assert locomo.test


def test_the_metric_of_a_benchmark_gives_a_score_or_feedback_as_dspy_asks_for() -> None:
    locomo = mempiler.benchmark("locomo")
    example = locomo.test[0]
    right = dspy.Prediction(answer=example.answer)
    wrong = dspy.Prediction(answer="no idea")

    score = locomo.metric(example, right)
    # GEPA calls a metric with a trace, and with the name and the trace of a predictor.
    score_with_feedback = locomo.metric(example, wrong, None, "answer", [])

    assert score == 1.0
    assert score_with_feedback.score < 1
    assert score_with_feedback.feedback


@pytest.mark.parametrize(
    "optimizer",
    [
        mempiler.optimizers.Gepa(
            max_metric_calls=24, extra={"stop_callbacks": [NoImprovementStopper(5)]}
        ),
        mempiler.optimizers.Mipro(
            num_candidates=2, num_trials=2, max_bootstrapped_demos=1, max_labeled_demos=0
        ),
    ],
    ids=["gepa", "mipro"],
)
def test_a_dspy_model_is_asked_metered_and_limited_while_a_module_is_compiled(
    optimizer: Any, stub: Any
) -> None:
    """GEPA and MIPRO also ask the model to propose prompts; these calls are counted, too."""
    server = stub()
    compiled = compile_agent(
        train_count=12,
        dev_count=6,
        testset=make_examples(6, first=18),
        metric=names_the_city,
        optimizer=optimizer,
        lm=dspy.LM(server.model, api_base=server.url, api_key="a-key"),
        limits=mempiler.Limits(max_calls=400),
    )

    assert compiled.before.n == 6
    assert compiled.before.lm == server.model
    calls = compiled.usage["calls"]
    assert calls["task"] + calls["prompt"] == server.answered
    assert server.answered <= 400

    # The key of the model is neither in the result nor in the files of the run.
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


def test_a_misspelled_option_of_a_compile_is_refused_with_the_right_name() -> None:
    with pytest.raises(UnknownNameError, match="'optimiser'; did you mean 'optimizer'"):
        mempiler.compile(Agent(), trainset=make_examples(3), **{"optimiser": "gepa"})


def test_a_metric_that_calls_exit_ends_a_run_with_one_line() -> None:
    """To call `exit` raises SystemExit, which must not end the user's Python."""

    def leaves(example: dspy.Example, prediction: dspy.Prediction) -> float:
        raise SystemExit(0)

    with pytest.raises(UserError, match=r"metric .*leaves' failed on .*: SystemExit: 0"):
        mempiler.evaluate(Agent(), make_examples(2), metric=leaves, lm="offline", progress=False)


class LeavingModel(dspy.BaseLM):
    """A model of the user's that calls `exit`."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        raise SystemExit(3)


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("program", ["turn-rag", "memory-r2"])
def test_a_model_that_calls_exit_fails_its_questions_and_not_the_process(program: str) -> None:
    """Memory-R2 meets the error while it writes the memory, turn RAG when it answers."""
    evaluation = mempiler.evaluate(
        program, make_examples(2), lm=LeavingModel("own/model"), metric="f1", progress=False
    )

    assert evaluation.failures == 2
    # The message says where in the user's code it was.
    assert "SystemExit: 3 (test_api.py:" in evaluation.breakage


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("program", ["turn-rag", "memory-r2"])
def test_a_model_that_calls_exit_fails_its_questions_under_asyncio(program: str) -> None:
    evaluation = asyncio.run(
        mempiler.aevaluate(
            program, make_examples(2), lm=LeavingModel("own/model"), metric="f1", progress=False
        )
    )

    assert evaluation.failures == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compile_ends_normally_although_its_model_calls_exit() -> None:
    compiled = mempiler.compile(
        "turn-rag",
        trainset=make_examples(9),
        lm=LeavingModel("own/model"),
        optimizer="bootstrap",
        force=True,
        progress=False,
        max_failure_rate=1.0,
    )

    assert compiled.before.rows
    assert compiled.before.failures == len(compiled.before.rows)


class LeavingReader(mempiler.EntryReader[Any]):
    """A user's own search that calls `exit`."""

    def search(self, *_: Any, **__: Any) -> Any:
        raise SystemExit(0)


class LeavingSearch(mempiler.Method):
    """A user's own method: turns are kept, and searching them calls `exit`."""

    def __init__(self) -> None:
        super().__init__(TurnWriter(), LeavingReader(k=5))


def test_a_search_that_calls_exit_fails_its_questions() -> None:
    """A user's method is named as `module:Class`; this one stands in this file."""
    evaluation = mempiler.evaluate(
        f"{__name__}:LeavingSearch", benchmark="locomo", test=2, lm="offline", progress=False
    )

    assert evaluation.failures == 2


@pytest.mark.parametrize(
    ("function", "options", "suggestion"),
    [
        (mempiler.compile, {"stage": "reed"}, "did you mean 'read'"),
        (mempiler.plan, {"stage": "reed"}, "did you mean 'read'"),
        (mempiler.evaluate, {"split": "tset"}, "did you mean 'test'"),
        (mempiler.plan, {"optimizer": None, "split": "tset"}, "did you mean 'test'"),
    ],
)
def test_an_unknown_stage_or_split_is_refused(
    function: Any, options: dict[str, Any], suggestion: str
) -> None:
    with pytest.raises(UnknownNameError, match=suggestion):
        function("turn-rag", benchmark="locomo", lm="offline", progress=False, **options)


def test_a_model_with_limits_of_its_own_is_refused_by_a_run() -> None:
    lm = language_model("offline", guard=BudgetGuard(Limits(max_calls=2)))

    with pytest.raises(UserError, match="give limits= to the run instead"):
        mempiler.evaluate(Agent(), make_examples(2), lm=lm, progress=False)


class CutOffModel(dspy.BaseLM):
    """A model of the user's whose answers reach their limit of tokens."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        message = SimpleNamespace(content=chat_fields(answer="Lis"), tool_calls=None)
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        choice = SimpleNamespace(message=message, finish_reason="length")
        return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_that_were_cut_off_are_counted_and_shown() -> None:
    """The model stops in the middle of "Lisbon", since its answers may not be longer."""
    evaluation = mempiler.evaluate(
        "turn-rag", make_examples(2), lm=CutOffModel("own/model"), metric="f1", progress=False
    )

    # Each answer is asked for once more. Then the part that came is taken.
    assert [row.answer for row in evaluation.rows] == ["Lis", "Lis"]
    assert evaluation.faults == {"task.answer": {"cut": 2 * 2}}
    assert "4 answers were cut off at the token limit" in str(evaluation)
