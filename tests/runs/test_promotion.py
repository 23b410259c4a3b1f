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
    """The optimizer adds eight demos to the program.

    They do not help the model of the first run, so it saves the original program without demos.
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
    """The first run saves a program with demos, which help its model.

    They do not help the model of the second run, so that run keeps the original program.
    """
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    result = compile_with(AlwaysWrong(), out=out)

    assert result.promoted is False
    assert read_files(out) == files_before
    assert result.untouched_out == out
    assert result.to_dict()["untouched_out"] == str(out)
    # The original program is in the run's folder.
    run_program = result.run / "program"
    assert result.folder == run_program
    assert demo_count(run_program) == 0
    assert RunFolder(result.run).saved_program == run_program


def test_a_run_that_finds_nothing_better_leaves_its_start_program_in_out_unchanged(
    compile_with, tmp_path
):
    """The run starts with the program in `out`, whose manifest says how it was compiled.

    If the run saved its start there, the manifest would no longer say that.
    """
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    result = compile_with(RightIfShownDemos(), program=str(out), out=out)

    assert result.promoted is False
    assert result.untouched_out == out
    assert read_files(out) == files_before
    assert read_manifest(out).optimizer["name"] == "labeled"


def test_a_damaged_program_in_out_is_left_as_it_is(compile_with, tmp_path):
    """A run replaces only its own program, and nobody can say whose a damaged one is."""
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    state_file = out / "state.json"
    state_file.write_text(state_file.read_text().replace("marker", "market", 1))
    files_before = read_files(out)

    result = compile_with(AlwaysWrong(), out=out)

    assert result.untouched_out == out
    assert read_files(out) == files_before
    assert demo_count(result.folder) == 0


def test_a_resumed_run_replaces_the_program_that_it_saved_itself(compile_with, tmp_path):
    """The first attempt kept the original program in `out`, so this is the run's own."""
    out = tmp_path / "out"
    first = compile_with(AlwaysWrong(), out=out)
    first_scores = read_manifest(out).scores

    resumed = compile_with(AlwaysWrong(), out=out, resume=first.run.name)

    assert resumed.folder == out
    assert resumed.untouched_out is None
    resumed_scores = read_manifest(out).scores
    assert resumed_scores["before"]["run_id"] == resumed.run_id
    assert resumed_scores["before"]["run_id"] != first_scores["before"]["run_id"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KeyboardInterrupt(), id="interrupted"),
        pytest.param(RuntimeError("broke"), id="failed"),
    ],
)
def test_a_run_that_ends_early_leaves_another_program_in_out(compile_with, tmp_path, error):
    """An earlier run has saved a program with demos there."""
    out = tmp_path / "out"
    compile_with(RightIfShownDemos(), out=out)
    files_before = read_files(out)

    with pytest.raises(type(error)):
        compile_with(RightIfShownDemos(), optimizer=failing_optimizer(error), out=out)

    assert read_files(out) == files_before


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_refused_program_is_scored_on_the_test_questions(compile_with):
    """The report shows this score, so that the user may keep the program all the same."""
    # Four dev questions are too few for a verdict.
    result = compile_with(RightIfShownDemos(), dev=4)

    assert result.promoted is False
    summary = result.to_dict()
    # The run ends with the original program.
    assert summary["before"]["score"] == 0.0
    assert summary["after"]["score"] == 0.0

    # The compiled program was scored on the eight test questions all the same.
    refused_candidate = summary["refused_candidate"]
    assert refused_candidate["test"]["score"] == 1.0
    assert refused_candidate["test"]["n"] == 8
    assert refused_candidate["difference"]["mean"] == 1.0
    assert refused_candidate["difference"]["scope"] == SCOPE
    rows_file = result.run / "refused_candidate_rows.jsonl"
    assert len(rows_file.read_text().splitlines()) == 8

    metrics = client().get_run(result.run_id).data.metrics
    assert metrics["after.score"] == 0.0
    assert metrics["refused_candidate.score"] == 1.0


def test_the_page_of_a_refused_program_says_how_to_keep_it(compile_with):
    """With demos all answers are right, but four dev questions are too few to decide."""
    result = compile_with(RightIfShownDemos(), dev=4)

    verdict = open_page(RunFolder(result.run)).verdict
    assert verdict.startswith(
        "Too few dev questions to tell a gain "
        f"(+1.000 [+1.000, +1.000], p = .12, n = 4; scope: {SCOPE}; --min-n is 8). "
        "Kept the original program. Not promoted: "
    )
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

    A resumed run takes all answers from the folder of the run.
    """
    out = tmp_path / "out"
    refused = compile_with(RightIfShownDemos(), out=out, dev=4)
    model_after = RightIfShownDemos()

    forced = compile_with(model_after, out=out, dev=4, resume=refused.run.name, force=True)

    assert model_after.calls == 0
    assert forced.promoted is True
    assert demo_count(out) == 8
    assert refused.rejected_evaluation is not None
    assert refused.rejected_evaluation.score == 1.0
    assert forced.after.score == 1.0
    assert forced.rejected_evaluation is None
    assert forced.statement().startswith("Kept by --force: Too few dev questions to tell a gain (")


def test_a_forced_program_replaces_another_one_in_out(compile_with, tmp_path):
    """Demos help, but four dev questions are too few to show it, so the program is refused."""
    out = tmp_path / "out"
    # A run with another seed has saved another program there.
    compile_with(RightIfShownDemos(), out=out, seed=1)
    refused = compile_with(RightIfShownDemos(), out=out, dev=4)
    assert refused.untouched_out == out

    forced = compile_with(RightIfShownDemos(), out=out, dev=4, resume=refused.run.name, force=True)

    assert forced.folder == out
    assert forced.untouched_out is None
    # The run's folder still has the original, but the program of the run is the forced one.
    assert RunFolder(forced.run).saved_program == out


def test_a_program_that_equals_the_original_is_scored_only_once(compile_with):
    """`IdleOptimizer` returns the program as it was."""
    model = RightIfShownDemos()

    result = compile_with(model, optimizer=IdleOptimizer())

    assert result.promoted is False
    assert result.rejected_evaluation is None
    # Eight dev questions and eight test questions, each asked once.
    assert model.calls == 8 + 8


@pytest.mark.usefixtures("mlflow_tracking")
def test_verdict_and_scope_are_recorded_with_a_kept_program(compile_with, tmp_path):
    """Demos raise the score from 0 to 1, on eight dev questions and on eight test questions."""
    result = compile_with(RightIfShownDemos(), out=tmp_path / "out")

    # On the page, for dev and for test questions.
    verdict = open_page(RunFolder(result.run)).verdict
    assert verdict.startswith(
        "dev questions, which decide: +1.000 [+1.000, +1.000], p = .0078, n = 8: better ("
    )
    assert verdict.count(f"better (scope: {SCOPE})") == 2
    report = (result.run / "report.html").read_text()
    assert verdict in report.replace("Dev questions", "dev questions")

    # In the result.
    summary = result.to_dict()
    assert summary["difference"]["scope"] == SCOPE
    assert summary["dev_difference"]["scope"] == SCOPE

    # In the tracking store, and with the saved program.
    tags = client().get_run(result.run_id).data.tags
    assert tags["mempiler.verdict"] == "better"
    assert tags["mempiler.scope"] == SCOPE
    assert read_manifest(tmp_path / "out").scores["difference"]["scope"] == SCOPE


def test_a_page_warns_of_a_gain_that_differs_between_few_conversations(compile_with):
    """Demos help with all questions of two dev users, and with none of the third."""
    # With 20 questions or more, dev holds three users.
    first = compile_with(RightIfShownDemos(), min_n=20)
    dev_users = sorted({row.group for row in first.dev[0].rows})
    assert len(dev_users) == 3
    # The names end with the digit by which the model knows a user.
    other_users = "012345".replace(dev_users[0][-1], "")

    result = compile_with(RightIfShownDemos(known_users=other_users), min_n=20)

    gain = result.promotion.gain
    assert gain is not None
    # Questions of one user agree: each of the users with eight questions tells as much as one.
    assert gain.design_effect == pytest.approx(8.0)
    notes = open_page(RunFolder(result.run)).notes
    assert [note for note in notes if "design effect" in note] == [f"dev questions: {gain.warning}"]


def test_the_usage_of_the_first_scoring_leaves_out_other_parts_of_a_larger_run(inputs_with):
    """A compile first scores the eight dev questions, and records how many calls that took.

    Here the compile is a part of a reproduction, whose other parts have already made a thousand
    calls. All parts share the guard, which counts what they spend.
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
    """The margin is how much worse a cheaper program may be; without one, only a gain counts."""
    result = compile_with(
        AlwaysRight(), program=program_with_demos, optimizer=DemoRemover(), min_n=20
    )

    assert result.promoted is False
    assert result.promotion.saving is None


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_cheaper_program_that_is_not_worse_by_more_than_the_margin_is_kept(
    compile_with, program_with_demos, tmp_path
):
    """Without its demos the program has shorter prompts, and `AlwaysRight` is right all the same.

    The lower bound of the difference is that of 24 equal scores and one loss that these questions
    did not show.
    """
    out = tmp_path / "out"

    result = compile_with(
        AlwaysRight(),
        program=program_with_demos,
        optimizer=DemoRemover(),
        out=out,
        min_n=20,
        margin=0.2,
    )

    assert result.promoted is True
    assert result.rejection_reason is None
    assert result.promotion.basis == "cheaper"
    assert demo_count(out) == 0

    # The reason stands on the page,
    verdict = open_page(RunFolder(result.run)).verdict
    assert verdict.startswith(
        "dev questions, which decide: "
        "not worse by more than 0.2 (lower bound -0.120) and cheaper: -"
    )
    assert " tokens a question [-" in verdict

    # in the result, in the tracking store, and in the manifest.
    promotion = result.to_dict()["promotion"]
    assert promotion["basis"] == "cheaper"
    _, upper_bound = promotion["saving"]["tokens"]["interval"]
    assert upper_bound < 0
    tags = client().get_run(result.run_id).data.tags
    assert tags["mempiler.basis"] == "cheaper"
    gate_scores = read_manifest(out).scores["gate"]
    assert gate_scores["margin"] == 0.2
    assert gate_scores["n"] == 24
    assert len(gate_scores["tokens"]) == 24


def test_a_cheaper_program_that_is_worse_within_the_margin_is_kept_and_called_worse():
    """It loses 0.02 on every question, which is certain, and takes a tenth of the tokens."""
    groups = [f"user{number % 10}" for number in range(200)]
    baseline = DevResults(scores=[0.8] * 200, groups=groups, tokens=[1000.0] * 200, lm="x")
    candidate = DevResults(scores=[0.78] * 200, groups=groups, tokens=[100.0] * 200, lm="x")

    without_margin = judge_candidate(candidate, baseline)
    with_margin = judge_candidate(candidate, baseline, margin=0.1)

    assert without_margin.basis is None
    assert with_margin.basis == "cheaper"
    assert with_margin.statement.endswith("n = 200: worse (scope: other conversations)")


def test_a_better_program_is_kept_although_it_costs_more(compile_with):
    """Eight demos make every prompt longer."""
    result = compile_with(RightIfShownDemos(), margin=0.2)

    assert result.promotion.basis == "better"
    saving = result.promotion.saving
    assert saving is not None
    assert saving.tokens is not None
    assert saving.tokens.mean > 0


def test_the_reason_for_refusing_a_program_that_is_neither_better_nor_cheaper(compile_with):
    """`IdleOptimizer` returns the original program, so all differences are zero.

    To be careful, a lower bound counts one loss that the 24 questions did not show.
    """
    result = compile_with(RightIfShownDemos(), optimizer=IdleOptimizer(), min_n=20, margin=0.02)

    assert result.promoted is False
    assert result.rejection_reason is not None
    assert "it may be worse by more than 0.02 (lower bound -0.120)" in result.rejection_reason
    assert "it may not be cheaper: +0 tokens a question [+0, +0]" in result.rejection_reason
