"""Models of others: what loads, and accelerations beside those of MuJoCo.

    python benchmarks/imports.py              # the table of docs/imported-models.md
    python benchmarks/imports.py hopper ant   # only files whose path contains one of these words

It takes every MJCF and URDF file of the packages dm_control, gymnasium and example-robot-data
(`pip install "jaxmbd[io,test-models]"`) that MuJoCo loads by itself and in which something moves.
For each it compares the accelerations of all bodies at 100 random states and controls, without
contacts, limits, dry friction, equality constraints and fluid, which MuJoCo treats in another way.
The error is relative to the largest acceleration, or absolute below 1 m/s^2 and 1 rad/s^2.
"""

import importlib.util
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

# The arithmetic is the same up to rounding, and each program is compiled for 100 calls only.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)

import jax

jax.config.update("jax_enable_x64", True)

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402

import jaxmbd as mbd  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs" / "imported-models.md"

# What MuJoCo computes in another way, by intent.
DIFFERENT = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")

# Larger models are loaded, but their accelerations take minutes to compile.
MOST_BODIES = 28


def files() -> dict[str, Path]:
    """The model files of the three packages, by a short name."""
    found, share = {}, None
    for package in ("dm_control", "gymnasium"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.xml")):
            found[f"{package}/{path.relative_to(folder)}"] = path
        share = folder.parent / "cmeel.prefix" / "share" / "example-robot-data" / "robots"
    for path in sorted(share.rglob("*.urdf")) if share is not None else ():
        found[f"example-robot-data/{path.relative_to(share)}"] = path
    return found


def prepared(path: Path) -> Any:
    """The model without what MuJoCo treats in another way, as a `MjSpec`."""
    spec = mujoco.MjSpec.from_file(str(path))
    for name in DIFFERENT:
        spec.option.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))
    spec.option.density = spec.option.viscosity = 0.0
    return spec


def random_state(m: Any, d: Any, rng: np.random.Generator) -> None:
    """A random state and control within the limits. Angles stay within the branch of Euler
    angles."""
    mujoco.mj_resetData(m, d)
    for j in range(m.njnt):
        i = m.jnt_qposadr[j]
        kind = mujoco.mjtJoint(m.jnt_type[j])
        if kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
            low, high = m.jnt_range[j] if m.jnt_limited[j] else (-1.4, 1.4)
            d.qpos[i] = rng.uniform(low, high) if high - low < 6 else rng.uniform(-1.4, 1.4)
            continue
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            d.qpos[i : i + 3] = rng.normal(size=3)
            i += 3
        p = rng.normal(size=4)
        d.qpos[i : i + 4] = p / np.linalg.norm(p)
    d.qvel[:] = rng.normal(size=m.nv)
    limited = m.actuator_ctrllimited[:, None].astype(bool)
    low, high = np.where(limited, m.actuator_ctrlrange, [-1.0, 1.0]).T
    d.ctrl[:] = rng.uniform(low, high)


def accelerations_in_mujoco(m: Any, d: Any) -> np.ndarray:
    """Accelerations of all bodies that move, shape (6, bodies), linear and then angular, in world
    axes. Those of the mechanism have the same order."""
    mujoco.mj_forward(m, d)
    mujoco.mj_rnePostConstraint(m, d)
    bodies = [b for b in range(m.nbody) if m.body_jntnum[b]]
    found = np.zeros((len(bodies), 6))
    for row, b in zip(found, bodies, strict=True):
        mujoco.mj_objectAcceleration(m, d, mujoco.mjtObj.mjOBJ_XBODY, b, row, 0)
    found[:, 3:] += m.opt.gravity * (not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    return np.concatenate([found[:, 3:], found[:, :3]], axis=1).T


def largest_error(path: Path, samples: int = 100) -> float:
    """The largest relative error of the accelerations."""
    spec = prepared(path)
    m = spec.compile()
    d, loaded = mujoco.MjData(m), mbd.load(spec, contacts=False)
    mechanism = loaded.mechanism

    @eqx.filter_jit
    def acceleration(q, v, u):
        return mbd.identify.Sample(mechanism, lambda t, q, v: u, 0.0, q, v).acceleration

    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(samples):
        random_state(m, d, rng)
        if any(line.startswith("actuator") for line in loaded.dropped):
            d.ctrl[:] = 0  # an actuator with memory does not follow its control at once
        theirs = accelerations_in_mujoco(m, d)
        state = loaded.state_from(d.qpos, d.qvel)
        ours = np.asarray(acceleration(state.q, state.v, jnp.asarray(d.ctrl))).reshape(6, -1)
        worst = max(worst, np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max()))
    return worst


def row(name: str, path: Path) -> str | None:
    """The line of a file in the table; `None` if MuJoCo does not load it or nothing moves."""
    try:
        m = mujoco.MjSpec.from_file(str(path)).compile()
    except ValueError:
        return None
    if not m.njnt:
        return None
    try:
        loaded = mbd.load(path, contacts=False)
    except ValueError as error:
        return f"| {name} | | | {error} | |"
    error = ""
    if len(loaded.mechanism.body_stack) <= MOST_BODIES:
        error = f"{largest_error(path):.0e}"
    kinds: dict[str, int] = {}
    for line in loaded.dropped:
        kind = re.sub(r" .*", "", line)
        kinds[kind] = kinds.get(kind, 0) + 1
    dropped = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    bodies = len(loaded.mechanism.body_stack)
    return f"| {name} | {bodies} | {m.nv} | {dropped} | {error} |"


def main(words: list[str]) -> None:
    """Print the table, and write it into the documentation if it is whole."""
    warnings.simplefilter("ignore")
    found = []
    for name, path in files().items():
        if words and not any(word in name for word in words):
            continue
        start = time.process_time()
        line = row(name, path)
        if line is None:
            continue
        found.append(line)
        print(f"{line} {time.process_time() - start:.1f} s", flush=True)
    if not words:
        head = [
            "| file | bodies | freedoms of the tree | dropped | error of accelerations |",
            "|---|---|---|---|---|",
        ]
        text = PAGE.read_text()
        begin, end = "<!-- table -->\n", "<!-- end of table -->"
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        PAGE.write_text(before + begin + "\n".join([*head, *found]) + "\n" + end + after)


if __name__ == "__main__":
    main(sys.argv[1:])
