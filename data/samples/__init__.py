"""Sample data of our own, in the benchmarks' genuine formats."""

from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path


def sample(name: str = "") -> AbstractContextManager[Path]:
    """The file or folder of a sample, wherever the package is installed; the folder of all samples without a name."""
    folder = resources.files(__package__ or "")
    return resources.as_file(folder / name if name else folder)
