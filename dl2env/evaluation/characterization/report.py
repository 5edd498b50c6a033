"""What a characterization leaves: `summary.json`, plots as PNG and one HTML page that needs no network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2env.config_dict import config_to_dict
from dl2env.evaluation.characterization import tables
from dl2env.evaluation.characterization.findings import HEADLINES, LABELS, Characterization
from dl2env.evaluation.characterization.plots import PLOTS, write_plots
from dl2env.evaluation.html_page import render_page, write_page
from dl2env.evaluation.report import package_versions, write_summary
from dl2env.speed.what_if import QUANTITIES, base_values, most_sensitive

SCHEMA, SCHEMA_VERSION = "dl2env-characterization", 1
TITLE = "Characterization of a training workload"
WORDING_NOTE = (
    "Published values are of the Alibaba-PAI characterization (Wang et al., IISWC 2019). Those marked abstract are in "
    "its abstract; second-hand ones are as others report the paper; recalled ones are as we understand it, unchecked; "
    "derived ones are our arithmetic."
)


def assumptions(found: Characterization) -> list[str]:
    """What the findings rest on, one sentence each."""
    model, efficiency = found.model, found.model.hardware.efficiency
    shares = {"GPU compute": efficiency.compute, "GPU memory": efficiency.memory, "PCIe": efficiency.pcie}
    shares |= {"Ethernet": efficiency.ethernet, "NVLink": efficiency.nvlink}
    capacities = {QUANTITIES[name].label: QUANTITIES[name].show(value) for name, value in base_values(model).items()}
    overlap = {
        "none": "No overlap: a step is the sum of input, computation and weights.",
        "ideal": "Ideal overlap: a step is the longest of input, computation and weights.",
    }[model.overlap]
    sharing = (
        "Replicas on one server do not share PCIe."
        if model.pcie_group == 0
        else f"Up to {model.pcie_group} replicas of a job on one server share PCIe for their input, "
        f"{'also' if model.cluster_shares_pcie else 'but not'} on AllReduce-Cluster."
    )
    hardware = ", ".join(f"{name} {value} at {100 * shares[name]:g} %" for name, value in capacities.items())
    lines = [
        f"Jobs: {found.population.provenance.text}.",
        f"Hardware {model.hardware.name} with GPU {model.gpu}: {hardware} efficiency.",
        overlap,
        sharing,
        "Computation is FLOPs over peak rate plus bytes of memory-bound kernels over memory bandwidth, a sum.",
        "Weight traffic is the same on every architecture; only the media it crosses differ.",
        "A port keeps batch and features per cNode; local architectures take at most 8 cNodes, the others are lost.",
        "Not modelled: parameter servers as a bottleneck, stragglers, latency, Ethernet shared by the GPUs of a "
        "server, pre-processing on CPUs, storage.",
    ]
    if found.population.provenance.kind == "synthetic":
        lines.insert(
            1,
            "A synthetic population was calibrated so that the published figures hold: that it meets them is no "
            "evidence for them. It shows whether they are compatible with each other and with the formulas.",
        )
    return lines


def verdict(found: Characterization) -> str:
    """How many published figures the population meets, and which it does not."""
    compared = [result for result in found.figures.values() if result.is_met is not None]
    if not compared:
        return "The population has none of the jobs that the published figures are about."
    count = f"{len(compared) - len(found.missed)} of {len(compared)} published figures"
    if found.population.provenance.kind == "file":  # jobs of the user's are what they are: there is nothing to meet
        text = f"{count} hold for these jobs too, within our tolerances."
        different = [result.figure.key for result in found.missed]
        return f"{text} Other here than published: {', '.join(different)}." if different else text
    text = f"{count} are met within our tolerances"
    if not found.missed:
        return f"{text}."
    text += "; this population does not meet all at once."
    by_target = {
        is_target: [r.figure.key for r in found.missed if r.figure.target is is_target] for is_target in (True, False)
    }
    if by_target[True]:
        text += f" Not met: {', '.join(by_target[True])}."
    if by_target[False]:
        text += f" Nor, other readings of a sentence or consequences of other figures: {', '.join(by_target[False])}."
    return text


def headlines(found: Characterization) -> list[str]:
    """One line on each figure that the published abstract names."""
    lines = []
    for key in HEADLINES:
        it = _headline(found, key)
        lines.append(f"{it['text']}: {it['ours']} ({it['source']}: {it['published']}, difference {it['difference']})")
    return lines


def build_summary(found: Characterization, command: Sequence[str] | None = None) -> dict[str, Any]:
    """All findings as plain values: shares as fractions, speedups as ratios, None for what the population lacks.

    Args:
        found: Findings.
        command: Command line that made them.
    """
    figures = {key: _figure(found, key) for key in found.figures}
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **{key: figures[key]["ours"] for key in HEADLINES},
        "communication_share_job": figures["communication_share_job"]["ours"],
        "verdict": verdict(found),
        "meets_all_published_figures": not found.missed,
        "not_met": [result.figure.key for result in found.missed],
        "figures": figures,
        "classes": {
            view.name: {
                **{key: value for key, value in dataclasses.asdict(view).items() if key != "name"},
                "communication_share": {by: view.communication_share(by) for by in view.shares},
            }
            for view in found.classes
        },
        "ports": [
            {
                "source": result.source,
                "target": result.target,
                "overlap": result.overlap,
                "gain_share_per_cnode": result.single_share,
                "gain_share_throughput": result.throughput_share,
                "mean_speedup_per_cnode": float(result.gain.single_cnode.mean()),
                "mean_speedup_throughput": float(result.gain.throughput.mean()),
                "max_speedup_per_cnode": float(result.gain.single_cnode.max()),
            }
            for result in found.ports
        ],
        "hardware_curves": {
            name: {
                curve.quantity: {
                    "capacity_over_base": curve.capacity_ratios.tolist(),
                    "speedup": curve.speedups.tolist(),
                }
                for curve in curves
            }
            for name, curves in found.curves.items()
        },
        "hardware_product": [
            {"hardware": dict(variation.values), "mean_speedup": dict(means)} for variation, means in found.product
        ],
        "sensitivity": {
            name: {"speedups": dict(speedups), "most_sensitive": most_sensitive(speedups)}
            for name, speedups in found.sensitivities.items()
        },
        "cases": {
            case.label: {
                **{key: case.figures.get(key) for key in HEADLINES},
                "allreduce_local_not_gaining_cnode_share": case.figures.get("allreduce_local_not_gaining_cnode_share"),
                "communication_bound_share_cnode": case.bound_share,
                "communication_leads": case.communication_leads,
                "most_ps_worker_jobs_gain": case.most_gain,
                "ps_worker_most_sensitive": case.leading_resource,
            }
            for case in found.cases
        },
        "assumptions": assumptions(found),
        "population": {
            **dataclasses.asdict(found.population.provenance),
            "num_jobs": found.population.size,
            "num_cnodes": float(found.workloads.num_cnodes.sum()),
            "digest": found.population.digest(),
        },
        "hardware": config_to_dict(found.model.hardware),
        "settings": config_to_dict(found.settings),
        "versions": package_versions(),
        "command": None if command is None else list(command),
        "timing": {"breakdown_s": found.breakdown_s, "jobs_per_s": found.population.size / found.breakdown_s},
    }


def _figure(found: Characterization, key: str) -> dict[str, Any]:
    result = found.figures[key]
    figure = result.figure
    return {
        "ours": result.ours,
        "published": figure.value,
        "difference": result.difference,
        "is_met": result.is_met,
        "relation": figure.relation,
        "tolerance": None if math.isinf(figure.tolerance) else figure.tolerance,
        "mark": figure.mark,
        "wording": tables.source(figure),
        "weighting": figure.weighting,
        "text": figure.text,
        "is_target": figure.target,
        "note": figure.note,
        "reason": figure.reason,
    }


def write_report(found: Characterization, folder: Path, command: Sequence[str] | None = None) -> dict[str, Path]:
    """Writes plots, `report.html` and `summary.json`, and returns their paths by name, the summary last.

    Raises:
        ConfigError: A file cannot be written, or matplotlib or jinja2 is missing.
    """
    paths = write_plots(found, folder)
    paths["report"] = write_page(folder / "report.html", render_report(found, paths, command))
    paths["summary"] = write_summary(folder / "summary.json", build_summary(found, command))
    return paths


def render_report(found: Characterization, plots: Mapping[str, Path], command: Sequence[str] | None = None) -> str:
    """The HTML page.

    Args:
        found: Findings.
        plots: PNG files by name, as `write_plots` returns them.
        command: Command line that made them.

    Raises:
        ConfigError: jinja2 is missing, or a plot cannot be read.
    """
    provenance = found.population.provenance
    return render_page(
        "characterization.html",
        title=TITLE,
        subtitle=provenance.text,
        headlines=[_headline(found, key) for key in HEADLINES],
        verdict=verdict(found),
        note=WORDING_NOTE,
        assumptions=assumptions(found),
        plots={name: (plots[name], caption) for name, (_, caption) in PLOTS.items() if name in plots},
        tables={table.table_id: table for table in (*tables.all_tables(found), tables.product_table(found))},
        labels=LABELS,
        is_synthetic=provenance.kind == "synthetic",
        command=" ".join(command) if command else "",
        footer=f"dl2env {package_versions()['dl2env']}, breakdown of {found.population.size:,} jobs in "
        f"{1e3 * found.breakdown_s:.1f} ms",
    )


def _headline(found: Characterization, key: str) -> dict[str, str]:
    result = found.figures[key]
    ratio = tables.is_ratio(result.figure)
    cell = tables.verdict(result, found.population.provenance.kind)
    return {
        "text": result.figure.text,
        "ours": tables.show(result.ours, ratio),
        "published": tables.show(result.figure.value, ratio),
        "difference": tables.show(result.difference, ratio, signed=True),
        "verdict": cell.text,
        "css": cell.css,
        "source": tables.source(result.figure),
    }
