"""What a design makes small: functions of the covariance that it predicts."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._types import Scalar


class AbstractCriterion(Extensible):
    """A function of the variances along the principal axes of the covariance of the free numbers,
    which a design makes small. Its values should be of the order of 1, such as logarithms.

    The free numbers are those of the transforms, so that 1 is a typical change of each parameter.
    """

    @abc.abstractmethod
    def __call__(self, variances: Float[Array, " k"]) -> Scalar:
        """The value, which must not depend on the order of the variances."""


class DOptimal(AbstractCriterion):
    """The determinant: the mean logarithm of the variances. The best motion does not depend on the
    units of the parameters. It makes the volume of the confidence ellipsoid small."""

    def __call__(self, variances):
        return jnp.mean(jnp.log(variances))


class AOptimal(AbstractCriterion):
    """The trace: the logarithm of the mean variance."""

    def __call__(self, variances):
        return jnp.log(jnp.mean(variances))


# How close to the maximum the smooth maximum is.
_SHARPNESS = 20.0


class EOptimal(AbstractCriterion):
    """The worst eigenvalue: a smooth maximum of the logarithms of the variances, which exceeds it
    by less than log(k) / 20."""

    def __call__(self, variances):
        return jax.nn.logsumexp(_SHARPNESS * jnp.log(variances)) / _SHARPNESS


def judge(
    criterion: AbstractCriterion, J: Float[Array, "rows p"], combinations: Float[Array, "p k"]
) -> Scalar:
    """The criterion for the covariance of combinations G^T z of the free numbers z, where J is the
    sensitivity with the noise as its unit:

        C = G^T (J^T J)^-1 G = S^T S,    S = R^-T G,    J = Q R.

    J must have full rank. So give both in a basis of what can be known."""
    R = jnp.linalg.qr(J, mode="r")
    S = jax.scipy.linalg.solve_triangular(R, combinations, trans=1)
    return _of_singular_values(criterion, S)


def _of_singular_values(criterion: AbstractCriterion, S: Float[Array, "m k"]) -> Scalar:
    @jax.custom_jvp
    def value(S):
        return criterion(jnp.linalg.svd(S, compute_uv=False) ** 2)

    # The singular vectors of equal values turn infinitely fast, but not a function of all values
    # that does not depend on their order.
    @value.defjvp
    def _(primals, tangents):
        (S,), (dS,) = primals, tangents
        U, values, V = jnp.linalg.svd(S, full_matrices=False)
        found, slopes = jax.value_and_grad(lambda x: criterion(x**2))(values)
        return found, jnp.sum((U * slopes[None]) @ V * dS)

    return value(S)
