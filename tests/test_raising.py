"""Failures as errors: raised after the program, which so can be kept on disk; one line each."""

import os
import pathlib
import subprocess
import sys

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd

UK = mbd.UdwadiaKalaba(mbd.Cholesky())
TESTS = pathlib.Path(__file__).resolve().parent
AWAY = "The initial state violates the constraints beyond the tolerance"


class Pendulum(h.Pendulum):
    """Of this module alone, so that nothing of it is compiled before."""


def swing(length, **options):
    state = mbd.State(0.0, jnp.array([0.9, 0.0]), jnp.zeros(2))
    return mbd.simulate(Pendulum(length=length), UK, state, t1=0.03, dt=1e-2, **options)


def test_programs_hold_no_callback(monkeypatch):
    """Which JAX does not keep on disk. Errors are one line, and name the failure."""

    def none(*args, **kwargs):
        raise AssertionError("A callback is compiled in.")

    monkeypatch.setattr(jax, "pure_callback", none)
    swing(jnp.array(0.9))
    jax.grad(lambda length: swing(length).q[-1, 1])(jnp.array(0.9))
    with pytest.raises(eqx.EquinoxRuntimeError, match=f"^{AWAY}[^\n]*$"):
        swing(jnp.array(0.8))
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"^The constraints could not be[^\n]*$"):
        mbd.assemble(Pendulum(), [1.0, 0.1], fixed=[0])


def test_raise_if_failed():
    """Of a batch that was computed without raising: how many failed, which first, and why."""
    lengths = jnp.array([0.9, 0.8, 0.9, jnp.nan])
    batch = jax.jit(jax.vmap(lambda length: swing(length, throw=False)))(lengths)
    with pytest.raises(RuntimeError, match=f"^2 of 4 failed, the first at index 1: {AWAY}"):
        mbd.raise_if_failed(batch)
    with pytest.raises(RuntimeError, match="^A state or a parameter became NaN"):
        mbd.raise_if_failed({"one": jax.tree.map(lambda x: x[3], batch)})
    good = jax.tree.map(lambda x: x[:1], batch)
    assert mbd.raise_if_failed(good) is good
    assert mbd.raise_if_failed(3.0) == 3.0
    with pytest.raises(RuntimeError, match=AWAY):
        eqx.filter_jit(mbd.raise_if_failed)(batch)


def kept_on_disk(folder):
    """In a process of its own, how many programs were compiled, and how many of them read."""
    counts = {"compile_requests_use_cache": 0, "cache_hits": 0}

    def listen(event, **_):
        name = event.rpartition("/")[2]
        if name in counts:
            counts[name] += 1

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.monitoring.register_event_listener(listen)
    swing(jnp.array(0.9))
    jax.grad(lambda length: swing(length).q[-1, 1])(jnp.array(0.9))
    mbd.assemble(Pendulum(), [0.9, 0.1])
    body = mbd.Body("arm", mbd.Inertia.box(size=[1.0, 0.1, 0.1], mass=1.0), position=[0.5, 0, 0])
    hinge = mbd.Revolute("hinge", "ground", body, point=[0, 0, 0], axis=[0, 1, 0])
    mechanism = mbd.Mechanism([body], [hinge])
    state = mbd.close_joints(mechanism, mbd.place(mechanism, {"hinge": 0.3}))
    mbd.simulate(mechanism, mbd.VelocityImpulse(), state, t1=0.02, dt=0.01)
    print(*counts.values())


@pytest.mark.slow
def test_programs_are_kept_on_disk(tmp_path):
    """A second process compiles nothing."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    command = [sys.executable, __file__, str(tmp_path)]
    for hits in (False, True):
        printed = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
        programs, read = map(int, printed.split())
        assert read == programs if hits else programs > 10


if __name__ == "__main__":
    kept_on_disk(sys.argv[1])
