from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from agents.demonstrations import Demonstrations
from agents.masked import masked_log_softmax
from agents.networks import NetworkConfig, ObservationShape, SchedulingNetwork, build_network
from agents.recording import record_demonstrations
from agents.returns import Discounting
from agents.warmup import WarmupConfig, WarmupProgress, raise_void, warm_up
from dl2env.errors import ConfigError
from tests.agents.picking_env import CLUSTER, FEATURES, PickingEnv, PickingTeacher

SHAPE = ObservationShape(4, FEATURES, CLUSTER)
CONFIG = WarmupConfig(epochs=12, minibatch_size=64, learning_rate=5e-3, label_smoothing=0.0, void_probability=0.0)


def network(kind: str = "equivariant") -> SchedulingNetwork:
    torch.manual_seed(0)
    return build_network(NetworkConfig(kind=kind, slot_width=16, context_width=16, hidden_width=64), SHAPE)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return record_demonstrations(PickingEnv(32), PickingTeacher(), 2048, seed=0)


def mean_void(net: SchedulingNetwork, demos: Demonstrations) -> float:
    jobs, cluster, masks = (torch.from_numpy(a).flatten(0, 1) for a in (demos.jobs, demos.cluster, demos.masks))
    with torch.no_grad():
        return masked_log_softmax(net.logits(jobs, cluster), masks)[:, -1].exp().mean().item()


@pytest.mark.parametrize("kind", ["equivariant", "flat"])
def test_learns_a_teacher_that_can_be_learned(demos: Demonstrations, kind: str) -> None:
    steps: list[WarmupProgress] = []
    scalars: dict[str, list[float]] = {}
    result = warm_up(
        network(kind),
        demos,
        CONFIG,
        Discounting(interval_gamma=0.0),
        progress=steps.append,
        log=lambda tag, value, step: scalars.setdefault(tag, []).append(value),
    )
    assert result.accuracy > 0.9
    assert len(steps) == steps[-1].step <= steps[-1].total_steps
    assert set(scalars) == {"warmup/loss", "warmup/accuracy", "warmup/value_loss", "warmup/train_loss"}
    assert len(scalars["warmup/loss"]) == result.epochs
    assert min(scalars["warmup/loss"]) < 0.5 * scalars["warmup/loss"][0]


@pytest.mark.parametrize("loss", ["mean_square", "mean_absolute"])
def test_other_losses_learn_the_teacher_too(demos: Demonstrations, loss: str) -> None:
    result = warm_up(network(), demos, replace(CONFIG, loss=loss))  # type: ignore[arg-type]
    assert result.accuracy > 0.9


def test_other_losses_learn_mixed_labels(demos: Demonstrations) -> None:
    """Void's share of the labels is met without raising it afterwards."""
    net = network()
    result = warm_up(net, demos, replace(CONFIG, loss="mean_square", void_probability=0.2, label_smoothing=0.1))
    assert result.void_shift < 0.5
    assert mean_void(net, demos) == pytest.approx(0.2, abs=0.05)


def test_voids_of_the_teacher_are_left_out_on_request() -> None:
    """A teacher that is right or, in every second decision, ends the interval."""

    class Lazy(PickingTeacher):
        calls = 0

        def act(self, observation, action_mask, view):  # type: ignore[no-untyped-def]
            self.calls += 1
            right = super().act(observation, action_mask, view)
            return np.full_like(right, action_mask.shape[1] - 1) if self.calls % 2 else right

    demos = record_demonstrations(PickingEnv(32), Lazy(), 2048, seed=0)
    nets = [network(), network()]
    for net, teach_void in zip(nets, (True, False), strict=True):
        warm_up(net, demos, replace(CONFIG, teach_void=teach_void))
    assert mean_void(nets[0], demos) == pytest.approx(0.5, abs=0.1)
    assert mean_void(nets[1], demos) < 0.1


def test_steps_can_be_limited(demos: Demonstrations) -> None:
    steps: list[WarmupProgress] = []
    result = warm_up(network(), demos, replace(CONFIG, max_steps=40), progress=steps.append)
    assert [s.step for s in steps] == list(range(1, 41)) and steps[-1].total_steps == 40
    assert result.epochs == 2  # 29 or so steps in each


def test_value_is_left_alone_without_weight(demos: Demonstrations) -> None:
    net = network("flat")
    before = [p.clone() for p in net.value_body.parameters()]  # type: ignore[union-attr]
    warm_up(net, demos, replace(CONFIG, value_coef=0.0))
    assert float(net.value_head.std) == 1.0
    assert all(torch.equal(a, b) for a, b in zip(before, net.value_body.parameters(), strict=True))  # type: ignore[union-attr]


def test_fits_the_value_in_the_units_of_the_returns() -> None:
    env = PickingEnv(32)
    demos = record_demonstrations(env, PickingTeacher(), 2048)
    # What the value has to be can be read off the cluster's first feature, in an odd unit.
    demos.rewards[:] = 100.0 * demos.cluster[:, :, 0] + 500.0
    discounting = Discounting(decision_gamma=0.0, interval_gamma=0.0)
    net = network()
    result = warm_up(net, demos, CONFIG, discounting)
    assert result.value_loss < 0.2
    obs = torch.from_numpy(demos.jobs).flatten(0, 1), torch.from_numpy(demos.cluster).flatten(0, 1)
    with torch.no_grad():
        errors = net.values(*obs) - torch.from_numpy(demos.rewards).flatten()
    assert errors.square().mean().sqrt() < 0.5 * demos.rewards.std()
    skipped = warm_up(network(), demos, WarmupConfig(epochs=3, minibatch_size=64, value_coef=0.0), discounting)
    assert skipped.value_loss > result.value_loss


def test_returns_that_are_incomplete_are_not_fitted(demos: Demonstrations) -> None:
    # Without any cut nothing is complete in a recording that is shorter than an episode.
    short = record_demonstrations(PickingEnv(8, num_intervals=1000), PickingTeacher(), 256)
    short.rewards[:] = 1e6
    net = network()
    warm_up(net, short, WarmupConfig(epochs=1, minibatch_size=64), Discounting(interval_gamma=1.0))
    assert float(net.value_head.std) == 1.0 and float(net.value_head.mean) == 0.0


def test_stops_early_and_keeps_the_best_weights() -> None:
    # Labels without any pattern: the held-out loss soon rises.
    env = PickingEnv(8)
    demos = record_demonstrations(env, PickingTeacher(), 256)
    rng = np.random.default_rng(0)
    for t, b in np.ndindex(demos.actions.shape):
        demos.actions[t, b] = rng.choice(np.flatnonzero(demos.masks[t, b]))
    losses: list[float] = []
    net = network("flat")
    config = WarmupConfig(
        epochs=60,
        minibatch_size=16,
        learning_rate=1e-2,
        patience=3,
        value_coef=0.0,
        label_smoothing=0.0,
        void_probability=0.0,
    )
    result = warm_up(
        net, demos, config, log=lambda tag, value, step: losses.append(value) if tag == "warmup/loss" else None
    )
    assert result.epochs == len(losses) < 60
    assert result.loss == min(losses) < losses[-1]
    assert losses.index(min(losses)) == result.epochs - 1 - 3


def test_same_seed_same_weights(demos: Demonstrations) -> None:
    nets = [network(), network(), network()]
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        warm_up(net, demos, WarmupConfig(epochs=1, minibatch_size=256), seed=seed)
    first, second, third = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, second) and not torch.equal(first, third)


def test_void_is_raised_to_the_wanted_mean_probability(demos: Demonstrations) -> None:
    net = network()
    result = warm_up(net, demos, CONFIG)
    assert mean_void(net, demos) < 0.01  # the teacher never ends an interval
    before = [p.clone() for name, p in net.named_parameters() if name != "void_logit.bias"]
    jobs, cluster, masks = (torch.from_numpy(a).flatten(0, 1) for a in (demos.jobs, demos.cluster, demos.masks))
    shift, probability = raise_void(net, jobs, cluster, masks, 0.05)
    assert shift > 0 and probability == pytest.approx(0.05, abs=1e-6)
    assert mean_void(net, demos) == pytest.approx(0.05, abs=1e-4)
    after = [p for name, p in net.named_parameters() if name != "void_logit.bias"]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert result.void_shift == 0.0
    with_void = warm_up(
        network(), demos, WarmupConfig(epochs=3, minibatch_size=64, label_smoothing=0.0, void_probability=0.2)
    )
    assert with_void.void_probability == pytest.approx(0.2, abs=1e-6) and with_void.void_shift > 0


def test_smoothed_labels_keep_other_actions_likely(demos: Demonstrations) -> None:
    jobs, cluster, masks = (torch.from_numpy(a).flatten(0, 1) for a in (demos.jobs, demos.cluster, demos.masks))
    entropies, accuracies = [], []
    for smoothing in (0.0, 0.4):
        net = network()
        result = warm_up(net, demos, replace(CONFIG, label_smoothing=smoothing))
        log_probs = masked_log_softmax(net.logits(jobs, cluster), masks).detach()
        entropies.append(float(-(log_probs.exp() * log_probs * masks).sum(dim=1).mean()))
        accuracies.append(result.accuracy)
    assert entropies[1] > entropies[0] + 0.3
    assert min(accuracies) > 0.85  # the teacher's action is still the most likely one
    with pytest.raises(ConfigError, match="no teacher is left"):
        WarmupConfig(label_smoothing=0.6, void_probability=0.5)


def test_the_copy_is_tempered_and_joined_with_the_prior(demos: Demonstrations) -> None:
    config = NetworkConfig(slot_width=16, context_width=16, gain_prior=3.0)
    nets = []
    for power in (1.0, 0.25):
        torch.manual_seed(0)
        net = build_network(config, SHAPE)
        warm_up(net, demos, replace(CONFIG, teacher_power=power, epochs=3))
        nets.append(net)
    jobs, cluster = (torch.from_numpy(a).flatten(0, 1)[:50] for a in (demos.jobs, demos.cluster))
    with torch.no_grad():
        sharp, tempered = (net.logits(jobs, cluster) for net in nets)
    prior = torch.nn.functional.pad(3.0 * jobs[:, :, -3:].flatten(1), (0, 1))
    torch.testing.assert_close(tempered - prior, 0.25 * (sharp - prior), rtol=1e-4, atol=1e-5)


def test_void_that_is_likely_enough_stays(demos: Demonstrations) -> None:
    net = network()
    net.shift_void(3.0)
    before = mean_void(net, demos)
    jobs, cluster, masks = (torch.from_numpy(a).flatten(0, 1) for a in (demos.jobs, demos.cluster, demos.masks))
    assert before > 0.05
    shift, probability = raise_void(net, jobs, cluster, masks, 0.05)
    assert shift == 0.0 and probability == pytest.approx(before, rel=1e-5)


def test_void_alone_does_not_count() -> None:
    net = network()
    jobs, cluster = torch.zeros(4, 4, FEATURES), torch.zeros(4, CLUSTER)
    masks = torch.zeros(4, 13, dtype=torch.bool)
    masks[:, -1] = True
    assert raise_void(net, jobs, cluster, masks, 0.5) == (0.0, 1.0)
    masks[0, :3] = True  # one decision with a choice: three other actions of the same logit as void's
    jobs[0, 0, 0] = 1.0
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    shift, probability = raise_void(net, jobs, cluster, masks, 0.5)
    assert shift == pytest.approx(math.log(3.0), abs=1e-6) and probability == pytest.approx(0.5)


def test_one_environment_holds_out_its_last_steps() -> None:
    demos = record_demonstrations(PickingEnv(1), PickingTeacher(), 64)
    assert warm_up(network(), demos, WarmupConfig(epochs=1, minibatch_size=16)).epochs == 1
    single = record_demonstrations(PickingEnv(1), PickingTeacher(), 1)
    with pytest.raises(ConfigError, match="too few"):
        warm_up(network(), single)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="void_probability"):
        WarmupConfig(void_probability=1.0)
    with pytest.raises(ConfigError, match="warmup.epochs=0"):
        WarmupConfig(epochs=0)
