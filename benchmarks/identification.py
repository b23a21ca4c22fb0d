"""A fit by forward sensitivities compared with the same fit by finite differences.

The system is the slider-crank on a flexible support of `examples/identify_spring_damper.py`. The
six unknowns are stiffness, damping and the initial state; the data are 101 noisy rows. All fits use
the method of Levenberg and Marquardt with the same guess and tolerance. Only the Jacobian differs.
The table has iterations, simulations (one with all tangents, or one for each unknown and the
nominal one), seconds without compilation, and the distance of the estimates from those of the first
fit.

    taskset -c 0 python benchmarks/identification.py
"""

import dataclasses
import os
import pathlib
import platform
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import equinox as eqx
import identify_spring_damper as crank
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._results import succeeded
from jaxmbd.identify import least_squares
from jaxmbd.identify.problem import SimulationOptions, make_problem


class ByDifferences(eqx.Module):
    """Residuals with a Jacobian by forward or central differences, with a simulation for each."""

    residuals: eqx.Module
    step: float
    central: bool = eqx.field(static=True)

    def __call__(self, y, args):
        return self.residuals(y, args)

    def jacobian(self, y, args):
        flat, unravel = ravel_pytree(y)
        at = lambda x: self.residuals(unravel(x), args)  # noqa: E731
        shifts = self.step * jnp.eye(flat.size)
        r = at(flat)
        ahead = jax.lax.map(lambda d: at(flat + d), shifts)
        if self.central:
            behind = jax.lax.map(lambda d: at(flat - d), shifts)
            return r, (ahead - behind).T / (2 * self.step), None
        return r, (ahead - r).T / self.step, None


def main():
    jax.config.update("jax_enable_x64", True)
    times = np.linspace(0.0, 1.0, 101)
    q, v = jax.jvp(crank.points, (jnp.array([0.51, 0.001]),), (jnp.array([11.9, 0.01]),))
    record = dataclasses.replace(crank.made_record(times=times), start=mbd.State(0.0, q, v))
    problem = make_problem(
        crank.SliderCrank(*(jnp.asarray(1.2 * value) for value in crank.TRUTH.values())),
        {"stiffness": identify.Positive(), "damping": identify.Positive()},
        [record],
        crank.SENSORS,
        SimulationOptions(crank.STEP, mbd.UdwadiaKalaba(solver=mbd.Cholesky()), None),
        identify.UnknownStart(position=0.1, velocity=1.0),
        identify.SingleShooting(),
        identify.Squares(),
    )
    exact, data, count = problem.residuals, problem.data, problem.size
    guess = jnp.zeros(count)
    kinds = {
        "forward sensitivities": (exact, 1),
        "forward differences": (ByDifferences(exact, 1e-7, False), count + 1),
        "central differences": (ByDifferences(exact, 1e-5, True), 2 * count + 1),
    }
    print(f"{platform.machine()}, {os.cpu_count()} cores, jax {jax.__version__}, {count} unknowns")
    found = {}
    for name, (residuals, simulations) in kinds.items():
        options = dict(scale=0.07, progress=False, tolerance=1e-9, max_iterations=60)
        least_squares(residuals, guess, data, **options)  # compiles
        result = found[name] = least_squares(residuals, guess, data, **options)
        best = found["forward sensitivities"]
        off = ravel_pytree(result.value)[0] - ravel_pytree(best.value)[0]
        sigmas = float(jnp.max(jnp.abs(off / ravel_pytree(best.sigma)[0])))
        each = "" if succeeded(result.result) else ", not converged"
        print(
            f"{name:22} {result.iterations:3d} iterations, {simulations * result.iterations:4d} "
            f"simulations, {result.seconds:6.2f} s ({best.seconds / result.seconds:.2f}), rms "
            f"{result.rms:.8g} m, estimates off by {sigmas:.1e} sigma{each}"
        )


if __name__ == "__main__":
    main()
