"""What optimizers are told of an answer: which step lost the evidence, and nothing that is not known."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import Context, History, Hit, Session, Turn
from mempiler.data.catalog import benchmark
from mempiler.data.jsonl import JsonlBenchmark
from mempiler.optimizers.metric_views import MetricViews
from mempiler.programs.evidence import evidence_steps, turns_in_inputs
from mempiler.programs.external.program import build_external_program
from mempiler.programs.memory_r2.memory import Edit, FactMemory

from ..runs.evaluations import asked as questions_about
from ..runs.evaluations import own_questions, script_models

WRITERS = ["method.writer.extract_facts", "method.writer.manage"]
README = (Path(mempiler.__file__).parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
AGENT = next(text for text in BLOCKS if "class Agent(" in text).partition("# trainset")[0]
"""The module of the README, which shows the model every line of the history."""


@pytest.fixture(scope="module")
def example():
    found = benchmark("locomo").examples
    return next(
        example for example in found if example.category == "4" and len(example.evidence_ids) == 1
    )


def outcome(example, stored, recalled, answer):
    memory = FactMemory()
    if stored:
        memory = memory.apply(
            [Edit("INSERT", speaker="A", content="something", sources=tuple(example.evidence_ids))]
        )
    hits = (
        (Hit(id="m1", text="something", sources=tuple(example.evidence_ids)),) if recalled else ()
    )
    return dspy.Prediction(answer=answer, context=Context(hits=hits), memory=memory)


def call_that_saw(turn):
    return [(None, {"dialogue": f"[{turn}] (3 May 2024) Ann: words"}, None)]


@pytest.mark.parametrize(
    ("stored", "recalled", "step", "to_the_writer", "to_the_answer"),
    [
        (False, False, "never stored", "nothing of it was stored", "was never stored"),
        (True, False, "stored but not recalled", "did not find it", "stored but not recalled"),
        (True, True, "recalled", "the answer was still wrong", "was in the context"),
    ],
)
def test_each_predictor_hears_which_step_lost_the_evidence(
    example, stored, recalled, step, to_the_writer, to_the_answer
):
    prediction = outcome(example, stored, recalled, "entirely wrong")
    assert evidence_steps(example.evidence_ids, prediction.memory, prediction.context) == {
        example.evidence_ids[0]: step
    }
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    told = views.feedback(
        example,
        prediction,
        None,
        "method.writer.extract_facts",
        call_that_saw(example.evidence_ids[0]),
    ).feedback
    assert to_the_writer in told
    assert example.question in told
    blind = views.feedback(
        example, prediction, None, "method.writer.extract_facts", call_that_saw("D99:1")
    )
    assert "nothing is to be learnt" in blind.feedback
    assert to_the_answer in views.feedback(example, prediction, None, "task.answer").feedback
    right = outcome(example, stored, recalled, example.answer)
    assert views.feedback(example, right).score == views.score(example, right) == 1.0
    assert views.passed(example, right) is True
    assert views.passed(example, prediction) is False


class Reader:
    """A predictor of a program, as a trace names it."""

    path = "task.answer"


class Writer:
    path = WRITERS[0]


@pytest.mark.parametrize(
    "judged", [{"pred_name": "task.answer", "pred_trace": True}, {"trace": True}], ids=str
)
def test_evidence_among_the_inputs_of_a_reading_call_was_seen_whatever_was_recalled(
    example, judged
):
    lost = outcome(example, False, False, "entirely wrong")
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    (turn_id,) = example.evidence_ids
    turn, item = example.history.turns[turn_id]
    shown = [
        turn.line(item.time),
        f"- {turn.text}",
        {"turns": [{"id": turn_id, "text": turn.text.upper()}]},
    ]
    for value in shown:
        call = (Reader(), {"passages": [value]}, None)
        given = {name: [call] if called is True else called for name, called in judged.items()}
        told = views.feedback(example, lost, **given).feedback
        assert told.startswith("The evidence was in the context. ")
    for call in [
        (Reader(), {"passages": ["Yes."]}, None),
        (Writer(), {"dialogue": turn.line()}, None),
    ]:
        # To have been shown to a writer is not to have been recalled.
        assert "was never stored" in views.feedback(example, lost, [call]).feedback


STORAGE_WORDS = ("stored", "recalled", "not in the context", "could not know")


@pytest.mark.parametrize(
    ("reported", "told"),
    [
        ((), ""),
        ((["Ann: nothing of the kind"],), ""),
        (([],), "The evidence was not in the context (D1:1 was not recalled)"),
        (
            ([{"text": "x", "sources": ["D2:1"]}],),
            "The evidence was not in the context (D1:1 was not recalled)",
        ),
        (([{"text": "x", "sources": ["D1:1"]}],), "The evidence was in the context. "),
    ],
    ids=[
        "nothing reported",
        "words of its own",
        "nothing recalled",
        "another turn",
        "the evidence",
    ],
)
def test_feedback_on_an_external_program_says_only_what_it_reported(make_history, reported, told):
    (example,) = questions_about(make_history(2), 1)
    answer = ("wrong", *reported) if reported else "wrong"
    program = build_external_program(lambda history, question: answer, "mine", "question-answering")
    prediction = program(history=example.history, question=example.question)

    feedback = (
        MetricViews(benchmark("locomo")).feedback(example, prediction, None, "say", []).feedback
    )
    assert feedback.startswith(told)
    if not told:
        assert not any(words in feedback for words in STORAGE_WORDS)
    assert "stored" not in feedback


FORMS = """
import dspy

def coach(gold, pred, trace, pred_name, pred_trace):
    ((predictor, inputs, outputs),) = pred_trace or ((None, {}, None),)
    advice = f"ADVICE FOR {pred_name} WITH {sorted(inputs)}"
    return dspy.Prediction(score=float(gold.answer in pred.answer), feedback=advice)

def strict(gold, pred, trace=None):
    return 0.6 if trace is None else False
"""


@pytest.fixture
def reflected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Any, cli: Any) -> Any:
    """Compiles the README's module with gepa and a metric; returns what the prompt model was asked."""
    (tmp_path / "agent_of_readme.py").write_text(AGENT + FORMS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "new_instruction":
            return json.dumps({kind: "Name the marker."})
        return {"reasoning": "None.", "answer": "no idea"}

    engine = scripted(reply).engine
    script_models(monkeypatch, engine)

    def run(*words: str) -> str:
        about = [
            "--benchmark",
            "jsonl",
            "--data",
            own_questions(tmp_path),
            "--lm",
            "scripted/test",
            "--train",
            "9",
        ]
        how = [
            "--optimizer",
            "gepa",
            "--optimizer-set",
            "max_metric_calls=10",
            "--threads",
            "1",
            "--force",
        ]
        code, _, err = cli("compile", "agent_of_readme:Agent", *about, *how, *words)
        assert code == 0, err
        return "\n".join(text for kind, text in engine.prompts if kind == "new_instruction")

    return run


def test_gepa_says_nothing_false_of_the_module_of_the_readme_and_neither_does_show(reflected, cli):
    asked = reflected()
    assert "The evidence was in the context. Wrong: the gold answer is 'marker" in asked
    assert not any(words in asked for words in STORAGE_WORDS)
    listed = cli("show", "last", "--wrong")[1]
    assert "wrong: all gold evidence stood in the prompts, answer incorrect" in listed
    assert not any(words in listed for words in STORAGE_WORDS)
    name = re.findall(r"--question (\S+):", listed)[0]
    whole = cli("show", "last", "--question", name)[1]
    assert re.search(r"gold evidence that stood in the prompts:\n  \[D1:\d\] user: Fact", whole)
    assert "not recalled" not in whole


def test_gepa_passes_the_judged_predictor_to_a_metric_that_takes_it(reflected):
    asked = reflected("--metric", "agent_of_readme:coach")
    assert "ADVICE FOR method.reader.answerer.say.predict WITH ['lines', 'question']" in asked


def test_a_writer_hears_what_a_metric_says_of_it_alone(tmp_path, monkeypatch):
    (tmp_path / "forms_of_metrics.py").write_text(FORMS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    heard = {}
    for name in ("coach", "strict"):
        found = JsonlBenchmark.load(own_questions(tmp_path), metric=f"forms_of_metrics:{name}")
        example, views = found.examples[0], MetricViews(found, writers=WRITERS)
        prediction = outcome(example, False, False, "wrong")
        call = call_that_saw(example.evidence_ids[0])
        heard[name] = views.feedback(example, prediction, call, WRITERS[0], call).feedback
        # DSPy passes a trace where demos are made, and metrics may be strict there.
        assert views.score(example, prediction) == (0.6 if name == "strict" else 0.0)
        assert views.passed(example, prediction, []) is False
    assert heard["coach"].endswith(f"ADVICE FOR {WRITERS[0]} WITH ['dialogue']")
    assert heard["strict"].endswith("Store what a later question may ask for.")


def test_words_that_are_shown_with_resolved_dates_are_those_of_the_turn():
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my old boat last Friday.")
    history = History(
        id="ann", items=(Session(id="D1", time=datetime(2023, 1, 30), turns=(turn,)),)
    )
    for shown in (
        "I sold my old boat last Friday.",
        "I sold my old boat last Friday [27 January 2023].",
    ):
        assert turns_in_inputs([{"dialogue": f"Ann: {shown}"}], ["D1:1"], history) == ["D1:1"]
    other_day = [{"dialogue": "Ann: I sold my old boat last Friday [20 January 2023]."}]
    assert turns_in_inputs(other_day, ["D1:1"], history) == []
