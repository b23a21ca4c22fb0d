"""Tables of bad inputs, with the words that refuse them: one line that names the argument and what
it must be."""

import re
from typing import Any

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxmbd as mbd

TIMES = np.linspace(0.0, 1.0, 11)


def check_refused(call, words):
    """One line, of these words."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    if isinstance(caught.value, jaxtyping.TypeCheckError):
        return  # tests with checks of all shapes may find it sooner
    assert re.search(words, message) and "\n" not in message, message


def refusals(*cases):
    """(name, words, call) each."""
    assert len({name for name, *_ in cases}) == len(cases)
    return pytest.mark.parametrize(
        "words, call", [pytest.param(words, call, id=name) for name, words, call in cases]
    )


class Plane(mbd.AbstractSystem):
    """A point in a plane, of any forces, masses and contacts."""

    its_force: Any = ()
    its_mass: Any = ()
    law: mbd.ContactLaw | None = None

    def mass_matrix(self, q):
        return jnp.eye(2) if self.its_mass == () else self.its_mass

    def force(self, t, q, v, u):
        return self.its_force(q) if callable(self.its_force) else jnp.array([0.0, -9.81])

    def gap(self, q, t):
        return jnp.zeros(0) if self.law is None else jnp.stack([q[1], q[1] + 1])

    def slip(self, q, v, t):
        return jnp.zeros((0, 0)) if self.law is None else jnp.stack([v[:1], v[:1]])

    @property
    def contact_law(self):
        return self.law


PLANE, START = Plane(), mbd.State(0.0, [0.0, 1.0], [1.0, 0.0])


class Cart(mbd.AbstractSystem):
    """x'' = u."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return u
