"""The HTML page in a real browser, where one is installed: scripts run, tables sort and filter, charts are drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dl2env.evaluation.leaderboard.board import build_board
from dl2env.evaluation.leaderboard.html import board_html
from tests.evaluation.leaderboard.made_up import entry, limits

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; install it to test the page's script"),
]

HOOK = """<script>
window.addEventListener("error", function (event) { document.title = "ERROR " + event.message; });
</script>"""

# What a reader does, and what is seen after each step.
STEPS = """<script>
(function () {
  var seen = {};
  function column(id, k) {
    return Array.from(document.querySelectorAll("#" + id + " tbody tr")).filter(function (row) { return !row.hidden; })
      .map(function (row) { return row.cells[k].textContent.trim(); });
  }
  function click(id, k) { document.querySelectorAll("#" + id + " thead th")[k].querySelector("button").click(); }
  function limits() {
    return Array.from(document.querySelectorAll("#intervals line.limit")).map(function (line) {
      return line.getAttribute("class") + " " + Number(line.getAttribute("x1")).toFixed(0); });
  }
  seen.first = column("overall", 0);
  click("overall", 0); seen.byName = column("overall", 0);
  click("overall", 0); seen.byNameDown = column("overall", 0);
  click("overall", 1); seen.ranks = column("overall", 1);
  click("overall", 3); seen.byRatio = column("overall", 3).map(Number);
  click("overall", 3); seen.byRatioDown = column("overall", 3).map(Number);
  click("overall", 9); seen.use = column("overall", 9).map(parseFloat);
  seen.sorted = Array.from(document.querySelectorAll("#overall [aria-sort]")).map(function (th) {
    return th.textContent + " " + th.getAttribute("aria-sort"); });
  seen.limitsOfAll = limits();
  if (document.getElementById("left")) { click("left", 1); seen.left = column("left", 0); }
  var search = document.querySelector('[data-controls="overall"] [data-search]');
  search.value = "FAST"; search.dispatchEvent(new Event("input", { bubbles: true }));
  seen.found = column("overall", 0);
  seen.count = document.querySelector('[data-controls="overall"] output').textContent;
  seen.views = Array.from(document.getElementById("view").options).map(function (o) { return o.value; });
  seen.cdfAtFirst = document.getElementById("cdf-figure").hidden;
  seen.cells = column("cells", 1);
  var view = document.getElementById("view");
  view.value = "bb-v1"; view.dispatchEvent(new Event("input", { bubbles: true }));
  seen.filtered = column("cells", 1);
  seen.curves = document.querySelectorAll("#cdf polyline").length;
  document.querySelector("#cdf-legend label[data-label='drf'] input").click();
  seen.fewer = document.querySelectorAll("#cdf polyline").length;
  seen.points = Array.from(document.querySelectorAll("#intervals g")).map(function (g) {
    return g.querySelector("title").textContent.split(":")[0] + " " + g.getAttribute("class"); });
  seen.circles = Array.from(document.querySelectorAll("#intervals circle")).map(function (circle) {
    return Number(circle.getAttribute("cx")); });
  seen.limits = limits();
  var texts = Array.from(document.querySelectorAll("#intervals text.limit-name"));
  seen.names = texts.map(function (text) { return text.textContent; });
  var boxes = texts.map(function (text) { return text.getBoundingClientRect(); });
  seen.apart = boxes.length === 2 && boxes[0].right <= boxes[1].left;
  seen.hint = document.getElementById("limits-hint").hidden;
  seen.wins = [document.querySelectorAll("#wins tbody tr").length, document.querySelectorAll("#wins thead th").length];
  seen.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  seen.hash = location.hash;
  var out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen);
  document.body.append(out);
})();
</script>"""


def shown(html: str, folder: Path, width: int = 1200) -> dict[str, Any]:
    page = folder / "page.html"
    page.write_text(html.replace("<head>", "<head>" + HOOK).replace("</body>", STEPS + "</body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", text)
    assert title is not None and not title[1].startswith("ERROR"), title[1]
    match = re.search(r'<pre id="seen">(.*?)</pre>', text, re.DOTALL)
    assert match is not None
    seen: dict[str, Any] = json.loads(unescape(match[1]))
    return seen


def test_a_reader_sorts_filters_and_looks_at_charts(tmp_path: Path) -> None:
    factors = {"drf": 1.0, "fast": 0.5, "slow-10": 2.0, "slow-9": 3.0, "srpt": 0.48}
    made = [
        entry(name, scenario, factor, is_oracle=name == "srpt")
        for scenario in ("a-v1", "bb-v1")
        for name, factor in factors.items()
    ]
    found = [limits("a-v1", num_searched=4), limits("bb-v1", search=0.41)]
    html = board_html(build_board(made, limits=found))
    seen = shown(html, tmp_path)
    assert seen["first"] == ["srpt †", "fast", "drf", "slow-10", "slow-9"]
    assert seen["byName"] == ["drf", "fast", "slow-9", "slow-10", "srpt †"]
    assert seen["byNameDown"] == seen["byName"][::-1]
    assert seen["ranks"] == ["1", "2", "3", "4", "–"]  # the oracle has none, and comes last
    assert seen["byRatio"] == sorted(seen["byRatio"]) and seen["byRatioDown"] == seen["byRatio"][::-1]
    assert seen["use"] == sorted(seen["use"], reverse=True) and seen["sorted"] == ["GPU use descending"]
    assert seen["found"] == ["fast"] and seen["count"] == "1 of 5 rows"
    assert seen["views"] == ["all scenarios", "a-v1", "bb-v1"] and seen["cdfAtFirst"]
    assert len(seen["cells"]) == 10 and seen["filtered"] == ["bb-v1"] * 5
    assert (seen["curves"], seen["fewer"]) == (5, 4)
    assert seen["points"] == ["srpt † better", "fast better", "drf tied", "slow-10 worse", "slow-9 worse"]
    assert seen["circles"] == sorted(seen["circles"])
    assert seen["wins"] == [5, 5] and seen["hash"] == "#show=bb-v1" and not seen["wide"]
    # Best over search is smallest where the search came least near: the first of the four rows.
    assert set(seen["left"]) == {"a-v1", "all 2 scenarios", "all 2 scenarios, one scheduler", "bb-v1"}
    assert seen["left"][0] == "a-v1"
    for lines in (seen["limits"], seen["limitsOfAll"]):
        (bound, bound_x), (search, search_x) = (line.rsplit(" ", 1) for line in lines)
        assert (bound, search) == ("limit bound", "limit search")
        assert float(bound_x) < float(search_x) < seen["circles"][1]
    assert seen["names"] == ["bound", "search"] and seen["apart"] and not seen["hint"]
    assert not shown(html, tmp_path, width=500)["wide"]


def test_a_single_workload_and_no_reference_do_not_break_the_script(tmp_path: Path) -> None:
    made = [entry(name, scenario, num_workloads=1) for scenario in ("a-v1", "bb-v1") for name in ("drf", "b")]
    seen = shown(board_html(build_board(made)), tmp_path)
    assert seen["points"] == ["b tied", "drf tied"] and seen["limits"] == [] and seen["hint"]
