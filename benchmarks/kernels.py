"""Steps per second of batches in one kernel, beside XLA's `vmap`, and whether they agree.

    python benchmarks/kernels.py                  # all of it, in less than five minutes on a GPU
    python benchmarks/kernels.py --cases chain5 box --kinds gradient --samples 16384
    python benchmarks/kernels.py --cpu            # in float64, small, without a GPU

Cases: a chain of five and a four-bar (`chains.py`), a box that slides on a slope and a robot on
four feet (`contacts.py`), a pendulum, and the cart with a pole between walls of the example. Each
sample has its own gravity and initial speeds. `value` is a number at the end of 100 steps,
`gradient` adds its derivatives by both in reverse mode. A kernel has one thread for each sample
(`thread`), or 32 (`lanes`). MuJoCo MJX runs the chain, the four-bar and the robot, if it is
installed. The case `learning` is the mean reward of 64 steps of the example, with a policy between
steps that `mbd.rollout.kernel` makes kernels (`marked`), and its derivatives by the weights.

Each row has millions of steps of all samples in a second, the largest difference from XLA relative
to the largest number, whether three runs gave the same bits, seconds from the traced program to the
compiled kernel, and its memory for each sample. Each case has a process and a limit of time of its
own. What comes first matters most.

On a CPU kernels are compiled without optimisation, and XLA computes one sample after the other. So
kernels had 0.3 to 1.7 times the speed of XLA, 0.1 to 0.24 for the robot and `learning`. They were
compiled in half of its time, and differed from it by at most 4e-15.
"""

import argparse
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from unittest import mock

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
from jax import lax
from measuring import best_of

import jaxmbd as mbd
from jaxmbd._kernels import Function

CASES = ("chain5", "four_bar", "box", "pendulum", "cart_pole", "learning", "robot")
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


def learning(kind: str, mark: Callable) -> Callable:
    """The mean reward of the samples of the example, or its derivatives by the policy, with a step
    that is marked. It takes an array with a row for each sample."""
    import cart_pole_environment as example

    def found(x):
        environment, keys = example.Environment(), jax.random.split(jax.random.key(0), len(x) + 2)
        policy = eqx.nn.MLP(4, "scalar", 32, 1, jnp.tanh, key=keys[-1])
        states = jax.vmap(environment.reset)(keys[: len(x)])
        with mock.patch.object(mbd.rollout, "kernel", mark):
            both = eqx.filter_value_and_grad(example.by_derivatives, has_aux=True)
            fn = example.by_derivatives if kind == "value" else both
            found = fn(policy, environment, states, keys[-2])
        return found[0] if kind == "value" else (found[0][0], found[1])

    return found


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


def failure(error: Exception) -> str:
    return f"left out: {type(error).__name__}: {str(error)[:200]}"


def of_kernels(case: str, kind: str, steps: int, name: str) -> dict[str, Callable]:
    """Functions of all samples by their form."""
    on_cpu = jax.default_backend() == "cpu"
    if case == "learning":
        mark = functools.partial(mbd.rollout.kernel, on_cpu=True) if on_cpu else mbd.rollout.kernel
        return {"marked": learning(kind, mark)}
    end, found = own_of(case, kind, steps), {}
    for form, lanes in LANES.items():
        if lanes > 1 and on_cpu:
            continue
        began = time.perf_counter()
        try:
            made = Function(end, [jax.typeof(factors(1)[0])], [False], [lanes])
            made.load(jax.local_devices()[:1])
        except Exception as error:  # report what cannot be made
            say(name, form, failure(error))
        else:
            found[form] = lambda x, made=made: made(len(x), x)
            seconds, memory = time.perf_counter() - began, made.source.scratch
            say(name, form, f"made in {seconds:.1f} s, {memory} bytes of memory a sample")
    return found


def own_of(case: str, kind: str, steps: int) -> Callable:
    return own(case, steps) if kind == "value" else jax.value_and_grad(own(case, steps))


def of_peers(case: str, kind: str, steps: int) -> dict[str, Callable]:
    if case == "learning":
        return {"XLA": learning(kind, lambda fn: fn)}
    each = jax.vmap if jax.default_backend() != "cpu" else lambda fn: functools.partial(lax.map, fn)
    peers = {"XLA": each(own_of(case, kind, steps))}
    if kind == "value" and importlib.util.find_spec("mujoco.mjx"):
        end = in_mjx(case, steps)
        peers |= {} if end is None else {"MJX": jax.vmap(end)}
    return peers


def measure(case: str, kind: str, samples: list[int], steps: int, until: float) -> None:
    """Print the rows of a case, as long as there is time."""
    warnings.filterwarnings("ignore", "Explicitly requested dtype")  # float64, in float32
    name = f"{case:9s} {kind:8s} {jnp.result_type(float)}"
    steps = 64 if case == "learning" else steps
    kernels, peers = of_kernels(case, kind, steps, name), of_peers(case, kind, steps)
    for n in samples:
        x, rows = factors(n), {}
        for form, fn in (kernels | peers).items():
            if form in peers and time.time() > until:
                continue
            run, began = jax.jit(fn), time.perf_counter()
            try:
                found = jax.device_get(run(x))
                seconds = time.perf_counter() - began
                rate = n * steps / best_of(lambda: run(x)) / 1e6  # noqa: B023
                say(name, f"{n:7d}", f"{form:7s}", f"{rate:10.3f}  after {seconds:.1f} s")
                rows[form] = [found] + [jax.device_get(run(x)) for _ in range(2)]
            except Exception as error:  # such as too little memory
                say(name, f"{n:7d}", f"{form:7s}", failure(error))
        for form in kernels.keys() & rows.keys() if "XLA" in rows else ():
            runs = [list(map(np.asarray, jax.tree.leaves(run))) for run in rows[form]]
            pairs = [pair for other in runs[1:] for pair in zip(runs[0], other, strict=True)]
            same = all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
            far = difference(rows[form][0], rows["XLA"][0])
            bits = "same" if same else "different"
            say(name, f"{n:7d}", f"{form:7s}", f"{far:.1e} from XLA, {bits} bits in three runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--dtypes", nargs="*", default=None, choices=DTYPES)
    parser.add_argument("--samples", type=int, nargs="*", default=None)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=290.0, help="for all cases")
    parser.add_argument("--cpu", action="store_true", help="few samples and steps, without a GPU")
    parser.add_argument("--alone", action="store_true", help="in this process, without a limit")
    options = parser.parse_args()
    samples = options.samples or ([8] if options.cpu else [1024, 16384, 131072])
    steps = options.steps or (10 if options.cpu else 100)
    dtypes, seconds = options.dtypes or (DTYPES[1:] if options.cpu else DTYPES), options.seconds
    if options.alone:
        for dtype in dtypes:
            jax.config.update("jax_enable_x64", dtype == "float64")
            for kind in options.kinds:
                for case in options.cases:
                    measure(case, kind, samples, steps, time.time() + seconds)
        return
    print("millions of steps of all samples in a second", flush=True)
    began, shared = time.time(), ["--samples", *map(str, samples), "--steps", str(steps)]
    jobs = [([d], [k], c) for d in dtypes for k in options.kinds for c in options.cases]
    if options.cpu:  # the start of a process takes longer than many a case
        jobs = [(dtypes, options.kinds, c) for c in options.cases]
    for done, (types, kinds, case) in enumerate(jobs):
        left = seconds - (time.time() - began)
        # What is quick leaves its time to the others.
        limit = min(left, max(20.0, 4 * left / (len(jobs) - done)))
        name = " ".join([case, *kinds, *types])
        if left < 10:
            print(f"no time left for {name}")
            continue
        command = [sys.executable, __file__, "--alone", "--cases", case, "--kinds", *kinds, *shared]
        command += ["--dtypes", *types, "--seconds", str(0.6 * limit)]
        command += ["--cpu"] if options.cpu else []
        try:
            subprocess.run(command, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {limit:.0f} s", flush=True)


if __name__ == "__main__":
    main()
