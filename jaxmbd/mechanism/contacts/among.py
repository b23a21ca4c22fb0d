import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from ..._checks import with_dtype
from ..._contact import ContactLaw
from ..._inputs import Refusal, checked, shown
from ..body import GROUND, Body
from ..element import dtype_of
from ..pose import Pose
from ..shapes import AbstractShape
from .contact import Contact


def _piece(piece: Any) -> Any:
    parts = piece if isinstance(piece, tuple | list) else ()
    kinds = (Body | str, AbstractShape, Pose)
    if len(parts) not in (2, 3) or not all(map(isinstance, parts, kinds)):
        raise Refusal(f"must be (body, shape) or (body, shape, `mbd.Pose`), but is {shown(piece)}.")
    return piece


@checked
def contacts_among(
    pieces: Sequence[Annotated[Any, _piece]],
    *,
    without: Sequence[tuple[str, str]] = (),
    law: ContactLaw | None = None,
) -> list[Contact]:
    """Contacts between all pieces on different bodies. They are named "a-b" after the bodies, and
    numbered if two bodies have several.

    **Arguments:** `pieces`: (body, shape) or (body, shape, pose relative to the body), where a body
    may be a name or "ground"; `without`: pairs of names of bodies that do not touch, such as
    neighbours in a chain; `law`: for all contacts, default a `ContactLaw` without friction.

    n bodies have about n^2 / 2 pairs, most of them far apart. `contact_budget` of a `Mechanism`
    limits how many are solved for.
    """
    # There may be many contacts, so they share one law and one identity pose.
    dtype = dtype_of((body for body, *_ in pieces), (pose for _, _, *own in pieces for pose in own))
    law = with_dtype(ContactLaw() if law is None else law, dtype)
    own = Pose.identity(dtype)
    apart = {frozenset(pair) for pair in without}
    found: list[Contact] = []
    count: Counter[str] = Counter()
    for second, first in itertools.combinations(reversed(pieces), 2):
        # The ground comes first, so that normals point away from it.
        ends = sorted((first, second), key=lambda piece: _name(piece) != GROUND)
        names = [_name(piece) for piece in ends]
        if names[0] == names[1] or frozenset(names) in apart:
            continue
        name = "-".join(names)
        count[name] += 1
        if count[name] > 1:
            name = f"{name} {count[name]}"
        (a, shape_a, *frame_a), (b, shape_b, *frame_b) = ends
        poses = [next(iter(frame), own) for frame in (frame_a, frame_b)]
        found.append(
            Contact(name, a, b, shape_a, shape_b, law=law, frame_a=poses[0], frame_b=poses[1])
        )
    return found


def _name(piece) -> str:
    return piece[0].name if isinstance(piece[0], Body) else piece[0]
