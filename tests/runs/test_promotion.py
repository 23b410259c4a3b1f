"""What becomes of a compiled program: kept or refused, and where it is saved.

A compile keeps the program that its optimizer made if it is better than the original on the dev
questions; then the program is promoted. Otherwise the compile ends with the original program. The
test questions are only for the report. `out` is the folder that the user wants the program in.

If all n questions gain, p is 2 / 2^n: .12 with four, which is too much, and .0078 with eight.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import load
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.usage import Usage
from mempiler.optimizers.compile import CompileConfig
from mempiler.optimizers.optimizer import Optimizer
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.compile_result import CompileResult
from mempiler.runs.folder import RunFolder
from mempiler.runs.inputs import RunInputs
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.page import open_page
from mempiler.runs.promotion import DevResults, judge_candidate
from mempiler.runs.run import Parent
from mempiler.runs.tracking.store import client

from ..run_inputs import run_config
from .evaluations import own_questions

SCOPE = "other questions about these conversations"
"""What a verdict speaks of if the questions are about fewer than six users: no other users."""
QUESTION_HEADER = "[[ ## question ## ]]"
"""Stands before the question of a prompt, and before that of each demo."""


def fact_number(prompt: str) -> str:
    """Return the number of the fact that a prompt asks for, as 23 in "What is fact 23?".

    The first digit is the number of the user. The gold answer is "marker 23".
    """
    question = prompt.rsplit(QUESTION_HEADER, 1)[1].split("?")[0]
    return question.split()[-1]


class RightIfShownDemos:
    """A scripted model that answers rightly if its prompt shows demos beside the question.

    So demos raise the score from 0 to 1. If `known_users` is given, they help only with the
    questions about these users.
    """

    def __init__(self, known_users: str = "012345") -> None:
        self.known_users = known_users
        self.calls = 0

    def __call__(self, kind: str, text: str, n: int) -> dict[str, str]:
        self.calls += 1
        fact = fact_number(text)
        has_demos = text.count(QUESTION_HEADER) > 1
        if has_demos and fact[0] in self.known_users:
            return {"answer": f"marker {fact}"}
        return {"answer": "no idea"}


class AlwaysWrong(RightIfShownDemos):
    """A scripted model that answers no question rightly, with demos and without."""

    def __init__(self) -> None:
        super().__init__(known_users="")


class AlwaysRight(RightIfShownDemos):
    """A scripted model that answers every question rightly, with demos and without."""

    def __call__(self, kind: str, text: str, n: int) -> dict[str, str]:
        return {"answer": f"marker {fact_number(text)}"}


class IdleOptimizer(Optimizer):
    """An optimizer that returns the program as it was."""

    name = "idle"
    changes_in_program = "nothing"
    cost_description = "nothing"

    def run(self, job: Any) -> Any:
        return job.student.deepcopy()


class DemoRemover(Optimizer):
    """An optimizer that takes the demos out of a program, so that every prompt is shorter."""

    name = "demo-remover"
    changes_in_program = "demos"
    cost_description = "nothing"

    def run(self, job: Any) -> Any:
        student = job.student.deepcopy()
        student.task.answer.demos = []
        return student


def failing_optimizer(error: BaseException) -> Optimizer:
    """Return an optimizer that raises an error."""

    class FailingOptimizer(Optimizer):
        name = "failing"
        changes_in_program = "nothing"
        cost_description = "nothing"

        def run(self, job: Any) -> Any:
            raise error

    return FailingOptimizer()


@pytest.fixture
def inputs_with(tmp_path: Path, scripted: Any) -> Callable[..., RunInputs]:
    """A function that returns the inputs of a run that asks a scripted model.

    The questions are about six users, eight about each: four users are for training, one is dev,
    and one is test. Eight dev questions are enough for a verdict, as `min_n` says.
    """
    questions_file = own_questions(tmp_path)

    def make_inputs(model: RightIfShownDemos, **options: Any) -> RunInputs:
        lm = scripted(model)
        options = {"min_n": 8, **options}
        config = run_config("jsonl", data=questions_file, lm=lm.model, **options)
        return RunInputs(config, user_models={"task": lm})

    return make_inputs


@pytest.fixture
def compile_with(inputs_with: Callable[..., RunInputs]) -> Callable[..., CompileResult]:
    """A function that runs `mempiler compile` with a scripted model in the place of a real one.

    Its arguments are:
        model: Answers all prompts.
        program: The name or the folder of the program to compile.
        optimizer: Changes the program. By default, "labeled" adds eight demos to its prompt:
            training questions with their gold answers.
        out: The folder in which the user wants the program, if any.
        force: Whether the compiled program is kept even if it is not better.
        **options: Further options of the run, such as `dev=4`.
    """

    def run(
        model: RightIfShownDemos,
        program: str = "turn-rag",
        optimizer: Optimizer | None = None,
        out: Path | None = None,
        force: bool = False,
        **options: Any,
    ) -> CompileResult:
        if optimizer is None:
            compile_config = CompileConfig(optimizer="labeled")
        else:
            compile_config = CompileConfig.of_object(optimizer)

        return run_compile(
            program,
            inputs_with(model, **options),
            compile_config,
            KeepOptions(out=out, force=force),
        )

    return run


def read_files(folder: Path) -> dict[str, str]:
    """Return the texts of the files in a folder by name."""
    return {path.name: path.read_text() for path in folder.iterdir()}


def demo_count(folder: Path) -> int:
    """Return how many demos the answer prompt of a saved program has."""
    return len(load(folder).task.answer.demos)


def test_a_program_in_out_is_replaced_by_a_better_one(compile_with, tmp_path):
    """The first run saves a program without demos there, and the second one with eight demos.

    Demos do not help the model of the first run, so that run kept the original program.
    """
    out = tmp_path / "out"
    compile_with(AlwaysWrong(), out=out)
    assert demo_count(out) == 0

    result = compile_with(RightIfShownDemos(), out=out)

    assert result.promoted is True
    assert result.folder == out
    assert result.untouched_out is None
    assert demo_count(out) == 8


def test_a_run_that_keeps_the_original_leaves_another_program_in_out(compile_with, tmp_path):
    """The first run saves a program with demos there, since they help its model.

    They do not help the model of the second run. So this run keeps the original program, and saves
    it in its own folder.
    """
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    result = compile_with(AlwaysWrong(), out=out)

    assert read_files(out) == files_before
    assert result.promoted is False
    assert result.to_dict()["untouched_out"] == str(out)
    assert result.folder == result.run / "program"
    assert RunFolder(result.run).saved_program == result.run / "program"
    assert demo_count(result.folder) == 0


def test_a_run_that_finds_nothing_better_leaves_the_program_that_it_started_with(
    compile_with, tmp_path
):
    """The second run starts with the program in `out`, and is to save its own there, too.

    If it saved its start again, the manifest would no longer say how that was compiled.
    """
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    result = compile_with(RightIfShownDemos(), program=str(out), out=out)

    assert result.promoted is False
    assert result.untouched_out == out
    assert read_files(out) == files_before


def test_a_damaged_program_in_out_is_left_as_it_is(compile_with, tmp_path):
    """A run replaces only a program of its own, and nobody can say whose a damaged one is."""
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    state_file = out / "state.json"
    state_file.write_text(state_file.read_text().replace("marker", "market", 1))
    files_before = read_files(out)

    result = compile_with(AlwaysWrong(), out=out)

    assert result.untouched_out == out
    assert read_files(out) == files_before


def test_a_resumed_run_replaces_the_program_that_it_saved_itself(compile_with, tmp_path):
    """The manifest of the program in `out` says which run made it, and is written anew."""
    out = tmp_path / "out"
    first = compile_with(AlwaysWrong(), out=out)

    resumed = compile_with(AlwaysWrong(), out=out, resume=first.run.name)

    assert resumed.folder == out
    assert resumed.untouched_out is None
    assert resumed.run_id != first.run_id
    assert read_manifest(out).scores["before"]["run_id"] == resumed.run_id


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KeyboardInterrupt(), id="interrupted"),
        pytest.param(RuntimeError("broke"), id="failed"),
    ],
)
def test_a_run_that_ends_early_leaves_the_program_of_an_earlier_run_in_out(
    compile_with, tmp_path, error
):
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    with pytest.raises(type(error)):
        compile_with(RightIfShownDemos(), optimizer=failing_optimizer(error), out=out)

    assert read_files(out) == files_before


def test_a_refused_program_is_scored_on_the_test_questions_all_the_same(compile_with):
    """Demos help, but four dev questions are too few to show it, so the program is refused.

    The run reports its test score, so that the user may keep the program.
    """
    result = compile_with(RightIfShownDemos(), dev=4)

    assert result.promoted is False
    summary = result.to_dict()
    # The run ends with the original program.
    assert summary["after"]["score"] == 0.0
    refused_program = summary["refused_candidate"]
    assert refused_program["test"]["score"] == 1.0
    assert refused_program["test"]["n"] == 8
    assert refused_program["difference"]["mean"] == 1.0
    rows_file = result.run / "refused_candidate_rows.jsonl"
    assert len(rows_file.read_text().splitlines()) == 8


@pytest.mark.usefixtures("mlflow_tracking")
def test_the_test_score_of_a_refused_program_is_recorded_in_mlflow(compile_with):
    """The program is refused since four dev questions are too few."""
    result = compile_with(RightIfShownDemos(), dev=4)

    metrics = client().get_run(result.run_id).data.metrics
    assert metrics["after.score"] == 0.0
    assert metrics["refused_candidate.score"] == 1.0


def test_the_page_of_a_refused_program_says_how_to_keep_it(compile_with):
    """The user may keep it because of its test score, but should know what that means."""
    result = compile_with(RightIfShownDemos(), dev=4)

    verdict = open_page(RunFolder(result.run)).verdict
    assert (
        "the compiled program scored 1.000 on the test questions, the original 0.000 "
        f"(+1.000 [+1.000, +1.000], p = .0078, n = 8; scope: {SCOPE}). "
        "Test questions must not decide."
    ) in verdict
    assert f"repeat the command with --resume {result.run.name} --force" in verdict
    assert "resume=, force=True" in verdict


def test_resuming_a_run_with_force_keeps_its_refused_program_without_a_new_call(
    compile_with, tmp_path
):
    """The program is refused since four dev questions are too few to decide.

    The resumed run takes all answers from the folder of the run.
    """
    out = tmp_path / "out"
    refused = compile_with(RightIfShownDemos(), out=out, dev=4)
    model_of_resumed_run = RightIfShownDemos()

    forced = compile_with(model_of_resumed_run, out=out, dev=4, resume=refused.run.name, force=True)

    assert model_of_resumed_run.calls == 0
    assert forced.promoted is True
    assert forced.after.score == 1.0
    assert forced.rejected_evaluation is None
    assert demo_count(out) == 8
    assert forced.statement().startswith("Kept by --force: Too few dev questions to tell a gain (")


def test_a_forced_program_replaces_another_one_in_out(compile_with, tmp_path):
    """Another run, with another seed, has saved a program in `out`."""
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out, seed=1)
    # Four dev questions are too few, so the program is refused.
    refused = compile_with(RightIfShownDemos(), out=out, dev=4)
    assert refused.untouched_out == out

    forced = compile_with(RightIfShownDemos(), out=out, dev=4, resume=refused.run.name, force=True)

    assert forced.folder == out
    assert forced.untouched_out is None
    # The run's folder still has the original, but the program of the run is the forced one.
    assert RunFolder(forced.run).saved_program == out


def test_a_program_that_equals_the_original_is_scored_only_once(compile_with):
    model = RightIfShownDemos()

    result = compile_with(model, optimizer=IdleOptimizer())

    assert result.promoted is False
    dev_questions = 8
    test_questions = 8
    assert model.calls == dev_questions + test_questions


def test_the_page_of_a_kept_program_has_the_verdicts_on_dev_and_test_questions(compile_with):
    """Demos raise the score from 0 to 1, on eight dev questions and on eight test questions."""
    result = compile_with(RightIfShownDemos())

    verdict = open_page(RunFolder(result.run)).verdict
    assert verdict.startswith(
        "dev questions, which decide: +1.000 [+1.000, +1.000], p = .0078, n = 8: better ("
    )
    assert verdict.count(f"better (scope: {SCOPE})") == 2


@pytest.mark.usefixtures("mlflow_tracking")
def test_verdict_and_scope_are_recorded_with_a_kept_program(compile_with, tmp_path):
    """In the result, in MLflow, and in the manifest of the program."""
    result = compile_with(RightIfShownDemos(), out=tmp_path / "out")

    summary = result.to_dict()
    assert summary["difference"]["scope"] == SCOPE
    assert summary["dev_difference"]["scope"] == SCOPE

    tags = client().get_run(result.run_id).data.tags
    assert tags["mempiler.verdict"] == "better"
    assert tags["mempiler.scope"] == SCOPE

    assert read_manifest(tmp_path / "out").scores["difference"]["scope"] == SCOPE


def test_a_page_warns_of_a_gain_that_differs_between_few_users(compile_with):
    """The dev questions are about three users. Demos help with two of them, and not with the third.

    So the eight questions about a user tell as much as one, which is a design effect of 8.
    """
    # A compile whose verdict needs 20 questions takes three users for dev. Its seed chooses them.
    dev_users = sorted({row.group for row in compile_with(AlwaysWrong(), min_n=20).dev[0].rows})
    assert len(dev_users) == 3
    number_of_third_user = dev_users[0].removeprefix("user")
    users_with_gain = "012345".replace(number_of_third_user, "")

    result = compile_with(RightIfShownDemos(known_users=users_with_gain), min_n=20)

    gain = result.promotion.gain
    assert gain is not None
    assert gain.design_effect == pytest.approx(8.0)
    notes = open_page(RunFolder(result.run)).notes
    assert f"dev questions: {gain.warning}" in notes


def test_the_usage_of_the_first_scoring_leaves_out_other_parts_of_a_reproduction(inputs_with):
    """A compile first scores the eight dev questions, and records what that took.

    A reproduction has several parts, and one guard that counts what all of them spend. Here the
    parts before this compile have made a thousand calls.
    """
    shared_guard = BudgetGuard()
    shared_guard.add_usage(Usage(calls=1_000, input_tokens=1_000_000))
    reproduction_folder = RunFolder.create("reproduce", {})
    compile_folder = reproduction_folder.child("compile", {})

    run_compile(
        "turn-rag",
        inputs_with(RightIfShownDemos()),
        CompileConfig("labeled"),
        parent=Parent(compile_folder, shared_guard, tags={}),
    )

    usage = compile_folder.read()["first_scoring_usage"]
    assert usage["calls"] == 8
    assert usage["input_tokens"] < 1_000_000


@pytest.fixture
def program_with_demos(compile_with: Callable[..., CompileResult], tmp_path: Path) -> str:
    """The folder of a compiled program, whose prompts are longer than those of the original."""
    return str(compile_with(RightIfShownDemos(), out=tmp_path / "with-demos").folder)


def test_a_cheaper_program_is_not_kept_without_a_margin(compile_with, program_with_demos):
    """The margin is how much worse a cheaper program may be. Without one, only a gain counts.

    Without its demos the program has shorter prompts, and `AlwaysRight` is right all the same.
    """
    result = compile_with(
        AlwaysRight(), program=program_with_demos, optimizer=DemoRemover(), min_n=20
    )

    assert result.promoted is False
    assert result.promotion.saving is None


@pytest.fixture
def cheaper_result(
    compile_with: Callable[..., CompileResult], program_with_demos: str, tmp_path: Path
) -> CompileResult:
    """The result of a compile that took the demos out of a program, and saved it in `out`.

    Without demos the program has shorter prompts, and is right at all 24 dev questions as before.
    It may be worse by 0.2.
    """
    return compile_with(
        AlwaysRight(),
        program=program_with_demos,
        optimizer=DemoRemover(),
        out=tmp_path / "out",
        min_n=20,
        margin=0.2,
    )


def test_a_cheaper_program_that_is_not_worse_by_more_than_the_margin_is_kept(cheaper_result):
    assert cheaper_result.promoted is True
    assert cheaper_result.rejection_reason is None
    assert cheaper_result.promotion.basis == "cheaper"
    assert demo_count(cheaper_result.folder) == 0


def test_the_page_says_that_a_program_was_kept_because_it_is_cheaper(cheaper_result):
    """The lower bound is that of 24 equal scores and one loss, which is added to be careful."""
    verdict = open_page(RunFolder(cheaper_result.run)).verdict

    assert verdict.startswith(
        "dev questions, which decide: "
        "not worse by more than 0.2 (lower bound -0.120) and cheaper: -"
    )
    assert " tokens a question [-" in verdict


def test_the_manifest_of_a_cheaper_program_has_the_margin_and_the_tokens(cheaper_result):
    """The gate of the model registry reads them later."""
    gate_scores = read_manifest(cheaper_result.folder).scores["gate"]

    assert gate_scores["margin"] == 0.2
    assert gate_scores["n"] == 24
    assert len(gate_scores["tokens"]) == 24


@pytest.mark.usefixtures("mlflow_tracking")
def test_the_reason_for_keeping_a_cheaper_program_is_recorded(cheaper_result):
    promotion = cheaper_result.to_dict()["promotion"]
    assert promotion["basis"] == "cheaper"
    _, upper_bound = promotion["saving"]["tokens"]["interval"]
    assert upper_bound < 0

    tags = client().get_run(cheaper_result.run_id).data.tags
    assert tags["mempiler.basis"] == "cheaper"


def test_a_cheaper_program_that_is_worse_within_the_margin_is_kept_and_called_worse():
    """It loses 0.02 on every question, which is certain, and takes a tenth of the tokens."""
    groups = [f"user {number % 10}" for number in range(200)]
    baseline = DevResults(scores=[0.8] * 200, groups=groups, tokens=[1000.0] * 200, lm="x")
    candidate = DevResults(scores=[0.78] * 200, groups=groups, tokens=[100.0] * 200, lm="x")

    decision = judge_candidate(candidate, baseline, margin=0.1)

    assert decision.basis == "cheaper"
    assert decision.statement.endswith("n = 200: worse (scope: other conversations)")


def test_a_better_program_is_kept_although_it_costs_more(compile_with):
    """Eight demos make every prompt longer, and all answers right."""
    result = compile_with(RightIfShownDemos(), margin=0.2)

    assert result.promotion.basis == "better"
    saving = result.promotion.saving
    assert saving is not None
    assert saving.tokens is not None
    assert saving.tokens.mean > 0


def test_the_reason_for_refusing_a_program_that_is_neither_better_nor_cheaper(compile_with):
    """`IdleOptimizer` returns the original program, so scores and tokens are equal.

    The lower bound is that of 24 equal scores and one loss, which is added to be careful.
    """
    result = compile_with(RightIfShownDemos(), optimizer=IdleOptimizer(), min_n=20, margin=0.02)

    assert result.promoted is False
    assert result.rejection_reason is not None
    assert "it may be worse by more than 0.02 (lower bound -0.120)" in result.rejection_reason
    assert "it may not be cheaper: +0 tokens a question [+0, +0]" in result.rejection_reason
