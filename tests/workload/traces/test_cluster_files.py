"""Lists of servers as clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dl2env.config import ServerGroup
from dl2env.errors import ConfigError, TraceError, UnknownNameError
from dl2env.workload.cluster_files import NODE_FORMATS, read_nodes

SAMPLES = {
    "pai_nodes": "m1,V100,96,512,8\nm2,V100M32,96,512,8\nm3,CPU,96,512,0\nm4,MISC,64,384,2\n",
    "openb_nodes": "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,96000,393216,8,G2\n",
    "spot_nodes": "node_name,gpu_model,gpu_capacity_num,cpu_num\na,A10,1,128\nb,A100-SXM4-80GB,8,96\n",
    "philly_nodes": ",machineId,number of GPUs\n0,m0,8\n1,m1,8\n2,m2,0\n3,m3,2\n",
    "tiresias_cluster": "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,40,256\n",
    "gavel_cluster": json.dumps({"v100": 2, "k80": 1}),
}


def write(folder: Path, text: str) -> Path:
    path = folder / "nodes.txt"
    path.write_text(text)
    return path


def groups(path: Path, **options: object) -> list[tuple[int, int, int, str]]:
    table, _ = read_nodes(path, strict=True)
    servers: tuple[ServerGroup, ...] = table.cluster_config(**options).servers  # type: ignore[arg-type]
    return [(group.count, group.cpus, group.gpus, group.gpu_type) for group in servers]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pai_nodes", [(2, 96, 8, "v100"), (1, 64, 2, "k80"), (1, 96, 0, "pai-base")]),
        ("openb_nodes", [(1, 96, 8, "pai-base"), (1, 64, 2, "p100")]),
        ("spot_nodes", [(1, 96, 8, "a100"), (1, 128, 1, "a10")]),
        ("philly_nodes", [(2, 64, 8, "pai-base"), (1, 16, 2, "pai-base")]),
        ("tiresias_cluster", [(6, 40, 4, "pai-base")]),
        ("gavel_cluster", [(1, 8, 1, "k80"), (2, 8, 1, "v100")]),
    ],
)
def test_clusters(name: str, expected: list[tuple[int, int, int, str]], tmp_path: Path) -> None:
    path = write(tmp_path, SAMPLES[name])
    assert groups(path) == expected
    table, report = read_nodes(path, name)
    assert table.format == report.format == name
    assert report.rows_read == report.rows_kept


def test_every_format_has_a_sample() -> None:
    assert set(SAMPLES) == set(NODE_FORMATS)


def test_options(tmp_path: Path) -> None:
    path = write(tmp_path, SAMPLES["openb_nodes"])
    table, _ = read_nodes(path)
    assert table.kinds_without_entry() == ("G2",) and table.kinds_without_entry({"g2": "a100"}) == ()
    assert groups(path, gpu_types={"G2": "a100"})[0] == (1, 96, 8, "a100")
    assert groups(path, unknown_gpu="t4")[0] == (1, 96, 8, "t4")
    cluster = table.cluster_config(hardware="pai-testbed", link_sharing=0.5)
    assert (cluster.hardware, cluster.link_sharing) == ("pai-testbed", 0.5)
    with pytest.raises(UnknownNameError, match="GPU type 'b200'"):
        table.cluster_config({"G2": "b200"})
    assert groups(write(tmp_path, SAMPLES["philly_nodes"]), cpus_per_gpu=4)[0] == (2, 32, 8, "pai-base")


def test_gavel_with_several_gpus_per_server(tmp_path: Path) -> None:
    content = {"cluster_spec": {"v100": 10, "p100": 4}, "num_gpus_per_server": {"v100": 4, "p100": 2}}
    expected = [(2, 32, 4, "v100"), (2, 16, 2, "p100"), (1, 16, 2, "v100")]
    assert groups(write(tmp_path, json.dumps(content))) == expected


def test_wrong_rows_are_counted(tmp_path: Path) -> None:
    text = SAMPLES["openb_nodes"] + "c,64000,262144,-1,P100\nd,64000,262144,1.5,P100\ne,x,262144,1,P100\nf,1\n\n"
    path = write(tmp_path, text)
    table, report = read_nodes(path)
    assert table.num_nodes == 2 and (report.rows_read, report.rows_kept, report.rows_dropped) == (7, 2, 5)
    with pytest.raises(TraceError, match=r"nodes.txt, line"):
        read_nodes(path, strict=True)
    table, report = read_nodes(write(tmp_path, json.dumps({"v100": 2, "k80": -1, "p100": 1.5})))
    assert table.num_nodes == 2 and report.rows_dropped == 2


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_damaged_lists(name: str, tmp_path: Path) -> None:
    text = SAMPLES[name]
    variants = [text[:stop].encode() for stop in range(0, len(text), 3)]
    variants += [b"\0" * 9, b"\xff" * 40, b"hello", b'{"a": NaN}', b"{", text.replace("8", "inf").encode()]
    variants += [text.replace("2", "\xe9").encode("latin-1"), text.encode("utf-16"), b"\x1f\x8b\x08 cut"]
    path = tmp_path / "nodes.txt"
    for content in variants:
        for format in ("auto", name):
            path.write_bytes(content)
            try:
                table, report = read_nodes(path, format)
            except TraceError as error:
                assert "nodes.txt" in str(error) and "\n" not in str(error)
            else:
                assert table.num_nodes > 0 and report.rows_kept > 0


def test_a_list_of_jobs_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no known list of servers; it begins with 'timestamp"):
        read_nodes(write(tmp_path, "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,60,1,a\n"))
    with pytest.raises(UnknownNameError, match="format of server lists 'xml'"):
        read_nodes(write(tmp_path, "a"), "xml")
    with pytest.raises(ConfigError, match="no server has a GPU"):
        groups(write(tmp_path, "machineId,number of GPUs\nm0,0\n"))
