"""Write a data set with a language model: a PAL-Set, or MemoryQuest.

    result = mempiler.synthesize_palset("pal", users=2, months=8, lm="openai/gpt-4.1-mini")
    mempiler.evaluate("h2memory", benchmark="palbench.restate", data=result.files[0])

The folder of a data set:

    pal/
        input_en.json ...    the data
        synthesis.json       what it was made with, and everything that was refused
        answers.sqlite       every answer that was paid for
        synthesis.lock       held by the process that works on the data set

The same call with the same folder goes on where it was stopped: it takes the answers of the folder
and pays for what is missing. More attempts try again what was given up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import dspy
from filelock import FileLock, Timeout

from ..data.field_types import natural_sort_key
from ..data.synthesis.memoryquest.make import make_memoryquest
from ..data.synthesis.memoryquest.profiles import read_profiles
from ..data.synthesis.memoryquest.queries import refuse_offline_embedder
from ..data.synthesis.palset.make import make_palset
from ..data.synthesis.palset.setting import Setting
from ..data.synthesis.palset.texts import LANGUAGES, LanguageCode
from ..data.synthesis.runner import Report, Runner
from ..engines.embedders import embedder as make_embedder
from ..engines.endpoint import Waits
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard, Limits
from ..engines.lm import language_model
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.model_checks import endpoint_errors
from ..engines.model_config import ModelConfig
from ..engines.model_names import is_offline
from ..engines.prices import needed_prices
from ..engines.usage import UsageReport
from ..errors import (
    BudgetError,
    DataError,
    EndpointError,
    RunInterrupted,
    UnknownNameError,
    UserError,
)
from ..programs.adapter import adapter as make_adapter
from ..records import read_json
from ..records.atomic_file import atomic_write
from ..validation import check_number
from .console import Output
from .inputs import RunInputs
from .options import make_inputs
from .progress import run_progress
from .results_folder import create_folder, refuse_foreign_folder
from .role_models import check_models
from .run_store import RunStore

RECORD = "synthesis.json"
"""The file with the record of a data set."""
ANSWERS = "answers.sqlite"
"""The file with the answers of the model."""
MIN_MONTHS = 2
"""Fewest months of a user of a PAL-Set: the dialogues of the last month are the query set."""
EMBEDDER = "minilm"
"""Measures by default how near MemoryQuest's requests are to their references."""
_MARK = '"made_by": "mempiler synthesize'
"""What stands in every record."""


class SynthesisOptions(TypedDict, total=False):
    """Options of `synthesize_palset` and `synthesize_memoryquest`, as `RunOptions` has them."""

    lm: str | dspy.BaseLM | None
    """The model that writes. The offline engine cannot."""
    api_base: str | None
    lm_set: Mapping[str, Any]
    adapter: str | None
    """"chat", "json", "auto" or "compact"; "chat" if left out."""
    seed: int
    """Seed of everything that is drawn."""
    threads: int
    """Calls in flight."""
    limits: Limits
    max_usd: float | None
    max_calls: int | None
    max_tokens: int | None
    max_minutes: float | None
    timeout: float
    retries: int
    lm_deadline: float
    progress: bool
    """Whether progress is shown on standard error; True if left out."""


@dataclass(frozen=True)
class SynthesisResult:
    """What was written, and what was refused on the way."""

    out: Path
    """The folder."""
    files: tuple[Path, ...]
    """The files of the data; the first one of a PAL-Set is what `--data` of palbench takes."""
    report: Report
    """Accepted answers by step, and every refused attempt."""
    usage: UsageReport
    """Calls and cost of this call; answers of the folder are free."""
    stopped: str | None = None
    """The limit that stopped it, e.g. "max-calls 100"; None if it came to its end."""

    def outcomes(self) -> dict[str, dict[str, int]]:
        """Return how many things were accepted and refused, by step and outcome."""
        counts: dict[str, dict[str, int]] = {}
        for step, accepted in self.report.accepted.items():
            counts.setdefault(step, {})["accepted"] = accepted
        rejections = Counter(
            (rejection.step, rejection.outcome) for rejection in self.report.rejections
        )
        for (step, outcome), count in rejections.items():
            counts.setdefault(step, {})[outcome] = count
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; the refused attempts themselves are in `synthesis.json`."""
        return {
            "out": str(self.out),
            "files": [str(path) for path in self.files],
            "steps": self.outcomes(),
            "calls": self.usage.by_role(),
            "cost": self.usage.cost,
            "stopped": self.stopped,
        }


def synthesize_palset(
    out: str | Path,
    *,
    users: int = 1,
    months: int | None = None,
    language: LanguageCode = "en",
    attempts: int = 10,
    reviews: int = 1,
    **options: Unpack[SynthesisOptions],
) -> SynthesisResult:
    """Write a PAL-Set (Mem-PAL): users with months of device logs, and of dialogues.

    Args:
        out: The folder. One that is there must be of the same data set, which then goes on.
        users: How many.
        months: Months of every user; None draws 7 to 12.
        language: "en" or "zh".
        attempts: How often a step is asked before it is given up.
        reviews: How often finished records are reviewed and corrected.
        **options: The model, limits and more; see `SynthesisOptions`.

    Raises:
        UserError: An argument does not fit, or the folder holds something else.
        EndpointError: The model's endpoint is down; answers before are kept.
    """
    check_number("users", users, minimum=1)
    check_number("months", months, minimum=MIN_MONTHS)
    check_number("attempts", attempts, minimum=1)
    check_number("reviews", reviews)
    if language not in LANGUAGES:
        raise UnknownNameError("language", language, LANGUAGES)

    inputs = _synthesis_inputs("palbench", options)
    settings = {"users": users, "months": months, "language": language}
    synthesis = _Synthesis("palset", Path(out), settings, inputs, attempts)
    with synthesis.running(options.get("progress", True)) as runner:
        setting = Setting(language, months, inputs.config.data.seed, runner, reviews)
        make_palset(users, synthesis.out, setting, synthesis.on_progress)
    return synthesis.result()


def synthesize_memoryquest(
    profiles: str | Path,
    out: str | Path,
    *,
    users: int | None = None,
    attempts: int = 3,
    embedder: str = EMBEDDER,
    embedder_api_base: str | None = None,
    **options: Unpack[SynthesisOptions],
) -> SynthesisResult:
    """Write MemoryQuest (PGR, section 4.2) from the profiles of PersonaLens.

    PersonaLens is CC BY-NC 4.0: what is made from its profiles is not for commercial use.

    Args:
        profiles: The folder with PersonaLens's files `*profile.json`.
        out: The folder. One that is there must be of the same data set, which then goes on.
        users: How many of the profiles, in the order of the numbers in their names; None for all.
        attempts: How often a step is asked before it is given up.
        embedder: Measures how near requests are to their references. The offline one compares
            spelling and is refused.
        embedder_api_base: Address of an OpenAI-compatible embedding server.
        **options: The model, limits and more; see `SynthesisOptions`. Nothing is drawn by `seed`.

    Raises:
        UserError: An argument does not fit, or the folder holds something else.
        EndpointError: The endpoint of the model or the embedder is down; answers before are kept.
    """
    check_number("users", users, minimum=1)
    check_number("attempts", attempts, minimum=1)
    selected_profiles = read_profiles(profiles)[:users]
    inputs = _synthesis_inputs("memoryquest", options)
    measure = make_embedder(embedder, embedder_api_base)
    refuse_offline_embedder(measure)
    measure.check()

    settings = {"embedder": embedder}
    synthesis = _Synthesis("memoryquest", Path(out), settings, inputs, attempts)
    with synthesis.running(options.get("progress", True)) as runner:
        if measure.account is not None:
            execution = inputs.config.execution
            measure.account.waits = Waits(
                execution.timeout, execution.retries, execution.lm_deadline
            )
            measure.account.open(synthesis.meter, synthesis.guard)
        make_memoryquest(selected_profiles, synthesis.out, runner, measure, synthesis.on_progress)
    return synthesis.result()


def _synthesis_inputs(benchmark: str, options: SynthesisOptions) -> RunInputs:
    """Return models, limits and settings, after the model was checked.

    Args:
        benchmark: The benchmark that reads the data.
        options: As the user gave them.
    """
    for name in options:
        if name not in SynthesisOptions.__annotations__:
            raise UnknownNameError("option", name, SynthesisOptions.__annotations__)

    inputs = make_inputs({**options, "benchmark": benchmark})
    if "task" not in inputs.user_models and is_offline(inputs.config.models.task.name):
        raise UserError("the offline engine cannot write data; name a language model with --lm")
    check_models(inputs)
    return inputs


class _Synthesis:
    """The writing of one data set into its folder.

    Args:
        kind: "palset" or "memoryquest".
        out: The folder.
        settings: Of this kind, as far as other ones would make another data set.
        inputs: Models, limits and threads.
        attempts: How often a step is asked.
    """

    def __init__(
        self,
        kind: str,
        out: Path,
        settings: Mapping[str, Any],
        inputs: RunInputs,
        attempts: int,
    ) -> None:
        config = inputs.config
        self.out = out
        self.meter = Meter()
        self.guard = BudgetGuard(config.limits, max(IN_FLIGHT, config.execution.threads))
        self._kind = kind
        self._inputs = inputs
        self._settings = {
            "lm": config.models.task.name,
            "lm_set": config.models.task.settings,
            "seed": config.data.seed,
            **settings,
        }
        self._runner = Runner(attempts, config.execution.threads)
        self._shows_progress = True
        self._stopped: str | None = None

    def on_progress(self, line: str) -> None:
        """Show a line about a user on standard error."""
        if self._shows_progress:
            Output(stderr=True).print(line)

    @contextmanager
    def running(self, shows_progress: bool) -> Iterator[Runner]:
        """Open the folder and the model for the block, which writes the data with the runner.

        A limit that is reached ends the block without an error; `result` says which it was.

        Raises:
            EndpointError: The model failed.
            RunInterrupted: The user stopped it.
        """
        self._shows_progress = shows_progress
        with self._opened_folder() as store, self._progress():
            adapter = make_adapter(self._inputs.config.method.adapter or "chat")
            kept = f"answers are kept in {self.out}"
            try:
                with dspy.context(lm=self._model(store), adapter=adapter), endpoint_errors():
                    yield self._runner
            except BudgetError as error:
                self._stopped = self.guard.limit_hit or str(error)
            except EndpointError as error:
                raise EndpointError(f"{error}; {kept}, the same command goes on") from error
            except KeyboardInterrupt as stop:
                raise RunInterrupted(kept) from stop
            finally:
                self._write_record()

    def result(self) -> SynthesisResult:
        """Return what is in the folder now."""
        return SynthesisResult(
            out=self.out,
            files=self._data_files(),
            report=self._runner.report,
            usage=self.meter.read(),
            stopped=self._stopped,
        )

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """Show what the block spends, and count it in `meter`."""
        if not self._shows_progress:
            yield
            return
        with run_progress(self._inputs.config.limits) as (_, meter):
            self.meter = meter
            yield

    def _model(self, store: RunStore) -> MeteredLM:
        """Return the language model, whose answers the folder keeps."""
        config = self._inputs.config
        user_lm = self._inputs.user_models.get("task")
        name = config.models.task.name
        model_config = ModelConfig(
            api_base=config.models.task.api_base if user_lm is None else None,
            timeout=config.execution.timeout,
            retries=config.execution.retries,
            deadline=config.execution.lm_deadline,
            slots=config.execution.threads,
            prices=needed_prices(name, config.limits.max_usd),
            settings=config.models.task.settings,
        )
        return language_model(
            user_lm or name,
            model_config,
            meter=self.meter,
            guard=self.guard,
            answers=store.answers,
        )

    @contextmanager
    def _opened_folder(self) -> Iterator[RunStore]:
        """Keep other processes from the folder for the block: they would pay for the same calls."""
        self._prepare_folder()
        lock = FileLock(self.out / "synthesis.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(f"{self.out}: another process writes it; wait for its end") from error
        store: RunStore | None = None
        try:
            self._write_record()
            store = RunStore(self.out / ANSWERS)
            yield store
        finally:
            if store is not None:
                store.close()
            lock.release()

    def _prepare_folder(self) -> None:
        """Create the folder; refuse one that holds something else, or another data set."""
        refuse_foreign_folder(self.out, RECORD, _MARK)
        create_folder(self.out)
        path = self.out / RECORD
        if not path.is_file():
            return

        record = read_json(path)
        if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
            raise DataError(f"{path}: is not the record of a data set; choose another folder")
        if record.get("made_by") != self._made_by:
            raise UserError(
                f"{self.out}: was made by {record.get('made_by')}; choose another folder"
            )
        settings = json.loads(json.dumps(self._settings))
        for name, now in settings.items():
            before = record["settings"].get(name)
            if before != now:
                raise UserError(
                    f"{self.out}: was begun with {name} = {before!r}, not {now!r}; "
                    "give the same, or another folder"
                )

    @property
    def _made_by(self) -> str:
        return f"mempiler synthesize {self._kind}"

    def _write_record(self) -> None:
        """Write the settings, and what was accepted and refused so far."""
        report = self._runner.report
        record = {
            "made_by": self._made_by,
            "settings": self._settings,
            "accepted": dict(report.accepted),
            "rejections": [asdict(rejection) for rejection in report.rejections],
        }
        with atomic_write(self.out / RECORD) as file:
            json.dump(record, file, indent=1, ensure_ascii=False)

    def _data_files(self) -> tuple[Path, ...]:
        """Return the data in the folder; the data file of a PAL-Set comes first."""
        files = [path for path in self.out.glob("*.json") if path.name != RECORD]
        files.sort(
            key=lambda path: (not path.name.startswith("input"), natural_sort_key(path.name))
        )
        return tuple(files)
