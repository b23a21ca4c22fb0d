"""Mass, centre of mass and inertia tensor of a rigid body."""

import math
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._compiler import array_namespace, as_one_program, floating_dtype, is_known, refuted, to_jax
from .._coordinates import algebra, apply_matrix, components, dot, quaternion_to_matrix
from .._inputs import Number, Numbers, Vector, checked, finite, positive
from .._types import DType, EitherArray
from .pose import unit_quaternion

# Rounding, relative to the largest moment, by which a tensor may differ from a symmetric one, and
# by which the sum of two principal moments may be below the third.
_ROUNDING = 1e-9


class Inertia(eqx.Module):
    """Mass distribution of a rigid body, in the axes of the body's own frame:

        m = int dm,    m c = int r dm,    I = int (|r - c|^2 1 - (r - c) (r - c)^T) dm.

    **Fields:**

    - `mass`: m [kg].
    - `tensor`: I about the centre of mass, shape `(3, 3)` [kg m^2].
    - `center`: centre of mass c, shape `(3,)` [m].

    A body of several parts is a sum. `moved` puts the parts into a common frame:

        Inertia.cylinder(radius=0.1, length=0.5, mass=3.0)
        + Inertia.sphere(radius=0.2, mass=1.0).moved([0.0, 0.0, 0.4])

    To fit an inertia, fit its ten numbers `log_cholesky()`: each choice of them is physical.
    """

    mass: Float[Array, ""]
    tensor: Float[Array, "3 3"]
    center: Float[Array, "3"]

    @checked
    def __init__(
        self,
        mass: Annotated[Number, positive],
        tensor: Annotated[Numbers, finite],
        center: Vector = (0.0, 0.0, 0.0),
        *,
        about: Vector | None = None,
    ):
        """**Arguments:**

        - `mass`: m > 0.
        - `tensor`: shape `(3, 3)`, or the three moments `(3,)` of a diagonal one.
        - `center`: centre of mass.
        - `about`: the point that `tensor` refers to, by default the centre of mass. The axes are
          always the body's frame.

        **Raises:** `ValueError` unless m > 0 and the tensor belongs to a mass distribution: it is
        symmetric, and no principal moment exceeds the sum of the others. Only known values count.
        """
        dtype = floating_dtype(mass, tensor, center, about)
        self.mass = _floating("mass", mass, (), dtype)
        self.center = _floating("center", center, (3,), dtype)
        tensor = _floating("tensor", tensor, None, dtype)
        if tensor.shape == (3,):
            xp = array_namespace(tensor)
            tensor = xp.diag(xp.asarray(tensor))
        tensor = _floating("tensor", tensor, (3, 3), dtype)
        if about is not None:
            point = _floating("about", about, (3,), dtype)
            tensor = _about(tensor, -1.0, self.mass, self.center, point)
        self.tensor = tensor
        _check_physical(tensor)

    @property
    def positive_definite(self) -> Bool[Array, ""]:
        """Whether mass and tensor resist every motion: m > 0, and the leading minors of I are
        positive (Sylvester's criterion)."""
        a, b, c = components(self.tensor)
        normal = algebra.cross(a, b)
        minors = jnp.stack([self.mass, a[0], normal[2], dot(normal, c)])
        return jnp.all(minors > 0)

    # --- shapes ---------------------------------------------------------------------------------

    @classmethod
    @checked
    def point(cls, *, mass: Annotated[Number, positive]) -> "Inertia":
        """Point mass at the origin."""
        return cls(mass, np.zeros((3, 3)))

    @classmethod
    @checked
    def box(
        cls,
        *,
        size: Annotated[Vector, positive],
        mass: Annotated[Number | None, positive] = None,
        density: Annotated[Number | None, positive] = None,
    ) -> "Inertia":
        """Solid box with edge lengths `size` = (a, b, c) along x, y, z [m]. Give its mass [kg] or
        its density [kg/m^3]."""
        a, b, c = _known("size", size, (3,), floating_dtype(size, mass, density))
        m = _mass_of(mass, density, a * b * c)
        return cls(m, m / 12 * _across(a * a, b * b, c * c))

    @classmethod
    @checked
    def ellipsoid(
        cls,
        *,
        semiaxes: Annotated[Vector, positive],
        mass: Annotated[Number | None, positive] = None,
        density: Annotated[Number | None, positive] = None,
    ) -> "Inertia":
        """Solid ellipsoid with `semiaxes` (a, b, c) along x, y, z [m]."""
        a, b, c = _known("semiaxes", semiaxes, (3,), floating_dtype(semiaxes, mass, density))
        m = _mass_of(mass, density, 4 / 3 * math.pi * a * b * c)
        return cls(m, m / 5 * _across(a * a, b * b, c * c))

    @classmethod
    @checked
    def sphere(
        cls,
        *,
        radius: Annotated[Number, positive],
        mass: Annotated[Number | None, positive] = None,
        density: Annotated[Number | None, positive] = None,
    ) -> "Inertia":
        """Solid sphere of `radius` [m]."""
        radius = _known("radius", radius, (), floating_dtype(radius, mass, density))
        m = _mass_of(mass, density, 4 / 3 * math.pi * radius**3)
        return cls(m, _moments(*3 * [0.4 * m * radius**2]))

    @classmethod
    @checked
    def cylinder(
        cls,
        *,
        radius: Annotated[Number, positive],
        length: Annotated[Number, positive],
        axis: Literal["x", "y", "z"] = "z",
        mass: Annotated[Number | None, positive] = None,
        density: Annotated[Number | None, positive] = None,
    ) -> "Inertia":
        """Solid cylinder along `axis`, "x", "y" or "z"; a disc if `length` is small."""
        r, h = _sizes(radius, length, mass, density)
        m = _mass_of(mass, density, math.pi * r**2 * h)
        return cls(m, _along(axis, *_cylinder(m, r, h)))

    @classmethod
    @checked
    def capsule(
        cls,
        *,
        radius: Annotated[Number, positive],
        length: Annotated[Number, positive],
        axis: Literal["x", "y", "z"] = "z",
        mass: Annotated[Number | None, positive] = None,
        density: Annotated[Number | None, positive] = None,
    ) -> "Inertia":
        """Solid cylinder of `length` along `axis` between two hemispheres of its `radius`."""
        r, h = _sizes(radius, length, mass, density)
        # Parts of the volume pi r^2 (h + 4 r / 3).
        m = _mass_of(mass, density, math.pi * r**2 * (h + 4 * r / 3))
        middle = m * h / (h + 4 * r / 3)
        ends = m - middle
        along, across = _cylinder(middle, r, h)
        # The moment 2/5 m r^2 of a hemisphere is about the centre of its flat side, h/2 from the
        # middle. Its centre of mass is another 3/8 r away: (2/5 r^2 + h^2/4 + 3/8 r h) m.
        across += ends * (0.4 * r**2 + h**2 / 4 + 0.375 * r * h)
        return cls(m, _along(axis, along + ends * 0.4 * r**2, across))

    @classmethod
    @checked
    def rod(
        cls,
        *,
        length: Annotated[Number, positive],
        axis: Literal["x", "y", "z"] = "z",
        mass: Annotated[Number, positive],
    ) -> "Inertia":
        """Thin rod of `length` along `axis`, without a moment about it. It serves as a part of
        other bodies, or as a body whose joints prevent its spin."""
        h = _known("length", length, (), floating_dtype(length, mass))
        m = _mass_of(mass, None, h)
        return cls(m, _along(axis, 0 * m, m * h**2 / 12))

    # --- other frames and composites ------------------------------------------------------------

    def about(self, point: Numbers) -> Float[Array, "3 3"]:
        """Tensor about another `point` of the body's frame: I + m (|d|^2 1 - d d^T) with
        d = c - point (Huygens and Steiner)."""
        return _about(self.tensor, 1.0, self.mass, self.center, self._vector("point", point))

    @checked
    def with_mass(self, mass: Annotated[ArrayLike, positive]) -> "Inertia":
        """Inertia of a body of the same shape and relative mass distribution, but with another
        `mass`. The tensor is proportional to it."""
        mass = _floating("mass", mass, (), self.mass.dtype)
        xp = array_namespace(mass, self.mass, self.tensor)
        tensor = to_jax(xp.multiply(xp.divide(mass, self.mass), self.tensor))
        return eqx.tree_at(lambda x: (x.mass, x.tensor), self, (mass, tensor))

    def moved(
        self, position: Numbers = (0.0, 0.0, 0.0), orientation: Numbers = (1.0, 0.0, 0.0, 0.0)
    ) -> "Inertia":
        """The same body seen from another frame. In it the origin of the body's own frame lies at
        `position` [m], and its axes have the `orientation` (unit quaternion w, x, y, z, or rotation
        matrix)."""
        p = unit_quaternion("Argument `orientation`", orientation, self.mass.dtype)
        return _moved(self, self._vector("position", position), p)

    @checked
    def turned(self, R: Float[Array, "3 3"]) -> "Inertia":
        """The same body in other axes. R turns components in its own axes into these."""
        return eqx.tree_at(
            lambda x: (x.tensor, x.center),
            self,
            (turned_tensor(R, self.tensor), apply_matrix(R, self.center)),
        )

    def _vector(self, name: str, value: Numbers) -> Float[Array, "3"]:
        return _floating(name, value, (3,), self.mass.dtype)

    def __add__(self, other: "Inertia") -> "Inertia":
        """Inertia of both together, rigidly connected."""
        if not isinstance(other, Inertia):
            return NotImplemented
        return Inertia(*_of_both(self, other))

    def principal(self) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
        """Principal moments in ascending order, and the principal axes as the columns of a rotation
        matrix. Equal moments leave the axes undetermined. Do not differentiate the axes then."""
        return _principal(self.tensor)

    def spatial(self) -> Float[Array, "6 6"]:
        """Mass matrix [[m 1, -m c~], [m c~, I_origin]] for the velocity of the origin of the frame
        [m/s] and the angular velocity [rad/s], both in the axes of the frame. c~ a = c x a."""
        return spatial(self.mass, self.center, self.tensor)

    # --- pseudo-inertia -------------------------------------------------------------------------

    def pseudo(self) -> Float[Array, "4 4"]:
        """Pseudo-inertia int (r, 1) (r, 1)^T dm, shape `(4, 4)`. It is linear in the mass
        distribution, and positive definite for every body that fills space.

        Reference: Wensing, Kim and Slotine (2018), Linear matrix inequalities for physically
        consistent inertial parameter identification, IEEE Robotics and Automation Letters 3.
        """
        c = self.center
        moment = self.mass * c
        second = _second_moment(self.tensor) + self.mass * jnp.outer(c, c)
        return jnp.block([[second, moment[:, None]], [moment[None], self.mass]])

    def log_cholesky(self) -> Float[Array, "10"]:
        """Ten unconstrained numbers (alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3) with

            pseudo = exp(2 alpha) U U^T,    U = [[exp(d1),  s12,      s13,      t1],
                                                 [0,        exp(d2),  s23,      t2],
                                                 [0,        0,        exp(d3),  t3],
                                                 [0,        0,        0,        1 ]].

        Every choice of them is a body that fills space, and every such body has exactly one. So a
        fit of these parameters stays physical. **Raises:** `ValueError` for a point or thin rod.

        Reference: Rucker and Wensing (2022), Smooth parameterization of rigid-body inertia, IEEE
        Robotics and Automation Letters 7.
        """
        U, theta = _log_cholesky(self.mass, self.center, self.tensor)
        if refuted(np.isfinite, U):
            raise ValueError(
                "The log-Cholesky parameters of an inertia are finite only for bodies that fill "
                f"space, but its principal moments are {np.linalg.eigvalsh(self.tensor)}: one of "
                "them is the sum of the others. Give the thin body a thickness."
            )
        return theta

    @classmethod
    def from_log_cholesky(cls, theta: Numbers) -> "Inertia":
        """Inverse of `log_cholesky`."""
        theta = _floating("theta", theta, (10,), floating_dtype(theta))
        alpha, (s12, s23, s13), center = theta[0], theta[4:7], theta[7:]
        d1, d2, d3 = jnp.exp(theta[1:4])
        o = jnp.zeros_like(d1)
        U = jnp.stack([jnp.stack([d1, s12, s13]), jnp.stack([o, d2, s23]), jnp.stack([o, o, d3])])
        mass = jnp.exp(2 * alpha)
        second = mass * U @ U.T
        return cls(mass, jnp.trace(second) * jnp.eye(3, dtype=theta.dtype) - second, center)


# --- tensors, those of many bodies along further axes at the end ----------------------------------


def turned_tensor(
    R: Float[Array, "3 3 *rest"], tensor: Float[Array, "3 3 *rest"]
) -> Float[Array, "3 3 *rest"]:
    """R tensor R^T."""
    return algebra.matrix_product(algebra.matrix_product(R, tensor), jnp.swapaxes(R, 0, 1))


def spatial(
    mass: Float[Array, "*rest"],
    center: Float[Array, "3 *rest"] | None,
    tensor: Float[Array, "3 3 *rest"],
) -> Float[Array, "6 6 *rest"]:
    """[[m 1, -m c~], [m c~, I]], with I about the origin and `tensor` about the `center` c; `None`
    for c = 0."""
    mass = mass[None, None]
    translation = mass * jnp.broadcast_to(identity(tensor[0]), tensor.shape)
    if center is None:
        moment = jnp.zeros_like(tensor)
    else:
        moment = mass * algebra.skew(center)
        tensor = tensor + _steiner(mass[0, 0], center)
    rows = ([translation, -moment], [moment, tensor])
    return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])


def inverse_tensor(tensor: Float[Array, "3 3 *rest"]) -> Float[Array, "3 3 *rest"]:
    """Inverse of a symmetric matrix, by its cofactors."""
    a, b, c = components(tensor)
    first = algebra.cross(b, c)
    rows = jnp.stack([first, algebra.cross(c, a), algebra.cross(a, b)])
    return rows / dot(a, first)[None, None]


def inverse_root(tensor: Float[Array, "3 3 *rest"]) -> Float[Array, "3 3 *rest"]:
    """Upper triangular L with A^-1 = L L^T, from the Cholesky factor of a symmetric positive
    definite A. It is finite for any other A."""
    (a, b, c), (_, d, e), (_, _, f) = map(components, components(tensor))

    def inverse_square_root(x):
        return jax.lax.rsqrt(jnp.where(x > 0, x, 1.0))

    # A = K K^T, column by column with the reciprocals x, y, z of its diagonal, and L = K^-T.
    x = inverse_square_root(a)
    p, q = b * x, c * x
    y = inverse_square_root(d - p * p)
    r = (e - q * p) * y
    z = inverse_square_root(f - q * q - r * r)
    o = jnp.zeros_like(x)
    return jnp.stack(
        [
            jnp.stack([x, -x * p * y, x * (p * y * r - q) * z]),
            jnp.stack([o, y, -y * r * z]),
            jnp.stack([o, o, z]),
        ]
    )


# --- arguments ------------------------------------------------------------------------------------


def _floating(name: str, value: Numbers, shape: tuple[int, ...] | None, dtype: DType) -> Array:
    return finite(f"`{name}` of Inertia", value, dtype, shape)


def _known(name: str, value: Numbers, shape: tuple[int, ...], dtype: DType) -> Array | np.ndarray:
    """Return a NumPy array if the value is known, so that its use compiles no program."""
    array = _floating(name, value, shape, dtype)
    return array_namespace(array).asarray(array)


def _mass_of(mass: Number | None, density: Number | None, volume: EitherArray) -> EitherArray:
    if mass is not None and density is None:
        return _known("mass", mass, (), volume.dtype)
    if density is not None and mass is None:
        return _known("density", density, (), volume.dtype) * volume
    raise ValueError(f"Give either `mass` or `density`, but they are {mass} and {density}.")


def _sizes(
    radius: Number, length: Number, mass: Number | None, density: Number | None
) -> tuple[EitherArray, EitherArray]:
    dtype = floating_dtype(radius, length, mass, density)
    return _known("radius", radius, (), dtype), _known("length", length, (), dtype)


def _cylinder(mass: EitherArray, r: EitherArray, h: EitherArray) -> tuple[EitherArray, EitherArray]:
    """Moments of a cylinder along and across its axis."""
    return mass * r**2 / 2, mass * (3 * r**2 + h**2) / 12


def _along(axis: str, along: EitherArray, across: EitherArray) -> EitherArray:
    """Moments of a body of revolution."""
    return _moments(*(along if name == axis else across for name in "xyz"))


def _across(a: EitherArray, b: EitherArray, c: EitherArray) -> EitherArray:
    """Moments, each of which is the sum of the values of the other two directions."""
    return _moments(b + c, c + a, a + b)


def _moments(*moments: EitherArray) -> EitherArray:
    return array_namespace(*moments).stack(moments)


@as_one_program
def _steiner(mass, d) -> Float[Array, "3 3 *rest"]:
    """m (|d|^2 1 - d d^T)."""
    square = jnp.sum(d * d, axis=0)[None, None]
    return mass[None, None] * (square * identity(d) - d[:, None] * d[None])


def identity(like: Float[Array, "3 *rest"]) -> Float[Array, "3 3 *_"]:
    """Unit matrix, which broadcasts over many."""
    return jnp.eye(3, dtype=like.dtype).reshape(3, 3, *(1,) * (like.ndim - 1))


@as_one_program
def _about(tensor, sign, mass, center, point) -> Float[Array, "3 3"]:
    return tensor + sign * _steiner(mass, center - point)


@as_one_program
def _moved(inertia, position, p) -> Inertia:
    turned = inertia.turned(quaternion_to_matrix(p))
    return eqx.tree_at(lambda x: x.center, turned, position + turned.center)


@as_one_program
def _of_both(a, b) -> tuple[Array, Array, Array]:
    """Mass, tensor and centre of mass of two bodies that are rigidly connected."""
    mass = a.mass + b.mass
    center = (a.mass * a.center + b.mass * b.center) / mass
    return mass, a.about(center) + b.about(center), center


@as_one_program
def _principal(tensor) -> tuple[Array, Array]:
    moments, axes = jnp.linalg.eigh(tensor)
    return moments, axes.at[:, 2].set(jnp.cross(axes[:, 0], axes[:, 1]))


@as_one_program
def _log_cholesky(mass, center, tensor) -> tuple[Array, Array]:
    """U without its last row and column, and the log-Cholesky parameters."""
    # The last row and column of U U^T give alpha = log(m) / 2 and t = c. The rest is the upper
    # triangular factor of the second moment about c, divided by the mass.
    U = jnp.linalg.cholesky((_second_moment(tensor) / mass)[::-1, ::-1])[::-1, ::-1]
    off_diagonal = jnp.stack([U[0, 1], U[1, 2], U[0, 2]])
    alpha = jnp.log(mass) / 2
    return U, jnp.concatenate([alpha[None], jnp.log(jnp.diag(U)), off_diagonal, center])


def _second_moment(tensor) -> Float[Array, "3 3"]:
    """int r r^T dm about the same point as the tensor int (|r|^2 1 - r r^T) dm."""
    return jnp.trace(tensor) / 2 * jnp.eye(3, dtype=tensor.dtype) - tensor


def _check_physical(tensor) -> None:
    if not is_known(tensor) or tensor.ndim != 2:
        return
    tensor = np.asarray(tensor)
    rounding = max(_ROUNDING, 1e2 * np.finfo(tensor.dtype).eps) * np.abs(tensor).max()
    if not np.all(np.abs(tensor - tensor.T) <= rounding):
        raise ValueError(f"Argument `tensor` must be finite and symmetric, but is\n{tensor}.")
    moments = np.linalg.eigvalsh(tensor)
    if moments[0] < -rounding or moments[0] + moments[1] < moments[2] - rounding:
        raise ValueError(
            "Argument `tensor` belongs to no mass distribution: of its principal moments "
            f"{moments} one is negative or larger than the sum of the others. Check signs, units "
            "and the point that it refers to (`about`)."
        )
