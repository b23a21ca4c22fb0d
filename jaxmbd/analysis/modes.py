"""Natural frequencies, damping and mode shapes, as motions too, and what they take part in."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._compiler import array_namespace, as_one_program, picked, to_jax
from .._equations import equations
from .._inputs import at_least, checked, positive
from .._linalg import dense
from .._printed import printed
from .._results import RESULTS
from .._simulate import Solution
from .._tangent_space import nearer_to_constraints
from .._types import RealScalarLike
from .linearise import LinearModel

# Eigenvalues count as equal if they differ by less than this share of the largest one.
_SAME = 1e-6

# Overlaps of left and right eigenvectors below which an eigenvalue counts as defective.
_DEFECTIVE = 1e-6


@printed
class Modes(eqx.Module):
    """The solutions exp(s t) Z phi of a linear model, in the order of |s|.

    **Fields:** for n modes,

    - `s`: the eigenvalues [1/s], `(n,)`. Oscillating modes come in conjugate pairs, with the
      positive imaginary part first.
    - `shapes`: the (dp, dv) of the modes in columns, `(2 nv, n)`, scaled such that dp has length 1.
      The dp of a conjugate pair is real if the mode is undamped.
    """

    s: Complex[Array, " n"]
    shapes: Complex[Array, "nx n"]

    @property
    def frequency(self) -> Float[Array, " n"]:
        """Undamped natural frequencies |s| / (2 pi) [Hz]."""
        xp = array_namespace(self.s)
        return to_jax(xp.abs(xp.asarray(self.s)) / (2 * np.pi))

    @property
    def damping_ratio(self) -> Float[Array, " n"]:
        """-Re s / |s|; 0 for rigid-body modes. Modes with negative ratios are unstable."""
        xp = array_namespace(self.s)
        s = xp.asarray(self.s)
        size = xp.abs(s)
        return to_jax(xp.where(size > 0, -s.real / xp.where(size > 0, size, 1.0), 0.0))

    @property
    def stable(self) -> Array:
        """Whether no mode grows, up to rounding."""
        xp = array_namespace(self.s)
        s = xp.asarray(self.s)
        return to_jax(xp.all(s.real <= 1e-8 * (1 + xp.max(xp.abs(s)))))

    def __str__(self) -> str:
        if self.s.ndim > 1:
            return f"modes of {self.s.shape[:-1]} models, {self.s.shape[-1]} of each"
        rows = ["     frequency [Hz]  damping ratio  eigenvalue [1/s]"]
        for i, (f, d, s) in enumerate(zip(self.frequency, self.damping_ratio, self.s, strict=True)):
            rows.append(f"{i:3d}  {float(f):14.6g}  {float(d):13.4g}  {complex(s):.6g}")
        return "\n".join(rows)


@checked
def modes(model: LinearModel) -> Modes:
    r"""The modes of a linear model, $A \varphi = s \varphi$, with shapes $(dp, dv) = Z \varphi$.

    A need not be symmetric in any sense. It includes damping, gyroscopic, follower and other
    nonconservative terms.

    The eigenvalues can be differentiated, under `jit` and `vmap` and in both modes. The derivative
    of a simple eigenvalue is $w^\mathsf{H} dA\, \varphi / (w^\mathsf{H} \varphi)$, with the left
    eigenvector w. Equal eigenvalues have no derivatives of their own, since their order changes
    with the direction. Their mean has one, and each of them is given that of the mean. This
    includes one group of equal eigenvalues with too few eigenvectors, such as rigid-body modes or
    critical damping. With several such groups their derivatives are NaN. Shapes are constants under
    differentiation. The function runs on CPUs only, because JAX has eigenvalues of general matrices
    only there.

    **Arguments:** `model`: from `linearise`.

    **Returns:** `Modes`.

    Reference: Lancaster (1964), On eigenvalues of matrices dependent on a parameter, Numerische
    Mathematik 6, 377-387.
    """
    return _modes(model.A, model.Z)


@as_one_program
def _modes(A, Z):
    s, right = _eigenvalues(A)
    nv = Z.shape[0] // 2
    shapes = jax.lax.stop_gradient(Z).astype(right.dtype) @ right
    dp = shapes[:nv]
    # Make the largest entry of dp real and the length of dp 1. Leave shapes with dp = 0 unchanged.
    largest = jnp.take_along_axis(dp, jnp.argmax(jnp.abs(dp), axis=0)[None], axis=0)[0]
    length = jnp.linalg.norm(dp, axis=0)
    none = length <= 1e-12
    size = jnp.where(none, 1.0, jnp.abs(largest) * length).astype(dp.dtype)
    turn = jnp.where(none, 1.0, jnp.conj(largest) / size)
    return Modes(s, shapes * turn[None])


def _decomposed(A):
    s, left, right = jax.lax.linalg.eig(A, compute_left_eigenvectors=True)
    # Sort by size, and put the positive imaginary part of a pair first. The sizes are rounded, so
    # that differences by rounding do not decide.
    sizes = jnp.round(jnp.abs(s) / _largest(s), 9)
    order = jnp.lexsort((-s.imag, sizes))
    return s[order], left[:, order], right[:, order]


def _largest(s):
    return jnp.max(jnp.abs(s), initial=jnp.finfo(s.real.dtype).tiny)


@jax.custom_jvp
def _eigenvalues(A):
    """The eigenvalues and right eigenvectors of A. Only the eigenvalues have derivatives."""
    s, _, right = _decomposed(A)
    return s, right


@_eigenvalues.defjvp
def _eigenvalues_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    s, left, right = _decomposed(A)
    same = jnp.abs(s[:, None] - s[None, :]) <= _SAME * _largest(s)
    overlap = jnp.where(same, jnp.conj(left.T) @ right, 0.0)
    # The right eigenvectors of a defective eigenvalue are orthogonal to its left ones.
    defective = jnp.linalg.norm(overlap, axis=1) <= _DEFECTIVE
    one = jnp.eye(s.shape[0], dtype=s.dtype)
    dual = jnp.linalg.inv(jnp.where(defective[:, None] | defective[None, :], one, overlap))
    # The trace of dA in the eigenspace of each group of equal eigenvalues, divided by their number.
    projected = dual @ (jnp.conj(left.T) @ dA.astype(s.dtype) @ right)
    mean = same.astype(s.dtype) @ jnp.diagonal(projected) / jnp.sum(same, axis=1).astype(s.dtype)
    # What the others leave of the trace of dA is the sum of a single defective group.
    others = jnp.sum(jnp.where(defective, 0.0, mean))
    of_group = (jnp.trace(dA).astype(s.dtype) - others) / jnp.maximum(jnp.sum(defective), 1).astype(
        s.dtype
    )
    one_group = jnp.all(same | ~(defective[:, None] & defective[None, :]))
    ds = jnp.where(defective, jnp.where(one_group, of_group, jnp.nan), mean)
    return (s, right), (ds, jnp.zeros_like(right))


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
    model: LinearModel,
    shape: Array,
    amplitude: RealScalarLike,
    angle: Array,
    duration: RealScalarLike,
) -> Solution:
    system, state, dtype = model.system, model.state, model.A.dtype
    nv = state.v.shape[0]
    still = jnp.zeros_like(state.v)
    real, imaginary = shape.real[None, :nv], shape.imag[None, :nv]
    swing = jnp.cos(angle)[:, None] * real - jnp.sin(angle)[:, None] * imaginary

    def pose(dp):
        q = system.retract(state.q, amplitude * dp)

        def close(q, _):
            return nearer_to_constraints(system, state.t, q, still)[0], None

        q, _ = jax.lax.scan(close, q, None, length=_CLOSING)
        return system.normalise(q)

    q = jax.vmap(pose)(swing.astype(dtype))
    t = angle / (2 * jnp.pi) * duration
    v = jnp.broadcast_to(still, (t.shape[0], nv))
    zero, rows = jnp.zeros_like(t), equations(system).row_count(state.t, state.q, still)
    lam = jnp.zeros((t.shape[0], rows), dtype)
    return Solution(t, q, v, lam, zero, zero, None, {}, RESULTS.successful)
