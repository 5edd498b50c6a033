"""Measured speeds by (workers, parameter servers): read, clean, fill the gaps, mark what was not measured.

Two forms of JSON are read. The project's own:

    {"schema": "dl2env-speed-table/1",
     "types": {"resnet-50": {"batch_size": 32,
                             "speed": [[15.8, 15.4, null], [18.1, 19.0, 18.7]],
                             "measured": [[true, true, false], [true, true, true]]}}}

`speed[ps - 1][workers - 1]` is the summed samples/s of all workers, null where there is none; `batch_size` and
`measured` are optional. And recorded outcomes of the released DL2 simulator, with `speed_table_ext` or `speed_table`,
`[type][ps - 1][workers - 1]`, which hold an interpolation of published measurements.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.speed.parameters import PS_WORKER, SpeedParameters

SCHEMA = "dl2env-speed-table/1"
MISSING, MEASURED, INTERPOLATED, EXTRAPOLATED = range(4)
"""Where a cell comes from. Interpolated: between measured ones; extrapolated: the fitted form beyond them."""

FAILED_BELOW = 1e-6
"""Samples/s below which a run counts as failed: the published tables store failures as zero."""

_LARGEST = 1e15  # samples/s; more comes from a damaged file

RELEASED_TYPES = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text", "dssm", "wlm")
"""Models of the released simulator in the order of its type numbers, from 1."""


@dataclass(frozen=True)
class TypeTable:
    """Speeds of one job type; both axes start at 1.

    Attributes:
        samples_per_s: (W, P) by (workers - 1, PSs - 1); NaN where nothing is known.
        origin: (W, P) int8, one of MISSING, MEASURED, INTERPOLATED, EXTRAPOLATED.
        num_failed: Runs that were taken for failed and dropped.
        batch_size: Samples per step as the file states it, or None.
    """

    samples_per_s: NDArray[np.float64]
    origin: NDArray[np.int8]
    num_failed: int = 0
    batch_size: float | None = None

    def describe(self) -> str:
        """Counts of cells by origin, and of failed runs."""
        names = ("missing", "measured", "interpolated", "extrapolated")
        counts = [f"{int((self.origin == code).sum())} {name}" for code, name in enumerate(names)]
        return ", ".join([*counts, f"{self.num_failed} failed runs"])


def read_speed_table(path: str | Path) -> dict[str, TypeTable]:
    """Reads the tables of all types of a file, as they are.

    Cells of the released form that are not known to have been measured keep their value and are marked MISSING.

    Raises:
        ConfigError: The file is missing, not JSON, or of neither form.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a speed table") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON ({error}); mend the file") from error
    if isinstance(content, dict) and content.get("schema") == SCHEMA:
        return _read_own(path, content)
    if isinstance(content, dict) and ("speed_table_ext" in content or "speed_table" in content):
        return _read_released(path, content)
    raise ConfigError(f'{path}: no speed table; it needs "schema": "{SCHEMA}" and "types", or "speed_table"')


def _read_own(path: Path, content: dict[str, Any]) -> dict[str, TypeTable]:
    types = content.get("types")
    if not isinstance(types, dict) or not types:
        raise ConfigError(f"{path}: types must map type names to tables")
    tables = {}
    for name, entry in types.items():
        if not isinstance(entry, dict) or "speed" not in entry:
            raise ConfigError(f"{path}: types.{name}.speed is missing; add [[samples/s by workers], ... by PSs]")
        speed = _matrix(path, f"types.{name}.speed", entry["speed"])
        if (speed < 0).any():
            w, p = np.argwhere(speed < 0)[0]
            raise ConfigError(f"{path}: types.{name}.speed[{p}][{w}]={speed[w, p]:g} must not be negative; mend it")
        given = np.isfinite(speed)
        if "measured" in entry:
            flags = _matrix(path, f"types.{name}.measured", entry["measured"], of_flags=True)
            if flags.shape != speed.shape:
                raise ConfigError(f"{path}: types.{name}.measured must have the shape of speed")
            given &= flags == 1
        batch = entry.get("batch_size")
        if batch is not None and (isinstance(batch, bool) or not isinstance(batch, (int, float)) or batch <= 0):
            raise ConfigError(f"{path}: types.{name}.batch_size={batch!r} must be a positive number")
        tables[name] = TypeTable(speed, np.where(given, MEASURED, MISSING).astype(np.int8), batch_size=batch)
    return tables


def _read_released(path: Path, content: dict[str, Any]) -> dict[str, TypeTable]:
    key = "speed_table_ext" if "speed_table_ext" in content else "speed_table"
    if not isinstance(content[key], dict):
        raise ConfigError(f"{path}: {key} must map type numbers to tables")
    tables = {}
    for number, rows in content[key].items():
        if not (number.isdigit() and 1 <= int(number) <= len(RELEASED_TYPES)):
            raise ConfigError(f"{path}: {key}.{number}: type numbers are 1 to {len(RELEASED_TYPES)}")
        speed = _matrix(path, f"{key}.{number}", rows)
        measured = released_cells(int(number), *speed.shape)
        origin = np.where(measured & np.isfinite(speed), MEASURED, MISSING).astype(np.int8)
        tables[RELEASED_TYPES[int(number) - 1]] = TypeTable(speed, origin)
    return tables


def _matrix(path: Path, where: str, rows: Any, *, of_flags: bool = False) -> NDArray[np.float64]:
    """(W, P) array of a nested list by PSs and workers; null becomes NaN, and in flags true and false 1 and 0."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise ConfigError(f"{path}: {where} must be a list of lists, one per number of parameter servers")
    if len({len(row) for row in rows}) > 1:
        raise ConfigError(f"{path}: {where}: rows differ in length; fill gaps with null")
    for p, row in enumerate(rows):
        for w, value in enumerate(row):
            if of_flags:
                if value not in (0, 1):  # true and false are among them
                    raise ConfigError(f"{path}: {where}[{p}][{w}]={value!r:.40} must be true or false")
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (is_number and abs(value) <= _LARGEST):
                raise ConfigError(
                    f"{path}: {where}[{p}][{w}]={value!r:.40} must be a number of at most {_LARGEST:g} or null"
                )
    return np.array([[np.nan if v is None else float(v) for v in row] for row in rows]).T


def released_cells(type_number: int, max_workers: int, max_ps: int) -> NDArray[np.bool_]:
    """(W, P) mask of the cells that the published measurements cover.

    Workers and PSs together at most 24; workers at most 12 for types 1 and 2; for the others odd counts only, and
    workers at most 11 (23 for types 6 and 7).
    """
    w = np.arange(1, max_workers + 1)[:, None]
    p = np.arange(1, max_ps + 1)[None, :]
    mask: NDArray[np.bool_] = w + p <= 24
    if type_number in (1, 2):
        mask &= w <= 12
    else:
        mask &= (w <= (23 if type_number in (6, 7) else 11)) & (w % 2 == 1) & (p % 2 == 1)
    return mask


def clean_table(
    table: TypeTable, max_workers: int, max_ps: int, *, is_synchronous: bool, batch_size: float
) -> TypeTable:
    """A complete table of the wanted size without failed runs.

    The resource-speed function fitted to the measured cells (`fitted.fit_speed`) gives the shape. A cell with measured
    cells on both sides along an axis has their ratio of step time to fit, interpolated linearly (the mean, when both
    axes allow it); all others have the fit itself.

    Args:
        table: As read.
        max_workers: Workers of the result.
        max_ps: PSs of the result.
        is_synchronous: Form of the fitted function.
        batch_size: Samples per step, of the type.

    Raises:
        Dl2EnvError: No cell was measured.
    """
    from dl2env.speed.fitted import fit_speed  # numba

    measured = table.origin == MEASURED
    failed = measured & (table.samples_per_s < FAILED_BELOW)
    measured &= ~failed
    size = (max(max_workers, measured.shape[0]), max(max_ps, measured.shape[1]))
    speed = np.full(size, np.nan)
    speed[: measured.shape[0], : measured.shape[1]][measured] = table.samples_per_s[measured]
    workers, ps = np.nonzero(np.isfinite(speed))
    fit = fit_speed(workers + 1, ps + 1, speed[workers, ps], is_synchronous=is_synchronous, batch_size=batch_size)
    fitted = fit.samples_per_s(*np.meshgrid(np.arange(1, size[0] + 1), np.arange(1, size[1] + 1), indexing="ij"))
    ratio = fitted / speed  # of step times
    origin = np.where(np.isfinite(ratio), MEASURED, EXTRAPOLATED).astype(np.int8)
    for _ in range(2):  # the second pass reaches rows and columns without a measured cell
        filled = _between(ratio)
        new = np.isnan(ratio) & np.isfinite(filled)
        ratio[new] = filled[new]
        origin[new] = INTERPOLATED
    unmeasured = origin != MEASURED
    speed[unmeasured] = (fitted / np.where(np.isfinite(ratio), ratio, 1.0))[unmeasured]
    cut = (slice(max_workers), slice(max_ps))
    return TypeTable(speed[cut], origin[cut], int(failed.sum()), table.batch_size)


def _between(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear interpolation along each axis, their mean where both apply, NaN where neither does."""
    total, count = np.zeros_like(values), np.zeros(values.shape)
    for axis in (0, 1):
        lines = np.moveaxis(values, axis, 0)
        filled = np.full(lines.shape, np.nan)
        position = np.arange(lines.shape[0])
        for j in range(lines.shape[1]):
            known = np.nonzero(np.isfinite(lines[:, j]))[0]
            if len(known) >= 2:
                filled[:, j] = np.interp(position, known, lines[known, j], left=np.nan, right=np.nan)
        along = np.moveaxis(filled, 0, axis)
        total += np.where(np.isfinite(along), along, 0.0)
        count += np.isfinite(along)
    return np.divide(total, count, out=np.full_like(values, np.nan), where=count > 0)


def measured_parameters(
    parameters: SpeedParameters, tables: dict[str, TypeTable], max_workers: int, max_ps: int, *, raw: bool = False
) -> SpeedParameters:
    """Replaces the analytic speed of every type by its measured table.

    Args:
        parameters: Analytic constants of the same types (demands and weights are still needed).
        tables: Tables by type name, as read.
        max_workers: Configured cap W.
        max_ps: Configured cap P.
        raw: Use the values as they stand, unmeasured and failed ones included: the released simulator does.

    Raises:
        ConfigError: A type has no table, no parameter servers, another batch size, or (raw) too small a table.
    """
    values = np.zeros((len(parameters.type_names), max_workers + 2, max_ps + 2))
    for t, name in enumerate(parameters.type_names):
        record = parameters.types[t]
        if name not in tables:
            raise ConfigError(f"speed table: no type {name!r}; it has: {', '.join(tables)}; see workload.include")
        if record["architecture"] != PS_WORKER:
            raise ConfigError(f"speed table: {name!r} has no parameter servers; use speed.model=analytic for it")
        table = tables[name]
        if table.batch_size is not None and table.batch_size != record["batch_size"]:
            raise ConfigError(
                f"speed table: {name!r} was measured with batch_size {table.batch_size:g}, its job type has "
                f"{record['batch_size']:g}; make them equal"
            )
        if raw:
            part = table.samples_per_s[: max_workers + 1, : max_ps + 1]
            if part.shape != (max_workers + 1, max_ps + 1) or not np.isfinite(part).all():
                raise ConfigError(
                    f"speed table: {name!r} must hold all cells up to {max_workers + 1} workers and {max_ps + 1} "
                    "parameter servers; lower workload.max_workers and max_ps, or let the table be cleaned"
                )
        else:
            part = clean_table(
                table,
                max_workers + 1,
                max_ps + 1,
                is_synchronous=bool(record["is_synchronous"]),
                batch_size=float(record["batch_size"]),
            ).samples_per_s
        values[t, 1:, 1:] = part
    return parameters._replace(table=values)
