"""The Python API: a user's own module, examples and metric, without a benchmark's name and without the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
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
from mempiler.runs.api import make_compilation
from mempiler.runs.results_folder import results_folder

from ..conftest import chat_fields

CITIES = ["Lisbon", "Oslo", "Quito", "Hanoi", "Dakar", "Perth", "Turin", "Kyoto", "Leeds", "Porto"]


class Agent(dspy.Module):
    """A user's own program, which shows the newest lines of the history to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.ChainOfThought("lines: list[str], question -> answer")

    def forward(self, history: mempiler.History, question: str) -> dspy.Prediction:
        lines = [line for item in history for line in item.lines()]
        return self.say(lines=lines[-50:], question=question)


def names_the_city(example: dspy.Example, prediction: dspy.Prediction) -> tuple[float, str]:
    """A user's own metric, with feedback."""
    is_right = example.answer in prediction.answer
    return float(is_right), "" if is_right else f"Name the city, {example.answer}."


def make_examples(count: int, first: int = 0) -> list[dspy.Example]:
    """Questions of one user each, about what they said."""
    examples = []
    for number in range(first, first + count):
        city = CITIES[number % len(CITIES)]
        messages = [
            {"role": "user", "name": f"User{number}", "content": f"I moved to {city} in May."},
            {"role": "assistant", "content": "What is it like?"},
            {"role": "user", "name": f"User{number}", "content": "My dog is called Rex."},
        ]
        examples.append(
            dspy.Example(
                history=messages,
                question=f"Where did User{number} move?",
                answer=city,
                evidence=["D1:1"],
                user=f"user-{number}",
            )
        )
    return examples


@pytest.fixture(scope="module")
def result() -> mempiler.CompileResult:
    """A module that was compiled on sixty examples with a user's metric."""
    return mempiler.compile(
        Agent(),
        trainset=make_examples(20),
        valset=make_examples(20, first=20),
        testset=make_examples(20, first=40),
        metric=names_the_city,
        optimizer=mempiler.optimizers.Bootstrap(max_bootstrapped_demos=2, max_labeled_demos=0),
        lm="offline",
        force=True,
        progress=False,
    )


def test_a_result_holds_scores_before_and_after_on_the_test_examples(
    result: mempiler.CompileResult,
) -> None:
    assert result.before.n == result.after.n == 20
    assert {row.question for row in result.after.rows} == {
        example.question for example in make_examples(20, first=40)
    }
    assert result.difference.n == 20
    assert result.verdict in ("better", "worse", "not told apart", "too few to tell")


def test_the_metric_is_the_users(result: mempiler.CompileResult) -> None:
    for row in result.after.rows:
        assert row.parts["names_the_city"] == float(row.gold in row.answer)


def test_the_compiled_program_shows_demos_of_the_trainset(result: mempiler.CompileResult) -> None:
    (predictor,) = [predictor for _, predictor in result.program.module.named_predictors()]
    questions = {demo["question"] for demo in predictor.demos}
    assert len(questions) == 2
    assert questions <= {example.question for example in make_examples(20)}


def test_the_users_own_object_stays_as_it_was() -> None:
    agent = Agent()
    mempiler.compile(
        agent,
        trainset=make_examples(4),
        valset=make_examples(4, first=4),
        optimizer="bootstrap",
        lm="offline",
        force=True,
        progress=False,
    )
    assert agent.say.predict.demos == []
    assert type(agent.say.predict) is dspy.Predict


def test_a_compiled_program_is_saved_and_loaded(
    result: mempiler.CompileResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "program")
    loaded = mempiler.load(tmp_path / "program", allow_code=True)
    evaluation = mempiler.evaluate(
        loaded, make_examples(20, first=40), metric=names_the_city, lm="offline", progress=False
    )
    assert [row.answer for row in evaluation.rows] == [row.answer for row in result.after.rows]


def test_the_compiled_module_is_saved_and_loaded_by_dspy_alone(
    result: mempiler.CompileResult, tmp_path: Path
) -> None:
    result.program.module.save(tmp_path / "agent.json")
    plain = Agent()
    plain.load(tmp_path / "agent.json")
    demos = [dict(demo) for demo in plain.say.predict.demos]
    (predictor,) = [predictor for _, predictor in result.program.module.named_predictors()]
    assert [demo["question"] for demo in demos] == [demo["question"] for demo in predictor.demos]


def test_a_program_that_is_called_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    lm = language_model("offline")
    evaluation = mempiler.evaluate(Agent(), make_examples(2), lm=lm, progress=False)
    assert evaluation.n == 2
    assert "discouraged" not in caplog.text


def test_two_evaluations_are_compared_question_by_question(result: mempiler.CompileResult) -> None:
    examples = make_examples(20, first=40)
    start = mempiler.evaluate(
        Agent(), examples, metric=names_the_city, lm="offline", progress=False
    )
    end = mempiler.evaluate(
        result.program, examples, metric=names_the_city, lm="offline", progress=False
    )
    comparison = mempiler.compare(start, end)
    assert comparison.difference == result.difference
    assert list(comparison.to_pandas().columns) == ["id", "category", "question", "gold", "A", "B"]
    assert f"{comparison.difference.mean:+.3f}" in str(comparison)


def test_results_are_shown_as_text_html_json_and_data_frames(
    result: mempiler.CompileResult,
) -> None:
    assert f"{result.difference.mean:+.3f}" in str(result)
    assert "<table>" in result._repr_html_()
    assert json.loads(json.dumps(result.to_dict()))["before"]["score"] == result.before.score
    assert len(result.to_pandas()) == 20
    assert len(result.before.to_pandas()) == 20
    assert "smoke test" in str(result.before)


def test_html_of_a_result_escapes_what_models_and_users_wrote() -> None:
    hostile = [dspy.Example(**{**make_examples(1)[0], "category": "<script>alert(1)</script>"})]
    evaluation = mempiler.evaluate(Agent(), hostile, lm="offline", progress=False)
    assert "<script>" not in evaluation._repr_html_()


def test_progress_is_written_only_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    mempiler.evaluate(Agent(), make_examples(2), lm="offline", progress=False)
    assert capsys.readouterr() == ("", "")
    mempiler.evaluate(Agent(), make_examples(2), lm="offline")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 questions" in captured.err


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (
            [dspy.Example(query="Where?", gold="Lisbon")],
            "lacks history, question, answer; found: query, gold",
        ),
        (
            [dspy.Example(history=[], question="Where?", answer="Lisbon")],
            "its history holds no turns",
        ),
        ([dspy.Example(history=[{"content": "Hi"}], question="Where?", answer="x")], "has no role"),
        ([{"history": 3}], "lacks question, answer"),
        (["Where?"], "expected a dspy.Example, got str"),
        ([dspy.Example(**make_examples(1)[0]).copy(evidence=["D9:9"])], "'D9:9' is no turn"),
        ([example.copy(id="same") for example in make_examples(2)], "'same' is used twice"),
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


def test_a_list_of_examples_is_split_into_three_parts() -> None:
    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(60),
        optimizer="bootstrap",
        lm="offline",
        force=True,
        progress=False,
    )
    assert compiled.before.n > 0
    (predictor,) = [predictor for _, predictor in compiled.program.module.named_predictors()]
    asked = {row.question for row in compiled.after.rows}
    assert not asked & {demo["question"] for demo in predictor.demos}


def test_without_test_examples_the_scores_are_those_that_decided() -> None:
    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(8),
        valset=make_examples(8, first=8),
        optimizer="bootstrap",
        lm="offline",
        force=True,
        progress=False,
    )
    assert compiled.before.n == compiled.after.n == 8
    assert "dev questions, which also decided" in str(compiled)


def test_an_optimizer_may_be_a_function_that_makes_a_teleprompter() -> None:
    made_with: list[Callable[..., Any]] = []

    def my_optimizer(metric: Callable[..., Any]) -> dspy.teleprompt.Teleprompter:
        made_with.append(metric)
        return dspy.LabeledFewShot(k=3)

    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(9),
        valset=make_examples(3, first=9),
        optimizer=my_optimizer,
        lm="offline",
        force=True,
        progress=False,
    )
    (predictor,) = [predictor for _, predictor in compiled.program.module.named_predictors()]
    assert len(predictor.demos) == 3
    assert made_with


@dataclass(frozen=True, kw_only=True)
class LongestAnswers(mempiler.optimizers.Optimizer):
    """The example of `mempiler.optimizers.optimizer`."""

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
    """An optimizer of ours with another `run`."""

    def run(self, job: Any) -> Any:
        for predictor in job.student.predictors():
            predictor.demos = list(job.train[:1])
        return job.student


@pytest.mark.parametrize(
    ("optimizer", "demo_count", "settings"),
    [(LongestAnswers(num_demos=2), 2, {"num_demos": 2}), (OwnLabeled(), 1, {})],
)
def test_an_optimizer_of_a_class_of_the_users_runs_as_it_is(
    optimizer: Any, demo_count: int, settings: dict[str, Any]
) -> None:
    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(9),
        valset=make_examples(3, first=9),
        optimizer=optimizer,
        lm="offline",
        force=True,
        progress=False,
    )
    (predictor,) = [predictor for _, predictor in compiled.program.module.named_predictors()]
    assert len(predictor.demos) == demo_count

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
    runs_before = set(results_folder().glob("*"))
    with pytest.raises(UserError) as refused:
        mempiler.compile(
            Agent(), trainset=make_examples(30), optimizer=optimizer, lm="offline", progress=False
        )
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert set(results_folder().glob("*")) == runs_before


def test_a_wrong_setting_of_a_named_optimizer_makes_no_run() -> None:
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


def test_objects_among_the_settings_are_recorded_with_their_arguments() -> None:
    lm = dspy.LM("openai/x", api_key="a-secret-key")
    stopper = NoImprovementStopper(5)
    optimizer = mempiler.optimizers.Gepa(extra={"stop_callbacks": [stopper], "reflection_lm": lm})
    recorded = make_compilation(optimizer).recorded_settings()
    assert recorded["stop_callbacks"] == [
        "NoImprovementStopper(max_iterations_without_improvement=5)"
    ]
    assert recorded["reflection_lm"] == "LM"

    both = CompositeStopper(stopper, ScoreThresholdStopper(0.9))
    optimizer = mempiler.optimizers.Gepa(extra={"stop_callbacks": both})
    text = make_compilation(optimizer).recorded_settings()["stop_callbacks"]
    assert "max_iterations_without_improvement=5" in text
    assert "0.9" in text
    optimizer = mempiler.optimizers.Gepa(extra={"stop_callbacks": stopper})
    recorded = make_compilation(optimizer).recorded_settings()

    # What a stopper counts while it works is no setting.
    stopper.iterations_without_improvement = 3
    assert make_compilation(optimizer).recorded_settings() == recorded


def test_the_model_of_dspy_configure_is_asked_when_none_is_given() -> None:
    lm = language_model("offline")
    with dspy.context(lm=lm):
        evaluation = mempiler.evaluate(Agent(), make_examples(2), progress=False)
    assert evaluation.lm == "offline"


def test_limits_stop_a_run_that_can_be_resumed() -> None:
    examples = make_examples(6)
    stopped = mempiler.evaluate(
        Agent(),
        examples,
        lm="offline",
        limits=mempiler.Limits(max_calls=2),
        threads=1,
        progress=False,
    )
    assert stopped.stopped is not None
    assert len(stopped.rows) == 2
    whole = mempiler.evaluate(
        Agent(), examples, lm="offline", resume=stopped.run_id, threads=1, progress=False
    )
    assert len(whole.rows) == 6
    assert whole.calls["task"] == 4


def test_a_benchmark_gives_its_parts_and_its_metric() -> None:
    locomo = mempiler.benchmark("locomo")
    assert locomo.train
    assert locomo.dev
    assert locomo.test
    example = locomo.test[0]
    assert locomo.metric(example, dspy.Prediction(answer=example.answer)) == 1.0
    judged = locomo.metric(example, dspy.Prediction(answer="no idea"), None, "answer", [])
    assert judged.score < 1
    assert judged.feedback


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
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="a-key")
    compiled = mempiler.compile(
        Agent(),
        trainset=make_examples(12),
        valset=make_examples(6, first=12),
        testset=make_examples(6, first=18),
        metric=names_the_city,
        optimizer=optimizer,
        lm=lm,
        limits=mempiler.Limits(max_calls=400),
        force=True,
        progress=False,
    )
    assert compiled.before.n == 6
    assert compiled.before.lm == server.model
    assert (
        compiled.usage["calls"]["task"] + compiled.usage["calls"]["prompt"]
        == server.answered
        <= 400
    )
    assert "a-key" not in json.dumps(compiled.to_dict())
    for path in compiled.run.rglob("*"):
        if path.is_file():
            assert b"a-key" not in path.read_bytes(), path


def test_a_module_is_planned_without_a_call() -> None:
    plan = mempiler.plan(
        Agent(), trainset=make_examples(30), optimizer="bootstrap", lm="offline", progress=False
    )
    assert plan.calls.low > 0
    assert plan.split is not None


def test_an_unknown_option_of_a_compile_is_answered_with_an_argument_of_its_own() -> None:
    with pytest.raises(
        UnknownNameError, match="unknown option 'optimiser'; did you mean 'optimizer'"
    ):
        mempiler.compile(Agent(), trainset=make_examples(3), **{"optimiser": "gepa"})


def test_a_metric_that_calls_exit_ends_a_run_with_one_line() -> None:
    def leaves(example: dspy.Example, prediction: dspy.Prediction) -> float:
        raise SystemExit(0)

    with pytest.raises(UserError, match=r"metric .*leaves' failed on .*: SystemExit: 0"):
        mempiler.evaluate(Agent(), make_examples(2), metric=leaves, lm="offline", progress=False)


class Leaving(dspy.BaseLM):
    """A model of the user's that calls `exit`."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        raise SystemExit(3)


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("program", ["turn-rag", "memory-r2"])
def test_a_model_that_calls_exit_fails_questions(program: str) -> None:
    options: dict[str, Any] = {"lm": Leaving("own/model"), "metric": "f1", "progress": False}
    evaluation = mempiler.evaluate(program, make_examples(2), **options)
    assert evaluation.failures == 2
    assert "SystemExit: 3 (test_api.py:" in evaluation.breakage

    awaited = asyncio.run(mempiler.aevaluate(program, make_examples(2), **options))
    assert awaited.failures == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_calls_exit_does_not_end_a_compile() -> None:
    compiled = mempiler.compile(
        "turn-rag",
        trainset=make_examples(9),
        lm=Leaving("own/model"),
        optimizer="bootstrap",
        force=True,
        progress=False,
        max_failure_rate=1.0,
    )
    assert compiled.before.failures == len(compiled.before.rows)


def test_a_search_that_calls_exit_fails_its_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any, **__: Any) -> Any:
        raise SystemExit(0)

    reader = type(mempiler.build("turn-rag").method.reader)
    monkeypatch.setattr(reader, "search", leave)
    evaluation = mempiler.evaluate(
        "turn-rag", benchmark="locomo", test=2, lm="offline", progress=False
    )
    assert evaluation.failures == 2


@pytest.mark.parametrize(
    ("function", "option"),
    [
        (mempiler.compile, {"stage": "reed"}),
        (mempiler.plan, {"stage": "reed"}),
        (mempiler.evaluate, {"split": "tset"}),
        (mempiler.plan, {"optimizer": None, "split": "tset"}),
    ],
)
def test_an_unknown_stage_or_split_is_refused(function: Any, option: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean '(read|test)'"):
        function("turn-rag", benchmark="locomo", lm="offline", progress=False, **option)


def test_a_model_with_limits_of_its_own_is_refused_by_a_run() -> None:
    lm = language_model("offline", guard=BudgetGuard(Limits(max_calls=2)))
    with pytest.raises(UserError, match="give limits= to the run instead"):
        mempiler.evaluate(Agent(), make_examples(2), lm=lm, progress=False)


class CutOff(dspy.BaseLM):
    """A model of the user's whose answers reach their limit of tokens."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        message = SimpleNamespace(content=chat_fields(answer="Lis"), tool_calls=None)
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        choice = SimpleNamespace(message=message, finish_reason="length")
        return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_that_were_cut_off_are_counted_and_shown() -> None:
    evaluation = mempiler.evaluate(
        "turn-rag", make_examples(2), lm=CutOff("own/model"), metric="f1", progress=False
    )
    # Each answer is asked for once more, and the second half of a text is taken.
    assert [row.answer for row in evaluation.rows] == ["Lis", "Lis"]
    assert evaluation.faults == {"task.answer": {"cut": 4}}
    assert "4 answers were cut off at the token limit" in str(evaluation)
