"""Writes what a run answered as two public harnesses keep it, so that their tables and pages can show it.

    amb           vectorize-io/agent-memory-benchmark: outputs/DATASET/RUN/rag/SPLIT.json
    omnimemeval   MemTensor/OmniMemEval: results/BENCHMARK/LIB-VERSION/LIB_BENCHMARK_responses.json and _judged.json

Questions outside the headline score are left out, so that an accuracy is the run's score; neither harness asks LoCoMo's
category 5. What a run does not know is null or empty. `runs.external` reads both as recorded answers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...data.benchmark import Benchmark
from ...data.catalog import benchmark as load_benchmark
from ...errors import DataError, UserError
from ...records.atomic_file import atomic_write
from ..compare import FinishedRun
from ..external import harness_id
from ..pages.page import heading
from ..results import mean
from ..rows import QuestionTrace, Row

_AMB = {
    "locomo": ("sample_id", "category"),
    "longmemeval": ("user_id", "question_type"),
    "personamem": ("persona_id", "question_type"),
    "beam": ("conversation_id", "question_category"),
}
"""Its benchmarks, and what it calls the conversation or user of a question, and its type."""
_LOCOMO = {"1": "single-hop", "2": "temporal", "3": "multi-hop", "4": "open-domain"}
"""amb's names of LoCoMo's categories."""
_OMNIMEMEVAL = {
    "locomo": "locomo_exp_user_{}",
    "longmemeval": "lme_exper_user_mempiler_{}",
    "beam": "beam_exp_user_mempiler_{}",
}
"""Its benchmarks, and what it calls the conversations of a file, which it counts from 0; BEAM's have a number."""
_NARROWING = ("metric", "categories", "evidenced", "limit")
"""Options of benchmarks that leave questions out, or change how they are scored."""

_Asked = Sequence[tuple[Row, dspy.Example]]


def write_results(run: FinishedRun, form: str, path: Path, overwrite: bool = False) -> list[Path]:
    """Writes the questions of a run in the form of a harness; returns the files.

    Args:
        run: Whose.
        form: "amb" or "omnimemeval".
        path: The file; beside omnimemeval's answers their verdicts are written, if a judge said right or wrong.
        overwrite: Whether files that are there are replaced.

    Raises:
        UserError: The harness has not the run's benchmark, or a file is there already.
        DataError: The benchmark's file does not hold the questions any more.
    """
    found, known = run.evaluation, _AMB if form == "amb" else _OMNIMEMEVAL
    if found.benchmark not in known:
        raise UserError(f"{form} has no benchmark {found.benchmark}; it has {', '.join(known)}")
    options = {name: value for name, value in (run.settings.get("options") or {}).items() if name not in _NARROWING}
    benchmark = load_benchmark(found.benchmark, run.settings.get("data"), **options)
    rows = {(row.id, row.question): row for row in found.headline_rows}
    keys = [(str(each.id), str(each.question)) for each in benchmark.examples]
    asked = [(rows[key], each) for key, each in zip(keys, benchmark.examples, strict=True) if key in rows]
    if len(asked) < len(rows):
        raise DataError(f"{len(rows) - len(asked)} questions of {run.name} are not in {benchmark.source.path} any more")
    if found.benchmark == "beam" and len({row.group.partition("/")[0] for row in rows.values()}) > 1:
        raise UserError(
            f"{form} keeps one size of {found.benchmark} in a file; choose it with --benchmark-set size=..."
        )
    binary = all(row.score in (0, 1) for row in rows.values())
    if form == "amb":
        files: dict[Path, Any] = {path: _amb(run, benchmark, asked, binary, options)}
    else:
        files = {path: _omnimemeval(benchmark, asked)}
        if found.judge and binary and benchmark.name != "beam":
            twin = path.with_name(f"{path.stem.removesuffix('_responses')}_judged.json")
            files[twin] = _omnimemeval(benchmark, [each for each in asked if each[0].failure is None], judged=True)
    for each in files:
        if os.path.lexists(each) and not (overwrite and each.is_file()):
            raise UserError(f"{each}: is there already; choose another name, or give --force to replace a file")
    for each, content in files.items():
        with atomic_write(each) as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
    return list(files)


def _amb(
    run: FinishedRun, benchmark: Benchmark, asked: _Asked, binary: bool, options: Mapping[str, Any]
) -> dict[str, Any]:
    found, source, (unit, kind) = run.evaluation, benchmark.source, _AMB[benchmark.name]
    results = []
    for row, example in asked:
        seen = row.trace or QuestionTrace()
        name = _LOCOMO[row.category] if benchmark.name == "locomo" else row.category
        results.append(
            {
                "query_id": harness_id(benchmark.name, example),
                "query": row.question,
                "answer": row.answer,
                "reasoning": "",
                "context": "\n".join(entry.line for entry in seen.entries),
                "context_tokens": row.context_tokens,
                "retrieve_time_ms": row.search,
                "gold_answers": [gold] if (gold := _gold(example)) else [],
                "correct": row.right,
                "judge_reason": row.failure.message if row.failure else seen.feedback,
                "score": None if binary else row.score,
                "meta": {unit: row.group.rpartition("/")[2], kind: name, **_rubric(example)},
                "category_axes": {"Question Type": [name]},
                **dict.fromkeys(("raw_response", "trajectory", "git_history")),
            }
        )
    times, tokens = mean([row.search for row, _ in asked]), mean([row.context_tokens for row, _ in asked])
    lms = run.basis.get("answer_lm") or found.lm, run.basis.get("judge_lm")
    answer_llm, judge_llm = (name and str(name).replace("/", ":", 1) for name in lms)
    file = re.sub("^(longmemeval|questions)_|_cleaned$", "", Path(source.path).stem)
    return {
        "dataset": benchmark.name,
        "split": "sample" if source.sample else options.get("length") or options.get("size", file).lower(),
        "category": None,
        "memory_provider": found.program,
        "run_name": run.name,
        "mode": "rag",
        "oracle": False,
        "total_queries": len(results),
        "correct": sum(row.right for row, _ in asked),
        "accuracy": found.score,
        "ingestion_time_ms": 1000 * found.construction.seconds if found.construction else None,
        "ingested_docs": sum(map(len, {example.history for _, example in asked})),
        "description": f"Mempiler: {heading(found)}; metric {run.basis.get('metric') or benchmark.metric_name}",
        "answer_llm": answer_llm,
        "judge_llm": judge_llm,
        "results": results,
        "avg_retrieve_time_ms": times and round(times, 1),
        "avg_context_tokens": tokens and round(tokens, 1),
    }


def _rubric(example: dspy.Example) -> dict[str, list[str]]:
    return {"rubric": list(example.rubric)} if "rubric" in example else {}


def _gold(example: dspy.Example) -> str:
    """The gold answer; none where the reader put BEAM's rubric in its place."""
    return "" if example.answer == "\n".join(example.get("rubric") or ()) else str(example.answer)


def _omnimemeval(benchmark: Benchmark, asked: _Asked, judged: bool = False) -> dict[str, Any]:
    groups: dict[str, list[str]] = {}
    for each in benchmark.examples:
        groups.setdefault(benchmark.group(each), []).append(str(each.id))
    numbers = {group: n for n, group in enumerate(groups)}
    found: dict[str, Any] = {}
    for row, example in asked:
        search, (size, _, number) = row.search or 0.0, row.group.rpartition("/")
        key = _OMNIMEMEVAL[benchmark.name].format(number if benchmark.name == "beam" else numbers[row.group])
        record: dict[str, Any] = {
            "question": row.question,
            "answer": row.answer,
            "category": int(row.category) if row.category.isdecimal() else row.category,
            "golden_answer": _gold(example),
            "response_duration_ms": max(0.0, 1000 * row.answering - search),
            "search_duration_ms": search,
            "status": "success",
        }
        if row.failure:
            error = {"stage": "answer", "type": row.failure.kind, "message": row.failure.message}
            record |= {"status": "skipped", "skip_reason": "answer_failed", "error": error}
        if judged:
            record |= {"llm_judgments": {"judgment_1": row.right}, "nlp_metrics": {}}
            record["total_duration_ms"] = record["response_duration_ms"] + search
        if benchmark.name == "longmemeval":
            turns = (example.history.turns[id][0] for id in example.evidence)
            evidence = [f"{turn.speaker} : {turn.text}" for turn in turns]
            found[key] = record | {"user_id": key, "question_date": example.date, "answer_evidences": evidence}
            continue
        if benchmark.name == "beam":
            at = groups[row.group].index(row.id)
            record |= {"key": f"{key}__q{at}", "conv_id": number, "question_idx": at, **_rubric(example)}
            record |= {"dimension": record.pop("category"), "scale": size, "difficulty": None}
        found.setdefault(key, []).append(record)
    return found
