"""The verdicts on numerical results, with their messages."""

import functools
from typing import Any

import diffrax
import jax
import numpy as np

from ._compiler import array_namespace, is_known


class _InWords(type(diffrax.RESULTS)):
    """The message of success in diffrax is empty."""

    def __getitem__(cls, item: Any) -> str:
        text = super().__getitem__(item)
        many = np.ndim(code(item)) and is_known(code(item))
        return text.replace("''", "'successful'") if many else text or "successful"


class RESULTS(diffrax.RESULTS, metaclass=_InWords):  # pyright: ignore[reportGeneralTypeIssues]
    """Verdict on a simulation, an assembly, a search or a linear solve.

    Extends `diffrax.RESULTS`, so that verdicts of an adaptive integration are passed on unchanged.
    `print` gives the message. Compare with `sol.result == mbd.RESULTS.successful`. Under `vmap`
    every sample has its own verdict.
    """

    __module__ = "jaxmbd"  # where users know it from

    successful = ""
    mass_matrix_indefinite = (
        "The mass matrix is not symmetric positive definite. Check the signs and sizes of masses "
        "and inertias. If it is singular on purpose, use `solver=mbd.solvers.KKT()`."
    )
    singular_constraints = (
        "The constraint rows are linearly dependent, which this constraint solver cannot handle. "
        "Use `mbd.Pseudoinverse()` or `mbd.solvers.Proximal()`, or remove the redundant rows."
    )
    contradicting_rows = (
        "Constraint rows contradict each other, as in a loop that does not quite close: no small "
        "motion removes a part of the violation, and the tolerance decides whether the mechanism "
        "is locked or moves. `mbd.reports.mobility` names the joints. Compute the axes and points "
        "of a loop from the same numbers, or set the tolerance up to which rows count as "
        "dependent: `mbd.Pseudoinverse(rtol=1e-3)`, `mbd.solvers.BlockSparse(rho=1e-6)`."
    )
    friction_unsettled = (
        "The friction of a joint by its load was not found within a step: it changes the load as "
        "much as the load changes it, as in a mechanism that jams. Use smaller coefficients of "
        "friction, or look for the pose in which the joint locks itself."
    )
    nonfinite_state = (
        "A state or a parameter became NaN or infinite. The step may be too large for an explicit "
        "scheme, or an input (a parameter, q, v) was not finite."
    )
    nonfinite_output = (
        "A number that a rollout returned is NaN or infinite, although its simulation succeeded. "
        "Look for a division by zero or the root of a negative number in what is computed from "
        "the solution."
    )
    invalid_parameter = (
        "A traced parameter is out of its range, such as a negative friction, mass, length or "
        "stiffness, or a restitution that is not in [0, 1]. Call the constructor outside of "
        "`jax.jit`: its error names the parameter."
    )
    inconsistent_start = (
        "The initial state violates the constraints beyond the tolerance. Make it consistent with "
        "`mbd.assemble`, or raise `start_tolerance`."
    )
    drift = (
        "The constraint violation grew beyond `drift_tolerance`. Use an enforcement method that "
        "corrects drift, a `Projection`, or a smaller step."
    )
    implicit_scheme_unsolved = (
        "Newton's method of an implicit scheme did not converge within a step. Use a smaller "
        "step, or model stiff springs as compliant rows of `mbd.ImplicitPenalty`, which needs no "
        "iteration."
    )
    turns_not_counted = (
        "An angle turned by more than a quarter turn in a step, so its whole turns cannot be "
        "counted. A spring, a limit, an actuator or a coupling reads it. Use a smaller step."
    )
    energy_balance = (
        "The energy differs by more than `energy_tolerance` from what forces, controls and moving "
        "constraints have supplied. Use a smaller step, a scheme of higher order, or a continuous "
        "method in place of one at velocity level."
    )
    assembly_failed = (
        "The constraints could not be satisfied from the given configuration. They may contradict "
        "each other (`state.report` shows the unsatisfied rows), or the start is too far away."
    )
    equilibrium_not_found = (
        "No equilibrium was found. The forces may have none, such as a motor without a brake; or "
        "raise `max_iterations`, or begin elsewhere."
    )
    tolerance_out_of_reach = (
        "An equilibrium was found, but not to the requested `tolerance`, which is less than what "
        "rounding leaves. With `throw=False`, `report.residual` is the acceleration that remains. "
        "Give a larger `tolerance`, or none."
    )
    continuation_stopped = (
        "The branch of equilibria could not be followed to its end: the smallest step failed, or "
        "`max_points` was reached. The points up to there are valid. Use a smaller `step` or a "
        "`length` that fits the displacements, or raise `max_points`."
    )
    max_iterations_reached = (
        "The search is not finished: the limit of iterations was reached first. Raise "
        "`max_iterations`, or go on from what was found."
    )
    stuck = (
        "No step improves the cost any further, though the tolerance is not met. The tolerance may "
        "be below what rounding allows, or the costs have kinks."
    )
    infeasible = (
        "The conditions `final` or `path` are violated beyond the tolerance, and larger penalties "
        "do not help. They may contradict the bounds or the dynamics."
    )
    failed_start = (
        "The motion under the first guess failed or is not finite, or the states of the guess "
        "could not be joined to one motion. Choose another guess, more `substeps`, or another "
        "`enforcement`. A motion also fails where an angle that a spring, a limit, an actuator or "
        "a coupling reads passes half a turn from its `middle`, see `half_turn_passed`."
    )
    unstable = (
        "The motion is unstable: small errors grow so much on the way that the controls of the "
        "plan do not lead along it. Follow it with feedback, as `ilqr` and `mbd.analysis.lqr` give "
        "it, plan over a shorter time, or, if it is stiff, take more `substeps`."
    )
    half_turn_passed = (
        "An angle that a spring, a limit, an actuator or a coupling reads passes half a turn from "
        "its `middle`, where the plan takes it for another angle, or turns by more than half a "
        "turn in an interval. Give the problem the `angles` of the middle of the motion, "
        "`mbd.State(t, q, v, angles=...)`, so that all of it is within half a turn of them; or "
        "more `steps`; or plan shorter motions, one after the other."
    )
    astray = (
        "The plan does not hold the plant: it costs far more than those before it, or its final "
        "cost is far above that of the state in which it begins, and searches from other guesses "
        "found no better one. Choose a longer horizon, wider bounds, another `guess`, or a model "
        "that is nearer to the plant."
    )
    limit_point_not_found = (
        "Newton's method found no limit point. Begin closer to it, with the state and the "
        "parameter where a branch turns back. Branch points are not limit points."
    )
    dead_point = (
        "The driven Jacobian is singular: the drive is at a dead point, or it does not determine "
        "the motion. See `ratio`; `dead_point` locates it."
    )
    underdriven = (
        "The mechanism has more freedoms than drives. Give `drive` a coordinate for each freedom; "
        "`mbd.reports.mobility` counts them."
    )
    dead_point_not_found = (
        "Newton's method found no dead point. Begin closer to it, such as at the last good sample "
        "of `kinematics`."
    )
    inputs_not_found = (
        "The search for the best inputs within the bounds did not end. The inputs are within them, "
        "but others may come closer to the motion."
    )
    riccati_unsolved = (
        "The Riccati equation of `lqr` has no solution that is a cost. About an equilibrium, the "
        "inputs do not reach an unstable motion, or `Q` does not see one. Along a motion, `final` "
        "is negative in some direction, or deviations grow too much from point to point: give the "
        "motion more points."
    )
    wrong_size = (
        "`size` is not the number of independent deviations of the state, twice the degrees of "
        "freedom of a holonomic system. Leave it out where the numbers are known, to have it "
        "counted."
    )
    projection_failed = (
        "The projection onto the constraints did not reach its tolerance. Use more iterations or a "
        "smaller step."
    )
    dependents_unsolved = (
        "The dependent coordinates could not be solved from the independent ones to the tolerance "
        "of `IndependentCoordinates`. Use a smaller step; if the independent coordinates were "
        "named, leave them out."
    )
    not_independent = (
        "The coordinates named in `independent` do not describe the motion here: they depend on "
        "each other, or nearly so, or there are not as many as freedoms, which "
        "`mbd.reports.mobility` counts. Leave `independent` out to have them chosen in each step."
    )
    joints_not_independent = (
        "The coordinates of the joints do not describe the motion here: they depend on each other, "
        "as all of a loop do, or there are not as many as freedoms, which "
        "`mbd.reports.mobility` counts. Name joints with one coordinate for each freedom."
    )
    contact_unsolved = (
        "The contact solver did not reach its tolerance (see `contact_residual`). Use a smaller "
        "step, or `mbd.solvers.InteriorPoint()` in place of a fixed number of sweeps. Also look "
        "for overlaps that no displacement can remove, such as a body between walls that are too "
        "close. If only derivatives are unsolved, too many bodies touch too densely to be "
        "eliminated."
    )
    contact_overflow = (
        "More contacts overlap than `contact_budget` has room for, or with `NearContacts` than "
        "`pair_budget` has: raise the budget. Or pieces came from beyond `reach` to an overlap "
        "within one step: raise `reach`, or use a smaller step."
    )
    impacts_unlocated = (
        "More impacts fell into a step than `Located(n, strict=True)` locates. Raise n, or use a "
        "smaller step. A body that comes to rest has infinitely many impacts."
    )
    overlapping_start = (
        "Contacts overlap in the initial state beyond the tolerance, or joints are outside of "
        "their limits. Move the bodies apart, the joints within limits (`mbd.place_bodies`), or "
        "raise `start_tolerance`: the first step then removes the overlap. Called outside of "
        "`jax.jit`, `simulate` names the joints and contacts."
    )
    contact_acts = (
        "A contact presses or strikes in this state, and its force is left out here: the motion "
        "is another one. `simulate` with `ContactImpulse` knows contacts, and `analysis."
        "equilibrium` knows those of a system at rest."
    )
    covariance_indefinite = (
        "The covariance of a filter is not positive: that of a start or of a noise is negative in "
        "some direction, or a sensor without noise reads what is known exactly. Give each sensor a "
        "`sigma` above 0."
    )
    nonfinite_reading = (
        "A reading is NaN or infinite. It was left out. For what is missing on purpose, give "
        "`present`, or a dictionary of the sensors that were read."
    )
    freedoms_changed = (
        "The number of freedoms is not the one with which the filter has started, or is `freedoms` "
        "that is wrong: at a singular pose, linear models of the motion do not hold."
    )
    loss_stays_low = (
        "The loss does not rise to the level of the interval on this side, as far as the profile "
        "went: the measurements do not limit the value there."
    )
    gimbal_lock = (
        "Roll-pitch-yaw coordinates reached gimbal lock (pitch = +-90 degrees). Use quaternions."
    )
    invalid_coordinates = (
        "The coordinates are not valid: a quaternion has vanished, or is lost in rounding. If the "
        "start is good, the step is too large for this motion: use a smaller one, and look at "
        "`phi_norm` and the energy before (`drift_tolerance`, `energy_tolerance`)."
    )


def first_failure(*results: RESULTS) -> RESULTS:
    """The first of `results` that is not successful, else successful."""
    verdict = results[-1]
    for result in reversed(results[:-1]):
        verdict = RESULTS.where(result == RESULTS.successful, verdict, result)
    return verdict


def of_scheme(result: Any) -> RESULTS:
    """The verdict of a simulation for the verdict of a scheme on one step."""
    found, good = code(result), code(diffrax.RESULTS.successful)
    if is_known(found) and np.all(np.asarray(found) == np.asarray(good)):
        return RESULTS.successful  # the lines below would compile ten small programs
    verdict = RESULTS.promote(result)
    for unsolved in (
        RESULTS.nonlinear_max_steps_reached,
        RESULTS.nonlinear_divergence,
        RESULTS.nonfinite_input,  # reported by its linear solver when Newton's method diverges
        RESULTS.singular,
    ):
        verdict = RESULTS.where(verdict == unsolved, RESULTS.implicit_scheme_unsolved, verdict)
    return verdict


def is_verdict(x: Any) -> bool:
    """Whether `x` is a verdict, or a batch of them, of `RESULTS` or of diffrax's enumeration."""
    return isinstance(x, type(RESULTS.successful))


def promoted(verdict: Any) -> RESULTS:
    """The same verdict as one of `RESULTS`."""
    return verdict if isinstance(verdict, RESULTS) else RESULTS.promote(verdict)


def code(result: Any) -> Any:
    """The number of a verdict of any enumeration, as an array."""
    return jax.tree.leaves(result)[0]


def succeeded(result: Any) -> Any:
    """Whether a verdict, or each one of a batch, is `successful`. Unlike `==` it compiles nothing
    for concrete ones."""
    xp = array_namespace(found := code(result))
    return xp.asarray(found) == code(RESULTS.successful)


def verdict(codes: Any) -> RESULTS:
    """The verdict, or batch of verdicts, with these numbers."""
    return jax.tree.map(lambda _: np.asarray(codes), RESULTS.successful)


@functools.cache
def messages() -> list[str]:
    """The messages of all verdicts, indexed by their numbers."""
    return [RESULTS[verdict(i)] for i in range(len(RESULTS))]
