from __future__ import annotations

import json
import pickletools
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents import checkpoint
from agents.callbacks import Checkpoints
from agents.checkpoint import (
    CheckpointError,
    load_network,
    read_info,
    resume_training,
    save_network,
    save_training,
)
from agents.learner import fine_tune
from agents.networks import NetworkConfig, ObservationShape, build_network
from agents.ppo import PPOConfig, SchedulingPPO, build_ppo
from agents.vec_env import SB3VecEnv
from dl2env.envs.vector_env import SchedulingVectorEnv
from tests.agents.learners import QUICK, SMALL, picking_learner
from tests.agents.worlds import small_config

ROOT = Path(__file__).parents[2]
SHAPE = ObservationShape(4, 5, 2)


def observation(batch: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(batch, 4, 5, generator=generator), torch.rand(batch, 2, generator=generator)


def test_logits_are_the_same_in_a_new_process(tmp_path: Path) -> None:
    torch.manual_seed(3)
    jobs, cluster = observation()
    np.savez(tmp_path / "obs.npz", jobs=jobs.numpy(), cluster=cluster.numpy())
    expected = {}
    for kind in ("equivariant", "flat"):
        config = NetworkConfig(kind=kind, slot_width=8, context_width=8, hidden_width=8)  # type: ignore[arg-type]
        net = build_network(config, SHAPE)
        net.value_head.rescale(torch.tensor([5.0, 9.0]))
        info = save_network(tmp_path / kind, net, seed=11, metrics={"avg_jct": 4.5})
        assert read_info(tmp_path / kind) == info
        assert info.versions["torch"] == torch.__version__
        with torch.no_grad():
            expected[kind] = [output.numpy() for output in net(jobs, cluster)]
    code = (
        "import sys, numpy as np, torch; torch.set_num_threads(1)\n"
        "from pathlib import Path; from agents.checkpoint import load_network\n"
        f"folder = Path({str(tmp_path)!r}); obs = np.load(folder / 'obs.npz')\n"
        "for kind in ('equivariant', 'flat'):\n"
        "    net, info = load_network(folder / kind)\n"
        "    logits, values = net(torch.from_numpy(obs['jobs']), torch.from_numpy(obs['cluster']))\n"
        "    np.savez(folder / f'{kind}.npz', logits=logits.numpy(), values=values.numpy())\n"
        "    assert info.seed == 11 and info.metrics == {'avg_jct': 4.5}\n"
        "assert 'stable_baselines3' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    for kind, (logits, values) in expected.items():
        with np.load(tmp_path / f"{kind}.npz") as out:
            np.testing.assert_array_equal(out["logits"], logits)
            np.testing.assert_array_equal(out["values"], values)


def test_no_file_names_a_class_of_ours_or_of_a_library(tmp_path: Path) -> None:
    model = picking_learner()
    fine_tune(model, 128)
    save_training(tmp_path / "agent", model)
    allowed = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "torch ByteStorage"}
    allowed |= {"torch LongStorage"}
    seen: set[str] = set()
    for name in ("policy.pt", "training.pt"):
        with zipfile.ZipFile(tmp_path / "agent" / name) as archive:
            (pickled,) = [entry for entry in archive.namelist() if entry.endswith("data.pkl")]
            names = [str(arg) for op, arg, _ in pickletools.genops(archive.read(pickled)) if op.name == "GLOBAL"]
        assert names, name
        seen |= set(names)
    assert seen <= allowed
    json.loads((tmp_path / "agent" / "config.json").read_text())


def test_environment_file_needs_no_pickle(tmp_path: Path) -> None:
    model = real_learner()
    fine_tune(model, 128)
    save_training(tmp_path / "agent", model)
    with np.load(tmp_path / "agent" / "environment.npz", allow_pickle=False) as arrays:
        assert len(arrays.files) > 10
        assert all(not arrays[name].dtype.hasobject for name in arrays.files)


def real_learner(seed: int = 2) -> SchedulingPPO:
    from stable_baselines3.common.logger import Logger

    config = PPOConfig(steps_per_update=16, minibatch_size=32, epochs=2)
    model = build_ppo(SB3VecEnv(SchedulingVectorEnv(8, small_config())), config, SMALL, seed=seed)
    model.set_logger(Logger(None, []))
    return model


def weights(model: SchedulingPPO) -> torch.Tensor:
    return torch.cat([v.flatten().double() for v in model.policy.state_dict().values()])


def test_resuming_continues_bit_for_bit(tmp_path: Path) -> None:
    whole, first, resumed = real_learner(), real_learner(), real_learner(seed=2)
    fine_tune(whole, 6 * 128)
    # The same schedules, stopped after three updates as by a user.
    stop = StopAfter(3)
    assert not fine_tune(first, 6 * 128, [stop, Checkpoints(tmp_path / "last", every=100, env_config=small_config())])
    info = resume_training(tmp_path / "last", resumed)
    assert info.num_updates == resumed.updates_done == 3 and info.num_decisions == 3 * 128
    assert info.ppo is not None and info.ppo["steps_per_update"] == 16
    assert fine_tune(resumed, 6 * 128)
    assert torch.equal(weights(resumed), weights(whole))
    for name, values in resumed.policy.optimizer.state_dict()["state"][0].items():
        assert torch.equal(values, whole.policy.optimizer.state_dict()["state"][0][name])
    env, reference = resumed.env, whole.env
    assert isinstance(env, SB3VecEnv) and isinstance(reference, SB3VecEnv)
    for name, values in (env.state() or {}).items():
        other = (reference.state() or {})[name]
        for column in values.dtype.names or ((),):
            np.testing.assert_array_equal(values[column], other[column])


class StopAfter(Checkpoints):
    """Requests a stop while the rollout of the given update is collected."""

    def __init__(self, updates: int) -> None:
        super().__init__(Path("unused"))
        self._updates = updates

    def _on_rollout_start(self) -> None:
        pass

    def _on_rollout_end(self) -> None:
        self.model.stop_requested = self.model.updates_done >= self._updates

    def _on_training_end(self) -> None:
        pass


def test_without_a_snapshot_new_episodes_start(tmp_path: Path) -> None:
    model, resumed = picking_learner(), picking_learner()
    fine_tune(model, 128)
    save_training(tmp_path / "agent", model)
    assert not (tmp_path / "agent" / "environment.npz").exists()
    resume_training(tmp_path / "agent", resumed)
    assert resumed.env is not None
    seeds: Any = resumed.env.env.seeds  # type: ignore[attr-defined]
    assert seeds[-1] not in (None, model.seed)
    assert torch.equal(weights(resumed), weights(model))
    fine_tune(resumed, 256)
    assert resumed.num_timesteps == 256


def test_a_learner_with_other_settings_is_refused(tmp_path: Path) -> None:
    model = real_learner()
    fine_tune(model, 128)
    save_training(tmp_path / "agent", model)
    other = build_ppo(SB3VecEnv(SchedulingVectorEnv(8, small_config())), QUICK, NetworkConfig(slot_width=8))
    with pytest.raises(CheckpointError, match="settings"):
        resume_training(tmp_path / "agent", other)
    fewer = build_ppo(SB3VecEnv(SchedulingVectorEnv(4, small_config())), QUICK, SMALL)
    with pytest.raises(CheckpointError, match="8 environments were saved, this run has 4"):
        resume_training(tmp_path / "agent", fewer)


@pytest.mark.parametrize("name", ["environment.npz", "training.pt", "policy.pt"])
@pytest.mark.parametrize("length", [0, 200])
def test_a_file_cut_short_is_named_with_the_cure(tmp_path: Path, name: str, length: int) -> None:
    model = real_learner()
    fine_tune(model, 128)
    save_training(tmp_path / "last", model)
    file = tmp_path / "last" / name
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=rf"^{re.escape(str(file))}: cannot be read .* use another one$"):
        resume_training(tmp_path / "last", real_learner())


def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = build_network(SMALL, SHAPE)
    save_network(tmp_path / "agent", net, seed=1)

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_network(tmp_path / "agent", net, seed=2)
    assert read_info(tmp_path / "agent").seed == 1
    load_network(tmp_path / "agent")
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_saving_again_replaces_the_folder(tmp_path: Path) -> None:
    net = build_network(SMALL, SHAPE)
    for seed in (1, 2):
        save_network(tmp_path / "agent", net, seed=seed)
    assert read_info(tmp_path / "agent").seed == 2
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_what_is_no_checkpoint_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: no checkpoint \(config.json is missing\)"):
        load_network(tmp_path / "nowhere")
    folder = tmp_path / "agent"
    save_network(folder, build_network(SMALL, SHAPE))
    config = folder / "config.json"
    content = json.loads(config.read_text())
    for change, message in (
        ({"schema": "other"}, "not a dl2env checkpoint"),
        ({"schema_version": 7}, "schema version 7"),
        ({"network": {"kind": "equivariant", "depth": 3}}, "depth: unknown key"),
        ({"network": {**content["network"], "slot_width": 99}}, "other kind or sizes"),
        ({"metrics": 3}, "metrics"),
    ):
        config.write_text(json.dumps({**content, **change}))
        with pytest.raises(CheckpointError, match=message):
            load_network(folder)
    config.write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_network(folder)
    config.write_text(json.dumps(content))
    (folder / "policy.pt").write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match=r"policy\.pt: cannot be read"):
        load_network(folder)
    (folder / "policy.pt").unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        load_network(folder)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    save_network(folder, build_network(SMALL, SHAPE))
    torch.save({"slot_input.weight": Evil(tmp_path / "ran")}, folder / "policy.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_network(folder)
    assert not (tmp_path / "ran").exists()


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("renames", [1, 2])
def test_killed_while_a_checkpoint_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    """After the first rename there is no checkpoint in its place; the old one is put back, or the new one stays."""
    nets = [build_network(NetworkConfig(kind="flat", hidden_width=8), SHAPE) for _ in range(2)]
    save_network(tmp_path / "last", nets[0], seed=1)
    done = 0
    rename = Path.rename

    def killed_after(path: Path, target: Path) -> Path:
        nonlocal done
        moved = rename(path, target)
        done += 1
        if done == renames:
            raise KeyboardInterrupt
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed_after)
        with pytest.raises(KeyboardInterrupt):
            save_network(tmp_path / "last", nets[1], seed=2)
    assert (tmp_path / "last").is_dir() == (renames == 2)
    checkpoint.finish_swap(tmp_path / "last")
    assert read_info(tmp_path / "last").seed == renames
    save_network(tmp_path / "last", nets[1], seed=3)
    assert read_info(tmp_path / "last").seed == 3 and [path.name for path in tmp_path.iterdir()] == ["last"]
