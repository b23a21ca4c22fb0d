"""Steps per second of batches in one kernel, beside XLA's `vmap`, and whether they agree.

    python benchmarks/kernels.py                  # all of it, in less than five minutes on a GPU
    python benchmarks/kernels.py --cases chain5 box --kinds gradient --samples 16384
    python benchmarks/kernels.py --cpu            # all of it, small, without a GPU

Cases: a chain of five and a four-bar (`chains.py`), a box that slides on a slope and a robot on
four feet (`contacts.py`), a pendulum, and the cart with a pole between walls of the example. Each
sample has its own gravity and initial speeds. `value` is a number at the end of 100 steps,
`gradient` adds its derivatives by both in reverse mode. A kernel has one thread for each sample
(`thread`), or 32 (`lanes`). MuJoCo MJX runs the chain, the four-bar and the robot, if it is
installed.

Each row has millions of steps of all samples in a second, the largest difference from XLA relative
to the largest number, whether three runs gave the same bits, seconds from the traced program to the
compiled kernel, and its memory for each sample. Each case has a process and a limit of time of its
own. What comes first matters most.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

if "--cpu" in sys.argv:
    os.environ["JAX_PLATFORMS"] = "cpu"
else:
    os.environ.setdefault("JAX_PLATFORMS", "")  # any device; `chains` would select the CPU

# Other processes of this script need memory of the device too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measuring import best_of

import jaxmbd as mbd
from jaxmbd._kernels import Function

CASES = ("chain5", "four_bar", "box", "robot", "pendulum", "cart_pole")
KINDS = ("value", "gradient")
DTYPES = ("float32", "float64")
LANES = {"thread": 1, "lanes": 32}


class Pendulum(mbd.AbstractSystem):
    """A point on a rod of length 1."""

    gravity: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(self.gravity), -self.gravity])

    def constraint(self, q, t):
        return q @ q - 1


def motion(system, method, start, x, dt: float, steps: int):
    """A number at the end, from a start whose speeds are multiplied."""
    state = mbd.State(0.0, start.q, start.v * x[1])
    found = mbd.simulate(system, method, state, dt=dt, num_steps=steps, throw=False)
    return jnp.sum(found.q[-1] ** 3)  # the sum of squares may be constant


def of_mechanism(mechanism: mbd.Mechanism, method, dt: float, steps: int) -> Callable:
    start = mechanism.state()

    def end(x):
        pulled = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
        return motion(pulled, method, start, x, dt, steps)

    return end


def box() -> mbd.Mechanism:
    inertia = mbd.Inertia.box(size=[0.2, 0.2, 0.1], mass=1.0)
    body = mbd.Body("box", inertia, position=[0.0, 0.0, 0.05], velocity=[1.0, 0.0, 0.0])
    shape, floor = mbd.Box(size=[0.2, 0.2, 0.1]), mbd.HalfSpace()
    contact = mbd.Contact("floor", "ground", body, floor, shape, friction=0.4)
    return mbd.Mechanism([body], contacts=[contact])


def of_pendulum(steps: int) -> Callable:
    start, method = mbd.State(0.0, [1.0, 0.0], [0.0, -0.5]), mbd.UdwadiaKalaba()
    return lambda x: motion(Pendulum(9.81 * x[0]), method, start, x, 1e-3, steps)


def of_cart_pole(steps: int) -> Callable:
    from cart_pole_environment import DT, Environment

    stepper = Environment().stepper

    def end(x):
        state = stepper.init(mbd.State(0.0, jnp.stack([0.0, 0.1]), 0.1 * x))
        step = lambda state, _: (stepper.step(state, DT, -x[0] * state.q[1]), None)  # noqa: E731
        state, _ = jax.lax.scan(step, state, None, length=steps)
        return jnp.sum(state.q**3)

    return end


def own(case: str, steps: int) -> Callable:
    import chains
    import contacts

    impulse, contact = mbd.VelocityImpulse(), mbd.ContactImpulse()
    makers = {
        "chain5": lambda: of_mechanism(chains.chain(5), impulse, 2e-3, steps),
        "four_bar": lambda: of_mechanism(chains.four_bar(), impulse, 1e-3, steps),
        "box": lambda: of_mechanism(box(), contact, 1e-3, steps),
        "robot": lambda: of_mechanism(contacts.robot().mechanism, contact, 2e-3, steps),
        "pendulum": lambda: of_pendulum(steps),
        "cart_pole": lambda: of_cart_pole(steps),
    }
    return makers[case]()


def in_mjx(case: str, steps: int) -> Callable | None:
    import chains
    import contacts

    if case == "chain5":
        end = chains.mjx(chains.mjcf_chain(5, 2e-3), steps, chains.ANGLE, chains.RATE)
    elif case == "four_bar":
        end = chains.mjx(chains.mjcf_four_bar(1e-3), steps, 0.0, 0.0)
    elif case == "robot":
        end = contacts.mjx(contacts.robot(), 2e-3, steps)
    else:
        return None
    return lambda x: end(x)[0]


def factors(n: int) -> jax.Array:
    """On gravity and on the initial speeds, of each sample."""
    return jnp.stack([jnp.linspace(0.9, 1.0, n), jnp.linspace(0.5, 1.0, n)], axis=1)


def difference(found, expected) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    distance = lambda a, b: np.max(np.abs(a - b)) / np.max(np.abs(b))  # noqa: E731
    return max(float(distance(np.asarray(a), np.asarray(b))) for a, b in pairs)


def say(*parts: str) -> None:
    print("  ".join(parts), flush=True)


def measured(run: Callable, n: int, steps: int) -> str:
    return f"{n * steps / best_of(run) / 1e6:10.3f}"


def measure(case: str, kind: str, samples: list[int], steps: int, until: float) -> None:
    """Print the rows of a case, as long as there is time."""
    value = own(case, steps)
    end = value if kind == "value" else jax.value_and_grad(value)
    warnings.filterwarnings("ignore", "Explicitly requested dtype")  # float64, in float32
    name = f"{case:9s} {kind:8s} {jnp.result_type(float)}"
    kernels = {}
    on_cpu = jax.default_backend() == "cpu"
    for form, lanes in LANES.items():
        if lanes > 1 and on_cpu:
            continue
        began = time.perf_counter()
        try:
            kernels[form] = Function(end, [jax.typeof(factors(1)[0])], [False], [lanes])
            kernels[form].load(jax.local_devices()[:1])
        except Exception as error:  # report what cannot be made
            say(name, form, f"left out: {type(error).__name__}: {str(error)[:200]}")
            kernels.pop(form, None)
        else:
            seconds, memory = time.perf_counter() - began, kernels[form].source.scratch
            say(name, form, f"made in {seconds:.1f} s, {memory} bytes of memory a sample")
    for n in samples:
        x = factors(n)
        rows = {}
        for form, function in kernels.items():
            run = jax.jit(lambda x, function=function: function(len(x), x))
            try:
                rows[form] = [jax.device_get(run(x)) for _ in range(3)]
                say(name, f"{n:7d}", f"{form:7s}", measured(lambda: run(x), n, steps))  # noqa: B023
            except Exception as error:  # such as too little memory
                say(name, f"{n:7d}", form, f"left out: {type(error).__name__}: {str(error)[:200]}")
        peers = {"XLA": end}
        if kind == "value":
            try:
                peers["MJX"] = in_mjx(case, steps)
            except ImportError:
                pass
        for peer, fn in peers.items():
            if fn is None or time.time() > until:
                continue
            run = jax.jit(jax.vmap(fn))
            try:
                found = jax.device_get(run(x))
                say(name, f"{n:7d}", f"{peer:7s}", measured(lambda: run(x), n, steps))  # noqa: B023
            except Exception as error:
                say(name, f"{n:7d}", peer, f"left out: {type(error).__name__}: {str(error)[:200]}")
                continue
            for form, runs in rows.items() if peer == "XLA" else ():
                same = all(
                    np.array_equal(a, b, equal_nan=True)
                    for other in runs[1:]
                    for a, b in zip(jax.tree.leaves(runs[0]), jax.tree.leaves(other), strict=True)
                )
                far, bits = difference(runs[0], found), "same" if same else "different"
                say(name, f"{n:7d}", f"{form:7s}", f"{far:.1e} from XLA, {bits} bits in three runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES, choices=DTYPES)
    parser.add_argument("--samples", type=int, nargs="*", default=None)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, help="for all cases; 290, and 3600 on a CPU")
    parser.add_argument("--cpu", action="store_true", help="few samples and steps, without a GPU")
    parser.add_argument("--alone", action="store_true", help="in this process, without a limit")
    options = parser.parse_args()
    samples = options.samples or ([8] if options.cpu else [1024, 16384, 131072])
    steps = options.steps or (10 if options.cpu else 100)
    seconds = options.seconds or (3600 if options.cpu else 290)
    if options.alone:
        for dtype in options.dtypes:
            jax.config.update("jax_enable_x64", dtype == "float64")
            for kind in options.kinds:
                for case in options.cases:
                    measure(case, kind, samples, steps, time.time() + seconds)
        return
    print("millions of steps of all samples in a second", flush=True)
    began, shared = time.time(), ["--samples", *map(str, samples), "--steps", str(steps)]
    jobs = [(d, k, c) for d in options.dtypes for k in options.kinds for c in options.cases]
    for done, (dtype, kind, case) in enumerate(jobs):
        left = seconds - (time.time() - began)
        # What is quick leaves its time to the others.
        limit = min(left, max(20.0, 4 * left / (len(jobs) - done)))
        if left < 10:
            print(f"no time left for {case} {kind} {dtype}")
            continue
        command = [sys.executable, __file__, "--alone", "--cases", case, "--kinds", kind, *shared]
        command += ["--dtypes", dtype, "--seconds", str(0.6 * limit)]
        command += ["--cpu"] if options.cpu else []
        try:
            subprocess.run(command, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f"{case} {kind} {dtype}: stopped after {limit:.0f} s", flush=True)


if __name__ == "__main__":
    main()
