"""Draws energy and angular momentum of a free body under several schemes, for the documentation.

    python docs/pictures/free_body.py

writes docs/img/free-body.svg. The body turns about its intermediate axis, which is unstable, and
flips over and over; nothing acts on it, so that energy and angular momentum should stay.
"""

import pathlib

import diffrax
import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

jax.config.update("jax_enable_x64", True)

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "img" / "free-body.svg"
SECONDS, STEP, SAVED = 1000.0, 0.02, 200  # steps from one saved time to the next
SCHEMES = {
    "SemiImplicitEuler, order 1": mbd.methods.SemiImplicitEuler(),
    "CrankNicolson, order 2": mbd.methods.CrankNicolson(),
    "Heun, order 2": diffrax.Heun(),
    "RK4, order 4": mbd.RK4(),
    "Tsit5, order 5": diffrax.Tsit5(),
    "Dopri8, order 8": diffrax.Dopri8(),
}


def free_body():
    body = mbd.Body("body", mbd.Inertia(1.0, [1.0, 2.0, 3.0]), angular_velocity=[1e-3, 2.0, 1e-3])
    return mbd.Mechanism([body], gravity=[0, 0, 0])


def errors(scheme):
    """Times, and the relative errors of energy and angular momentum."""
    mechanism = free_body()
    body = mechanism.bodies[0]
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=SECONDS,
        dt=STEP,
        scheme=scheme,
        saveat=diffrax.SaveAt(t0=True, steps=SAVED),
        throw=False,
    )

    def invariants(q, v):
        pose, twist = mechanism.pose(q, "body"), mechanism.twist(v, "body")
        return body.kinetic_energy(pose, twist), body.momentum(pose, twist)[1]

    energy, momentum = map(np.asarray, jax.jit(jax.vmap(invariants))(sol.q, sol.v))
    turned = np.linalg.norm(momentum - momentum[0], axis=1) / np.linalg.norm(momentum[0])
    return np.asarray(sol.t), np.abs(energy / energy[0] - 1), turned


def main():
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
    for name, scheme in SCHEMES.items():
        t, *found = errors(scheme)
        print(f"{name:28} energy {found[0][-1]:.1e}, angular momentum {found[1][-1]:.1e}")
        for axis, error in zip(axes, found):
            axis.loglog(t[1:], error[1:] + 1e-17, lw=1, label=name)
    for axis, title in zip(axes, ("Energy", "Angular momentum")):
        axis.set(title=title, xlabel="t [s]", ylim=(1e-16, 1e2))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("relative error")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
