"""Who decided how often, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.online.environment import ACCEPTED, NO_CHOICE, OVERRIDDEN, PRACTISED
from agents.online.measures import measure
from agents.online.monitor import override_share
from agents.online.result import StreamResult, plot_guard
from tests.agents.online.worlds import small_stream

NAN = float("nan")
LOG = np.array(
    [
        (0, ACCEPTED, 5.0, 6.0, 3),
        (2, OVERRIDDEN, 7.0, 6.0, 1),
        (5, NO_CHOICE, NAN, NAN, 1),
        (11, PRACTISED, 4.0, 6.0, 4),
        (12, OVERRIDDEN, 9.0, 6.0, 4),
        (30, OVERRIDDEN, 9.0, 6.0, 4),
    ]
)


def with_log(log: np.ndarray) -> StreamResult:
    stream = small_stream()
    jobs = stream.workload
    costs = np.ones(stream.num_intervals)
    own = measure(
        jobs.arrival_s,
        jobs.arrival_s + 1200.0,
        stream.segment_of_job,
        costs,
        interval_s=1200.0,
        num_segments=2,
        window=5,
    )
    return StreamResult("drf", "agent", 5, stream, {"agent": own, "drf": own}, log, {}, {})


def test_shares_by_hand() -> None:
    found = with_log(LOG)
    assert override_share(LOG) == pytest.approx(3 / 5)
    guard = found.guard()
    assert (guard["accepted"], guard["overridden"], guard["no_choice"], guard["from_practice"]) == (1, 3, 1, 1)
    # The second segment starts at interval 12; what comes after the last one belongs to none.
    assert guard["segment_override_share"] == [pytest.approx(1 / 3), 1.0]
    assert "drf decide 60.0 %" in found.table()
    assert plot_guard(found) is not None


def test_no_guard_no_share() -> None:
    log = LOG[:1].copy()
    log[:, 2:4] = NAN
    found = with_log(log)
    assert found.guard()["override_share"] is None
    assert "guard" not in found.table()
    assert plot_guard(found) is None


def test_nothing_decided_yet() -> None:
    found = dataclasses.replace(with_log(LOG), log=LOG[:0])
    assert found.guard()["segment_override_share"] == [None, None]
