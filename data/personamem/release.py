"""Which files of a PersonaMem release belong together: questions of one length, and their contexts.

folder/questions_32k.csv     folder/shared_contexts_32k.jsonl
folder/questions_128k.csv    folder/shared_contexts_128k.jsonl
"""

from __future__ import annotations

from pathlib import Path

from ...errors import DataError, UnknownNameError

LENGTHS = ("32k", "128k", "1M")
"""The lengths of context that the files were released in."""


def questions_of(path: Path, length: str | None = None) -> Path:
    """The questions' file of a length, in a folder or beside another file of questions.

    Args:
        path: The folder of the released files, or one of them.
        length: One of `LENGTHS`; None takes the file that is named, or the only one of a folder.

    Raises:
        UnknownNameError: There is no such length.
        DataError: The folder holds no such file, or several and no length was given.
    """
    if length is not None and length not in LENGTHS:
        raise UnknownNameError("length of context", length, LENGTHS)
    if length is None and not path.is_dir():
        return path
    folder = path if path.is_dir() else path.parent
    found = sorted(folder.glob(f"questions_{length or '*'}.csv"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise DataError(f"{folder}: holds no questions_{length or '{32k,128k,1M}'}.csv")
    raise DataError(f"{folder}: holds {', '.join(file.name for file in found)}; choose with --option length=...")


def contexts_beside(path: Path) -> Path:
    """The contexts that belong to a CSV: `shared_contexts_32k.jsonl` beside `questions_32k.csv`.

    Where no file has that name, the only `*shared_contexts*.jsonl` of the folder.

    Raises:
        DataError: There is no such file, or several.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file")
    named = path.with_name(path.name.replace("questions", "shared_contexts")).with_suffix(".jsonl")
    if named.exists():
        return named
    others = sorted(path.parent.glob("*shared_contexts*.jsonl"))
    if len(others) == 1:
        return others[0]
    problem = f"{len(others)} others fit" if others else "the questions cannot be asked without it"
    raise DataError(f"{path}: {named.name} is not beside it, and {problem}; put it there")
