"""Cost of a step of the paper's examples: RK4, equation (16), float64, one core.

The table has microseconds per step, the same with `jnp.linalg.pinv` (the straightforward
implementation), the time of a gradient relative to the forward time, seconds to compile, and the
paper's figure of 2009. All figures come from one run. Compare ratios, not microseconds.

    taskset -c 0 python benchmarks/steps.py

Reference: Braun and Goldfarb (2009), section 5: 13.7 us (pendulum, 13.7 s for 10^6 steps), 189 us
(slider-crank, 18.9 s for 10^5) and 520 us (two four-bars, 5.2 s for 10^4) a step.
"""

import argparse
import os
import pathlib
import platform
import sys
import time
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import diffrax
import jax
import jax.numpy as jnp
import pendulum
import slider_crank
import two_four_bars
from jax.scipy.linalg import solve_triangular
from tqdm import tqdm

import jaxmbd as mbd


class LibraryPinv(mbd.solvers.AbstractConstraintSolver):
    """The straightforward implementation: M^-1 J^T G^+ = R^-1 C^+ by LAPACK's Cholesky factor and
    SVD."""

    def factorise(self, equations):
        L = jnp.linalg.cholesky(equations.M)
        C = solve_triangular(L, equations.J.T, lower=True).T
        return L, C, jnp.linalg.pinv(C)

    def free(self, factor, f):
        L, _, _ = factor
        return solve_triangular(L, solve_triangular(L, f, lower=True), lower=True, trans=1)

    def solve(self, factor, f, r):
        L, C, C_pinv = factor
        x = solve_triangular(L, f, lower=True)
        y = C_pinv @ (r - C @ x)
        return solve_triangular(L, x + y, lower=True, trans=1), C_pinv.T @ y

    def allows_dependent(self, factor):
        return factor[1].shape[0] > 1

    def dependent(self, factor):
        del factor
        return jnp.array(True)

    def null(self, factor, s):
        _, C, C_pinv = factor
        return s - C @ (C_pinv @ s)

    def result(self, factor):
        return mbd.RESULTS.where(
            jnp.all(jnp.isfinite(factor[2])),
            mbd.RESULTS.successful,
            mbd.RESULTS.singular_constraints,
        )


class Case(NamedTuple):
    name: str
    system: mbd.AbstractSystem
    state: mbd.State
    published: float  # us a step


def cases() -> list[Case]:
    crank = mbd.State(0.0, jnp.zeros(4), jnp.zeros(4))
    upright = jnp.array([0.0, 1.0, 1.0, 1.0, 2.0, 1.0])
    bars = mbd.State(0.0, upright, jnp.array([1.0, 0.0] * 3))
    return [
        Case("pendulum", pendulum.Pendulum(), pendulum.exact_start(), 13.7),
        Case("slider-crank", slider_crank.SliderCrank(), crank, 189.0),
        Case("two four-bars", two_four_bars.TwoFourBars(), bars, 520.0),
    ]


def best_seconds(fn, *args, repeats: int) -> float:
    """The fastest of several runs, in CPU seconds. Other work on the machine can only make a run
    slower."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(fn(*args))
        best = min(best, time.process_time() - start)
    return best


def compiled(fn, *args):
    """(compiled function, CPU seconds to trace and compile)."""
    start = time.process_time()
    result = jax.jit(fn).lower(*args).compile()
    return result, time.process_time() - start


def final_sum(state, solver, steps, dt=1e-3, **options):
    """A scalar function of the system, by `steps` steps."""

    def run(system):
        enforcement = mbd.UdwadiaKalaba(solver)
        t1 = steps * dt
        sol = mbd.simulate(system, enforcement, state, t1, dt, throw=False, **options)
        return jnp.sum(sol.q[-1])

    return run


def measure(case: Case, steps: int, repeats: int) -> dict[str, float]:
    forward, compile_forward = compiled(
        final_sum(case.state, mbd.solvers.Automatic(), steps), case.system
    )
    reference, _ = compiled(final_sum(case.state, LibraryPinv(), steps), case.system)
    ours = best_seconds(forward, case.system, repeats=repeats) / steps
    theirs = best_seconds(reference, case.system, repeats=repeats) / steps

    short = 1000
    run = final_sum(case.state, mbd.solvers.Automatic(), short)
    value, _ = compiled(run, case.system)
    checkpointed, compile_gradient = compiled(jax.grad(run), case.system)
    direct, _ = compiled(
        jax.grad(
            final_sum(case.state, mbd.solvers.Automatic(), short, adjoint=diffrax.DirectAdjoint())
        ),
        case.system,
    )
    base = best_seconds(value, case.system, repeats=5 * repeats)
    long, _ = compiled(
        jax.grad(final_sum(case.state, mbd.solvers.Automatic(), 100_000)), case.system
    )
    return {
        "us/step": ours * 1e6,
        "pinv us/step": theirs * 1e6,
        "speed-up": theirs / ours,
        "grad/forward": best_seconds(checkpointed, case.system, repeats=5 * repeats) / base,
        "direct/forward": best_seconds(direct, case.system, repeats=5 * repeats) / base,
        "MB at 1e5": long.memory_analysis().temp_size_in_bytes / 1e6,
        "compile s": compile_forward,
        "compile grad s": compile_gradient,
        "2009 us/step": case.published,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="steps of a timed run")
    parser.add_argument("--repeats", type=int, default=5, help="runs, of which the best counts")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = {
        case.name: measure(case, arguments.steps, arguments.repeats)
        for case in tqdm(cases(), desc="mechanisms")
    }
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64")
    columns = list(next(iter(rows.values())))
    print(f"{'':16}" + "".join(f"{name:>16}" for name in columns))
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{row[column]:16.3g}" for column in columns))


if __name__ == "__main__":
    main()
