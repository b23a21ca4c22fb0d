"""The base of linear and torsional springs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from .base import AbstractForce
from .signal import AbstractSignal, as_signal, as_tree, read


class AbstractSpring(AbstractForce):
    """Spring, damper and actuator for one coordinate x, with the force or torque

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u).

    **Fields:** `stiffness`, `damping`, and `potential` V, `law` and `actuator`, or `None`.
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    potential: Callable[..., Any] | None
    law: Callable[..., Any] | None
    actuator: AbstractSignal | None

    def _set_spring(
        self, stiffness: Any, damping: Any, potential: Any, law: Any, actuator: Any
    ) -> None:
        """Set the fields. Set the frames before: the dtype is theirs."""
        self.stiffness = to_jax(stiffness, self.dtype)
        self.damping = to_jax(damping, self.dtype)
        self.potential = None if potential is None else as_tree(potential)
        self.law = None if law is None else as_tree(law)
        self.actuator = (
            None if actuator is None else as_signal(self._of_actuator, actuator, self.dtype)
        )

    @property
    def _of_actuator(self) -> str:
        return f'`actuator` of {type(self).__name__} "{self.name}"'

    def further_force(self, x: Array, rate: Array, t: Any, u: Any) -> Float[Array, ""]:
        """dV/dx + law - actuator."""
        force = jnp.zeros_like(x)
        if self.potential is not None:
            potential = self.potential
            force = force + jax.grad(lambda x: jnp.asarray(potential(x), x.dtype))(x)
        if self.law is not None:
            force = force + jnp.asarray(self.law(x, rate), x.dtype)
        if self.actuator is not None:
            force = force - read(self._of_actuator, self.actuator, t, u, x.dtype)
        return force

    def stored(self, x: Array) -> Float[Array, ""]:
        """stiffness x^2 / 2 + V(x)."""
        linear = self.stiffness * x * x / 2
        if self.potential is None:
            return linear
        return linear + jnp.asarray(self.potential(x), x.dtype)
