"""Derivatives of simulations by all parameters: reverse and forward mode agree with each other and
with central differences, for all methods, solvers, cases and schemes."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optimistix as optx
import pytest
from gradients import check, loss_of, options_of
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd

# What they solve: rows alone, also for impulses, and rows with a compliance.
USES = "udwadia_kalaba", "dual_penalty"
# Others with one option less.
IMPLIED = "uncorrected", "multipliers"


@pytest.mark.parametrize(
    "method, solver",
    h.slow_unless(
        # Two penalties are below, and in soft rows of test_gradients_degenerate.py.
        lambda m, s: s == "automatic" and m not in [*h.VARIANTS, "dual_penalty", "primal_penalty"],
        [
            (method, solver)
            for method, solver in h.pairs()
            if method not in h.SWITCHING
            and method not in IMPLIED
            and (solver == "automatic" or method in USES)
        ],
    ),
)
def test_every_method_and_solver(method, solver):
    """All parameters, start, gains, pivot motion; the rows depend on q and t. Of what uses a solver
    in the same way, one method for each of them."""
    method = h.method(method, solver)
    check(h.CASES["driven_pendulum"], method, **options_of(method))


QUICK = [
    ("oscillator", "udwadia_kalaba"),
    ("controlled_mass", "impulse_dead_beat"),
    ("skate", "dual_penalty"),
]
# Every way to treat rows meets redundant ones (`udwadia_kalaba` and `projected` in
# `test_redundant_rows`) and rows of velocities, and those that also solve for positions both kinds
# at once. Closed loops and turning bodies are met once.
LONG = (
    [("redundant_pendulum", name) for name in (
        "impulse_dead_beat", "dual_penalty", "augmented_lagrangian", "null_space",
        "generalised_alpha", "variational",
    )]
    + [("skate", name) for name in (
        "udwadia_kalaba", "baumgarte", "impulse_dead_beat", "primal_penalty",
        "augmented_lagrangian",
    )]
    + [("skate_in_space", "projected"), ("skate_in_space", "null_space")]
    + [("rotating_guide", "udwadia_kalaba"), ("slider_crank", "impulse_dead_beat")]
    + [("top", "impulse_dead_beat")]
)  # fmt: skip


@pytest.mark.parametrize(
    "case, method",
    h.slow_unless(lambda *item: item in QUICK, [*QUICK, *LONG]),
)
def test_every_case_and_method(case, method):
    method = h.method(method)
    steps = 10 if case in ("top", "slider_crank") else 20
    check(h.CASES[case], method, **options_of(method, num_steps=steps))


MODES = {"reverse": jax.jacrev, "forward": jax.jacfwd}


@pytest.mark.parametrize(
    "method, modes",
    [
        ("udwadia_kalaba", ("reverse",)),
        pytest.param("projected", ("forward",), marks=pytest.mark.slow),
    ],
)
def test_redundant_rows(method, modes):
    """Motion and least-norm multipliers, also with respect to the scales of the copies. With the
    proximal solver the multipliers carry rounding of eps / rho = 2e-6, which differences would
    magnify: its derivatives are compared with those of the pseudoinverse instead."""
    case, options = h.CASES["redundant_pendulum"], dict(num_steps=15)
    reference = h.method(method, "pseudoinverse")
    expected = check(case, reference, modes=modes, **options_of(reference, **options))
    expected, _ = ravel_pytree(expected)

    proximal = h.method(method, "proximal")
    state = case.state
    tree = (case.system, proximal.enforcement, proximal.projection, None, state.q, state.v)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(tree)
    loss = loss_of(fixed, **options_of(proximal, **options))
    atol = 1e-6 * np.max(np.abs(expected))
    # `check` differentiates by x / max(|x|, 1)
    scale = np.maximum(np.abs(flat), 1.0)
    for mode in modes:
        gradient = jax.jit(MODES[mode](lambda x: loss(unravel(x))))(jnp.asarray(flat))
        np.testing.assert_allclose(scale * gradient, expected, rtol=1e-6, atol=atol)


@pytest.mark.slow
def test_stages():
    """Classical Runge-Kutta: the held correction through all stages."""
    method = h.method("udwadia_kalaba")
    check(h.CASES["guided_mass"], method, dt=0.02, num_steps=8, scheme=mbd.RK4())


@pytest.mark.parametrize(
    "name",
    ["table", *(pytest.param(name, marks=pytest.mark.slow) for name in ("neural", "feedback"))],
)
def test_controls(name, getkey):
    """With respect to all numbers of the control."""
    control = {
        "table": h.Table(jr.normal(getkey(), (4, 2)), 0.2),
        "feedback": h.Feedback(),
        "neural": h.neural(getkey()),
    }[name]
    method = h.method("udwadia_kalaba")
    case = h.CASES["pendulum"]
    # The kinks at 1/3 and 2/3 of the table's duration stay between the same grid points.
    check(case, method, control=control, **options_of(method, dt=0.008, num_steps=18))


@pytest.mark.parametrize(
    "scheme", [pytest.param(diffrax.Heun(), marks=pytest.mark.slow), diffrax.Tsit5()]
)
def test_schemes_of_diffrax_in_both_modes(scheme):
    """At fixed steps the default adjoint supports forward mode, with any explicit scheme."""
    case = h.CASES["oscillator"]
    check(case, h.Method(mbd.UdwadiaKalaba()), dt=0.02, num_steps=5, scheme=scheme)


IMPLICIT = {
    "crank_nicolson": mbd.CrankNicolson(root_finder=optx.Newton(rtol=1e-13, atol=1e-13)),
    "kvaerno3": diffrax.Kvaerno3(root_finder=optx.Newton(rtol=1e-13, atol=1e-13)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, method",
    [
        ("crank_nicolson", "impulse_dead_beat"),
        ("kvaerno3", "udwadia_kalaba"),
    ],
)
def test_implicit_schemes(scheme, method):
    """The derivative of the converged stages, not of their iteration."""
    options = dict(dt=0.02, num_steps=8, scheme=IMPLICIT[scheme])
    modes = ("reverse",) if scheme == "kvaerno3" else ("reverse", "forward")
    check(h.CASES["guided_mass"], h.method(method), modes=modes, **options)


class ScaledRate(mbd.AbstractSystem):
    """A spring-mass system in other units of position: q' = scale v, with a parameter in qdot."""

    scale: jax.Array = h.parameter(2.0)
    stiffness: jax.Array = h.parameter(3.0)

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q

    def qdot(self, q, v):
        return self.scale * v


@pytest.mark.parametrize(
    "scheme", [pytest.param(mbd.RK4(), marks=pytest.mark.slow), IMPLICIT["crank_nicolson"]]
)
def test_parameter_of_the_kinematic_map(scheme):
    case = h.Case(ScaledRate(), lambda t: (np.array([0.7]), np.array([0.3])))
    check(case, h.Method(mbd.UdwadiaKalaba()), dt=0.02, num_steps=8, scheme=scheme)
