"""Machines with play and friction that sticks: eight parameters of a drive from guesses 50 % off,
and seven of a block on a belt, with the delay of its sensor."""

import identify_belt as belt
import identify_drive as drive
import numpy as np
import pytest
import scipy.integrate

from jaxmbd._results import succeeded

slow = pytest.mark.slow


def by_events(time):
    """Both angles at the times, by the equations of `TRUTH` and location of what sticks and
    slides."""
    p = drive.TRUTH

    def coupling(x):
        twist, rate = x[0] - x[1], x[2] - x[3]
        bent, side = max(abs(twist) - p["play"], 0.0), np.sign(twist)
        return side * max(p["stiffness"] * bent * (1 + p["damping"] * side * rate), 0.0)

    def friction(rate):
        falling = np.exp(-((rate / p["stribeck"]) ** 2))
        return p["sliding"] + (p["static"] - p["sliding"]) * falling

    def rates(t, x, way):
        torque = coupling(x)
        motor = (np.interp(t, drive.TIME, drive.torque(drive.TIME)) - torque) / p["motor"]
        load = (torque - way * friction(x[3])) / p["load"] if way else 0.0
        return [x[2], x[3], motor, load]

    def slips(t, x, way):
        return abs(coupling(x)) - p["static"]

    def stops(t, x, way):
        return way * x[3]

    slips.terminal = stops.terminal = True
    slips.direction, stops.direction = 1, -1
    x, t, way, found = np.zeros(4), 0.0, 0, []
    while t < time[-1]:
        event = stops if way else slips
        ahead = time[(time >= t) & ((time > t) | (t == 0))]
        part = scipy.integrate.solve_ivp(
            rates, (t, time[-1]), x, args=(way,), events=event, t_eval=ahead, max_step=1e-3,
            rtol=1e-9, atol=1e-11,
        )  # fmt: skip
        found.append(part.y[:2].T)
        if not len(part.t_events[0]):
            break
        t, x = float(part.t_events[0][0]), part.y_events[0][0]
        x[3] = 0.0
        torque = coupling(x)
        way = 0 if way and abs(torque) <= p["static"] else int(np.sign(torque))
    return np.concatenate(found)


@slow
def test_all_eight_are_found():
    """From measurements of an independent solution."""
    exact = by_events(drive.TIME)
    made = drive.made_record(noise=1e-12, step=2e-5).measured
    assert np.sqrt(np.mean((made - exact) ** 2)) < 2e-4  # of first order
    noise = drive.NOISE * np.random.default_rng(1).normal(size=exact.shape)
    record = drive.record_of(drive.TIME, exact + noise, drive.torque(drive.TIME))
    found = drive.fitted(record, drive.guesses(), progress=False)
    assert succeeded(found.result) and 0.9 < found.noise < 1.1
    off = (found.entries - list(drive.TRUTH.values())) / found.sigma
    assert np.all(np.abs(off) < 3), off
    assert np.all(found.sigma < 0.02 * np.array(list(drive.TRUTH.values())))


@slow
def test_estimates_of_a_block_on_a_belt_have_no_bias():
    """Without noise the estimates are right to a tenth of their standard deviations with noise,
    though the step alone falsifies some by nine, and the delay to a hundredth of a sample."""
    position = belt.exact()
    found = belt.fitted(belt.record_of(position))
    off, _ = belt.distances(found)
    assert succeeded(found.result)
    np.testing.assert_allclose(off * found.noise, 0, atol=0.1)
    samples = (found.values["delay"] - belt.TRUTH["delay"]) / belt.TIME[1]
    assert abs(samples) < 0.01 and found.sigma[-1] / found.noise / belt.TIME[1] < 0.01
    found = belt.fitted(belt.measured(position))
    off, _ = belt.distances(found)
    assert np.all(np.abs(off) < 4) and 0.9 < found.noise < 1.1
