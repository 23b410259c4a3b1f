"""The models of a run: the language model of each role, and the embedder.

    models = run.models
    lm = models.model("judge")
    embedder = models.make_embedder("minilm")

Each is made when it is needed. It counts its calls in the run's meter, is refused a call by the
run's guard when a limit is reached, and its answers or vectors are kept in the run's folder. A run
that replays another one gets the answers and vectors of that run instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import dspy

from ..engines.embedders import IN_PROCESS, NO_RERANKER, TextEmbedder
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.endpoint import Waits
from ..engines.limits import BudgetGuard
from ..engines.lm import LoadedModels, language_model
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.model_config import ModelConfig
from ..engines.prices import needed_prices
from ..engines.usage import Role
from ..errors import EndpointError, UserError
from .config import RunConfig
from .folder import RunFolder
from .inputs import RunInputs
from .replay import Replay, record_model, recording_embedder
from .role_models import role_models

_TINY = "local:tiny"
"""The name of a small model that is made here, for demonstrations."""


@dataclass(frozen=True)
class RunModels:
    """Makes the models of one run, with its limits and its store."""

    inputs: RunInputs
    meter: Meter
    guard: BudgetGuard
    folder: RunFolder
    loaded: LoadedModels
    """Models in this process, which all roles share."""
    replay: Replay | None
    """The run whose answers are given in the place of any call."""
    uses_shared_caches: bool = True
    """Whether answers and vectors may be kept in the caches that all runs share.

    If not, only the folder of the run has them.
    """

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.inputs.config

    def model(self, role: Role = "task") -> MeteredLM:
        """Return the language model of a role.

        Raises:
            UserError: The role is the judge, and no model is named for it.
        """
        config = self.config
        # Whose model is asked. Its calls are always counted for `role`.
        model_role: Role = role
        if role == "prompt" and not config.models.prompt.name:
            # Without a prompt model, the task model writes proposals and reflections.
            model_role = "task"
        role_model = role_models(config)[model_role]
        if role == "judge" and not role_model.name:
            raise UserError(self._judge_advice())

        # `--lm-set` sets the task model where it runs the program, but not where it proposes.
        settings = config.models.task.settings if role == "task" else {}
        user_lm = self.user_model(model_role, role_model.name)
        if user_lm is not None:
            return self.meter_user_model(user_lm, role, **settings)
        return self.load_model(role_model.name or "", role, role_model.address, **settings)

    def user_model(self, role: Role, model_name: str | None) -> dspy.BaseLM | None:
        """Return the model object that the user's Python code gave for a role.

        The result is None if there is no such object, or if it must not be asked. The caller then
        loads a model by its name.

        Args:
            role: The role, e.g. "judge".
            model_name: The name of the model that the configuration has for the role.
        """
        user_lm = self.inputs.user_models.get(role)
        if user_lm is None:
            return None
        if self.replay is not None:
            # A replay returns recorded answers, and asks no model.
            return None
        if user_lm.model != model_name:
            # The configuration of a child run may name another model, e.g. one that was trained
            # before.
            return None
        return user_lm

    def meter_user_model(self, user_lm: dspy.BaseLM, role: Role, **settings: object) -> MeteredLM:
        """Return a copy of a model that the user made, with the limits and the store of the run.

        Args:
            user_lm: The model, which is not changed.
            role: What the model is used for.
            **settings: Settings for every request. They replace those of the model object.
        """
        config = self._model_config(user_lm.model, role)
        lm = language_model(
            user_lm,
            replace(config, settings=settings),
            meter=self.meter,
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
        )
        record_model(self.folder, role, user_lm.model, lm)
        return lm

    def load_model(
        self, name: str, role: Role, api_base: str | None, **settings: object
    ) -> MeteredLM:
        """Return a language model by its name, with the limits and the store of the run.

        Args:
            name: The name, e.g. "openai/gpt-4.1-mini" or "offline".
            role: What the model is used for.
            api_base: Address of an OpenAI-compatible server; None takes the provider's own.
            **settings: Settings for every request, e.g. `temperature`.
        """
        model_config = self._model_config(name, role)
        model_config = replace(model_config, api_base=api_base, settings=settings)

        lm = language_model(
            self._loaded_name(role, name),
            model_config,
            meter=self.meter,
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
            replay=None if self.replay is None else self.replay.answer,
            loaded=self.loaded,
        )
        if self.replay is not None:
            # The context window and the longest answer are those of the run that is replayed.
            self.replay.restore_sizes(role, lm)
        # The record has the name that the user chose, so that the run can be repeated with it.
        record_model(self.folder, role, name, lm)
        return lm

    def _loaded_name(self, role: Role, name: str) -> str:
        """Return the name by which a model is loaded.

        Args:
            role: What the model is used for.
            name: The name that the user gave. In a replay the recorded model counts instead.
        """
        if self.replay is not None:
            name = self.replay.model_name(role)
        if name != _TINY:
            return name

        # The tiny model is not downloaded, but made here from a seed.
        from ..optimizers.demonstrations import tiny_folder

        return f"local:{tiny_folder(self.config.data.seed)}"

    def make_embedder(self, name: str) -> TextEmbedder:
        """Return an embedder by its name, or the one of the run that is replayed."""
        method = self.config.method
        if self.replay is None or name == OFFLINE_EMBEDDER:
            embedder = make_embedder(name, method.embedder_api_base, method.reranker)
            return self.connect_embedder(embedder)

        embedder = self.replay.embedder(name)
        if name in IN_PROCESS and method.reranker != NO_RERANKER:
            # A reranker compares the vectors of single tokens, which a run does not keep. But the
            # weights are in this process, where they compute the same token vectors again.
            embedder.reranker = make_embedder(name, None, method.reranker).reranker
        return self.connect_embedder(embedder)

    def connect_embedder(self, embedder: TextEmbedder) -> TextEmbedder:
        """Prepare an embedder for this run: check it, limit its requests, and keep its vectors.

        Args:
            embedder: The embedder. Its account is changed: it counts requests in the run's meter
                from now on.

        Returns:
            The embedder to use: the same one, or one that also keeps its vectors in the run's
            folder.

        Raises:
            EndpointError: The embedder cannot be reached, and the run is not a resumed one.
            UserError: Nobody provides it, its key is not set, or costs are limited and its price is
                not known.
        """
        # A replay has its vectors, and asks no endpoint.
        if self.replay is None:
            self._check_embedder(embedder)
        # An embedder without an account runs in this process: nothing is paid for.
        if embedder.account is not None:
            execution = self.config.execution
            embedder.account.waits = Waits(
                execution.timeout, execution.retries, execution.lm_deadline
            )
            embedder.account.open(self.meter, self.guard)
        if not self.uses_shared_caches:
            embedder.stop_disk_cache()
        return recording_embedder(embedder, self.folder)

    def _check_embedder(self, embedder: TextEmbedder) -> None:
        """Refuse an embedder that cannot be reached, unless the run is resumed."""
        try:
            embedder.check()
        except EndpointError:
            # What a resumed run still needs may be in its store.
            if self.config.execution.resume is None:
                raise

    def _model_config(self, name: str, role: Role) -> ModelConfig:
        """Return how the run asks a model of any kind: an endpoint or one in this process.

        Args:
            name: The model; if costs are limited, its price must be known.
            role: What it is used for.
        """
        config = self.config
        # A repetition of the run samples the answers of the program anew. Judges and proposals are
        # the same in all repetitions.
        repeat = config.execution.repeat if role in ("task", "answer") else 0
        return ModelConfig(
            timeout=config.execution.timeout,
            retries=config.execution.retries,
            deadline=config.execution.lm_deadline,
            uses_shared_cache=self.uses_shared_caches,
            repeat=repeat,
            # A model that llama.cpp serves here works on as many prompts as there are threads.
            slots=config.execution.threads,
            prices=needed_prices(name, config.limits.max_usd),
        )

    def _judge_advice(self) -> str:
        """Return how a user can name a judge, or choose a metric that needs none."""
        benchmark = self.config.data.benchmark
        advice = f"{benchmark} is scored by a judge; name its model with --judge-lm"
        judge_free_metrics = self.inputs.benchmark.judge_free_metrics
        if judge_free_metrics:
            metric = judge_free_metrics[0]
            advice += f", or take --benchmark-set metric={metric}, which needs none"
        return advice
