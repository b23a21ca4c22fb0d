"""Natural frequencies, damping and shapes."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from .._inputs import checked
from .linearise import LinearModel

# Eigenvalues that differ by less, beside the largest of all, count as one of several-fold.
_SAME = 1e-6

# Overlaps of left and right eigenvectors below which an eigenvalue counts as defective.
_DEFECTIVE = 1e-6


class Modes(eqx.Module):
    """Solutions exp(s t) Z phi of a linear model, by rising |s|.

    **Fields:** of n modes,

    - `s`: eigenvalues [1/s], `(n,)`; those that oscillate come in conjugate pairs, the one with the
      positive imaginary part first.
    - `shapes`: their (dp, dv), of length 1 in dp, in columns, `(2 nv, n)`. dp of a conjugate pair
      is real if the mode is undamped.
    """

    s: Complex[Array, " n"]
    shapes: Complex[Array, "nx n"]

    @property
    def frequency(self) -> Float[Array, " n"]:
        """Undamped natural frequencies |s| / (2 pi) [Hz]."""
        return jnp.abs(self.s) / (2 * jnp.pi)

    @property
    def damping_ratio(self) -> Float[Array, " n"]:
        """-Re s / |s|; 0 for rigid-body modes. Negative ratios are unstable."""
        size = jnp.abs(self.s)
        return jnp.where(size > 0, -self.s.real / jnp.where(size > 0, size, 1.0), 0.0)

    @property
    def stable(self) -> Array:
        """Whether no mode grows, up to rounding."""
        return jnp.all(self.s.real <= 1e-8 * (1 + jnp.max(jnp.abs(self.s))))

    def __str__(self) -> str:
        rows = ["     frequency [Hz]  damping ratio  eigenvalue [1/s]"]
        for i, (f, d, s) in enumerate(zip(self.frequency, self.damping_ratio, self.s)):
            rows.append(f"{i:3d}  {float(f):14.6g}  {float(d):13.4g}  {complex(s):.6g}")
        return "\n".join(rows)


@checked
def modes(model: LinearModel) -> Modes:
    r"""The modes of a linear model, $A \varphi = s \varphi$, with shapes $(dp, dv) = Z \varphi$.

    A need not be symmetric in any sense: damping, gyroscopic, follower and other nonconservative
    terms are all in it.

    The eigenvalues have derivatives, in `jit`, `vmap` and both modes. Of a simple one it is
    $w^\mathsf{H} dA\, \varphi / (w^\mathsf{H} \varphi)$ with the left eigenvector w. Several equal
    ones have no derivative each, since which is which changes with the direction, but their mean
    has one: each is given that of the mean. Rigid-body modes, whose s = 0 is double with one
    eigenvector, have none, and 0 is returned. Shapes are constants to derivatives. Runs on CPUs,
    since JAX has eigenvalues of general matrices there only.

    **Arguments:** `model`: from `linearise`.

    **Returns:** `Modes`.

    Reference: Lancaster (1964), On eigenvalues of matrices dependent on a parameter, Numerische
    Mathematik 6, 377-387.
    """
    s, right = _eigenvalues(model.A)
    nv = model.Z.shape[0] // 2
    shapes = jax.lax.stop_gradient(model.Z).astype(right.dtype) @ right
    dp = shapes[:nv]
    # The largest entry of dp real, the length 1; shapes without dp are left as they are.
    largest = jnp.take_along_axis(dp, jnp.argmax(jnp.abs(dp), axis=0)[None], axis=0)[0]
    length = jnp.linalg.norm(dp, axis=0)
    none = length <= 1e-12
    size = jnp.where(none, 1.0, jnp.abs(largest) * length).astype(dp.dtype)
    turn = jnp.where(none, 1.0, jnp.conj(largest) / size)
    return Modes(s, shapes * turn[None])


def _decomposed(A):
    s, left, right = jax.lax.linalg.eig(A, compute_left_eigenvectors=True)
    # By size, and of a pair the one with the positive imaginary part first: sizes that agree up to
    # rounding must not decide.
    sizes = jnp.round(jnp.abs(s) / _largest(s), 9)
    order = jnp.lexsort((-s.imag, sizes))
    return s[order], left[:, order], right[:, order]


def _largest(s):
    return jnp.max(jnp.abs(s), initial=jnp.finfo(s.real.dtype).tiny)


@jax.custom_jvp
def _eigenvalues(A):
    """The eigenvalues and right eigenvectors of A; only the eigenvalues have derivatives."""
    s, _, right = _decomposed(A)
    return s, right


@_eigenvalues.defjvp
def _eigenvalues_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    s, left, right = _decomposed(A)
    same = jnp.abs(s[:, None] - s[None, :]) <= _SAME * _largest(s)
    overlap = jnp.where(same, jnp.conj(left.T) @ right, 0.0)
    # Eigenvectors of a defective eigenvalue are orthogonal to the left ones.
    defective = jnp.linalg.norm(overlap, axis=1) <= _DEFECTIVE
    one = jnp.eye(s.shape[0], dtype=s.dtype)
    dual = jnp.linalg.inv(jnp.where(defective[:, None] | defective[None, :], one, overlap))
    # The trace of dA in the space of each group of equal eigenvalues, over their number.
    projected = dual @ (jnp.conj(left.T) @ dA.astype(s.dtype) @ right)
    mean = same.astype(s.dtype) @ jnp.diagonal(projected) / jnp.sum(same, axis=1).astype(s.dtype)
    ds = jnp.where(defective, 0.0, mean)
    return (s, right), (ds, jnp.zeros_like(right))
