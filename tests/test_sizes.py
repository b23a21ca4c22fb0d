"""What is asked for is measured before it is computed."""

import sys

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Pendulum

import jaxmbd as mbd
from jaxmbd import _sizes, trajopt
from jaxmbd._compiler import to_jax
from jaxmbd._simulate.grid import make_grid, make_saving

HUGE, MANY = 10**18, 2**31 - 1
SYSTEM, UK = Pendulum(1.0, 1.0, 9.81), mbd.UdwadiaKalaba()
STATE = mbd.State(0.0, [1.0, 0.0], [0.0, 0.0])
EVERY = diffrax.SaveAt(steps=1)
ADAPTIVE = diffrax.PIDController(rtol=1e-6, atol=1e-6)


@pytest.fixture
def a_gibibyte(monkeypatch):
    """Is what there is; and a motion that is begun fails."""
    monkeypatch.setattr(_sizes, "available_bytes", lambda devices: 2.0**30)
    begins = ("_simulate.simulate", "_simulate"), ("analysis.nonfinite", "run")
    for module, name in (*begins, ("analysis.tangent_growth", "admissible")):
        monkeypatch.setattr(sys.modules[f"jaxmbd.{module}"], name, None)


def simulated(**options):
    return mbd.simulate(SYSTEM, UK, STATE, **options)


COUNTED = "steps are requested, but a simulation takes at most 2147483647.*fewer `num_steps`"


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(dt=1e-3, num_steps=HUGE), f"1e[+]18 {COUNTED}"),
        (dict(dt=1e-3, num_steps=10**400), f"Very many {COUNTED}"),
        (dict(dt=1e-9, t1=10.0), f"1e[+]10 {COUNTED}"),
        (dict(dt=1e-18, t1=1.0), "`dt` = 1e-18 is lost beside t = 1 in float64.*larger `dt`"),
        (dict(dt=1e-3, t1=1e300, stepsize_controller=ADAPTIVE), "is lost beside t = 1e[+]300"),
        (
            dict(dt=1e-3, num_steps=MANY, saveat=EVERY),
            "saved at 2.147e[+]09 times takes at least 80 GiB of memory, but there are 1 GiB: "
            r"save every n-th step by `SaveAt\(steps=n\)`",
        ),
        (
            dict(dt=1e-3, num_steps=MANY, saveat=diffrax.SaveAt(t1=True, ts=to_jax([0.5]))),
            r"`ts` among 2.147e[+]09 steps takes at least 8 GiB .* by `SaveAt\(steps=n\)`",
        ),
    ],
)
def test_too_long(options, words, a_gibibyte):
    with pytest.raises(ValueError, match=words):
        simulated(**options)


def test_too_long_inside_of_transformations(a_gibibyte):
    each = jax.vmap(lambda dt: simulated(dt=dt, num_steps=10**9, saveat=EVERY).q)
    with pytest.raises(ValueError, match=r"SaveAt\(steps=n\)"):
        jax.eval_shape(each, np.ones(3))


@pytest.mark.parametrize("fn", [mbd.analysis.tangent_growth, mbd.analysis.first_nonfinite])
@pytest.mark.parametrize("steps, words", [(HUGE, COUNTED), (MANY, "GiB of memory.*`num_steps`")])
def test_too_long_to_analyse(fn, steps, words, a_gibibyte):
    with pytest.raises(ValueError, match=words):
        fn(SYSTEM, UK, STATE, dt=1e-3, num_steps=steps)


@pytest.mark.parametrize(
    "steps, substeps, words", [(10, HUGE, COUNTED), (10**9, 1, "GiB.*`substeps`")]
)
def test_too_long_to_plan(steps, substeps, words, a_gibibyte):
    with pytest.raises(ValueError, match=words):
        trajopt.Problem(SYSTEM, STATE, 1.0, steps, nu=2, substeps=substeps)


def test_too_short_steps_of_a_fit():
    record = mbd.identify.Record(np.linspace(0, 1, 5), np.zeros((5, 2)), start=STATE)
    free, read = {"length": mbd.identify.Positive()}, lambda sample: sample.q
    with pytest.raises(ValueError, match=COUNTED):
        mbd.identify.fit(SYSTEM, free, [record], read, dt=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_limit_is_exact(dtype, monkeypatch):
    """Times and states of 10^5 steps, five numbers each, in so many bytes and not in one less; and
    the least step that rounding leaves."""
    state = mbd.State(0.0, *(np.asarray(x, dtype) for x in (STATE.q, STATE.v)))
    grid = make_grid(0.0, None, 1e-3, 10**5, dtype)
    saving = make_saving(EVERY, grid)
    size = 10**5 * 5 * np.dtype(dtype).itemsize
    monkeypatch.setattr(_sizes, "available_bytes", lambda devices: size)
    saving.check_fits(state, SYSTEM, grid.steps)
    monkeypatch.setattr(_sizes, "available_bytes", lambda devices: size - 1)
    with pytest.raises(ValueError, match="100000 times|1e[+]05 times"):
        saving.check_fits(state, SYSTEM, grid.steps)
    eps = float(np.finfo(dtype).eps)
    assert make_grid(1.0, 1.0 + 8 * eps, eps, None, dtype).steps == 8
    with pytest.raises(ValueError, match=np.dtype(dtype).name):
        make_grid(1.0, 1.0 + 8 * eps, 0.4 * eps, None, dtype)


def test_outputs_too_large(tmp_path, monkeypatch):
    run, row = mbd.rollout.run, lambda index, key: jnp.zeros(1000)
    with pytest.raises(ValueError, match="number of samples must be from 1 to 2147483647"):
        run(row, HUGE, progress=False)
    monkeypatch.setattr("jaxmbd.rollout.stores.host_bytes", lambda: 1e9)
    with pytest.raises(ValueError, match=r"1000000 samples take .*Zarr\(path\).*`reductions=`"):
        run(row, 10**6, progress=False)
    pytest.importorskip("zarr")
    usage = type("Usage", (), {"free": 10_000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.warns(UserWarning, match="still to be computed take 78.12 KiB.* has 9.766 KiB"):
        run(row, 10, store=mbd.rollout.Zarr(tmp_path / "x"), progress=False)
