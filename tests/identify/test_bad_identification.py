"""Bad input of identification that was once misunderstood; see `refusals`."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest
from known_motions import QUIET, Oscillator, oscillator, state
from refusals import TIMES, check_refused, refusals

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Bounded, Parameter, Positive, Record

POSITION = {"height": lambda sample: sample.q[0]}

DELAYED = identify.Delayed(POSITION["height"], 0.1)


def build(values):
    return Oscillator(**({"mass": 1.0, "damping": 0.0} | values))


def record(start=None, measured=None, **options):
    measured = np.cos(2 * TIMES) if measured is None else measured
    return Record(TIMES, measured, state() if start is None else start, **options)


def timed(times):
    return Record(times, np.zeros(len(times)), state())


def fitted(records=None, sensors=POSITION, parameters=None, dt=0.05, model=build, **options):
    parameters = {"stiffness": 3.0} if parameters is None else parameters
    records = record() if records is None else records
    return identify.fit(model, parameters, records, sensors, dt=dt, **QUIET, **options)


def of_system(parameters, records=None):
    return fitted(records, parameters=parameters, model=oscillator())


@refusals(
    ("MultiStart-without-key", "`key` of MultiStart must be one random key",
     lambda: identify.MultiStart(5, 0)),
    ("guess-text", "`guess` of `stiffness` must be numbers, but is 'large'",
     lambda: fitted(parameters={"stiffness": "large"})),
    ("sensor-of-text", 'reading of sensor "height" must be numbers, but is \'high\'',
     lambda: fitted(sensors={"height": lambda sample: "high"})),
    ("sensor-that-is-no-function", r'`sensors\["height"\]` of fit must be a function',
     lambda: fitted(sensors={"height": 1.0})),
    ("start-nan", '`start` of Record "record" must be finite, but is',
     lambda: fitted(record(mbd.State(0.0, [np.nan], [0.0])))),
    ("start-from-a-function-of-no-state", '`start` of Record "record" must be a `mbd.State`',
     lambda: fitted(record(lambda system: np.zeros(2)))),
    ("start-of-another-size", r"`mass_matrix\(q\)` must have shape \(2, 2\) for nq = 2, nv = 2",
     lambda: fitted(record(mbd.State(0.0, [1.0, 0.0], [0.0, 0.0])))),
    # What only the data and the model tell.
    ("nan-measured", "nan in row 3, column 0",
     lambda: record(measured=np.where(TIMES == TIMES[3], np.nan, 1))),
    ("times-that-fall", "must increase", lambda: timed([0.0, 2.0, 1.0])),
    ("a-time-twice", "stands in rows 1 and 2", lambda: timed([0.0, 1.0, 1.0])),
    ("too-few-rows", "`measured` of .* needs one row", lambda: record(measured=np.zeros(7))),
    ("weights-of-another-shape", "`weights` of", lambda: record(weights=np.ones(3))),
    ("time-nan", "is NaN", lambda: timed([0.0, np.nan])),
    ("time-of-text", "array of numbers", lambda: timed(["a", "b"])),
    ("path-misspelt", "no parameter `stifness`", lambda: of_system(["stifness"])),
    ("nothing-chosen", "chooses none", lambda: of_system(lambda path, leaf: False)),
    ("guess-out-of-bounds", "must lie between",
     lambda: of_system({"stiffness": Bounded(10.0, 20.0)})),
    ("guess-of-the-wrong-sign", "must be positive",
     lambda: of_system({"stiffness": Parameter(-1.0, Positive())})),
    ("bounds-crossed", "must be finite and increase", lambda: Bounded(2.0, 1.0)),
    ("no-guess", "give `Parameter", lambda: fitted(parameters={"stiffness": Positive()})),
    ("vector-of-length-root-3", "unit vector",
     lambda: fitted(parameters={"stiffness": Parameter(np.ones(3), identify.UnitVector())})),
    ("model-of-a-number", "must return", lambda: fitted(model=lambda values: 1.0)),
    ("no-parameters", "nothing to find", lambda: of_system([])),
    ("no-records", "nothing to compare with", lambda: fitted([])),
    ("more-sensors-than-columns", "give 2 numbers",
     lambda: fitted(sensors={"q": lambda s: s.q, "v": lambda s: s.v})),
    ("too-few-measurements", "2 measurements cannot",
     lambda: of_system(["stiffness", "damping"], Record(TIMES[:2], TIMES[:2], state()))),
    ("other-columns", "same columns",
     lambda: fitted([record(), record(measured=np.ones((11, 2)))])),
    ("more-parts-than-samples", "too few for 50 parts",
     lambda: fitted(shooting=identify.MultipleShooting(50))),
    ("number-of-a-sensor-misspelt",
     r"no parameter `sensors\[height\]\.delai` .* \['sensors\[height\]\.delay'\]",
     lambda: fitted(sensors={"height": DELAYED}, parameters=["sensors[height].delai"])),
    ("record-without-a-clock", r"no parameter `records\[record\]\.clock\.offset`",
     lambda: of_system(["records[record].clock.offset"])),
    ("two-records-of-a-name", "Several records have the name",
     lambda: of_system(["records[record].clock.offset"], [record(clock=identify.Clock(0.1))] * 2)),
    ("delay-that-is-longer-than-the-record", 'column 0 of "record" come less than 9 s after',
     lambda: fitted(sensors={"height": identify.Delayed(POSITION["height"], 0.1, longest=9.0)})),
    ("delay-above-the-longest", "must be between `shortest`, 0 s, and `longest`, 0.1 s, but is 0.2",
     lambda: identify.Delayed(POSITION["height"], 0.2, longest=0.1)),
    ("delay-of-0", "`longest` of Delayed must be given",
     lambda: identify.Delayed(POSITION["height"], 0.0)),
    ("orientation-entry-by-entry", r"UnitVector\(\)",
     lambda: fitted(sensors={"imu": identify.IMU("bar")},
                    parameters={"sensors[imu].orientation": identify.Free()})),
    ("turns-in-parts", "counts turns from the start of a record",
     lambda: fitted(sensors={"height": identify.Unwrapped(POSITION["height"])},
                    shooting=identify.MultipleShooting(2, lambda record, row: state()))),
    ("no-sensors", "Give the sensors once", lambda: fitted(sensors=None)),
    ("sensors-twice", "Give the sensors once",
     lambda: fitted(model=lambda values: (build(values), POSITION))),
    ("noise-without-a-key", "`key` of measure must be given",
     lambda: identify.measure(oscillator(), POSITION, TIMES, state(), dt=0.1, noise=1.0)),
    ("delay-of-a-moment", "let `fit`, `predict` or `measure` read it",
     lambda: jax.eval_shape(
         lambda q: DELAYED(identify.Sample(oscillator(), None, 0.0, q, q)), np.ones(1))),
    ("value-of-another-shape", "has the shape",
     lambda: identify.Leaves(oscillator())({"stiffness": np.ones(2)})),
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
