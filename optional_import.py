"""Import packages that only an extra of Mempiler installs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .errors import MissingDependencyError


@contextmanager
def require_package(package: str, extra: str) -> Generator[None]:
    """Turn an ImportError in the block into a MissingDependencyError that names the extra.

        with require_package("fastembed", "rerank"):
            import fastembed

    Args:
        package: The package that the block imports.
        extra: The extra of Mempiler that installs it.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(package, extra) from error
