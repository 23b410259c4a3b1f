"""Resolves a paper's sections: models, file, options and variants of each, what is left out, and the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...data.catalog import benchmark_class
from ...engines.model_names import OFFLINE, is_local, is_offline
from ...errors import UnknownNameError, UserError
from ...optimizers.compile import CompileConfig
from ...programs.catalog import method_class
from ...systems.catalog import shipped
from ..config import RunConfig
from ..evaluate import Part
from ..external import SYSTEM_PREFIX, can_be_planned
from ..inputs import RunInputs
from ..planning import Plan, plan_compile, plan_evaluate, plan_train
from ..repeating import resume_key
from .paper import LOGO, Paper, Section, Variant
from .trainings import TrainingChoices

CHANGE_WEIGHTS = (LOGO, "finetune")
"""Optimizers that train the model of --lm in this process."""


@dataclass(frozen=True)
class ResolvedSection:
    """A section with what it runs on."""

    section: Section
    config: RunConfig
    """With the section's benchmark, data and options."""
    labels: tuple[str, ...]
    """The variants that can be run."""
    part: Part
    """Which questions are asked: where a variant is tuned on the benchmark, those that nothing learned from."""
    seeds: int
    learning_configs: Mapping[str, RunConfig]
    """What variants learn on, by the benchmark that `Tuning.on` names. None has a judge: its word is no reward."""

    def learning(self, variant: Variant) -> RunConfig:
        """Return what a variant learns on, with its settings; the same in all sections that learn alike."""
        config = self.learning_configs[variant.tuned.on if variant.tuned else ""]
        config = _with_benchmark_options(config, variant.options)
        return config.with_options(set=dict(variant.config))


def resolve_sections(
    paper: Paper,
    config: RunConfig,
    names: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    seeds: int | None = None,
    choices: TrainingChoices | None = None,
) -> tuple[tuple[ResolvedSection, ...], tuple[str, ...]]:
    """Finds out what each section runs on, and a sentence on what is left out or smaller than in the paper.

    Args:
        paper: Whose sections.
        config: Models and sizes; its `data` is the file of the only benchmark.
        names: Of the sections; all if empty.
        files: By benchmark, or by what it is a part of.
        seeds: Repetitions; those of the paper if None.
        choices: Settings of the trainings, beside those of the rows.

    Raises:
        UserError: A name, a file or a setting fits nothing, or no section can be run.
    """
    told: dict[str, None] = {}
    found: list[ResolvedSection] = []
    for section in paper.chosen(names):
        own = config.with_options(**section.offline) if is_offline(config.models.task.name) else config
        if paper.has_other_reader and section.needs != "answers" and own.models.answer.name:
            own = own.with_options(answer_lm=None)
            told[f"section {section.name} is answered by {own.models.task.name}, as in the paper, and not by --answer-lm"] = None
        if reason := _needs(section, own):
            told[f"section {section.name} {reason}"] = None
            continue
        labels, left_out = _runnable(paper, section, own)
        told |= dict.fromkeys(left_out)
        if not labels:
            told[f"section {section.name} has no row that can be run"] = None
            continue
        found.append(_resolved(paper, section, labels, own, files or {}, seeds))
    if not found:
        raise UserError(next(iter(told)))
    benchmarks = [made.data.benchmark for each in found for made in (each.config, *each.learning_configs.values())]
    _check_files(benchmarks, config, files or {})
    for each in found:
        told |= dict.fromkeys(_settings_kept(paper, each, choices or TrainingChoices()))
    if config.data.test is None and any(each.config.data.test is not None for each in found):
        told[f"on the bundled samples: {paper.offline_test} questions a section; --test N takes others"] = None
    if any(each.seeds > 1 and not _draws(paper.variants[v], each.config) for each in found for v in each.labels):
        told["what neither samples nor draws by a seed is run once, however many seeds there are"] = None
    return tuple(found), tuple(told)


def _settings_kept(paper: Paper, resolved: ResolvedSection, choices: TrainingChoices) -> list[str]:
    """Return a sentence on each row that is trained with settings of its own in the place of chosen ones.

    Raises:
        UserError: A chosen setting is unknown, or does not fit a row.
    """
    sentences: list[str] = []
    for label in resolved.labels:
        tuning = paper.variants[label].tuned
        if tuning is None or tuning.optimizer != LOGO:
            continue
        choices.config(tuning, resolved.config.models.task.name)
        for name in choices.kept_by(tuning):
            own = tuning.settings[name]
            sentences.append(f"{label} is trained with its own {name} = {own}: that is what the row is about")
    return sentences


def _runnable(paper: Paper, section: Section, config: RunConfig) -> tuple[tuple[str, ...], list[str]]:
    """Return the labels of the rows of a section that can be run, and a sentence on each of the others."""
    labels: list[str] = []
    left_out: list[str] = []
    for label in section.variants:
        reason = _missing(paper, paper.variants[label], config)
        if reason:
            left_out.append(f"{label} is left out: {reason}")
        else:
            labels.append(label)
    return tuple(labels), left_out


def _resolved(
    paper: Paper,
    section: Section,
    labels: tuple[str, ...],
    config: RunConfig,
    files: Mapping[str, str],
    seeds: int | None,
) -> ResolvedSection:
    """Return a section with what its rows are asked and what they learn on."""
    learned_on = {tuned.on for label in labels if (tuned := paper.variants[label].tuned)}
    # Also of rows that are left out: the others are asked the same questions with them and without them.
    learns_here = any((tuned := paper.variants[label].tuned) and not tuned.on for label in section.variants)
    unjudged = config.with_options(judge_lm=None, judge_api_base=None, answer_lm=None, answer_api_base=None)
    learning_configs = {"": _section_config(paper, section, unjudged, files)}
    for name in sorted(learned_on - {""}):
        abroad = section.model_copy(update={"benchmark": name, "options": {}})
        learning_configs[name] = _section_config(paper, abroad, unjudged, files)
    return ResolvedSection(
        section,
        _section_config(paper, section, config, files),
        labels,
        "test" if learns_here else "all",
        seeds or section.seeds or paper.seeds,
        learning_configs,
    )


def plan_paper(
    paper: Paper,
    config: RunConfig,
    names: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    seeds: int | None = None,
    choices: TrainingChoices | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of `reproduce`: a phase for each section, and what it leaves out; arguments of `resolve_sections`.

    Memories that variants share are counted for each of them, and neither judges nor systems of others.
    """
    choices = (choices or TrainingChoices()).rewarded_by(config)
    resolved, notes = resolve_sections(paper, config, names, files, seeds, choices)
    known, told = set[str](), dict.fromkeys(notes)
    parts: dict[str, Plan] = {}
    for each in resolved:
        plans = list[Plan]()
        for label in each.labels:
            variant = paper.variants[label]
            if not can_be_planned(variant.program):
                told[f"not counted: what {label} ({variant.program}) takes, which is not known before"] = None
                continue
            for repeat in repeated(variant, each):
                repeat = repeat.with_options(set=settings_of(variant, repeat))
                inputs = RunInputs(repeat)
                key = json.dumps([resume_key(inputs), variant.program, variant.tuned, each.part], default=str)
                if key in known:
                    continue
                known.add(key)
                plans.append(plan_evaluate(variant.program, inputs, each.part))
                tuned = variant.tuned and variant.tuned.model_copy(update={"on": ""})
                learning = each.learning(variant)
                key = json.dumps([resume_key(RunInputs(learning)), variant.program, tuned], default=str)
                if tuned is not None and not repeat.execution.repeat and key not in known:
                    known.add(key)
                    plans += _tuning(label, variant, learning, choices, told)
        if each.config.models.judge.name:
            told["not counted: calls of the judge"] = None
        parts[each.section.name] = sum(plans, Plan())
    total = sum(parts.values(), Plan())
    return replace(total, phases={name: part.calls for name, part in parts.items()}), tuple(told)


def repeated(variant: Variant, resolved: ResolvedSection) -> list[RunConfig]:
    """The configurations in which a variant is evaluated, one for each repetition that could differ."""
    config = _with_benchmark_options(resolved.config, variant.options)
    return [config.with_options(repeat=n) for n in range(resolved.seeds if _draws(variant, config) else 1)]


def settings_of(variant: Variant, config: RunConfig) -> dict[str, Any]:
    """The settings that a variant is built with: a repetition has a seed of its own, where the method draws."""
    repeat = config.execution.repeat
    drawn = {"seed": config.data.seed + repeat} if repeat and _has_seed(variant.program) else {}
    return {**drawn, **variant.config}


def _tuning(
    label: str, variant: Variant, config: RunConfig, choices: TrainingChoices, told: dict[str, None]
) -> list[Plan]:
    """The plan of a variant's compile or training; none, and a note, where it cannot be planned."""
    tuned, program = variant.tuned, variant.program
    if tuned is None:
        return []
    try:
        if tuned.optimizer == LOGO:
            return [plan_train(program, RunInputs(config), choices.config(tuned, config.models.task.name))]
        how = CompileConfig(tuned.optimizer, tuned.stage, settings=dict(tuned.settings))
        return [plan_compile(program, RunInputs(config), how)]
    except UserError as error:
        told[f"not counted: the tuning of {label}: {error}"] = None
        return []


def _section_config(paper: Paper, section: Section, config: RunConfig, files: Mapping[str, str]) -> RunConfig:
    name = section.benchmark
    data = files.get(name) or files.get(name.partition(".")[0]) or config.data.file
    suited = (paper.judged if config.models.judge.name else paper.unjudged).get(name, {})
    others = [each.benchmark for each in paper.sections]
    given = {
        option: value
        for option, value in config.data.benchmark_settings.items()
        # What none of the paper's benchmarks has is refused where it is read.
        if _takes(name, option, value) or not any(_takes(each, option, value) for each in others)
    }
    few = is_offline(config.models.task.name) and data is None and config.data.test is None and not section.all_questions
    # Only the offline engine gets here without a model that the section needs.
    judge = config.models.judge.name or (OFFLINE if section.needs == "judge" else None)
    reader = config.models.answer.name or (OFFLINE if section.needs == "answers" else None)
    config = config.with_options(benchmark=name, metric=None, categories=None, benchmark_set={})
    config = _with_benchmark_options(config, {**section.options, **suited, **given})
    return config.with_options(
        data=data,
        test=paper.offline_test if few else config.data.test,
        judge_lm=judge,
        answer_lm=reader,
    )


def _with_benchmark_options(config: RunConfig, options: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with further options of its benchmark, the metric among them."""
    settings = {**config.data.benchmark_settings, **options}
    return config.with_options(benchmark_set=settings, metric=None, categories=None)


def _needs(section: Section, config: RunConfig) -> str:
    if section.needs == "judge" and not config.models.judge.name and not is_offline(config.models.task.name):
        return "is scored by a judge; name its model with --judge-lm"
    if section.needs == "answers" and not config.models.answer.name and not is_offline(config.models.task.name):
        return f"reads what {config.models.task.name} wrote by another model; name it with --answer-lm"
    if section.needs == "training" and not is_local(config.models.task.name):
        return _cannot_train(config)
    return ""


def _cannot_train(config: RunConfig) -> str:
    return f"trains a model in this process, which {config.models.task.name} is not; use --lm local:NAME"


def _missing(paper: Paper, variant: Variant, config: RunConfig) -> str:
    """Return why a row cannot be run with these models; "" if it can."""
    if variant.lm and _weights(config.models.task.name) != variant.lm.lower():
        return f"it is a row of {variant.lm}; name that with --lm"
    if variant.answer_lm and _weights(config.models.answer.name or "") != variant.answer_lm.lower():
        return f"it is a row of answers by {variant.answer_lm}; name that with --answer-lm"
    if _trains(paper, variant) and not is_local(config.models.task.name):
        return f"it {_cannot_train(config)}"
    if variant.program.startswith(SYSTEM_PREFIX):
        return _system_missing(variant.program, config)
    return ""


def _weights(model: str) -> str:
    """Return what a model's name ends in, without its provider, owner or folder, e.g. "qwen2.5-7b-instruct"."""
    return model.replace(":", "/").rstrip("/").rpartition("/")[2].lower()


def _trains(paper: Paper, variant: Variant) -> bool:
    """Return whether a row, or one that it begins from, changes weights."""
    if variant.tuned is None:
        return False
    if variant.tuned.optimizer in CHANGE_WEIGHTS:
        return True
    return bool(variant.tuned.start) and _trains(paper, paper.variants[variant.tuned.start])


def _system_missing(program: str, config: RunConfig) -> str:
    system = shipped(program.removeprefix(SYSTEM_PREFIX))
    if not system.environment.is_installed:
        return f"{program} is not installed; run: mempiler fetch system:{system.name}"
    if is_offline(config.models.task.name):
        return f"{program} writes with a language model, which the offline engine is not; name one with --lm"
    return ""


def _check_files(benchmarks: Sequence[str], config: RunConfig, files: Mapping[str, str]) -> None:
    names = list(dict.fromkeys(benchmarks))
    # "palbench" of "palbench.select".
    data_sets = list(dict.fromkeys(name.partition(".")[0] for name in names))
    for name in files:
        if name not in {*names, *data_sets}:
            raise UnknownNameError("benchmark of these sections", name, names)
    if config.data.file and len(data_sets) > 1:
        told = " ".join(f"--data {name}=FILE" for name in data_sets)
        raise UserError(f"{config.data.file} is one file for {len(data_sets)} benchmarks; say {told}, or choose a --section")


def _draws(variant: Variant, config: RunConfig) -> bool:
    sampling = not is_offline(config.models.task.name) and config.models.task.settings.get("temperature") != 0
    return sampling or (_has_seed(variant.program) and "seed" not in variant.settings)


def _has_seed(program: str) -> bool:
    return not program.startswith(SYSTEM_PREFIX) and "seed" in method_class(program).Settings.model_fields


def _takes(benchmark: str, option: str, value: Any) -> bool:
    """Whether a benchmark has an option, and where the option is `metric`, such a metric."""
    kind = benchmark_class(benchmark)
    if option == "metric":
        return value in getattr(kind, "metrics", {})
    return option in kind.options()
