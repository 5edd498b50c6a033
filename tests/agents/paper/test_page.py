"""The page and its figures, from made-up results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from agents.paper.claims import read_claims
from agents.paper.page import build_page
from agents.paper.record import RecordError, record_path, write_record
from tests.agents.paper.records import record
from tests.agents.paper.test_claims import GOOD

DRF = [8.0, 10.0, 12.0, 9.0]


def put(folder: Path, *experiments: str, num_seeds: int = 3) -> None:
    """Results in which DL2 is at 60 to 62 % of DRF."""
    for experiment in experiments:
        for seed in range(1, num_seeds + 1):
            own = [value * (0.59 + 0.01 * seed) for value in DRF]
            jct = {"fine-tuned": own, "drf": DRF, "optimus-fitted": DRF, "void": own, "tetris": DRF}
            write_record(folder, record(experiment, seed, jct))


def test_nothing_has_been_run(tmp_path: Path) -> None:
    page = build_page(read_claims(), tmp_path / "results", tmp_path / "paper.md", "c")
    text = page.path.read_text()
    assert page.figures == () and not (tmp_path / "figures").exists()
    assert "Nothing has been run yet" in text and "![" not in text
    assert text.count("**Nothing of it has been run yet**") == 22 and "**Not covered.**" in text
    assert {item.verdict for item in page.assessed} == {"not run"}
    assert "44.1 % (abstract)" in text
    # Every line of the summary leads to a section.
    links = re.findall(r"\]\(#([^)]*)\)", text)
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert len(links) == 23 and set(links) <= anchors


def test_page_with_results(tmp_path: Path) -> None:
    put(tmp_path / "results", "dl2", "rl_only")
    page = build_page(read_claims(), tmp_path / "results", tmp_path / "paper.md", "c")
    text = page.path.read_text()
    verdicts = {item.claim.id: item.verdict for item in page.assessed}
    assert verdicts["drf"] == "agrees" and verdicts["critic"] == "not run" and verdicts["optimus"] == "cannot tell"
    row = next(line for line in text.splitlines() if line.startswith("| 1 |"))
    assert "| 39.0 % [38.0, 40.0] | agrees, smaller |" in row
    assert (
        "| DL2's mean JCT is less than DRF's | 44.1 % (abstract) | 39.0 % [38.0, 40.0] | above 0 % | agrees, smaller |"
        in text
    )
    assert "6 runs, seeds 1, 2, 3, 4 test workloads each" in text and "Fine-tuning took 20 to 20 updates." in text
    assert "| DL2 | 5.95 [" in text and "| `dl2/fine-tuned` | 3 |" in text
    assert "**warmup_only have not been run yet**" in text
    shown = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert {tmp_path / name for name in shown} == set(page.figures) and len(shown) > 5
    for figure in page.figures:
        with Image.open(figure) as image:
            assert figure.stat().st_size < 60_000 and image.size[0] < 1200


def test_same_results_same_page(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        put(tmp_path / name / "results", "dl2")
        page = build_page(read_claims(), tmp_path / name / "results", tmp_path / name / "paper.md", "c")
        made.append([page.path.read_bytes(), *(figure.read_bytes() for figure in page.figures)])
    assert made[0] == made[1]


def test_figures_of_earlier_pages_go(tmp_path: Path) -> None:
    put(tmp_path / "results", "dl2", "no_critic")
    claims = read_claims()
    build_page(claims, tmp_path / "results", tmp_path / "paper.md", "c")
    assert (tmp_path / "figures" / "paper-critic.png").exists()
    (tmp_path / "figures" / "mine.png").write_bytes(b"")
    for experiment in ("dl2", "no_critic"):
        for seed in (1, 2, 3):
            record_path(tmp_path / "results", experiment, seed).unlink()
    build_page(claims, tmp_path / "results", tmp_path / "paper.md", "c")
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["mine.png"]


def test_what_the_user_should_know(tmp_path: Path) -> None:
    write_record(tmp_path / "results", record("one", code_digest="old"))
    write_record(tmp_path / "results", record("stray"))
    (tmp_path / "claims.toml").write_text(GOOD)
    page = build_page(read_claims(tmp_path / "claims.toml"), tmp_path / "results", tmp_path / "paper.md", "c")
    assert page.notices[0] == "results of experiments of no claim are not shown: stray"
    assert page.notices[1].startswith("1 of 2 results are of other code than this")


def test_a_damaged_result_stops_it(tmp_path: Path) -> None:
    put(tmp_path / "results", "dl2")
    record_path(tmp_path / "results", "dl2", 2).write_text("{ half")
    with pytest.raises(RecordError, match=r"dl2/seed-2\.json: not a JSON file"):
        build_page(read_claims(), tmp_path / "results", tmp_path / "paper.md", "c")
    assert not (tmp_path / "paper.md").exists()
