"""Two cheap steps of a pendulum, for tests of input, and a pendulum with functions replaced."""

import diffrax
import equinox as eqx
import helpers as h
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd

UK = mbd.UdwadiaKalaba()
START = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 0.0]))
PENDULUM = h.Pendulum()


def simulate(system=PENDULUM, enforcement=UK, state=START, **options):
    """Two cheap steps, unless told otherwise."""
    steps = {} if "t1" in options or "num_steps" in options else dict(num_steps=2)
    options = {"dt": 0.01, "scheme": diffrax.Euler(), **steps, **options}
    if not isinstance(enforcement, mbd.AbstractContinuousEnforcement):
        options["scheme"] = None
    return mbd.simulate(system, enforcement, state, **options)


class Wrong(mbd.AbstractSystem):
    """A pendulum one of whose functions is replaced."""

    replace: dict = eqx.field(static=True)

    def _or(self, name, default, *args):
        return self.replace[name](*args) if name in self.replace else default

    def mass_matrix(self, q):
        return self._or("mass_matrix", jnp.eye(2), q)

    def force(self, t, q, v, u):
        return self._or("force", jnp.array([0.0, -9.81]), t, q, v, u)

    def constraint(self, q, t):
        return self._or("constraint", q @ q - 0.81, q, t)

    def nonholonomic(self, q, v, t):
        return self._or("nonholonomic", jnp.zeros(0), q, v, t)

    def nonideal_force(self, q, v, t):
        return self._or("nonideal_force", jnp.zeros(2), q, v, t)

    def qdot(self, q, v):
        return self._or("qdot", v, q, v)
