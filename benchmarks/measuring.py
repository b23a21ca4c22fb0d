"""Timing, compiling and printing for the comparisons with other simulators."""

import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

# With fusion, programs of MuJoCo MJX compute many values several times.
NO_FUSION = {"xla_disable_hlo_passes": "fusion"}

# The end of a simulation as a function of two factors, on gravity and on the initial speeds. It
# returns a number to differentiate, and data from which figures of accuracy are computed.
Simulation = Callable[[jax.Array], tuple[jax.Array, Any]]


def best_of(fn, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn())
        times.append(time.perf_counter() - start)
    return min(times)


def gpu_kernels(run: Callable[[], Any]) -> tuple[int, float]:
    """How many kernels and copies a run takes on GPUs, and their seconds, from a profile."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        seconds = [
            event.duration_ns * 1e-9
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes
            for line in plane.lines
            if plane.name.startswith("/device:GPU") and line.name.startswith("Stream")
            for event in line.events
        ]
    return len(seconds), sum(seconds)


def compiled(fn, argument, options):
    began = time.perf_counter()
    run = jax.jit(fn, compiler_options=options).lower(argument).compile()
    return run, time.perf_counter() - began


def measure(
    end: Simulation,
    steps: int,
    figures: Callable[[Any], dict[str, Any]],
    *,
    batch: int = 0,
    gradient: bool = True,
    options: dict | None = None,
) -> dict[str, Any]:
    """Measure a simulator in JAX. `figures` computes the figures of accuracy, by name."""
    ones = jnp.ones(2)
    run, seconds = compiled(end, ones, options)
    _, rest = run(ones)
    forward = best_of(lambda: run(ones))
    row = {"steps_per_s": steps / forward, "compile s": seconds, **figures(rest)}
    if gradient:
        loss = lambda x: end(x)[0]  # noqa: E731
        try:
            run, seconds = compiled(jax.grad(loss), ones, options)
        except ValueError as error:
            row["no gradient"] = str(error).split(".")[0]
        else:
            finite = bool(np.all(np.isfinite(run(ones))))
            row["gradient/forward"] = (
                best_of(lambda: run(ones)) / forward if finite else "not finite"
            )
            row["compile gradient s"] = seconds
            row["gradient MB"] = run.memory_analysis().temp_size_in_bytes / 2**20
    if batch:
        many = jnp.stack([jnp.linspace(0.9, 1.0, batch), jnp.linspace(0.5, 1.0, batch)], axis=1)
        run, _ = compiled(jax.vmap(end), many, options)
        run(many)
        row["batch steps/s"] = batch * steps / best_of(lambda: run(many))
    return row


def report(name: str, bodies: int, row: dict[str, Any], own_row: dict[str, Any]) -> None:
    us = 1e6 / row["steps_per_s"]
    parts = [f"{us:9.2f} us/step", f"{us / bodies:7.3f} /body"]
    for key, value in row.items():
        if key != "steps_per_s":
            parts.append(f"{key} {value if isinstance(value, str) else format(value, '.3g')}")
    if row is not own_row:
        parts.append(f"jaxmbd is {own_row['steps_per_s'] / row['steps_per_s']:.2f} times as fast")
    tqdm.write(f"  {name:17s} " + ", ".join(parts))


def compare(title: str, bodies: int, own_row: dict[str, Any], peers: dict[str, Callable]) -> None:
    tqdm.write(title)
    report("jaxmbd", bodies, own_row, own_row)
    for name, run in tqdm(peers.items(), desc=title, leave=False):
        try:
            report(name, bodies, run(), own_row)
        except Exception as error:  # report what a simulator cannot do
            reason = str(error).strip().split("\n")[0][:120]
            tqdm.write(f"  {name:17s} left out: {type(error).__name__}: {reason}")
