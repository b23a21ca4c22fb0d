"""A digital controller: a control with memory, evaluated at sample times and held between them."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import with_dtype
from .._compiler import to_jax, tree_where
from .._inputs import Number, at_least, checked, positive
from .._methods import StepperState
from .._system import State
from .._types import Control, Scalar

# A sample is due this share of its period early, for rounding.
_EARLY = 1e-3


class Sampling(NamedTuple):
    """What a sampled control keeps: its `memory`; the outputs that act in this period and in those
    after it, as many as there are samples of delay; the time of the `next` sample."""

    memory: PyTree
    outputs: tuple[PyTree, ...]
    next: Scalar


class Sampled(eqx.Module):
    """A digital controller, for `control=` of `simulate`: a law that is evaluated once in a
    `period`, whose output acts `delay` samples later and is held for a period.

        def law(state, memory):  # PI control of a speed, within 12 V
            error = 10.0 - state.v[0]
            wanted = 0.5 * error + memory
            volts = jnp.clip(wanted, -12.0, 12.0)
            return volts[None], memory + jnp.where(wanted == volts, 2e-3 * error, 0.0)

        control = mbd.Sampled(law, period=1e-3, delay=1, memory=0.0, output=[0.0])
        sol = mbd.simulate(system, method, state, t1=1.0, dt=1e-4, control=control)

    The first sample is at the start of the motion. Samples are taken at the start of steps, so that
    the period should be a whole multiple of the step: where it is not, a sample is late by less
    than a step. The steps may be as short as the mechanics asks for.

    In a loop of your own begin with `state = control.begun(stepper.init(...))`. A motion that is
    resumed from `sol.state()` begins with `memory` and `output` again.

    **Fields:** `law`: a function of the `State` at the sample, with t, q, v, and where there are
    some the counted `angles` and internal states `z`, and of the memory, that returns the output u
    and the new memory; `period` [s]; `memory`: at the start, any pytree of arrays, or `None`;
    `output`: that acts before the first one of the law does, of the same structure; `delay`: whole
    samples from a sample until its output acts.
    """

    law: Callable[[State, PyTree], tuple[PyTree, PyTree]]
    period: Float[Array, ""]
    memory: PyTree
    output: PyTree
    delay: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        law: Callable[[State, PyTree], tuple[PyTree, PyTree]],
        *,
        period: Annotated[Number, positive],
        output: Any,
        memory: Any = None,
        delay: Annotated[int, at_least(0)] = 0,
    ):
        """**Arguments:** the fields.

        **Raises:** `ValueError` for a `period` that is not positive and a negative `delay`. In a
        simulation, for a law that returns another structure than `output` and `memory` have."""
        plain = jax.tree_util.all_leaves([law])
        self.law = jax.tree_util.Partial(law) if plain else law
        self.period, self.delay = to_jax(period, float), delay
        self.memory, self.output = (
            jax.tree.map(lambda x: to_jax(x, float), x, is_leaf=_is_list) for x in (memory, output)
        )

    def __call__(self, t, q, v):
        raise TypeError(
            "A `Sampled` control has a memory, so that it is no function of (t, q, v): it works as "
            "`control=` of `simulate` and with `Stepper`."
        )

    def begun(self, state: StepperState) -> StepperState:
        """The start of a motion with this control."""
        own = with_dtype(self, state.q.dtype)
        sampling = Sampling(own.memory, (own.output,) * (self.delay + 1), state.t)
        return state.replace(sampling=sampling)

    def stepping(self, state: StepperState) -> tuple[Control, Sampling]:
        """The constant control of the step from a state, and what is kept after it."""
        old, period = self._known(state), self.period.astype(state.q.dtype)
        found = self.law(state, old.memory)
        expected = old.outputs[0], old.memory
        try:
            output, memory = found
            found = jax.tree.map(lambda x, y: jnp.asarray(y, x.dtype), expected, (output, memory))
            shapes = [jax.tree.map(jnp.shape, x) for x in (expected, found)]
        except (TypeError, ValueError) as error:
            raise self._refused(expected, found) from error
        if shapes[0] != shapes[1]:
            raise self._refused(expected, found)
        output, memory = found
        # The number of periods that have begun, more than one where steps are longer.
        late = jax.lax.stop_gradient((state.t - old.next) / period)
        periods = jnp.floor(late + _EARLY) + 1
        new = Sampling(memory, (*old.outputs[1:], output), old.next + period * periods)
        kept = tree_where(periods >= 1, new, old)
        return jax.tree_util.Partial(_first, kept.outputs[0]), kept

    def acting(self, state: StepperState) -> Control:
        """The constant control of the step that led to a state."""
        return jax.tree_util.Partial(_first, self._known(state).outputs[0])

    def _known(self, state: StepperState) -> Sampling:
        if state.sampling is None:
            raise ValueError(
                "A `Sampled` control needs a state that it has begun: "
                "`state = control.begun(stepper.init(...))`."
            )
        return state.sampling

    def _refused(self, expected: Any, found: Any) -> ValueError:
        shapes = [jax.tree.map(jnp.shape, x) for x in (expected, found)]
        return ValueError(
            "`law` of Sampled must return an output and a memory as `output` and `memory` are, of "
            f"the shapes {shapes[0]}, but returned {shapes[1]}."
        )


def _is_list(x: Any) -> bool:
    return isinstance(x, list)


def _first(u, t, q, v):
    del t, q, v
    return u


def of_step(control: Control | None, state: StepperState) -> tuple[Control | None, Any]:
    """The control of the step from a state, and what it keeps."""
    return control.stepping(state) if isinstance(control, Sampled) else (control, state.sampling)


def of_state(control: Control | None, state: StepperState) -> Control | None:
    """The control at the end of a step."""
    return control.acting(state) if isinstance(control, Sampled) else control
