"""Plans of prompts and of steps see the same slots."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.model.plan import _masks, _visible


@pytest.mark.parametrize(("n", "length"), [(0, 1), (0, 300), (5, 7), (254, 40)])
@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_masks_of_the_device_are_those_of_the_host(n: int, length: int, ratio: int) -> None:
    at = np.arange(n - 127, n + length)
    n_slots = (n + length) // ratio + 3 if ratio else 0
    hosts = _masks(_visible(np, n, length, at, 128, ratio, n_slots))
    devices = _masks(_visible(mx, n, length, at, 128, ratio, n_slots))
    for host, device in zip(hosts, devices, strict=True):
        assert str(host.dtype) == str(device.dtype).removeprefix("mlx.core.").replace(
            "bool_", "bool"
        )
        np.testing.assert_array_equal(np.array(device), np.array(host))
    mask = np.array(hosts[0])
    assert mask.shape == (length, 1 + len(at) + n_slots)
    row = n + length - 1
    seen = 1 + min(row + 1, 128) + ((row + 1) // ratio if ratio else 0)
    assert (mask[-1] == 0).sum() == seen
    assert np.isneginf(mask[-1][mask[-1] != 0]).all()
