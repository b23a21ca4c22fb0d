"""What can go wrong numerically, in words."""

import functools
from typing import Any

import diffrax
import jax
import numpy as np

from ._known import is_concrete


class RESULTS(diffrax.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Verdict on a simulation, an assembly or a linear solve; one member per trajectory.

    Extends `diffrax.RESULTS`, so that what an adaptive integration reports is kept as it is.
    Compare with `sol.result == mbd.RESULTS.successful`; under `vmap` every sample has its own.
    """

    successful = ""
    mass_matrix_indefinite = (
        "The mass matrix is not symmetric positive definite. Check the signs and sizes of masses "
        "and inertias, or use `solver=mbd.KKT()` if it is singular by intention."
    )
    singular_constraints = (
        "The constraint solver met linearly dependent constraint rows, which it cannot solve. Use "
        "`mbd.Pseudoinverse()` or `mbd.Proximal()`, or remove the redundant rows."
    )
    contradicting_rows = (
        "Constraint rows contradict each other, as in a loop that does not quite close: no small "
        "motion takes back a part of the violation, and whether the mechanism is locked or moves "
        "is a matter of size. `mbd.mobility` names the joints. Give axes and points of a loop from "
        "the same numbers, or say up to where rows count as dependent: "
        "`mbd.Pseudoinverse(rtol=1e-3)`, `mbd.BlockSparse(rho=1e-6)`."
    )
    nonfinite_state = (
        "A state or a parameter became NaN or infinite. The step may be too large for an explicit "
        "scheme, or an input (a parameter, q, v) was not finite."
    )
    nonfinite_output = (
        "A number that a rollout returned is NaN or infinite, though the simulation did not fail. "
        "Look for a division by zero or a root of a negative number in what is computed from it."
    )
    invalid_parameter = (
        "A traced parameter is out of its range, such as a negative friction, mass, length or "
        "stiffness, or a restitution that is not in [0, 1]. Outside of `jax.jit` the constructor "
        "names it."
    )
    inconsistent_start = (
        "The initial state violates the constraints beyond the tolerance. Make it consistent with "
        "`mbd.assemble`, or raise `start_tolerance`."
    )
    drift = (
        "The constraint violation grew beyond `drift_tolerance`. Use an enforcement that corrects "
        "drift, a `Projection`, or a smaller step."
    )
    implicit_scheme_unsolved = (
        "Newton's method of an implicit scheme did not converge within a step. Use a smaller step, "
        "or take stiff springs as compliant rows of `mbd.ImplicitPenalty`, which needs no "
        "iteration."
    )
    energy_balance = (
        "The energy is off by more than `energy_tolerance` from what forces, controls and moving "
        "constraints have supplied. Use a smaller step, a scheme of higher order, or a continuous "
        "method in place of one at velocity level."
    )
    assembly_failed = (
        "The constraints could not be satisfied from the given configuration. They may contradict "
        "each other (see `state.report` for the rows that remain), or the start is too far away."
    )
    projection_failed = (
        "The projection onto the constraints did not reach its tolerance. Use more iterations or a "
        "smaller step."
    )
    contact_unsolved = (
        "The contact solver did not reach its tolerance, see `contact_residual`. Use a smaller "
        "step, or `mbd.InteriorPoint()` in place of a fixed number of sweeps. Or bodies overlap "
        "that no displacement takes apart, such as one between walls that are too close."
    )
    contact_overflow = "More contacts overlap than `contact_budget` has room for. Raise the budget."
    overlapping_start = (
        "Contacts overlap in the initial state beyond the tolerance. Move the bodies apart, or "
        "raise `start_tolerance`: then the overlap is taken back in the first step."
    )
    gimbal_lock = (
        "Roll-pitch-yaw coordinates reached gimbal lock (pitch = +-90 degrees). Use quaternions."
    )
    invalid_coordinates = "The coordinates are not valid, e.g. a quaternion has vanished."


def first_failure(*results: RESULTS) -> RESULTS:
    """The first of `results` that is not successful, else successful."""
    verdict = results[-1]
    for result in reversed(results[:-1]):
        verdict = RESULTS.where(result == RESULTS.successful, verdict, result)
    return verdict


def of_scheme(result: Any) -> RESULTS:
    """The verdict on a step of a scheme, in words of a simulation."""
    if is_concrete(code(result)) and code(result) == code(diffrax.RESULTS.successful):
        return RESULTS.successful  # what follows would be ten small programs
    verdict = RESULTS.promote(result)
    for unsolved in (
        RESULTS.nonlinear_max_steps_reached,
        RESULTS.nonlinear_divergence,
        RESULTS.nonfinite_input,  # of its linear equations, where it runs away
        RESULTS.singular,
    ):
        verdict = RESULTS.where(verdict == unsolved, RESULTS.implicit_scheme_unsolved, verdict)
    return verdict


def is_verdict(x: Any) -> bool:
    """Whether `x` is a verdict, or a batch of them, of this or another enumeration."""
    return isinstance(x, type(RESULTS.successful))


def promoted(verdict: Any) -> RESULTS:
    """The same verdict as one of `RESULTS`."""
    return verdict if isinstance(verdict, RESULTS) else RESULTS.promote(verdict)


def code(result: Any) -> Any:
    """The number of a verdict of this or another enumeration, an array."""
    return jax.tree.leaves(result)[0]


def verdict(codes: Any) -> RESULTS:
    """The verdict, or the batch of them, with these numbers."""
    return jax.tree.map(lambda _: np.asarray(codes), RESULTS.successful)


@functools.cache
def messages() -> list[str]:
    """Those of all verdicts, by their numbers."""
    return [RESULTS[verdict(i)] for i in range(len(RESULTS))]
