"""Draws the Campbell diagram of an overhung rotor, for the documentation.

    python docs/pictures/campbell.py

writes docs/img/campbell.png. A round disc sits at the end of a light shaft, which is told by its
stiffness against deflection and slope.
"""

import pathlib

import jax
import matplotlib

matplotlib.use("Agg")

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd

jax.config.update("jax_enable_x64", True)

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "img" / "campbell.png"


class Overhung(mbd.AbstractSystem):
    """A disc of 2 kg, q = (x, y, z, quaternion)."""

    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def inertia(self, q):
        R = mbd.rotations.quaternion_to_matrix(q[3:])
        return R @ jnp.diag(jnp.array([0.018, 0.018, 0.03])) @ R.T

    def mass_matrix(self, q):
        return jax.scipy.linalg.block_diag(2.0 * jnp.eye(3), self.inertia(q))

    def force(self, t, q, v, u):
        slope = mbd.rotations.quaternion_to_matrix(q[3:])[:2, 2]
        pull = -4e4 * q[:2] + 3e3 * slope
        bend = 3e3 * q[:2] - 6e2 * slope
        torque = jnp.stack([-bend[1], bend[0], 0.0])
        gyroscopic = mbd.rotations.cross(v[3:], self.inertia(q) @ v[3:])
        return jnp.concatenate([pull, -1e5 * q[2:3], torque - gyroscopic])


def model(speed):
    q = jnp.array([0.0, 0, 0, 1, 0, 0, 0])
    state = mbd.State(0.0, q, jnp.zeros(6).at[5].set(speed * 2 * jnp.pi))
    return mbd.analysis.linearise(Overhung(), state, size=12)


def main():
    found = mbd.analysis.campbell(model, np.linspace(0.0, 70.0, 71), planes=[(0, 1), (3, 4)])
    axes = mbd.plots.campbell(found, orders=(1, 2), per_second=2 * np.pi)
    print(found.critical_speeds(per_second=2 * np.pi))
    axes.set_xlabel("speed [turns per second]")
    axes.figure.set_size_inches(7, 4)
    axes.figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
