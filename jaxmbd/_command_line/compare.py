"""`jaxmbd compare`."""

import pathlib
from typing import Any

import click
import numpy as np

from .models import (
    Model,
    contacts_option,
    give_up,
    load,
    model_argument,
    motion,
    shown,
    simulation_options,
    verdict,
)


@click.command()
@model_argument
@simulation_options
@contacts_option("all")
@click.option("--tolerance", type=float, help="End with code 3 if a joint differs by more.")
def compare(
    model, t1, dt, method, keyframe, start, control, rate, progress, contacts, tolerance
) -> None:
    """Simulate MODEL here and in MuJoCo with the same step, and tell the difference over time.

    \b
    Examples:
      jaxmbd compare robot.xml --t1 1
      jaxmbd compare arm.urdf --t1 0.5 --dt 1e-4 --tolerance 1e-3
    """
    if pathlib.Path(model).suffix.lower() not in (".xml", ".mjcf", ".urdf"):
        raise ValueError(f"MuJoCo reads MJCF and URDF, so it cannot be compared for {model!r}.")
    found = load(model, keyframe, control, contacts, start)
    solution = motion(found, t1, dt, method, rate, shown(progress))
    wrong = verdict(solution)
    if wrong is not None:
        give_up(f"the simulation failed: {wrong}")
    times = np.asarray(solution.t) - float(found.state.t)
    own, _ = (np.asarray(x) for x in found.loaded.qpos_qvel(solution))
    step = found.loaded.dt if dt is None else dt
    other, opening = in_mujoco(found, times, step)
    off = differences(found, own, other)
    click.echo(f"{'t [s]':>9} {'joints [rad, m]':>16} {'open here':>12} {'open in MuJoCo':>15}")
    here = np.asarray(solution.phi_norm)
    for i in np.unique(np.linspace(0, len(times) - 1, 11).astype(int)):
        click.echo(f"{times[i]:9.3f} {off[i].max():16.3e} {here[i]:12.1e} {opening[i]:15.1e}")
    worst = int(np.argmax(off.max(axis=0)))
    click.echo(
        f"largest difference {off.max():.3e}, of the joint {found.loaded.joints[worst].name}"
    )
    if tolerance is not None and off.max() > tolerance:
        give_up(f"the motions differ by {off.max():.3e}, more than {tolerance:g}.")


def in_mujoco(model: Model, times: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """qpos in MuJoCo at the times, and by how much equality constraints are open there."""
    from jaxmbd.io.compiled import compiled, imported

    mujoco = imported()
    m = compiled(model.loaded.source).m
    m.opt.timestep = dt
    d: Any = mujoco.MjData(m)
    qpos, qvel = model.loaded.qpos_qvel(model.state)
    d.qpos[:], d.qvel[:], d.ctrl[:] = np.asarray(qpos), np.asarray(qvel), model.control
    mujoco.mj_forward(m, d)
    found, opening = [], []
    for t in times:
        while d.time < t - 0.5 * dt:
            mujoco.mj_step(m, d)
        mujoco.mj_fwdPosition(m, d)
        found.append(np.array(d.qpos))
        rows = d.efc_type[: d.nefc] == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        opening.append(float(np.max(np.abs(d.efc_pos[: d.nefc][rows]), initial=0.0)))
    return np.array(found), np.array(opening)


def differences(model: Model, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Difference of each joint over time: angle [rad] or distance [m], `(times, joints)`."""
    found = []
    for joint in model.loaded.joints:
        i = joint.qpos
        x, y = own[:, i:], other[:, i:]
        if joint.kind in ("hinge", "slide"):
            d = x[:, 0] - y[:, 0]
            wrapped = np.arctan2(np.sin(d), np.cos(d))
            found.append(np.abs(wrapped if joint.kind == "hinge" else d))
            continue
        turn = 3 if joint.kind == "free" else 0
        p = np.abs(np.sum(x[:, turn : turn + 4] * y[:, turn : turn + 4], axis=1))
        angle = 2 * np.arccos(np.clip(p, 0.0, 1.0))
        shift = np.linalg.norm(x[:, :turn] - y[:, :turn], axis=1)
        found.append(np.maximum(angle, shift))
    return np.stack(found, axis=1)
