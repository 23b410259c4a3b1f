"""Messages are shown without the keys, tokens and passwords of the request they are about.

`Secrets(values).hide(text)` replaces each value in a text by "[secret]".
"""

import base64

import pytest
from mempiler import Store
from mempiler.errors import UserError
from mempiler.secret_values import (
    Secrets,
    hide_password,
    secrets_of_address,
    secrets_of_environment,
    secrets_of_settings,
)
from mempiler.validation import check_address


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('the key is sk/01 "23', id="as it is"),
        pytest.param('the key is sk/01 \\"23', id="in JSON"),
        pytest.param("the key is sk%2F01%20%2223", id="in an address"),
    ],
)
def test_a_secret_is_hidden_in_every_form_in_which_a_server_writes_it(text: str) -> None:
    secrets = Secrets(['sk/01 "23'])

    assert secrets.hide(text) == "the key is [secret]"
    assert secrets.hide_in_bytes(text.encode()) == b"the key is [secret]"


def test_a_secret_that_begins_with_another_one_leaves_nothing_of_itself() -> None:
    """If the shorter secret were replaced first, "345" would be left of the longer one."""
    secrets = Secrets(["sk-012", "sk-012345"])

    assert secrets.hide("sk-012345") == "[secret]"


@pytest.mark.parametrize("placeholder", [None, "", "none", "EMPTY"])
def test_the_placeholder_for_servers_without_a_key_is_no_secret(placeholder: str | None) -> None:
    """Users give such a word as the key of a server that needs none.

    If it counted as a secret, the same word would be hidden in ordinary text.
    """
    text = "none of the EMPTY lists"

    assert Secrets([placeholder]).hide(text) == text


def test_a_secret_is_hidden_in_an_error_and_in_the_error_that_caused_it() -> None:
    cause = ValueError("refused: sk-0123", 7)
    error = RuntimeError("failed: sk-0123")
    error.reason = "sk-0123"  # type: ignore[attr-defined]
    error.__cause__ = cause

    Secrets(["sk-0123"]).hide_in_error(error)

    assert error.args == ("failed: [secret]",)
    assert vars(error) == {"reason": "[secret]"}
    assert cause.args == ("refused: [secret]", 7)


def test_errors_of_a_block_are_raised_without_secrets() -> None:
    secrets = Secrets(["sk-0123"])

    with pytest.raises(ValueError, match=r"^refused: \[secret\]$"), secrets.hiding():
        raise ValueError("refused: sk-0123")


@pytest.mark.parametrize(
    "name",
    ["ACME_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD"],
)
def test_variables_of_keys_tokens_and_passwords_are_secrets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a secret value")

    secrets = secrets_of_environment()

    assert "a secret value" in secrets


def test_other_variables_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "a value")

    secrets = secrets_of_environment()

    assert "a value" not in secrets


def test_the_password_of_an_address_is_a_secret_also_as_it_is_sent() -> None:
    """A client sends name and password in a header, encoded as base64. A server may repeat it."""
    encoded_login = base64.b64encode(b"ann:pass word").decode()

    secrets = secrets_of_address("http://ann:pass%20word@localhost/v1")

    assert secrets == ["pass word", encoded_login]


@pytest.mark.parametrize("address", ["http://localhost:8000/v1", None])
def test_an_address_without_a_login_has_no_secrets(address: str | None) -> None:
    assert secrets_of_address(address) == []


@pytest.mark.parametrize("password", ["pass@word", "pass/word"])
def test_a_password_with_signs_of_addresses_is_hidden_as_a_whole(password: str) -> None:
    """ "@" usually ends the password in an address, and "/" the host."""
    address = f"postgresql://ann:{password}@localhost/memories?application=a@b"

    secrets = secrets_of_address(address)

    assert secrets[0] == password


MALFORMED_ADDRESSES = [
    ("http://ann@corp.com:pw@host/v1", "pw", "http://ann@corp.com:[secret]@host/v1"),
    (
        "postgresql://ann@srv:sekret@host:bad/db",
        "sekret",
        "postgresql://ann@srv:[secret]@host:bad/db",
    ),
    ("postgresql://ann:s/k@e@host:bad/db", "s/k@e", "postgresql://ann:[secret]@host:bad/db"),
    ("http:/ann:sekret@host/v1", "sekret", "http:/ann:[secret]@host/v1"),
    ("ann:sekret@host:80", "sekret", "ann:[secret]@host:80"),
    # `postgresql` may be a name, and the rest its password.
    ("postgresql:ann:sekret@host/db", "sekret", "postgresql:[secret]@host/db"),
    ("ann:sek:ret@host", "sek:ret", "ann:[secret]@host"),
]


@pytest.mark.parametrize(("address", "password", "shown"), MALFORMED_ADDRESSES)
def test_a_malformed_address_is_shown_without_its_password(
    address: str, password: str, shown: str
) -> None:
    """No rule says where the password of such an address ends, so more may be hidden."""
    assert hide_password(address) == shown
    assert password in secrets_of_address(address)


def test_a_login_whose_name_is_a_mail_address_is_a_secret_as_it_is_sent() -> None:
    """The user name is ann@corp.com, so the address has two "@"."""
    encoded_login = base64.b64encode(b"ann@corp.com:pw").decode()

    assert secrets_of_address("http://ann@corp.com:pw@host/v1") == ["pw", encoded_login]


@pytest.mark.parametrize(
    "address", ["http://localhost:8000/v1", "http://ann@[::1]:80/v1", "/home/ann@work/memory.db"]
)
def test_an_address_without_a_password_is_shown_as_it_is(address: str) -> None:
    """Each of these has a ":" or an "@" that belongs to no password."""
    assert hide_password(address) == address
    assert secrets_of_address(address) == []


def test_keys_in_the_settings_of_a_model_and_its_headers_are_secrets() -> None:
    settings = {
        "api_key": "ghi789",
        "api_base": "http://ann:jkl012@host",
        "extra_headers": {
            "Authorization": "Bearer abc123",
            "X-Api-Key": "def456",
            "X-Title": "my app",
        },
        "temperature": 0,
    }

    secrets = secrets_of_settings(settings)

    assert {"ghi789", "jkl012", "abc123", "def456"} <= set(secrets)
    assert "my app" not in secrets


def test_a_message_about_an_address_shows_no_password() -> None:
    with pytest.raises(UserError, match=r"--api-base 'ftp://ann:\[secret\]@host' is no address"):
        check_address("--api-base", "ftp://ann:hunter2@host")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:ann:sekret@host/db",
        "postgresql:/ann:sekret@host/db",
        "postgresql://ann:s/sekret@host:bad/db",
    ],
)
def test_a_malformed_address_of_a_store_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(UserError, match=r"^store 'postgresql:.*\[secret\]@host") as refusal:
        Store(address)

    assert "is no address" in str(refusal.value)
    assert "sekret" not in str(refusal.value)
