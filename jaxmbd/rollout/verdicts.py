"""The verdict on one sample, from whatever its function returned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._results import RESULTS, first_failure

_ITEM = type(RESULTS.successful)  # what the members of every enumeration are


def is_verdict(x) -> bool:
    return isinstance(x, _ITEM)


def without_verdicts(output: PyTree) -> PyTree:
    return jax.tree.map(lambda x: None if is_verdict(x) else x, output, is_leaf=is_verdict)


def judge(returned: PyTree) -> tuple[PyTree, RESULTS]:
    """The outputs, and the first failure among all verdicts in what was returned; or else whether
    the outputs are finite."""
    outputs = returned
    if isinstance(returned, tuple) and len(returned) == 2 and is_verdict(returned[1]):
        outputs = returned[0]
    verdicts = [x for x in jax.tree.leaves(returned, is_leaf=is_verdict) if is_verdict(x)]
    numbers = [x for x in jax.tree.leaves(outputs) if eqx.is_inexact_array(x)]
    finite = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(x)) for x in numbers], bool))
    finite = RESULTS.where(finite, RESULTS.successful, RESULTS.nonfinite_output)
    return outputs, first_failure(*map(_promoted, verdicts), finite)


def _promoted(verdict) -> RESULTS:
    return verdict if isinstance(verdict, RESULTS) else RESULTS.promote(verdict)


def code(result: RESULTS):
    """The number of a verdict, an array."""
    return jax.tree.leaves(result)[0]


def verdict(codes) -> RESULTS:
    """The verdict, or the batch of them, with these numbers."""
    return jax.tree.map(lambda _: np.asarray(codes), RESULTS.successful)


SUCCESSFUL = int(code(RESULTS.successful))


def messages() -> list[str]:
    """Those of all verdicts, by their numbers."""
    return [RESULTS[verdict(i)] for i in range(len(RESULTS))]
