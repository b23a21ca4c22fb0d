"""Names in classes of users: what has a meaning in a base cannot become something else there."""

import inspect
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd._extensible import Extensible

ROOMS = (mbd, mbd.estimate, mbd.identify, mbd.rollout, mbd.solvers, mbd.trajopt)


def bases():
    """All public classes that are made for subclasses."""
    every = (item for room in ROOMS for item in vars(room).items())
    modules = (x for x in every if inspect.isclass(x[1]) and issubclass(x[1], eqx.Module))
    return {name: x for name, x in modules if inspect.isabstract(x)}


def methods(base):
    """The names of its methods, those of its own bases included."""
    inherited = [x for x in base.__mro__ if x.__module__.startswith("jaxmbd")]
    names = {name for x in inherited for name, y in vars(x).items() if inspect.isfunction(y)}
    return sorted(name for name in names if not name.startswith("__"))


def with_field(base, name):
    body = {"__annotations__": {name: jax.Array}}
    return type(base)("Mine", (base,), body)


@pytest.mark.parametrize("name", bases())
def test_fields(name):
    """The name of any method of any base, as a field."""
    base = bases()[name]
    assert issubclass(base, Extensible)
    for method in methods(base):
        with pytest.raises(TypeError, match=rf"^The field `{method}` of class `Mine` replaces the"):
            with_field(base, method)
    with_field(base, "gap_of_mine")


def test_words():
    """The class, the field, what the name means, and the remedy."""
    words = (
        r"^The field `gap` of class `Mine` replaces the method `gap\(q, t\)` of `AbstractSystem`, "
        r"which means: Unilateral constraints g\(q, t\) >= 0 .* `ContactImpulse`\. Rename the field"
    )
    with pytest.raises(TypeError, match=words):
        with_field(mbd.AbstractSystem, "gap")


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("gap", 0.1, "The attribute `gap`"),
        ("slip", property(lambda self: 0.0), "The property `slip`"),
        ("contact_law", lambda self: None, "The method `contact_law`.*Write `@property` above it"),
    ],
)
def test_attributes(name, value, words):
    with pytest.raises(TypeError, match=words):
        type(mbd.AbstractSystem)("Mine", (mbd.AbstractSystem,), {name: value})


def test_fields_in_place_of_properties():
    """Only with a value in the class: without one, the property would hide the field. One of a
    user's own base, whose default is a function, may be declared again."""
    with pytest.raises(TypeError, match="The field `contact_law`.*return it from a property"):
        with_field(mbd.AbstractSystem, "contact_law")

    class Ball(mbd.AbstractSystem):
        contact_law: mbd.ContactLaw = mbd.ContactLaw(restitution=0.5)
        coordinates = mbd.Plain(1)
        label: ClassVar[str] = "ball"

        def mass_matrix(self, q):
            return jnp.eye(1)

        def force(self, t, q, v, u):
            return jnp.zeros(1)

        gap = jax.jit(lambda self, q, t: q)

    law = mbd.ContactLaw(restitution=0.7)
    assert Ball(law).contact_law is law and Ball().coordinates.nv == 1

    class Base(mbd.AbstractSystem):
        law: Callable = eqx.field(default=jnp.sin, static=True)

    class Other(Base):
        law: Callable = eqx.field(default=jnp.cos, static=True)

    assert Other.__dataclass_fields__["law"].default is jnp.cos
