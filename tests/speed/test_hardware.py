from __future__ import annotations

import subprocess
import sys

import pytest

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.speed.hardware import Efficiency, Processor, load_hardware, load_variation


def test_base_hardware_has_the_values_of_the_pai_model():
    base = load_hardware("pai-base")
    assert (base.ethernet_bytes_per_s, base.pcie_bytes_per_s, base.nvlink_bytes_per_s) == (25e9 / 8, 10e9, 50e9)
    assert base.gpu("pai-base") == Processor("pai-base", 11e12, 1e12)
    assert base.efficiency == Efficiency(0.7, 0.7, 0.7, 0.7, 0.7)
    assert base.effective_ethernet == pytest.approx(0.7 * 3.125e9)


def test_dl2_testbed_has_50_gigabit_network_cards():
    assert load_hardware("dl2-testbed").ethernet_bytes_per_s == 50e9 / 8
    assert load_hardware("dl2-testbed").gpu("gtx-1080ti").peak_flops == pytest.approx(3584 * 2 * 1.582e9, rel=1e-3)


def test_variation_holds_the_base_ethernet():
    grid = load_variation()
    assert load_hardware("pai-base").ethernet_bytes_per_s in grid["ethernet_bytes_per_s"]
    assert set(grid) == {"peak_flops", "memory_bytes_per_s", "ethernet_bytes_per_s", "pcie_bytes_per_s"}


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownNameError, match="'pai-bse'.*pai-base"):
        load_hardware("pai-bse")
    with pytest.raises(UnknownNameError, match="'h100'.*gtx-1080ti"):
        load_hardware("pai-base").gpu("h100")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gpu.x]\npeak_flops = 1.0\n", r"gpu\.x\.memory_bytes_per_s=None must be a positive number"),
        ("[gpu.x]\npeak_flops = -1\nmemory_bytes_per_s = 1\n", r"gpu\.x\.peak_flops=-1"),
        ("[gpu.x]\npeak_flops = 1\nmemory_bytes_per_s = 1\nspeed = 2\n", r"gpu\.x\.speed: unknown key"),
        ("gpu = [", "not valid TOML"),
        ("", r"no \[gpu\.NAME\] table"),
    ],
)
def test_bad_files_are_named_with_the_key_at_fault(tmp_path, text, message):
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_hardware("x", path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.toml: cannot be read"):
        load_hardware("x", tmp_path / "nothing.toml")


@pytest.mark.parametrize("value", [0.0, -0.1, 1.2, float("nan")])
def test_efficiency_must_be_a_share(value):
    with pytest.raises(ConfigError, match=r"Efficiency\.pcie"):
        Efficiency(pcie=value)


def test_importing_the_package_does_not_import_numba():
    code = "import sys, dl2env.speed, dl2env.speed.analytic, dl2env.speed.measured; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
