"""Reference values by MuJoCo, which steps at first order (Todorov, Erez and Tassa, 2012).

    pip install mujoco numpy
    python make_mujoco.py        # writes mujoco.json

- `drives`: the arms of `drives.xml` after 0.5 s with the control amplitudes cos(3 t), of which most
  drive states to their limits: positions, velocities and activations. Extrapolated from steps of
  20 and 10 us, except what the limits hold within a step: `error` is the difference of the two.
"""

import pathlib

import mujoco
import numpy as np
from reference_file import write

AMPLITUDES = np.array([1.0, 0.7, 0.5, 0.3, -0.15, 12.0, 3.0, 3.0, 1.8, -0.9])
DURATION, RATE = 0.5, 3.0


def end(dt):
    """Positions, velocities and activations at the end."""
    m = mujoco.MjModel.from_xml_path(str(pathlib.Path(__file__).with_name("drives.xml")))
    m.opt.timestep = dt
    d = mujoco.MjData(m)
    for _ in range(round(DURATION / dt)):
        d.ctrl[:] = AMPLITUDES * np.cos(RATE * d.time)
        mujoco.mj_step(m, d)
    return np.concatenate([d.qpos, d.qvel, d.act])


if __name__ == "__main__":
    coarse, fine = end(2e-5), end(1e-5)
    position, velocity, activation = np.split(2 * fine - coarse, [6, 12])
    found = {
        "amplitudes": AMPLITUDES,
        "duration": DURATION,
        "rate": RATE,
        "position": position,
        "velocity": velocity,
        "activation": activation,
        "error": np.abs(fine - coarse).max(),
    }
    write({"drives": found}, "mujoco.json", ("mujoco", mujoco.__version__))
