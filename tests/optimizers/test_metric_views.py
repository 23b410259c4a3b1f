"""What optimizers read about an answer: which step lost the evidence, and nothing unknown.

A benchmark's metric scores an answer. Its views are what optimizers need: the score, whether the
answer passed, and feedback, which is a text for a model that improves prompts. Feedback says what
became of the evidence, the turns that hold the answer. It may be for one predictor: a writer, which
stores memories, or a reader, which answers.
"""

import json
import sys
from collections.abc import Callable, Iterator
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

from ..runs.evaluations import own_questions, questions_about

WRITERS = ["method.writer.extract_facts", "method.writer.manage"]
"""The predictors of Memory-R2 that write; `task.answer` reads."""


def readme_agent_module() -> str:
    """Return the README's first module, an agent that shows its model every line of the history."""
    readme = Path(mempiler.__file__).parent / "README.md"
    python_blocks = readme.read_text(encoding="utf-8").split("```python\n")[1:]
    agent_blocks = [block for block in python_blocks if "class Agent(" in block]

    # The lines below the comment compile the agent when the module is run as a script.
    return agent_blocks[0].partition("# trainset")[0]


@pytest.fixture(scope="module")
def question() -> dspy.Example:
    """A question of LoCoMo whose gold evidence is a single turn."""
    for example in benchmark("locomo").examples:
        if example.category == "4" and len(example.evidence_ids) == 1:
            return example
    raise AssertionError("no question has one turn of evidence")


@pytest.fixture(scope="module")
def views() -> MetricViews:
    """The views of LoCoMo's metric for a program with writers."""
    return MetricViews(benchmark("locomo"), writers=WRITERS)


def prediction_for(
    example: dspy.Example, answer: str, *, is_stored: bool, is_recalled: bool
) -> dspy.Prediction:
    """Return an answer to a question, as a program gives it.

    Its memory holds the evidence if `is_stored`, and its prompt showed the evidence if
    `is_recalled`.
    """
    evidence_ids = tuple(example.evidence_ids)

    memory = FactMemory()
    if is_stored:
        insertion = Edit("INSERT", speaker="A", content="something", sources=evidence_ids)
        memory = memory.apply([insertion])

    context = Context()
    if is_recalled:
        context = Context(hits=(Hit(id="m1", text="something", sources=evidence_ids),))

    return dspy.Prediction(answer=answer, context=context, memory=memory)


def trace_of_writer(turn_id: str) -> list[tuple[Any, dict[str, str], Any]]:
    """Return the trace of one call of a writer that saw a turn: predictor, inputs, outputs."""
    return [(None, {"dialogue": f"[{turn_id}] (3 May 2024) Ann: words"}, None)]


@pytest.mark.parametrize(
    ("is_stored", "is_recalled", "step"),
    [
        (False, False, "never stored"),
        (True, False, "stored but not recalled"),
        (True, True, "recalled"),
    ],
)
def test_evidence_steps_say_how_far_a_turn_got(question, is_stored, is_recalled, step):
    """The evidence, one turn, is stored in the memory or not, and recalled from it or not."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)

    steps = evidence_steps(question.evidence_ids, prediction.memory, prediction.context)

    assert steps == {question.evidence_ids[0]: step}


@pytest.mark.parametrize(
    ("is_stored", "is_recalled", "advice"),
    [
        (False, False, "nothing of it was stored"),
        (True, False, "did not find it"),
        (True, True, "the answer was still wrong"),
    ],
)
def test_a_writer_that_saw_the_evidence_reads_what_became_of_it(
    views, question, is_stored, is_recalled, advice
):
    """The writer was called with the evidence, one turn. The answer was wrong."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)
    calls = trace_of_writer(question.evidence_ids[0])

    feedback = views.feedback(
        question, prediction, pred_name="method.writer.extract_facts", pred_trace=calls
    ).feedback

    assert advice in feedback
    assert question.question in feedback


@pytest.mark.parametrize(
    ("is_stored", "is_recalled"), [(False, False), (True, False), (True, True)]
)
def test_a_writer_that_saw_another_turn_has_nothing_to_learn(
    views, question, is_stored, is_recalled
):
    """Turn D99:1 is not the evidence."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)
    calls = trace_of_writer("D99:1")

    feedback = views.feedback(
        question, prediction, pred_name="method.writer.extract_facts", pred_trace=calls
    ).feedback

    assert "nothing is to be learnt" in feedback


@pytest.mark.parametrize(
    ("is_stored", "is_recalled", "sentence"),
    [
        (False, False, "was never stored"),
        (True, False, "stored but not recalled"),
        (True, True, "was in the context"),
    ],
)
def test_a_reader_reads_whether_the_evidence_was_in_its_context(
    views, question, is_stored, is_recalled, sentence
):
    """The reader gives the answer, which was wrong."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)

    feedback = views.feedback(question, prediction, pred_name="task.answer").feedback

    assert sentence in feedback


@pytest.mark.parametrize(
    ("is_stored", "is_recalled"), [(False, False), (True, False), (True, True)]
)
def test_a_right_answer_has_the_score_1_whatever_became_of_the_evidence(
    views, question, is_stored, is_recalled
):
    """The evidence is stored in the memory or not, and recalled from it or not."""
    gold_answer = question.answer
    prediction = prediction_for(question, gold_answer, is_stored=is_stored, is_recalled=is_recalled)

    assert views.score(question, prediction) == 1.0
    assert views.feedback(question, prediction).score == 1.0
    assert views.passed(question, prediction) is True


@pytest.mark.parametrize(
    ("is_stored", "is_recalled"), [(False, False), (True, False), (True, True)]
)
def test_a_wrong_answer_does_not_pass_whatever_became_of_the_evidence(
    views, question, is_stored, is_recalled
):
    """The evidence is stored in the memory or not, and recalled from it or not."""
    prediction = prediction_for(
        question, "entirely wrong", is_stored=is_stored, is_recalled=is_recalled
    )

    assert views.passed(question, prediction) is False


class Reader:
    """Stands for the reading predictor in a trace, which names predictors by their path."""

    path = "task.answer"


class Writer:
    """Stands for a writing predictor in a trace."""

    path = WRITERS[0]


@pytest.mark.parametrize("form", ["line of the turn", "text of the turn", "record of the turn"])
def test_evidence_in_the_inputs_of_a_reading_call_was_seen_although_it_was_not_recalled(
    views, question, form
):
    """A user's own program may show the evidence in a prompt without a word about it."""
    prediction = prediction_for(question, "wrong", is_stored=False, is_recalled=False)
    (turn_id,) = question.evidence_ids
    turn, session = question.history.turns[turn_id]
    passages = {
        "line of the turn": turn.line(session.time),
        "text of the turn": f"- {turn.text}",
        "record of the turn": {"turns": [{"id": turn_id, "text": turn.text.upper()}]},
    }
    calls = [(Reader(), {"passages": [passages[form]]}, None)]

    of_program = views.feedback(question, prediction, trace=calls)
    of_reader = views.feedback(question, prediction, pred_name="task.answer", pred_trace=calls)

    assert of_program.feedback.startswith("The evidence was in the context. ")
    assert of_reader.feedback.startswith("The evidence was in the context. ")


def test_evidence_that_only_a_writer_was_shown_was_not_recalled(views, question):
    """A trace lists the calls of a program, each as predictor, inputs and outputs."""
    prediction = prediction_for(question, "wrong", is_stored=False, is_recalled=False)
    turn, _ = question.history.turns[question.evidence_ids[0]]
    writing_call = (Writer(), {"dialogue": turn.line()}, None)

    feedback = views.feedback(question, prediction, [writing_call]).feedback

    assert "was never stored" in feedback


def test_a_reading_call_with_other_words_has_not_seen_the_evidence(views, question):
    """The prompt of the call showed the passage "Yes." alone."""
    prediction = prediction_for(question, "wrong", is_stored=False, is_recalled=False)
    reading_call = (Reader(), {"passages": ["Yes."]}, None)

    feedback = views.feedback(question, prediction, [reading_call]).feedback

    assert "was never stored" in feedback


STORAGE_WORDS = ("stored", "recalled", "not in the context", "could not know")
"""Words of a claim about the memory."""


def feedback_on_own_program(history: History, answer: Any) -> str:
    """Return the feedback on a user's own program that gives this answer.

    The evidence of the question is the turn D1:1. `answer` is a text, or a text and the list of
    what the program says it recalled.
    """
    (example,) = questions_about(history, 1)
    program = build_external_program(lambda history, question: answer, "mine", "question-answering")
    prediction = program(history=example.history, question=example.question)
    views = MetricViews(benchmark("locomo"))
    return views.feedback(example, prediction, None, "say", []).feedback


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("wrong", id="reports nothing"),
        pytest.param(("wrong", ["Ann: nothing of the kind"]), id="reports words without sources"),
    ],
)
def test_feedback_is_silent_about_a_memory_that_reports_no_sources(make_history, answer):
    """A program may return what it recalled beside its answer, and of which turns that is."""
    feedback = feedback_on_own_program(make_history(2), answer)

    for words in STORAGE_WORDS:
        assert words not in feedback


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(
            ("wrong", []),
            "The evidence was not in the context (D1:1 was not recalled)",
            id="recalls nothing",
        ),
        pytest.param(
            ("wrong", [{"text": "x", "sources": ["D2:1"]}]),
            "The evidence was not in the context (D1:1 was not recalled)",
            id="recalls another turn",
        ),
        pytest.param(
            ("wrong", [{"text": "x", "sources": ["D1:1"]}]),
            "The evidence was in the context. ",
            id="recalls the evidence",
        ),
    ],
)
def test_feedback_on_an_external_program_says_what_it_reported(make_history, answer, sentence):
    """The evidence is the turn D1:1. Besides its answer the program returns what it recalled."""
    feedback = feedback_on_own_program(make_history(2), answer)

    assert feedback.startswith(sentence)
    # What is in the memory of a user's own program is never known.
    assert "stored" not in feedback


# `coach` gives advice to the predictor that it is called for. `strict` is 0.6, but False where DSPy
# makes demos, which is where it gets a trace.
USER_METRICS = """
import dspy

def coach(gold, pred, trace, pred_name, pred_trace):
    inputs = {}
    if pred_trace:
        [(predictor, inputs, outputs)] = pred_trace
    advice = f"ADVICE FOR {pred_name} WITH {sorted(inputs)}"
    return dspy.Prediction(score=float(gold.answer in pred.answer), feedback=advice)

def strict(gold, pred, trace=None):
    return 0.6 if trace is None else False
"""


@pytest.fixture
def reflection_prompts_of_gepa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Any
) -> Iterator[Callable[..., str]]:
    """A function that compiles the README's agent with gepa and returns its reflection prompts."""
    (tmp_path / "agent_of_readme.py").write_text(
        readme_agent_module() + USER_METRICS, encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def reply(kind: str, text: str, n: int) -> str | dict[str, str]:
        if kind == "new_instruction":
            return json.dumps({"new_instruction": "Name the marker."})
        return {"reasoning": "None.", "answer": "no idea"}

    def compile_agent(metric: str | None = None) -> str:
        lm = scripted(reply)
        mempiler.compile(
            "agent_of_readme:Agent",
            metric=metric,
            optimizer=mempiler.optimizers.Gepa(max_metric_calls=10),
            lm=lm,
            benchmark="jsonl",
            data=own_questions(tmp_path),
            train=9,
            threads=1,
            force=True,
            progress=False,
        )
        prompts = [text for kind, text in lm.engine.prompts if kind == "new_instruction"]
        return "\n".join(prompts)

    yield compile_agent
    sys.modules.pop("agent_of_readme", None)


def test_neither_gepa_nor_show_claims_something_about_the_memory_of_the_readme_agent(
    reflection_prompts_of_gepa, cli
):
    """In a reflection prompt, GEPA shows feedback to a model that proposes an instruction.

    `mempiler show` shows a run. The agent has no memory; it shows all lines to its model.
    """
    reflection_prompts = reflection_prompts_of_gepa()

    assert (
        "The evidence was in the context. Wrong: the gold answer is 'marker" in reflection_prompts
    )
    for words in STORAGE_WORDS:
        assert words not in reflection_prompts

    _, wrong_answers, _ = cli("show", "last", "--wrong")
    assert "wrong: all gold evidence stood in the prompts, answer incorrect" in wrong_answers
    for words in STORAGE_WORDS:
        assert words not in wrong_answers

    # The list names each question as it is given to `--question`.
    question_id = wrong_answers.partition("--question ")[2].split(": ")[0]
    _, details, _ = cli("show", "last", "--question", question_id)
    _, _, evidence = details.partition("gold evidence that stood in the prompts:\n")
    assert evidence.startswith("  [D1:")
    assert "] user: Fact" in evidence.splitlines()[0]
    assert "not recalled" not in details


def test_gepa_passes_the_judged_predictor_to_a_metric_that_takes_it(reflection_prompts_of_gepa):
    """A user's metric may give advice to one predictor, if it takes its name and its calls."""
    reflection_prompts = reflection_prompts_of_gepa(metric="agent_of_readme:coach")

    advice = "ADVICE FOR method.reader.answerer.say.predict WITH ['lines', 'question']"
    assert advice in reflection_prompts


@pytest.fixture
def user_metric_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], JsonlBenchmark]:
    """A function that returns a benchmark with one of the user's metrics, by name."""
    (tmp_path / "user_metrics.py").write_text(USER_METRICS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    questions_file = own_questions(tmp_path)
    return lambda name: JsonlBenchmark.load(questions_file, metric=f"user_metrics:{name}")


@pytest.mark.parametrize(
    ("metric_name", "last_sentence"),
    [
        # This metric judges one predictor, so its advice is for the writer.
        ("coach", f"ADVICE FOR {WRITERS[0]} WITH ['dialogue']"),
        # This one judges the answer, which a writer does not give.
        ("strict", "Store what a later question may ask for."),
    ],
)
def test_a_writer_reads_the_advice_only_of_a_metric_that_judged_it(
    user_metric_benchmark, metric_name, last_sentence
):
    """The metrics are two functions of a user. A writer stores memories, and does not answer."""
    jsonl_benchmark = user_metric_benchmark(metric_name)
    example = jsonl_benchmark.examples[0]
    prediction = prediction_for(example, "wrong", is_stored=False, is_recalled=False)
    calls = trace_of_writer(example.evidence_ids[0])
    views = MetricViews(jsonl_benchmark, writers=WRITERS)

    feedback = views.feedback(example, prediction, calls, WRITERS[0], calls).feedback

    assert feedback.endswith(last_sentence)


@pytest.mark.parametrize(("metric_name", "score"), [("coach", 0.0), ("strict", 0.6)])
def test_only_a_score_for_demos_is_computed_with_a_trace(user_metric_benchmark, metric_name, score):
    """A metric sees by its trace that DSPy makes demos, and may then be strict, as `strict` is."""
    jsonl_benchmark = user_metric_benchmark(metric_name)
    example = jsonl_benchmark.examples[0]
    prediction = prediction_for(example, "wrong", is_stored=False, is_recalled=False)
    views = MetricViews(jsonl_benchmark, writers=WRITERS)

    assert views.score(example, prediction) == score
    # `passed` decides what becomes a demo.
    assert views.passed(example, prediction, []) is False


@pytest.mark.parametrize(
    ("shown_text", "shown_turns"),
    [
        ("I sold my old boat last Friday.", ["D1:1"]),
        ("I sold my old boat last Friday [27 January 2023].", ["D1:1"]),
        # A date that this turn did not mean.
        ("I sold my old boat last Friday [20 January 2023].", []),
    ],
)
def test_a_turn_is_recognized_with_or_without_its_resolved_date(shown_text, shown_turns):
    """Prompts may show a date beside words such as "last Friday".

    The session was on Monday, 30 January 2023.
    """
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my old boat last Friday.")
    session = Session(id="D1", time=datetime(2023, 1, 30), turns=(turn,))
    history = History(id="ann", items=(session,))
    inputs = [{"dialogue": f"Ann: {shown_text}"}]

    assert turns_in_inputs(inputs, ["D1:1"], history) == shown_turns
