"""Write the answers of a run as two public harnesses keep them, so that their pages can show them.

    amb           vectorize-io/agent-memory-benchmark: outputs/DATASET/RUN/rag/SPLIT.json
    omnimemeval   MemTensor/OmniMemEval: results/BENCHMARK/LIB-VERSION/LIB_BENCHMARK_responses.json
                  and LIB_BENCHMARK_judged.json

Questions outside the headline score are left out, so that an accuracy there is the run's score;
neither harness asks LoCoMo's category 5. What a run does not know is null or empty.
`runs.external` reads both kinds of files as recorded answers.

Example:
    write_harness_results(load_run("last"), "amb", Path("results.json"))
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from ...data.benchmark import Benchmark
from ...data.catalog import benchmark as load_benchmark
from ...errors import DataError, UserError
from ...records.atomic_file import atomic_write
from ..compare import FinishedRun
from ..external import amb_question_id
from ..pages.facts import describe_evaluation
from ..question_trace import QuestionTrace
from ..row_metrics import mean
from ..rows import Row


@dataclass(frozen=True)
class _AmbFields:
    """What amb calls two properties of a question of a benchmark."""

    group: str
    """The conversation or user that the question is about."""
    category: str


_AMB_BENCHMARKS = {
    "locomo": _AmbFields("sample_id", "category"),
    "longmemeval": _AmbFields("user_id", "question_type"),
    "personamem": _AmbFields("persona_id", "question_type"),
    "beam": _AmbFields("conversation_id", "question_category"),
}

_AMB_LOCOMO_CATEGORIES = {
    "1": "single-hop",
    "2": "temporal",
    "3": "multi-hop",
    "4": "open-domain",
}

_OMNIMEMEVAL_BENCHMARKS = {
    "locomo": "locomo_exp_user_{}",
    "longmemeval": "lme_exper_user_mempiler_{}",
    "beam": "beam_exp_user_mempiler_{}",
}
"""What omnimemeval calls the conversations of a benchmark.

It counts them from 0 in the order of the file; BEAM's have a number of their own.
"""

_NARROWING_OPTIONS = ("metric", "categories", "evidenced", "limit")
"""Options that leave questions out, or change their scores: the file is read without them."""


@dataclass(frozen=True)
class _AnsweredQuestion:
    """A question of the benchmark with the row of the run."""

    row: Row
    example: dspy.Example


def write_harness_results(
    run: FinishedRun, harness: str, path: Path, overwrite: bool = False
) -> list[Path]:
    """Write the questions of a run in the form of a harness.

    Args:
        run: The run.
        harness: "amb" or "omnimemeval".
        path: The file. If a judge said right or wrong, omnimemeval's verdicts are written beside
            it, into a file that ends in "_judged.json".
        overwrite: Whether files that are there already are replaced.

    Returns:
        The files.

    Raises:
        UserError: The harness does not have the benchmark, or a file is there already.
        DataError: The benchmark's file does not hold the questions any more.
    """
    name = run.evaluation.benchmark
    known = _AMB_BENCHMARKS if harness == "amb" else _OMNIMEMEVAL_BENCHMARKS
    if name not in known:
        raise UserError(f"{harness} has no benchmark {name}; it has {', '.join(known)}")

    options: dict[str, Any] = {}
    for option, value in (run.settings.get("options") or {}).items():
        if option not in _NARROWING_OPTIONS:
            options[option] = value
    benchmark = load_benchmark(name, run.settings.get("data"), **options)
    questions = _answered_questions(run, benchmark)
    if name == "beam":
        _refuse_several_sizes(questions, harness)

    if harness == "amb":
        files: dict[Path, Any] = {path: _amb_results(run, benchmark, questions, options)}
    else:
        files = _omnimemeval_files(run, benchmark, questions, path)

    for file_path in files:
        is_replaceable = overwrite and file_path.is_file()
        if os.path.lexists(file_path) and not is_replaceable:
            advice = "choose another name, or give --force to replace a file"
            raise UserError(f"{file_path}: is there already; {advice}")
    for file_path, content in files.items():
        with atomic_write(file_path) as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
    return list(files)


def _answered_questions(run: FinishedRun, benchmark: Benchmark) -> list[_AnsweredQuestion]:
    """Return the headline questions of a run, in the order of the benchmark.

    Raises:
        DataError: The benchmark does not hold one of them.
    """
    rows = {(row.id, row.question): row for row in run.evaluation.headline_rows}
    questions: list[_AnsweredQuestion] = []
    for example in benchmark.examples:
        row = rows.get((str(example.id), str(example.question)))
        if row is not None:
            questions.append(_AnsweredQuestion(row, example))

    missing = len(rows) - len(questions)
    if missing > 0:
        raise DataError(
            f"{missing} questions of {run.name} are not in {benchmark.source.path} any more"
        )
    return questions


def _refuse_several_sizes(questions: Sequence[_AnsweredQuestion], harness: str) -> None:
    """Refuse a run on several sizes of BEAM, which stand before the slash of a row's group."""
    sizes = {question.row.group.partition("/")[0] for question in questions}
    if len(sizes) > 1:
        advice = "choose it with --benchmark-set size=..."
        raise UserError(f"{harness} keeps one size of beam in a file; {advice}")


def _has_binary_scores(questions: Sequence[_AnsweredQuestion]) -> bool:
    """Tell whether every score is right or wrong, nothing between."""
    return all(question.row.score in (0, 1) for question in questions)


def _gold_answer(example: dspy.Example) -> str:
    """Return the gold answer; "" for BEAM, whose rubric stands in its place."""
    rubric = example.get("rubric") or ()
    if example.answer == "\n".join(rubric):
        return ""
    return str(example.answer)


def _rubric_field(example: dspy.Example) -> dict[str, list[str]]:
    """Return the field with the rubric of a question, if it has one."""
    if "rubric" not in example:
        return {}
    return {"rubric": list(example.rubric)}


def _amb_results(
    run: FinishedRun,
    benchmark: Benchmark,
    questions: Sequence[_AnsweredQuestion],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of a result file of agent-memory-benchmark (amb).

    The fields are those of amb. Its mode "rag" stands for a memory that is searched for each
    question.
    """
    evaluation = run.evaluation
    has_binary_scores = _has_binary_scores(questions)
    results = [_amb_result(benchmark.name, question, has_binary_scores) for question in questions]

    rows = [question.row for question in questions]
    search_ms = mean([row.search for row in rows])
    context_tokens = mean([row.context_tokens for row in rows])
    writing_ms = None
    if evaluation.construction is not None:
        writing_ms = 1000 * evaluation.construction.seconds
    histories = {question.example.history for question in questions}
    metric = run.conditions.get("metric") or benchmark.metric_name

    return {
        "dataset": benchmark.name,
        "split": _amb_split(benchmark, options),
        "category": None,
        "memory_provider": evaluation.program,
        "run_name": run.name,
        "mode": "rag",
        "oracle": False,
        "total_queries": len(results),
        "correct": sum(row.right for row in rows),
        "accuracy": evaluation.score,
        "ingestion_time_ms": writing_ms,
        "ingested_docs": sum(len(history) for history in histories),
        "description": f"Mempiler: {describe_evaluation(evaluation)}; metric {metric}",
        "answer_llm": _amb_model(run.conditions.get("answer_lm") or evaluation.lm),
        "judge_llm": _amb_model(run.conditions.get("judge_lm")),
        "results": results,
        "avg_retrieve_time_ms": None if search_ms is None else round(search_ms, 1),
        "avg_context_tokens": None if context_tokens is None else round(context_tokens, 1),
    }


def _amb_split(benchmark: Benchmark, options: Mapping[str, Any]) -> str:
    """Return the name of the benchmark's part in agent-memory-benchmark (amb), e.g. "128k".

    A part is one of the files or sizes that a benchmark was released in.
    """
    source = benchmark.source
    if source.sample:
        # The bundled sample is no released part.
        return "sample"
    # An option that chose the part names it: `length` of PersonaMem, or `size` of BEAM.
    if options.get("length"):
        return options["length"]
    if "size" in options:
        return options["size"].lower()

    # Otherwise the file names it: "s" of "longmemeval_s_cleaned", "32k" of "questions_32k".
    file_name = Path(source.path).stem
    return re.sub("^(longmemeval|questions)_|_cleaned$", "", file_name).lower()


def _amb_model(name: Any) -> str | None:
    """Return the name of a language model as amb writes it, e.g. "openai:gpt-4.1-mini"."""
    if not name:
        return name
    return str(name).replace("/", ":", 1)


def _amb_result(
    benchmark: str, question: _AnsweredQuestion, has_binary_scores: bool
) -> dict[str, Any]:
    """Return what amb keeps of a question. Fields that Mempiler has nothing for are empty."""
    row = question.row
    example = question.example
    trace = row.trace or QuestionTrace()
    fields = _AMB_BENCHMARKS[benchmark]

    category = row.category
    if benchmark == "locomo":
        category = _AMB_LOCOMO_CATEGORIES[row.category]
    gold_answer = _gold_answer(example)
    judge_reason = trace.feedback
    if row.failure:
        judge_reason = row.failure.message

    return {
        "query_id": amb_question_id(benchmark, example),
        "query": row.question,
        "answer": row.answer,
        "reasoning": "",
        "context": "\n".join(entry.line for entry in trace.entries),
        "context_tokens": row.context_tokens,
        "retrieve_time_ms": row.search,
        "gold_answers": [gold_answer] if gold_answer else [],
        "correct": row.right,
        "judge_reason": judge_reason,
        # Where scores are only 0 or 1, "correct" says it all.
        "score": None if has_binary_scores else row.score,
        "meta": {
            # amb's files have the name of a conversation without what stands before it here.
            fields.group: row.group.rpartition("/")[2],
            fields.category: category,
            **_rubric_field(example),
        },
        "category_axes": {"Question Type": [category]},
        "raw_response": None,
        "trajectory": None,
        "git_history": None,
    }


def _omnimemeval_files(
    run: FinishedRun, benchmark: Benchmark, questions: Sequence[_AnsweredQuestion], path: Path
) -> dict[Path, Any]:
    """Return the contents of the files that omnimemeval reads, by their paths.

    The first file has all answers. A second one has the answers with the verdicts of the judge. It
    is only written if a judge called every answer right or wrong: the format has no other verdicts.
    """
    files: dict[Path, Any] = {path: _omnimemeval_results(benchmark, questions, judged=False)}

    # BEAM's judge grades the items of a rubric, and does not say right or wrong.
    is_graded_by_rubric = benchmark.name == "beam"
    has_verdicts = run.evaluation.judge and _has_binary_scores(questions)
    if has_verdicts and not is_graded_by_rubric:
        name = path.stem.removesuffix("_responses")
        judged_path = path.with_name(f"{name}_judged.json")
        # A question that failed has no verdict.
        answered = [question for question in questions if question.row.failure is None]
        files[judged_path] = _omnimemeval_results(benchmark, answered, judged=True)
    return files


def _omnimemeval_results(
    benchmark: Benchmark, questions: Sequence[_AnsweredQuestion], judged: bool
) -> dict[str, Any]:
    """Return the content of a file of omnimemeval: questions by conversation.

    Args:
        benchmark: The benchmark.
        questions: The questions of the file.
        judged: Whether it is the file with the verdicts.
    """
    ids_by_group: dict[str, list[str]] = {}
    for example in benchmark.examples:
        ids_by_group.setdefault(benchmark.group(example), []).append(str(example.id))
    group_numbers = {group: number for number, group in enumerate(ids_by_group)}

    results: dict[str, Any] = {}
    for question in questions:
        row = question.row
        example = question.example
        size, _, beam_number = row.group.rpartition("/")
        number = beam_number if benchmark.name == "beam" else group_numbers[row.group]
        conversation = _OMNIMEMEVAL_BENCHMARKS[benchmark.name].format(number)

        record = _omnimemeval_record(question)
        if judged:
            record["llm_judgments"] = {"judgment_1": row.right}
            record["nlp_metrics"] = {}
            record["total_duration_ms"] = (
                record["response_duration_ms"] + record["search_duration_ms"]
            )

        if benchmark.name == "longmemeval":
            # Each conversation has one question, which stands there without a list.
            record["user_id"] = conversation
            record["question_date"] = example.date
            record["answer_evidences"] = _evidence_texts(example)
            results[conversation] = record
            continue

        if benchmark.name == "beam":
            position = ids_by_group[row.group].index(row.id)
            record["key"] = f"{conversation}__q{position}"
            record["conv_id"] = beam_number
            record["question_idx"] = position
            record.update(_rubric_field(example))
            record["dimension"] = record.pop("category")
            record["scale"] = size
            record["difficulty"] = None
        results.setdefault(conversation, []).append(record)
    return results


def _omnimemeval_record(question: _AnsweredQuestion) -> dict[str, Any]:
    """Return what omnimemeval keeps of a question of any benchmark."""
    row = question.row
    search_ms = row.search or 0.0
    record: dict[str, Any] = {
        "question": row.question,
        "answer": row.answer,
        "category": int(row.category) if row.category.isdecimal() else row.category,
        "golden_answer": _gold_answer(question.example),
        "response_duration_ms": max(0.0, 1000 * row.answering - search_ms),
        "search_duration_ms": search_ms,
        "status": "success",
    }
    if row.failure:
        record["status"] = "skipped"
        record["skip_reason"] = "answer_failed"
        record["error"] = {
            "stage": "answer",
            "type": row.failure.kind,
            "message": row.failure.message,
        }
    return record


def _evidence_texts(example: dspy.Example) -> list[str]:
    """Return the turns of the gold evidence as omnimemeval writes them."""
    texts: list[str] = []
    for turn_id in example.evidence:
        turn, _ = example.history.turns[turn_id]
        texts.append(f"{turn.speaker} : {turn.text}")
    return texts
