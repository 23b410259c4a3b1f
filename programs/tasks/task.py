"""The contract of tasks: how a query is answered from a recalled context.

There is one task class per kind of benchmark. A task that asks its own prompt:

    class TravelAdvice(Task):
        name = "travel-advice"
        prompt = AdviseTraveller                  # a dspy.Signature
        inputs = ("question", "date")

        def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
            return {"notes": context.text(), "date": query.when, "question": query.text}

| attribute or hook                  | required? | meaning, and the default                     |
|------------------------------------|-----------|----------------------------------------------|
| `name`                             | yes       | what saved programs and tables call it       |
| `prompt`                           | no        | the signature of `answer`; None              |
| `inputs`                           | no        | fields that an example must have; `question` |
| `optional`                         | no        | those of them that may be empty; none        |
| `build_inputs(context, query)`     | no        | inputs of the prompt; context and question   |
| `build_outputs(prediction, query)` | no        | outputs of the task; those of the prompt     |
| `shown_items(history, new_items)`  | no        | raw items beside the context; the new ones   |
| `modality`, `about`                | no        | what kind of query it makes, see `Query`     |
| `shows_history`                    | no        | whether `shown_items` needs the history      |
| `remembers_recent`                 | no        | whether new items are remembered too         |

A task that answers without a prompt has a `forward` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import dspy

from ...async_bridge import run_bridged, text_off_loop
from ...errors import UserError
from ...records import Context, Item, Query
from ...records.query import About, Modality
from ...signatures.answering import NOT_MENTIONED
from ...signatures.chinese import has_chinese, in_language
from .._context import current_program_context
from .._relative_dates import resolve_item_dates, resolve_line_dates
from ..call_recorder import ShownContext
from ..predictor import predictor
from ..state import signature_of
from ..streaming import stream_predictor
from .settings import TaskSettings

REASONS_DESCRIPTION = "what helps to answer, and what follows from it; work out dates here"
"""What the prompt says of the field `reasoning`."""
_QUERY_FIELDS = frozenset({"question", "options", "date", "searched_with_date", "dialogue"})
"""Fields of an example that stand in fields of a `Query`; all others go into `Query.extra`."""


class Task(dspy.Module):
    """Answer a query from a context, by one call of `prompt`; the module's docstring has the hooks.

    Its predictor is called `answer`.
    """

    name: ClassVar[str]
    prompt: ClassVar[type[dspy.Signature] | None] = None
    """What `answer` asks; None if no language model is asked."""
    inputs: ClassVar[tuple[str, ...]] = ("question",)
    """The fields that an example must have.

    `question` becomes the text of the query, `options` its options.
    """
    optional: ClassVar[tuple[str, ...]] = ()
    """Those of `inputs` that may be missing or empty."""
    modality: ClassVar[Modality] = "question"
    about: ClassVar[About | None] = None
    shows_history: ClassVar[bool] = False
    """Whether `shown_items` looks at the history too."""
    remembers_recent: ClassVar[bool] = False
    """Whether items after the history are remembered before a question, or only shown.

    How they are remembered is `Writer.recent_mode`.
    """
    settings = TaskSettings()

    def __init__(self) -> None:
        super().__init__()
        if self.prompt is not None:
            self.answer = predictor(self.prompt)

    def configure(self, settings: TaskSettings) -> Self:
        """Take over settings, which may change the prompt, and return the task itself.

        Raises:
            UserError: The task has no prompt in the language of the settings.
        """
        self.settings = settings
        if self.prompt is not None:
            self.answer.signature = self._signature_for(self.prompt, settings)
        return self

    def _signature_for(
        self, prompt: type[dspy.Signature], settings: TaskSettings
    ) -> type[dspy.Signature]:
        """Return the prompt of the task in the language of some settings, with what they add to it.

        Args:
            prompt: The English prompt of the task, for which there may be a Chinese one.
            settings: The settings.

        Raises:
            UserError: There is no such prompt in the language of the settings.
        """
        if settings.language == "English":
            # The prompt of the predictor itself, which may differ from the `prompt` of the class.
            signature = signature_of(self.answer)
        else:
            # Chinese is the only other language.
            if not has_chinese(prompt):
                raise UserError(
                    f"task {self.name} has its prompt in English alone; leave out task.language"
                )
            signature = in_language(prompt, settings.language)

        if settings.reasoning and "reasoning" not in signature.output_fields:
            # The field stands first, so that the model writes its reasons before the answer.
            reasons = dspy.OutputField(desc=REASONS_DESCRIPTION, default="")
            signature = signature.prepend("reasoning", reasons, str)

        if settings.abstain:
            instructions = f"{signature.instructions}\n{NOT_MENTIONED}"
            signature = signature.with_instructions(instructions)
        return signature

    def query(
        self,
        fields: Mapping[str, Any],
        history: Sequence[Item] = (),
        new_items: Sequence[Item] = (),
        speakers: Sequence[str] = (),
    ) -> Query:
        """Return what the fields of an example ask, as a query to the memory and to this task.

        Args:
            fields: `question`, and any of `options`, `date`, `searched_with_date` and `dialogue`;
                others go into `Query.extra`.
            history: The items of the history, for tasks that show its end.
            new_items: Items that came after it.
            speakers: Names of those who speak in the history.

        Raises:
            UserError: A field that the task needs is missing or empty.
        """
        self._check_fields(fields)
        extra = {name: value for name, value in fields.items() if name not in _QUERY_FIELDS}
        return Query(
            text=str(fields["question"]),
            options=tuple(str(option) for option in fields.get("options") or ()),
            date=fields.get("date"),
            searched_with_date=bool(fields.get("searched_with_date")),
            speakers=tuple(speakers),
            dialogue=str(fields.get("dialogue") or ""),
            modality=self.modality,
            about=self.about,
            shown_items=tuple(self.shown_items(history, new_items)),
            new_items=tuple(new_items),
            extra=extra,
        )

    def _check_fields(self, fields: Mapping[str, Any]) -> None:
        """Raise a UserError if a field that the task needs is missing or empty."""
        required = [name for name in self.inputs if name not in self.optional]
        missing = [name for name in required if not fields.get(name)]
        if missing:
            raise UserError(f"task {self.name} needs {', '.join(missing)}; pass {missing[0]}=...")

    def shown_items(self, history: Sequence[Item], new_items: Sequence[Item]) -> Sequence[Item]:
        """Return the items that the prompt shows in full beside what the memory recalls.

        By default these are all items that came after the history.

        Args:
            history: The items of the history.
            new_items: Items that came after it.
        """
        return new_items

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        """Answer a query from what the memory recalled, and from the raw items of the query."""
        # A task that overrides `build_outputs` may change the words of the model.
        is_unchanged = type(self).build_outputs is Task.build_outputs
        with stream_predictor(is_unchanged):
            make_inputs = partial(self.prompt_inputs, context, query)
            inputs = text_off_loop(_text_length(context, query), make_inputs)
            prediction = self.answer(**inputs)
        return self.build_outputs(prediction, query)

    async def aforward(self, context: Context, query: Query) -> dspy.Prediction:
        """Answer as `forward` does; no thread waits for a model that can be awaited."""
        # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
        return await run_bridged(partial(type(self).forward, self, context, query))

    def prompt_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt, with dates beside words such as "yesterday" if set."""
        shown_items = tuple(self.items_as_shown(query.shown_items))
        shown_query = query.model_copy(update={"shown_items": shown_items})
        shown_context = self.context_as_shown(context)

        recorder = current_program_context().recorder
        if recorder is not None:
            recorder.shown_context = ShownContext(context, shown_context)
        return self.build_inputs(shown_context, shown_query)

    def context_as_shown(self, context: Context) -> Context:
        """Return the context with the date beside each relative date, if that is set."""
        if not self.settings.dates:
            return context
        hits = tuple(resolve_line_dates(hit) for hit in context.hits)
        return context.model_copy(update={"hits": hits})

    def shown_context(self, context: Context) -> Context:
        """Return the context as the prompt shows it, for a metric that needs no answer."""
        return text_off_loop(_context_length(context), partial(self.context_as_shown, context))

    def items_as_shown(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items with the date beside each relative date, if that is set."""
        if not self.settings.dates:
            return items
        return [resolve_item_dates(item) for item in items]

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt: the context, the question with its date, any options.

        Args:
            context: What the memory recalled, as the prompt shows it.
            query: The query, with the items that the prompt shows in full.
        """
        inputs: dict[str, Any] = {
            "context": with_items(context.text(), query.shown_items),
            "question": query.dated_text,
        }
        if "options" in self.inputs:
            inputs["options"] = list(query.options)
        return inputs

    def build_outputs(self, prediction: dspy.Prediction, query: Query) -> dspy.Prediction:
        """Return the outputs of the task from those of its prompt, which are the same by default.

        A task that overrides this is not streamed: the model's words are not those of the answer.
        """
        return prediction


def _text_length(context: Context, query: Query) -> int:
    """Return about how many characters a prompt shows of a context and a query."""
    length = len(query.text) + _context_length(context)
    for item in query.shown_items:
        for turn in item.turns:
            length += len(turn.content)
    return length


def _context_length(context: Context) -> int:
    """Return how many characters the texts of a context have."""
    return sum(len(hit.text) for hit in context.hits)


def lines_of_items(items: Sequence[Item]) -> list[str]:
    """Return the lines of all items, as prompts show them."""
    lines: list[str] = []
    for item in items:
        lines.extend(item.lines())
    return lines


def with_items(text: str, items: Sequence[Item]) -> str:
    """Return a text, such as that of a context, followed by the lines of raw items."""
    lines = lines_of_items(items)
    if text:
        lines.insert(0, text)
    return "\n".join(lines)
