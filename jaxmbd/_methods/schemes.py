"""Time integration schemes that diffrax lacks, as diffrax solvers."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import PyTree

from .._compiler import checkpointed, loops_cost_nothing, tree_where
from .._inputs import at_least, checked
from .._roots import Chord
from .._types import DType, Scalar


def _axpy(y, *terms):
    """y + sum of factor * k over (factor, k), leaf by leaf."""
    for factor, k in terms:
        y = jax.tree.map(lambda a, b: a + factor * b, y, k)  # noqa: B023
    return y


class OneStep(diffrax.AbstractSolver):
    """A scheme of one vector field without memory of previous steps."""

    term_structure: ClassVar = diffrax.AbstractTerm

    def init(self, terms, t0, t1, y0, args) -> Any:
        del terms, t0, t1, y0, args

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


class RK4(OneStep):
    """Classical Runge-Kutta method, order 4, four stages, no error estimate.

    Reference: Kutta (1901), Beitrag zur näherungsweisen Integration totaler
    Differentialgleichungen.
    """

    interpolation_cls: ClassVar[Callable[..., diffrax.AbstractLocalInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def order(self, terms):
        del terms
        return 4

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del solver_state, made_jump
        control = terms.contr(t0, t1)
        half = t0 + 0.5 * (t1 - t0)
        k1 = terms.vf_prod(t0, y0, args, control)
        k2 = terms.vf_prod(half, _axpy(y0, (0.5, k1)), args, control)
        k3 = terms.vf_prod(half, _axpy(y0, (0.5, k2)), args, control)
        k4 = terms.vf_prod(t1, _axpy(y0, (1.0, k3)), args, control)
        y1 = _axpy(y0, (1 / 6, k1), (1 / 3, k2), (1 / 3, k3), (1 / 6, k4))
        end = terms.vf_prod(t1, y1, args, control)
        dense_info = dict(y0=y0, y1=y1, k0=k1, k1=end)
        return y1, None, dense_info, None, diffrax.RESULTS.successful


class RolledRK4(RK4):
    """`RK4` with a loop over the stages, which needs a quarter of the code. It is used where a loop
    costs nothing, or where the field is so large that compilation matters more. Interpolation is
    linear, since fixed steps need none of higher order, which would cost one more stage."""

    interpolation_cls: ClassVar[Callable[..., diffrax.AbstractLocalInterpolation]] = (
        diffrax.LocalLinearInterpolation
    )

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del solver_state, made_jump
        control = terms.contr(t0, t1)

        def field(t, y, is_first, none):
            del is_first
            return terms.vf_prod(t, y, args, control), none

        y1, _ = rolled_rk4(field, t0, t1, y0, None)
        return y1, None, dict(y0=y0, y1=y1), None, diffrax.RESULTS.successful


def rolled_rk4(
    field: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
    t0: Scalar,
    t1: Scalar,
    y0: Any,
    memory: PyTree,
    resolve: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
) -> tuple[Any, Any]:
    """(y1, memory) of RK4 with `k, memory = field(t, y, is_first, memory)`, where k is the rate of
    y times the length of the step. If `resolve` is given, `y, memory = resolve(t, y, memory)` acts
    on all stages after the first one and on the end."""

    def stage(carry, coefficients):
        y1, k, memory = carry
        c, b, is_first = coefficients
        k, memory = field(t0 + c * (t1 - t0), _axpy(y0, (c, k)), is_first, memory)
        return (_axpy(y1, (b, k)), k, memory), None

    def resolved_stage(carry, coefficients):
        assert resolve is not None
        y1, y, memory = carry
        (c, b, is_first), following, is_last = coefficients
        k, memory = field(t0 + c * (t1 - t0), y, is_first, memory)
        y1 = _axpy(y1, (b, k))
        y = tree_where(is_last, y1, _axpy(y0, (following, k)))
        y, memory = resolve(t0 + following * (t1 - t0), y, memory)
        return (tree_where(is_last, y, y1), y, memory), None

    c = jnp.array([0.0, 0.5, 0.5, 1.0], t0.dtype)
    b = jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], t0.dtype)
    coefficients = (c, b, jnp.arange(4) == 0)
    # Only the start of a stage is stored for the reverse pass. Otherwise the loop would carry
    # hundreds of arrays, which the compiler handles slowly.
    if resolve is None:
        start = (y0, jax.tree.map(jnp.zeros_like, y0), memory)
        (y1, _, memory), _ = jax.lax.scan(checkpointed(stage), start, coefficients)
    else:
        # The end is resolved by the same code as the stages.
        following = jnp.array([0.5, 0.5, 1.0, 1.0], t0.dtype)
        coefficients = (coefficients, following, jnp.arange(4) == 3)
        start = (y0, y0, memory)
        (y1, _, memory), _ = jax.lax.scan(checkpointed(resolved_stage), start, coefficients)
    return y1, memory


class SemiImplicitEuler(OneStep):
    """Velocity first, then position with the new velocity: v1 = v0 + h v'(q0, v0),
    q1 = q0 + h q'(q0, v1). First order; symplectic for separable systems.

    Unlike `diffrax.SemiImplicitEuler` it takes the one vector field of y = (q, v), so that forces
    may depend on both.
    """

    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = (
        diffrax.LocalLinearInterpolation
    )

    def order(self, terms):
        del terms
        return 1

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del solver_state, made_jump
        control = terms.contr(t0, t1)
        q, v, *z = y0
        _, dv, *_ = terms.vf_prod(t0, y0, args, control)
        v = v + dv
        dq, _, *dz = terms.vf_prod(t0, (q, v, *z), args, control)
        y1 = (q + dq, v, *jax.tree.map(jnp.add, z, dz))
        return y1, None, dict(y0=y0, y1=y1), None, diffrax.RESULTS.successful


def _trapezium(y1, args):
    vf_prod, t1, start, inner_args, control = args
    k = vf_prod(t1, y1, inner_args, control)
    return jax.tree.map(lambda a, b, c: a - b - 0.5 * c, y1, start, k)


@checked
class CrankNicolson(OneStep, diffrax.AbstractImplicitSolver, diffrax.AbstractAdaptiveSolver):
    """Trapezoidal rule, y1 = y0 + h/2 (f0 + f1): order 2, A-stable, no numerical damping of
    linear oscillations. Its error estimate is the difference to explicit Euler.

    Reference: Crank and Nicolson (1947), A practical method for numerical evaluation of solutions
    of partial differential equations of the heat-conduction type.
    """

    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = (
        diffrax.LocalLinearInterpolation
    )
    root_finder: optx.AbstractRootFinder = diffrax.with_stepsize_controller_tols(optx.Newton)()
    root_find_max_steps: Annotated[int, at_least(1)] = 10

    def order(self, terms):
        del terms
        return 2

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del solver_state, made_jump
        control = terms.contr(t0, t1)
        k0 = terms.vf_prod(t0, y0, args, control)
        solution = optx.root_find(
            _trapezium,
            self.root_finder,
            _axpy(y0, (1.0, k0)),
            (terms.vf_prod, t1, _axpy(y0, (0.5, k0)), args, control),
            throw=False,
            max_steps=self.root_find_max_steps,
        )
        y1 = solution.value
        error = jax.tree.map(lambda a, b, c: a - b - c, y1, y0, k0)
        result = diffrax.RESULTS.promote(solution.result)
        return y1, error, dict(y0=y0, y1=y1), None, result


def prepared(
    scheme: diffrax.AbstractSolver,
    controller: diffrax.AbstractStepSizeController | None,
    dtype: DType,
    large: bool,
) -> diffrax.AbstractSolver:
    """`scheme`, set up for our own loop as diffrax would do for its loop.

    diffrax's Runge-Kutta methods loop over their stages in a way that supports reverse mode only,
    so they get the bounded loop, which supports both modes. Its implicit methods get the tolerances
    of their root finder from a step size controller. Newton's method and its variants are replaced
    by `Chord`: where stiff forces rotate, the default with a single Jacobian fails at steps of a
    fifth of the size that accuracy allows. At fixed steps the search continues to rounding, so that
    accuracy does not depend on it. `large` says that the field is large.
    """
    rolled = large or loops_cost_nothing()
    if rolled and controller is None and type(scheme) is RK4:
        return RolledRK4()
    if getattr(scheme, "scan_kind", "none needed") is None:
        scheme = eqx.tree_at(lambda s: s.scan_kind, scheme, "bounded", is_leaf=lambda x: x is None)
    if not isinstance(scheme, diffrax.AbstractImplicitSolver):
        return scheme
    finder: Any = scheme.root_finder
    if isinstance(getattr(finder, "rtol", 0.0), float | int | jax.Array):
        return scheme
    eps = float(jnp.finfo(dtype).eps)
    if not isinstance(controller, diffrax.PIDController):
        new = Chord(eps**0.5, eps**0.5, goal=eps**0.25)
    else:
        rtol: Any = controller.rtol
        atol: Any = controller.atol
        if isinstance(finder, diffrax.VeryChord | optx.Chord | optx.Newton):
            new = Chord(rtol, atol, goal=1e-2)
        else:
            new = eqx.tree_at(
                lambda f: (f.rtol, f.atol, f.norm), finder, (rtol, atol, optx.max_norm)
            )
    return eqx.tree_at(lambda s: s.root_finder, scheme, new)
