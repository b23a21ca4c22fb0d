"""Inputs that were once accepted in silence, or refused in words about something inside: each is
refused in one line that names the argument and what it must be, or ends in a verdict, or is right.

Nothing here is compiled but for a few small runs; inputs that need a longer one are slow.
"""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identify, rollout, trajopt

TIMES = np.linspace(0.0, 1.0, 11)


def check_refused(call, words):
    """One line, of these words."""
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and "incompatible" not in message, message


def refusals(*cases):
    """(name, words, call) each."""
    assert len({name for name, *_ in cases}) == len(cases)
    return pytest.mark.parametrize(
        "words, call", [pytest.param(words, call, id=name) for name, words, call in cases]
    )


# --- identification ------------------------------------------------------------------------------


class Oscillator(mbd.AbstractSystem):
    """x'' = -k x."""

    k: jax.Array | float = 4.0

    def mass_matrix(self, q):
        return np.eye(1)

    def force(self, t, q, v, u):
        return -self.k * q


POSITION = {"height": lambda sample: sample.q[0]}


def record(start=None, measured=None):
    measured = np.cos(2 * TIMES) if measured is None else measured
    return identify.Record(
        TIMES, measured, mbd.State(0.0, [1.0], [0.0]) if start is None else start
    )


def fitted(records=None, sensors=POSITION, parameters=None, dt=0.05, model=Oscillator, **options):
    parameters = {"k": 3.0} if parameters is None else parameters
    records = record() if records is None else records
    build = (lambda values: Oscillator(**values)) if model is Oscillator else model
    return identify.fit(build, parameters, records, sensors, dt=dt, progress=False, **options)


def an_estimate():
    """None was made: its methods refuse before they look at it."""
    return object.__new__(identify.Estimate)


@refusals(
    ("bootstrap-of-0", "`count` of bootstrap .* at least 1, but is 0",
     lambda: identify.bootstrap(an_estimate(), jax.random.key(0), 0)),
    ("bootstrap-without-key", "`key` of bootstrap must be one random key.*jax.random.key",
     lambda: identify.bootstrap(an_estimate(), 0)),
    ("bootstrap-of-no-estimate", "`estimate` of bootstrap .*identify.Estimate",
     lambda: identify.bootstrap(None, jax.random.key(0))),
    ("interval-at-level-2", r"`level` of Estimate.interval .*between 0 and 1, but is 2",
     lambda: an_estimate().interval(2)),
    ("interval-at-level-nan", "`level` of Estimate.interval .*between 0 and 1",
     lambda: an_estimate().interval(np.nan)),
    ("start-text", "`start` of fit must be a `mbd.identify.AbstractStart`, such as",
     lambda: fitted(start="unknown")),
    ("BodyPoint-of-two-numbers", r"`point` of BodyPoint must have shape \(3,\), but has \(2,\)",
     lambda: identify.BodyPoint("bob", [1.0, 2.0])),
    ("BodyPoint-of-a-number", "`body` of BodyPoint must be text", lambda: identify.BodyPoint(2)),
    ("Cauchy-0", "`scale` of Cauchy must be positive", lambda: identify.Cauchy(0)),
    ("Huber-negative", "`delta` of Huber must be positive.*-1", lambda: identify.Huber(-1)),
    ("Huber-nan", "`delta` of Huber must be positive.*nan", lambda: identify.Huber(np.nan)),
    ("MultiStart-of-0", "`count` of MultiStart .*at least 1, but is 0",
     lambda: identify.MultiStart(0, jax.random.key(0))),
    ("MultiStart-without-key", "`key` of MultiStart must be one random key",
     lambda: identify.MultiStart(5, 0)),
    ("records-text", "`records` of fit .*`mbd.identify.Record`.* but is 'data.csv'",
     lambda: fitted("data.csv")),
    ("records-of-text", "`records` of fit .*`mbd.identify.Record`.* but is", lambda: fitted(["a"])),
    ("dt-text", "`dt` of fit must be a number, but is 'small'", lambda: fitted(dt="small")),
    ("dt-nan", "`dt` of fit must be positive and finite, but is nan", lambda: fitted(dt=np.nan)),
    ("guess-text", "`guess` of `k` must be numbers, but is 'large'",
     lambda: fitted(parameters={"k": "large"})),
    ("loss-text", "`loss` of fit must be a `mbd.identify.AbstractLoss`, such as",
     lambda: fitted(loss="huber")),
    ("max_steps-0", "`max_steps` of fit .*at least 1, but is 0", lambda: fitted(max_steps=0)),
    ("max_steps-negative", "`max_steps` of fit .*at least 1, but is -3",
     lambda: fitted(max_steps=-3)),
    ("tolerance-nan", "`tolerance` of fit must be positive and finite, but is nan",
     lambda: fitted(tolerance=np.nan)),
    ("optimiser-text", "`optimiser` of fit must be a .*, but is 'adam'",
     lambda: fitted(optimiser="adam")),
    ("parameters-a-number", "`parameters` of fit must be a dictionary .*but is 3.0",
     lambda: fitted(parameters=3.0)),
    ("parameters-a-list-for-a-function", "`parameters` of fit must be a .*, but is",
     lambda: fitted(parameters=["k"])),
    ("prior-of-sigma-0", "`sigma` of Parameter must be positive", 
     lambda: identify.Parameter(3.0, sigma=0.0)),
    ("prior-of-negative-sigma", "`sigma` of Parameter must be positive, but is -0.5",
     lambda: identify.Parameter(3.0, sigma=-0.5)),
    ("prior-of-sigma-nan", "`sigma` of Parameter must be positive, but is nan",
     lambda: identify.Parameter(np.ones(2), sigma=[1.0, np.nan])),
    ("transform-text", "`transform` of Parameter must be a `mbd.identify.AbstractTransform`",
     lambda: identify.Parameter(3.0, "positive")),
    ("sensor-of-text", 'reading of sensor "height" must be numbers, but is \'high\'',
     lambda: fitted(sensors={"height": lambda sample: "high"})),
    ("sensor-that-is-no-function", r'`sensors\["height"\]` of fit must be a function',
     lambda: fitted(sensors={"height": 1.0})),
    ("sensors-a-number", "`sensors` of fit must be .*a function, but is 1.0",
     lambda: fitted(sensors=1.0)),
    ("shooting-text", "`shooting` of fit must be a `mbd.identify.AbstractShooting`",
     lambda: fitted(shooting="multiple")),
    ("start-nan", '`start` of Record "record" must be finite, but is',
     lambda: fitted(record(mbd.State(0.0, [np.nan], [0.0])))),
    ("start-none", "`start` of Record must be a `mbd.State` or a function, but is None",
     lambda: identify.Record(TIMES, TIMES, None)),
    ("start-an-array", "`start` of Record must be a `mbd.State` or a function, but is",
     lambda: record(np.zeros(2))),
    ("start-from-a-function-of-no-state", '`start` of Record "record" must be a `mbd.State`',
     lambda: fitted(record(lambda system: np.zeros(2)))),
    ("start-of-another-size", r"`mass_matrix\(q\)` must have shape \(2, 2\) for nq = 2, nv = 2",
     lambda: fitted(record(mbd.State(0.0, [1.0, 0.0], [0.0, 0.0])))),
    ("Bounded-by-text", "`lower` of Bounded must be numbers", lambda: identify.Bounded("a", 2.0)),
    ("Free-of-scale-0", "`scale` of Free must be positive", lambda: identify.Free(0.0)),
    ("UnknownStart-negative", "`sigma_position` of UnknownStart must be positive",
     lambda: identify.UnknownStart(sigma_position=-1.0)),
)  # fmt: skip
def test_identification(words, call):
    check_refused(call, words)


@pytest.mark.parametrize(
    "content, words",
    [
        (lambda data: b"[1, 2]\n", "no checkpoint of a fit: remove it"),
        (lambda data: b"\x00\xff", "no checkpoint of a fit: remove it"),
        (lambda data: data[: len(data) // 2], "is damaged: remove it"),
        (lambda data: data[: data.index(b"\n") + 1], "is damaged: remove it"),
    ],
    ids=["a-list", "bytes", "truncated", "header-alone"],
)
def test_damaged_checkpoint(tmp_path, content, words):
    path, state = tmp_path / "search", {"x": np.arange(50.0), "y": np.zeros(3)}
    checkpoint = identify.Checkpoint(path, state)
    checkpoint.save(4, state, now=True)
    assert json.loads(path.read_bytes().split(b"\n")[0])["iterations"] == 4
    assert eqx.tree_equal(checkpoint.restored(state), (4, state))
    path.write_bytes(content(path.read_bytes()))
    check_refused(lambda: checkpoint.restored(state), words)


# --- trajectory optimisation ---------------------------------------------------------------------


class Cart(mbd.AbstractSystem):
    """x'' = u."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return u


def cart(**changes):
    arguments = dict(system=Cart(), state=mbd.State(0.0, [0.0], [0.0]), duration=1.0, steps=4, nu=1)
    return trajopt.Problem(**{**arguments, **changes})


CART = cart()


def a_plan(steps):
    """Its times are all that is looked at."""
    plan = object.__new__(trajopt.Plan)
    for name, x in (("t", jnp.arange(steps + 1.0)), ("cost", jnp.array(1.0))):
        object.__setattr__(plan, name, x)
    return plan


@refusals(
    ("PiecewiseConstant-of-dt-0", "`dt` of PiecewiseConstant must be positive and finite, but is 0",
     lambda: trajopt.PiecewiseConstant(0.0, 0.0, np.ones((3, 1)))),
    ("PiecewiseLinear-of-negative-dt", "`dt` of PiecewiseLinear must be positive",
     lambda: trajopt.PiecewiseLinear(0.0, -1.0, np.ones((3, 1)))),
    ("PiecewiseQuadratic-of-dt-nan", "`dt` of PiecewiseQuadratic must be positive",
     lambda: trajopt.PiecewiseQuadratic(0.0, np.nan, np.ones((3, 1)), np.ones((2, 1)))),
    ("PiecewiseConstant-of-text", "`values` of PiecewiseConstant must be numbers",
     lambda: trajopt.PiecewiseConstant(0.0, 1.0, "up")),
    ("Saturated-with-bounds-crossed", "`lower` of Saturated must not exceed `upper`, but is 1.0",
     lambda: trajopt.Saturated(lambda t, q, v: q, 1.0, -1.0)),
    ("Squashed-with-bounds-crossed", "`lower` of Squashed must not exceed `upper`, but is",
     lambda: trajopt.Squashed(lambda t, q, v: q, [0.0, 1.0], 0.5)),
    ("Saturated-of-a-number", "`control` of Saturated must be a function, but is 1.0",
     lambda: trajopt.Saturated(1.0, -1.0, 1.0)),
    ("Uno-of-an-unknown-preset", '`preset` of Uno must be "ipopt" or "filtersqp", but is .fast.',
     lambda: trajopt.Uno("fast")),
    ("Uno-of-tolerance-nan", "`tolerance` of Uno must be positive",
     lambda: trajopt.Uno(tolerance=np.nan)),
    ("SciPy-of-0-iterations", "`max_iterations` of SciPy .*at least 1",
     lambda: trajopt.SciPy(max_iterations=0)),
    ("best-of-one-plan", r"`plans` of best must be a batch.*shape \(\)",
     lambda: trajopt.best(a_plan(4))),
    ("best-of-a-list", "`plans` of best must be a `mbd.trajopt.Plan`, but is",
     lambda: trajopt.best([a_plan(4)])),
    ("duration-text", "`duration` of Problem must be numbers, but is 'short'",
     lambda: cart(duration="short")),
    ("duration-nan", "`duration` of Problem must be positive", lambda: cart(duration=np.nan)),
    ("steps-fraction", "`steps` of Problem must be a whole number, at least 1, but is 2.5",
     lambda: cart(steps=2.5)),
    ("scheme-text", "`scheme` of Problem must be a .*AbstractSolver`.* but is 'rk4'",
     lambda: cart(scheme="rk4")),
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
    ("problem-a-system", "`problem` of ilqr must be a `mbd.trajopt.Problem`, but is",
     lambda: trajopt.ilqr(Cart())),
    ("receding-horizon-of-2.5-periods", "`periods` of receding_horizon must be a whole number",
     lambda: trajopt.receding_horizon(CART, 2.5)),
    ("replay-a-plan-of-another-grid", "`plan` of replayed must be on the grid .*4 intervals",
     lambda: trajopt.replayed(CART, a_plan(7))),
    ("shooting-with-bounds-of-text", "`bounds` of shooting must be a `mbd.trajopt.AbstractBounds`",
     lambda: trajopt.shooting(CART, bounds="squash")),
    ("shooting-of-tolerance-nan", "`tolerance` of shooting must be finite and not negative",
     lambda: trajopt.shooting(CART, tolerance=np.nan)),
    ("shooting-of-negative-penalty", "`penalty` of shooting must be positive",
     lambda: trajopt.shooting(CART, penalty=-1.0)),
    ("transcription-duration-a-number", "`duration` of transcription must be a sequence, but is 1",
     lambda: trajopt.transcription(CART, duration=1.0)),
    ("transcription-duration-of-three", "`duration` of transcription must be a pair of finite",
     lambda: trajopt.transcription(CART, duration=(1.0, 2.0, 3.0))),
    ("transcription-method-text", "`method` of transcription must be a .*AbstractTranscription`",
     lambda: trajopt.transcription(CART, method="trapezoidal")),
    ("transcription-solver-text", "`solver` of transcription must be a .*AbstractNLPSolver`",
     lambda: trajopt.transcription(CART, solver="ipopt")),
)  # fmt: skip
def test_trajectory_optimisation(words, call):
    check_refused(call, words)


# --- rollouts ------------------------------------------------------------------------------------


def run(one=lambda x, key: 2 * x, samples=np.arange(4.0), **options):  # noqa: B008
    return rollout.run(one, samples, progress=False, **options)


@refusals(
    ("function-that-returns-none", "function of run returned None, which holds no numbers: return",
     lambda: run(lambda x, key: None)),
    ("function-that-returns-text", "function of run returned 'done' .*no array of numbers",
     lambda: run(lambda x, key: "done")),
    ("not-a-function", "`one` of run must be a function, but is 1.0", lambda: run(1.0)),
    ("samples-of-objects", "`samples` must be numbers or random keys, but is",
     lambda: run(samples=np.array([Cart(), Cart()]))),
    ("samples-text", r"`samples` must be numbers or random keys, but is \['a', 'b'\]",
     lambda: run(samples=np.array(["a", "b"]))),
    ("chunk-2.0", "`chunk` of run must be a whole number, but is 2.0", lambda: run(chunk=2.0)),
    ("chunk-3", "`chunk` of run must be a power of two, but is 3: e.g. 2", lambda: run(chunk=3)),
    ("store-text", "`store` of run must be a `mbd.rollout.AbstractStore`.* but is 'here'",
     lambda: run(store="here")),
    ("Zarr-at-a-number", "`path` of Zarr must be text or a", lambda: rollout.Zarr(3)),
    ("Mean-of-text", "`of` of Mean must be a function", lambda: rollout.Mean("q")),
    ("Histogram-nan", "`edges` of Histogram must be finite",
     lambda: rollout.Histogram([0.0, np.nan])),
    ("memory-negative", "`memory` of run must be positive", lambda: run(memory=-1.0)),
    ("key-0", "`key` of run must be one random key", lambda: run(key=0)),
)  # fmt: skip
def test_rollouts(words, call):
    check_refused(call, words)


def test_rollout_that_throws():
    """The remedy is named, and counts the sample that failed."""

    def one(height, key, throw=True):
        state = mbd.State(0.0, height[None], jnp.zeros(1))
        return mbd.simulate(Lifted(), mbd.UdwadiaKalaba(), state, num_steps=1, dt=0.01, throw=throw)

    heights = jnp.array([0.0, 0.5])
    with pytest.raises(RuntimeError, match="violates the constraints.*`throw=False`") as caught:
        run(one, heights)
    assert "\n" not in str(caught.value)
    found = run(lambda height, key: one(height, key, throw=False), heights)
    assert found.failures.index.tolist() == [1]
    assert repr(found).startswith("Rollouts(n=2") and "1 failures" in repr(found)


class Lifted(Cart):
    """At x = 0."""

    def force(self, t, q, v, u):
        return jnp.zeros(1)

    def constraint(self, q, t):
        return q


def test_a_run_without_failures_is_printed():
    assert "0 failures" in repr(run()) and "4 succeeded, 0 failed" in str(run())
