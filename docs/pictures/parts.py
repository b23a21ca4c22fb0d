"""Draws the slider-crank of the page on mechanisms, with the frames of its bodies.

    python docs/pictures/parts.py

writes docs/img/slider-crank-parts.svg.
"""

import pathlib

import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import jaxmbd as mbd

DOCS = pathlib.Path(__file__).resolve().parents[1]
SIDE, ALONG = [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]


def slider_crank():
    """The mechanism of the page, without its motor."""
    parts = [("crank", [0.2, 0.03, 0.03], 0.1), ("rod", [0.6, 0.03, 0.03], 0.5)]
    parts += [("slider", [0.1, 0.1, 0.1], 0.8)]
    crank, rod, slider = (
        mbd.Body(name, mbd.Inertia.box(size=size, mass=1.0), position=[x, 0.0, 0.0])
        for name, size, x in parts
    )
    pins = [("shaft", "ground", crank, 0.0), ("crank pin", crank, rod, 0.2)]
    pins += [("piston pin", rod, slider, 0.8)]
    joints = [mbd.Revolute(name, a, b, point=[x, 0.0, 0.0], axis=SIDE) for name, a, b, x in pins]
    joints.append(mbd.Prismatic("guide", "ground", slider, point=[0.8, 0.0, 0.0], axis=ALONG))
    return mbd.Mechanism([crank, rod, slider], joints)


def main():
    jax.config.update("jax_enable_x64", True)
    mechanism = slider_crank()
    state = mbd.close_joints(mechanism, mbd.place_bodies(mechanism, {"shaft": -0.8}))
    figure, axis = plt.subplots(figsize=(7.0, 2.6))
    mbd.plots.draw(mechanism, state.q, axis, plane="xz")
    axis.axis("off")
    matplotlib.rcParams["svg.hashsalt"] = "parts"
    path = DOCS / "img/slider-crank-parts.svg"
    figure.savefig(path, bbox_inches="tight", pad_inches=0.02, metadata={"Date": None})


if __name__ == "__main__":
    main()
