"""Signatures of saved programs: who vouches for one, by ed25519.

The hashes in a program's folder show that its files belong together; whoever writes the files can write the hashes too.
A signature shows who made it. It is a third file, `signature.json`, over the digest of the manifest, which holds the
digest of the state: nothing in the folder can change without it.

    mempiler keys make ada            # ada: the private key (PEM, readable to its owner alone); ada.pub: a trust file
    mempiler keys sign my-program --sign-key ada
    mempiler ask my-program "Where?" --user ada --trust ada.pub

A trust file has one public key per line, `BASE64 NAME`, or PEM blocks with the name behind the last dashes. Empty lines
and lines that begin with # are left out.

Limits: a key is good until its line is deleted from the trust files; there are no dates and no chains. A signature says
that its maker wants this program to be used, not that it is good.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError, UserError
from .manifest import text_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = "signature.json"
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_DER = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of an ed25519 key in a PEM block."""


@dataclass(frozen=True)
class Author:
    """Who signed a program."""

    key: bytes
    """The public key, 32 bytes."""
    name: str | None = None
    """What the trust file calls the key; None where it was not checked against one."""

    @property
    def id(self) -> str:
        """A short name of the key: the beginning of its digest."""
        return hashlib.sha256(self.key).hexdigest()[:16]


def make_keys(path: str | Path) -> tuple[Path, str]:
    """Makes a key pair: the private key at `path`, readable to its owner alone, and `path`.pub, a trust file.

    Returns:
        The path of the trust file, and its line.

    Raises:
        UserError: One of the files is there already, or cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private, public, key = Path(path), Path(f"{path}.pub"), Ed25519PrivateKey.generate()
    line = f"{base64.b64encode(_public(key)).decode()} {private.name}\n"
    if public.exists():
        raise UserError(f"{public}: is there already; choose another name")
    _write_new(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write_new(public, line.encode(), 0o644)
    return public, line.strip()


def sign(digest: str, key_file: str | Path) -> str:
    """The text of `signature.json` for a program.

    Args:
        digest: Of its manifest.
        key_file: PEM file of an ed25519 private key without a passphrase.

    Raises:
        UserError: The file holds no such key.
    """
    key = read_private(key_file)
    found = {"public_key": _public(key), "signature": key.sign(_message(digest))}
    return json.dumps({name: base64.b64encode(value).decode() for name, value in found.items()}, indent=1)


def read_private(path: str | Path) -> Ed25519PrivateKey:
    """Reads a private key; no message holds any of it.

    Raises:
        UserError: The file holds no ed25519 private key in PEM, or one behind a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(path).read_bytes(), None)
    except OSError as error:
        raise UserError(f"{path}: the signing key cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UserError(f"{path}: no PEM private key without passphrase; make one with `mempiler keys make`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{path}: the private key is not of ed25519; make one with `mempiler keys make`")
    return key


def author_of(folder: Path, digest: str, trust: str | Path | None = None) -> Author | None:
    """Checks a folder's signature.

    Args:
        folder: The program's.
        digest: Of its manifest.
        trust: A trust file that must name the signer; None asks for no signature, but refuses a wrong one.

    Returns:
        Who signed it; None if nobody did.

    Raises:
        ProgramError: The signature is wrong; with a trust file also if there is none, or it is another's.
        UserError: The trust file cannot be read.
    """
    trusted = None if trust is None else read_trust(trust)
    found = _signer(folder, digest)
    if trusted is None:
        return None if found is None else Author(found)
    if found is None:
        raise ProgramError(f"{folder}: is not signed, but --trust {trust} asks for it; see `mempiler keys sign`")
    if found not in trusted:
        raise ProgramError(f"{folder}: is signed by {Author(found).id}, whose key is not in {trust}; do not use it")
    return Author(found, trusted[found])


def read_trust(path: str | Path) -> dict[bytes, str]:
    """The names of a trust file by public key.

    Raises:
        UserError: It cannot be read, holds no key, or a line is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the trust file cannot be read: {' '.join(str(error).split())}") from error
    if text.startswith("\ufeff"):
        raise UserError(f"{path}: line 1: begins with a byte order mark; save it as UTF-8 without one")
    found: dict[bytes, str] = {}
    for number, key, name in _entries(str(path), text):
        raw = _decoded(key)
        raw = raw and raw.removeprefix(_DER)
        if raw is None or len(raw) != 32:
            raise UserError(f"{path}: line {number}: no ed25519 public key; write BASE64 NAME, as `mempiler keys make`")
        found[raw] = name or Author(raw).id
    if not found:
        raise UserError(f"{path}: holds no key; write lines of the form: BASE64 NAME")
    return found


def _entries(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Number of the line, key and name of every entry."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        if words != _BEGIN:
            key, _, name = words.partition(" ")
            yield number, key, name.strip()
            continue
        block = list[str]()
        for _, part in lines:
            if part.strip().startswith(_END):
                yield number, "".join(block), part.strip().removeprefix(_END).strip()
                break
            block.append(part.strip())
        else:
            raise UserError(f"{path}: line {number}: the PEM block does not end; add {_END}")


def _signer(folder: Path, digest: str) -> bytes | None:
    """The public key of a right signature; None if there is no signature."""
    path = folder / SIGNATURE
    if not os.path.lexists(path):
        return None
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        given: Any = json.loads(text_of(path))
    except (ProgramError, ValueError, RecursionError) as error:
        raise ProgramError(f"{path}: the signature cannot be read; sign the program again, or do not use it") from error
    texts: Mapping[str, Any] = given if isinstance(given, dict) else {}
    key, signature = _decoded(texts.get("public_key")), _decoded(texts.get("signature"))
    if set(texts) != {"public_key", "signature"} or key is None or signature is None or len(key) != 32:
        raise ProgramError(f"{path}: is no signature of Mempiler; sign the program again, or do not use it")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _message(digest))
    except (InvalidSignature, ValueError):
        raise ProgramError(f"{path}: the signature is not of this program; do not use it") from None
    return key


def _message(digest: str) -> bytes:
    return f"mempiler saved program\n{digest}\n".encode()


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Writes a file that is not there yet, with its rights from the first moment on."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise UserError(f"{path}: is there already; choose another name") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
