"""Spheres run out of a hopper, and how fast, against Beverloo's law.

500 spheres of unequal sizes fill a hopper that is one sphere deep, so that their motion is plane.
They do not run out like water: arches carry the fill, and its height does not matter. What runs out
in a second [kg/s] follows from the width D of the outlet, the mass rho of the fill over its area
[kg/m^2], and the mean diameter d of the spheres alone:

    W = C rho sqrt(g) (D - k d)^(3/2),

since spheres fall freely from arches as high as the outlet is wide. Their centres cannot pass near
the edges, which makes it narrower by k d, with k about 1.4 for spheres.

Of the 130 000 pairs of spheres only near ones are looked at. They touch by springs as stiff
as steps of this size resolve, which are solved for implicitly.

    python examples/hopper.py --output hopper.png

References: Beverloo, Leniger and van de Velde (1961), The flow of granular solids through orifices,
Chemical Engineering Science 15, in three dimensions, with the exponent 5/2; Nedderman (1992),
Statics and kinematics of granular materials, chapter 10.
"""

import argparse
import functools
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import EllipseCollection
from tqdm import tqdm

import jaxmbd as mbd

GRAVITY, DIAMETER, DENSITY = 9.81, 0.01, 2500.0
COUNT, WIDTH, ACROSS = 500, 22 * DIAMETER, 18  # spheres, width, spheres in a layer
STEEP = np.pi / 6  # of the bottom
OUTLETS = DIAMETER * np.array([5.0, 6.0, 7.5, 9.0])
EDGE = 1.4  # k
LAW = mbd.ContactLaw(0.5, stiffness=3e4, damping=10.0)
METHOD = mbd.ContactImpulse()
STEP, EVERY = 2e-3, 15  # of the motion [s], and steps from one saved state to the next

RADII = DIAMETER / 2 * np.random.default_rng(0).uniform(0.85, 1.15, COUNT)
MASSES = DENSITY * 4 / 3 * np.pi * RADII**3


def about_y(angle):
    """A quaternion."""
    return jnp.array([np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0])


def hopper(outlet, count=COUNT):
    """Spheres in layers above a bottom with an outlet of some width, between two walls."""
    pitch = WIDTH / (ACROSS + 1)
    layer, place = np.divmod(np.arange(2 * count), ACROSS)
    x = pitch * (place + 0.75 + 0.5 * (layer % 2)) - WIDTH / 2
    z = pitch * (layer + 1.5)
    above = z - np.abs(x) * np.tan(STEEP) > 0.6 * DIAMETER / np.cos(STEEP)
    x, z = x[above], z[above]
    bodies, pieces = [], []
    for i in range(count):
        inertia = mbd.Inertia.sphere(radius=RADII[i], mass=MASSES[i])
        bodies.append(mbd.Body(f"{i}", inertia, position=[x[i], 0.0, z[i]]))
        pieces.append((bodies[-1], mbd.Sphere(RADII[i])))
    bottom, wall = mbd.Box(size=[WIDTH, DIAMETER, DIAMETER]), mbd.HalfSpace()
    for side in (-1, 1):
        tilted, upright = about_y(-side * STEEP), about_y(-side * np.pi / 2)
        middle = jnp.array([side * WIDTH / 2, 0.0, -DIAMETER / 2])
        middle = mbd.rotations.quaternion_rotate(tilted, middle)
        edge = jnp.stack([side * outlet / 2, 0 * outlet, 0 * outlet])
        beside = jnp.array([side * WIDTH / 2, 0.0, 0.0])
        pieces.append(("ground", bottom, mbd.Pose(edge + middle, tilted)))
        pieces.append(("ground", wall, mbd.Pose(beside, upright)))
    return mbd.Mechanism(
        bodies,
        contacts=mbd.contacts_among(pieces, law=LAW, pair_budget=4 * count, reach=DIAMETER / 4),
        contact_budget=3 * count,
        gravity=[0, 0, -GRAVITY],
        plane=mbd.Plane(normal=[0.0, -1.0, 0.0], x_axis=[1.0, 0.0, 0.0]),
    )


@functools.partial(jax.jit, static_argnames="count")
def start(count=COUNT):
    """The state for `onwards`, at rest."""
    mechanism = hopper(jnp.zeros(()), count)
    return mbd.Stepper(mechanism, METHOD).init(mechanism.state())


@functools.partial(jax.jit, static_argnames="count")
def onwards(outlet, state, count=COUNT):
    """The state some steps later; then places (x, z) of all spheres [m], and the largest speed."""
    mechanism = hopper(outlet, count)
    stepper = mbd.Stepper(mechanism, METHOD)
    state = jax.lax.fori_loop(0, EVERY, lambda _, state: stepper.step(state, STEP), state)
    speed = jnp.max(jnp.abs(state.v[: 2 * count]))
    return state, mechanism.pose_table(state.q)[jnp.array([0, 2])], speed


def filled(count=COUNT, most=40):
    """The state, and places, after the spheres have come to rest above the closed outlet."""
    state, speed = start(count), 1.0
    for _ in tqdm(range(most), desc="filling"):
        if speed > 1e-3 * np.sqrt(GRAVITY * DIAMETER):
            state, places, speed = onwards(np.float64(0.0), state, count)
    return state, places


def emptied(outlet, state, share, count=COUNT):
    """Times [s], places and the mass that is out [kg], until it is a share of all of it; and the
    last state."""
    total, places, out = MASSES[:count].sum(), [], [0.0]
    with tqdm(total=round(100 * share), unit="%", desc=f"outlet {1e3 * outlet:.0f} mm") as bar:
        while out[-1] < share * total and len(out) < 200:
            state, now, _ = onwards(outlet, state, count)
            places.append(np.asarray(now))
            out.append(MASSES[:count][places[-1][1] < 0].sum())
            bar.update(min(bar.total, int(100 * out[-1] / total)) - bar.n)
    return STEP * EVERY * np.arange(1, len(out)), np.array(places), np.array(out[1:]), state


def flow(t, out, begin=0.1):
    """What runs out per second [kg/s], after a share of all that does."""
    steady = out > begin * out[-1]
    return np.polyfit(t[steady], out[steady], 1)[0]


def density(places):
    """Mass of the fill over its area, in layers of the full width [kg/m^2]."""
    low = WIDTH / 2 * np.tan(STEEP)
    top = places[1].max() - 3 * DIAMETER
    return MASSES[(places[1] > low) & (places[1] < top)].sum() / (WIDTH * (top - low))


def show(axis, places, outlet, first):
    """The spheres, in stripes by their layers at first."""
    colors = np.where(np.floor(first[1] / (3 * DIAMETER)) % 2, "#c2410c", "#1d4ed8")
    spheres = EllipseCollection(
        2 * RADII,
        2 * RADII,
        0 * RADII,
        units="xy",
        offsets=places.T,
        offset_transform=axis.transData,
        facecolors=colors,
    )
    axis.add_collection(spheres)
    for side in (-1, 1):
        x = side * np.array([outlet / 2, WIDTH / 2, WIDTH / 2])
        z = np.tan(STEEP) * (WIDTH - outlet) / 2
        axis.plot(x, [0, z, 0.35], color="k", linewidth=1.5)
    axis.set(xlim=(-0.12, 0.12), ylim=(-0.12, 0.3), aspect="equal")
    axis.axis("off")


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/hopper.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    state, first = filled()
    runs = [emptied(outlet, state, share=0.6) for outlet in OUTLETS]
    flows = np.array([flow(t, out) for t, _, out, _ in runs])
    width = OUTLETS - EDGE * DIAMETER
    exponent, _ = np.polyfit(np.log(width), np.log(flows), 1)
    factor = np.mean(flows / width**1.5)
    print("outlet [mm]   flow [kg/s]   Beverloo's law   contact residual [m/s]   result")
    for outlet, w, found, (_, _, _, end) in zip(OUTLETS, width, flows, runs, strict=True):
        verdict = mbd.RESULTS[end.result]
        law, residual = factor * w**1.5, end.contacts.residual
        print(f"{1e3 * outlet:11.0f} {found:13.4f} {law:16.4f} {residual:24.1e}   {verdict}")
    C = factor / (density(np.asarray(first)) * np.sqrt(GRAVITY))
    slope, level = np.polyfit(OUTLETS, flows ** (2 / 3), 1)
    print(f"C = {C:.3f}; exponent {exponent:.3f} with k = {EDGE}, by the law 1.5")
    print(f"k = {-level / slope / DIAMETER:.2f} with the exponent 1.5")

    figure, axes = plt.subplots(
        1, 4, figsize=(10, 4), layout="constrained", width_ratios=[1, 1, 1, 1.4]
    )
    t, places, _, _ = runs[2]
    for axis, k in zip(axes, (0, len(t) // 2, len(t) - 1), strict=False):
        show(axis, places[k], OUTLETS[2], np.asarray(first))
        axis.set_title(f"t = {t[k]:.2f} s")
    x = np.linspace(EDGE, 10.0)
    axes[3].plot(x, factor * (DIAMETER * (x - EDGE)) ** 1.5, "0.6", label="Beverloo's law")
    axes[3].plot(OUTLETS / DIAMETER, flows, "o", color="#c2410c", label="simulated")
    axes[3].set(xlabel="outlet / diameter of a sphere", ylabel="flow [kg/s]", xlim=(0, 10))
    axes[3].legend()
    axes[3].grid(alpha=0.3)
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()
