"""The sensitivity of the measurements to the parameters, if all starts may follow them."""

from typing import Any, NamedTuple

import numpy as np

from .._search import DEPENDENT, ROUNDED, nonzero


class Sensitivity(NamedTuple):
    """The residuals `(rows,)` at the estimate, and their derivatives `(rows, p)` with respect to
    the free numbers of the parameters, without the effects that changes of the starts can also
    have. The first `samples` rows are those of the measurements, the others those of the priors.
    `nuisance`: the number of estimated numbers of the starts."""

    residuals: np.ndarray
    jacobian: np.ndarray
    samples: int
    nuisance: int


def sensitivity(
    residuals: Any,
    jacobian: Any,
    parameters: int,
    samples: int,
    links: int,
    penalty: float,
) -> Sensitivity:
    """Eliminate the starts from the Jacobian. They follow a change dp of the parameters such that
    the parts remain continuous, C_p dp + C_s ds = 0, and otherwise as is best for the residuals:

        ds = -C_s^+ C_p dp + N y,    N = null(C_s).

    The result is (1 - Q Q^T) (J_p - J_s C_s^+ C_p), with an orthonormal basis Q of range(J_s N).

    **Arguments:** the residuals and Jacobian at the estimate. The first `samples` rows are those of
    the measurements, the last `links` rows those of the continuity. The first `parameters` columns
    are those of the parameters.
    """
    r, J = np.asarray(residuals), np.asarray(jacobian)
    rows = len(r) - links
    C = J[rows:] / np.sqrt(penalty)
    r, J = r[:rows], J[:rows]
    Jp, Js = J[:, :parameters], J[:, parameters:]
    Cp, Cs = C[:, :parameters], C[:, parameters:]
    if Js.shape[1] == 0:
        return Sensitivity(r, Jp, samples, 0)
    N = np.eye(Js.shape[1])
    if links:
        _, values, right = np.linalg.svd(Cs)
        rank = int(np.sum(nonzero(values, DEPENDENT)))
        N = right[rank:].T
        Jp = Jp - Js @ (np.linalg.pinv(Cs, rcond=DEPENDENT) @ Cp)
    left, values, _ = np.linalg.svd(Js @ N, full_matrices=False)
    Q = left[:, nonzero(values, ROUNDED)]
    return Sensitivity(r, Jp - Q @ (Q.T @ Jp), samples, N.shape[1])
