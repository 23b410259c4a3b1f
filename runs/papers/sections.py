"""What a paper's sections run on, and what running them will take.

A paper names benchmarks and variants; the user names models, files and sizes. Resolving a section
brings both together: its configuration, the variants that can be run with these models, and which
questions they are asked. Whatever is left out, or is smaller than in the paper, becomes a note.

    selection = Selection(sections=("table2",), files={"locomo": "locomo10.json"}, seeds=3)
    resolved = resolve_sections(paper, config, selection)
    resolved.sections[0].labels     # ("RGMem", "RAG")
    resolved.notes                  # ("Mem0 is left out: system:mem0 is not installed; ...",)

    plan_paper(paper, config, selection).plan.calls     # what `reproduce --plan` prints
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
from ..planning import Plan, plan_compile, plan_evaluate
from ..repeating import resume_key
from ..training_plan import plan_train
from .paper import LOGO, Paper, Section, Tuning, Variant
from .trainings import TrainingChoices

WEIGHT_CHANGING_OPTIMIZERS = (LOGO, "finetune")
"""Optimizers that train the model of `--lm` in this process."""


@dataclass(frozen=True)
class Selection:
    """What the user chose of a paper."""

    sections: Sequence[str] = ()
    """Names of sections; all if empty."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Data files by benchmark, e.g. "palbench.select", or by the suite that it is of: "palbench".

    The file of the configuration is that of the only benchmark.
    """
    seeds: int | None = None
    """Repetitions; those of the paper if None."""
    trainings: TrainingChoices = field(default_factory=TrainingChoices)

    def with_reward_model(self, config: RunConfig) -> Selection:
        """Return the selection with a model that gives rewards in trainings.

        See `TrainingChoices.with_reward_model`.
        """
        return replace(self, trainings=self.trainings.with_reward_model(config))


_BENCHMARK_OF_SECTION = ""
"""The value of `Tuning.on` of a variant that learns on the benchmark of its section."""

WHOLE_PAPER = Selection()
"""All sections, on bundled samples, with the paper's own settings."""


@dataclass(frozen=True)
class ResolvedSection:
    """A section with what it runs on."""

    section: Section
    config: RunConfig
    """With the section's benchmark, data and options."""
    labels: tuple[str, ...]
    """The variants that can be run."""
    part: Part
    """The questions that are asked.

    Where a variant is tuned on the benchmark, they are those that nothing learned from.
    """
    seeds: int
    """Repetitions."""
    learning_configs: Mapping[str, RunConfig]
    """What variants are compiled or trained in, by the value of `Tuning.on`."""

    def learning_config(self, variant: Variant) -> RunConfig:
        """Return the configuration in which a variant is compiled or trained.

        It has the settings of the variant, but neither judge nor answering model of the section.
        So sections that differ only in these two have equal configurations, and their variants
        share one training.
        """
        benchmark = variant.tuned.on if variant.tuned else _BENCHMARK_OF_SECTION
        benchmark_config = self.learning_configs[benchmark]
        variant_config = _with_benchmark_options(benchmark_config, variant.options)
        # `set` has the settings of the method.
        return variant_config.with_options(set=variant.program_settings)


class ResolvedSections(NamedTuple):
    """What can be run of a paper."""

    sections: tuple[ResolvedSection, ...]
    notes: tuple[str, ...]
    """Sentences on what is left out, or smaller than in the paper."""


class PaperPlan(NamedTuple):
    """What running a paper will take."""

    plan: Plan
    """Its phases are the sections."""
    notes: tuple[str, ...]
    """Sentences on what is left out, and on what is not counted."""


class _Notes:
    """Sentences for the user, each once, in the order in which they came up."""

    def __init__(self, sentences: Iterable[str] = ()) -> None:
        self._sentences = dict.fromkeys(sentences)

    def add(self, sentence: str) -> None:
        self._sentences[sentence] = None

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)


def resolve_sections(
    paper: Paper, config: RunConfig, selection: Selection = WHOLE_PAPER
) -> ResolvedSections:
    """Find out what each section runs on.

    Args:
        paper: The paper.
        config: Models and sizes; its `data` is the file of the only benchmark.
        selection: What of the paper is run.

    Raises:
        UserError: A name, a file or a setting fits nothing, or no section can be run.
    """
    notes = _Notes()
    sections: list[ResolvedSection] = []
    for section in paper.select_sections(selection.sections):
        section_config = _choose_models(paper, section, config, notes)
        reason = _unmet_need(section, section_config)
        if reason:
            notes.add(f"section {section.name} {reason}")
            continue
        labels = _runnable_labels(paper, section, section_config, notes)
        if not labels:
            notes.add(f"section {section.name} has no row that can be run")
            continue
        sections.append(_resolve_section(paper, section, labels, section_config, selection))
    if not sections:
        raise UserError(notes.sentences()[0])

    _check_files(sections, config, selection.files)
    for resolved in sections:
        _check_training_choices(paper, resolved, selection.trainings, notes)
    has_smaller_sample = any(resolved.config.data.test is not None for resolved in sections)
    if config.data.test is None and has_smaller_sample:
        notes.add(
            f"on the bundled samples: {paper.offline_test} questions a section;"
            " --test N takes others"
        )
    if any(_runs_variant_once(paper, resolved) for resolved in sections):
        notes.add(
            "what neither samples nor draws by a seed is run once, however many seeds there are"
        )
    return ResolvedSections(tuple(sections), notes.sentences())


def _choose_models(paper: Paper, section: Section, config: RunConfig, notes: _Notes) -> RunConfig:
    """Return the configuration with the models that a section is run with.

    In most papers one model writes the memories and answers the questions, unless the user names
    another one with `--answer-lm`. Some papers have sections that need two models: one writes, and
    another one answers. In such a paper `--answer-lm` is meant for these sections alone. In its
    other sections the writing model answers, as it did for the authors.
    """
    if is_offline(config.models.task.name):
        config = config.with_options(**section.offline)

    needs_answering_model = section.needs == "answers"
    ignores_answer_lm = paper.has_separate_answering_model and not needs_answering_model
    if config.models.answer.name and ignores_answer_lm:
        config = config.with_options(answer_lm=None)
        notes.add(
            f"section {section.name} is answered by {config.models.task.name}, as in the paper,"
            " and not by --answer-lm"
        )
    return config


def _unmet_need(section: Section, config: RunConfig) -> str:
    """Return why a section cannot be run with the chosen models; "" if it can.

    The caller puts the name of the section before the text, to make a sentence.
    """
    task_lm = config.models.task.name
    if section.needs == "training" and not is_local(task_lm):
        return _cannot_train(task_lm)

    if is_offline(task_lm):
        # A missing judge or answering model is no obstacle: `_with_offline_stand_ins` replaces it
        # by the offline engine.
        return ""

    if section.needs == "judge" and not config.models.judge.name:
        return "is scored by a judge; name its model with --judge-lm"
    if section.needs == "answers" and not config.models.answer.name:
        return f"asks another model about what {task_lm} wrote; name that with --answer-lm"
    return ""


def _cannot_train(task_lm: str) -> str:
    """Return why a model cannot be trained, as the end of a sentence."""
    return f"trains a model in this process, which {task_lm} is not; use --lm local:NAME"


def _runnable_labels(
    paper: Paper, section: Section, config: RunConfig, notes: _Notes
) -> tuple[str, ...]:
    """Return the labels of the variants that can be run, and note why the others cannot."""
    labels: list[str] = []
    for label in section.variants:
        reason = _obstacle(paper, paper.variants[label], config)
        if reason:
            notes.add(f"{label} is left out: {reason}")
        else:
            labels.append(label)
    return tuple(labels)


def _obstacle(paper: Paper, variant: Variant, config: RunConfig) -> str:
    """Return why a variant cannot be run with these models; "" if it can."""
    models = config.models
    if variant.lm and _weights(models.task.name) != variant.lm.lower():
        return f"it is a row of {variant.lm}; name that with --lm"
    if variant.answer_lm and _weights(models.answer.name or "") != variant.answer_lm.lower():
        return f"it is a row of answers by {variant.answer_lm}; name that with --answer-lm"
    if _changes_weights(paper, variant) and not is_local(models.task.name):
        return f"it {_cannot_train(models.task.name)}"
    if variant.program.startswith(SYSTEM_PREFIX):
        return _system_obstacle(variant.program, config)
    return ""


def _weights(model: str) -> str:
    """Return the end of a model's name, without its provider, owner or folder, in lower case.

    It is e.g. "qwen2.5-7b-instruct" of "local:Qwen/Qwen2.5-7B-Instruct".
    """
    return model.replace(":", "/").rstrip("/").rpartition("/")[2].lower()


def _changes_weights(paper: Paper, variant: Variant) -> bool:
    """Tell whether a variant, or one that it begins from, trains the model."""
    if variant.tuned is None:
        return False
    if variant.tuned.optimizer in WEIGHT_CHANGING_OPTIMIZERS:
        return True
    start = variant.tuned.start
    return bool(start) and _changes_weights(paper, paper.variants[start])


def _system_obstacle(program: str, config: RunConfig) -> str:
    """Return why somebody else's system cannot be run; "" if it can."""
    system = shipped(program.removeprefix(SYSTEM_PREFIX))
    if not system.environment.is_installed:
        return f"{program} is not installed; run: mempiler fetch system:{system.name}"
    if is_offline(config.models.task.name):
        return (
            f"{program} writes with a language model, which the offline engine is not;"
            " name one with --lm"
        )
    return ""


def _resolve_section(
    paper: Paper,
    section: Section,
    labels: tuple[str, ...],
    config: RunConfig,
    selection: Selection,
) -> ResolvedSection:
    """Return a section with the configurations that its variants are evaluated and tuned in.

    Args:
        paper: The paper.
        section: The section.
        labels: The variants that can be run.
        config: With the models of the section.
        selection: Names the data files and the repetitions.
    """
    # A variant must not be asked what it learned from.
    part: Part = "test" if _learns_on_benchmark(paper, section) else "all"
    return ResolvedSection(
        section=section,
        config=_section_config(paper, section, config, selection.files),
        labels=labels,
        part=part,
        seeds=selection.seeds or section.seeds or paper.seeds,
        learning_configs=_learning_configs(paper, section, labels, config, selection.files),
    )


def _learning_configs(
    paper: Paper,
    section: Section,
    labels: tuple[str, ...],
    config: RunConfig,
    files: Mapping[str, str],
) -> dict[str, RunConfig]:
    """Return the configurations that the variants of a section are compiled or trained in.

    There is one for the section's benchmark, and one for each other benchmark that a variant learns
    on: a variant may be trained on one benchmark and evaluated on another.

    Returns:
        The configurations, without the settings of single variants. Their keys are the values of
        `Tuning.on`: `_BENCHMARK_OF_SECTION`, or the name of another benchmark.
    """
    # Learning asks no judge: its verdict is no reward. Nor does it ask the model of `--answer-lm`
    # by this option: a training has a setting of its own for a model whose answers give rewards.
    learning_models = config.with_options(
        judge_lm=None, judge_api_base=None, answer_lm=None, answer_api_base=None
    )
    configs = {_BENCHMARK_OF_SECTION: _section_config(paper, section, learning_models, files)}
    for benchmark in sorted(_other_learning_benchmarks(paper, labels)):
        # The options of the section are for its own benchmark.
        other_section = section.model_copy(update={"benchmark": benchmark, "options": {}})
        configs[benchmark] = _section_config(paper, other_section, learning_models, files)
    return configs


def _other_learning_benchmarks(paper: Paper, labels: Sequence[str]) -> set[str]:
    """Return the benchmarks that variants learn on and are not evaluated on."""
    benchmarks: set[str] = set()
    for label in labels:
        tuning = paper.variants[label].tuned
        if tuning is not None and tuning.on:
            benchmarks.add(tuning.on)
    return benchmarks


def _learns_on_benchmark(paper: Paper, section: Section) -> bool:
    """Tell whether a variant of a section learns on the benchmark that the section tests on.

    A variant that is left out in this run counts, too. So the test questions do not depend on which
    variants are run, and scores of several runs can be compared.
    """
    for label in section.variants:
        tuning = paper.variants[label].tuned
        if tuning is not None and tuning.on == _BENCHMARK_OF_SECTION:
            return True
    return False


def _section_config(
    paper: Paper, section: Section, config: RunConfig, files: Mapping[str, str]
) -> RunConfig:
    """Return the configuration of a run with the benchmark, data and options of a section.

    Args:
        paper: The paper.
        section: The section.
        config: With the models of the section, and the options of the user.
        files: Data files by benchmark or suite.
    """
    benchmark = section.benchmark
    paper_options = paper.judged if config.models.judge.name else paper.unjudged
    # Of two options with one name the later one holds: that of the user.
    options = {
        **section.options,
        **paper_options.get(benchmark, {}),
        **_user_options(paper, benchmark, config),
    }
    data_file = files.get(benchmark) or files.get(_suite(benchmark)) or config.data.file
    question_count = _question_count(paper, section, config, data_file)

    # The user's options may be for other benchmarks of the paper. Those for this one are in
    # `options`, so the user's own are taken out first.
    without_options = config.with_options(
        benchmark=benchmark, metric=None, categories=None, benchmark_set={}
    )
    with_options = _with_benchmark_options(without_options, options)
    with_data = with_options.with_options(data=data_file, test=question_count)
    return _with_offline_stand_ins(with_data, section)


def _question_count(
    paper: Paper, section: Section, config: RunConfig, data_file: str | None
) -> int | None:
    """Return how many questions of a section are asked; None for all.

    The offline engine is asked only some questions of a bundled sample, unless the user or the
    section wants more: its numbers say nothing, and the run should be fast.
    """
    is_smoke_test = is_offline(config.models.task.name) and data_file is None
    if is_smoke_test and config.data.test is None and not section.all_questions:
        return paper.offline_test
    return config.data.test


def _with_offline_stand_ins(config: RunConfig, section: Section) -> RunConfig:
    """Return the configuration with the offline engine as judge or answering model, if needed.

    It is needed where the section needs such a model and the user named none. This only happens if
    the offline engine is the model of `--lm`, too: `_unmet_need` leaves the section out otherwise.
    """
    judge_lm = config.models.judge.name or None
    if judge_lm is None and section.needs == "judge":
        judge_lm = OFFLINE
    answer_lm = config.models.answer.name or None
    if answer_lm is None and section.needs == "answers":
        answer_lm = OFFLINE
    return config.with_options(judge_lm=judge_lm, answer_lm=answer_lm)


def _suite(benchmark: str) -> str:
    """Return the name of the suite that a benchmark is of, e.g. "palbench" of "palbench.select"."""
    return benchmark.partition(".")[0]


def _user_options(paper: Paper, benchmark: str, config: RunConfig) -> dict[str, object]:
    """Return those options of the user that are for a benchmark of the paper.

    The user sets options for the whole paper, whose benchmarks have different ones. An option is
    for the benchmarks that have it.
    """
    all_benchmarks = [section.benchmark for section in paper.sections]
    options: dict[str, object] = {}
    for name, value in config.data.benchmark_settings.items():
        is_known = any(_has_option(other, name, value) for other in all_benchmarks)
        # An option that no benchmark has is kept for all: they refuse it with an error.
        if _has_option(benchmark, name, value) or not is_known:
            options[name] = value
    return options


def _has_option(benchmark: str, name: str, value: object) -> bool:
    """Tell whether a benchmark has an option.

    All benchmarks have the option `metric`, each with metrics of its own. So that one depends on
    the value: the benchmark has it if it has such a metric.
    """
    kind = benchmark_class(benchmark)
    if name == "metric":
        return value in getattr(kind, "metrics", {})
    return name in kind.options()


def _with_benchmark_options(config: RunConfig, options: Mapping[str, object]) -> RunConfig:
    """Return the configuration with further options of its benchmark, the metric among them."""
    settings = {**config.data.benchmark_settings, **options}
    return config.with_options(benchmark_set=settings, metric=None, categories=None)


def _check_files(
    sections: Sequence[ResolvedSection], config: RunConfig, files: Mapping[str, str]
) -> None:
    """Refuse data files that cannot be meant for these sections.

    Args:
        sections: The sections that are run.
        config: Its `data.file` is the file that was given without the name of a benchmark.
        files: The files that were given with a name: of a benchmark, such as "palbench.select", or
            of a suite of several benchmarks that one file is for, such as "palbench".

    Raises:
        UserError: No section has a benchmark of that name. Or the file without a name could be for
            several suites.
    """
    benchmarks: dict[str, None] = {}
    for resolved in sections:
        for section_config in (resolved.config, *resolved.learning_configs.values()):
            benchmarks[section_config.data.benchmark] = None
    suites = list(dict.fromkeys(_suite(benchmark) for benchmark in benchmarks))

    for name in files:
        if name not in benchmarks and name not in suites:
            raise UnknownNameError("benchmark of these sections", name, list(benchmarks))
    if config.data.file and len(suites) > 1:
        options = " ".join(f"--data {suite}=FILE" for suite in suites)
        raise UserError(
            f"{config.data.file} is one file for {len(suites)} benchmarks;"
            f" say {options}, or choose a --section"
        )


def _check_training_choices(
    paper: Paper, resolved: ResolvedSection, choices: TrainingChoices, notes: _Notes
) -> None:
    """Check the user's settings of trainings, and note where settings of variants replace them.

    A table may compare trainings that differ in one setting; that setting is the variant's own.

    Raises:
        UserError: A chosen setting is unknown, or does not fit a variant.
    """
    for label in resolved.labels:
        tuning = paper.variants[label].tuned
        # `LOGO` is the only optimizer that is run as a training.
        if tuning is None or tuning.optimizer != LOGO:
            continue

        # This raises the error of a setting that does not fit.
        choices.training_config(tuning, resolved.config.models.task.name)
        for name in choices.names_fixed_by(tuning):
            value = tuning.settings[name]
            notes.add(
                f"{label} is trained with its own {name} = {value}: that is what the row is about"
            )


def _runs_variant_once(paper: Paper, resolved: ResolvedSection) -> bool:
    """Tell whether a variant is run once though there are several seeds."""
    if resolved.seeds <= 1:
        return False
    return not all(
        _varies_by_repetition(paper.variants[label], resolved.config) for label in resolved.labels
    )


def repetitions(variant: Variant, resolved: ResolvedSection) -> list[RunConfig]:
    """Return the configurations of the repeated evaluations of a variant, one for each.

    A variant is evaluated as often as the section has seeds. If all repetitions would have the same
    result, it is evaluated once. A method with the setting `seed` gets another seed each time.
    """
    config = _with_benchmark_options(resolved.config, variant.options)
    count = 1
    if _varies_by_repetition(variant, config):
        count = resolved.seeds

    configs: list[RunConfig] = []
    for repeat in range(count):
        settings: dict[str, object] = {}
        # The first repetition keeps the seed of the configuration, as a single evaluation would.
        if repeat > 0 and _has_seed(variant.program):
            settings["seed"] = config.data.seed + repeat
        settings.update(variant.program_settings)
        configs.append(config.with_options(repeat=repeat, set=settings))
    return configs


def _varies_by_repetition(variant: Variant, config: RunConfig) -> bool:
    """Tell whether a repetition of a variant could have another result."""
    task = config.models.task
    if not is_offline(task.name) and task.settings.get("temperature") != 0:
        return True
    return _has_seed(variant.program) and "seed" not in variant.settings


def _has_seed(program: str) -> bool:
    """Tell whether a method draws random numbers by a seed."""
    if program.startswith(SYSTEM_PREFIX):
        return False
    return "seed" in method_class(program).Settings.model_fields


def plan_paper(paper: Paper, config: RunConfig, selection: Selection = WHOLE_PAPER) -> PaperPlan:
    """Return the plan of `reproduce`, with a phase for each section.

    Memories that variants share are counted for each of them. Judges and systems of other people
    are not counted.

    Args:
        paper: The paper.
        config: Models and sizes; its `data` is the file of the only benchmark.
        selection: What of the paper is planned.

    Raises:
        UserError: A name, a file or a setting fits nothing, or no section can be run.
    """
    # As `reproduce` does: the model of `--answer-lm` gives the rewards of trainings.
    selection = selection.with_reward_model(config)
    resolved_paper = resolve_sections(paper, config, selection)

    # The planner adds notes on what it cannot count to those on what is left out.
    planner = _Planner(paper, selection.trainings, _Notes(resolved_paper.notes))
    plans: dict[str, Plan] = {}
    for resolved in resolved_paper.sections:
        plans[resolved.section.name] = planner.plan_section(resolved)

    total = sum(plans.values(), Plan())
    calls_by_section = {name: plan.calls for name, plan in plans.items()}
    return PaperPlan(replace(total, phases=calls_by_section), planner.notes.sentences())


class _Planner:
    """Plans sections one after the other; what several of them share is counted once."""

    def __init__(self, paper: Paper, choices: TrainingChoices, notes: _Notes) -> None:
        self.paper = paper
        self.choices = choices
        self.notes = notes
        self._planned_runs: set[str] = set()

    def plan_section(self, resolved: ResolvedSection) -> Plan:
        """Return the plan of a section, without what was planned before."""
        plans: list[Plan] = []
        for label in resolved.labels:
            variant = self.paper.variants[label]
            if not can_be_planned(variant.program):
                self.notes.add(
                    f"not counted: what {label} ({variant.program}) takes,"
                    " which is not known before"
                )
                continue
            for config in repetitions(variant, resolved):
                plans.extend(self._plan_repetition(label, resolved, config))
        if resolved.config.models.judge.name:
            self.notes.add("not counted: calls of the judge")
        return sum(plans, Plan())

    def _plan_repetition(
        self, label: str, resolved: ResolvedSection, config: RunConfig
    ) -> list[Plan]:
        """Return the plans of an evaluation and of the tuning before it.

        A run that an earlier repetition, variant or section has planned already is left out.
        """
        variant = self.paper.variants[label]
        inputs = RunInputs(config)
        is_new_evaluation = self._remember_run(
            {
                "command": "evaluate",
                "settings": resume_key(inputs),
                "program": variant.program,
                "tuning": variant.tuned,
                "part": resolved.part,
            }
        )
        if not is_new_evaluation:
            return []
        plans = [plan_evaluate(variant.program, inputs, resolved.part)]

        # All repetitions evaluate the program that the first one tuned.
        if variant.tuned is not None and config.execution.repeat == 0:
            learning_config = resolved.learning_config(variant)
            is_new_tuning = self._remember_run(
                {
                    "command": "tune",
                    # The benchmark that is learned on is among these settings. So `on`, which also
                    # names it, is left out of the tuning below: a variant that learns on the
                    # benchmark of its section shares a tuning with one that learns on the same
                    # benchmark but is evaluated on another.
                    "settings": resume_key(RunInputs(learning_config)),
                    "program": variant.program,
                    "tuning": variant.tuned.model_dump(exclude={"on"}),
                }
            )
            if is_new_tuning:
                tuning_plan = self._plan_tuning(label, learning_config, variant.tuned)
                if tuning_plan is not None:
                    plans.append(tuning_plan)
        return plans

    def _remember_run(self, what_decides_result: Mapping[str, object]) -> bool:
        """Remember that a run is planned; return False if it was planned before.

        Args:
            what_decides_result: Runs with equal values here are one run.
        """
        key = json.dumps(what_decides_result, default=str)
        if key in self._planned_runs:
            return False
        self._planned_runs.add(key)
        return True

    def _plan_tuning(self, label: str, config: RunConfig, tuning: Tuning) -> Plan | None:
        """Return the plan of a compile or a training; None, with a note, if it cannot be planned.

        Args:
            label: The variant that is tuned.
            config: The configuration that it learns in.
            tuning: The tuning of the variant.
        """
        program = self.paper.variants[label].program
        try:
            # `LOGO` is the only optimizer that is run as a training.
            if tuning.optimizer == LOGO:
                training = self.choices.training_config(tuning, config.models.task.name)
                return plan_train(program, RunInputs(config), training)
            compilation = CompileConfig(
                tuning.optimizer, tuning.stage, settings=dict(tuning.settings)
            )
            return plan_compile(program, RunInputs(config), compilation)
        except UserError as error:
            self.notes.add(f"not counted: the tuning of {label}: {error}")
            return None
