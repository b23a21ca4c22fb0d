"""The verdict on one sample, from the values that its function returned."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._results import RESULTS, code, first_failure, is_verdict, promoted

SUCCESSFUL = int(code(RESULTS.successful))


def without_verdicts(output: PyTree) -> PyTree:
    return jax.tree.map(lambda x: None if is_verdict(x) else x, output, is_leaf=is_verdict)


def judge(returned: PyTree) -> tuple[PyTree, RESULTS]:
    """The outputs, and the first failure among all returned verdicts. If there is none, the verdict
    says whether the outputs are finite."""
    outputs = returned
    if isinstance(returned, tuple) and len(returned) == 2 and is_verdict(returned[1]):
        outputs = returned[0]
    verdicts = [x for x in jax.tree.leaves(returned, is_leaf=is_verdict) if is_verdict(x)]
    numbers = [x for x in jax.tree.leaves(outputs) if eqx.is_inexact_array(x)]
    finite = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(x)) for x in numbers], bool))
    finite = RESULTS.where(finite, RESULTS.successful, RESULTS.nonfinite_output)
    return outputs, first_failure(*map(promoted, verdicts), finite)
