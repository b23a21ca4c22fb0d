"""Many rollouts at once: steps per second of batches of four-bars and chains, with gradients.

The systems are the four-bar and the chain of `chains.py`, with a method of first order
(`VelocityImpulse`). Each sample has its own gravity and initial speeds. `mbd.rollout.run` computes
them on the devices of this process. MuJoCo MJX, if it is installed, runs with the same steps and
chunks. The gradient is that of a number at the end with respect to the factors on gravity and
speeds, in reverse mode through all steps. For each size of the batch the table has the steps of all
samples per second, memory and chunk of a device, and seconds of compilation. On a GPU it also has
the kernels that a step of a chunk launches, and their time, from a profile.

    python benchmarks/rollouts.py
    python benchmarks/rollouts.py --samples 1024 16384 131072 --links 5 --float32    # on a GPU
    python benchmarks/rollouts.py --peaks 34e12 4.8e12      # operations/s and bytes/s of a device

With `--peaks` the table also has the speed as a share of two bounds. The bound by arithmetic counts
the floating-point operations of a step, as reported by the compiler. The bound by memory assumes
that a step only reads and writes the state. The larger share belongs to the bound that matters.
"""

import argparse
import os
import platform
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "")  # any device; `chains` would select the CPU

import chains
import jax
import jax.numpy as jnp
import numpy as np
from measuring import NO_FUSION, Simulation, compiled, gpu_kernels
from tqdm import tqdm

import jaxmbd as mbd


def forward(end: Simulation) -> Callable:
    return lambda factors, key: end(factors)[0]


def gradient(end: Simulation) -> Callable:
    return lambda factors, key: jax.grad(lambda x: end(x)[0])(factors)


def factors_of(n: int) -> np.ndarray:
    """The factors on gravity and on the initial speeds of each sample."""
    dtype = jnp.result_type(float)
    return np.stack([np.linspace(0.9, 1.0, n), np.linspace(0.5, 1.0, n)], axis=1).astype(dtype)


def measure(one: Callable, n: int, steps: int, options: dict | None) -> dict[str, Any]:
    mean = mbd.rollout.Mean()

    def run():
        return mbd.rollout.run(
            one, factors_of(n), reductions=mean, compiler_options=options, progress=False
        )

    first = run()
    best = min((run() for _ in range(3)), key=lambda x: x.seconds)
    row = {
        "steps/s": n * steps / best.seconds,
        "MB": best.bytes / 2**20,
        "chunk": best.chunk,
        "compile s": first.seconds_to_compile,
        "failed": len(best.failures),
    }
    if jax.default_backend() == "gpu":
        kernels, seconds = gpu_kernels(run)
        chunks = -(-n // best.chunk)
        row["kernels a step"] = kernels / (steps * chunks)
        row["their us"] = 1e6 * seconds / (steps * chunks)
    return row


def shares(make, n: int, state: int, steps_per_s: float, peaks: list[float]) -> dict[str, Any]:
    """The speed as a share of the bounds by arithmetic and by memory."""
    one = forward(make(1))
    step, _ = compiled(jax.vmap(lambda x: one(x, None)), jnp.asarray(factors_of(n)), None)
    operations = step.cost_analysis().get("flops", np.nan) / n
    moved = 2 * state * jnp.dtype(float).itemsize
    return {
        "share of arithmetic": f"{steps_per_s * operations / peaks[0]:.2%}",
        "share of memory": f"{steps_per_s * moved / peaks[1]:.2%}",
    }


def report(name: str, row: dict[str, Any]) -> None:
    parts = [f"{k} {v if isinstance(v, str) else format(v, '.3g')}" for k, v in row.items()]
    tqdm.write(f"  {name:28s} " + ", ".join(parts))


def compare(title: str, makers: dict[str, tuple], state: int, arguments) -> None:
    tqdm.write(title)
    for n in tqdm(arguments.samples, desc=title, leave=False):
        for name, (make, options) in makers.items():
            for kind in (forward, gradient):
                label = f"{name}, {n}, {kind.__name__}"
                try:
                    row = measure(kind(make(arguments.steps)), n, arguments.steps, options)
                    if arguments.peaks and kind is forward and name == "jaxmbd":
                        row |= shares(make, n, state, row["steps/s"], arguments.peaks)
                    report(label, row)
                except Exception as error:  # report what a simulator cannot do
                    reason = str(error).strip().split("\n")[0][:100]
                    tqdm.write(f"  {label:28s} left out: {type(error).__name__}: {reason}")


def makers_of(mechanism: mbd.Mechanism, xml: str, dt: float, at_start: float, rate: float):
    """For each simulator, a function of the number of steps that returns the simulation, and
    compiler options."""
    own = lambda steps: chains.own(mechanism, dt, steps)  # noqa: E731
    makers: dict[str, tuple] = {"jaxmbd": (own, None)}
    try:
        import mujoco.mjx  # noqa: F401
    except ImportError:
        tqdm.write("MuJoCo MJX is not installed: left out")
        return makers
    mjx = lambda steps: chains.mjx(xml, steps, at_start, rate)  # noqa: E731
    return makers | {"MJX": (mjx, None), "MJX, no fusion": (mjx, NO_FUSION)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 64, 4096])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--peaks", type=float, nargs=2, metavar=("OPERATIONS", "BYTES"))
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", not arguments.float32)
    device = jax.local_devices()[0].device_kind
    device = platform.processor() or platform.machine() if device == "cpu" else device
    print(f"{len(jax.local_devices())} x {device}, jax {jax.__version__}, {jnp.dtype(float)}")

    for title, mechanism, xml, dt, start in (
        ("four-bar", chains.four_bar(), chains.mjcf_four_bar(1e-3), 1e-3, (0.0, 0.0)),
        (
            f"chain of {arguments.links}",
            chains.chain(arguments.links),
            chains.mjcf_chain(arguments.links, 2e-3),
            2e-3,
            (chains.ANGLE, chains.RATE),
        ),
    ):
        state = mechanism.state()
        makers = makers_of(mechanism, xml, dt, *start)
        compare(title, makers, state.q.size + state.v.size, arguments)


if __name__ == "__main__":
    main()
