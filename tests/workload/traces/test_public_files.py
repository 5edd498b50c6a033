"""Counts of the public files, where they are at hand, against those that their description states."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dl2env.workload.cluster_files import read_nodes
from dl2env.workload.traces import read_trace
from tests.workload.traces.samples import real_file


def test_philly() -> None:
    path = real_file("adaptdl-osdi21/traces/philly.csv")
    start = time.process_time()
    table, report = read_trace(path)
    assert time.process_time() - start < 2.0
    assert (report.rows_read, report.rows_kept, table.num_jobs) == (82_248, 82_247, 82_247)
    assert report.dropped["blank line"].count == 1
    assert report.noted["repeats another row exactly"].count == 65
    assert report.noted["runs for less than 60 s"].count == 7_654
    assert report.noted["arrives before the row above"].count > 0
    assert table.duration_s.max() == 4_628_226 and np.median(table.duration_s) == 1_144
    assert table.duration_s.mean() == pytest.approx(13_136, abs=0.5)
    gpus, counts = np.unique(table.num_gpus, return_counts=True)
    assert dict(zip(gpus.tolist(), counts.tolist(), strict=True)) == {
        1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
    }  # fmt: skip
    assert len(table.group.names) == 15


@pytest.mark.parametrize(("number", "last"), [(1, 27_695), (2, 27_131), (3, 28_739)])
def test_pollux(number: int, last: int) -> None:
    table, report = read_trace(real_file(f"adaptdl-osdi21/workloads/workload-{number}.csv"))
    assert table.format == "pollux" and report.rows_kept == report.rows_read == 160
    assert table.arrival_s[-1] + table.origin_s == last
    assert "arrives before the row above" not in report.noted


def test_openb_pods() -> None:
    table, report = read_trace(real_file("alibaba-gpu-v2023/openb_pod_list_default.csv"))
    assert (report.rows_read, report.rows_kept) == (8_152, 7_255)
    assert report.dropped["never scheduled (Pending)"].count == 897
    assert table.status.counts() == {"running": 5_193, "failed": 1_870, "completed": 192}
    assert int(table.is_censored.sum()) == 5_193
    assert report.warnings == {}
    # The folder holds the list of nodes too, which is not a trace.
    other, _ = read_trace(real_file("alibaba-gpu-v2023"))
    np.testing.assert_array_equal(other.arrival_s, table.arrival_s)


@pytest.mark.parametrize(
    ("name", "format", "rows", "nodes", "gpus"),
    [
        ("alibaba-gpu-v2020/pai_machine_spec.csv", "pai_nodes", 1_897, 1_897,
         {"MISC": 2_240, "P100": 1_596, "V100M32": 1_080, "T4": 994, "V100": 832}),
        ("alibaba-gpu-v2023/openb_node_list_gpu_node.csv", "openb_nodes", 1_213, 1_213, {"total": 6_212}),
        ("philly-scripts/revised_machine_list.csv", "philly_nodes", 552, 552, {"": 264 * 8 + 271 * 4 + 3 * 2 + 3}),
        ("tiresias/cluster_spec.csv", "tiresias_cluster", 1, 16, {"": 64}),
        ("tiresias/n1g4.csv", "tiresias_cluster", 1, 1, {"": 4}),
        ("tiresias/n32g4.csv", "tiresias_cluster", 1, 32, {"": 128}),
        ("tiresias/n160g8.csv", "tiresias_cluster", 1, 160, {"": 1_280}),
        ("tiresias/n256g8.csv", "tiresias_cluster", 1, 256, {"": 2_048}),
    ],
)  # fmt: skip
def test_nodes(name: str, format: str, rows: int, nodes: int, gpus: dict[str, int]) -> None:
    table, report = read_nodes(real_file(name), strict=True)
    assert report.format == table.format == format
    assert report.rows_read == report.rows_kept + report.rows_dropped == rows
    assert table.num_nodes == nodes
    by_kind = table.gpus_by_kind()
    assert by_kind == gpus or sum(by_kind.values()) == gpus.get("total")
    cluster = table.cluster_config()
    assert sum(group.count * group.gpus for group in cluster.servers) == int(table.gpus.sum())


def test_kinds_of_nodes() -> None:
    table, _ = read_nodes(real_file("alibaba-gpu-v2020/pai_machine_spec.csv"))
    assert int((table.gpus == 0).sum()) == 83 and (table.cpus[table.gpus == 0] > 0).all()
    table, _ = read_nodes(real_file("alibaba-gpu-v2023/openb_node_list_gpu_node.csv"))
    nodes = {kind: int(table.gpu_kind.is_name(kind).sum()) for kind in table.gpu_kind.names}
    assert nodes == {"G2": 549, "T4": 404, "P100": 134, "V100M16": 55, "G3": 39, "V100M32": 30, "A10": 2}
    assert table.kinds_without_entry() == ("G2", "G3")
    table, _ = read_nodes(real_file("philly-scripts/revised_machine_list.csv"))
    sizes, counts = np.unique(table.gpus, return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {0: 13, 2: 3, 3: 1, 4: 271, 8: 264}
