"""One side of a profile: how far the loss rises while one number is held and others follow."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from .._compiler import to_jax
from .._results import RESULTS, code, succeeded, verdict
from .._search import nonzero, rounding
from .least_squares import searched
from .problem import FitProblem
from .residuals import PartMotion

# A side has been searched if the free number, whose typical change is 1, is so far from the
# estimate, or so many half widths of the linearised interval.
_FAR, _WIDE = 10.0, 20.0
# The next point of a side is at most so many times as far from the estimate.
_FURTHER = 3.0
# The largest number of points on a side, and of attempts after a failure.
_POINTS, _ATTEMPTS = 25, 4
# The steps of a search begin so long that damping is this share of the least curvature, but not
# longer than that.
_DAMPED, _LONGEST = 0.1, 1e8
# A search is stuck if so many steps have not lowered the loss by more than the tolerance. Among
# points where it is, an end is only known to this share.
_STUCK, _ROUGH = 8, 0.03
# The tolerance of the searches, which mostly end before.
_FINE = 1e-9
# The largest change of other free numbers that this model may predict, for a change by 1.
_PREDICTED = 3.0


class Point(NamedTuple):
    """Where a search ended: the free numbers, the sum of squares, the residuals and their Jacobian,
    and the verdict."""

    z: np.ndarray
    squares: float
    r: np.ndarray
    J: np.ndarray
    result: RESULTS


class Side(NamedTuple):
    """One side of a profile: the free number of the end, whether it is a bound, the verdict, and
    the free numbers and sums of squares of the points."""

    end: float
    at_bound: bool
    result: RESULTS
    points: list[tuple[float, float]]


class Nearby(NamedTuple):
    """The lowest sum of squares S(x) while one number x moves and the others follow, near a point,
    if the residuals are linear:

        S(x + d) = S - possible + 2 slope d + curvature d^2    at    z + still + d moving.

    `weakest`: the least curvature of S along the others that is not zero.
    """

    possible: float
    slope: float
    curvature: float
    still: np.ndarray
    moving: np.ndarray
    weakest: float

    @classmethod
    def at(cls, point: Point, i: int, bounds: tuple[np.ndarray, np.ndarray]) -> "Nearby":
        z, r, J = point.z, point.r, point.J
        slopes = r @ J
        free = ~((z <= bounds[0]) & (slopes > 0) | (z >= bounds[1]) & (slopes < 0))
        free[i] = False
        size = np.linalg.norm(J[:, free], axis=0)
        size = np.where(size > 0, size, 1.0)
        left, values, rows = np.linalg.svd(J[:, free] / size, full_matrices=False)
        known = nonzero(values, rounding(J))
        left, back = left[:, known], (rows[known].T / values[known]) / size[:, None]
        others, own = left.T @ r, left.T @ J[:, i]
        column = J[:, i] - left @ own
        if np.linalg.norm(column) <= rounding(J) * np.linalg.norm(J[:, i]):
            column = np.zeros_like(column)
        still, moving = np.zeros_like(z), np.zeros_like(z)
        still[free], moving[free] = -back @ others, -back @ own
        rise = float(r @ column), float(column @ column)
        weakest = float(np.min(1 / np.linalg.norm(back, axis=0), initial=np.inf)) ** 2
        return cls(float(others @ others), *rise, still, moving, weakest)

    def distance(self, rise: float, side: int) -> float:
        """How far the number has to move for this rise of S; infinite if it never comes."""
        slope, rise = side * self.slope, max(rise + self.possible, 0.0)
        if self.curvature == 0:
            return rise / (2 * slope) if slope > 0 else np.inf
        # Not (root - slope) / curvature, which would cancel.
        root = np.sqrt(slope**2 + self.curvature * rise)
        return rise / (root + slope) if slope > 0 else (root - slope) / self.curvature


class _Place(NamedTuple):
    """A point of a side: how far it is from the estimate, and the root of the rise there in units
    of the level. Along a profile the root is nearly linear. At the end it is 1."""

    x: float
    root: float
    point: Point


class March:
    """The searches of a profile, from the estimate `here`. `level`: the rise of the sum of squares
    at the ends. `best`: the lowest point that was seen."""

    def __init__(
        self, problem: FitProblem, z: Array, level: float, max_iterations: int, tolerance: float
    ):
        self.problem, self.dtype, self.level = problem, z.dtype, level
        self.max_iterations, self.tolerance = max_iterations, tolerance
        self.evaluations = 0
        self.here = self.best = self._search(np.asarray(z, float), None)

    def side(self, i: int, side: int, half: float) -> Side:
        """The end of number i on one side, where the linearised interval has this half width."""
        here, bound = self.here, float(self.problem.bounds[(side + 1) // 2][i])
        room, far = side * (bound - here.z[i]), _FAR
        if np.isfinite(half):
            far = max(far, _WIDE * half)
        below, above, points = _Place(0.0, 0.0, here), None, []
        failed, failures, result, bisect = np.inf, 0, here.result, False
        if not succeeded(result):
            return Side(np.nan, False, result, points)
        if room <= 0:
            return Side(bound, True, RESULTS.successful, points)
        while len(points) < _POINTS:
            x = self._next(i, side, below, above, half, bisect)
            x = min(x, room, far, (below.x + failed) / 2)
            nearest = below if above is None or 2 * x < below.x + above.x else above
            point = self._refit(i, bound if x == room else here.z[i] + side * x, nearest.point)
            stuck = _is_stuck(point)
            if not (stuck or succeeded(point.result)):
                failed, failures, result = x, failures + 1, point.result
                if failures == _ATTEMPTS:
                    return Side(np.nan, False, result, points)
                continue
            points.append((float(point.z[i]), point.squares))
            place = _Place(x, self._root(point), point)
            if place.root < 1 and x == room:
                return Side(bound, True, RESULTS.successful, points)
            if place.root < 1 and x == far:
                return Side(side * np.inf, False, RESULTS.loss_stays_low, points)
            width = np.inf if above is None else above.x - below.x
            below, above = (below, place) if place.root >= 1 else (place, above)
            near = max(self.tolerance, _ROUGH) if stuck else self.tolerance
            narrow = above is not None and above.x - below.x <= near * above.x
            if narrow or abs(place.root - 1) <= near:
                end = here.z[i] + side * self._end(i, side, below, above)
                kinked = any(_is_stuck(each.point) for each in (below, above) if each is not None)
                return Side(end, False, RESULTS.stuck if kinked else RESULTS.successful, points)
            bisect = above is not None and not bisect and bool(2 * (above.x - below.x) > width)
        return Side(np.nan, False, RESULTS.max_iterations_reached, points)

    def _root(self, point: Point) -> float:
        rise = (point.squares - self.here.squares) / self.level
        return float(np.sign(rise) * np.sqrt(abs(rise)))

    def _rest(self, i: int, side: int, place: _Place) -> float:
        """How far the end is from a place, by its linear model."""
        near = Nearby.at(place.point, i, self.problem.bounds)
        return near.distance(self.level - (place.point.squares - self.here.squares), side)

    def _next(
        self, i: int, side: int, below: _Place, above: _Place | None, half: float, bisect: bool
    ) -> float:
        """How far from the estimate the next point should be."""
        if above is not None:
            share = (1 - below.root) / (above.root - below.root)  # regula falsi
            share = 0.5 if bisect else min(max(share, 0.02), 0.98)
            return below.x + share * (above.x - below.x)
        end = below.x + self._rest(i, side, below)
        if below.x == 0:
            return min(end, half, 1.0) / 2
        return min(max(end, 1.02 * below.x), _FURTHER * below.x)

    def _end(self, i: int, side: int, below: _Place, above: _Place | None) -> float:
        if above is None:
            return below.x + self._rest(i, side, below)
        return below.x + (1 - below.root) / (above.root - below.root) * (above.x - below.x)

    def _refit(self, i: int, x: float, origin: Point) -> Point:
        """The lowest point where number i is x. The search begins where the linear model of another
        point has it; and, where that fails or is stuck, also at the other point."""
        near = Nearby.at(origin, i, self.problem.bounds)
        move = near.still + (x - origin.z[i]) * near.moving
        move[i] = 0.0
        largest = _PREDICTED * max(abs(x - origin.z[i]), 1.0)
        move *= min(1.0, largest / max(np.max(np.abs(move), initial=0.0), 1e-300))
        weakest = _DAMPED * near.weakest / float(self.problem.scale) ** 2
        step_size, found = min(_LONGEST, 1 / weakest), []
        for each in (move, np.zeros_like(move)):
            z = np.clip(origin.z + each, *self.problem.bounds)
            z[i] = x
            found.append(self._search(z, i, step_size))
            if succeeded(found[-1].result):
                break
        return min(found, key=lambda point: point.squares)

    def _search(self, z: np.ndarray, i: int | None, step_size: float = 1.0) -> Point:
        """The lowest point with z[i] as it is; without i, the point itself."""
        lower, upper = (np.array(side, float) for side in self.problem.bounds)
        if i is not None:
            lower[i] = upper[i] = z[i]
        problem, scale = self.problem, float(self.problem.scale)
        args = to_jax(z, self.dtype), (lower, upper), problem.data, scale, _FINE, step_size
        point = Point(z, np.inf, np.zeros(0), np.zeros((0, 0)), RESULTS.successful)
        settled, losses = i is None, []
        for count, it in enumerate(searched(problem.residuals, *args), 1):
            self.evaluations += 1
            y = np.asarray(it.y, float)
            moved = count == 1 or bool(np.any(y != point.z))
            if moved:
                r = scale * np.asarray(it.state.f_info.residual, float)
                J = scale * np.asarray(it.state.f_info.jac.as_matrix(), float)
                point = Point(y, float(r @ r), r, J, _verdict(it.aux))
                if not np.isfinite(point.squares):
                    result = RESULTS.nonfinite_state if succeeded(point.result) else point.result
                    return point._replace(squares=np.inf, result=result)
                if i is not None:
                    if succeeded(point.result) and point.squares < self.best.squares:
                        self.best = point
                    left = Nearby.at(point, i, problem.bounds).possible
                    settled = left <= self.tolerance * self.level
            if settled or not succeeded(point.result):
                return point
            losses.append(point.squares)
            before = losses[-_STUCK - 1] if len(losses) > _STUCK else np.inf
            if it.done or before - point.squares <= self.tolerance * self.level:
                return point._replace(result=RESULTS.stuck)
            if count == self.max_iterations:
                break
        return point._replace(result=RESULTS.max_iterations_reached)


def _is_stuck(point: Point) -> bool:
    return bool(code(point.result) == code(RESULTS.stuck))


def _verdict(motion: PartMotion) -> RESULTS:
    """The first failure of all parts."""
    codes = np.ravel(np.asarray(code(motion.result)))
    failed = codes[codes != np.asarray(code(RESULTS.successful))]
    return verdict(failed[0]) if len(failed) else RESULTS.successful
