"""Pictures of mechanisms of examples for the gallery, at their start.

    python docs/pictures/poses.py

writes docs/img/examples/*.webp.
"""

import pathlib
import sys

import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import jaxmbd as mbd

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/img/examples"
sys.path.insert(0, str(ROOT / "examples"))


def save(axis, name):
    axis.set_axis_off()
    options = dict(dpi=150, bbox_inches="tight", pad_inches=0.05)
    axis.figure.savefig(FOLDER / f"{name}.webp", pil_kwargs={"quality": 85}, **options)
    plt.close(axis.figure)


def robot_arm():
    import robot_arm as example

    arm = example.robot_arm()
    state = mbd.place_bodies(arm, {"base": 0.7, "shoulder": -0.6, "elbow": 1.0})
    save(mbd.plots.draw(arm, state.q), "robot_arm")


def car_suspension():
    import car_suspension as example

    car = example.quarter_car(*example.TRUTH)
    save(mbd.plots.draw(car, plane="xz", frames=False), "car_suspension")


def main():
    jax.config.update("jax_enable_x64", True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    robot_arm()
    car_suspension()


if __name__ == "__main__":
    main()
