"""The slider-crank of `slider_crank.py`, built from bodies and hinges instead of written by hand.

There the mechanism is four coordinates, an energy and three constraints; here it is three bodies in
space, three hinges and a guide: 18 velocities and 20 rows, of which three say nothing new, and a
fourth where crank and rod stand upright. Both must move alike, and like the exact crank angle. The
bodies also tell what the hinges carry.

    python examples/slider_crank_from_bodies.py --output slider_crank_from_bodies.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import slider_crank

import jaxmbd as mbd

AXIS = [0.0, 0.0, 1.0]  # of all hinges; the y axis points upwards


def slider_crank_from_bodies(length=1.0, mass=1.0, slider_mass=1.0, damping=5.0, gravity=9.81):
    """Stretched along the x axis, at rest. The frames of the bodies lie in their middles."""
    # Bars are thin, but a body needs a moment about every axis: the motion is plane, so that
    # only the last one counts.
    bar = mbd.Inertia(mass, mass * length**2 / 12 * np.ones(3))
    crank = mbd.Body("crank", bar, position=[length / 2, 0, 0])
    rod = mbd.Body("rod", bar, position=[3 * length / 2, 0, 0])
    block = mbd.Inertia.box(size=[0.2, 0.1, 0.1], mass=slider_mass)
    slider = mbd.Body("slider", block, position=[2 * length, 0, 0])
    support, knee, pin = [0, 0, 0], [length, 0, 0], [2 * length, 0, 0]
    joints = [
        mbd.Revolute("bearing", "ground", crank, point=support, axis=AXIS),
        mbd.Revolute("knee", crank, rod, point=knee, axis=AXIS),
        mbd.Revolute("pin", rod, slider, point=pin, axis=AXIS),
        mbd.Prismatic("guide", "ground", slider, point=pin, axis=[1, 0, 0]),
    ]
    forces = [
        mbd.Motor("motor", "ground", crank, point=support, axis=AXIS),
        mbd.TorsionSpring("friction", "ground", crank, point=support, axis=AXIS, damping=damping),
    ]
    return mbd.Mechanism([crank, rod, slider], joints, forces, gravity=[0, -gravity, 0])


def constant_torque(t, q, v):
    return jnp.array([20.0])


def run(mechanism, t1, dt=1e-3, every=10, **options):
    return mbd.simulate(
        mechanism,
        # The singular pose is passed by the pseudoinverse; the default solver softens it.
        mbd.UdwadiaKalaba(solver=mbd.Pseudoinverse()),
        mechanism.state(),
        t1=t1,
        dt=dt,
        control=constant_torque,
        saveat=diffrax.SaveAt(t0=True, steps=every),
        **options,
    )


def run_by_hand(t1, dt=1e-3, every=10):
    """The same motion of the system of `slider_crank.py`."""
    return mbd.simulate(
        slider_crank.SliderCrank(),
        mbd.UdwadiaKalaba(),
        slider_crank.exact_start(),
        t1=t1,
        dt=dt,
        saveat=diffrax.SaveAt(t0=True, steps=every),
    )


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/slider_crank_from_bodies.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output,
                        metavar="PNG")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=4.0, help="of motion (%(default)s)")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism, t1 = slider_crank_from_bodies(), arguments.seconds
    print(mbd.reports.mobility(mechanism))
    sol = run(mechanism, t1, progress=diffrax.TqdmProgressMeter())
    by_hand = run_by_hand(t1)

    crank = mbd.reports.joint_path(mechanism, sol, "bearing")[:, 0]
    exact = slider_crank.exact_motion(slider_crank.SliderCrank(), t1)(sol.t)
    slider = mechanism.pose(sol.q, "slider").position[:, 0]
    slider_by_hand = slider_crank.slider_position(np.asarray(by_hand.q))
    print(f"{t1:g} s, {int(exact[-1] / np.pi + 0.5)} singular passages:")
    print(f"  crank angle from the exact one      {np.abs(crank - exact).max():.1e} rad")
    print(f"  slider from that written by hand    {np.abs(slider - slider_by_hand).max():.1e} m")
    print(f"  open joints, |Phi|                  {sol.phi_norm.max():.1e}")

    draw(mechanism, sol, crank, exact).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(mechanism, sol, crank, exact):
    figure = plt.figure(figsize=(11, 4), layout="constrained")
    error, load = figure.subplots(1, 2)
    error.semilogy(sol.t, np.abs(crank - exact) + 1e-17)
    error.set(title="Error of the crank angle", xlabel="t [s]", ylabel="[rad]")
    # The plane components are the same however the redundant rows share the rest.
    for name in ("bearing", "knee", "pin"):
        force = mbd.reports.reactions(mechanism, sol, name).force
        load.plot(sol.t, np.linalg.norm(force[:, :2], axis=1), label=name)
    # Crank and rod upright, the rows fail, and with them what they say of the loads.
    load.set(title="Load of the hinges (peaks: singular pose)", xlabel="t [s]", ylabel="[N]")
    load.set_ylim(0, 400)
    load.legend()
    for axis in (error, load):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
