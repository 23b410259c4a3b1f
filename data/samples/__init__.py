"""Sample data of our own, in the benchmarks' genuine formats.

Example:
    >>> from mempiler.data.samples import sample
    >>> with sample("locomo.json") as path:
    ...     path.name
    'locomo.json'
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from pathlib import Path


def sample(name: str = "") -> AbstractContextManager[Path]:
    """The file or folder of a sample, wherever the package is installed; the folder of all samples without a name."""
    folder = resources.files(__package__ or "")
    return resources.as_file(folder / name if name else folder)


@contextmanager
def given_or_sample(path: str | Path | None, name: str) -> Iterator[tuple[Path, bool]]:
    """The path that is given, or that of a sample if it is None; and whether it is the sample's."""
    if path is not None:
        yield Path(path), False
        return
    with sample(name) as bundled:
        yield bundled, True
