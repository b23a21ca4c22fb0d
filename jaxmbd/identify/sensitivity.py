"""How what was measured depends on the parameters alone, all starts being free to follow."""

from typing import Any, NamedTuple

import numpy as np

from .._search import DEPENDENT, ROUNDED, nonzero


class Sensitivity(NamedTuple):
    """Residuals `(rows,)` at the estimate, and their derivatives by the free numbers of the
    parameters, `(rows, p)`, less what a change of the starts could do as well. The first `samples`
    rows are those of the measurements, the others what was known before; `nuisance`: how many
    numbers of the starts were found too."""

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
    """**Arguments:** residuals and Jacobian at the estimate, of which the first `samples` rows are
    those of the measurements and the last `links` rows those of the continuity; the number of free
    numbers that are parameters', which come first.

    The starts follow a change dp of the parameters such that the parts still meet,
    C_p dp + C_s ds = 0, and else as is best for the residuals:

        ds = -C_s^+ C_p dp + N y,    N = null(C_s),

    which leaves (1 - Q Q^T) (J_p - J_s C_s^+ C_p), Q an orthonormal basis of the range of J_s N.
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
