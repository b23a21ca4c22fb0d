"""Solvers of nonlinear programs on PyPI, compared on one collocation problem.

The problem is the swing-up of a cart-pole (Kelly 2017) by Hermite-Simpson collocation, in minimal
and in redundant coordinates. All solvers get the same functions, compiled beforehand. `casadi` and
`ipyopt`, which both include IPOPT, are measured if they are installed: `pip install casadi ipyopt`.

    python benchmarks/nlp.py --steps 40
"""

import argparse
import importlib.metadata
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxmbd as mbd
from jaxmbd.trajopt.nlp import Evaluator
from jaxmbd.trajopt.transcribe import transcribe


class CartPole(mbd.AbstractSystem):
    """q = (x, angle), with angle 0 for the hanging pole."""

    def mass_matrix(self, q):
        c = 0.15 * jnp.cos(q[1])
        return jnp.array([[1.3, c], [c, 0.075]])

    def force(self, t, q, v, u):
        s = 0.15 * jnp.sin(q[1])
        return jnp.stack([u[0] + s * v[1] ** 2, -9.81 * s])


class CartBob(mbd.AbstractSystem):
    """q = (x, bob), with a constraint row for the rod."""

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 0.3, 0.3]))

    def force(self, t, q, v, u):
        return jnp.concatenate([u, jnp.array([0.0, -0.3 * 9.81])])

    def constraint(self, q, t):
        rod = q[1:] - q[0] * jnp.array([1.0, 0.0])
        return rod @ rod - 0.25


class Effort(eqx.Module):
    def __call__(self, t, q, v, u):
        return u @ u


class At(eqx.Module):
    q: jax.Array

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.q, v])


def swing_up(redundant: bool, steps: int):
    """The nonlinear program. The guess is a straight line between the angles."""
    s = jnp.linspace(0, 1, steps + 1)
    angle = jnp.pi * s
    if redundant:
        q = jnp.stack([s, s + jnp.sin(angle) / 2, -jnp.cos(angle) / 2], axis=1)
    else:
        q = jnp.stack([s, angle], axis=1)
    problem = mbd.trajopt.Problem(
        CartBob() if redundant else CartPole(),
        mbd.State(0.0, q[0], jnp.zeros_like(q[0])),
        2.0,
        steps,
        nu=1,
        running_cost=Effort(),
        final=At(q[-1]),
        lower=-20,
        upper=20,
    )
    guess = mbd.trajopt.Guess(q, jnp.zeros_like(q), jnp.zeros((steps + 1, 1)))
    method = mbd.trajopt.HermiteSimpson()
    return transcribe(problem, method, guess, (2.0, 2.0)).guarded


def own(solver):
    def run(program):
        found = solver.solve(program)
        return found.objective, found.iterations, found.message

    return run


def ipyopt(program):
    from ipyopt import Problem

    e = Evaluator(program)

    def fill(fn, *order):
        def filling(*arguments):
            arguments[-1][:] = fn(*(arguments[i] for i in order))

        return filling

    problem = Problem(
        len(e.start),
        e.lower,
        e.upper,
        len(e.row_lower),
        e.row_lower,
        e.row_upper,
        e.jacobian_places(),
        e.hessian_places(),
        e.objective,
        fill(e.gradient, 0),
        fill(e.rows, 0),
        fill(e.jacobian, 0),
        fill(e.hessian, 0, 2, 1),
        ipopt_options={"print_level": 0, "sb": "yes", "tol": 1e-8},
    )
    _, objective, status = problem.solve(e.start.copy())
    return objective, problem.stats["n_iter"], f"status {status}"


def casadi(program):
    import casadi as ca

    e = Evaluator(program)
    n, m = len(e.start), len(e.row_lower)

    def pattern(rows, columns, shape):
        """The sparsity pattern, and the function that sums values into its slots."""
        key, slot = np.unique(columns * shape[0] + rows, return_inverse=True)
        places = ca.Sparsity.triplet(*shape, (key % shape[0]).tolist(), (key // shape[0]).tolist())
        return places, lambda values: np.bincount(slot, values, len(key))

    J, J_values = pattern(*e.jacobian_places(), (m, n))
    H, H_values = pattern(*reversed(e.hessian_places()), (n, n))  # the upper triangle

    class Function(ca.Callback):
        def __init__(self, name, takes, gives, fn):
            ca.Callback.__init__(self)
            self.takes, self.gives, self.fn = takes, gives, fn
            self.construct(name, {})

        def get_n_in(self):
            return len(self.takes)

        def get_n_out(self):
            return len(self.gives)

        def get_name_in(self, i):
            return self.takes[i][0]

        def get_name_out(self, i):
            return self.gives[i][0]

        def get_sparsity_in(self, i):
            return self.takes[i][1]

        def get_sparsity_out(self, i):
            return self.gives[i][1]

        def eval(self, arguments):
            return self.fn(*(np.array(x, float).ravel() for x in arguments))

    dense = ca.Sparsity.dense
    x, p, g, one = ("x", dense(n, 1)), ("p", dense(0, 1)), ("g", dense(m, 1)), dense(1, 1)
    f = Function("program", [x, p], [("f", one), g], lambda x, _: [e.objective(x), e.rows(x)])
    slope = Function(
        "slope",
        [x, p],
        [("f", one), ("grad_f_x", dense(n, 1))],
        lambda x, _: [e.objective(x), e.gradient(x)],
    )
    slopes = Function(
        "slopes",
        [x, p],
        [g, ("jac_g_x", J)],
        lambda x, _: [e.rows(x), ca.DM(J, J_values(e.jacobian(x)))],
    )
    curvature = Function(
        "curvature",
        [x, p, ("lam_f", one), ("lam_g", dense(m, 1))],
        [("triu_hess_gamma_x_x", H)],
        lambda x, _, factor, lam: [ca.DM(H, H_values(e.hessian(x, factor[0], lam)))],
    )
    options = {"grad_f": slope, "jac_g": slopes, "hess_lag": curvature, "print_time": False}
    options |= {"no_nlp_grad": True, "calc_lam_p": False}
    options["ipopt"] = {"print_level": 0, "sb": "yes", "tol": 1e-8}
    solver = ca.nlpsol("solver", "ipopt", f, options)
    found = solver(x0=e.start, lbx=e.lower, ubx=e.upper, lbg=e.row_lower, ubg=e.row_upper)
    return float(found["f"]), solver.stats()["iter_count"], solver.stats()["return_status"]


SOLVERS = {
    "unopy": ("Uno, ipopt", own(mbd.trajopt.Uno())),
    "unopy ": ("Uno, filtersqp", own(mbd.trajopt.Uno("filtersqp"))),
    "casadi": ("IPOPT in CasADi", casadi),
    "ipyopt": ("IPOPT in ipyopt", ipyopt),
    "scipy": ("SciPy trust-constr", own(mbd.trajopt.SciPy())),
}


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="intervals of the grid")
    steps = parser.parse_args().steps
    for redundant in (False, True):
        program = swing_up(redundant, steps)
        e = Evaluator(program)
        for fn in (e.objective, e.gradient, e.rows, e.jacobian):
            fn(e.start)
        e.hessian(e.start, 1.0, np.zeros(len(e.row_lower)))
        kind = "redundant" if redundant else "minimal"
        tqdm.write(f"{kind} coordinates: {len(e.start)} variables, {len(e.row_lower)} rows")
        for package, (name, run) in tqdm(SOLVERS.items(), desc=kind, leave=False):
            try:
                version = importlib.metadata.version(package.strip())
            except importlib.metadata.PackageNotFoundError:
                tqdm.write(f"  {name:20s} not installed")
                continue
            begin = time.perf_counter()
            objective, iterations, status = run(program)
            seconds = time.perf_counter() - begin
            tqdm.write(
                f"  {name:20s} {version:8s} {seconds:7.3f} s {iterations:5d} iterations, "
                f"cost {objective:.8f}, {status}"
            )


if __name__ == "__main__":
    main()
