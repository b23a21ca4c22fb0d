"""Balls and boxes on the ground, for the tests of contact between bodies."""

import diffrax
import helpers
import numpy as np
import rimless_wheel

import jaxmbd as mbd

G = 9.81
FLOOR = mbd.HalfSpace()


def run(mechanism, t1, dt, *, impacts=0, every=None, projection=None, throw=True, **options):
    steps = round(t1 / dt)
    return mbd.simulate(
        mechanism,
        mbd.ContactImpulse(impacts=helpers.located(impacts), **options),
        mechanism.state(),
        t0=0.0,
        t1=t1,
        dt=dt,
        projection=projection,
        saveat=diffrax.SaveAt(steps=steps if every is None else every),
        throw=throw,
    )


def sphere(
    radius=0.2, mass=1.5, *, position=None, velocity=(0, 0, 0), spin=(0, 0, 0), plane=None, **law
):
    """One on the floor."""
    body = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=radius, mass=mass),
        position=(0.0, 0.0, radius) if position is None else position,
        velocity=velocity,
        angular_velocity=spin,
    )
    contact = mbd.Contact("floor", "ground", body, FLOOR, mbd.Sphere(radius), **law)
    return mbd.Mechanism([body], contacts=[contact], plane=plane)


def box(name, position, size=(1.0, 1.0, 1.0), mass=1.0, **state):
    return mbd.Body(name, mbd.Inertia.box(size=size, mass=mass), position=position, **state)


def boxes(positions, gravity=(0.0, 0.0, -G), friction=0.5, budget=None):
    """Unit boxes; those that can touch do."""
    bodies = [box(f"box {i}", p) for i, p in enumerate(positions)]
    shape = mbd.Box((0.5, 0.5, 0.5))
    contacts = []
    for i, p in enumerate(positions):
        if p[2] < 0.6:
            name = f"floor-{i}"
            contacts.append(mbd.Contact(name, "ground", bodies[i], FLOOR, shape, friction=friction))
        for j in range(i):
            if np.max(np.abs(np.subtract(p, positions[j]))) < 1.2:
                contacts.append(
                    mbd.Contact(f"{j}-{i}", bodies[j], bodies[i], shape, shape, friction=friction)
                )
    return mbd.Mechanism(bodies, contacts=contacts, gravity=gravity, contact_budget=budget)


def positions(mechanism, sol):
    return np.asarray(sol.q).reshape(len(sol.t), 7, -1)[:, :3]


def least_rates(mechanism, sol):
    """Of a rimless wheel before and between its strikes, less those of the closed form."""
    wheel = rimless_wheel
    rate = np.asarray(mechanism.twist(sol.v, "wheel").angular)[:, 1]
    after = np.searchsorted(sol.t, wheel.strikes(mechanism, sol)[0], side="right")
    k2 = wheel.INERTIA[1] / (wheel.MASS * wheel.LENGTH**2)
    climb = 2 * G * (1 - np.cos(wheel.HALF - wheel.SLOPE)) / (wheel.LENGTH * (1 + k2))
    expected = np.sqrt(np.append(wheel.START, wheel.rates(wheel.SLOPE, 2)[1]) ** 2 - climb)
    return np.array([swing.min() for swing in np.split(rate, after)]) - expected
