"""Mode shapes as motions, and what they take part in."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._concrete import as_one_program, picked
from .._equations import equations
from .._inputs import at_least, checked, positive
from .._linalg import dense
from .._printed import printed
from .._results import RESULTS
from .._search import redundancy
from .._simulate import Solution
from .._tangent_space import displaced, state_jacobian, violations
from .linearise import LinearModel
from .modes import Modes

# Newton steps back onto the constraints from a displacement along a shape.
_CLOSING = 4


@printed
class Participation(NamedTuple):
    """How modes take part in a motion of the support; see `participation`.

    - `factor`: (n,), complex for damped modes. `mass`: the effective mass, (n,) [kg, kg m^2].
    """

    factor: Complex[Array, " n"]
    mass: Float[Array, " n"]

    def __str__(self) -> str:
        if self.mass.ndim > 1:
            return f"participation of modes, shape {self.mass.shape}"
        rows = ["     effective mass  participation factor"]
        for i, (m, f) in enumerate(
            zip(np.asarray(self.mass), np.asarray(self.factor), strict=True)
        ):
            rows.append(f"{i:3d}  {m:14.6g}  {complex(f):.6g}")
        return "\n".join(rows)


@checked
@as_one_program
def participation(
    model: LinearModel, modes: Modes, direction: Float[Array, " nv"]
) -> Participation:
    r"""The participation factors and effective masses of modes in a direction d,

    $$ \Gamma = \frac{\varphi^\mathsf{H} M d}{\varphi^\mathsf{H} M \varphi}, \qquad
    m = \frac{|\varphi^\mathsf{H} M d|^2}{\varphi^\mathsf{H} M \varphi} , $$

    with the displacements $\varphi$ of the shapes. If the support of an undamped system shakes
    along d, its mode is driven by $-\Gamma$ times the acceleration of the support. The effective
    masses of all modes, each conjugate pair counted once, add up to $d^\mathsf{T} M d$, or to the
    part of it that moves along the constraints.

    **Arguments:** `model`, and `modes` of it. `direction`: d, the velocities of the system when the
    support moves at 1, e.g. 1 for each coordinate along x and 0 for the others.
    """
    q = model.state.q
    M = dense(model.system.mass_matrix(q)).astype(q.dtype)
    shapes = modes.shapes[: M.shape[0]]
    # All in real arithmetic but for the shapes, which are complex.
    push, inertia = (x.astype(shapes.dtype) for x in (M @ direction.astype(q.dtype), M))
    moved = jnp.conj(shapes).T @ push
    own = jnp.einsum("xi,xy,yi->i", jnp.conj(shapes), inertia, shapes).real
    none = own <= 0
    size = jnp.where(none, 1.0, own)
    factor = jnp.where(none, 0.0, moved / size.astype(moved.dtype))
    return Participation(factor, jnp.where(none, 0.0, jnp.abs(moved) ** 2 / size))


@checked
def mode_motion(
    model: LinearModel,
    modes: Modes,
    index: Annotated[int, at_least(0)],
    *,
    amplitude: Annotated[float, positive] = 0.1,
    periods: Annotated[float, positive] = 1.0,
    pictures: Annotated[int, at_least(2)] = 60,
    duration: Annotated[float, positive] = 2.0,
) -> Solution:
    """A mode as a motion to be shown, without its decay: the displacement swings as
    amplitude * Re(exp(i angle) shape), and each pose is closed onto the constraints.

        motion = analysis.mode_motion(model, modes, 2, amplitude=0.2)
        mbd.plots.animate(mechanism, motion, "mode.gif")
        mbd.view(mechanism, motion)

    **Arguments:**

    - `model`, and `modes` of it. `index`: the place of the mode among them.
    - `amplitude`: the size of the displacement, for a shape of size 1.
    - `periods`: the number of swings. `pictures`: poses in each of them. `duration`: of one swing
      [s], whatever the frequency of the mode.

    **Returns:** a `Solution`, without multipliers.

    **Raises:** `ValueError` for an index of no mode.
    """
    count = modes.s.shape[0]
    if index >= count:
        raise ValueError(f"Argument `index` must be less than {count}, the number of modes.")
    steps = round(periods * pictures)
    angle = jnp.asarray(2 * np.pi * np.arange(steps + 1) / pictures, model.A.dtype)
    return _swing(model, picked(modes.shapes, np.s_[:, index]), amplitude, angle, duration)


@eqx.filter_jit
def _swing(
    model: LinearModel, shape: Array, amplitude: Any, angle: Array, duration: Any
) -> Solution:
    system, state, dtype = model.system, model.state, model.A.dtype
    nv = state.v.shape[0]
    still = jnp.zeros_like(state.v)
    real, imaginary = shape.real[None, :nv], shape.imag[None, :nv]
    swing = jnp.cos(angle)[:, None] * real - jnp.sin(angle)[:, None] * imaginary

    def pose(dp):
        q = system.retract(state.q, amplitude * dp)

        def close(q, _):
            C = state_jacobian(system, state.t, q, still)
            back = jnp.linalg.pinv(C, rtol=redundancy(dtype)) @ violations(
                system, state.t, q, still
            )
            return displaced(system, q, still, -back)[0], None

        if equations(system).row_count(state.t, q, still):
            q, _ = jax.lax.scan(close, q, None, length=_CLOSING)
        return system.normalise(q)

    q = jax.vmap(pose)(swing.astype(dtype))
    t = angle / (2 * jnp.pi) * duration
    v = jnp.broadcast_to(still, (t.shape[0], nv))
    zero, rows = jnp.zeros_like(t), equations(system).row_count(state.t, state.q, still)
    lam = jnp.zeros((t.shape[0], rows), dtype)
    return Solution(t, q, v, lam, zero, zero, None, {}, RESULTS.successful)
