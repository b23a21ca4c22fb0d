"""Loops of simulations as one function: the option of XLA, and that nothing stands in its way."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BOX, Ball, Pendulum, in_the_way, three_bars

import jaxmbd as mbd
from jaxmbd._compiler import process
from jaxmbd._compiler.process import BYTES, with_whole_loops

FLAG = "--xla_backend_extra_options="
LIMIT = "xla_cpu_small_while_loop_byte_threshold="
OPTION = f"{LIMIT}{BYTES},-forget-scev-loop-unroll"


@pytest.mark.parametrize(
    "before, after, cpus_only",
    [
        ("--a=1 --b", f"--a=1 --b {FLAG}{OPTION}", False),
        (f"{FLAG}x=1 --b", f"{FLAG}x=1,{OPTION} --b", False),
        (f"--b {FLAG}{LIMIT}1", f"--b {FLAG}{LIMIT}1", True),
        ("", f"{FLAG}{OPTION},-unroll-threshold=80", True),
        (f"{FLAG}-unroll-threshold=200", f"{FLAG}-unroll-threshold=200,{OPTION}", True),
    ],
)
def test_merged_with_other_flags(before, after, cpus_only):
    """The option of LLVM for short loops would act on programs of GPUs too."""
    assert with_whole_loops(before, cpus_only) == after


LOOP = """
import jax, jax.numpy as jnp
before = dict(jax.config.values)
import jaxmbd
print(*(k for k, v in jax.config.values.items() if before.get(k, v) != v))
step = lambda c, _: (jnp.outer(c, c) @ c * 0.1, None)
run = jax.jit(lambda x: jax.lax.scan(step, x, None, length=100)[0])
print("xla_cpu_small_call" in run.lower(jnp.ones(64)).compile().as_text())
print(jax.config.jax_default_matmul_precision)
"""


def test_import_sets_the_options():
    """Whole loops, and products in full precision, not in TensorFloat-32 on GPUs. No other setting
    of JAX changes."""
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", LOOP]
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["jax_default_matmul_precision", "True", "highest"]


def test_precision_that_the_user_has_chosen_stays():
    jax.config.update("jax_default_matmul_precision", "high")
    try:
        process.request_full_precision()
        assert jax.config.jax_default_matmul_precision == "high"
    finally:
        jax.config.update("jax_default_matmul_precision", "highest")


@pytest.mark.skipif(jax.__version_info__ >= (0, 12), reason="the limit is large by default")
def test_too_late_is_said(monkeypatch):
    jax.devices()
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    with pytest.warns(UserWarning, match="XLA_FLAGS=" + FLAG + OPTION):
        process.request_whole_loops()
    assert os.environ["XLA_FLAGS"] == "--a=1"


SHAPE = mbd.Box(size=[0.3, 0.05, 0.05])


def dropped(height):
    body = mbd.Body("box", BOX, position=[0.0, 0.0, height])
    floor = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), SHAPE, friction=0.4)
    return mbd.Mechanism([body], contacts=[floor])


def stacked():
    """Two boxes with fewer contacts than there may be, one of them on a hinge that drags."""
    low, high = (
        mbd.Body(n, BOX, position=[0.0, 0.0, z]) for n, z in (("low", 0.025), ("high", 0.075))
    )
    arm = mbd.Body("arm", BOX, position=[0.15, 0.0, 0.5])
    hinge = mbd.Revolute("hinge", "ground", arm, point=[0.0, 0.0, 0.5], axis=[0.0, 1.0, 0.0])
    pieces = [("ground", mbd.HalfSpace()), (low, SHAPE), (high, SHAPE)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.4))
    return mbd.Mechanism([low, high, arm], [hinge], contacts=contacts, contact_budget=8)


ONCE = mbd.Located(1)
ALL_OPTIONS = mbd.ContactImpulse(
    friction=mbd.contacts.Pyramid(4), impact_law=mbd.contacts.Poisson(), impacts=ONCE
)
PARTITIONED = mbd.IndependentCoordinates(independent=mbd.methods.CoordinatePartitioning())
CLOSED, IN_PLANE = three_bars(True), three_bars(True, plane=mbd.Plane())
SWUNG = Pendulum(), mbd.State(0.0, [0.9, 0.0], [0.0, 0.0])
DROPPED = Ball(*np.array([1.0, 0.4, 0.5])), mbd.State(0.0, [0.0, 0.01], [0.1, 0.0])
# A name, a system, a method, whether it is differentiated, and whether by default. A gradient holds
# its motion.
CASES = [
    ("pendulum", SWUNG, mbd.VelocityImpulse(), True, True),
    ("ball, all options", DROPPED, ALL_OPTIONS, False, True),
    ("loop, forwards", CLOSED, mbd.VelocityImpulse(), False, True),
    ("loop, pseudoinverse", CLOSED, mbd.VelocityImpulse(mbd.Pseudoinverse()), False, False),
    ("tree, KKT", three_bars(False), mbd.VelocityImpulse(mbd.solvers.KKT()), False, False),
    ("loop, partitioned", CLOSED, PARTITIONED, False, False),
    ("loop in a plane, alpha", IN_PLANE, mbd.GeneralisedAlpha(), True, False),
    ("loop in a plane, variational", IN_PLANE, mbd.Variational(), True, False),
    (
        "sweeps",
        dropped(0.025),
        mbd.ContactImpulse(mbd.solvers.ProjectedGaussSeidel(5)),
        False,
        False,
    ),
    ("located", dropped(0.03), mbd.ContactImpulse(impacts=ONCE), True, False),
    ("smoothed, with rows", stacked(), mbd.ContactImpulse(smoothing=1e-3), True, False),
]


@pytest.mark.parametrize(
    "system, method, derivative",
    [
        pytest.param(*case, id=name, marks=[] if by_default else pytest.mark.slow)
        for name, *case, by_default in CASES
    ],
)
def test_nothing_stands_in_the_way(system, method, derivative):
    system, state = system if isinstance(system, tuple) else (system, system.state())

    def end(speed):
        start = mbd.State(0.0, state.q, state.v + speed)
        sol = mbd.simulate(system, method, start, dt=1e-3, num_steps=20, throw=False)
        return jnp.sum(sol.q)

    program = jax.jit(jax.grad(end) if derivative else end).lower(0.1)
    assert in_the_way(program) == {}
