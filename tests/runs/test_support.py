"""Runs by the metric `support`: which memories it prefers, that nothing answers, what it refuses, and its figures."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import Entry, EntryReader, History, Item, Memory, Method, Update, UserError, Writer
from mempiler.data.benchmark import Benchmark
from mempiler.optimizers.frontier import FrontierPoint
from mempiler.optimizers.metric_views import MetricViews
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import render_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.recorded_config import recorded_toml
from mempiler.runs.token_difference import tokens_of_questions

from .evaluations import own_questions

SESSIONS = (
    ("Hi! Lovely weather today, is it not, I have been out all morning.", "I moved to Lisbon."),
    ("What a week, I am so tired of the office and of all the meetings.", "My dog is called Rex."),
    ("By the way, the news were boring again and the radio is broken.", "I play the accordion."),
)
FACTS = ("Ann lives in Lisbon.", "Ann's dog is called Rex.", "Ann plays the accordion.")
INVENTED = ("Ann lives in Oslo and loves it.", "Ann has a cat, Tom.", "Ann plays golf on Sundays.")
STUFFED = (
    "Ann lives in Oslo, Quito, Hanoi, Accra, Perth, Turin, Dakar, Porto, Malmo, Bergen or Lisbon.",
    "Ann's dog is called Tom, Max, Felix, Leo, Simba, Oscar, Milo, Oliver, Charlie, Jasper or Rex.",
    "Ann plays golf, chess, tennis, piano, cello, drums, violin, flute, viola, horn or accordion.",
)
QUESTIONS = (
    ("Where does Ann live?", "Lisbon", "D1:2"),
    ("What is Ann's dog called?", "Rex", "D2:2"),
    ("What does Ann play?", "the accordion", "D3:2"),
)


class Notebook(Memory):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class ScriptedWriter(Writer[Notebook, None]):
    """Stores of the session with a number what a script says, without a model."""

    Memory = Notebook

    def __init__(self, script: Callable[[int, Item], Sequence[str]]) -> None:
        super().__init__()
        self.script = script

    def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
        number = int(item.id.removeprefix("D")) - 1
        notes = list(memory.notes)
        for text in self.script(number, item):
            notes.append(Entry(id=f"n{len(notes) + 1}", text=text, sources=(item.turns[-1].id,)))
        return Update(memory.replace(notes=tuple(notes)))


class ScriptedMethod(Method):
    def __init__(self, writer: ScriptedWriter) -> None:
        super().__init__(writer, EntryReader(k=5))


def message(text: str) -> dict[str, str]:
    return {"role": "user", "name": "Ann", "content": text}


def good(number: int, item: Item) -> list[str]:
    return [FACTS[number]]


def dropping(number: int, item: Item) -> list[str]:
    """Keeps the first fact alone."""
    return [FACTS[number]] if number == 0 else []


def inventing(number: int, item: Item) -> list[str]:
    """Stores what nobody said."""
    return [INVENTED[number]]


def stuffing(number: int, item: Item) -> list[str]:
    """Stores every word that an answer may have."""
    return [STUFFED[number]]


def copying(number: int, item: Item) -> list[str]:
    """Stores every session as it was said, and the question's words before it."""
    said = " ".join(turn.content for turn in item.turns)
    return [f"Ann said: {said}", f"What does Ann's dog play, where does Ann live? {said}"]


def program(script: Callable[[int, Item], Sequence[str]]) -> MemoryProgram:
    return MemoryProgram(
        ScriptedMethod(ScriptedWriter(script)), QuestionAnswering(), name=script.__name__
    )


@pytest.fixture(scope="module")
def examples() -> list[dspy.Example]:
    history = History.parse([[message(text) for text in session] for session in SESSIONS], id="ann")
    return [
        dspy.Example(history=history, question=question, answer=answer, evidence=[turn])
        for question, answer, turn in QUESTIONS
    ]


def evaluate(
    target: object, examples: Sequence[dspy.Example], **options: Any
) -> mempiler.Evaluation:
    settings = {"metric": "support", "lm": "offline", "progress": False, **options}
    return mempiler.evaluate(target, examples, **settings)


def test_memories_are_ranked_as_a_person_would(examples: list[dspy.Example]) -> None:
    scores: dict[str, float] = {}
    for script in (good, dropping, inventing, copying):
        evaluation = evaluate(program(script), examples, support_tokens=60)
        assert evaluation.score is not None
        scores[script.__name__] = evaluation.score
    assert scores["good"] == 1
    assert scores["good"] > scores["copying"] > scores["inventing"]
    assert scores["good"] > scores["dropping"] > scores["inventing"]


def test_an_entry_with_all_possible_words_does_not_fit_into_the_budget(
    examples: list[dspy.Example],
) -> None:
    assert evaluate(program(good), examples, support_tokens=20).score == 1
    assert evaluate(program(stuffing), examples, support_tokens=20).score == 0


def test_a_copier_stores_more_words_and_more_that_is_never_used(
    examples: list[dspy.Example],
) -> None:
    figures = {
        script: evaluate(program(script), examples, support_tokens=20).aggregate
        for script in (good, copying)
    }
    assert figures[good]["unused_entries"] == 0
    assert figures[copying]["unused_entries"] > 0.3
    assert (
        figures[copying]["stored_words_per_said_word"]
        > 2
        > 1
        > figures[good]["stored_words_per_said_word"]
    )


@pytest.fixture
def own_results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a results folder of its own.

    Runs of one second are ordered by their names, so "last" might be a run of another test.
    """
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))


@pytest.mark.usefixtures("own_results_folder")
def test_a_question_that_cannot_be_answered_pulls_no_mean_down(
    examples: list[dspy.Example],
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    unanswerable = dspy.Example(
        history=examples[0].history, question="Who is Bob?", answer="Not mentioned"
    )
    evaluation = evaluate(program(good), [*examples, unanswerable])
    assert len(evaluation.rows) == 4
    assert evaluation.score == 1
    figures = evaluation.by_category()["all"]
    assert (figures["n"], figures["score"], figures["in_score"]) == (3, 1, True)
    # The page of the run has the same figures.
    _, out, _ = cli("show", "last")
    assert "not in score" not in out


def test_a_question_costs_no_call(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program(good), examples)
    assert sum(evaluation.calls.values()) == 0
    assert {row.answer for row in evaluation.rows} == {""}
    assert evaluation.failures == 0
    # The same program answers where the metric needs an answer.
    assert evaluate(program(good), examples, metric="f1").calls["task"] == len(examples)


def test_writing_is_all_that_a_method_with_prompts_is_asked_for(
    examples: list[dspy.Example],
) -> None:
    evaluation = evaluate("memory-r2", examples)
    assert evaluation.construction is not None
    assert sum(evaluation.calls.values()) == evaluation.construction.calls > 0
    plan = mempiler.plan(
        "memory-r2", testset=examples, optimizer=None, metric="support", progress=False
    )
    assert plan.phases["recalling"].high == 0
    assert plan.phases["writing memories"].high > 0


def test_an_entry_that_a_later_session_changed_was_of_use() -> None:
    class Diary(ScriptedWriter):
        """Keeps one note, with every session added to it, and one that nobody needs."""

        def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
            text = " ".join([*(note.text for note in memory.notes[:1]), item.turns[-1].content])
            notes = (Entry(id="diary", text=text), Entry(id="motto", text="Carpe diem."))
            return Update(memory.replace(notes=notes))

    history = History.parse([[message(text) for text in session] for session in SESSIONS])
    example = dspy.Example(history=history, question="Zebra?", answer="zebra")
    diary = MemoryProgram(ScriptedMethod(Diary(good)), QuestionAnswering(), name="diary")
    evaluation = evaluate(diary, [example], support_tokens=1)
    assert evaluation.aggregate["unused_entries"] == 0.5


def test_the_figures_are_printed_and_kept(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program(copying), examples, support_tokens=20)
    assert "of no use (unused_entries)" in str(evaluation)
    assert "words stored for each word said" in str(evaluation)
    assert evaluation.to_dict()["aggregate"].keys() == {
        "unused_entries",
        "stored_words_per_said_word",
    }
    assert not evaluate(program(copying), examples, metric="f1").aggregate


def test_without_answers_a_question_is_called_neither_right_nor_wrong(
    examples: list[dspy.Example],
) -> None:
    reasons = [row.reason for row in evaluate(program(dropping), examples).rows]
    assert sorted(reasons) == ["supported", "unsupported", "unsupported"]


def test_a_longer_context_takes_more_tokens_though_nothing_answers(
    examples: list[dspy.Example],
) -> None:
    tokens: dict[str, list[float]] = {}
    for script in (good, copying):
        evaluation = evaluate(program(script), examples)
        tokens[script.__name__] = tokens_of_questions(evaluation, evaluation.headline_rows)
    for tokens_of_good, tokens_of_copying in zip(tokens["good"], tokens["copying"], strict=True):
        assert 0 < tokens_of_good < tokens_of_copying / 3


def test_gepa_hears_that_a_longer_context_costs_more(examples: list[dspy.Example]) -> None:
    benchmark = Benchmark.from_examples(examples, "support")
    views = MetricViews(benchmark)
    example = benchmark.examples[0]
    objectives: dict[str, float] = {}
    for script in (good, copying):
        prediction = program(script).recalling_only()(**example.inputs())
        scores = views.feedback(example, prediction).objective_scores
        objectives[script.__name__] = scores["prompt_tokens"]
    assert 0 > objectives["good"] > 3 * objectives["copying"]


def test_the_page_names_the_tokens_that_count_without_answers(
    examples: list[dspy.Example],
) -> None:
    points = (FrontierPoint(0, (), {}, 0.5, 3, 40.0, on_frontier=True),)
    titles: dict[str, str] = {}
    for metric in ("support", "f1"):
        evaluation = evaluate(program(good), examples, metric=metric)
        page = run_page("compile", "a-run", {"before": evaluation}, frontier=points)
        titles[metric] = render_page(page)
    assert "tokens of recalled context and prompts, a question" in titles["support"]
    assert "tokens of prompts, a question" in titles["f1"]


@pytest.mark.usefixtures("own_results_folder")
def test_questions_without_support_are_shown_with_the_words_that_were_lost(
    examples: list[dspy.Example],
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    evaluate(program(dropping), examples)
    _, out, _ = cli("show", "last")
    assert "--wrong: the questions without support (2)" in out
    assert "over all questions" in out
    assert "over all answers" not in out

    _, out, _ = cli("show", "last", "--wrong")
    assert "support: 0% of the words of 'Rex'" in out
    assert "Never said in any entry about it: rex." in out
    assert "answer" not in out.replace("gold answer's words", "")
    question_id = next(line for line in out.splitlines() if " --question " in line)
    _, out, _ = cli("show", "last", "--question", question_id.split()[4].rstrip(":"))
    assert out.count("Never said in any entry about it") == 1


def test_a_question_without_support_is_no_wrong_answer_on_the_page(
    examples: list[dspy.Example],
) -> None:
    evaluation = evaluate(program(dropping), examples)
    html = render_page(run_page("evaluate", "a-run", {"score": evaluation}))
    assert "Which questions have no support" in html
    assert "without support or failed" in html
    assert "Why answers are wrong" not in html


@pytest.mark.usefixtures("own_results_folder")
def test_a_run_is_resumed_with_the_default_budget_written_out(
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    words = ["evaluate", "turn-rag", "--benchmark", "locomo", "--metric", "support", "--test", "2"]
    assert cli(*words)[0] == 0
    code, _, err = cli(*words, "--support-tokens", "300", "--resume", "last")
    assert code == 0, err
    code, _, err = cli(*words, "--support-tokens", "200", "--resume", "last")
    assert code == 2
    assert "was started with support_tokens = 300, not 200" in err


@pytest.mark.usefixtures("own_results_folder")
def test_a_model_that_is_asked_nothing_needs_no_key(
    cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    options = ["--benchmark", "locomo", "--metric", "support", "--lm", "anthropic/x", "--test", "2"]
    code, _, err = cli("evaluate", "turn-rag", *options)
    assert code == 0, err
    code, _, err = cli("evaluate", "memory-r2", *options)
    assert code == 2
    assert "'anthropic/x': there is no key; set ANTHROPIC_API_KEY" in err


def test_a_system_that_answers_by_itself_is_refused(examples: list[dspy.Example]) -> None:
    def agent(history: History, question: str) -> str:
        return "Lisbon"

    with pytest.raises(UserError, match="answers by itself and shows no memory"):
        evaluate(agent, examples)


def test_a_store_of_ones_own_is_searched(examples: list[dspy.Example]) -> None:
    class Store:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def add(self, session: Item) -> None:
            self.lines.extend(session.lines())

        def search(self, query: str, k: int) -> list[str]:
            return self.lines[:k]

    evaluation = evaluate(Store, examples)
    assert evaluation.score == 1
    assert evaluation.aggregate == {}
    assert sum(evaluation.calls.values()) == 0


def test_a_model_to_answer_is_refused(examples: list[dspy.Example]) -> None:
    with pytest.raises(UserError, match="asks for no answer: --answer-lm has nothing to do"):
        evaluate(program(good), examples, answer_lm="offline")


def test_a_budget_goes_with_support_alone(examples: list[dspy.Example]) -> None:
    with pytest.raises(UserError, match="goes with the metric support alone"):
        evaluate(program(good), examples, metric="f1", support_tokens=20)
    with pytest.raises(UserError, match="support_tokens = 0"):
        evaluate(program(good), examples, support_tokens=0)


@pytest.mark.parametrize(
    ("method", "stage", "advice"),
    [
        ("memory-r2", "all", "take --stage write$"),
        ("memory-r2", "read", "take --stage write$"),
        ("rgmem", "all", "take --stage write or --stage read$"),
        ("turn-rag", "all", "turn-rag writes and recalls without a prompt"),
    ],
)
def test_a_stage_with_the_prompt_that_answers_is_refused(
    method: str, stage: Any, advice: str
) -> None:
    with pytest.raises(UserError, match=advice):
        mempiler.compile(method, benchmark="locomo", metric="support", stage=stage, progress=False)


def test_a_training_refuses_the_metric() -> None:
    with pytest.raises(UserError, match="asks for no answer, which rewards of a training do"):
        mempiler.train(benchmark="memory-env", metric="support", lm="local:tiny", progress=False)


def test_an_optimizer_sees_the_calls_that_wrote_and_recalls_without_answering(
    examples: list[dspy.Example],
) -> None:
    start = mempiler.build("memory-r2")
    student = start.staged("write", answers=False)
    with dspy.context(lm=mempiler.language_model("offline"), trace=[]):
        prediction = student(**Benchmark.from_examples(examples).examples[0].inputs())
        trace = list(dspy.settings.trace)
    assert prediction.answer == ""
    assert prediction.context.hits
    paths = {predictor.path for predictor, _, _ in trace}
    assert paths <= start.writer_names()
    assert paths
    assert "task.answer" not in dict(student.named_parameters())


def test_the_stage_read_tunes_the_prompts_that_recall_and_not_the_one_that_answers() -> None:
    names = {name for name, _ in mempiler.build("rgmem").staged("read").named_predictors()}
    student = mempiler.build("rgmem").staged("read", answers=False)
    tuned = {name for name, _ in student.named_predictors()}
    assert tuned
    assert names - tuned == {"task.answer"}


def test_writers_hear_which_words_were_lost_where(examples: list[dspy.Example]) -> None:
    benchmark = Benchmark.from_examples(examples, "support")
    views = MetricViews(benchmark, writers=["writer"])
    example = benchmark.examples[1]
    prediction = program(dropping).recalling_only()(**example.inputs())

    def heard(turn_id: str) -> str:
        calls: Any = [(None, {"dialogue": f"[{turn_id}] Ann: words"}, None)]
        return views.feedback(example, prediction, None, "writer", calls).feedback

    assert "Never said in any entry about it: rex" in heard("D2:2")
    assert "My dog is called Rex." in heard("D2:2")
    assert heard("D1:1").startswith("This call did not see what the question was about")


COMPILE = (
    "compile memory-r2 --benchmark jsonl --metric support --optimizer gepa --stage write --min-n 8"
)
SMALL = "--optimizer-set max_metric_calls=12 --train 9 --dev 8 --test 8"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return own_questions(tmp_path_factory.mktemp("support"))


@pytest.mark.usefixtures("own_results_folder")
def test_the_writing_of_a_memory_is_compiled_from_the_command_line(
    data: str,
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    words = [*COMPILE.split(), *SMALL.split(), "--data", data, "--support-tokens", "50", "--json"]
    code, out, _ = cli(*words)
    assert code == 0
    result = json.loads(out)
    assert result["before"]["score"] > 0
    assert "unused_entries" in result["before"]["aggregate"]
    # No prompt that answers was asked.
    assert {name.rpartition(".")[0] for name in result["usage"]["call_outcomes"]} == {
        "method.writer"
    }

    # The budget is recorded wherever the metric is.
    run = RunFolder.open("last")
    assert read_manifest(result["program"]).benchmark["support_tokens"] == 50
    assert run.read()["parameters"]["support_tokens"] == 50
    assert "support_tokens = 50" in recorded_toml(run)

    # A run is resumed with the same budget.
    _, out, _ = cli(*words, "--resume", "last")
    resumed = json.loads(out)
    assert resumed["before"]["score"] == result["before"]["score"]
    words[words.index("50")] = "60"
    code, _, err = cli(*words, "--resume", "last")
    assert code == 2
    assert "was started with support_tokens = 50, not 60" in err


def test_the_compiled_program_answers_questions(data: str, tmp_path: Path) -> None:
    result = mempiler.compile(
        "memory-r2",
        benchmark="jsonl",
        data=data,
        metric="support",
        optimizer=mempiler.optimizers.Gepa(max_metric_calls=12),
        stage="write",
        train=9,
        dev=8,
        test=8,
        min_n=8,
        force=True,
        progress=False,
    )
    result.save(tmp_path / "saved")
    loaded = mempiler.load(tmp_path / "saved")
    history = mempiler.benchmark("jsonl", data).examples[0].history
    with dspy.context(lm=mempiler.language_model("offline")):
        assert loaded(history=history, question="What is fact 00?").answer
        assert result.program(history=history, question="What is fact 00?").answer
