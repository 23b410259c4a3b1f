"""Rollouts from a vLLM server: it has the adapter of now, and where its numbers are not the trainer's, that is told."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local.engine import local_lm  # noqa: E402
from mempiler.engines.local.loading import with_lora  # noqa: E402
from mempiler.engines.local.reinforce import MISMATCH  # noqa: E402
from mempiler.engines.local.served import serve  # noqa: E402
from mempiler.engines.models import endpoint_errors  # noqa: E402
from mempiler.errors import EndpointError, UserError  # noqa: E402

from tests.engines.local.groups import PROMPT, sampled, sampled_group  # noqa: E402
from tests.vllm_server import VllmServer  # noqa: E402


def adapted(base: Any, rank: int = 2) -> Any:
    """The base model with an adapter that has moved a little."""
    found = base.copy()
    found.model = with_lora(found.model, {"r": rank, "lora_alpha": 2 * rank})
    torch.manual_seed(1)
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return found


@pytest.fixture
def base(model: Any) -> Any:
    return model


def group(samples: Any) -> dict[str, Any]:
    """The samples as a group; an even first token is rewarded."""
    return sampled_group(samples, lambda sample: float(sample.completion_ids[0] % 2 == 0))


def gaps(model: Any, samples: Any, temperature: float = 1.0) -> float:
    """The largest distance of the samples' log-probabilities from the model's own."""
    own = model.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples], temperature)
    pairs = [pair for sample, row in zip(samples, own, strict=True) for pair in zip(sample.logprobs, row, strict=True)]
    return max(abs(one - other) for one, other in pairs)


def test_the_servers_logprobs_are_the_trainers_before_and_after_every_push(base, tmp_path):
    model = adapted(base)
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path)
        lm = local_lm(model, max_tokens=4)
        job = lm.reinforce({"learning_rate": 0.05, "batch_size": 64})
        seen = []
        for _ in range(2):
            samples = sampled(lm, 16)
            assert gaps(model, samples) < 1e-4
            step = job.step([group(samples)])
            assert step.mismatch < 1e-4
            assert step.warning == ""
            assert gaps(model, samples) > 1e-2  # the weights have moved: these numbers are of the step before
            seen.append(model.fingerprint)
        assert len(set(seen)) == 2
        assert gaps(model, sampled(lm, 16)) < 1e-4
        assert len(server.loaded) == 3
        assert list(server.adapters) == server.loaded[-1:]
        assert [path.name for path in tmp_path.iterdir()] == server.loaded[-1:]


def test_what_the_server_draws_is_what_this_process_would(base, tmp_path):
    model, here = adapted(base), adapted(base)
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path)
        far = sorted(sample.completion_ids for sample in sampled(local_lm(model, max_tokens=8), 8))
        assert len(server.requests) == 8
        assert all(request["return_token_ids"] and request["logprobs"] == 1 for request in server.requests)
    near = sorted(sample.completion_ids for sample in sampled(local_lm(here, max_tokens=8), 8))
    assert far == near
    assert len(set(far)) > 1


def test_weights_that_did_not_arrive_are_noticed(base, tmp_path):
    model = adapted(base)
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path)
        lm = local_lm(model, max_tokens=4)
        job = lm.reinforce({"learning_rate": 0.2, "batch_size": 64})
        server.stale = True
        first = job.step([group(sampled(lm, 32))])
        second = job.step([group(sampled(lm, 32))])
    assert first.warning == ""
    assert second.mismatch > MISMATCH
    assert "rollouts are not those of the weights that learn" in second.warning


@pytest.mark.parametrize(("mode", "right"), [("processed_logprobs", True), ("raw_logprobs", False)])
def test_logprobs_without_the_temperature_are_noticed(base, tmp_path, mode, right):
    model = adapted(base)
    with VllmServer(base, mode=mode) as server:
        serve(model, server.url, tmp_path)
        lm = local_lm(model, max_tokens=4)
        samples = sampled(lm, 32, temperature=0.5)
        step = lm.reinforce({"temperature": 0.5, "batch_size": 64}).step([group(samples)])
    assert (step.mismatch < 1e-4) is right
    assert (step.warning == "") is right


def test_a_resumed_job_pushes_its_checkpoint_first(base, tmp_path):
    model = adapted(base)
    start = copy.deepcopy(model.state())
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path / "adapters")
        lm = local_lm(model, max_tokens=4)
        job = lm.reinforce({"learning_rate": 0.05, "output_dir": str(tmp_path)})
        job.step([group(sampled(lm, 16))])
        job.save_checkpoint("one")
        wanted = model.fingerprint
        resumed = adapted(base)
        resumed.load_state(start)
        serve(resumed, server.url, tmp_path / "adapters")
        again = local_lm(resumed, max_tokens=4)
        other: Any = again.reinforce({"learning_rate": 0.05, "output_dir": str(tmp_path)})
        taken = len(server.loaded)
        other.load_checkpoint(job.checkpoints["one"])
        assert len(server.loaded) == taken + 1
        assert resumed.fingerprint == wanted
        assert gaps(resumed, sampled(again, 8)) < 1e-4


def test_each_role_has_an_adapter_of_its_own(base, tmp_path):
    model = adapted(base)
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path)
        lm: Any = local_lm(model, max_tokens=4)
        lm.separate({"extract": "a.extract", "manage": "a.manage"})
        job = lm.reinforce({"learning_rate": 0.05, "batch_size": 64})
        own = lm.over(lm.engine.model.models["extract"])
        said = job.step([{**group(sampled(own, 16)), "role": "extract"}])
        assert said["mismatch.extract"] < 1e-4
        assert gaps(own.engine.model, sampled(own, 8)) < 1e-4
        assert gaps(model, sampled(lm, 8)) < 1e-4
        assert len(server.adapters) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"updating": False}, "load_lora_adapter mempiler-.* was refused: .*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        ({"max_rank": 1}, "LoRA rank 2 is greater than max_lora_rank 1.*--enable-lora --max-lora-rank 2"),
        ({"token_ids": False}, "without token ids and log-probabilities; it has to be vLLM 0.10.2"),
    ],
)
def test_a_server_that_is_not_set_up_for_it_is_told_in_one_line(base, tmp_path, settings, says):
    model = adapted(base)

    def asked(url: str) -> None:
        serve(model, url, tmp_path)
        with endpoint_errors():
            local_lm(model, max_tokens=4)(PROMPT)

    with VllmServer(base, **settings) as server, pytest.raises(EndpointError, match=says) as told:
        asked(server.url)
    assert "\n" not in str(told.value)


def test_a_server_that_does_not_see_the_folder_is_told(base, tmp_path, monkeypatch):
    model = adapted(base)
    monkeypatch.setattr("mempiler.engines.local.served.Served._write", lambda self, model, path: None)
    with VllmServer(base) as server, pytest.raises(EndpointError, match=f"No adapter found.*has to see {tmp_path}"):
        serve(model, server.url, tmp_path)


def test_an_adapter_that_cannot_be_pushed_stops_the_training(base, tmp_path):
    model = adapted(base)
    with VllmServer(base) as server:
        serve(model, server.url, tmp_path)
        lm = local_lm(model, max_tokens=4)
        job = lm.reinforce({"learning_rate": 0.05})
        samples = sampled(lm, 16)
        server.refuse_after = 1
        with pytest.raises(EndpointError, match=r"load_lora_adapter mempiler-.* was refused: .*CUDA out of memory"):
            job.step([group(samples)])


def test_a_server_that_is_not_there_is_told(base, tmp_path):
    with pytest.raises(EndpointError, match=r"http://127\.0\.0\.1:9/v1: cannot be reached for the adapter"):
        serve(adapted(base), "http://127.0.0.1:9/v1", tmp_path)


def test_without_an_adapter_there_is_nothing_to_push(base, tmp_path):
    with pytest.raises(UserError, match="need an adapter, which is all it is sent; add --lora 16"):
        serve(base, "http://127.0.0.1:9/v1", tmp_path)
