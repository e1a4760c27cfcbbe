"""What the papers' loops by hand share: a clipped step, a moving average, and the gap between two results."""

from __future__ import annotations

import torch

from fedbook.federation import tree_map


def gap(a, b):
    gaps = [0.0]
    tree_map(lambda x, y: gaps.append(float((x - y).abs().max())), a, b)
    return max(gaps)


def step(optimiser, loss, max_norm):
    """Back through the loss, the gradient of all parameters together clipped."""
    optimiser.zero_grad()
    loss.backward()
    grads = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
    norm = float(torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= min(1.0, max_norm / max(norm, 1e-300))  # 0 for one sample alone
    optimiser.step()


@torch.no_grad()
def follow(target, online, decay):
    for slow, p in zip(target.parameters(), online.parameters(), strict=True):
        slow.copy_(decay * slow + (1 - decay) * p)
