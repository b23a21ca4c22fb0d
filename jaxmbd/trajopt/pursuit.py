"""The motion of a plant under a receding horizon, and the verdict on it."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._printed import printed
from .._results import RESULTS

# A plan is doubted if its cost exceeds the lowest one since the last doubt by this share, and by
# this share of the highest one. Costs near zero fluctuate with every disturbance.
_JUMP, _OF_HIGHEST = 0.5, 0.1
# A plan is astray if its final cost exceeds that of its beginning so many times, or its cost those
# before while its final cost is more than this share of that of its beginning. The plans are back
# if one costs less than so many times those before, or than this share of the highest.
_ASTRAY, _NEAR, _BACK, _BACK_FROM = 10.0, 0.1, 2.0, 0.01
_ROUNDING = 1e-6


@printed
class Pursuit(eqx.Module):
    """The motion of a plant under `receding_horizon`.

    - `t`: the starts of the periods and the end, shape `(n + 1,)` [s]. `q`, `v`: the states of the
      plant there. `u`: the applied controls, `(n, nu)`.
    - `cost`: the running cost of the motion of the plant.
    - `costs`: the cost of each plan over its horizon, `(n,)`.
    - `result`: the verdict on each plan, a member of `mbd.RESULTS` with shape `(n,)`: the
      result of its search, or `RESULTS.astray` if the search found a plan that does not hold the
      plant, however well it converged.
    - `iterations`: the number of iterations for each plan, `(n,)`. `searches`: the number of
      searches, `(n,)`. It is more than one for the first plan and for those that were doubted.
    - `good`: whether the simulation of the plant never failed.

    A plan is astray if its final cost is more than ten times the cost of its first state,
    or if it costs more than ten times as much as every plan before, while its final cost is more
    than a tenth of that of its beginning. So are the plans after it, until one costs less than
    twice what they cost before, or a hundredth of the most costly one.

    Controls are also applied if their search did not converge, for instance at its limit of
    iterations. If a search finds no motion to start from, the previous policy is continued.
    """

    t: Float[Array, " points"]
    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "n nu"]
    cost: Float[Array, ""]
    costs: Float[Array, " n"]
    result: RESULTS
    iterations: Int[Array, " n"]
    searches: Int[Array, " n"]
    good: Bool[Array, ""]

    @property
    def astray(self) -> Bool[Array, " n"]:
        """Which plans do not hold the plant."""
        return self.result == RESULTS.astray

    @property
    def unconverged(self) -> Int[Array, ""]:
        """The number of plans whose search did not converge, or that are astray."""
        return jnp.sum(self.result != RESULTS.successful)

    @property
    def successful(self) -> Bool[Array, ""]:
        """Whether all searches converged, no plan was astray, and the simulation of the plant never
        failed."""
        return self.good & (self.unconverged == 0)

    def __str__(self) -> str:
        lines = [
            f"Receding horizon: {self._verdict()}.",
            f"  periods            {self.u.shape[0]}",
            f"  iterations         {float(jnp.mean(self.iterations)):.1f} a period, at most "
            f"{int(jnp.max(self.iterations))}",
            f"  time               {float(self.t[0]):g} to {float(self.t[-1]):g} s",
            f"  running cost       {float(self.cost):.9g}",
            f"  cost of a plan     {float(self.costs[0]):.4g} at first, "
            f"{float(jnp.max(self.costs)):.4g} at most, {float(self.costs[-1]):.4g} at last",
            f"  largest |u|        {float(jnp.max(jnp.abs(self.u))):.4g}",
        ]
        return "\n".join(lines)

    def _verdict(self) -> str:
        if not bool(self.good):
            return "the plant's motion failed"
        if not int(self.unconverged):
            return "all searches converged"
        n, astray, words = self.u.shape[0], np.asarray(self.astray), []
        if astray.any():
            begin, end = (float(self.t[k]) for k in np.flatnonzero(astray)[[0, -1]])
            last = ", the last one too" if astray[-1] else ""
            words = [
                f"{int(astray.sum())} of {n} plans do not hold the plant, from {begin:g} to "
                f"{end:g} s{last}"
            ]
        kinds = {
            "at the limit of iterations": RESULTS.max_iterations_reached,
            "stuck": RESULTS.stuck,
            "infeasible": RESULTS.infeasible,
            "without a motion to begin with": RESULTS.failed_start,
        }
        counts = {word: int(jnp.sum(self.result == result)) for word, result in kinds.items()}
        found = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        if found:
            words += [f"{sum(counts.values())} of {n} searches did not converge ({found})"]
        return "; ".join(words)


class Watch:
    """The costs of the plans so far, and what they tell about the next one. `ends` are the final
    costs of the state in which a plan begins, and of that in which it ends."""

    def __init__(self):
        self._accepted = -np.inf  # the largest cost of the plans that are not astray
        self._lowest = np.inf  # the lowest cost since the last doubt
        self._highest = 0.0  # the largest |cost| of all plans
        self._astray = False

    def doubts(self, cost: float, ends: tuple[float, float], result: RESULTS) -> bool:
        """Whether a plan calls for searches from other guesses: it is astray or costs far more than
        those before, or its search ended at no minimum."""
        if self._astray or self._leaves(cost, ends) or not np.isfinite(cost):
            return True
        rise = cost - self._lowest
        failed = any(result == x for x in (RESULTS.failed_start, RESULTS.infeasible))
        jump = rise > _JUMP * abs(self._lowest) and rise > _OF_HIGHEST * self._highest
        return bool(failed or jump)

    def accept(self, cost: float, ends: tuple[float, float], doubted: bool) -> bool:
        """Take the plan that is followed. Whether it is astray."""
        back = max(_above(self._accepted, _BACK), _BACK_FROM * self._highest)
        self._highest = max(self._highest, abs(cost)) if np.isfinite(cost) else self._highest
        self._lowest = cost if doubted else min(self._lowest, cost)
        leaves = self._leaves(cost, ends)
        self._astray = leaves or (self._astray and not cost <= back)
        if not self._astray:
            self._accepted = max(self._accepted, cost)
        return self._astray

    def _leaves(self, cost, ends):
        begins, finishes = ends
        rounding = _ROUNDING * (1 + abs(cost))
        if not finishes <= _above(begins, _ASTRAY) + rounding:
            return True
        grown = np.isfinite(self._accepted) and not cost <= _above(self._accepted, _ASTRAY)
        return bool(grown and not self._arrives(ends))

    @staticmethod
    def _arrives(ends):
        """Whether a plan comes near the goal: a push from a plant at rest makes any plan costly."""
        begins, finishes = ends
        return finishes < _NEAR * begins


def _above(value: float, factor: float) -> float:
    """A positive value times the factor; and of a negative one as far above it."""
    return value + (factor - 1) * abs(value) if np.isfinite(value) else value
