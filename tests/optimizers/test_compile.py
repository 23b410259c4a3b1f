"""Compiling: demos from the right calls for the right predictors; endpoints that die and budgets that strike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest
from gepa.strategies.proposal_sampling import PxNSampling
from gepa.utils.stop_condition import NoImprovementStopper
from mempiler import UserError, build, load
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.optimizers.compile import CompileConfig, clean_program, compile_program
from mempiler.programs.state import dump_predictor
from mempiler.runs.manifest import read_manifest

from ..runs.evaluations import locomo
from .conftest import PLACES, asked

WRITERS = {"method.writer.extract_facts", "method.writer.manage"}
READERS = {"task.answer"}


def program_of(name: str) -> Any:
    # Chunks of three turns: a session of six has two, of which one holds the evidence.
    return build(name, embedder=embedder(), **({"chunk_turns": 3} if name == "memory-r2" else {}))


def questions(history: Any, evidence: Sequence[str], category: str = "4") -> list[dspy.Example]:
    """Questions that are numbered in their words."""
    return [
        asked(
            *(history, turn, category),
            **{"id": f"{history.id}:{category}:{n}", "answer": "the marker"},
            question=f"Who saw {PLACES[int(turn[1]) % 8]} with {turn[3]}, of question-{category}-{n}?",
        )
        for n, turn in enumerate(evidence)
    ]


def compiled(lm: Any, program: Any, examples: Sequence[dspy.Example], **how: Any) -> Any:
    with dspy.context(lm=lm):
        return compile_program(program, locomo(examples), examples, CompileConfig(**how))


@pytest.fixture
def knowing(fact_replies) -> Any:
    """Writes facts, and answers every question right."""

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "operations":
            text = text[
                text.rindex("[[ ## session_date ## ]]") :
            ]  # the request itself, behind its demos
        return {
            **fact_replies(kind, text, n),
            **({} if kind in ("facts", "operations") else {"answer": "the marker"}),
        }

    return reply


def states(program: Any) -> dict[str, Any]:
    return {
        name: dump_predictor(predictor).model_dump()
        for name, predictor in program.all_predictors().items()
    }


def bootstrapped(program: Any, name: str) -> list[Any]:
    return [demo for demo in program.all_predictors()[name].demos if demo.get("augmented")]


@pytest.mark.parametrize(
    ("stage", "changed"),
    [("write", WRITERS), ("read", READERS), ("all", WRITERS | READERS)],
    ids=["write", "read", "all"],
)
def test_a_stage_changes_its_predictors_and_no_other(
    scripted, knowing, make_history, stage, changed
):
    program, examples = (
        program_of("memory-r2"),
        questions(make_history(4), ["D1:2", "D2:5", "D4:1"]),
    )
    before = states(program)
    after = states(compiled(scripted(knowing), program, examples, stage=stage))
    assert {name for name in before if before[name] != after[name]} == changed
    assert states(program) == before


def test_writing_demos_come_from_the_sessions_of_the_answered_facts(
    scripted, knowing, make_history
):
    evidence = ["D2:5", "D4:1", "D7:3"]
    program, examples = program_of("memory-r2"), questions(make_history(8), evidence)
    result = compiled(scripted(knowing), program, examples, stage="write")
    extracted = bootstrapped(result, "method.writer.extract_facts")
    managed = bootstrapped(result, "method.writer.manage")
    assert len(extracted) == len(managed) == 3
    assert all(any(f"[{turn}]" in demo.dialogue for turn in evidence) for demo in extracted)
    assert all({fact.turn_id for fact in demo.new_facts} & set(evidence) for demo in managed)


@pytest.mark.parametrize(("rounds", "demos", "written"), [(1, 0, 2), (2, 2, 4)])
def test_a_second_round_tries_again_with_a_memory_of_its_own(
    scripted, fact_replies, make_history, rounds, demos, written
):
    asked: list[str] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        found = fact_replies(kind, text, n)
        if kind in ("facts", "operations"):
            return found
        question = text.rsplit("question-", 1)[1][:3]
        asked.append(question)
        return {**found, "answer": "the marker" if asked.count(question) > 1 else "wrong"}

    lm, examples = scripted(reply), questions(make_history(1), ["D1:2", "D1:5"])
    settings = {"max_rounds": rounds, "max_labeled_demos": 0}
    result = compiled(lm, program_of("memory-r2"), examples, settings=settings)
    assert len(bootstrapped(result, "task.answer")) == demos
    assert lm.engine.calls["operations"] == written


def test_adversarial_questions_are_not_trained_on(scripted, knowing, make_history):
    history = make_history(1)
    lm, examples = (
        scripted(knowing),
        questions(history, ["D1:1"] * 2) + questions(history, ["D1:1"] * 6, "5"),
    )
    result = compiled(lm, program_of("turn-rag"), examples)
    assert not any("question-5" in text for _, text in lm.engine.prompts)
    assert not any("question-5" in demo.question for demo in result.task.answer.demos)
    with pytest.raises(UserError, match="training questions that count for the score, there are 0"):
        compiled(lm, program_of("turn-rag"), questions(history, ["D1:1"] * 3, "5"))


def test_answers_below_the_threshold_teach_nothing(scripted, make_history):
    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        return {
            "answer": "the marker"
            if "question-4-1" in text.rsplit("## question", 1)[1]
            else "a stone"
        }

    examples = questions(make_history(1), ["D1:1"] * 4)
    result = compiled(
        scripted(reply), program_of("turn-rag"), examples, settings={"max_labeled_demos": 0}
    )
    assert [demo.question for demo in result.task.answer.demos] == [
        "Who saw Oslo with 1, of question-4-1?"
    ]


def gepa(**settings: Any) -> dict[str, Any]:
    return {"optimizer": "gepa", "settings": settings}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"settings": {"max_rounds": True}}, "max_rounds = True: Input should be"),
        (gepa(auto="huge"), "auto = 'huge': Input should be 'light'"),
        (gepa(use_merge="no"), "use_merge = 'no'"),
        (
            gepa(sampling_strategy="PxNSampling(2, 3)"),
            r"it takes an object in Python, .*Gepa\(extra=",
        ),
        (
            gepa(stop_callbacks=["NoImprovementStopper(5)"]),
            r"it takes an object in Python, .*Gepa\(extra=",
        ),
        (gepa(acceptance_criterion="any"), "or 'strict_improvement', or 'improvement_or_equal'"),
        (
            gepa(max_metric_calls="many"),
            "max_metric_calls = 'many': Input should be a valid integer",
        ),
        (gepa(max_metric_calls=0), "max_metric_calls = 0: it is 1 or more"),
        (gepa(max_metric_calls=9, auto="light"), "takes one of auto, max_metric_calls"),
        ({"optimizer": "better-together", "settings": {"strategy": "knn -> nothing"}}, "nothing"),
        (gepa(use_wandb=True), "no setting 'use_wandb'"),
        ({"optimizer": "finetune"}, "cannot fine-tune"),
        (
            {"optimizer": "better-together", "settings": {"strategy": "knn -> better-together"}},
            "cannot hold itself",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_any_call(scripted, knowing, make_history, how, words):
    lm = scripted(knowing)
    with pytest.raises(UserError, match=words):
        compiled(lm, program_of("turn-rag"), questions(make_history(1), ["D1:1"] * 6), **how)
    assert lm.engine.prompts == []


def test_settings_of_constructors_and_their_objects_reach_gepa(
    scripted, knowing, make_history, monkeypatch
):
    import gepa as library

    heard: dict[str, Any] = {}

    def optimize(**given: Any) -> None:
        heard.update(given)
        raise UserError("heard")

    monkeypatch.setattr(library, "optimize", optimize)
    given = {
        "reflection_minibatch_size": 2,
        "use_merge": False,
        "sampling_strategy": PxNSampling(2, n=3),
    }
    given |= {
        "stop_callbacks": [NoImprovementStopper(5)],
        "acceptance_criterion": "improvement_or_equal",
    }
    with pytest.raises(UserError, match="heard"):
        compiled(
            scripted(knowing),
            program_of("turn-rag"),
            questions(make_history(4), ["D1:1"] * 6),
            **gepa(**given),
        )
    assert heard["reflection_minibatch_size"] == 2
    assert heard["use_merge"] is False
    assert heard["max_metric_calls"] == 10
    assert heard["sampling_strategy"].p == 2
    assert heard["sampling_strategy"].n == 3
    assert [type(each).__name__ for each in heard["stop_callbacks"]] == ["NoImprovementStopper"]
    assert heard["acceptance_criterion"] == "improvement_or_equal"


@pytest.mark.parametrize("seed", [0, 9, 3])
def test_mipro_draws_by_the_seed_of_the_run(scripted, knowing, make_history, monkeypatch, seed):
    drawn_by: list[int] = []

    def set_random_seeds(teleprompter: Any, number: int) -> None:
        drawn_by.append(number)
        raise UserError("begun")

    monkeypatch.setattr(dspy.MIPROv2, "_set_random_seeds", set_random_seeds)
    examples = questions(make_history(4), ["D1:1"] * 6)
    with pytest.raises(UserError, match="begun"):
        compiled(scripted(knowing), program_of("turn-rag"), examples, optimizer="mipro", seed=seed)
    assert drawn_by == [seed]


@pytest.mark.parametrize(
    ("settings", "calls", "says"),
    [
        (
            {"max_metric_calls": 8},
            None,
            "one proposal at most (max_metric_calls = 8 with 2 questions",
        ),
        ({"max_metric_calls": 2}, None, "no proposal (max_metric_calls = 2"),
        ({"max_metric_calls": 9}, None, None),
        ({"max_metric_calls": 99}, 9, "one proposal at most (the 9 calls that are left"),
        ({"max_metric_calls": 99}, 10, None),
    ],
)
def test_a_budget_of_one_proposal_says_so_before_it_starts(
    scripted, knowing, make_history, monkeypatch, caplog, settings, calls, says
):
    def stops(**given: Any) -> None:
        raise UserError("begun")

    monkeypatch.setattr("gepa.optimize", stops)
    lm = scripted(knowing, guard=BudgetGuard(Limits(max_calls=calls)))
    with pytest.raises(UserError, match="begun"):
        compiled(
            lm, program_of("turn-rag"), questions(make_history(4), ["D1:1"] * 6), **gepa(**settings)
        )
    told = [record.getMessage() for record in caplog.records if record.name == "mempiler"]
    assert len(told) == (says is not None)
    assert all(str(says) in line for line in told)


def test_leftovers_of_an_optimizer_are_removed(make_history):
    start = program_of("memory-r2")
    compiled = start.staged("read")
    compiled.set_lm(dspy.LM("openai/x", api_key="sk-secret"))
    compiled.task.answer.demos = [
        dspy.Example(question="What?", answer="this"),
        dspy.Example(history=make_history(1)),
    ]
    compiled.candidate_programs = ["left by an optimizer"]
    tidied = clean_program(compiled, start)
    assert not hasattr(tidied, "candidate_programs")
    assert [predictor.lm for predictor in tidied.all_predictors().values()] == [None] * 3
    assert [demo.question for demo in tidied.task.answer.demos] == ["What?"]
    assert {name for name, _ in tidied.named_predictors()} == WRITERS | READERS


OPTIMIZERS = {
    "bootstrap": ["max_tries=4"],
    "mipro": ["num_trials=2", "num_candidates=2"],
    "gepa": ["max_metric_calls=10"],
    "better-together": ["strategy=labeled -> bootstrap"],
    "bootstrap-random": ["num_candidate_programs=1", "max_tries=3"],
    "copro": ["breadth=2", "depth=1"],
    "simba": ["bsize=4", "max_steps=1", "num_candidates=2"],
    "infer-rules": ["num_candidates=1", "max_tries=3"],
    "labeled": [],
    "knn": [],
}
"""Settings that keep each optimizer small."""
QUICK = ("bootstrap", "gepa")
SCORED_FIRST = 4


def each(*names: str) -> pytest.MarkDecorator:
    """A test per optimizer, the slow ones marked."""
    marks = ([] if name in QUICK else [pytest.mark.slow] for name in names)
    found = [pytest.param(name, marks=mark) for name, mark in zip(names, marks, strict=True)]
    return pytest.mark.parametrize("optimizer", found)


each_optimizer = each(*OPTIMIZERS)
each_that_asks = each(*(name for name in OPTIMIZERS if name not in ("labeled", "knn")))


def compile_words(optimizer: str, out: Path, *words: str) -> list[str]:
    settings = [word for setting in OPTIMIZERS[optimizer] for word in ("--optimizer-set", setting)]
    return ["compile", "turn-rag", "--optimizer", optimizer, "--out", str(out), *settings, *words]


def loads_untuned(out: Path) -> bool:
    """Whether a folder holds the start: loadable, and said to be compiled by nothing."""
    predictors = load(out).all_predictors().values()
    return not read_manifest(out).optimizer and not any(predictor.demos for predictor in predictors)


def asked_in(part: dict[str, Any]) -> int:
    """Questions of an evaluation, those outside the headline score too."""
    return sum(category["n"] for category in part["by"].values())


def answers(out: Path, make_history: Any) -> bool:
    with dspy.context(lm=language_model("offline")):
        return bool(load(out)(history=make_history(2), question="Who saw Quito?").answer)


@each_optimizer
@pytest.mark.parametrize("alive", [SCORED_FIRST + 3])
def test_an_endpoint_that_dies_under_the_optimizer_leaves_the_start(
    stub, mempiler_cli, tmp_path, optimizer, alive
):
    server = stub(lambda n, text: "dead" if n > alive else None)
    ran = mempiler_cli(server, *compile_words(optimizer, tmp_path / "out"), threads=2)
    assert ran.code == 3
    assert ran.out == ""
    assert ran.resume
    assert server.answered == alive
    assert loads_untuned(tmp_path / "out")


@pytest.mark.parametrize("late", [5, 9])
def test_an_endpoint_that_dies_while_scoring_is_no_result(stub, mempiler_cli, tmp_path, late):
    healthy = stub()
    words = compile_words("bootstrap", tmp_path / "out")
    mempiler_cli(healthy, *compile_words("bootstrap", tmp_path / "healthy"))
    server = stub(lambda n, text: "dead" if n > healthy.answered - late else None)
    ran = mempiler_cli(server, *words)
    assert healthy.answered == server.answered + late
    # Last of all the refused program is asked the four test questions, and before that the start is.
    if late == 5:
        # One of four test questions without an answer is more than --max-failure-rate allows.
        assert ran.code == 4
        assert ran.out == ""
        assert not (tmp_path / "out").exists()
    else:
        assert ran.code == 3
        assert ran.out == ""
        assert loads_untuned(tmp_path / "out")


@each_that_asks
def test_a_budget_that_strikes_the_optimizer_still_gives_a_scored_program(
    stub, mempiler_cli, make_history, tmp_path, optimizer
):
    # 4 calls score the start, 12 are kept back for the scoring to come, 2 are left to the optimizer.
    server = stub()
    ran = mempiler_cli(
        server, *compile_words(optimizer, tmp_path / "out", "--max-calls", "18"), threads=4
    )
    assert ran.code == 0
    assert ran.found["stopped"] == "max-calls 18, less what scoring needs"
    assert server.answered == len(server.texts) <= 18
    scored = [ran.found["before"], ran.found["after"]]
    if ran.found["refused_candidate"] is not None:
        # What is kept back is enough for a program that is refused, too.
        scored.append(ran.found["refused_candidate"]["test"])
    for evaluation in scored:
        assert asked_in(evaluation) == 4
        assert evaluation["failures"] == 0
    assert answers(tmp_path / "out", make_history)


@pytest.mark.parametrize(
    ("optimizer", "calls", "n"),
    [
        *(("mipro", calls, n) for calls, n in ((0, 0), (3, 0), (6, 2))),
        *(pytest.param(name, 6, 0, marks=pytest.mark.slow) for name in ("labeled", "knn")),
    ],
)
def test_a_budget_that_strikes_while_scoring_is_kept_exactly(
    stub, mempiler_cli, make_history, tmp_path, optimizer, calls, n
):
    server = stub()
    limit = ["--adapter", "chat", "--max-calls", str(calls)]
    ran = mempiler_cli(server, *compile_words(optimizer, tmp_path / "out", *limit))
    # Without any call nothing was scored at all.
    assert ran.code == (0 if calls else 4)
    assert ran.found["stopped"] == f"max-calls {calls}"
    assert len(server.texts) == calls
    assert asked_in(ran.found["before"]) == n
    assert ran.found["promoted"] is False
    assert loads_untuned(tmp_path / "out")
    assert answers(tmp_path / "out", make_history)
