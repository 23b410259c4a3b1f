"""Chat templates without a system role: what the system says still reaches the model."""

import pytest

pytest.importorskip("transformers", reason="local models need the local extra")

from mempiler.engines.local.template import without_system

SYSTEM, USER, ASSISTANT = ({"role": role, "content": f"w{n}"} for n, role in enumerate(("system", "user", "assistant")))
_BODY = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + _BODY
)
DROPS = _BODY.replace("{{ m['role'] +", "{% if m['role'] != 'system' %}{{ m['role'] +").replace(
    "{% endfor %}", "{% endif %}{% endfor %}"
)


def words(model, messages):
    return model.tokenizer.convert_ids_to_tokens(model.encode(messages))


@pytest.mark.parametrize("template", [REFUSES, DROPS])
def test_the_systems_text_comes_first_in_the_users_message(make_model, template):
    model = make_model(template=template)
    for _ in range(2):
        assert words(model, [SYSTEM, USER]) == ["user:", "w0", "w1", "assistant:"]
    answered = words(model, [SYSTEM, USER, ASSISTANT, USER])
    assert answered == ["user:", "w0", "w1", "assistant:", "w2", "user:", "w1", "assistant:"]
    assert words(model, [USER]) == ["user:", "w1", "assistant:"]


def test_a_template_with_a_system_role_keeps_it(make_model):
    assert words(make_model(template=_BODY), [SYSTEM, USER]) == ["system:", "w0", "user:", "w1", "assistant:"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([SYSTEM], [{"role": "user", "content": "w0"}]),
        ([SYSTEM, ASSISTANT], [{"role": "user", "content": "w0"}, ASSISTANT]),
        ([USER, ASSISTANT], [USER, ASSISTANT]),
        ([SYSTEM, SYSTEM, USER], [{"role": "user", "content": "w0\n\nw0\n\nw1"}]),
    ],
)
def test_messages_without_a_system_role(messages, expected):
    before = [dict(message) for message in messages]
    assert without_system(messages) == expected
    assert messages == before


def test_other_faults_of_a_template_are_not_hidden(make_model):
    model = make_model(template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Exception, match="roles must alternate"):
        model.encode([USER])
