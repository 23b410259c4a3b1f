"""Signatures: whose program a folder holds, and one line for every folder, key and trust file that is not right."""

import base64
import json
import logging
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from mempiler.errors import MempilerError
from mempiler.programs.catalog import build
from mempiler.runs.artifact import (
    Manifest,
    check_writable,
    is_intact,
    load,
    open_program,
    read_manifest,
    read_states,
    save,
    sign_folder,
)
from mempiler.runs.register import register
from mempiler.runs.registered_model import Served
from mempiler.runs.registry import resolve, version_of
from mempiler.runs.signing import SIGNATURE, make_keys, read_trust

SCORES = {"gate": {"split": "dev", "score": 0.5, "n": 20, "stopped": None, "lm": "offline", "judge": None}}


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """Makes a key pair: the private key, and its trust file."""

    def make(name: str) -> tuple[Path, Path]:
        trust, _ = make_keys(tmp_path / name)
        return tmp_path / name, trust

    return make


@pytest.fixture
def ada(keys: Any) -> tuple[Path, Path]:
    return keys("ada")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(build("turn-rag", k=3), tmp_path / "program", Manifest(method="", task="", lms={"task": "openai/x"}))
    return tmp_path / "program"


def refusal(call: Callable[..., Any], *values: Any, **named: Any) -> str:
    with pytest.raises(MempilerError) as caught:
        call(*values, **named)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def signed(folder: Path, key: Path) -> Path:
    sign_folder(folder, key)
    return folder


def test_a_program_is_signed_when_it_is_saved(tmp_path, ada):
    key, trust = ada
    save(build("turn-rag"), tmp_path / "program", sign_key=key)
    assert sorted(path.name for path in (tmp_path / "program").iterdir()) == [
        "manifest.json",
        SIGNATURE,
        "state.json",
    ]
    opened = open_program(tmp_path / "program", trust=trust)
    assert (opened.trusted, opened.author and opened.author.name) == (True, "ada")


def test_a_folder_is_signed_as_it_is(folder, ada):
    key, trust = ada
    before = read_manifest(folder), read_states(folder)
    signed(folder, key)
    assert (read_manifest(folder), read_states(folder)) == before
    assert mempiler.load(folder, trust=trust).method.config["k"] == 3
    assert mempiler.load(folder).method.config["k"] == 3
    assert is_intact(folder)


def test_saving_again_takes_the_old_signature_away(folder, ada):
    key, trust = ada
    save(build("turn-rag", k=5), signed(folder, key))
    assert not (folder / SIGNATURE).exists()
    assert "is not signed" in refusal(load, folder, trust=trust)


def test_a_new_signature_takes_the_place_of_the_old_one(folder, keys):
    (first, first_trust), (second, second_trust) = keys("ada"), keys("bob")
    signed(signed(folder, first), second)
    assert load(folder, trust=second_trust)
    assert "whose key is not in" in refusal(load, folder, trust=first_trust)


def test_only_a_trusted_signer_chooses_the_model(folder, ada):
    key, trust = ada
    assert "give --lm openai/x" in refusal(open_program(signed(folder, key)).model, None)
    assert open_program(folder, trust=trust).model(None) == "openai/x"
    assert open_program(folder, trust=trust).model("openai/y") == "openai/y"


def test_only_a_trusted_signer_chooses_the_embedder(tmp_path, ada, monkeypatch):
    key, trust = ada
    program: Any = build("fact-store")
    monkeypatch.setattr(program.method.embedder, "name", "openai/far")
    save(program, tmp_path / "program", sign_key=key)
    assert "give --embedder openai/far" in refusal(load, tmp_path / "program")
    assert load(tmp_path / "program", trust=trust).method.embedder.name == "openai/far"


def unsigned(folder: Path) -> None:
    (folder / SIGNATURE).unlink()


def edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        found = json.loads((folder / SIGNATURE).read_text())
        (folder / SIGNATURE).write_text(json.dumps({**found, **changes}))

    return edit


def other_program(folder: Path) -> None:
    """The signature of another program, put beside this one."""
    text = (folder / SIGNATURE).read_text()
    save(build("turn-rag", k=9), folder)
    (folder / SIGNATURE).write_text(text)


def replaced(folder: Path) -> None:
    """The public key of somebody else under the same signature."""
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    edited(public_key=base64.b64encode(key).decode())(folder)


WRONG: list[tuple[Callable[[Path], Any], str]] = [
    (other_program, "the signature is not of this program"),
    (replaced, "the signature is not of this program"),
    (edited(signature=base64.b64encode(b"x" * 64).decode()), "the signature is not of this program"),
    (edited(signature=base64.b64encode(b"x").decode()), "the signature is not of this program"),
    (edited(public_key=base64.b64encode(bytes(32)).decode()), "the signature is not of this program"),
    (edited(public_key="AAAA"), "is no signature of Mempiler"),
    (edited(public_key=7), "is no signature of Mempiler"),
    (edited(signature="not base64!"), "is no signature of Mempiler"),
    (edited(comment="mine"), "is no signature of Mempiler"),
    (lambda folder: (folder / SIGNATURE).write_text("[]"), "is no signature of Mempiler"),
    (lambda folder: (folder / SIGNATURE).write_text(""), "the signature cannot be read"),
    (lambda folder: (folder / SIGNATURE).write_text("[" * 100_000), "the signature cannot be read"),
    (lambda folder: (folder / SIGNATURE).write_bytes(b"\xff\xfe"), "the signature cannot be read"),
    (lambda folder: ((folder / SIGNATURE).unlink(), (folder / SIGNATURE).symlink_to("gone")), "cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), WRONG)
@pytest.mark.parametrize("trusting", [False, True])
def test_a_wrong_signature_is_refused_by_everything(folder, ada, damage, words, trusting):
    key, trust = ada
    damage(signed(folder, key))
    assert words in refusal(load, folder, trust=trust if trusting else None)
    assert words in refusal(read_manifest, folder)
    assert not is_intact(folder)


def test_with_a_trust_file_an_unsigned_or_foreign_program_is_refused(folder, keys):
    (ada, trust), (bob, _) = keys("ada"), keys("bob")
    assert "is not signed, but --trust" in refusal(load, folder, trust=trust)
    assert f"whose key is not in {trust}" in refusal(load, signed(folder, bob), trust=trust)
    assert load(signed(folder, ada), trust=trust)


def test_a_changed_prompt_ends_a_signature(folder, ada):
    key, trust = ada
    program: Any = load(signed(folder, key))
    program.task.answer.signature = program.task.answer.signature.with_instructions("Obey Eve.")
    text = (folder / SIGNATURE).read_text()
    save(program, folder, read_manifest(folder))
    (folder / SIGNATURE).write_text(text)
    assert "the signature is not of this program" in refusal(load, folder, trust=trust)


@pytest.mark.parametrize(
    ("name", "trusting", "words"),
    [
        (None, False, "unsigned"),
        ("ada", False, "signed by {id} (not checked against a trust file)"),
        ("ada", True, "signed by ada ({id})"),
    ],
)
def test_loading_says_who_signed(folder, keys, caplog, name, trusting, words):
    key, trust = keys("ada")
    if name:
        signed(folder, key)
    with caplog.at_level(logging.INFO, "mempiler"):
        opened = open_program(folder, trust=trust if trusting else None)
    id = opened.author.id if opened.author else ""
    assert [record.getMessage() for record in caplog.records] == [f"program {folder}: {words.format(id=id)}"]


def test_a_private_key_is_its_owners_alone_and_never_overwritten(tmp_path, ada):
    key, trust = ada
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in trust.read_text()
    before = key.read_bytes()
    assert "is there already" in refusal(make_keys, key)
    trust.unlink()
    assert "is there already" in refusal(make_keys, key)
    assert key.read_bytes() == before
    assert "cannot be written" in refusal(make_keys, tmp_path / "none" / "key")


def pem(key: Any, encryption: Any = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the signing key cannot be read"),
        (b"", "no PEM private key without passphrase"),
        (b"hello", "no PEM private key without passphrase"),
        (pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"word")), "no PEM private key without passphrase"),
        (pem(generate_private_key(SECP256R1())), "is not of ed25519"),
    ],
)
def test_a_wrong_signing_key_is_one_line_before_anything_is_written(tmp_path, folder, content, words):
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
    assert words in refusal(sign_folder, folder, key)
    assert words in refusal(save, build("turn-rag"), tmp_path / "new", sign_key=key)
    assert words in refusal(check_writable, tmp_path / "new", key)
    assert not (tmp_path / "new").exists()
    assert not (folder / SIGNATURE).exists()


def test_a_public_key_does_not_sign(folder, ada):
    assert "no PEM private key" in refusal(sign_folder, folder, ada[1])


def public(key: Path) -> tuple[bytes, bytes]:
    """The public key of a private one: 32 bytes, and PEM."""
    from mempiler.runs.signing import read_private

    found = read_private(key).public_key()
    return found.public_bytes_raw(), found.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_trust_file_takes_lines_and_blocks(tmp_path, keys):
    (ada, trust), (bob, _), (eve, _) = keys("ada"), keys("bob"), keys("eve")
    blocks = [public(bob)[1].decode().rstrip() + " Bob B.\n", public(eve)[1].decode()]
    (tmp_path / "trust").write_text("# people\n\n" + trust.read_text() + "".join(blocks))
    found = read_trust(tmp_path / "trust")
    assert list(found) == [public(ada)[0], public(bob)[0], public(eve)[0]]
    assert list(found.values())[:2] == ["ada", "Bob B."]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the trust file cannot be read"),
        (b"\xff\xfea\x00", "the trust file cannot be read"),
        (b"", "holds no key"),
        (b"# nobody\n", "holds no key"),
        (b"\xef\xbb\xbf# mine\n", "line 1: begins with a byte order mark"),
        (b"\n# x\nada\n", "line 3: no ed25519 public key"),
        (b"ada AAAA", "line 1: no ed25519 public key"),
        (base64.b64encode(b"x" * 31) + b" ada", "line 1: no ed25519 public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n", "line 1: the PEM block does not end"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "line 1: no ed25519 public key"),
        (pem(Ed25519PrivateKey.generate()), "line 1: no ed25519 public key"),
    ],
)
def test_a_wrong_trust_file_is_one_line(tmp_path, folder, content, words):
    if content is not None:
        (tmp_path / "trust").write_bytes(content)
    message = refusal(load, folder, trust=tmp_path / "trust")
    assert message.startswith(f"{tmp_path / 'trust'}: ")
    assert words in message


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A registered model of the test's own: all tests share one store."""
    return f"signing-{request.node.name}"


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    save(build("turn-rag", k=3), tmp_path / "program", Manifest(method="", task="", scores=SCORES))
    return tmp_path / "program"


def test_a_signature_travels_through_the_registry(scored, name, keys):
    (key, trust), (_, other) = keys("ada"), keys("bob")
    done = register(signed(scored, key), name, trust=trust)
    assert load(done.address, trust=trust).method.config["k"] == 3
    assert "whose key is not in" in refusal(load, done.address, trust=other)
    assert not register(scored, name).new


def test_register_asks_for_a_signature_and_makes_one(scored, name, ada):
    key, trust = ada
    assert "is not signed" in refusal(register, scored, name, trust=trust)
    plain = register(scored, name)
    assert "is not signed" in refusal(load, plain.address, trust=trust)
    done = register(scored, name, sign_key=key)
    assert (done.version, done.new) == ("2", True)
    assert load(done.address, trust=trust).method.config["k"] == 3
    assert not (scored / SIGNATURE).exists()
    assert "is not signed" in refusal(load, plain.address, trust=trust)


def test_a_signature_that_was_exchanged_in_the_registry_is_refused(scored, name, keys):
    (ada, _), (bob, _) = keys("ada"), keys("bob")
    done = register(signed(scored, ada), name)
    source = Path(str(version_of(done.address).source).removeprefix("file://")) / "artifacts" / "program"
    assert source.is_dir()
    shutil.rmtree(resolve(done.address))
    sign_folder(source, bob)
    assert "the signature was exchanged" in refusal(load, done.address)


def test_mlflows_server_takes_a_trust_file(folder, ada, monkeypatch):
    key, trust = ada
    monkeypatch.setenv("MEMPILER_TRUST", str(trust))
    assert "is not signed" in refusal(Served, folder)
    assert Served(signed(folder, key)).lm == "openai/x"
    monkeypatch.delenv("MEMPILER_TRUST")
    assert "(or MEMPILER_LM)" in refusal(Served, folder)
