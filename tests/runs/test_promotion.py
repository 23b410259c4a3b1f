"""What becomes of a compiled program: kept or refused, where it is saved, and how a refused one is kept after all."""

from pathlib import Path
from typing import Any

import pytest
from mempiler import load
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.usage import Usage
from mempiler.optimizers.compile import CompileConfig
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.compile_result import CompileResult
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.page import open_page
from mempiler.runs.promotion import DevResults, judge_candidate
from mempiler.runs.run import Parent
from mempiler.runs.tracking.store import client

from .evaluations import break_optimizer, own_questions, script_models
from ..run_inputs import run_inputs

LABELED = CompileConfig("labeled")
SCOPE = "other questions about these conversations"


class Model:
    """Answers the questions of some users right once it has seen a demo; `calls` counts its answers."""

    def __init__(self, knows: str = "012345") -> None:
        self.knows = knows
        self.calls = 0

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any]:
        self.calls += 1
        fact = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0].split()[-1]
        has_demo = text.count("[[ ## question ## ]]") > 1
        return {"answer": f"marker {fact}" if has_demo and fact[0] in self.knows else "no idea"}


@pytest.fixture
def compile_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Any) -> Any:
    """`compile_with(model, ...)` compiles on six users' questions; the dev user's eight are enough for a verdict."""
    data = own_questions(tmp_path)

    def run(
        model: Any,
        method: str = "turn-rag",
        how: CompileConfig = LABELED,
        out: Path | None = None,
        force: bool = False,
        **sizes: Any,
    ) -> CompileResult:
        script_models(monkeypatch, scripted(model).engine)
        inputs = run_inputs(
            benchmark="jsonl", data=data, lm="scripted/test", **{"min_n": 8, **sizes}
        )
        return run_compile(method, inputs, how, KeepOptions(out, force))

    return run


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def demos(folder: Path) -> int:
    return len(load(folder).task.answer.demos)


def test_a_program_in_out_is_replaced_by_one_that_was_kept_for_its_gain(compile_with, tmp_path):
    out = tmp_path / "out"
    compile_with(Model(knows=""), out=out)
    assert demos(out) == 0
    outcome = compile_with(Model(), out=out)
    assert outcome.promoted is True
    assert outcome.folder == out
    assert outcome.untouched_out is None
    assert demos(out) == 8


def test_a_run_that_keeps_the_original_leaves_another_program_in_out(compile_with, tmp_path):
    out = tmp_path / "out"
    compile_with(Model(), out=out)
    before = files(out)
    outcome = compile_with(Model(knows=""), out=out)
    assert files(out) == before
    own = outcome.run / "program"
    assert outcome.promoted is False
    assert outcome.folder == own
    assert outcome.untouched_out == out
    assert demos(own) == 0
    assert RunFolder(outcome.run).saved_program == own
    assert outcome.to_dict()["untouched_out"] == str(out)


def test_a_run_that_starts_from_the_program_in_out_leaves_its_scores(compile_with, tmp_path):
    """The start is the very program, but the start of a run was compiled by nothing."""
    out = tmp_path / "out"
    compile_with(Model(), out=out)
    before = files(out)
    outcome = compile_with(Model(), method=str(out), out=out)
    assert outcome.promoted is False
    assert outcome.untouched_out == out
    assert files(out) == before
    assert read_manifest(out).optimizer["name"] == "labeled"


def test_a_damaged_program_in_out_is_left_as_it_is(compile_with, tmp_path):
    out = tmp_path / "out"
    compile_with(Model(), out=out)
    (out / "state.json").write_text((out / "state.json").read_text().replace("marker", "market", 1))
    before = files(out)
    outcome = compile_with(Model(knows=""), out=out)
    assert outcome.untouched_out == out
    assert files(out) == before
    assert demos(outcome.folder) == 0


def test_a_resumed_run_replaces_its_own_start(compile_with, tmp_path):
    out = tmp_path / "out"
    first = compile_with(Model(knows=""), out=out)
    scored = read_manifest(out).scores
    again = compile_with(Model(knows=""), out=out, resume=first.run.name)
    assert again.folder == out
    assert again.untouched_out is None
    assert (
        scored["before"]["run_id"] != read_manifest(out).scores["before"]["run_id"] == again.run_id
    )


def raising(error: BaseException) -> Any:
    def run(job: Any) -> Any:
        raise error

    return run


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broke")])
def test_a_run_that_ends_early_leaves_another_program_in_out(
    compile_with, tmp_path, monkeypatch, error
):
    out = tmp_path / "out"
    compile_with(Model(), out=out)
    before = files(out)
    break_optimizer(monkeypatch, raising(error))
    with pytest.raises(type(error)):
        compile_with(Model(), how=CompileConfig("broken"), out=out)
    assert files(out) == before


def test_a_refused_program_is_scored_on_the_test_questions_and_said_to_be_not_promoted(
    compile_with,
):
    # User 0 is one of those to train on, so neither dev nor test is known.
    outcome = compile_with(Model(), dev=4)
    summary = outcome.to_dict()
    assert outcome.promoted is False
    assert summary["before"]["score"] == 0.0
    assert summary["after"]["score"] == 0.0
    refused = summary["refused_candidate"]
    assert refused["test"]["score"] == 1.0
    assert refused["test"]["n"] == 8
    assert refused["difference"]["mean"] == 1.0
    assert refused["difference"]["scope"] == SCOPE

    verdict = open_page(RunFolder(outcome.run)).verdict
    assert verdict == (
        "Too few dev questions to tell a gain (+1.000 [+1.000, +1.000], p = .12, n = 4; "
        f"scope: {SCOPE}; --min-n is 8). Kept the original program. "
        "Not promoted: the compiled program scored 1.000 on the test questions, the original 0.000 "
        f"(+1.000 [+1.000, +1.000], p = .0078, n = 8; scope: {SCOPE}). Test questions must not decide. "
        f"To keep the compiled one all the same, repeat the command with --resume {outcome.run.name} "
        "--force (in Python: resume=, force=True); nothing is asked anew."
    )
    run = client().get_run(outcome.run_id)
    assert run.data.metrics["after.score"] == 0.0
    assert run.data.metrics["refused_candidate.score"] == 1.0
    assert len((outcome.run / "refused_candidate_rows.jsonl").read_text().splitlines()) == 8


def test_a_refused_program_is_kept_by_resuming_its_run_with_force_and_nothing_is_asked_anew(
    compile_with, tmp_path
):
    refused = compile_with(Model(), out=tmp_path / "out", dev=4)
    again = Model()
    forced = compile_with(again, out=tmp_path / "out", dev=4, resume=refused.run.name, force=True)
    assert forced.promoted is True
    assert again.calls == 0
    assert demos(tmp_path / "out") == 8
    assert refused.rejected_evaluation is not None
    assert forced.after.score == refused.rejected_evaluation.score == 1.0
    assert forced.rejected_evaluation is None
    assert forced.statement().startswith("Kept by --force: Too few dev questions to tell a gain (")


def test_a_forced_program_is_the_run_s_although_the_original_is_in_its_folder(
    compile_with, tmp_path
):
    out = tmp_path / "out"
    compile_with(Model(), out=out, seed=1)
    refused = compile_with(Model(), out=out, dev=4)
    assert refused.untouched_out == out
    forced = compile_with(Model(), out=out, dev=4, resume=refused.run.name, force=True)
    assert forced.folder == out
    assert forced.untouched_out is None
    assert RunFolder(forced.run).saved_program == out


def test_a_program_that_equals_the_original_is_not_asked_again(compile_with, monkeypatch):
    break_optimizer(monkeypatch, lambda job: job.student.deepcopy())
    model = Model()
    outcome = compile_with(model, how=CompileConfig("broken"))
    assert outcome.promoted is False
    assert outcome.rejected_evaluation is None
    assert model.calls == 16


def test_verdict_and_scope_are_recorded_with_a_kept_program(compile_with, tmp_path):
    outcome = compile_with(Model(), out=tmp_path / "out")
    page = open_page(RunFolder(outcome.run))
    assert page.verdict.startswith(
        "dev questions, which decide: +1.000 [+1.000, +1.000], p = .0078, n = 8: better ("
    )
    assert page.verdict.count(f"better (scope: {SCOPE})") == 2
    assert page.verdict in (outcome.run / "report.html").read_text().replace(
        "Dev questions", "dev questions"
    )
    assert (
        outcome.to_dict()["difference"]["scope"]
        == outcome.to_dict()["dev_difference"]["scope"]
        == SCOPE
    )
    tags = client().get_run(outcome.run_id).data.tags
    assert tags["mempiler.verdict"] == "better"
    assert tags["mempiler.scope"] == SCOPE
    assert read_manifest(tmp_path / "out").scores["difference"]["scope"] == SCOPE


def test_conversations_that_differ_are_warned_of_where_dev_has_few(compile_with):
    """Dev holds three users, one of whom the compiled program knows nothing of."""
    outcome = compile_with(Model(), min_n=20)
    users = sorted({row.group for row in outcome.dev[0].rows})
    assert len(users) == 3
    outcome = compile_with(Model(knows="012345".replace(users[0][-1], "")), min_n=20)
    gain = outcome.promotion.gain
    assert gain is not None
    # Questions of one user agree: each of the three users of eight tells as much as one question.
    assert gain.design_effect == pytest.approx(8.0)
    (note,) = [note for note in open_page(RunFolder(outcome.run)).notes if "design effect" in note]
    assert note == f"dev questions: {gain.warning}"


def test_usage_of_other_parts_of_a_larger_run_does_not_count_for_the_first_scoring(
    tmp_path, monkeypatch, scripted
):
    script_models(monkeypatch, scripted(Model()).engine)
    inputs = run_inputs(
        benchmark="jsonl", data=own_questions(tmp_path), lm="scripted/test", min_n=8
    )
    guard = BudgetGuard()
    guard.add_usage(Usage(calls=1_000, input_tokens=1_000_000))
    part = RunFolder.create("reproduce", {}).child("compile", {})
    run_compile("turn-rag", inputs, LABELED, parent=Parent(part, guard, {}))
    usage = part.read()["first_scoring_usage"]
    assert usage["calls"] == 8
    assert usage["input_tokens"] < 1_000_000


class Knowing(Model):
    """Answers every question right, with demos and without."""

    def __call__(self, kind: str, text: str, n: int) -> dict[str, Any]:
        fact = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0].split()[-1]
        return {"answer": f"marker {fact}"}


def drop_demos(job: Any) -> Any:
    """Return the student without its demos, so that every prompt is shorter."""
    student = job.student.deepcopy()
    student.task.answer.demos = []
    return student


def test_a_program_that_is_cheaper_and_not_worse_is_kept_where_a_margin_allows_it(
    compile_with, tmp_path, monkeypatch
):
    with_demos = str(compile_with(Model(), out=tmp_path / "dear").folder)
    break_optimizer(monkeypatch, drop_demos)
    how = CompileConfig("broken")
    rejected = compile_with(Knowing(), method=with_demos, how=how, min_n=20)
    assert rejected.promoted is False
    assert rejected.promotion.saving is None

    outcome = compile_with(
        Knowing(), method=with_demos, how=how, out=tmp_path / "out", min_n=20, margin=0.2
    )
    assert outcome.rejection_reason is None
    assert outcome.promoted is True
    assert outcome.promotion.basis == "cheaper"
    assert demos(tmp_path / "out") == 0
    page = open_page(RunFolder(outcome.run))
    start = "dev questions, which decide: not worse by more than 0.2 (lower bound -0.120) and cheaper: -"
    assert page.verdict.startswith(start)
    assert " tokens a question [-" in page.verdict
    promotion = outcome.to_dict()["promotion"]
    assert promotion["basis"] == "cheaper"
    assert promotion["saving"]["tokens"]["interval"][1] < 0
    assert client().get_run(outcome.run_id).data.tags["mempiler.basis"] == "cheaper"
    scored = read_manifest(tmp_path / "out").scores["gate"]
    assert scored["margin"] == 0.2
    assert len(scored["tokens"]) == scored["n"] == 24


def test_a_cheaper_program_that_is_worse_within_the_margin_is_kept_and_called_worse():
    groups = [f"user{n % 10}" for n in range(200)]
    baseline = DevResults(scores=[0.8] * 200, groups=groups, tokens=[1000.0] * 200, lm="x")
    candidate = DevResults(scores=[0.78] * 200, groups=groups, tokens=[100.0] * 200, lm="x")
    assert judge_candidate(candidate, baseline).basis is None
    promotion = judge_candidate(candidate, baseline, margin=0.1)
    assert promotion.basis == "cheaper"
    assert promotion.statement.endswith("n = 200: worse (scope: other conversations)")


def test_a_program_that_is_better_is_kept_for_that_although_it_takes_more(compile_with):
    outcome = compile_with(Model(), margin=0.2)
    assert outcome.promotion.basis == "better"
    saving = outcome.promotion.saving
    assert saving is not None
    assert saving.tokens is not None
    assert saving.tokens.mean > 0


def test_the_reason_of_a_program_that_is_neither_says_what_is_missing(compile_with, monkeypatch):
    break_optimizer(monkeypatch, lambda job: job.student.deepcopy())
    outcome = compile_with(Model(), how=CompileConfig("broken"), min_n=20, margin=0.02)
    assert outcome.promoted is False
    assert outcome.rejection_reason is not None
    assert outcome.rejection_reason.endswith(
        "; it may be worse by more than 0.02 (lower bound -0.120);"
        " it may not be cheaper: +0 tokens a question [+0, +0]"
    )
