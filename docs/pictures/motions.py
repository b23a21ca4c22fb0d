"""Moving pictures of the documentation.

    python docs/pictures/motions.py            # all; takes minutes
    python docs/pictures/motions.py four_bar   # one

writes docs/img/*.webp.
"""

import argparse
import pathlib
import sys
import tempfile

import diffrax
import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import jaxmbd as mbd

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/img"
FPS = 25
sys.path.insert(0, str(ROOT / "examples"))


def save(animation, name, fps=FPS, limit=150_000):
    """An animation of matplotlib as a WebP that repeats for ever."""
    with tempfile.TemporaryDirectory() as folder:
        gif = pathlib.Path(folder) / "motion.gif"
        animation.save(gif, writer=matplotlib.animation.PillowWriter(fps=fps))
        recorded = Image.open(gif)
        frames = []
        for i in range(recorded.n_frames):
            recorded.seek(i)
            frames.append(recorded.convert("RGB"))
    write(frames, FOLDER / f"{name}.webp", fps, limit)


def write(frames, path, fps, limit):
    """The best picture within the limit [bytes]: first at lower quality, then with fewer frames."""
    for every, quality in ((1, 75), (1, 50), (2, 60), (2, 40), (3, 40), (4, 30)):
        kept = frames[::every]
        kept[0].save(
            path,
            save_all=True,
            append_images=kept[1:],
            duration=1000 * every // fps,
            loop=0,
            quality=quality,
            method=6,
        )
        if path.stat().st_size <= limit:
            print(f"{path.name}: {len(kept)} frames, {path.stat().st_size // 1000} kB")
            return
    raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {limit}.")


def first_block(page):
    """What the first Python block of a page of the documentation has computed."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = {}
    exec(text.split("```python\n", 1)[1].split("```", 1)[0], found)
    return found


def axes(size, **limits):
    figure, axis = plt.subplots(figsize=size, dpi=100)
    figure.subplots_adjust(0, 0, 1, 0.9)  # the time stands above
    axis.set(**limits)
    axis.set_aspect("equal")
    axis.axis("off")
    return axis


def four_bar():
    """The linkage of the front page, with the path of the middle of its coupler."""
    linkage = first_block("index.md")["linkage"]
    saveat = diffrax.SaveAt(t0=True, steps=5)
    motion = mbd.simulate(
        linkage, mbd.UdwadiaKalaba(), linkage.state(), t1=4.0, dt=4e-3, saveat=saveat
    )
    path = np.asarray(linkage.pose(motion.q, "bar 1").position)
    axis = axes((5.6, 3.4))
    (trace,) = axis.plot([], [], color="#e07b00", lw=1.8, alpha=0.8, zorder=0)
    drawn = mbd.plots.animate(linkage, motion, fps=FPS, ax=axis, plane="xz")
    axis.axis("off")
    axis.set_title("")
    times = np.asarray(motion.t)

    def show(i, inner=drawn._func):
        artists = inner(i)
        upto = np.searchsorted(times, times[0] + i / FPS) + 1
        trace.set_data(path[:upto, 0], path[:upto, 2])
        return artists

    drawn._func = show
    save(drawn, "four-bar-motion", limit=400_000)


def six_r_loop():
    import six_r_loop as example

    mechanism, sol, _ = example.run(3.0)
    figure = plt.figure(figsize=(4.4, 3.8), dpi=100)
    figure.subplots_adjust(-0.1, -0.1, 1.1, 1.1)
    axis = figure.add_subplot(projection="3d")
    drawn = mbd.plots.animate(mechanism, sol, fps=FPS, ax=axis)
    axis.set_axis_off()
    sizes = [np.ptp(limit) for limit in (axis.get_xlim(), axis.get_ylim(), axis.get_zlim())]
    axis.set_box_aspect(sizes, zoom=1.5)
    save(drawn, "examples/six_r_loop")


def rimless_wheel():
    import jax.numpy as jnp
    import rimless_wheel as example

    mechanism, sol = example.walk(jnp.asarray(example.SLOPE), t1=3.0)
    axis = axes((6.4, 2.6))
    save(mbd.plots.animate(mechanism, sol, fps=FPS, ax=axis, plane="xz"), "examples/rimless_wheel")


def stack_of_boxes():
    import jax.numpy as jnp
    import stack_of_boxes as example

    friction, speed = jnp.asarray(example.FRICTION), jnp.asarray(example.SPEED)
    mechanism = example.stack_and_ball(example.FRICTION, speed)
    sol = jax.jit(lambda mu, v: example.simulate(mu, v, t1=1.0)[1])(friction, speed)
    axis = axes((5.6, 3.6), xlim=(-0.5, 1.5), ylim=(-0.1, 1.0))
    drawn = mbd.plots.animate(mechanism, sol, fps=FPS, ax=axis, plane="xz", speed=0.3)
    save(drawn, "examples/stack_of_boxes")


MOTIONS = (four_bar, six_r_loop, rimless_wheel, stack_of_boxes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    for make in MOTIONS:
        if not names or make.__name__ in names:
            make()


if __name__ == "__main__":
    main()
