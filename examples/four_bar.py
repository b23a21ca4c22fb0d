"""A crank-rocker from four hinges in space, balanced so that its motor runs evenly.

A motor turns the crank of a four-bar linkage at constant speed. Coupler and rocker go back and
forth, and the torque of the motor with them. Which counterweights on crank and rocker make it as
even as possible?

The hinges are ordinary ones in space. Around a plane loop three of their 20 rows say nothing new:
the report names them, and the motion is right all the same. The torque is the multiplier of the
drive; its derivatives with respect to the counterweights go through the simulation. The truth to
compare with is the power balance of the plane linkage, torque = d(T + V) / d(crank angle).

    python examples/four_bar.py --output four_bar.png
"""

import argparse
import functools
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd

AXIS = [0.0, 0.0, 1.0]  # of all hinges; the y axis points upwards
LENGTHS = BASE, CRANK, COUPLER, ROCKER = 1.0, 0.3, 0.9, 0.7  # [m]
DENSITY = 4.0  # of the bars [kg/m]
ARM = 0.25  # from the fixed hinges back to the counterweights [m]
SPEED = 3.0  # of the crank [rad/s]
STEPS = 180  # for one turn
QUICK = {"xla_backend_optimization_level": 0}
ORIGIN, PIVOT = np.zeros(2), np.array([BASE, 0.0])


class AtSpeed(eqx.Module):
    """The crank angle."""

    speed: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, t):
        return self.speed * t


def pins(angle, lengths=LENGTHS):
    """The two moving hinges at a crank angle: the second is where two circles meet."""
    base, crank, coupler, rocker = lengths
    crank_pin = crank * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    to_pivot = base * np.array([1.0, 0.0]) - crank_pin
    distance = jnp.linalg.norm(to_pivot)
    x, y = to_pivot / distance
    along = (distance**2 + coupler**2 - rocker**2) / (2 * distance)
    across = jnp.sqrt(coupler**2 - along**2)
    return crank_pin, crank_pin + along * jnp.stack([x, y]) + across * jnp.stack([-y, x])


def bar(name, start, end, length, counterweight=None):
    """A thin uniform bar, with its frame at the start and the x axis along it, and a counterweight
    [kg] behind the start. The ends are given by position and velocity."""
    (a, va), (b, vb) = start, end
    mass = DENSITY * length
    across = mass * length**2 / 12
    # About itself a thin bar has no moment, but a body needs one: in plane motion any will do.
    inertia = mbd.Inertia(mass, [1e-3 * across, across, across], [length / 2, 0, 0])
    if counterweight is not None:
        inertia += mbd.Inertia.point(mass=counterweight).moved([-ARM, 0, 0])
    (dx, dy), (dvx, dvy) = b - a, vb - va
    half = jnp.arctan2(dy, dx) / 2
    return mbd.Body(
        name,
        inertia,
        position=jnp.append(a, 0.0),
        orientation=jnp.stack([jnp.cos(half), 0 * half, 0 * half, jnp.sin(half)]),
        velocity=jnp.append(va, 0.0),
        angular_velocity=jnp.stack([0 * half, 0 * half, (dx * dvy - dy * dvx) / length**2]),
    )


def four_bar(counterweights):
    """Crank to the right and turning; counterweights on crank and rocker [kg]."""
    places, velocities = jax.jvp(pins, (0.0,), (SPEED,))
    crank_pin, rocker_pin = zip(places, velocities)
    origin, pivot = (ORIGIN, jnp.zeros(2)), (PIVOT, jnp.zeros(2))
    crank = bar("crank", origin, crank_pin, CRANK, counterweights[0])
    coupler = bar("coupler", crank_pin, rocker_pin, COUPLER)
    rocker = bar("rocker", pivot, rocker_pin, ROCKER, counterweights[1])

    def hinge(name, a, b, place):
        return mbd.Revolute(name, a, b, point=jnp.append(place[0], 0.0), axis=AXIS)

    shaft = hinge("shaft", "ground", crank, origin)
    joints = [
        shaft,
        hinge("crank pin", crank, coupler, crank_pin),
        hinge("rocker pin", coupler, rocker, rocker_pin),
        hinge("pivot", rocker, "ground", pivot),
        mbd.PrescribedMotion("drive", shaft, AtSpeed(SPEED)),
    ]
    return mbd.Mechanism([crank, coupler, rocker], joints, gravity=[0, -9.81, 0])


def motor_torque(counterweights):
    """At every step of a turn [N m]; and the solution."""
    mechanism = four_bar(counterweights)
    turn = 2 * np.pi / SPEED
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=turn,
        dt=turn / STEPS,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        throw=False,
    )
    return sol.multipliers[:, mechanism.rows("drive")[0]], sol


def torque_by_power(counterweights, angle):
    """The same from the plane linkage, as the slope of its energy over the crank angle."""

    def ends(angle):
        crank_pin, rocker_pin = pins(angle)
        return jnp.stack([ORIGIN, crank_pin, PIVOT]), jnp.stack([crank_pin, rocker_pin, rocker_pin])

    def energy(angle):
        (a, b), (va, vb) = jax.jvp(ends, (angle,), (SPEED,))
        mass = DENSITY * np.array([CRANK, COUPLER, ROCKER])
        behind = ARM / np.array([CRANK, 1.0, ROCKER])[:, None]  # in lengths of the bar
        weight = jnp.stack([counterweights[0], 0.0, counterweights[1]])
        bars = jnp.sum(va * va + va * vb + vb * vb, axis=1) / 6 + 9.81 * (a + b)[:, 1] / 2
        v, height = va - behind * (vb - va), (a - behind * (b - a))[:, 1]
        return mass @ bars + weight @ (jnp.sum(v * v, axis=1) / 2 + 9.81 * height)

    return jax.grad(energy)(angle)


# The runs are short: the compiler would take longer to optimise them than they last.
@functools.partial(jax.jit, compiler_options=QUICK)
def torque_and_slopes(counterweights):
    """The torque, its derivatives with respect to the counterweights by forward mode, and the
    solution."""

    def twice(x):
        torque, sol = motor_torque(x)
        return torque, (torque, sol)

    slopes, (torque, sol) = jax.jacfwd(twice, has_aux=True)(counterweights)
    return torque, slopes, sol


def balanced(counterweights, iterations=2):
    """Those with the least mean square of the torque, by the method of Gauss and Newton. The torque
    is linear in them, so that the first step finds them and the second changes nothing."""
    for _ in range(iterations):
        torque, slopes, _ = torque_and_slopes(counterweights)
        print(f"  {counterweights[0]:7.4f} kg on the crank, {counterweights[1]:7.4f} kg on the "
              f"rocker: torque {rms(torque):.4f} N m rms", flush=True)  # fmt: skip
        counterweights = counterweights - jnp.linalg.lstsq(slopes, torque)[0]
    return counterweights


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/four_bar.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    print(mbd.reports.mobility(four_bar(jnp.ones(2))))
    print("(the row of the drive takes the one freedom that the hinges leave)\n")
    few = 1e-6 * jnp.ones(2)
    plain, _, sol = torque_and_slopes(few)
    print(f"one turn in {STEPS} steps: open joints |Phi| {sol.phi_norm.max():.1e} m")

    print("in search of counterweights:", flush=True)
    found = balanced(jnp.ones(2))
    even, _, _ = torque_and_slopes(found)

    angles = jnp.linspace(0, 2 * np.pi, STEPS + 1)
    for name, weights, torque in (("without", few, plain), ("with", found, even)):
        error = np.abs(torque - jax.vmap(torque_by_power, (None, 0))(weights, angles)).max()
        print(f"{name:7} counterweights: {rms(torque):6.3f} N m rms, "
              f"{np.abs(torque).max():6.3f} N m at most; error {error:.1e} N m")  # fmt: skip

    draw(sol, angles, plain, even).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(sol, angles, plain, even):
    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    linkage, torque = figure.subplots(1, 2)
    for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
        points = np.stack([ORIGIN, *pins(angle), PIVOT])
        linkage.plot(*points.T, "o-", ms=3, lw=0.9, color=plt.cm.twilight(angle / (2 * np.pi)))
    linkage.set(title="One turn", xlabel="x [m]", ylabel="y [m]")
    linkage.set_aspect("equal")
    torque.plot(np.degrees(angles), plain, label="without counterweights")
    torque.plot(np.degrees(angles), even, label="with counterweights")
    torque.set(title="Torque of the motor", xlabel="crank angle [degrees]", ylabel="[N m]")
    torque.set_xticks(range(0, 361, 90))
    torque.legend()
    for axis in (linkage, torque):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
