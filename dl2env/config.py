"""Configuration of a simulated cluster: frozen dataclasses, one place for every default and unit.

The classes carry plain values only, so they can be built from Hydra, TOML or code, compared, hashed and stored with a
result. `EnvConfig` is the whole; `replace` from `dataclasses` derives variants.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from dl2env.config_checks import require, require_choice, require_fraction, require_positive
from dl2env.trace_config import TRACE_FORMATS as TRACE_FORMATS
from dl2env.trace_config import CalibratedConfig as CalibratedConfig
from dl2env.trace_config import ShapingConfig as ShapingConfig
from dl2env.trace_config import TraceConfig as TraceConfig
from dl2env.trace_config import TraceFormatName as TraceFormatName

Placement = Literal["least_loaded", "pack", "spread", "least_loaded_single"]
ScalingCost = Literal["none", "hot", "checkpoint"]
Estimate = Literal["exact", "fitted", "noisy"]
TypeEncoding = Literal["one_hot", "features", "both"]


@dataclass(frozen=True)
class ServerGroup:
    """Identical servers.

    Attributes:
        count: Number of servers.
        cpus: CPU units per server that tasks may use.
        gpus: GPU units per server (one unit is one GPU unless the job types say otherwise).
        gpu_type: Key of the GPU in the hardware catalogue; decides the compute time of workers placed here.
    """

    count: int
    cpus: int = 8
    gpus: int = 2
    gpu_type: str = "pai-base"

    def __post_init__(self) -> None:
        require(self.count > 0, f"cluster.servers: count={self.count} of a group must be at least 1")
        for key, units in (("cpus", self.cpus), ("gpus", self.gpus)):
            require(units >= 0, f"cluster.servers: {key}={units} of a group must not be negative")


@dataclass(frozen=True)
class ClusterConfig:
    """Servers and the hardware they share.

    Attributes:
        servers: Groups of identical servers; server ids follow this order.
        hardware: Name of a record in `data/hardware.toml` (link bandwidths and efficiencies).
        link_sharing: How much tasks of other jobs on a server stretch a job's communication there: the stretch is 1 +
            link_sharing * (sum of their link use), a task's link use being the share of time in which it communicates.
            0: isolated links; 1: a neighbour that never pauses takes half of the link; above 1: interference costs
            more than its share of the link.
        pcie_group: Worker GPUs that share one PCIe root: that many replicas of one job on a server multiply its input
            time. 0 turns PCIe sharing off.
    """

    servers: tuple[ServerGroup, ...] = (ServerGroup(48),)
    hardware: str = "pai-base"
    link_sharing: float = 0.0
    pcie_group: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "servers", tuple(self.servers))
        require(len(self.servers) > 0, "cluster.servers: name at least one server group")
        require(0.0 <= self.link_sharing <= 100.0, f"cluster.link_sharing={self.link_sharing} must lie in [0, 100]")
        require(self.pcie_group >= 0, f"cluster.pcie_group={self.pcie_group} must be 0 (off) or positive")

    @property
    def num_servers(self) -> int:
        """Number of servers in all groups."""
        return sum(group.count for group in self.servers)


@dataclass(frozen=True)
class SpeedConfig:
    """How fast jobs train.

    Attributes:
        model: `analytic` (PAI step-time model, placement and contention aware) or `measured` (a (ps, worker) table;
            placement has no effect).
        table: Path of the measured table (JSON); needed by `measured` only.
        clean_table: Drop failed runs of the table and fill its gaps. Off, its values are used as they stand (released
            DL2).
        overlap: `none`: a step is the sum of its parts; `ideal`: the longest part (PAI, ideal overlap).
    """

    model: Literal["analytic", "measured"] = "analytic"
    table: str | None = None
    clean_table: bool = True
    overlap: Literal["none", "ideal"] = "none"

    def __post_init__(self) -> None:
        require_choice("speed.model", self.model, ("analytic", "measured"))
        require(self.model != "measured" or bool(self.table), "speed.table: name the JSON file of the measured table")
        require_choice("speed.overlap", self.overlap, ("none", "ideal"))


@dataclass(frozen=True)
class ArrivalConfig:
    """When jobs arrive.

    Attributes:
        kind: `poisson`, `uniform`, `diurnal`, `bursty` or `batch` (all at time 0).
        rate_per_interval: Mean arrivals per scheduling interval.
        diurnal_swing: Relative amplitude of the daily cycle (`diurnal` only), 0 to below 1.
        diurnal_sd: Coefficient of variation of the slowly varying load around the daily cycle (`diurnal` only).
        burst_factor: Arrival rate inside a burst over that outside (`bursty` only), at least 1.
        burst_share: Share of time that lies in bursts (`bursty` only), between 0 and 1.
        burst_s: Mean length of a burst in seconds (`bursty` only).
    """

    kind: Literal["poisson", "uniform", "diurnal", "bursty", "batch"] = "poisson"
    rate_per_interval: float = 3.0
    diurnal_swing: float = 0.5
    diurnal_sd: float = 0.45
    burst_factor: float = 22.0
    burst_share: float = 0.1
    burst_s: float = 7200.0

    def __post_init__(self) -> None:
        require_choice("workload.arrivals.kind", self.kind, ("poisson", "uniform", "diurnal", "bursty", "batch"))
        require_positive("workload.arrivals.rate_per_interval", self.rate_per_interval)
        require_fraction("workload.arrivals.diurnal_swing", self.diurnal_swing)
        require(
            0.0 <= self.diurnal_sd < math.inf,
            f"workload.arrivals.diurnal_sd={self.diurnal_sd} must be finite and not negative",
        )
        require(
            1.0 <= self.burst_factor < math.inf,
            f"workload.arrivals.burst_factor={self.burst_factor} must be finite and at least 1",
        )
        require(
            0.0 < self.burst_share < 1.0,
            f"workload.arrivals.burst_share={self.burst_share} must lie between 0 and 1",
        )
        require_positive("workload.arrivals.burst_s", self.burst_s)


@dataclass(frozen=True)
class JobSizeConfig:
    """How much work a job has.

    Attributes:
        kind: `published_bins` (heavy tail after the duration bins of the DL2 production trace), `lognormal`, `fixed`.
        mean_s: Mean duration in seconds at the reference allocation. Published mean: 147 min.
        sigma: Shape of `lognormal`.
        reference_workers: Workers of the allocation at which the drawn duration is met, without contention.
        reference_ps: Parameter servers of that allocation.
    """

    kind: Literal["published_bins", "lognormal", "fixed"] = "published_bins"
    mean_s: float = 147 * 60.0
    sigma: float = 1.2
    reference_workers: int = 1
    reference_ps: int = 1

    def __post_init__(self) -> None:
        require_choice("workload.sizes.kind", self.kind, ("published_bins", "lognormal", "fixed"))
        require_positive("workload.sizes.mean_s", self.mean_s)
        require_positive("workload.sizes.sigma", self.sigma)
        workers, num_ps = self.reference_workers, self.reference_ps
        require(workers >= 1, f"workload.sizes.reference_workers={workers} must be at least 1")
        require(num_ps >= 0, f"workload.sizes.reference_ps={num_ps} must not be negative")


@dataclass(frozen=True)
class WorkloadConfig:
    """Which jobs an episode has.

    Attributes:
        job_types: Name of a catalogue in `data/job_types/` (`dl2`, `pai`) or a path to a TOML file of that form.
        include: Names of the types of the world; empty means all of the catalogue.
        active_types: Names of those that jobs are drawn from, with equal probability; empty means all. The others are
            part of the world (observations, speeds, type indices) but no job has them.
        num_jobs: Jobs per episode.
        max_workers: Largest number of workers of a job (1..64).
        max_ps: Largest number of parameter servers of a job (1..64).
        arrivals: When generated jobs arrive.
        sizes: How much work generated jobs have.
        trace: Replay this trace instead of generating jobs.
        calibrated: Draw jobs from parameters fitted to a trace instead, arrivals and sizes included.
    """

    job_types: str = "dl2"
    include: tuple[str, ...] = ()
    active_types: tuple[str, ...] = ()
    num_jobs: int = 60
    max_workers: int = 16
    max_ps: int = 16
    arrivals: ArrivalConfig = field(default_factory=ArrivalConfig)
    sizes: JobSizeConfig = field(default_factory=JobSizeConfig)
    trace: TraceConfig | None = None
    calibrated: CalibratedConfig | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "include", tuple(self.include))
        object.__setattr__(self, "active_types", tuple(self.active_types))
        require(self.num_jobs >= 1, f"workload.num_jobs={self.num_jobs} must be at least 1")
        require(1 <= self.max_workers <= 64, f"workload.max_workers={self.max_workers} must lie in 1..64")
        require(1 <= self.max_ps <= 64, f"workload.max_ps={self.max_ps} must lie in 1..64")
        require(
            self.trace is None or self.calibrated is None,
            "workload: both trace and calibrated are set; a workload is replayed or drawn, leave one out",
        )


@dataclass(frozen=True)
class DynamicsConfig:
    """Rules of the simulated world; each switch is one divergence between the released DL2 simulator and the default.

    Attributes:
        interval_s: Length of a scheduling interval in seconds.
        max_intervals: An episode is truncated after that many intervals.
        placement: Server choice. `least_loaded`: the least-loaded server that can hold the task; `pack`: the most
            loaded one; `spread`: the one with fewest tasks of the job, then least loaded; `least_loaded_single`:
            only the least-loaded server is tried (released DL2).
        scaling_cost: Time lost when a job's allocation changes: `none`, `hot`, `checkpoint`.
        initial_bundle: Give every active job one worker and one parameter server at an interval's start.
        mask_resources: The mask forbids tasks that no server can hold. Off (released DL2), such an action fails. A
            failed or masked action ends the interval like void and is flagged.
        window_skips_capped: Jobs with both counts at their cap leave the window at once (released DL2).
        auto_advance: Skip decision points at which void is the only legal action.
        exact_finish: A job finishes inside an interval; off, at the end of it.
        load_by_sum: A server's load is the plain sum of used units over resources (released DL2), not the sum of used
            fractions.
        speed_noise: Each job's speed in each interval is multiplied by 1 + U(-x, x).
        epoch_error: A job's true epochs are (1 + U(-x, x)) times the estimate that schedulers see.
    """

    interval_s: float = 1200.0
    max_intervals: int = 1000
    placement: Placement = "least_loaded"
    scaling_cost: ScalingCost = "hot"
    initial_bundle: bool = True
    mask_resources: bool = True
    window_skips_capped: bool = False
    auto_advance: bool = True
    exact_finish: bool = True
    load_by_sum: bool = False
    speed_noise: float = 0.0
    epoch_error: float = 0.0

    def __post_init__(self) -> None:
        require_positive("dynamics.interval_s", self.interval_s)
        require(self.max_intervals >= 1, f"dynamics.max_intervals={self.max_intervals} must be at least 1")
        require_choice("dynamics.placement", self.placement, ("least_loaded", "pack", "spread", "least_loaded_single"))
        require_choice("dynamics.scaling_cost", self.scaling_cost, ("none", "hot", "checkpoint"))
        require_fraction("dynamics.speed_noise", self.speed_noise)
        require_fraction("dynamics.epoch_error", self.epoch_error)

    @classmethod
    def faithful(cls, **changes: Any) -> DynamicsConfig:
        """Rules of the released DL2 simulator, as checked against its recorded results."""
        released: dict[str, Any] = dict(
            placement="least_loaded_single",
            scaling_cost="none",
            initial_bundle=True,
            mask_resources=False,
            window_skips_capped=True,
            auto_advance=False,
            load_by_sum=True,
        )
        return cls(**{**released, **changes})


@dataclass(frozen=True)
class RewardConfig:
    """Weights of the reward terms; the reward is their weighted sum and `info["reward_terms"]` shows each.

    Attributes:
        progress: Epochs trained over total epochs, summed over jobs, at each interval's end (DL2).
        jct: Minus the job time in the system during the interval, in intervals. The undiscounted return of an episode
            in which all jobs finish is exactly minus the total JCT in intervals.
        ideal_progress: Work done in the interval, in intervals at each job's best isolated speed, at its end.
        speed_gain: At each placement, the change of the summed estimated speed of all jobs, each in units of its best
            isolated speed: `ideal_progress` told decision by decision. Potential based, so it moves no optimum.
    """

    progress: float = 0.0
    jct: float = 0.0
    ideal_progress: float = 0.0
    speed_gain: float = 1.0

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            weight = getattr(self, f.name)
            require(math.isfinite(weight), f"reward.{f.name}={weight} must be a finite number")


@dataclass(frozen=True)
class ObservationConfig:
    """What an agent sees.

    Attributes:
        window: Job slots J, in arrival order.
        type_encoding: `one_hot` type, log-scaled workload `features` (so that unseen types work), or `both`.
    """

    window: int = 20
    type_encoding: TypeEncoding = "both"

    def __post_init__(self) -> None:
        require(self.window >= 1, f"observation.window={self.window} must be at least 1")
        require_choice("observation.type_encoding", self.type_encoding, ("one_hot", "features", "both"))


@dataclass(frozen=True)
class EstimateConfig:
    """What schedulers and the observation know about job speeds.

    Attributes:
        kind: `exact` isolated speeds; `fitted`: Optimus' resource-speed function, fitted to a few probes and to the
            speeds observed while jobs run; `noisy`: exact times 1 + U(-noise, noise), drawn once per episode and
            (type, workers, PSs).
        noise: Half width of `noisy`, and relative error of each probe of `fitted`.
        num_probes: Isolated sample runs per job type before the first interval (`fitted`).
    """

    kind: Estimate = "exact"
    noise: float = 0.0
    num_probes: int = 10

    def __post_init__(self) -> None:
        require_choice("estimate.kind", self.kind, ("exact", "fitted", "noisy"))
        require_fraction("estimate.noise", self.noise)
        require(
            self.num_probes >= 5,
            f"estimate.num_probes={self.num_probes} must be at least 5, the parameters of the fitted form",
        )


@dataclass(frozen=True)
class EnvConfig:
    """Everything that defines an environment."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    workload: WorkloadConfig = field(default_factory=WorkloadConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    estimate: EstimateConfig = field(default_factory=EstimateConfig)
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    observation: ObservationConfig = field(default_factory=ObservationConfig)
