"""Iterations of a method: a loop with a bar, or one compiled loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import PyTree

from .._progress import progress_bar


@eqx.filter_jit
def once(step: Callable, args: PyTree, carry: Any) -> Any:
    """One iteration, compiled."""
    return step(args, carry)


@eqx.filter_jit
def _all(step, args, carry):
    return jax.lax.while_loop(lambda c: ~c.done, lambda carry: step(args, carry), carry)


def iterate(
    step: Callable,
    args: PyTree,
    carry: Any,
    limit: int,
    *,
    label: str,
    describe: Callable[[Any], str],
    progress: bool,
) -> Any:
    """`carry = step(args, carry)` until `carry.done`, within about `limit` steps. With a bar, the
    loop is one of Python around one compiled iteration."""
    traced = any(isinstance(x, Tracer) for x in jax.tree.leaves((args, carry)))
    if traced or not progress:
        return _all(step, args, carry)
    with progress_bar(limit, label, progress) as bar:
        while not carry.done:
            carry = once(step, args, carry)
            bar.update()
            bar.set_postfix_str(describe(carry))
    return carry
