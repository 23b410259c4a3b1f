"""Components: the modules that a method is made of, each with its settings.

Writers, readers and methods are components. A component with settings gives them to
`super().__init__`. They are saved with a program, and the settings of a writer are part of the key
of its memories:

    class DigestSettings(Settings):
        max_words: int = Field(default=300, ge=1, description="most words of a digest")

    class DigestWriter(Writer[Digest]):
        settings: DigestSettings

        def __init__(self, settings: DigestSettings) -> None:
            super().__init__(settings)
            self.write = predictor(WriteDigest)

    DigestWriter(DigestSettings(max_words=100)).config      # {"max_words": 100}
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Mapping
from typing import Any, Self

import dspy

from ..errors import UserError
from ..reading.failures import concerns_prompt
from ._context import program_context
from ._plain_data import is_plain_data
from .adapter import adapter as make_adapter
from .predictor import predictors_of
from .recording import failure_of, record_failure
from .settings import Settings


class Component(dspy.Module):
    """A module that knows its settings.

    Args:
        settings: What can be set of it; None if there is nothing to set.
    """

    settings: Any = None
    """The settings; a subclass that reads them declares their class: `settings: NoteSettings`."""
    longest_text: int | None = None
    """Most characters of a text that is taken from a model; a longer one is no answer."""
    resolve_dates: bool = False
    """Whether models are shown the date beside each relative date; the program sets it."""
    predictors_below = predictors_of

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings

    @property
    def config(self) -> dict[str, Any]:
        """The settings by name, as JSON has them."""
        if self.settings is None:
            return {}
        return self.settings.model_dump(mode="json")

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Call a predictor, or a module made of predictors, and return its prediction.

        Returns:
            The prediction. None if the model's answer stays unreadable, or if the endpoint refuses
            the prompt for its content or length; the failure is recorded.

        Raises:
            Exception: Any other error, such as that of an endpoint that is gone.
        """
        adapter = dspy.settings.adapter or make_adapter()
        length_limit = program_context(max_text_length=self.longest_text)
        try:
            with length_limit, dspy.context(adapter=adapter):
                return predictor(**inputs)
        except Exception as error:
            # Other prompts may still be answered after an error that concerns this prompt alone.
            if not concerns_prompt(error):
                raise
            record_failure(failure_of(self._name_of(predictor), error))
            return None

    def check_settings(self) -> None:
        """Raise a UserError if the constructor takes a number, text or list that no settings hold.

        Such an argument would not be saved with a program. Also, two writers that differ only in it
        would have the same key, so that each would read the memories of the other.
        """
        setting_names: Collection[str] = ()
        if self.settings is not None:
            setting_names = type(self.settings).model_fields

        # The names that annotations may refer to.
        namespace = getattr(type(self).__init__, "__globals__", {})
        for name, parameter in constructor_parameters(type(self)).items():
            if name not in setting_names and is_plain_data(parameter, namespace):
                raise UserError(
                    f"{type(self).__name__}: the constructor takes {name}, which no settings hold; "
                    f"make {name} a field of a Settings class, "
                    "and give super().__init__ an object of it"
                )

    def _name_of(self, module: dspy.Module) -> str:
        """Return what errors call a module: its path below this component, or else its class."""
        for path, submodule in self.named_sub_modules():
            if submodule is module:
                return path.removeprefix("self.")
        return type(module).__name__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that shares its embedders."""
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            is_embedder = hasattr(value, "embed")
            setattr(new, name, value if is_embedder else copy.deepcopy(value, memo))
        return new


def constructor_parameters(component_class: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor by name, without `self`."""
    # The class itself has no useful signature: DSPy's metaclass accepts any arguments.
    signature = inspect.signature(component_class.__init__)
    _, *parameters = signature.parameters.values()
    return {parameter.name: parameter for parameter in parameters}
