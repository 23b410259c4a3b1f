"""Sessions of many users from a file of JSON lines, each stored or refused with its number and the reason.

    {"user": "ada", "id": "chat-3", "messages": [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]}

A session is stored once under its id: an import that was cut off is repeated as a whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import BinaryIO

from pydantic import ValidationError

from ..errors import StoreError, UserError, misfit
from ..memory.incoming import incoming
from ..memory.store import Store
from ..memory.stored import Owner
from ..records.json_input import decode
from .bodies import Name, NewSession

MOST_LINE = 100_000_000
"""Bytes of a line."""


class ImportedSession(NewSession):
    """One line of an import."""

    user: Name
    id: Name  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


@dataclass
class Imported:
    """What became of the lines of an import: stored, stored before, and why one was refused, by its number from 1."""

    stored: int = 0
    known: int = 0
    refused: dict[int, str] = field(default_factory=dict[int, str])


def import_lines(store: Store, tenant: str, file: BinaryIO) -> Imported:
    """Stores the sessions of a file, open for reading bytes, for users of a tenant, a line at a time.

    Raises:
        UserError: A line is too long; those before it are stored.
        StoreError: The lines before are stored.
    """
    found = Imported()
    for number, line in enumerate(iter(lambda: file.readline(MOST_LINE + 1), b""), 1):
        if len(line) > MOST_LINE:
            raise UserError(f"line {number} has more than {MOST_LINE} bytes; those before it are stored")
        if not line.strip():
            continue
        try:
            value = decode(line.decode())
            if not isinstance(value, dict):
                raise UserError("expected a JSON object")
            new = ImportedSession.model_validate(value)
            messages = [message.model_dump(exclude_none=True) for message in new.messages]
            item, digest = incoming(messages, new.id, new.metadata or {})
            added = store.add(Owner(new.user, tenant), item, digest, metadata=new.metadata)
        except StoreError:
            raise
        except ValidationError as error:
            found.refused[number] = misfit(error)
        except json.JSONDecodeError as error:
            found.refused[number] = f"no JSON: {error.msg}"
        except (UserError, ValueError) as error:
            found.refused[number] = str(error)
        else:
            found.stored += added.new
            found.known += not added.new
    return found
