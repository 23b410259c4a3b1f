"""Tasks: how a query is answered from a recalled context. One task class per kind of benchmark.

A task names the fields that an example of it must have, makes one `Query` of them, and answers. There are free answers
to a question, the choice of one option, responses to a user's request, and the tasks of PAL-Bench (Mem-PAL, "Evaluation
Tasks" and appendix B): there `Query.about` gives a method which half of a memory bears on the query, needs while a
requirement is being understood, solutions and preferences after that (appendix C).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

import dspy
from pydantic import Field

from ...async_bridge import run_bridged
from ...errors import UnknownNameError, UserError
from ...records import Context, Hit, Item, Query, comparable
from ...records.query import About, Modality
from ...signatures import pal
from ...signatures.answering import NOT_MENTIONED, AnswerFromContext, ChooseFromContext, RespondPersonally
from ...signatures.chinese import PromptLanguage, action_meaning, has_chinese, in_language
from ..settings import Settings
from ..predictor import predictor
from .._relative_dates import resolve_item_dates, resolve_line_dates
from ..streaming import predictor_writes_answer


class TaskSettings(Settings):
    """What can be set of any task that has a prompt, by `--set task.NAME=VALUE`."""

    kind = "task"
    reasoning: bool = Field(default=False, description="whether the prompt asks for the reasons before the answer")
    abstain: bool = Field(
        default=False, description="whether the prompt says what to answer where nothing bears on a question"
    )
    dates: bool = Field(
        default=True,
        description="whether the date stands beside `yesterday` and the like in all that is shown to a model",
    )
    reask: int = Field(
        default=0, ge=0, description="how often behaviour is asked for again where the answer names none of the options"
    )

    language: PromptLanguage = Field(
        default="English", description="of the prompt, English or Chinese; the tasks of PAL-Bench have a Chinese one"
    )

    @property
    def non_defaults(self) -> dict[str, Any]:
        """What is no default, by the names that `split_config` takes, and `dates` in any case.

        `dates` is off in programs that were saved before it was on by default, and do not name it.
        """
        values = {**self.model_dump(exclude_defaults=True), "dates": self.dates}
        return {f"{TASK}{name}": value for name, value in values.items()}


TASK = "task."
"""Before the name of a setting of the task, where it stands beside those of the method."""


class Task(dspy.Module):
    """Base class: answers a query from a context, by one call of `prompt` with what `asked` says.

    A task that answers otherwise has a `forward` of its own.
    """

    name: ClassVar[str]
    prompt: ClassVar[type[dspy.Signature] | None] = None
    """What `answer` asks; None where no language model is asked."""
    inputs: ClassVar[tuple[str, ...]] = ("question",)
    """The fields an example must have; `question` becomes the text of the query, `options` its options."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Those of `inputs` that may be missing or empty."""
    modality: ClassVar[Modality] = "question"
    about: ClassVar[About | None] = None
    shows_history: ClassVar[bool] = False
    """Whether `shown` looks at the history too."""
    remembers_recent: ClassVar[bool] = False
    """Whether items after the history are remembered before a question, as `Writer.recent` says; else only shown."""
    settings = TaskSettings()

    def __init__(self) -> None:
        super().__init__()
        if self.prompt is not None:
            self.answer = predictor(self.prompt)

    def configured(self, settings: TaskSettings) -> Self:
        """The task with its prompt as the settings want it; what answers without a prompt of ours stays as it is."""
        self.settings = settings
        if self.prompt is None:
            return self
        signature: Any = self.answer.signature
        if settings.language != "English":
            if not has_chinese(self.prompt):
                raise UserError(f"task {self.name} has its prompt in English alone; leave out task.language")
            signature = in_language(self.prompt, settings.language)
        if settings.reasoning and "reasoning" not in signature.output_fields:
            signature = signature.prepend("reasoning", dspy.OutputField(desc=_REASONS, default=""), str)
        if settings.abstain:
            signature = signature.with_instructions(f"{signature.instructions}\n{NOT_MENTIONED}")
        self.answer.signature = signature
        return self

    def query(
        self,
        fields: Mapping[str, Any],
        past: Sequence[Item] = (),
        recent: Sequence[Item] = (),
        speakers: Sequence[str] = (),
    ) -> Query:
        """The query of an example's fields.

        Args:
            fields: `question`, and `options`, `date`, `searched_with_date`, `dialogue` where there are any; others go
                into `Query.more`.
            past: The items of the history, for tasks that show its end.
            recent: Items that came after it.
            speakers: Who speaks in the history.

        Raises:
            UserError: A field that the task needs is missing or empty.
        """
        missing = [name for name in self.inputs if name not in self.optional and not fields.get(name)]
        if missing:
            raise UserError(f"task {self.name} needs {', '.join(missing)}; pass {missing[0]}=...")
        more = {name: value for name, value in fields.items() if name not in _FIELDS}
        return Query(
            text=str(fields["question"]),
            options=tuple(str(option) for option in fields.get("options") or ()),
            date=fields.get("date"),
            searched_with_date=bool(fields.get("searched_with_date")),
            speakers=tuple(speakers),
            dialogue=str(fields.get("dialogue") or ""),
            modality=self.modality,
            about=self.about,
            shown_items=tuple(self.shown_items(past, recent)),
            new_items=tuple(recent),
            extra=more,
        )

    def shown_items(self, past: Sequence[Item], recent: Sequence[Item]) -> Sequence[Item]:
        """The raw items that are shown beside the recalled context. Default: those after the history."""
        return recent

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        """Answers a query, with the raw items that it shows, from what the memory recalled."""
        with predictor_writes_answer(is_unchanged=type(self).build_outputs is Task.build_outputs):
            found = self.answer(**self.prompt_inputs(context, query))
        return self.build_outputs(found, query)

    async def aforward(self, context: Context, query: Query) -> dspy.Prediction:
        """`forward` for asyncio; no thread waits for a model that can be awaited."""
        # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
        return await run_bridged(partial(type(self).forward, self, context, query))

    def prompt_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """`asked`, of what is shown to a model of a context and of the query's raw items."""
        shown = tuple(self.items_as_shown(query.shown_items))
        return self.build_inputs(self.context_as_shown(context), query.model_copy(update={"shown_items": shown}))

    def context_as_shown(self, context: Context) -> Context:
        """The context with the date beside each relative date, where that is set."""
        if not self.settings.dates:
            return context
        return context.model_copy(update={"hits": tuple(resolve_line_dates(hit) for hit in context.hits)})

    def items_as_shown(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items with the date beside each relative date, where that is set."""
        return [resolve_item_dates(item) for item in items] if self.settings.dates else items

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """The inputs of `prompt`. Default: context, question with its date, and the options of a task that has any."""
        inputs: dict[str, Any] = {
            "context": with_items(context.text(), query.shown_items),
            "question": query.dated_text,
        }
        if "options" in self.inputs:
            inputs["options"] = list(query.options)
        return inputs

    def build_outputs(self, found: dspy.Prediction, query: Query) -> dspy.Prediction:
        """The outputs of the task, of those of its prompt. Default: the same."""
        return found


_REASONS = "what helps to answer, and what follows from it; work out dates here"
_FIELDS = {"question", "options", "date", "searched_with_date", "dialogue"}
_PLAIN = frozenset({"a", "an", "the", "is", "are", "was", "of", "what", "who", "where", "which", "s", "as", "has"})
_WORD = re.compile(r"\w+")
NOT_FOUND = "none"
"""The answer where no entry matches."""


class QuestionAnswering(Task):
    """A short answer to a question about the history."""

    name = "question-answering"
    prompt = AnswerFromContext


class MultipleChoice(Task):
    """The letter of the option that suits the history best."""

    name = "multiple-choice"
    prompt = ChooseFromContext
    inputs = ("question", "options")


class PersonalResponse(Task):
    """A response to a user's request that takes into account what is remembered of the user.

    Source: PGR, appendix, answer generation. The notes of the context, e.g. a prospection summary, follow its hits.
    """

    name = "personal-response"
    prompt = RespondPersonally

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        return {"context": with_items(context.text(), query.shown_items), "date": query.when, "question": query.text}


class MemoryLookup(Task):
    """Answers by code from the oldest entry that holds every word of the question; without a language model.

    For synthetic worlds whose notes are a subject, an attribute and a value ("Ada pet parrot"): there a reward that
    depends on the memory alone needs no reader model. That the oldest entry answers makes a stale duplicate cost as
    much as a missing update.
    """

    name = "memory-lookup"

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        wanted = set(_words(query.text))
        for hit in sorted(context.hits, key=_age):
            found = _words(hit.text)
            if wanted <= set(found):
                rest = [word for word in found if word not in wanted]
                return dspy.Prediction(answer=" ".join(rest) or NOT_FOUND)
        return dspy.Prediction(answer=NOT_FOUND)


class RequirementRestatement(Task):
    """The whole requirement behind a brief query (task 1)."""

    name = "requirement-restatement"
    prompt = pal.RestateRequirement
    about = "needs"


class SolutionProposal(Task):
    """One solution that suits the user, for a requirement that is given in full (task 2-1)."""

    name = "solution-proposal"
    prompt = pal.ProposeSolution
    about = "solutions"


class SolutionSelection(Task):
    """The two candidates that suit the user best (task 2-2). The answer is a list of ids, ["S2", "S7"].

    A selection that does not name two candidates scores 0; the released code asks for it up to ten times.
    """

    name = "solution-selection"
    prompt = pal.SelectSolutions
    inputs = ("question", "options")
    about = "solutions"


class DialogueReply(Task):
    """The assistant's next reply, of a given kind (task 3).

    Query fields: `question` is what the user just said, `dialogue` what was said before it, `action` the kind of reply.
    The memory is searched with the whole dialogue so far, of which a method may make a better query: an assent alone
    would find nothing.
    """

    name = "dialogue-reply"
    prompt = pal.ReplyInDialogue
    modality = "dialogue"
    about = "solutions"

    def query(self, *given: Any, **named: Any) -> Query:
        query = super().query(*given, **named)
        about = "needs" if _action(query) == "requirement prediction" else self.about
        return query.model_copy(update={"about": about})

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        action = _action(query)
        if action not in pal.ASSISTANT_ACTIONS:
            raise UserError(f"{action!r} is no kind of reply; one of: {', '.join(pal.ASSISTANT_ACTIONS)}")
        return {
            "context": with_items(context.text(), query.shown_items),
            "dialogue": "\n".join(line for line in query.dialogue.split("\n") if line),
            "action": action,
            "action_meaning": action_meaning(action, self.settings.language),
            "question": query.text,
        }


def _action(query: Query) -> Any:
    return query.extra.get("action") or ("solution proposal" if query.dialogue.strip() else "requirement prediction")


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _PLAIN]


def _age(hit: Hit) -> tuple[datetime, int, str]:
    digits = re.sub(r"\D", "", hit.id)
    return comparable(hit.time), int(digits or 0), hit.id


def with_items(text: str, items: Sequence[Item]) -> str:
    """A text, as that of a context, followed by the lines of raw items, as those that a query shows."""
    lines = [line for item in items for line in item.lines()]
    return "\n".join([text, *lines]) if text else "\n".join(lines)


def split_config(config: Mapping[str, Any], task: str) -> tuple[dict[str, Any], TaskSettings]:
    """The settings of a program as those of its method and those of its task.

    Raises:
        UserError: A task has no such setting.
    """
    own = {name: value for name, value in config.items() if not name.startswith(TASK)}
    asked = {name.removeprefix(TASK): value for name, value in config.items() if name.startswith(TASK)}
    return own, TaskSettings.from_values(task, asked)


TASKS: dict[str, type[Task] | str] = {
    **{each.name: each for each in Task.__subclasses__()},
    "behavior-prediction": "behavior:BehaviorPrediction",
}
"""Tasks by name; that with a file of its own as "module:Class" within this folder, imported when asked for."""


def task(name: str) -> type[Task]:
    """The task class of a name.

    Raises:
        UnknownNameError: There is no such task.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    found = TASKS[name]
    if isinstance(found, str):
        module, _, kind = found.partition(":")
        return getattr(import_module(f".{module}", __package__), kind)
    return found
