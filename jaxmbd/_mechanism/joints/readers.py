"""What reads joints, such as a coupling or a limit. In a mechanism it only names them, and the
mechanism fills them in where it evaluates its elements. So the numbers of a joint stand once."""

import abc
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..._checks import with_dtype
from ..._compiler import is_known
from ..._extensible import Extensible
from ..element import AbstractFramed, replaced
from .base import AbstractConstraint, AbstractJoint

_Framed = TypeVar("_Framed", bound=AbstractFramed)
_Reader = TypeVar("_Reader", bound="AbstractJointReader")


class AbstractJointReader(Extensible):
    """A part of an element that reads a joint.

    **Fields:** `joint_name`; `joint`, or `None` where only its name is known.
    """

    joint_name: eqx.AbstractVar[str]
    joint: eqx.AbstractVar[AbstractJoint | None]

    # Whether it reads the limits of the joint too.
    reads_limits: ClassVar[bool] = False

    @abc.abstractmethod
    def reading(self, what: str, joint: AbstractJoint) -> "AbstractJointReader":
        """The same for this joint, with what follows from it.

        **Raises:** `ValueError`, which begins with `what`, if the joint does not fit."""

    def holding(self: _Reader, joint: AbstractJoint | None) -> _Reader:
        """The same with this joint, without a check."""
        if joint is not None and not self.reads_limits:
            joint = replaced(joint, limits=None)  # with and without limits, joints are alike
        return replaced(self, joint=joint)

    @property
    def known(self) -> AbstractJoint:
        """The joint. **Raises:** `ValueError` if only its name is known."""
        if self.joint is None:
            raise ValueError(
                f'Only the name of the joint "{self.joint_name}" is known here. Give the joint, or '
                "let the mechanism fill it in by `mechanism.resolved(...)`."
            )
        return self.joint


def name_of_joint(what: str, joint: AbstractConstraint | str) -> str:
    """**Raises:** `ValueError`, which begins with `what`, unless it is a joint or its name."""
    if isinstance(joint, AbstractConstraint):
        return joint.name
    if not isinstance(joint, str) or not joint:
        raise ValueError(f"{what} needs a joint with coordinates, or its name, but got {joint!r}.")
    return joint


def readers(element: PyTree) -> list[AbstractJointReader]:
    """The parts of an element that read joints."""
    return [x for x in jax.tree.leaves(element, is_leaf=_is_reader) if _is_reader(x)]


def each_reader(
    element: _Framed, fn: Callable[[AbstractJointReader], AbstractJointReader]
) -> _Framed:
    """The element with other parts that read joints."""
    return jax.tree.map(lambda x: fn(x) if _is_reader(x) else x, element, is_leaf=_is_reader)


def _is_reader(x: object) -> bool:
    return isinstance(x, AbstractJointReader)


def resolved(
    element: _Framed, names: Collection[str], find: Callable[[str], AbstractConstraint]
) -> _Framed:
    """The element with the joints that it names, in their dtype, which `find` gives for these
    `names`. It keeps a joint of another name.

    **Raises:** `ValueError` if only a name is known that no joint has, and for a joint that does
    not fit."""
    parts = readers(element)
    if not parts:
        return element
    name = getattr(element, "name", None)
    what = type(element).__name__ + (f' "{name}"' if name else "")

    def read(part):
        before = part.joint
        if part.joint_name not in names:
            if before is not None:
                return part
            raise ValueError(
                f'{what} reads the joint "{part.joint_name}", which is not among {list(names)}.'
            )
        joint = find(part.joint_name)
        if before is None:
            return part.reading(what, joint)
        if type(before) is not type(joint) or before.bodies != joint.bodies:
            raise ValueError(
                f"{what} reads {_words(before)}, but the joint of this name in the mechanism is "
                f"{_words(joint)}. Give joints different names."
            )
        return part.holding(joint)

    found = each_reader(element, read)
    if any(part.joint is None for part in parts):
        # What was built of a name alone did not know the dtype.
        found = with_dtype(found, readers(found)[0].known.dtype).completed()
    return found


def _words(joint: AbstractConstraint) -> str:
    return f'the {type(joint).__name__} "{joint.name}" of {" - ".join(joint.bodies)}'


def others_read(elements: Iterable[AbstractFramed], joints: Collection[str]) -> list[AbstractJoint]:
    """The joints that elements read and that are not among these.

    **Raises:** `ValueError` for different ones of one name."""
    found: dict[str, AbstractJoint] = {}
    for part in (part for element in elements for part in readers(element)):
        if part.joint_name in joints:
            continue
        held = found.setdefault(part.joint_name, part.known)
        if not _alike(held, part.known):
            raise ValueError(
                f'Elements read different joints of the name "{part.joint_name}": '
                f"{_words(held)}, and {_words(part.known)}. Give them different names."
            )
        if held.limits is None:
            found[part.joint_name] = part.known
    return list(found.values())


def _alike(one: AbstractJoint, other: AbstractJoint) -> bool:
    """Whether two joints are the same but for limits, as far as known."""
    (x, structure), (y, wanted) = (
        jax.tree.flatten(replaced(joint, limits=None)) for joint in (one, other)
    )
    return structure == wanted and all(
        a is b or not is_known((a, b)) or np.array_equal(a, b) for a, b in zip(x, y, strict=True)
    )


def named(element: _Framed) -> _Framed:
    """The element with the names of the joints that it reads alone."""
    return each_reader(element, lambda part: part.holding(None))
