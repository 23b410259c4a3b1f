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
from mempiler.programs.evidence import turns_in_inputs
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

    Args:
        example: The question, whose evidence is one turn.
        answer: The answer.
        is_stored: Whether the memory holds the evidence.
        is_recalled: Whether the prompt showed the evidence.
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


def wrong_answer(example: dspy.Example) -> dspy.Prediction:
    """Return a wrong answer of a program that neither stored nor recalled the evidence."""
    return prediction_for(example, "wrong", is_stored=False, is_recalled=False)


each_fate_of_the_evidence = pytest.mark.parametrize(
    ("is_stored", "is_recalled"),
    [
        pytest.param(False, False, id="not stored"),
        pytest.param(True, False, id="stored, not recalled"),
        pytest.param(True, True, id="recalled"),
    ],
)


def trace_of_writer(turn_id: str) -> list[tuple[Any, dict[str, str], Any]]:
    """Return the trace of one call of a writer that saw a turn: predictor, inputs, outputs."""
    return [(None, {"dialogue": f"[{turn_id}] (3 May 2024) Ann: words"}, None)]


@pytest.mark.parametrize(
    ("is_stored", "is_recalled", "advice"),
    [
        (False, False, "nothing of it was stored"),
        (True, False, "did not find it"),
        (True, True, "the answer was still wrong"),
    ],
)
def test_feedback_for_a_writing_prompt_says_what_became_of_the_evidence_that_it_saw(
    views, question, is_stored, is_recalled, advice
):
    """The prompt `extract_facts` was called with the evidence, and the answer was wrong later."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)
    calls = trace_of_writer(question.evidence_ids[0])

    feedback = views.feedback(
        question, prediction, pred_name="method.writer.extract_facts", pred_trace=calls
    ).feedback

    assert advice in feedback
    assert question.question in feedback


@each_fate_of_the_evidence
def test_a_writing_prompt_that_saw_another_turn_has_nothing_to_learn_from_a_wrong_answer(
    views, question, is_stored, is_recalled
):
    """The prompt `extract_facts` was called with the turn D99:1, which is not the evidence."""
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
def test_feedback_for_the_answering_prompt_says_whether_it_saw_the_evidence(
    views, question, is_stored, is_recalled, sentence
):
    """The answer was wrong. Without the evidence, the prompt is not to blame."""
    prediction = prediction_for(question, "wrong", is_stored=is_stored, is_recalled=is_recalled)

    feedback = views.feedback(question, prediction, pred_name="task.answer").feedback

    assert sentence in feedback


@each_fate_of_the_evidence
def test_only_the_answer_decides_about_the_score_and_not_what_became_of_the_evidence(
    views, question, is_stored, is_recalled
):
    """`passed` says whether the calls of an answer become demos."""
    fate = {"is_stored": is_stored, "is_recalled": is_recalled}
    right = prediction_for(question, question.answer, **fate)
    wrong = prediction_for(question, "entirely wrong", **fate)

    assert views.score(question, right) == 1.0
    assert views.feedback(question, right).score == 1.0
    assert views.passed(question, right) is True
    assert views.passed(question, wrong) is False


class AnsweringPredictor:
    """Stands for the answering predictor in a trace, which names predictors by their path."""

    path = "task.answer"


class WritingPredictor:
    """Stands for a writing predictor in a trace."""

    path = WRITERS[0]


def call_of_answering_prompt(*passages: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return a call as a trace has it: predictor, inputs and outputs."""
    return (AnsweringPredictor(), {"passages": list(passages)}, None)


@pytest.mark.parametrize("form", ["line of the turn", "text of the turn", "record of the turn"])
def test_evidence_in_a_prompt_was_seen_although_the_program_does_not_report_it(
    views, question, form
):
    """A user's own program may show the evidence in a prompt and not say that it recalled it."""
    (turn_id,) = question.evidence_ids
    turn, session = question.history.turns[turn_id]
    passages = {
        "line of the turn": turn.line(session.time),
        "text of the turn": f"- {turn.text}",
        "record of the turn": {"turns": [{"id": turn_id, "text": turn.text.upper()}]},
    }
    calls = [call_of_answering_prompt(passages[form])]
    prediction = wrong_answer(question)

    of_program = views.feedback(question, prediction, trace=calls)
    of_prompt = views.feedback(question, prediction, pred_name="task.answer", pred_trace=calls)

    assert of_program.feedback.startswith("The evidence was in the context. ")
    assert of_prompt.feedback.startswith("The evidence was in the context. ")


def test_evidence_in_a_writing_prompt_does_not_count_as_seen_by_the_answering_prompt(
    views, question
):
    turn, _ = question.history.turns[question.evidence_ids[0]]
    writing_call = (WritingPredictor(), {"dialogue": turn.line()}, None)

    feedback = views.feedback(question, wrong_answer(question), [writing_call]).feedback

    assert "was never stored" in feedback


def test_a_prompt_with_other_words_has_not_shown_the_evidence(views, question):
    calls = [call_of_answering_prompt("Yes.")]

    feedback = views.feedback(question, wrong_answer(question), calls).feedback

    assert "was never stored" in feedback


CLAIMS_ABOUT_THE_MEMORY = ("stored", "recalled", "not in the context", "could not know")
"""Words of a claim that something was or was not in the memory."""


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
def test_feedback_claims_nothing_about_a_memory_that_does_not_say_which_turns_it_recalled(
    make_history, answer
):
    """A user's program may return only an answer, or also what it recalled, as words.

    Nobody can tell from this whether the evidence was there.
    """
    feedback = feedback_on_own_program(make_history(2), answer)

    for words in CLAIMS_ABOUT_THE_MEMORY:
        assert words not in feedback


@pytest.mark.parametrize(
    ("recalled", "sentence"),
    [
        pytest.param(
            [],
            "The evidence was not in the context (D1:1 was not recalled)",
            id="nothing",
        ),
        pytest.param(
            [{"text": "x", "sources": ["D2:1"]}],
            "The evidence was not in the context (D1:1 was not recalled)",
            id="another turn",
        ),
        pytest.param(
            [{"text": "x", "sources": ["D1:1"]}],
            "The evidence was in the context. ",
            id="the evidence",
        ),
    ],
)
def test_feedback_on_a_users_program_says_whether_it_recalled_the_evidence(
    make_history, recalled, sentence
):
    """The evidence is the turn D1:1. The program returns a wrong answer and what it recalled.

    What is in the memory of a user's own program is never known.
    """
    feedback = feedback_on_own_program(make_history(2), ("wrong", recalled))

    assert feedback.startswith(sentence)
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


def test_gepa_is_told_nothing_about_a_memory_that_the_readme_agent_does_not_have(
    reflection_prompts_of_gepa,
):
    """The agent shows all lines of the history to its model, so the evidence was in the prompt.

    In a reflection prompt, GEPA shows feedback to a model that proposes an instruction.
    """
    prompts = reflection_prompts_of_gepa()

    assert "The evidence was in the context. Wrong: the gold answer is 'marker" in prompts
    for words in CLAIMS_ABOUT_THE_MEMORY:
        assert words not in prompts


def test_show_says_of_the_readme_agent_that_the_evidence_stood_in_its_prompts(
    reflection_prompts_of_gepa, cli
):
    """The agent shows all lines of the history to its model, and has no memory.

    The list of wrong answers names each question as it is given to `--question`.
    """
    reflection_prompts_of_gepa()

    _, wrong_answers, _ = cli("show", "last", "--wrong")
    question_id = wrong_answers.partition("--question ")[2].split(": ")[0]
    _, details, _ = cli("show", "last", "--question", question_id)

    assert "wrong: all gold evidence stood in the prompts, answer incorrect" in wrong_answers
    for words in CLAIMS_ABOUT_THE_MEMORY:
        assert words not in wrong_answers
    assert "gold evidence that stood in the prompts:\n  [D1:" in details
    assert "not recalled" not in details


def test_a_users_metric_can_give_gepa_advice_for_a_single_prompt(reflection_prompts_of_gepa):
    """The metric `coach` takes the name and the calls of the prompt that it gives advice for."""
    prompts = reflection_prompts_of_gepa(metric="agent_of_readme:coach")

    advice = "ADVICE FOR method.reader.answerer.say.predict WITH ['lines', 'question']"
    assert advice in prompts


@pytest.fixture
def user_metric_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], JsonlBenchmark]:
    """A function that returns a benchmark with one of the user's metrics, by name."""
    (tmp_path / "user_metrics.py").write_text(USER_METRICS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    questions_file = own_questions(tmp_path)
    return lambda name: JsonlBenchmark.load(questions_file, metric=f"user_metrics:{name}")


def last_sentence_for_writer(jsonl_benchmark: JsonlBenchmark) -> str:
    """Return the end of the feedback for a writing prompt that was called with the evidence."""
    example = jsonl_benchmark.examples[0]
    calls = trace_of_writer(example.evidence_ids[0])
    views = MetricViews(jsonl_benchmark, writers=WRITERS)
    feedback = views.feedback(
        example,
        wrong_answer(example),
        calls,
        "method.writer.extract_facts",
        calls,
    ).feedback
    return feedback.splitlines()[-1]


def test_a_writing_prompt_gets_the_advice_of_a_metric_that_judges_single_prompts(
    user_metric_benchmark,
):
    """The user's metric `coach` takes the name and the calls of the prompt that it judges."""
    last_sentence = last_sentence_for_writer(user_metric_benchmark("coach"))

    assert last_sentence.endswith("ADVICE FOR method.writer.extract_facts WITH ['dialogue']")


def test_a_writing_prompt_does_not_get_the_words_of_a_metric_that_judges_answers(
    user_metric_benchmark,
):
    """The user's metric `strict` judges the answer, which a writing prompt does not give."""
    last_sentence = last_sentence_for_writer(user_metric_benchmark("strict"))

    assert last_sentence.endswith("Store what a later question may ask for.")


def test_a_users_metric_can_be_stricter_where_demos_are_made(user_metric_benchmark):
    """DSPy gives a metric a trace if it decides whether a call becomes a demo.

    The user's metric `strict` is 0.6 without a trace, and False with one.
    """
    jsonl_benchmark = user_metric_benchmark("strict")
    example = jsonl_benchmark.examples[0]
    views = MetricViews(jsonl_benchmark, writers=WRITERS)

    assert views.score(example, wrong_answer(example)) == 0.6
    assert views.passed(example, wrong_answer(example), []) is False


@pytest.mark.parametrize(
    ("shown_text", "is_recognized"),
    [
        ("I sold my old boat last Friday.", True),
        ("I sold my old boat last Friday [27 January 2023].", True),
        # Another Friday than the turn meant.
        ("I sold my old boat last Friday [20 January 2023].", False),
    ],
)
def test_a_turn_is_recognized_in_a_prompt_with_or_without_a_date_behind_its_words(
    shown_text, is_recognized
):
    """The session was on Monday, 30 January 2023, so "last Friday" was the 27th."""
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my old boat last Friday.")
    session = Session(id="D1", time=datetime(2023, 1, 30), turns=(turn,))
    history = History(id="ann", items=(session,))
    inputs = [{"dialogue": f"Ann: {shown_text}"}]

    recognized_turns = turns_in_inputs(inputs, ["D1:1"], history)

    assert recognized_turns == (["D1:1"] if is_recognized else [])
