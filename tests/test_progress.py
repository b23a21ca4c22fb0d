"""Bars say when JAX compiles, and leave that out of their estimates."""

import inspect
import sys
import time

import diffrax
import helpers as h
import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import _progress


@pytest.fixture
def shown(monkeypatch, capsys):
    """A function that gives what was written to the terminal, by bars that look often."""
    monkeypatch.setattr(_progress, "_LOOK", 0.01)
    monkeypatch.setattr(_progress, "_AT_LEAST", 0.0)
    written = []

    def all_of_it():
        written.append(capsys.readouterr().err)
        return "".join(written)

    return all_of_it


def wait_until(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def compiled_when(holds):
    """Traces a function, which takes until something holds."""
    jax.eval_shape(lambda x: wait_until(holds) or x, 1.0)


def test_bar(shown):
    """While JAX compiles the bar says so, and its clock stands still. The words go afterwards."""
    with _progress.progress_bar(3, "search") as bar:
        bar.update(2)
        began = bar.start_t
        compiled_when(lambda: "compiling" in shown() and bar.start_t > began + 0.1)
        wait_until(lambda: bar.postfix == "")
        bar.set_postfix_str("cost 3")
    assert "2/3" in shown().split("compiling")[0].split("\r")[-1]
    assert "cost 3" in shown().split("\r")[-1] and "compiling" not in shown().split("\r")[-1]
    assert not _progress._watches


@_progress.says_when_compiling("search")
def search(label, shown, *, progress=True):
    compiled_when(lambda: not progress or f"{label}: compiling" in shown())
    with _progress.progress_bar(3, "bar", progress) as bar:
        compiled_when(lambda: not progress or "compiling" in (bar.postfix or ""))


def test_line_before_there_is_a_bar(shown):
    """It is gone when the bar comes. Without `progress` nothing is shown."""
    search("search", shown, progress=False)
    assert shown() == ""
    search("search", shown)
    written = shown().split("\r")
    lines = [i for i, x in enumerate(written) if x.startswith("search: compiling")]
    bars = [i for i, x in enumerate(written) if x.startswith("bar: ")]
    assert lines[-1] < bars[0]
    assert any(x == " " * len(written[lines[-1]]) for x in written[lines[-1] :])
    assert not _progress._watches


def test_error_while_compiling(shown):
    def stop():
        if "compiling" in shown():
            raise KeyError("x")

    with pytest.raises(KeyError), _progress.compiling("search"):
        compiled_when(stop)
    assert shown().split("\r")[-2].strip() == ""
    assert not _progress._watches


def test_line_within_the_users_own_jit(shown, monkeypatch):
    """In a terminal, while JAX still compiles the function that called; it is gone afterwards."""
    monkeypatch.setattr(_progress, "_LONG", 0.0)

    def traced(terminal):
        _progress.says_when_traced("simulate")
        wait_until(lambda: "simulate: compiling" in shown() or not terminal)

    jax.eval_shape(lambda: traced(False))
    assert shown() == "" and not _progress._announced
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    jax.eval_shape(lambda: traced(True))
    wait_until(lambda: not _progress._announced)
    assert shown().split("\r")[-2].strip() == ""


def test_simulations_say_so(monkeypatch):
    """When they are traced, and no others."""
    labels = []
    monkeypatch.setattr(sys.modules["jaxmbd._progress"], "_say", labels.append)
    system = h.Pendulum()

    def end():
        state = mbd.assemble(system, [0.9, 0.1])
        options = {"t0": 0.0, "dt": 0.01, "num_steps": 1}
        return mbd.simulate(system, mbd.VelocityImpulse(), state, **options).q

    end()
    assert labels == []
    jax.eval_shape(end)
    assert labels == ["assemble", "simulate"]


def simulation():
    options = dict(num_steps=3, dt=0.1, progress=diffrax.TextProgressMeter())
    mbd.simulate(h.Oscillator(), mbd.UdwadiaKalaba(), mbd.State(0.0, [1.0], [0.0]), **options)


@pytest.mark.parametrize(
    "label, call",
    [
        ("simulate", simulation),
        ("rollouts", lambda: mbd.rollout.run(lambda i, key: i.astype(float), 3)),
        ("fit", lambda: mbd.identify.least_squares(lambda x, y: x - y, np.ones(1), np.ones(2))),
    ],
)
def test_what_says_so(shown, label, call):
    call()
    written = shown().split("\r")
    assert any(x.startswith(label) and "compiling" in x for x in written)


def test_all_that_have_a_bar():
    """Every function with `progress: bool`, but for pictures, which JAX has no part in."""
    labelled = lambda x: hasattr(x, "label")  # noqa: E731
    silent = set()
    for module in (mbd, mbd.identify, mbd.trajopt, mbd.rollout, mbd.plots, mbd.reports):
        for name, thing in vars(module).items():
            if inspect.isfunction(thing) and "progress" in inspect.signature(thing).parameters:
                silent |= {name} if not labelled(inspect.unwrap(thing, stop=labelled)) else set()
    assert silent == {"simulate", "animate"}
