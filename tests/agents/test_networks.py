from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import agents.slot_layers as slot_layers
from agents.networks import (
    EquivariantNetwork,
    NetworkConfig,
    ObservationShape,
    SchedulingNetwork,
    ValueHead,
    build_network,
)
from dl2env.errors import ConfigError

SHAPE = ObservationShape(num_slots=6, slot_features=5, cluster_features=3)
SMALL = NetworkConfig(slot_width=8, context_width=10)


def network(config: NetworkConfig = SMALL, shape: ObservationShape = SHAPE, seed: int = 0) -> SchedulingNetwork:
    """A network in double precision whose weights are all of ordinary size."""
    torch.manual_seed(seed)
    net = build_network(config, shape).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.5)
    return net


def observation(batch: int, num_slots: int = 6, seed: int = 0, empty: float = 0.4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    jobs = torch.randn(batch, num_slots, SHAPE.slot_features, generator=generator, dtype=torch.float64)
    jobs[..., 0] = 1.0
    jobs[torch.rand(batch, num_slots, generator=generator) < empty] = 0.0
    return jobs, torch.randn(batch, SHAPE.cluster_features, generator=generator, dtype=torch.float64)


def plain(net: EquivariantNetwork, jobs: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
    """The network's formulas in plain autograd."""
    present = (jobs != 0).any(dim=2, keepdim=True).double()
    x = (net.slot_input(jobs) + net.cluster_input(cluster).unsqueeze(1)).relu()
    h = net.slot_hidden(x).relu() * present
    pooled = [h.sum(1) / present.sum(1).clamp(min=1), h.amax(1), h.sum(1) * 0.05, cluster]
    context = net.context_hidden(torch.cat(pooled, dim=1)).relu()
    y = (net.slot_output(h) + net.context_to_slots(context).unsqueeze(1)).relu()
    logits = torch.cat([net.slot_logits(y).flatten(1), net.void_logit(context)], dim=1)
    return logits, net.value_head(net.value_hidden(context).relu())


def gradients(net: SchedulingNetwork, logits: Tensor, values: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64).view_as(logits)
    loss = (logits * weights).sin().sum() + (values * 1.3).cos().sum()
    return list(torch.autograd.grad(loss, list(net.parameters())))


@pytest.mark.parametrize("empty", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("block_rows", [6, 20, 10**6])
def test_fast_layers_equal_plain_autograd(monkeypatch: pytest.MonkeyPatch, empty: float, block_rows: int) -> None:
    monkeypatch.setattr(slot_layers, "_BLOCK_ROWS", block_rows)
    net = network()
    assert isinstance(net, EquivariantNetwork)
    jobs, cluster = observation(7, empty=empty)
    expected, got = plain(net, jobs, cluster), net(jobs, cluster)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)
    for a, b in zip(gradients(net, *expected), gradients(net, *got), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-12)


def test_jobs_that_look_alike_share_the_gradient_of_the_maximum() -> None:
    net = network()
    assert isinstance(net, EquivariantNetwork)
    jobs, cluster = observation(3, empty=0.0)
    jobs[:, 1:4] = jobs[:, :1]
    for a, b in zip(gradients(net, *plain(net, jobs, cluster)), gradients(net, *net(jobs, cluster)), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-12)


def test_two_forward_passes_before_their_backward_passes_do_not_share_memory() -> None:
    net = network()
    first, second = observation(4, seed=1), observation(4, seed=2)
    expected = [gradients(net, *net(*obs)) for obs in (first, second)]
    outputs = [net(*obs) for obs in (first, second)]
    got = [gradients(net, *out) for out in outputs]
    for a, b in zip(sum(expected, []), sum(got, []), strict=True):
        assert torch.equal(a, b)


def test_a_second_backward_pass_raises_instead_of_using_foreign_memory() -> None:
    net = network()
    logits, values = net(*observation(4))
    loss = logits.sum() + values.sum()
    loss.backward(retain_graph=True)
    net(*observation(4, seed=3))
    with pytest.raises((RuntimeError, TypeError)):
        loss.backward()


def test_copying_a_network_after_use_works() -> None:
    net = network()
    obs = observation(4)
    gradients(net, *net(*obs))
    assert torch.equal(copy.deepcopy(net).logits(*obs), net.logits(*obs))


@given(st.permutations(range(6)), st.integers(0, 100))
def test_equivariant_network_permutes_with_the_slots(order: list[int], seed: int) -> None:
    net = network()
    jobs, cluster = observation(3, seed=seed)
    logits, values = net(jobs, cluster)
    permuted, permuted_values = net(jobs[:, order], cluster)
    slots = logits[:, :-1].view(3, 6, 3)[:, order].flatten(1)
    torch.testing.assert_close(permuted[:, :-1], slots, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(permuted[:, -1], logits[:, -1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(permuted_values, values, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 30), st.integers(0, 100))
def test_empty_slots_change_nothing(num_empty: int, seed: int) -> None:
    net = network()
    jobs, cluster = observation(3, seed=seed)
    padded = torch.cat([jobs, jobs.new_zeros(3, num_empty, SHAPE.slot_features)], dim=1)
    logits, values = net(jobs, cluster)
    wide, wide_values = net(padded, cluster)
    assert wide.shape == (3, 3 * (6 + num_empty) + 1)
    torch.testing.assert_close(wide[:, :18], logits[:, :18], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(wide[:, -1], logits[:, -1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(wide_values, values, rtol=1e-12, atol=1e-12)


def test_other_jobs_matter() -> None:
    net = network()
    jobs, cluster = observation(1, empty=0.0)
    changed = jobs.clone()
    changed[:, 3, 1] += 1.0
    assert not torch.equal(net.logits(jobs, cluster)[:, :3], net.logits(changed, cluster)[:, :3])


@pytest.mark.parametrize("kind", ["equivariant", "flat"])
def test_separate_outputs_equal_the_joint_ones(kind: str) -> None:
    net = network(NetworkConfig(kind=kind, slot_width=8, context_width=10, hidden_width=12))  # type: ignore[arg-type]
    obs = observation(5)
    logits, values = net(*obs)
    assert logits.shape == (5, 19) and values.shape == (5,)
    assert torch.equal(net.logits(*obs), logits) and torch.equal(net.values(*obs), values)


@pytest.mark.parametrize("kind", ["equivariant", "flat"])
def test_shift_of_void_touches_only_its_logit(kind: str) -> None:
    net = network(NetworkConfig(kind=kind, slot_width=8, context_width=10, hidden_width=12))  # type: ignore[arg-type]
    obs = observation(5)
    before = net.logits(*obs)
    net.shift_void(1.5)
    change = net.logits(*obs) - before
    torch.testing.assert_close(change[:, -1], torch.full((5,), 1.5, dtype=torch.float64))
    assert torch.equal(change[:, :-1], torch.zeros(5, 18, dtype=torch.float64))


def test_size_does_not_depend_on_the_window() -> None:
    sizes = {
        sum(p.numel() for p in build_network(NetworkConfig(), ObservationShape(j, 30, 8)).parameters())
        for j in (1, 20, 200)
    }
    assert len(sizes) == 1 and 30_000 < sizes.pop() < 50_000


def test_flat_network_has_two_separate_bodies_of_the_papers_size() -> None:
    net = build_network(NetworkConfig(kind="flat"), ObservationShape(20, 30, 8))
    body = 608 * 256 + 256 + 256 * 256 + 256
    assert sum(p.numel() for p in net.parameters()) == 2 * body + 256 * 61 + 61 + 256 + 1
    obs = (torch.rand(4, 20, 30), torch.rand(4, 8))
    net.values(*obs).sum().backward()
    assert net.policy_body[0].weight.grad is None and net.value_body[0].weight.grad is not None  # type: ignore[index, union-attr]


def test_a_fresh_policy_is_nearly_uniform() -> None:
    net = build_network(NetworkConfig(), SHAPE)
    jobs, cluster = observation(50)
    assert net.logits(jobs.float(), cluster.float()).abs().max() < 0.2


def test_rescaling_keeps_every_value_and_reaches_the_statistics() -> None:
    torch.manual_seed(0)
    head = ValueHead(4).double()
    features = torch.randn(20, 4, dtype=torch.float64)
    before = head(features)
    returns = torch.tensor([1.0, 3.0], dtype=torch.float64)  # mean 2, standard deviation sqrt(2)
    head.rescale(returns)
    torch.testing.assert_close(head(features), before, rtol=1e-12, atol=1e-12)
    assert float(head.mean) == 2.0 and float(head.std) == pytest.approx(2**0.5)
    head.rescale(returns + 4.0, rate=0.1)  # second call: equal weights
    assert float(head.mean) == pytest.approx(4.0)
    for _ in range(10):
        head.rescale(returns + 8.0, rate=0.1)
    torch.testing.assert_close(head(features), before, rtol=1e-10, atol=1e-10)


def test_shapes_that_do_not_fit_are_refused_with_the_cure() -> None:
    flat = build_network(NetworkConfig(kind="flat"), SHAPE)
    with pytest.raises(ConfigError, match="observation.window=6"):
        flat.check_shape(ObservationShape(7, 5, 3))
    with pytest.raises(ConfigError, match="type_encoding"):
        flat.check_shape(ObservationShape(6, 4, 3))
    build_network(SMALL, SHAPE).check_shape(ObservationShape(7, 5, 3))
    with pytest.raises(ConfigError, match="equivariant, flat"):
        NetworkConfig(kind="other")  # type: ignore[arg-type]


PRIOR = NetworkConfig(slot_width=8, context_width=10, gain_prior=20.0)


def test_the_prior_is_a_path_of_its_own() -> None:
    with_prior, without = network(PRIOR), network()
    without.load_state_dict({k: v for k, v in with_prior.state_dict().items() if k != "gain_weight"})
    jobs, cluster = observation(4)
    assert isinstance(with_prior, EquivariantNetwork)
    expected = without.logits(jobs, cluster).clone()
    expected[:, :-1] += (jobs[:, :, -3:] * with_prior.gain_weight).flatten(1)
    torch.testing.assert_close(with_prior.logits(jobs, cluster), expected)
    logits, values = with_prior(jobs, cluster)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(values, without.values(jobs, cluster))
    (logits.sin().sum() + values.sum()).backward()
    assert with_prior.gain_weight.grad is not None and (with_prior.gain_weight.grad != 0).all()


def test_an_untrained_network_follows_the_net_gains() -> None:
    torch.manual_seed(0)
    net = build_network(PRIOR, SHAPE)
    jobs, cluster = (x.float() for x in observation(50, empty=0.2))
    jobs[..., -3:] = jobs[..., -3:].tanh()
    best = jobs[:, :, -3:].flatten(1).max(dim=1)
    clear = (best.values - 0.1 > jobs[:, :, -3:].flatten(1).topk(2).values[:, 1]) & (best.values > 0.1)
    assert clear.sum() > 5
    assert (net.logits(jobs, cluster)[clear].argmax(dim=1) == best.indices[clear]).all()
    jobs[..., -3:] = -jobs[..., -3:].abs() - 0.1
    assert (net.logits(jobs[:, :2], cluster).argmax(dim=1) == 6).all()  # void


@pytest.mark.parametrize("config", [SMALL, PRIOR, NetworkConfig(kind="flat", hidden_width=8)])
def test_logits_are_scaled_and_the_prior_is_shifted(config: NetworkConfig) -> None:
    net = network(config)
    jobs, cluster = observation(3)
    before, values = (x.detach() for x in net(jobs, cluster))
    net.scale_logits(0.25)
    torch.testing.assert_close(net.logits(jobs, cluster), 0.25 * before)
    net.shift_prior(2.0)
    shifted = net.logits(jobs, cluster) - 0.25 * before
    expected = 2.0 * jobs[:, :, -3:].flatten(1) if config.gain_prior else torch.zeros(3, 18, dtype=torch.float64)
    torch.testing.assert_close(shifted[:, :-1], expected)
    torch.testing.assert_close(shifted[:, -1], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(net.values(jobs, cluster), values)


def test_a_prior_needs_the_observation_that_has_it() -> None:
    for wrong in ({"gain_prior": -1.0}, {"gain_prior": float("inf")}, {"gain_prior": 1.0, "kind": "flat"}):
        with pytest.raises(ConfigError, match="gain_prior"):
            NetworkConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gain_prior"):
        NetworkConfig(gain_prior=1.0, observation="paper")
