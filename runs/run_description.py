"""What is written down of a run: the parameters of its MLflow run, and the data in its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data.benchmark import Benchmark
from ..data.dataset import Split
from ..data.support import Support
from ..programs.program import MemoryProgram
from .config import RunConfig


def parameters(program: MemoryProgram, config: RunConfig, benchmark: Benchmark) -> dict[str, Any]:
    """Return the settings of a run as MLflow logs them.

    Models that a run may do without, such as a judge, are logged as None. Options that few runs
    have, such as an answer model, are left out where they are not set.
    """
    source = benchmark.source
    models = config.models
    embedder = program.method.embedder
    logged: dict[str, Any] = {
        "program": program.name,
        "task": program.task.name,
        "benchmark": benchmark.name,
        "data": source.path,
        "data_sha256": source.sha256,
        "sample": source.sample,
        "metric": benchmark.scorer.title,
        **_support_tokens(benchmark),
        "lm": models.task.name,
        "prompt_lm": models.prompt.name or models.task.name,
        "judge_lm": models.judge.name,
    }
    if models.answer.name:
        logged["answer_lm"] = models.answer.name
    logged["judge_hash"] = benchmark.scorer.judge_hash

    for name, value in models.task.settings.items():
        logged[f"lm.{name}"] = value
    logged["embedder"] = embedder.name if embedder else None
    if config.method.reranker:
        logged["reranker"] = config.method.reranker
    logged["adapter"] = config.method.adapter or program.adapter

    logged["seed"] = config.data.seed
    logged["threads"] = config.execution.threads
    if config.execution.replay:
        logged["replay"] = Path(config.execution.replay).name
    for name, limit in config.limits.as_dict().items():
        logged[f"limit.{name}"] = limit
    for name, value in program.config.items():
        logged[f"method.{name}"] = value
    return logged


def describe_data(benchmark: Benchmark, split: Split) -> dict[str, Any]:
    """Return what a manifest says of the data: its file, metric, split and sizes."""
    source = benchmark.source
    description: dict[str, Any] = {
        "name": benchmark.name,
        "file": source.name,
        "sha256": source.sha256,
        "sample": source.sample,
    }
    if source.files:
        description["files"] = list(source.files)
    description["metric"] = benchmark.scorer.title
    description.update(_support_tokens(benchmark))
    description["split_sha256"] = split.digest
    description["sizes"] = {
        "train": len(split.train),
        "dev": len(split.dev),
        "test": len(split.test),
    }
    return description


def _support_tokens(benchmark: Benchmark) -> dict[str, int]:
    """Return how many recalled tokens the metric looks at; nothing for another metric."""
    scorer = benchmark.scorer
    return {"support_tokens": scorer.budget} if isinstance(scorer, Support) else {}
