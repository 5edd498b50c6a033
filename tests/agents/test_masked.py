from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from agents.masked import log_prob_and_entropy, masked_log_softmax, masked_sample


def case(batch: int = 6, actions: int = 9, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, actions, generator=generator, dtype=torch.float64)
    mask = torch.rand(batch, actions, generator=generator) < 0.5
    mask[:, -1] = True
    mask[0, :-1] = False  # a row with one legal action
    chosen = torch.stack([torch.nonzero(row).flatten()[0] for row in mask])
    return logits.requires_grad_(), mask, chosen


def test_log_prob_and_entropy_equal_the_distribution_over_legal_actions() -> None:
    logits, mask, actions = case()
    log_prob, entropy = log_prob_and_entropy(logits, mask, actions)
    for row in range(len(logits)):
        legal = torch.nonzero(mask[row]).flatten()
        reference = Categorical(logits=logits[row, legal])
        torch.testing.assert_close(log_prob[row], reference.log_prob((legal == actions[row]).nonzero()[0, 0]))
        torch.testing.assert_close(entropy[row], reference.entropy())
    assert entropy[0].item() == 0.0 and log_prob[0].item() == 0.0


def test_gradients_are_right_and_zero_for_masked_actions() -> None:
    logits, mask, actions = case()
    assert torch.autograd.gradcheck(lambda x: log_prob_and_entropy(x, mask, actions), (logits,))
    log_prob, entropy = log_prob_and_entropy(logits, mask, actions)
    (grad,) = torch.autograd.grad(log_prob.sum() + 0.3 * entropy.sum(), logits)
    assert torch.equal(grad[~mask], torch.zeros_like(grad[~mask]))


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_masked_actions_are_never_taken(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.full((4000, 12), size)
    mask = torch.zeros(4000, 12, dtype=torch.bool)
    mask[:, [3, 11]] = True
    logits[mask] = -size
    log_probs = masked_log_softmax(logits, mask)
    assert float(log_probs.exp()[~mask].max()) == 0.0
    drawn = masked_sample(log_probs, generator)
    assert set(drawn.tolist()) == {3, 11}
    log_prob, entropy = log_prob_and_entropy(logits, mask, drawn)
    torch.testing.assert_close(entropy, torch.full((4000,), 0.5).log().neg())
    torch.testing.assert_close(log_prob, torch.full((4000,), 0.5).log())


def test_sampling_follows_the_probabilities() -> None:
    probs = torch.tensor([0.6, 0.0, 0.3, 0.1])
    mask = torch.tensor([True, False, True, True]).expand(40000, 4)
    logits = probs.clamp_min(0.5).where(probs == 0, probs).log().expand(40000, 4)
    drawn = masked_sample(masked_log_softmax(logits, mask), torch.Generator().manual_seed(1))
    shares = torch.bincount(drawn, minlength=4) / 40000
    torch.testing.assert_close(shares, probs, atol=0.01, rtol=0)  # four standard deviations
