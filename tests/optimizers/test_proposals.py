"""Optimizers whose proposals cannot always be read lose nothing; what they make answers alike once it is loaded."""

import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import build, load, save
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.compile import CompileConfig, compile_program

from ..runs.evaluations import Listening, break_optimizer, own_questions, script_models

SETTINGS = {
    "mipro": [
        "num_candidates=3",
        "num_trials=2",
        "max_tries=4",
        "max_bootstrapped_demos=1",
        "max_labeled_demos=2",
    ],
    "copro": ["breadth=3", "depth=2"],
    "infer-rules": ["num_candidates=2", "max_tries=4"],
    "gepa": ["max_metric_calls=16"],
    "simba": ["bsize=4", "num_candidates=2", "max_steps=2", "max_demos=0"],
    "better-together": ["strategy=copro -> infer-rules"],
}
BETTER = "Name the marker."
QUICK = ("gepa", "mipro")
each_optimizer = pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS],
)


class Model:
    """Answers wrongly until an instruction tells it better; of ten proposals the first `broken` cannot be read."""

    def __init__(self, broken: int) -> None:
        self.broken, self.answers, self.proposals, self.malformed = broken, 0, 0, 0

    def __call__(self, kind: str, text: str, system: str, heat: float) -> dict[str, Any] | str:
        if kind == "answer":
            self.answers += 1
            asked = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0].split()[-1]
            # Some is known from the start, and more now and then: optimizers learn from what differs.
            known = BETTER in system or int(asked[-1]) < 2 or (heat > 0 and self.answers % 3 == 0)
            return {"answer": f"marker {asked}" if known else "no idea"}
        self.proposals += 1
        if (self.proposals - 1) % 10 < self.broken:
            self.malformed += 1
            return "I would rather not say."
        if kind == "new_instruction":
            return json.dumps({kind: BETTER})
        told: dict[str, Any] = {kind: BETTER}
        told |= {"natural_language_rules": BETTER} if kind == "reasoning" else {}
        told |= (
            {"proposed_prefix_for_output_field": "Answer:"}
            if kind == "proposed_instruction"
            else {}
        )
        return told | ({"module_advice": {"task.answer": BETTER}} if kind == "discussion" else {})


@pytest.fixture
def compile_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Any, cli: Any) -> Any:
    """`compile_with(name, model, *words)` runs the command on six users' questions: code, JSON object."""
    data = own_questions(tmp_path)

    def run(name: str, model: Model, *words: str) -> dict[str, Any]:
        engine = scripted(
            lambda kind, text, n: model(kind, text, engine.system, engine.heat)
        ).engine
        script_models(monkeypatch, engine)
        told = [word for setting in SETTINGS.get(name, []) for word in ("--optimizer-set", setting)]
        about = ["--benchmark", "jsonl", "--data", data, "--lm", "scripted/test", "--train", "16"]
        given = ["--optimizer", name, *about, "--threads", "1", "--min-n", "8", *told, *words]
        code, out, _ = cli("compile", "turn-rag", *given)
        return json.loads(out) if "--json" in words else {"code": code, "out": out}

    return run


@each_optimizer
def test_three_in_ten_malformed_proposals_cost_calls_and_nothing_else(compile_with, tmp_path, name):
    model, again = Model(3), Model(3)
    found = compile_with(name, model, "--json", "--out", str(tmp_path / "out"))
    assert model.malformed > 0
    told = found["optimizer"]
    assert told["optimizer"] == name
    assert told["ended"] is None
    assert told["rescued"] is False
    assert told["notes"] == []
    assert told["unreadable"] >= model.malformed - 1
    assert found["usage"]["calls"]["prompt"] == model.proposals
    assert found["promoted"], found["refused"]
    assert BETTER in load(tmp_path / "out").task.answer.signature.instructions
    resumed = compile_with(
        name, again, "--json", "--out", str(tmp_path / "out"), "--resume", found["run"]
    )
    assert resumed["after"]["score"] == found["after"]["score"] == 1.0
    if not found["optimizer"]["given_up"]:
        assert again.answers == 0
        assert again.proposals == 0


@each_optimizer
def test_proposals_that_are_all_malformed_end_in_a_program_and_a_run_that_goes_on(
    compile_with, tmp_path, name, cli
):
    model, healthy = Model(10), Model(0)
    found = compile_with(name, model, "--json", "--out", str(tmp_path / "out"))
    troubles = found["optimizer"]
    assert model.malformed == model.proposals > 0
    assert troubles["unreadable"] > 0
    assert troubles["given_up"] > 0
    _, shown, _ = cli("show", found["run"], "--failed")
    assert shown.count("prompt LM, unreadable answer to ") == len(troubles["examples"]) > 0
    assert " ".join(troubles["examples"][0]["text"].split())[:400] in shown
    assert troubles["ended"] == (
        "a proposal could not be read" if name in ("copro", "better-together") else None
    )
    assert found["usage"]["calls"]["prompt"] == model.proposals
    assert BETTER not in load(tmp_path / "out").task.answer.signature.instructions
    resumed = compile_with(
        name, healthy, "--json", "--out", str(tmp_path / "out"), "--resume", found["run"]
    )
    assert healthy.proposals > 0
    assert resumed["optimizer"]["ended"] is None
    assert resumed["promoted"], resumed["refused"]
    assert BETTER in load(tmp_path / "out").task.answer.signature.instructions


@each_optimizer
def test_a_refused_program_is_kept_by_force_without_sampling_again_what_was_given_up(
    compile_with, name
):
    """A resumed run samples such proposals more often, but not where the program of the last go is wanted."""
    model, again = Model(7), Model(7)
    words = ("--json", "--dev", "4", "--min-n", "20")
    refused = compile_with(name, model, *words)
    assert not refused["promoted"]
    if name not in ("copro", "better-together"):
        assert refused["optimizer"]["given_up"] > 0
    forced = compile_with(name, again, *words, "--resume", refused["run"], "--force")
    assert forced["promoted"] is True
    assert again.answers == 0
    assert again.proposals == 0
    assert forced["after"]["score"] == refused["refused_candidate"]["test"]["score"]


@pytest.mark.parametrize(
    "refusal",
    [InvalidRequestError("flagged"), ContextLengthError("too long")],
    ids=["flagged", "long"],
)
@pytest.mark.parametrize("name", ["mipro", pytest.param("infer-rules", marks=pytest.mark.slow)])
def test_proposals_whose_requests_are_refused_do_not_end_the_optimizer(compile_with, name, refusal):
    class Refusing(Model):
        def __call__(self, kind: str, text: str, system: str, heat: float) -> dict[str, Any] | str:
            if kind != "answer":
                raise refusal
            return super().__call__(kind, text, system, heat)

    troubles = compile_with(name, Refusing(0), "--json")["optimizer"]
    assert troubles["ended"] is None
    assert troubles["given_up"] > 0


class BrokenError(Exception):
    """Stands for a fault in an optimizer."""


def evaluated(job: Any, programs: list[Any]) -> None:
    for program in programs:
        dspy.Evaluate(devset=list(job.train), metric=job.metric_views.score, num_threads=1)(program)


def breaks(score: Any, error: BaseException) -> Any:
    """Scores the start, a better program and the start again, and breaks."""

    def run(job: Any) -> Any:
        better = job.student.deepcopy()
        signature = better.task.answer.signature
        better.task.answer.signature = signature.with_instructions(
            f"{signature.instructions} {BETTER}"
        )
        score(job, [job.student, better, job.student])
        raise error

    return run


def test_an_optimizer_that_breaks_leaves_its_best_candidate_and_says_so(
    compile_with, tmp_path, monkeypatch
):
    break_optimizer(monkeypatch, breaks(evaluated, BrokenError("two\nlines")))
    model, again, out = Model(0), Model(0), str(tmp_path / "out")
    code, table = compile_with("broken", model, "--out", out).values()
    run = re.findall(
        r"^broken failed \(BrokenError: two lines\): the run went on with its best candidate so far; "
        r"--resume (\S+) tries again$",
        table,
        re.MULTILINE,
    )
    assert code == 0
    assert f"LM calls, whole run: {model.answers} task; " in table
    assert BETTER in load(out).task.answer.signature.instructions
    resumed = compile_with("broken", again, "--json", "--out", out, "--resume", run[0])
    assert resumed["optimizer"]["ended"] == "BrokenError: two lines"
    assert resumed["optimizer"]["rescued"] is True
    assert resumed["promoted"] is True
    assert resumed["usage"]["calls"]["task"] == 0
    assert again.answers == 0
    assert json.loads((Path(resumed["run"]) / "run.json").read_text())["status"] == "stopped"


def test_an_optimizer_that_breaks_before_it_compiled_anything_is_a_broken_run(
    compile_with, tmp_path, monkeypatch
):
    break_optimizer(
        monkeypatch, breaks(lambda job, programs: evaluated(job, programs[:1]), BrokenError())
    )
    code, table = compile_with("broken", Model(0), "--out", str(tmp_path / "out")).values()
    assert code == 4
    assert "broken failed (BrokenError): the run went on with the start" in table
    assert BETTER not in load(tmp_path / "out").task.answer.signature.instructions


SMALL = {
    "bootstrap-random": {"num_candidate_programs": 1, "max_tries": 6},
    "mipro": {"num_candidates": 3, "num_trials": 2, "max_tries": 6},
    "copro": {"breadth": 2, "depth": 1},
    "simba": {"bsize": 6, "num_candidates": 2, "max_steps": 1},
    "gepa": {"max_metric_calls": 20},
    "infer-rules": {"num_candidates": 1, "max_tries": 6},
    "better-together": {"strategy": "bootstrap -> knn"},
}
COMPILED = [
    *(("turn-rag", name) for name in sorted(set(OPTIMIZERS) - {"finetune"})),
    ("memory-r2", "bootstrap"),
]


@pytest.fixture(scope="module")
def questions():
    found = benchmark("locomo")
    own = [
        example
        for example in found.examples
        if found.group(example) == "sample-1" and found.in_headline(example)
    ]
    return found, own[:12], own[12:15]


@pytest.mark.parametrize(("method", "name"), COMPILED)
def test_the_loaded_program_answers_as_before_and_proposals_see_no_whole_history(
    questions, tmp_path, method, name
):
    found, train, asked = questions
    how = CompileConfig(name, settings=SMALL.get(name), threads=4)
    engine = Listening()
    prompt_lm = MeteredLM(
        "offline/x", Metering(role="prompt"), engine=engine, temperature=0.0, cache=False
    )
    with dspy.context(lm=language_model(), disable_history=True, trace=None):
        compiled = compile_program(build(method, embedder=embedder()), found, train, how, prompt_lm)
        before = [compiled(**example.inputs()).answer for example in asked]
        save(compiled, tmp_path / "saved")
        loaded = load(tmp_path / "saved")
        assert [loaded(**example.inputs()).answer for example in asked] == before
    # Words of a turn that belong to no question's evidence: only a whole history would show them all.
    evidence = {turn for example in train for turn in example.evidence_ids}
    turns = train[0].history.turns.items()
    elsewhere = [
        turn.text for turn_id, (turn, _) in turns if turn_id not in evidence and len(turn.text) > 30
    ]
    assert (
        max((sum(words in text for words in elsewhere) for text in engine.prompts), default=0)
        < len(elsewhere) / 2
    )
    assert all("turns=(" not in text for text in engine.prompts)
    if name in ("mipro", "copro", "gepa"):
        assert engine.prompts
