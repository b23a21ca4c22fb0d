"""Bad input of trajectory optimisation that was once misunderstood; see `refusals`."""

import jax.numpy as jnp
import numpy as np
from refusals import Cart, check_refused, refusals

import jaxmbd as mbd
from jaxmbd import trajopt


class Off(Cart):
    def constraint(self, q, t):
        return q - 1.0


def cart(**changes):
    arguments = dict(system=Cart(), state=mbd.State(0.0, [0.0], [0.0]), duration=1.0, steps=4, nu=1)
    return trajopt.Problem(**{**arguments, **changes})


CART = cart()


def a_plan(steps):
    """Its times are all that is looked at."""
    plan = object.__new__(trajopt.Plan)
    for name, x in (("t", np.arange(steps + 1.0)), ("cost", np.array(1.0))):
        object.__setattr__(plan, name, x)
    return plan


@refusals(
    ("Saturated-with-bounds-crossed", "`lower` of Saturated must not exceed `upper`, but is 1.0",
     lambda: trajopt.Saturated(lambda t, q, v: q, 1.0, -1.0)),
    ("Feedback-with-bounds-crossed", "`lower` of Feedback must not exceed `upper`, but is ",
     lambda: trajopt.Feedback(CART.system, 0.0, 0.1, *(np.zeros((2, 1)),) * 2, np.zeros((1, 1)),
                              np.zeros((1, 1, 2)), np.ones(1), -np.ones(1))),
    ("Guess-of-text", "`q` of Guess must be numbers, but is 'a'",
     lambda: trajopt.transcription(CART, trajopt.Guess("a", "b", "c"))),
    ("best-of-one-plan", r"`plans` of best must be a batch.*shape \(\)",
     lambda: trajopt.best(a_plan(4))),
    ("guess-text", "`guess`.* must be numbers.*'zero'", lambda: trajopt.ilqr(CART, "zero")),
    ("interpolated-to-a-wrong-u", r"`u` must have shape \(1,\), but has \(3,\)",
     lambda: trajopt.interpolated(CART, u=np.zeros(3))),
    ("perform-a-plan-of-another-grid", "plan to perform must be on the grid .*4 intervals",
     lambda: trajopt.perform(CART, a_plan(7))),
    ("two-durations", r"`duration`.*\(2,\)", lambda: cart(duration=np.ones(2))),
    ("bounds-crossed", "control 0 leave no room: `lower` is 1.0, `upper` is 0.0",
     lambda: cart(lower=1.0, upper=0.0)),
    ("bounds-of-another-shape", r"`lower`.*\(1,\).*\(2,\)", lambda: cart(lower=np.zeros(2))),
    ("cost-of-three", r"`running_cost\(t, q, v, u\)` must return a scalar",
     lambda: cart(running_cost=lambda *x: jnp.ones(3))),
    ("final-of-one", r"`final\(t, q, v\)` must return a vector",
     lambda: cart(final=lambda *x: jnp.array(1.0))),
    ("start-off-the-constraints", r"violates the constraints: \|Phi\| = 1.*`mbd.assemble`",
     lambda: cart(system=Off())),
    ("optimiser-text", "`optimiser`.* must be one of optax",
     lambda: trajopt.shooting(CART, optimiser="adam")),
    ("projected-policy", "within `Saturated` bounds needs a table.*function",
     lambda: trajopt.shooting(CART, lambda t, q, v: q, bounds=trajopt.Saturated)),
    ("guesses-of-another-shape", r"`guesses`.* must have shape \(starts, 4, 1\)",
     lambda: trajopt.shooting(CART, trajopt.Starts(np.zeros((4, 1))))),
    ("guess-nan", "`guess.*` is NaN", lambda: trajopt.shooting(CART, np.array([np.nan]))),
    ("perform-controls-of-another-shape", r"\(4, 1\)",
     lambda: trajopt.perform(CART, np.ones((5, 1)))),
    ("duration-that-falls", "duration",
     lambda: trajopt.transcription(CART, duration=(2.0, 1.0))),
    ("guess-of-another-grid", r"\(5, 1\)",
     lambda: trajopt.transcription(CART, trajopt.Guess(*np.zeros((3, 3, 1))))),
)  # fmt: skip
def test_trajectory_optimisation(words, call):
    check_refused(call, words)
