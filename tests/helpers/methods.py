"""All constraint solvers and enforcement methods, with what they need beside them."""

import dataclasses
from collections.abc import Callable

import diffrax

import jaxmbd as mbd

from .cases import CASES

SOLVERS: dict[str, mbd.solvers.AbstractConstraintSolver] = {
    "automatic": mbd.Automatic(),
    "pseudoinverse": mbd.Pseudoinverse(),
    "proximal": mbd.Proximal(),
    "cholesky": mbd.Cholesky(),
    "kkt": mbd.KKT(),
}
INDEPENDENT_ONLY = {"cholesky", "kkt"}  # these solvers report dependent rows


@dataclasses.dataclass(frozen=True)
class Method:
    """An enforcement and what it needs beside it. `drifts`: whether Phi grows with time."""

    enforcement: mbd.AbstractEnforcement
    projection: mbd.Projection | None = None
    drifts: bool = False

    @property
    def split(self) -> bool:
        return isinstance(self.enforcement, mbd.AbstractSplitEnforcement)

    def scheme(self, scheme: diffrax.AbstractSolver) -> diffrax.AbstractSolver | None:
        """The scheme for methods that take any, otherwise the default."""
        continuous = isinstance(self.enforcement, mbd.AbstractContinuousEnforcement)
        return scheme if continuous else None

    def simulate(self, system, state, *args, **kwargs) -> mbd.Solution:
        kwargs = {"projection": self.projection, **kwargs}
        return mbd.simulate(system, self.enforcement, state, *args, **kwargs)


METHODS: dict[str, Callable[[mbd.solvers.AbstractConstraintSolver], Method]] = {
    "udwadia_kalaba": lambda s: Method(mbd.UdwadiaKalaba(s)),
    "uncorrected": lambda s: Method(mbd.UdwadiaKalaba(s, correct=False), drifts=True),
    "multipliers": lambda s: Method(mbd.LagrangeMultipliers(s), drifts=True),
    "baumgarte": lambda s: Method(mbd.LagrangeMultipliers(s, alpha=8.0, beta=9.0)),
    "impulse": lambda s: Method(mbd.VelocityImpulse(s)),
    "impulse_drifting": lambda s: Method(
        mbd.VelocityImpulse(s, mbd.NoStabilisation()), drifts=True
    ),
    "impulse_dead_beat": lambda s: Method(mbd.VelocityImpulse(s, mbd.DeadBeat())),
    "impulse_relaxed": lambda s: Method(mbd.VelocityImpulse(s, mbd.Relaxation(0.05))),
    "dual_penalty": lambda s: Method(mbd.ImplicitPenalty(4e4, 30.0, mbd.Dual(s))),
    "projected": lambda s: Method(mbd.LagrangeMultipliers(s), mbd.Projection(s)),
    "projected_euclidean": lambda s: Method(
        mbd.LagrangeMultipliers(s), mbd.Projection(s, mbd.Euclidean())
    ),
    "projected_impulse": lambda s: Method(
        mbd.VelocityImpulse(s, mbd.NoStabilisation()), mbd.Projection(s)
    ),
    "null_space": lambda s: Method(mbd.IndependentCoordinates(s, mbd.NullSpace())),
    "partitioned": lambda s: Method(mbd.IndependentCoordinates(s, mbd.CoordinatePartitioning())),
    "generalised_alpha": lambda s: Method(mbd.GeneralisedAlpha(0.7, s)),
    "variational": lambda s: Method(mbd.Variational(s)),
    # These do not solve for the rows, so they take no solver.
    "primal_penalty": lambda s: Method(mbd.ImplicitPenalty(4e4, 30.0, mbd.Primal())),
    "explicit_penalty": lambda s: Method(mbd.ExplicitPenalty(400.0, 10.0)),
    "augmented_lagrangian": lambda s: Method(mbd.AugmentedLagrangian(2e3)),
    "augmented_stabilised": lambda s: Method(mbd.AugmentedLagrangian(2e3, omega=9.0, xi=0.9)),
}
WITHOUT_SOLVER = {
    "primal_penalty",
    "explicit_penalty",
    "augmented_lagrangian",
    "augmented_stabilised",
}
# A step is solved by Newton's method.
IMPLICIT = {"generalised_alpha", "variational"}
INDEPENDENT = {"null_space", "partitioned"}
# Its choice of coordinates changes from step to step, which differences see as jumps: by the error
# of the scheme. Its derivatives are tested in enforcement/test_independent_coordinates.py.
SWITCHING = {"partitioned"}
SOFT = {"dual_penalty", "primal_penalty", "explicit_penalty"}  # deflect under load
# Methods that differ from others in one option, and those that take long to compile and have tests
# of their own.
VARIANTS = [
    "augmented_stabilised", "generalised_alpha", "impulse_dead_beat", "impulse_drifting",
    "impulse_relaxed", "multipliers", "null_space", "partitioned", "projected_euclidean",
    "projected_impulse", "uncorrected", "variational",
]  # fmt: skip


def pairs() -> list[tuple[str, str]]:
    """All (method, solver), once with "automatic" for methods that take no solver, and for those
    that take long to compile."""
    return [
        (method, solver)
        for method in METHODS
        for solver in SOLVERS
        if solver == "automatic" or method not in WITHOUT_SOLVER | IMPLICIT | INDEPENDENT
    ]


def method(name: str, solver: str = "automatic") -> Method:
    return METHODS[name](SOLVERS[solver])


def allowed(case: str, solver: str) -> bool:
    return CASES[case].independent or solver not in INDEPENDENT_ONLY


def midpoint() -> diffrax.AbstractSolver:
    """Two stages, the cheapest scheme to compile that has more than one."""
    return diffrax.Midpoint(scan_kind="bounded")


def located(count: int) -> mbd.AtStepStart | mbd.Located:
    """When impacts act: located within a step, up to so many, or at its start for none."""
    return mbd.Located(count) if count else mbd.AtStepStart()
