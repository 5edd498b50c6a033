"""Populations in CSV files: round trips, forms that are accepted, and one clear error for those that are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2env.errors import ConfigError
from dl2env.speed.characterization import ARCHITECTURES, PaiWorkloads, step_breakdown
from dl2env.speed.hardware import load_hardware
from dl2env.workload import population_file
from dl2env.workload.population import (
    Population,
    Provenance,
    generate_population,
    load_population_config,
    read_population,
    write_population,
)

HEADER = "architecture,num_cnodes,batch_size,flops,memory_bytes,input_bytes,weight_traffic_bytes"
ROWS = ["1w1g,1,64,1.5e12,3e10,4e7,0", "ps_worker,16,128,5e11,1e10,0,3e8", "allreduce_local,8,32,1e12,2e10,1e6,1e9"]


def write(path: Path, *lines: str, ending: str = "\n") -> Path:
    path.write_bytes((ending.join(lines) + ending).encode())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.csv"


class TestRead:
    def test_values(self, path: Path):
        population = read_population(write(path, HEADER, *ROWS))
        jobs = population.workloads
        assert [ARCHITECTURES[k] for k in jobs.architecture] == ["1w1g", "ps_worker", "allreduce_local"]
        assert jobs.num_cnodes.tolist() == [1, 16, 8] and jobs.batch_size.tolist() == [64, 128, 32]
        assert jobs.flops.tolist() == [1.5e12, 5e11, 1e12] and jobs.weight_traffic_bytes.tolist() == [0, 3e8, 1e9]
        assert jobs.memory_bytes.tolist() == [3e10, 1e10, 2e10] and jobs.input_bytes.tolist() == [4e7, 0, 1e6]
        assert population.provenance == Provenance("file", str(path), f"3 jobs of {path}")
        assert population.stored_weight_bytes is None and population.optimizer_slots is None
        assert (step_breakdown(jobs, load_hardware("pai-base")).total_s > 0).all()

    def test_optional_columns(self, path: Path):
        header = f"{HEADER},dense_weight_bytes,embedding_weight_bytes,optimizer_slots"
        population = read_population(write(path, header, ROWS[1] + ",4e8,1e9,2"))
        stored = population.stored_weight_bytes
        assert stored is not None and stored.tolist() == [3 * 1.4e9]
        only_dense = read_population(write(path, f"{HEADER},dense_weight_bytes", ROWS[1] + ",4e8")).stored_weight_bytes
        assert only_dense is not None and only_dense.tolist() == [4e8]

    def test_columns_in_any_order_and_others_reported(self, path: Path):
        header = "owner," + ",".join(reversed(HEADER.split(","))) + ",note"
        cells = ",".join(reversed(ROWS[1].split(",")))
        population = read_population(write(path, header, f'me,{cells},"of, note"'))
        assert population.digest() == read_population(write(path, HEADER, ROWS[1])).digest()
        first = read_population(write(path, header, f"me,{cells},x")).provenance
        assert first.ignored_columns == ("owner", "note")
        assert first.text.endswith("columns that nothing reads: owner, note")

    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_line_ends_byte_order_mark_blanks_and_trailing_lines(self, path: Path, ending: str, mark: str):
        plain = read_population(write(path, HEADER, *ROWS)).digest()
        spaced = [row.replace(",", " , ") for row in ROWS]
        same = read_population(write(path, mark + HEADER.replace(",", ", "), *spaced, "", "", ending=ending))
        assert same.digest() == plain

    def test_in_parts(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        whole = read_population(write(path, HEADER, *ROWS)).digest()
        monkeypatch.setattr(population_file, "_CHUNK", 2)
        assert read_population(path).digest() == whole
        with pytest.raises(ConfigError, match="row 5, column flops: 'x'"):
            read_population(write(path, HEADER, *ROWS, "1w1g,1,64,x,3e10,4e7,0"))


def with_cell(column: str, value: str, row: str = ROWS[1]) -> str:
    cells = row.split(",")
    cells[HEADER.split(",").index(column)] = value
    return ",".join(cells)


class TestErrors:
    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [
            ("flops", "many", "'many' is not a number; mend it"),
            ("flops", "1_000", "'1_000' is not a number"),
            ("flops", "", "is empty; fill it in or remove the row"),
            ("flops", " ", "is empty"),
            ("flops", "nan", "'nan' must be finite"),
            ("input_bytes", "inf", "'inf' must be finite"),
            ("memory_bytes", "-inf", "'-inf' must be finite"),
            ("memory_bytes", "1e999", "'1e999' must be finite"),
            ("weight_traffic_bytes", "-5", "'-5' must be at least 0; mend it or remove the row"),
            ("batch_size", "0", "'0' must be at least 1"),
            ("num_cnodes", "0", "'0' must be at least 1"),
            ("num_cnodes", "2.5", "'2.5' must be a whole number"),
            ("architecture", "PS", "'PS' is no known architecture; choose one of: 1w1g, 1wng, ps_worker"),
            ("architecture", "", "'' is no known architecture"),
        ],
    )
    def test_cell(self, path: Path, column: str, value: str, message: str):
        write(path, HEADER, ROWS[0], with_cell(column, value), ROWS[2])
        with pytest.raises(ConfigError) as caught:
            read_population(path)
        assert str(caught.value).startswith(f"{path}, row 3, column {column}: ")
        assert message in str(caught.value) and "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("architecture", "num_cnodes", "limit"),
        [("1w1g", 2, 1), ("1wng", 9, 8), ("allreduce_local", 16, 8), ("pearl", 9, 8)],
    )
    def test_too_many_local_replicas(self, path: Path, architecture: str, num_cnodes: int, limit: int):
        row = with_cell("num_cnodes", str(num_cnodes), with_cell("architecture", architecture))
        message = (
            f"row 2, column num_cnodes: {num_cnodes} replicas on one server, {architecture} has at most {limit}; mend"
        )
        with pytest.raises(ConfigError, match=message):
            read_population(write(path, HEADER, row))

    @pytest.mark.parametrize("row", ["1w1g,1,1,0,0,0,5", "ps_worker,2,1,0,0,0,0"])
    def test_step_without_time(self, path: Path, row: str):
        with pytest.raises(ConfigError, match="row 2, column flops: a step that does nothing takes no time"):
            read_population(write(path, HEADER, row))
        assert read_population(write(path, HEADER, "ps_worker,2,1,0,0,0,5")).size == 1

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ([HEADER.replace(",flops", ""), ROWS[0]], "row 1: no column flops; the file has: architecture, num_cnodes"),
            ([HEADER + ",flops", ROWS[0] + ",1"], "row 1: column 'flops' appears twice; rename or remove one"),
            ([HEADER.replace(",", ";"), ROWS[0].replace(",", ";")], "row 1: cells are separated by semicolons"),
            ([HEADER.replace(",", "\t"), ROWS[0].replace(",", "\t")], "row 1: cells are separated by tabs"),
            ([HEADER], "a header but no jobs; add at least one row"),
            ([HEADER, "", ""], "a header but no jobs"),
            ([HEADER, ROWS[0], "", ROWS[1]], "row 3: blank; remove it"),
            ([HEADER, ROWS[0], ROWS[1] + ",7"], "row 3: has 8 cells, the header has 7; mend or remove the row"),
            ([HEADER, "ps_worker,3"], "row 2: has 2 cells, the header has 7"),
            ([HEADER, 'ps_worker,"3'], "row 2: not valid CSV"),
            ([ROWS[0], ROWS[1]], "row 1: no column architecture, num_cnodes"),
        ],
    )
    def test_form(self, path: Path, lines: list[str], message: str):
        with pytest.raises(ConfigError) as caught:
            read_population(write(path, *lines))
        assert str(path) in str(caught.value) and message in str(caught.value)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty; it needs a header line"),
            (b" \r\n\n", "empty; it needs a header line"),
            (b"PK\x03\x04\x00\x00", "not UTF-8 text; save it as a comma-separated UTF-8 file"),
            (HEADER.encode("utf-16"), "not UTF-8 text"),
            (HEADER.encode() + b"\n\xff\xfe\xfd", "not UTF-8 text"),
        ],
    )
    def test_no_text(self, path: Path, content: bytes, message: str):
        path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            read_population(path)
        assert str(caught.value).startswith(f"{path}: {message}")

    def test_late_binary_content(self, path: Path):
        path.write_bytes((HEADER + "\n" + (ROWS[1] + "\n") * 500).encode() + b"ps_worker,\x00\x01,\n")
        with pytest.raises(ConfigError, match="row 502"):
            read_population(path)

    def test_place(self, tmp_path: Path):
        with pytest.raises(ConfigError, match="no such file; check the path"):
            read_population(tmp_path / "none.csv")
        with pytest.raises(ConfigError, match="is a folder; give the path of a CSV file"):
            read_population(tmp_path)
        population = generate_population(load_population_config(), 2, np.random.default_rng(0))
        with pytest.raises(ConfigError, match="cannot be written"):
            write_population(tmp_path / "none" / "jobs.csv", population)


def test_partly_unknown_weights_are_not_written(path: Path) -> None:
    workloads = PaiWorkloads(np.zeros(2, np.int8), *(np.ones(2) for _ in range(6)), np.array([1.0, np.nan]), np.ones(2))
    with pytest.raises(ConfigError, match="the weights of job 1 are unknown, others are known; leave out all or none"):
        write_population(path, Population(workloads, Provenance("file", "x", "x")))
    assert not path.exists()


def test_synthetic_population_round_trip(path: Path) -> None:
    population = generate_population(load_population_config(), 300, np.random.default_rng(0))
    write_population(path, population)
    copy = read_population(path)
    assert copy.digest() == population.digest()
    assert copy.provenance.kind == "file" and copy.provenance.ignored_columns == ()


amounts = st.just(0.0) | st.floats(1e-60, 1e60)


@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(ARCHITECTURES), st.integers(1, 8), amounts, st.floats(1e-3, 1e60)), min_size=1
    ),
    has_weights=st.booleans(),
)
def test_any_population_round_trip(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[str, int, float, float]], has_weights: bool
) -> None:
    architecture, n, amount, flops = (np.array(column) for column in zip(*jobs, strict=True))
    workloads = PaiWorkloads(
        architecture=architecture,
        num_cnodes=np.where(architecture == "1w1g", 1, n),
        batch_size=np.maximum(amount, 1),
        flops=flops,
        memory_bytes=amount,
        input_bytes=amount / 3,
        weight_traffic_bytes=amount / 7,
        **({"dense_weight_bytes": amount / 9, "embedding_weight_bytes": amount / 11} if has_weights else {}),
    )
    population = Population(workloads, Provenance("file", "x", "x"))
    path = tmp_path_factory.mktemp("population") / "jobs.csv"
    write_population(path, population)
    copy = read_population(path)
    assert copy.digest() == population.digest() and copy.has_weights == has_weights


@given(content=st.binary(max_size=200))
def test_any_bytes_end_in_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "jobs.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="jobs.csv"):
        read_population(path)


@given(text=st.lists(st.text(alphabet='1w,g"e.-\n\r;pn', max_size=12), max_size=8))
def test_any_rows_are_read_or_refused_clearly(tmp_path_factory: pytest.TempPathFactory, text: list[str]) -> None:
    path = tmp_path_factory.mktemp("rows") / "jobs.csv"
    path.write_text(HEADER + "\n" + ",".join(text) + "\n", newline="")
    try:
        population = read_population(path)
    except ConfigError as error:
        assert str(path) in str(error)
    else:
        assert population.size >= 1


@pytest.mark.parametrize("cell", ["1e300", "1e-300"])
def test_sizes_that_would_overflow(path: Path, cell: str):
    write(path, HEADER, f"ps_worker,16,128,{cell},1e10,0,3e8")
    with pytest.raises(ConfigError, match=r"row 2, column flops: '1e-?300' is no sensible size.*check the unit"):
        read_population(path)
