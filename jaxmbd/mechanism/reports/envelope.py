"""The largest reactions of a motion."""

from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from ..._inputs import checked, unjudged
from ..._printed import printed
from ..batching import batched, with_last_axis
from ..mechanism import Mechanism
from .reactions import transmitted


@printed
class ReactionEnvelope(eqx.Module):
    """The largest reactions of the joints over the times of a motion. `print` it.

    **Fields**, of shape `(*batch, joints)`:

    - `names`: of the joints.
    - `force`: the largest size of the force of the joint [N]. `force_index`: the place of its time
      among those of the motion, so `motion.state(index)` is the pose. `force_time`: that time [s].
    - `torque`, `torque_index`, `torque_time`: the same of the torque [N m] about the joint.
    """

    force: Float[Array, "*batch joints"]
    force_index: Int[Array, "*batch joints"]
    force_time: Float[Array, "*batch joints"]
    torque: Float[Array, "*batch joints"]
    torque_index: Int[Array, "*batch joints"]
    torque_time: Float[Array, "*batch joints"]
    names: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        if np.ndim(self.force) > 1:
            shape = self.force.shape[:-1]
            return f"Reactions of {len(self.names)} joints in motions of shape {shape}."
        width = max(map(len, self.names), default=0)
        rows = [f"{'':{width}}  force [N]  at [s]    torque [N m]  at [s]"]
        for name, *numbers in zip(
            self.names, self.force, self.force_time, self.torque, self.torque_time, strict=True
        ):
            force, when, torque, then = map(float, numbers)
            rows.append(f"{name:{width}}  {force:9.4g}  {when:<8.4g}  {torque:12.4g}  {then:<8.4g}")
        return "\n".join(rows)


@checked
def reaction_envelope(
    mechanism: Mechanism,
    t: ArrayLike,
    q: Float[Array, "*batch ns nq"],
    multipliers: Annotated[Float[Array, "*batch ns nc"], unjudged],
    names: Sequence[str] | None = None,
    *,
    v: Float[Array, "*batch ns nv"] | None = None,
) -> ReactionEnvelope:
    """Find the largest force and the largest torque of each joint over a motion, and when they act.

        found = mbd.reports.reaction_envelope(mechanism, sol.t, sol.q, sol.multipliers)
        print(found)

    **Arguments:** `t`, `q`, `multipliers`: of a `Solution`, or of a `Plan`, or `t` and `q` of a
    motion with the multipliers of `inverse_dynamics`. `names`: of the joints, by default all. `v`:
    needed only for joints with nonholonomic rows.

    **Returns:** a `ReactionEnvelope`. Torques are about the origin of the joint's frame on its last
    body, as in `reactions`. With redundant rows only parts of the reactions are unique: see
    `unique_reactions`.

    **Raises:** as `reactions`.
    """
    names = [joint.name for joint in mechanism.joints] if names is None else list(names)
    q = mechanism.checked_q(q)
    multipliers = with_last_axis(
        "`multipliers`", multipliers, mechanism.row_count, "one for each row of the joints"
    )
    wrenches = transmitted(mechanism, tuple(names), t, q, multipliers, v)
    return _envelope(tuple(names), jnp.asarray(t, q.dtype), wrenches)


@eqx.filter_jit
def _envelope(names: tuple[str, ...], t: Array, wrenches: Any) -> ReactionEnvelope:
    def one(t, x):
        size = jnp.sqrt(jnp.sum(x**2, axis=-1))
        place = jnp.argmax(size, axis=0)
        return jnp.max(size, axis=0), place, t[place]

    def largest(i):
        vectors = jnp.stack([wrench[i] for wrench in wrenches], axis=-2)
        return batched(one, (t, 1), (vectors, 3))

    (force, at, when), (torque, place, then) = largest(0), largest(1)
    return ReactionEnvelope(force, at, when, torque, place, then, names)
