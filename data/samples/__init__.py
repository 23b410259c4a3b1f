"""Sample data of our own, in the benchmarks' genuine formats."""

from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path


def sample(name: str = "") -> AbstractContextManager[Path]:
    """Return a context with the path of a sample's file or folder.

    The path is valid within the context, wherever the package is installed. Without a name it is
    the folder of all samples.
    """
    folder = resources.files(__package__ or "")
    return resources.as_file(folder / name if name else folder)
