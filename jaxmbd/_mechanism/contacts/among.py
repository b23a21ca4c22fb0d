"""Contacts between all pieces of a list."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from ..._checks import with_dtype
from ..._contact import ContactLaw
from ..._inputs import Number, at_least, checked, positive
from ..body import GROUND
from ..frames import dtype_of
from ..pose import Pose
from .contact import Contact, Piece, body_name
from .near import NearContacts

# More pairs than this take minutes to build and to compile.
_MOST = 20_000


@checked
def contacts_among(
    pieces: Sequence[Piece],
    *,
    without: Sequence[tuple[str, str]] = (),
    law: ContactLaw | None = None,
    pair_budget: Annotated[int, at_least(1)] | None = None,
    reach: Annotated[Number, positive] | None = None,
) -> list[Contact] | list[NearContacts]:
    """Contacts between all pieces on different bodies: a `Contact` for each pair, or with
    `pair_budget` one element that looks at near pairs only.

    **Arguments:**

    - `pieces`: (body, shape) or (body, shape, pose relative to the body), where a body may be a
      name or "ground".
    - `without`: pairs of names of bodies that do not touch, such as neighbours in a chain.
    - `law`: for all contacts, default a `ContactLaw` without friction.
    - `pair_budget`: `None` for all pairs. They are named "a-b" after the bodies, and numbered if
      two bodies have several. Otherwise the list has one `NearContacts` named "near", with room for
      this many near pairs of any two kinds of shapes. It takes about as long to compile for 1000
      bodies as for ten, and its cost grows with the bodies, not with their pairs.
    - `reach` [m]: pairs with smaller gaps are near. It must exceed the way by which two pieces
      approach each other in a step. Default: a quarter of the radius of the smallest ball around a
      piece. Only with `pair_budget`.

    n bodies have about n^2 / 2 pairs, most of them far apart. `contact_budget` of a `Mechanism`
    limits how many points are solved for.

    **Raises:** `ValueError` for more than 20 000 pairs without `pair_budget`, and for pairs of
    kinds of shapes that `collide` does not support.
    """
    if pair_budget is not None:
        near = NearContacts(
            "near", pieces, pair_budget=pair_budget, without=without, law=law, reach=reach
        )
        return [near]
    if reach is not None:
        raise ValueError(
            f"Argument `reach` of contacts_among, {reach}, needs `pair_budget`: without it all "
            "pairs are looked at."
        )
    pairs = len(pieces) * (len(pieces) - 1) // 2
    if pairs > _MOST:
        raise ValueError(
            f"{len(pieces)} pieces have {pairs} pairs, too many to look at each of them: give "
            "`pair_budget`, for how many near pairs of two kinds of shapes there is room, such as "
            f"pair_budget={8 * len(pieces)}."
        )
    # There may be many contacts, so they share one law and one identity pose.
    dtype = dtype_of((body for body, *_ in pieces), (pose for _, _, *own in pieces for pose in own))
    law = with_dtype(ContactLaw() if law is None else law, dtype)
    own = Pose.identity(dtype)
    apart = {frozenset(pair) for pair in without}
    found: list[Contact] = []
    count: Counter[str] = Counter()
    for second, first in itertools.combinations(reversed(pieces), 2):
        # The ground comes first, so that normals point away from it.
        ends = sorted((first, second), key=lambda piece: body_name(piece) != GROUND)
        names = [body_name(piece) for piece in ends]
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
