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
from ..data.synthesis.palset.dates import MIN_SET_MONTHS
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
from .metered_usage import known_cost
from .options import make_inputs
from .progress import run_progress
from .results_folder import create_folder, refuse_foreign_folder
from .role_models import check_models
from .run_store import RunStore

RECORD = "synthesis.json"
"""The file with the record of a data set."""
ANSWERS = "answers.sqlite"
"""The file with the answers of the model."""
EMBEDDER = "minilm"
"""Measures by default how near MemoryQuest's requests are to their references."""
_MARK = '"made_by": "mempiler synthesize'
"""A text that stands in every record. A folder is ours if the file `RECORD` in it has this text."""


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
        """Return how many things were accepted and refused.

        The counts are by step and outcome: {"logs": {"accepted": 12, "retried": 3}}.
        """
        counts: dict[str, dict[str, int]] = {}
        for step, accepted in self.report.accepted.items():
            counts.setdefault(step, {})["accepted"] = accepted
        rejections = Counter(
            (rejection.step, rejection.outcome) for rejection in self.report.rejections
        )
        for (step, outcome), count in rejections.items():
            counts.setdefault(step, {})[outcome] = count
        return counts

    def steps(self) -> list[dict[str, Any]]:
        """Return every step with its name, its calls and its outcomes, in the order of the work."""
        outcomes = self.outcomes()
        names = dict.fromkeys([*self.report.calls, *outcomes])
        steps: list[dict[str, Any]] = []
        for name in names:
            calls = self.report.calls[name]
            steps.append({"name": name, "calls": calls, "outcomes": outcomes.get(name, {})})
        return steps

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON.

        Of refused attempts there are only counts; `synthesis.json` in the folder has them in full.
        """
        return {
            "out": str(self.out),
            "files": [str(path) for path in self.files],
            "steps": self.steps(),
            "calls": self.usage.by_role(),
            "cost": known_cost(self.usage),
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
        out: The folder of the data set. If a data set of the same kind and settings was begun in
            it, that is gone on with; any other content is refused.
        users: The number of users to write.
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
    check_number("months", months, minimum=MIN_SET_MONTHS)
    check_number("attempts", attempts, minimum=1)
    check_number("reviews", reviews)
    if language not in LANGUAGES:
        raise UnknownNameError("language", language, LANGUAGES)

    # palbench is the benchmark that reads a PAL-Set.
    inputs = _synthesis_inputs("palbench", options)
    synthesis = _Synthesis(
        kind="palset",
        out=Path(out),
        settings={
            "seed": inputs.config.data.seed,
            "users": users,
            "months": months,
            "language": language,
        },
        inputs=inputs,
        attempts=attempts,
        shows_progress=options.get("progress", True),
        reviews=reviews,
    )
    with synthesis.running() as runner:
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
        out: The folder of the data set. If a data set of the same kind and settings was begun in
            it, that is gone on with; any other content is refused. Profiles may have been added
            since then, but not changed or removed.
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
    all_profiles = read_profiles(profiles)
    inputs = _synthesis_inputs("memoryquest", options)
    measure = make_embedder(embedder, embedder_api_base)
    refuse_offline_embedder(measure)
    measure.check()

    synthesis = _Synthesis(
        kind="memoryquest",
        out=Path(out),
        settings={"embedder": embedder},
        inputs=inputs,
        attempts=attempts,
        shows_progress=options.get("progress", True),
        # All of them: a later call may write more users.
        profile_digests={profile.user_id: profile.digest for profile in all_profiles},
    )
    with synthesis.running() as runner:
        if measure.account is not None:
            execution = inputs.config.execution
            measure.account.waits = Waits(
                execution.timeout, execution.retries, execution.lm_deadline
            )
            measure.account.open(synthesis.meter, synthesis.guard)
        make_memoryquest(
            all_profiles[:users], synthesis.out, runner, measure, synthesis.on_progress
        )
    return synthesis.result()


def _synthesis_inputs(benchmark: str, options: SynthesisOptions) -> RunInputs:
    """Check the options of a data set, and return them as the inputs of a run.

    Args:
        benchmark: The name of the benchmark that reads the data. Inputs of a run have one; no
            question of it is read here.
        options: The options as the user gave them.

    Raises:
        UserError: An option is unknown or does not fit, or the model cannot write.
        EndpointError: The model's endpoint does not answer.
    """
    known_options = SynthesisOptions.__annotations__
    for name in options:
        if name not in known_options:
            raise UnknownNameError("option", name, known_options)

    inputs = make_inputs({**options, "benchmark": benchmark})
    is_named = "task" not in inputs.user_models
    if is_named and is_offline(inputs.config.models.task.name):
        raise UserError("the offline engine cannot write data; name a language model with --lm")
    check_models(inputs)
    return inputs


class _Synthesis:
    """The writing of one data set into its folder.

    Args:
        kind: "palset" or "memoryquest".
        out: The folder.
        settings: Settings of this kind of data set. With other values it would be another data set.
        inputs: Models, limits and threads.
        attempts: How often a step is asked.
        shows_progress: Whether progress is shown on standard error.
        profile_digests: Digests of the profiles that the data are written from, by user id; None
            if there are none. Profiles may be added to a data set, but not changed.
        reviews: How often finished records are reviewed; None if this kind has no reviews. A later
            call may review more often: it goes through all records again.
    """

    def __init__(
        self,
        kind: str,
        out: Path,
        settings: Mapping[str, Any],
        inputs: RunInputs,
        attempts: int,
        shows_progress: bool,
        profile_digests: Mapping[str, str] | None = None,
        reviews: int | None = None,
    ) -> None:
        config = inputs.config
        self.out = out
        self.meter = Meter()
        """Counts the calls; where progress is shown, the display has a meter, which replaces it."""
        self.guard = BudgetGuard(config.limits, max(IN_FLIGHT, config.execution.threads))
        self._kind = kind
        self._inputs = inputs
        self._settings = {
            "lm": config.models.task.name,
            "lm_set": config.models.task.settings,
            **settings,
        }
        self._profile_digests = dict(profile_digests or {})
        self._reviews = reviews
        self._completed_reviews: int | None = None
        """How often all records in the folder were reviewed; None if that is not known."""
        self._runner = Runner(attempts, config.execution.threads)
        self._shows_progress = shows_progress
        self._stopped: str | None = None

    def on_progress(self, line: str) -> None:
        """Show a line about a user on standard error."""
        if self._shows_progress:
            Output(stderr=True).print(line)

    @contextmanager
    def running(self) -> Iterator[Runner]:
        """Hold the folder and the model open while a block writes the data.

            with synthesis.running() as runner:
                make_palset(..., runner)

        A limit that is reached ends the block without an error; `result` says which it was.

        Raises:
            UserError: The folder holds something else, or another process writes into it.
            EndpointError: The model failed.
            RunInterrupted: The user stopped it.
        """
        with self._locked_folder() as store, self._progress():
            try:
                with self._model_context(store):
                    yield self._runner
                if self._data_files():
                    self._completed_reviews = self._reviews
            except BudgetError as error:
                self._stopped = self.guard.limit_hit or str(error)
            except EndpointError as error:
                advice = f"answers are kept in {self.out}, the same command goes on"
                raise EndpointError(f"{error}; {advice}") from error
            except KeyboardInterrupt as stop:
                raise RunInterrupted(f"answers are kept in {self.out}") from stop
            finally:
                # However the block ended, the record says what was refused until then.
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
        """Show what the block spends on standard error, unless progress is not to be shown."""
        if not self._shows_progress:
            yield
            return
        with run_progress(self._inputs.config.limits) as progress:
            # The display shows what its meter counts, so the model of the block has to use it.
            self.meter = progress.meter
            yield

    @contextmanager
    def _model_context(self, store: RunStore) -> Iterator[None]:
        """Let DSPy ask the model in the block, with the adapter of the configuration."""
        adapter = make_adapter(self._inputs.config.method.adapter or "chat")
        with dspy.context(lm=self._model(store), adapter=adapter), endpoint_errors():
            yield

    def _model(self, store: RunStore) -> MeteredLM:
        """Return the language model that writes.

        It counts in `meter`, keeps the limits of `guard`, and takes answers that `store` has from
        there.
        """
        config = self._inputs.config
        name = config.models.task.name
        user_lm = self._inputs.user_models.get("task")
        # A model object of the user has an address of its own.
        api_base = config.models.task.api_base if user_lm is None else None
        model_config = ModelConfig(
            api_base=api_base,
            timeout=config.execution.timeout,
            retries=config.execution.retries,
            deadline=config.execution.lm_deadline,
            slots=config.execution.threads,
            # The configuration has the name of an object, too, by which its price is known.
            prices=needed_prices(name, config.limits.max_usd),
            settings=config.models.task.settings,
        )
        return language_model(
            user_lm if user_lm is not None else name,
            model_config,
            meter=self.meter,
            guard=self.guard,
            answers=store.answers,
        )

    @contextmanager
    def _locked_folder(self) -> Iterator[RunStore]:
        """Lock the folder during the block, and return the store of the answers in it.

        Two processes in one folder would pay for the same calls twice.

        Raises:
            UserError: The folder holds something else, or another process has locked it.
        """
        refuse_foreign_folder(self.out, RECORD, _MARK)
        create_folder(self.out)
        lock = FileLock(self.out / "synthesis.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(f"{self.out}: another process writes it; wait for its end") from error
        store: RunStore | None = None
        try:
            # Under the lock, since another process may have begun a data set a moment ago.
            self._refuse_other_data_set()
            self._completed_reviews = self._recorded_reviews()
            # A folder without a record would be refused as somebody else's the next time.
            self._write_record()
            store = RunStore(self.out / ANSWERS)
            yield store
        finally:
            if store is not None:
                store.close()
            lock.release()

    def _refuse_other_data_set(self) -> None:
        """Refuse a folder in which another data set was begun.

        Raises:
            UserError: The data set in it is of another kind, or has other settings or profiles.
            DataError: The record of the folder cannot be read.
        """
        path = self.out / RECORD
        if not path.is_file():
            # The folder is new.
            return

        record = read_json(path)
        is_record = isinstance(record, dict) and isinstance(record.get("settings"), dict)
        if not is_record or not isinstance(record.get("profiles", {}), dict):
            raise DataError(f"{path}: is not the record of a data set; choose another folder")
        if record.get("made_by") != self._made_by:
            raise UserError(
                f"{self.out}: was made by {record.get('made_by')}; choose another folder"
            )

        # As they would be read back from a record, where a tuple has become a list.
        settings = json.loads(json.dumps(self._settings))
        for name, now in settings.items():
            before = record["settings"].get(name)
            if before != now:
                raise UserError(
                    f"{self.out}: was begun with {name} = {before!r}, not {now!r}; "
                    "give the same, or another folder"
                )

        for user_id, digest in record.get("profiles", {}).items():
            if self._profile_digests.get(user_id) != digest:
                raise UserError(
                    f"{self.out}: the profile of {user_id!r} that it was begun with has changed or "
                    "is missing; give the same profiles, or another folder"
                )

    def _recorded_reviews(self) -> int | None:
        """Return the number of reviews in the record of the folder; None unless it is that of now.

        A run with another number may be stopped after the files of some users.
        """
        path = self.out / RECORD
        if not path.is_file() or read_json(path).get("reviews") != self._reviews:
            return None
        return self._reviews

    @property
    def _made_by(self) -> str:
        """The command that writes this kind of data set, as records name it."""
        return f"mempiler synthesize {self._kind}"

    def _write_record(self) -> None:
        """Write the settings, and what was accepted, refused and wholly reviewed so far."""
        report = self._runner.report
        record = {
            "made_by": self._made_by,
            "settings": self._settings,
            "profiles": self._profile_digests,
            "accepted": dict(report.accepted),
            "rejections": [asdict(rejection) for rejection in report.rejections],
        }
        if self._completed_reviews is not None:
            record["reviews"] = self._completed_reviews
        with atomic_write(self.out / RECORD) as file:
            json.dump(record, file, indent=1, ensure_ascii=False)

    def _data_files(self) -> tuple[Path, ...]:
        """Return the data in the folder; the data file of a PAL-Set comes first."""
        files = [path for path in self.out.glob("*.json") if path.name != RECORD]
        files.sort(
            key=lambda path: (not path.name.startswith("input"), natural_sort_key(path.name))
        )
        return tuple(files)
