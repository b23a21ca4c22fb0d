"""Bad input of trajectory optimisation that was once misunderstood; see `refusals`."""

import jax.numpy as jnp
import numpy as np
from refusals import Cart, check_refused, refusals

import jaxmbd as mbd
from jaxmbd import trajopt


class Off(Cart):
    def constraint(self, q, t):
        return q - 1.0


class Two(Cart):
    def mass_matrix(self, q):
        return jnp.eye(2)


def three(*args):
    return jnp.ones(3)


def one(*args):
    return jnp.array(1.0)


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
    ("PiecewiseConstant-of-dt-0", "`dt` of PiecewiseConstant must be positive and finite, but is 0",
     lambda: trajopt.PiecewiseConstant(0.0, 0.0, np.ones((3, 1)))),
    ("PiecewiseConstant-of-text", "`values` of PiecewiseConstant must be numbers",
     lambda: trajopt.PiecewiseConstant(0.0, 1.0, "up")),
    ("Saturated-with-bounds-crossed", "`lower` of Saturated must not exceed `upper`, but is 1.0",
     lambda: trajopt.Saturated(lambda t, q, v: q, 1.0, -1.0)),
    ("Squashed-with-bounds-crossed", "`lower` of Squashed must not exceed `upper`, but is",
     lambda: trajopt.Squashed(lambda t, q, v: q, [0.0, 1.0], 0.5)),
    ("Held-text", "`u` of Held must be numbers, but is 'up'", lambda: trajopt.Held("up")),
    ("Guess-of-text", "`q` of Guess must be numbers, but is 'a'",
     lambda: trajopt.transcription(CART, trajopt.Guess("a", "b", "c"))),
    ("Term-of-a-number", "`fn` of Term must be a function, but is 1.0",
     lambda: trajopt.Term(1.0, np.zeros((1, 1), int))),
    ("Uno-of-an-unknown-preset", '`preset` of Uno must be "ipopt" or "filtersqp", but is .fast.',
     lambda: trajopt.Uno("fast")),
    ("SciPy-of-0-iterations", "`max_iterations` of SciPy .*at least 1",
     lambda: trajopt.SciPy(max_iterations=0)),
    ("best-of-one-plan", r"`plans` of best must be a batch.*shape \(\)",
     lambda: trajopt.best(a_plan(4))),
    ("duration-nan", "`duration` of Problem must be positive", lambda: cart(duration=np.nan)),
    ("state-a-tuple", "`state` of Problem must be a `mbd.State`, but is",
     lambda: cart(state=(0.0, [0.0], [0.0]))),
    ("running-cost-a-number", "`running_cost` of Problem must be a function, but is 1.0",
     lambda: cart(running_cost=1.0)),
    ("expansion-text", "`expansion` of ilqr must be a `mbd.trajopt.AbstractExpansion`, such as",
     lambda: trajopt.ilqr(CART, expansion="first")),
    ("guess-text", r"`guess`, a callable \(t, q, v\) -> u or an array, must be numbers.*'zero'",
     lambda: trajopt.ilqr(CART, "zero")),
    ("guess-of-another-shape", r"`guess` must be a callable .* \(4, 1\) or \(1,\), but has .*\(3,",
     lambda: trajopt.ilqr(CART, np.zeros(3))),
    ("interpolated-to-a-wrong-u", r"`u` must have shape \(1,\), but has \(3,\)",
     lambda: trajopt.interpolated(CART, u=np.zeros(3))),
    ("interpolated-to-q-text", "`q` of interpolated must be numbers, but is 'up'",
     lambda: trajopt.interpolated(CART, "up")),
    ("perform-a-number", r"`control` must be a callable .*, but has shape \(\)",
     lambda: trajopt.perform(CART, 1.0)),
    ("receding-horizon-of-2.5-periods", "`periods` of receding_horizon must be a whole number",
     lambda: trajopt.receding_horizon(CART, 2.5)),
    ("replay-a-plan-of-another-grid", "`plan` of replay must be on the grid .*4 intervals",
     lambda: trajopt.replay(CART, a_plan(7))),
    ("shooting-with-bounds-of-text", "`bounds` of shooting must be a `mbd.trajopt.AbstractBounds`",
     lambda: trajopt.shooting(CART, bounds="squash")),
    ("shooting-of-tolerance-nan", "`tolerance` of shooting must be finite and not negative",
     lambda: trajopt.shooting(CART, tolerance=np.nan)),
    ("transcription-duration-of-three", "`duration` of transcription must be a pair of finite",
     lambda: trajopt.transcription(CART, duration=(1.0, 2.0, 3.0))),
    ("transcription-method-text", "`method` of transcription must be a .*AbstractTranscription`",
     lambda: trajopt.transcription(CART, method="trapezoidal")),
    ("no-steps", "`steps`.* must be a whole number, at least 1, but is 0", lambda: cart(steps=0)),
    ("negative-substeps", "`substeps`.*-1", lambda: cart(substeps=-1)),
    ("no-controls", "`nu`.*0", lambda: cart(nu=0)),
    ("negative-duration", "`duration`.* must be positive.*-1.0", lambda: cart(duration=-1.0)),
    ("two-durations", r"`duration`.*\(2,\)", lambda: cart(duration=np.ones(2))),
    ("bounds-crossed", "control 0 leave no room: `lower` is 1.0, `upper` is 0.0",
     lambda: cart(lower=1.0, upper=0.0)),
    ("bounds-of-another-shape", r"`lower`.*\(1,\).*\(2,\)", lambda: cart(lower=np.zeros(2))),
    ("bound-nan", "`upper`.* must be a number, but is nan", lambda: cart(upper=np.nan)),
    ("cost-of-three", r"`running_cost\(t, q, v, u\)` must return a scalar",
     lambda: cart(running_cost=three)),
    ("final-of-one", r"`final\(t, q, v\)` must return a vector", lambda: cart(final=one)),
    ("path-of-one", r"`path\(t, q, v, u\)` must return a vector", lambda: cart(path=one)),
    ("start-off-the-constraints", r"violates the constraints: \|Phi\| = 1.*`mbd.assemble`",
     lambda: cart(system=Off())),
    ("system-of-another-size", "shape|shapes", lambda: cart(system=Two())),
    ("optimiser-text", "`optimiser`.* must be one of optax",
     lambda: trajopt.shooting(CART, optimiser="adam")),
    ("projected-policy", "`Projected` bounds need a table.*function",
     lambda: trajopt.shooting(CART, lambda t, q, v: q, bounds=trajopt.Projected())),
    ("guesses-of-another-shape", r"`guesses`.* must have shape \(starts, 4, 1\)",
     lambda: trajopt.multi_start(CART, np.zeros((4, 1)))),
    ("guess-nan", "`guess.*` is NaN", lambda: trajopt.shooting(CART, np.array([np.nan]))),
    ("perform-controls-of-another-shape", r"\(4, 1\)",
     lambda: trajopt.perform(CART, np.ones((5, 1)))),
    ("duration-that-falls", "duration",
     lambda: trajopt.transcription(CART, duration=(2.0, 1.0))),
    ("duration-from-0", "positive", lambda: trajopt.transcription(CART, duration=(0.0, 1.0))),
    ("guess-of-another-grid", r"\(5, 1\)",
     lambda: trajopt.transcription(CART, trajopt.Guess(*np.zeros((3, 3, 1))))),
    ("transcription-of-another-guess", "guess",
     lambda: trajopt.transcription(CART, np.zeros((3, 2)))),
)  # fmt: skip
def test_trajectory_optimisation(words, call):
    check_refused(call, words)
