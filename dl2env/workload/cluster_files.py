"""Clusters from lists of servers: the machine lists of public traces as `ClusterConfig`.

| format | content |
|---|---|
| `pai_nodes` | PAI 2020 machine_spec, no header: machine, gpu_type, cap_cpu (cores), cap_mem (GB), cap_gpu |
| `openb_nodes` | Alibaba gpu-v2023 nodes: sn, cpu_milli, memory_mib, gpu, model |
| `spot_nodes` | Alibaba v2026-spot-gpu nodes: node_name, gpu_model, gpu_capacity_num, cpu_num, in any order |
| `philly_nodes` | Philly machine list: machineId, number of GPUs (no CPUs, no GPU kind) |
| `tiresias_cluster` | Tiresias: num_switch, num_node_p_switch, num_gpu_p_node, num_cpu_p_node, mem_p_node |
| `gavel_cluster` | Gavel, JSON: GPUs by kind, `{"v100": 36}`, or that as `cluster_spec` beside `num_gpus_per_server` |

`read_nodes` finds the format by content. GPU kinds of a trace become GPUs of the hardware catalogue by `GPU_TYPES`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.config import ClusterConfig, ServerGroup
from dl2env.errors import ConfigError, TraceError, UnknownNameError
from dl2env.workload.traces.head import DELIMITERS, Head
from dl2env.workload.traces.report import Account, ReadReport
from dl2env.workload.traces.source import TraceFile, open_source
from dl2env.workload.traces.table import TextColumn

GPU_TYPES: dict[str, str] = {
    "V100": "v100",
    "V100M16": "v100",
    "V100M32": "v100",
    "P100": "p100",
    "K80": "k80",
    "T4": "t4",
    "A10": "a10",
    "A100": "a100",
    "A100-SXM4-80GB": "a100",
    "A800-SXM4-80GB": "a100",  # an A100 with a slower NVLink
    "MISC": "k80",  # PAI: older cards, a mix of K40m, K80 and M60
}
"""GPU kind in the words of a trace -> key of `data/hardware.toml`, letters of any case. Kinds that are not there
(openb's undisclosed G1 to G3) become `unknown_gpu` of `NodeTable.cluster_config`."""

_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class NodeTable:
    """Servers of a cluster, one array entry per server, in file order.

    Attributes:
        format: Name of the format.
        gpus: (N,) int64 GPUs.
        cpus: (N,) CPU cores; NaN where the list does not say.
        memory_gib: (N,) host memory; NaN where the list does not say.
        gpu_kind: GPU model in the list's words; unknown where it does not say.
        source_row: (N,) line of the file.
    """

    format: str
    gpus: NDArray[np.int64]
    cpus: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    gpu_kind: TextColumn
    source_row: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        """Number of servers."""
        return int(self.gpus.size)

    def gpus_by_kind(self) -> dict[str, int]:
        """GPUs of each kind, most first; those of unknown kind under the empty text."""
        totals = {name: int(self.gpus[self.gpu_kind.is_name(name)].sum()) for name in self.gpu_kind.names}
        unknown = int(self.gpus[self.gpu_kind.codes < 0].sum())
        totals |= {"": unknown} if unknown else {}
        return dict(sorted(((kind, n) for kind, n in totals.items() if n), key=lambda item: -item[1]))

    def kinds_without_entry(self, gpu_types: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """GPU kinds of the list that neither `gpu_types` nor `GPU_TYPES` maps to the hardware catalogue."""
        known = {kind.lower() for kind in (*GPU_TYPES, *GPU_TYPES.values(), *(gpu_types or {}))}
        return tuple(kind for kind in self.gpus_by_kind() if kind.lower() not in known)

    def cluster_config(
        self,
        gpu_types: Mapping[str, str] | None = None,
        *,
        unknown_gpu: str = "pai-base",
        cpus_per_gpu: int = 8,
        **options: Any,
    ) -> ClusterConfig:
        """The servers as groups of equal ones, the most powerful first.

        Args:
            gpu_types: GPU kind of the list -> GPU of the hardware catalogue, before `GPU_TYPES`.
            unknown_gpu: GPU of the catalogue for kinds that neither names.
            cpus_per_gpu: CPU cores of a server per GPU where the list does not say. Servers without GPUs and without
                known CPUs are left out.
            **options: Other fields of `ClusterConfig`, such as `hardware` and `link_sharing`.

        Raises:
            UnknownNameError: A GPU is not in the catalogue.
            ConfigError: No server is left.
        """
        from dl2env.speed.hardware import load_hardware

        catalogue = load_hardware(options.get("hardware", ClusterConfig().hardware))
        known = {kind.lower(): gpu for kind, gpu in {**GPU_TYPES, **(gpu_types or {})}.items()}
        names = {gpu.name for gpu in catalogue.gpus}
        known = {**{name: name for name in names}, **known}
        cpus = np.where(np.isfinite(self.cpus), np.floor(self.cpus), self.gpus * cpus_per_gpu).astype(np.int64)
        groups: Counter[tuple[int, int, str]] = Counter()
        for gpus, cores, kind in zip(self.gpus.tolist(), cpus.tolist(), self.gpu_kind.tolist(), strict=True):
            if gpus or cores:
                groups[gpus, cores, known.get(kind.lower(), unknown_gpu) if gpus else unknown_gpu] += 1
        if not groups:
            raise ConfigError("cluster: no server has a GPU or known CPUs")
        for _, _, gpu in groups:
            if gpu not in names:
                raise UnknownNameError("GPU type", gpu, sorted(names))
        servers = tuple(
            ServerGroup(count, cpus=cores, gpus=gpus, gpu_type=gpu)
            for (gpus, cores, gpu), count in sorted(
                groups.items(), key=lambda item: (-item[0][0], -item[0][1], item[0][2])
            )
        )
        return ClusterConfig(servers=servers, **options)


@dataclass(frozen=True)
class _NodeFormat:
    sniff: Callable[[Head], bool]
    read: Callable[[TraceFile, Head, Account], NodeTable]


def _has(*columns: str) -> Callable[[Head], bool]:
    return lambda head: any(set(columns) <= set(head.header(delimiter)) for delimiter in DELIMITERS)


def _table(
    name: str,
    columns: tuple[str, ...],
    gpus: str,
    kind: str = "",
    cpus: tuple[str, float] | None = None,
    memory: tuple[str, float] | None = None,
    header: bool = True,
) -> Callable[[TraceFile, Head, Account], NodeTable]:
    """Reader of a table with one server per row; `cpus` and `memory` are a column and its units per core and GiB."""

    def read(file: TraceFile, head: Head, account: Account) -> NodeTable:
        from dl2env.workload.traces.rows import Layout, header_layout, read_rows

        delimiter = max(DELIMITERS, key=lambda mark: len(head.cells(mark)[0]))
        layout = header_layout(head, columns, name) if header else Layout(columns, delimiter, header_line=0)
        parts: list[tuple[Any, ...]] = []
        kinds: list[str] = []
        for rows in read_rows(file, layout, account):
            count = rows.count(gpus, is_whole=True)
            others = []
            for column in (cpus, memory):
                if column is None:
                    others.append(np.full(len(rows), np.nan))
                else:
                    others.append(rows.number(column[0], at_least=0, at_most=1e12, if_missing=np.nan) / column[1])
            texts = rows.text(kind) if kind else TextColumn.unknown(len(rows))
            keep = rows.close()
            parts.append((count[keep], *(values[keep] for values in others), rows.lines[keep]))
            kinds += texts.take(keep).tolist()
        if not kinds:
            raise TraceError(f"{file.name}, line 1: no servers; give a list with at least one row that can be read")
        count, cores, gib, lines = (np.concatenate(values) for values in zip(*parts, strict=True))
        gpu_kind = TextColumn.of(None if one.upper() == "CPU" else one for one in kinds)
        return NodeTable(name, count.astype(np.int64), cores, gib, gpu_kind, lines)

    return read


def _is_pai(head: Head) -> bool:
    rows = [row for delimiter in DELIMITERS for row in head.cells(delimiter)[:20] if len(row) == 5]
    return bool(rows) and sum(_is_machine(row) for row in rows) > 0.5 * len(head.lines[:20])


def _is_machine(row: list[str]) -> bool:
    return all(cell.replace(".", "", 1).isdigit() for cell in row[2:]) and not row[1].replace(".", "").isdigit()


def _read_tiresias(file: TraceFile, head: Head, account: Account) -> NodeTable:
    from dl2env.workload.traces.rows import header_layout, read_rows

    columns = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
    tables = []
    for rows in read_rows(file, header_layout(head, columns[:3], "tiresias_cluster"), account):
        nodes = rows.count("num_switch", at_least=1, is_whole=True)
        nodes = nodes * rows.count("num_node_p_switch", at_least=1, is_whole=True)
        gpus = rows.count("num_gpu_p_node", is_whole=True)
        cpus = rows.count("num_cpu_p_node", if_missing=np.nan, is_required=False)
        memory = rows.number("mem_p_node", at_least=0, at_most=1e9, if_missing=np.nan, is_required=False)
        rows.drop(nodes > 1e6, "more than a million servers", "num_node_p_switch")
        keep = rows.close()
        times = nodes[keep].astype(np.int64)
        tables.append([np.repeat(values[keep], times) for values in (gpus, cpus, memory, rows.lines)])
    if not tables or not sum(part[0].size for part in tables):
        raise TraceError(f"{file.name}, line 1: no servers; give a cluster with at least one row that can be read")
    gpus, cpus, memory, lines = (np.concatenate(values) for values in zip(*tables, strict=True))
    unknown = TextColumn.unknown(gpus.size)
    return NodeTable("tiresias_cluster", gpus.astype(np.int64), cpus, memory * _BYTES_PER_GB / 2**30, unknown, lines)


def _gavel_content(file: TraceFile) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """GPUs by kind, and GPUs per server by kind; None if the file is something else."""
    try:
        content = json.loads(file.content())
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    spec = content.get("cluster_spec", content)
    per_server = content.get("num_gpus_per_server", {}) if "cluster_spec" in content else {}
    if not isinstance(spec, dict) or not isinstance(per_server, dict) or not spec:
        return None
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in spec.values()):
        return None
    return spec, per_server


def _read_gavel(file: TraceFile, head: Head, account: Account) -> NodeTable:
    content = _gavel_content(file)
    if content is None:
        raise TraceError(f'{file.name}, line 1: not a JSON object of GPU counts by kind, such as {{"v100": 36}}')
    spec, per_server = content
    kinds: list[str] = []
    gpus: list[int] = []
    lines: list[int] = []
    for line, (kind, count) in enumerate(spec.items(), 1):
        account.rows_read += 1
        size = per_server.get(kind, 1)
        for value, what in ((count, "GPUs"), (size, "GPUs per server")):
            if not isinstance(value, (int, float)) or not 0 < value <= 1e6 or value != int(value):
                account.add("dropped", f"{what} of a kind is no whole number from 1 to 1e6", [line], f"{kind}={value}")
                break
        else:
            full, rest = divmod(int(count), int(size))
            sizes = [int(size)] * full + ([rest] if rest else [])
            kinds += [kind] * len(sizes)
            gpus += sizes
            lines += [line] * len(sizes)
    if not gpus:
        raise TraceError(f"{file.name}, line 1: no servers; give GPU counts of at least 1")
    unknown = np.full(len(gpus), np.nan)
    return NodeTable("gavel_cluster", np.array(gpus), unknown, unknown, TextColumn.of(kinds), np.array(lines))


_PHILLY = ("machineid", "number of gpus")
_SPOT = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
_OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_PAI = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_GIB_IN_GB = 2**30 / _BYTES_PER_GB

NODE_FORMATS: dict[str, _NodeFormat] = {
    "openb_nodes": _NodeFormat(
        _has(*_OPENB), _table("openb_nodes", _OPENB, "gpu", "model", ("cpu_milli", 1000.0), ("memory_mib", 1024.0))
    ),
    "spot_nodes": _NodeFormat(
        _has(*_SPOT[:3]), _table("spot_nodes", _SPOT[:3], "gpu_capacity_num", "gpu_model", ("cpu_num", 1.0))
    ),
    "philly_nodes": _NodeFormat(_has(*_PHILLY), _table("philly_nodes", _PHILLY, "number of gpus")),
    "tiresias_cluster": _NodeFormat(_has("num_switch", "num_node_p_switch", "num_gpu_p_node"), _read_tiresias),
    "gavel_cluster": _NodeFormat(
        lambda head: head.start == "{" and len(head.file.head) < 100_000 and _gavel_content(head.file) is not None,
        _read_gavel,
    ),
    "pai_nodes": _NodeFormat(
        lambda head: _has(*_PAI)(head) or _is_pai(head),
        lambda file, head, account: _table(
            "pai_nodes", _PAI, "cap_gpu", "gpu_type", ("cap_cpu", 1.0), ("cap_mem", _GIB_IN_GB), _has(*_PAI)(head)
        )(file, head, account),
    ),
}


def node_format_of(head: Head) -> str | None:
    """Name of the server-list format that a file is of; None if it is none."""
    if not head.lines:
        return None
    return next((name for name, one in NODE_FORMATS.items() if one.sniff(head)), None)


def read_nodes(path: str | Path, format: str = "auto", *, strict: bool = False) -> tuple[NodeTable, ReadReport]:
    """Reads a list of servers.

    Args:
        path: A file, packed or not, or `archive::member`.
        format: Key of `NODE_FORMATS`, or `auto`: found by content.
        strict: Rows that are wrong are errors.

    Returns:
        The servers, and the account of every row.

    Raises:
        TraceError: The file cannot be read, is of no known format, holds no server, or a row is wrong and reading is
            strict.
        UnknownNameError: No such format.
        ConfigError: polars is not installed.
    """
    if format != "auto" and format not in NODE_FORMATS:
        raise UnknownNameError("format of server lists", format, ["auto", *NODE_FORMATS])
    source = open_source(path)
    # A folder or archive may hold a trace's other tables beside its list of servers.
    heads = [Head(file) for file in source.files]
    found = [(head, name) for head in heads if (name := node_format_of(head)) is not None]
    if format != "auto":
        found = [(head, name) for head, name in found if name == format] or [(Head(source.only()), format)]
    if len(found) != 1:
        seen = f"{len(found)} lists of servers" if found else f"no known list of servers; {heads[0].describe()}"
        raise TraceError(f"{source.path}, line 1: {seen}; known formats: {', '.join(NODE_FORMATS)}")
    head, name = found[0]
    account = Account(head.file.name)
    try:
        table = NODE_FORMATS[name].read(head.file, head, account)
    except ModuleNotFoundError as error:
        if error.name != "polars":
            raise
        raise ConfigError("reading lists of servers needs polars: install dl2env with its extra `traces`") from error
    report = ReadReport.build(source.path, name, [account], account.rows_left, {})
    if strict:
        report.check_strict()
    return table, report
