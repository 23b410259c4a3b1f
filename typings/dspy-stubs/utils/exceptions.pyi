from typing import Any

from dspy.signatures.signature import Signature

class DSPyError(Exception):
    default_code: str | None
    message: str
    code: str | None
    model: str | None
    provider: str | None
    provider_code: str | None
    status: int | None
    request_id: str | None
    retry_after: float | None

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        provider_code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None: ...

class LMError(DSPyError): ...
class LMConfigurationError(LMError): ...
class LMUnsupportedFeatureError(LMError): ...
class LMProviderError(LMError): ...
class LMTransportError(LMError): ...
class LMAuthError(LMProviderError): ...
class LMTimeoutError(LMProviderError): ...
class LMInvalidRequestError(LMProviderError): ...

class ContextWindowExceededError(LMInvalidRequestError):
    def __init__(
        self, *, model: str | None = None, message: str = "Context window exceeded", **kwargs: Any
    ) -> None: ...

class AdapterParseError(DSPyError):
    adapter_name: str
    signature: type[Signature]
    lm_response: str
    parsed_result: dict[str, Any] | None

    def __init__(
        self,
        adapter_name: str,
        signature: type[Signature],
        lm_response: str,
        message: str | None = None,
        parsed_result: dict[str, Any] | None = None,
    ) -> None: ...

class LMUnsupportedModelError(LMInvalidRequestError): ...

def is_retryable_lm_error(error: Exception) -> bool: ...
