"""The page `docs/paper.md`: claim by claim what was published, what we found, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.paper.claims import MARKS, Check, Claim, Claims
from agents.paper.effects import MIN_SEEDS, Assessed, Finding, Results, assess
from agents.paper.figures import draw_claim
from agents.paper.record import Record, read_records
from dl2env.errors import ConfigError
from dl2env.evaluation.statistics import Interval
from dl2env.evaluation.whole_file import write_whole

_INTRODUCTION = """# The claims of the DL2 paper

What Peng et al., *DL2* (arXiv 1909.06040) claim, as we understand the paper, and what the same experiments give here.
Their workloads and cluster are not public, so JCTs cannot be compared, only their ratios. The table of claims with
the published values is `data/paper/claims.toml`. Each experiment is a file of `conf/experiment/paper`, run alone by
`python scripts/train.py experiment=paper/<name>`; with several seeds, and for this page:

```sh
python scripts/reproduce_paper.py                               # everything; again to go on with a stopped run
python scripts/reproduce_paper.py 'experiments=[drf,window_*]'  # some claims or experiments
python scripts/reproduce_paper.py build_only=true               # only the page, from data/paper/results
```

## How it is judged

Each claim is one or more statements about a measure, such as the reduction of mean JCT. Means are over held-out test
workloads, the same for all schedulers of an experiment, and over training seeds; intervals are 95 % bootstrap
intervals over both. The verdict follows by rule:

- **agrees**: the whole interval lies on the claimed side of the statement's bound; **disagrees**: on the other side;
- **cannot tell**: the interval includes the bound, or there are fewer than {min_seeds} training seeds;
- a claim disagrees if one of its statements does, and agrees if all of them do.

*Smaller*, *as published* and *larger* compare the measure with the published value, which then lies above, inside or
below the interval. So a claim can agree in its direction and still be smaller than published. Intervals from a
handful of seeds are rather too narrow than too wide.

Marks of published values:

{marks}"""

FIGURES = "figures"
_PREFIX = "paper-"
_COMMAND = "scripts/reproduce_paper.py"


@dataclass(frozen=True)
class Page:
    """What `build_page` wrote.

    Attributes:
        path: The page.
        figures: Its figures.
        assessed: The claims, judged.
        notices: What the user should know.
    """

    path: Path
    figures: tuple[Path, ...]
    assessed: tuple[Assessed, ...]
    notices: tuple[str, ...]


def build_page(claims: Claims, records: Path, path: Path, code_digest: str) -> Page:
    """Reads the results, draws the figures and writes the page.

    Args:
        claims: The table of claims.
        records: Folder of the results.
        path: The page; its figures go to `figures/` beside it, and those that it does not show are removed.
        code_digest: Of the present code, to say which results are older.

    Raises:
        Dl2EnvError: A result is damaged, or a file cannot be written.
    """
    results = Results(read_records(records))
    assessed = assess([claim for claim in claims.claims if not claim.not_covered], results)
    folder = path.parent / FIGURES
    figures = {}
    for item in assessed:
        figure = draw_claim(item.claim, results, folder / f"{_PREFIX}{item.claim.id}.png")
        if figure is not None:
            figures[item.claim.id] = figure
    for old in folder.glob(f"{_PREFIX}*.png"):
        if old not in figures.values():
            old.unlink()
    every = {item.claim.id: item for item in assessed}
    text = "\n".join(_lines(claims, every, results, figures, path.parent))
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another out") from error
    return Page(path, tuple(figures.values()), tuple(assessed), tuple(_notices(results, claims, code_digest)))


def _notices(results: Results, claims: Claims, code_digest: str) -> list[str]:
    records = [record for found in results.records.values() for record in found]
    notices = []
    unknown = sorted(set(results.records) - set(claims.experiments))
    if unknown:
        notices.append(f"results of experiments of no claim are not shown: {', '.join(unknown)}")
    older = [f"{record.experiment}, seed {record.seed}" for record in records if record.code_digest != code_digest]
    if older:
        notices.append(
            f"{len(older)} of {len(records)} results are of other code than this; run them again with replace=true "
            "after removing them, if the change matters"
        )
    return notices


def _lines(
    claims: Claims, assessed: Mapping[str, Assessed], results: Results, figures: Mapping[str, Path], folder: Path
) -> list[str]:
    marks = "\n".join(f"- *{mark}*: {meaning}" for mark, meaning in MARKS.items())
    lines = [
        *_INTRODUCTION.format(min_seeds=MIN_SEEDS, marks=marks).splitlines(),
        "",
        *_budget_lines(results),
        "## Summary",
        "",
        "| | claim | published | here | verdict |",
        "|---|---|---|---|---|",
    ]
    for claim in claims.claims:
        item = assessed.get(claim.id)
        lines.append(_summary_row(claim, item))
    for claim in claims.claims:
        lines += ["", *_section(claim, assessed.get(claim.id), results, figures.get(claim.id), folder)]
    return lines


def _budget_lines(results: Results) -> list[str]:
    records = [record for found in results.records.values() for record in found]
    if not records:
        return ["Nothing has been run yet: the page holds the claims and no results.", ""]
    seeds = sorted({record.seed for record in records})
    scales = sorted({record.scale for record in records})
    updates = [record.num_updates for record in records if record.num_updates]
    workloads = sorted({record.num_workloads for record in records})
    cpu_min = sum(record.timing.get("cpu_s", 0.0) for record in records) / 60.0
    text = (
        f"The results here: {len(records)} runs, seeds {', '.join(map(str, seeds))}, "
        f"{' or '.join(map(str, workloads))} test workloads each, {cpu_min:.0f} CPU-minutes in all. "
    )
    if updates:
        text += f"Fine-tuning took {min(updates)} to {max(updates)} updates"
        if scales != [1.0]:
            text += f" (`scale={', '.join(f'{scale:g}' for scale in scales)}`: that share of the budgets in the files)"
        text += ". "
    text += f"Versions: {_versions(records)}."
    return [text, ""]


def _versions(records: Sequence[Record]) -> str:
    named: dict[str, set[str]] = {}
    for record in records:
        for package, version in record.versions.items():
            named.setdefault(package, set()).add(version)
    return ", ".join(f"{package} {' and '.join(sorted(named[package]))}" for package in sorted(named))


def _summary_row(claim: Claim, item: Assessed | None) -> str:
    link = f"[{claim.title}](#{_anchor(claim)})"
    number = "" if claim.number is None else str(claim.number)
    if item is None:
        return _row([number, link, "", "", "not covered"])
    first = item.findings[0]
    return _row([number, link, _published(first.check), _value(first.check, first.effect), _verdict(item)])


def _verdict(item: Assessed) -> str:
    if item.verdict != "agrees":
        return item.verdict
    sizes = {finding.size for finding in item.findings if finding.size}
    return "agrees, smaller" if sizes == {"smaller"} else "agrees"


def _anchor(claim: Claim) -> str:
    """The anchor that Markdown pages give the section's heading."""
    kept = "".join(c for c in _heading(claim).lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _heading(claim: Claim) -> str:
    return claim.title if claim.number is None else f"{claim.number} {claim.title}"


def _section(claim: Claim, item: Assessed | None, results: Results, figure: Path | None, folder: Path) -> list[str]:
    lines = [f"## {_heading(claim)}", "", claim.says]
    if item is None:
        return [*lines, "", f"**Not covered.** {claim.not_covered}"]
    if claim.note:
        lines += ["", claim.note]
    lines += ["", f"Experiments: {', '.join(f'`paper/{name}`' for name in claim.experiments)}."]
    missing = [name for name in claim.experiments if not results.records.get(name)]
    if missing:
        what = "Nothing of it has" if len(missing) == len(claim.experiments) else f"{', '.join(missing)} have not"
        lines += ["", f"**{what} been run yet**: `python {_COMMAND} 'experiments=[{','.join(missing)}]'`."]
    if figure is not None:
        lines += ["", f"![{claim.title}]({figure.relative_to(folder).as_posix()})"]
    lines += ["", "| statement | published | here | bound | verdict |", "|---|---|---|---|---|"]
    lines += [_check_row(finding) for finding in item.findings]
    rows = [
        (label, reference, mean) for label, reference in claim.picture.labelled if (mean := results.mean(reference))
    ]
    if rows:
        first = f"scheduler, {claim.picture.x}" if claim.picture.sweep else ""
        lines += ["", _row([first, "mean JCT in intervals", "from", "runs"]), "|---|---|---|---|"]
        for label, reference, mean in rows:
            count = len(results.records[reference.partition("/")[0]])
            lines.append(_row([label, _with_bounds(mean, 1.0, 2), f"`{reference}`", str(count)]))
    return lines


def _check_row(finding: Finding) -> str:
    check = finding.check
    verdict = f"{finding.verdict}, {finding.size}" if finding.size else finding.verdict
    return _row([check.says, _published(check), _value(check, finding.effect), _bound(check), verdict])


_UNITS: dict[str, tuple[float, int, str]] = {"latency": (1.0, 2, " ms"), "difference": (100.0, 1, " points")}


def _unit(check: Check) -> tuple[float, int, str]:
    return _UNITS.get(check.measure, (100.0, 1, " %"))


def _published(check: Check) -> str:
    if check.published is None:
        return ""
    scale, digits, unit = _unit(check)
    return f"{scale * check.published:.{digits}f}{unit} ({check.mark})"


def _value(check: Check, effect: Interval | None) -> str:
    return "" if effect is None else _with_bounds(effect, *_unit(check))


def _bound(check: Check) -> str:
    scale, _, unit = _unit(check)
    if check.above is not None:
        return f"above {scale * check.above:g}{unit}"
    return "" if check.below is None else f"below {scale * check.below:g}{unit}"


def _with_bounds(interval: Interval, scale: float, digits: int, unit: str = "") -> str:
    if math.isnan(interval.estimate):
        return "not defined"
    value, low, high = (f"{scale * x:.{digits}f}" for x in interval)
    return f"{value}{unit}" + ("" if math.isnan(interval.low) else f" [{low}, {high}]")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
