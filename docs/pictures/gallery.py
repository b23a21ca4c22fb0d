"""Pictures of examples for the gallery. Each script runs and draws. Its picture is made small.

    python docs/pictures/gallery.py                    # all; takes half an hour
    python docs/pictures/gallery.py four_bar pendulum  # these

writes docs/img/examples/*.webp.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/img/examples"
WIDTH, LIMIT = 1000, 150_000  # pixels, bytes

# Arguments that keep a run short.
SHORT = {"biped": ["--seconds", "10"], "pendulum": ["--seconds", "100"]}

# The gallery shows other pictures of these: moving ones, poses, and those of other pages.
ELSEWHERE = (
    "car_suspension", "cart_pole_environment", "hold_a_plan", "identify_belt", "identify_drive",
    "identify_pendulum", "identify_rig",
    "linkage_synthesis", "monte_carlo", "posterior_pendulum", "rimless_wheel", "robot_arm",
    "six_r_loop", "stack_of_boxes", "swing_up",
)  # fmt: skip


def run(script, folder):
    """The picture that an example draws."""
    picture = pathlib.Path(folder) / f"{script.stem}.png"
    options = SHORT.get(script.stem, [])
    subprocess.run(
        [sys.executable, script, *options, "--output", picture],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    return Image.open(picture).convert("RGB")


def save(picture, name):
    if picture.width > WIDTH:
        size = (WIDTH, round(picture.height * WIDTH / picture.width))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    path = FOLDER / f"{name}.webp"
    for quality in (90, 80, 70, 60, 50):
        picture.save(path, quality=quality, method=6)
        if path.stat().st_size <= LIMIT:
            return path
    raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {LIMIT}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="scripts in examples/, without .py")
    names = parser.parse_args().names
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = []
    for script in sorted((ROOT / "examples").glob("*.py")):
        if script.stem not in names if names else script.stem in ELSEWHERE:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = save(run(script, folder), script.stem)
            except subprocess.CalledProcessError as error:
                failed.append(f"{script.stem}: exit {error.returncode}")
                continue
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB", flush=True)
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
