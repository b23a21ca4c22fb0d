"""One step with contacts."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from .._constraints import row_count
from .._enforcement.stepping import (
    AbstractStepper,
    Problem,
    Step,
    free_field,
    free_step,
    stepper_of,
)
from .._results import RESULTS, first_failure
from .contact_impulse import (
    ContactImpulse,
    coefficients,
    contact_groups,
    is_compliant,
    normal_law,
    recovery,
    resolve,
)
from .rows import contact_rows


class ContactStepper(AbstractStepper):
    """The scheme on the free motion, then the impulses; y = (q, v, mean multipliers, mean contact
    forces, greatest residual so far)."""

    problem: Problem
    scheme: diffrax.AbstractSolver

    def start(self, t, h, q, v):
        system = self.problem.system
        contacts = eqx.filter_eval_shape(contact_rows, system, t, q, v)
        d = (contacts.total, contacts.drift.shape[1])
        rows = row_count(system, t, q, v)
        zero = jnp.zeros((), q.dtype)
        y = (q, v, jnp.zeros(rows, q.dtype), jnp.zeros(d, q.dtype), zero)
        terms = diffrax.ODETerm(free_field)
        return y, self.scheme.init(terms, t, t + h, (q, v), self.problem)

    def start_result(self, t, q, v, tolerance):
        contacts = contact_rows(self.problem.system, t, q, v)
        apart = jnp.all((contacts.gap >= -tolerance) | is_compliant(contacts))
        return RESULTS.where(apart, RESULTS.successful, RESULTS.overlapping_start)

    def step(self, t0, t1, y, scheme_state):
        system, enforcement, h = self.problem.system, self.problem.enforcement, t1 - t0
        q, v, _, force, worst = y
        free = free_step(self.problem, self.scheme, t0, t1, q, v, scheme_state)
        here, phi = free.point, free.phi
        operator = here.operator(enforcement.solver)
        feedback = here.rows.position(enforcement.stabilisation.feedback(phi, h))
        wanted = -(operator.rows(here.v) + free.drift + feedback)
        count = wanted.shape[0]
        change, multipliers = operator.correct(wanted, here.v)
        v_free = here.v + change

        contacts = contact_rows(system, t0, q, v)
        groups = contact_groups(enforcement, contacts)
        before, after = contacts.velocities(v), contacts.velocities(v_free)
        normal = normal_law(contacts, before[:, 0], after[:, 0], h)
        solved = resolve(
            enforcement,
            operator,
            count,
            contacts.J,
            after.at[:, 0].add(normal.bias),
            coefficients(contacts, before),
            normal.compliance,
            groups,
            contacts.of_kept(force) * h,
            enforcement.smoothing,
        )
        v = v_free + solved.change
        reached = contacts.velocities(v)[:, 0]
        ahead = contacts.gap + h * reached
        back = jax.lax.cond(
            jnp.any((ahead < -_SLOP) & ~is_compliant(contacts)),
            lambda: recovery(operator, count, contacts, reached, h),
            lambda: jnp.zeros_like(v),
        )
        move = h * v + back
        q, v, projected = self.problem.project(t1, system.retract(q, move), v)
        result = first_failure(
            system.result(y[0]), operator.result(), solved.result, free.result, projected
        )
        if contacts.left_out is not None:
            kept = contacts.left_out > -_OVERFLOW
            result = first_failure(
                result, RESULTS.where(kept, RESULTS.successful, RESULTS.contact_overflow)
            )
        worst = jnp.maximum(worst, solved.residual)
        force = contacts.of_all(solved.impulses / h)
        y = (q, v, (multipliers + solved.multipliers) / h, force, worst)
        return Step(y, free.scheme_state, result, jnp.abs(phi))

    def between(self, t0, h, t, y):
        # Along the step itself: position moves with the new velocity, velocity linearly.
        _, scheme_state = self.start(t0, h, y[0], y[1])
        q, v, *rest = self.step(t0, t0 + h, y, scheme_state).y
        s = (t - t0) / h
        return (self.problem.system.retract(y[0], s * h * v), y[1] + s * (v - y[1]), *rest)

    def multipliers(self, t, y):
        del t
        return y[2]

    def contacts(self, y):
        return y[3], y[4]


# Overlaps [m] that are rounding, and those by which contacts that were left out are missed.
_SLOP = 1e-12
_OVERFLOW = 1e-9


@stepper_of.register
def _(enforcement: ContactImpulse, problem: Problem, scheme, default) -> AbstractStepper:
    del enforcement, default
    return ContactStepper(problem, diffrax.Euler() if scheme is None else scheme)
