"""Find springs, masses and damping of one or two carts on an air track from measured positions.

    |~~~ k1 ~~~[ cart ]~~~ k2 ~~~|              |~~~ k1 ~~~[ 1 ]~~~ kc ~~~[ 2 ]~~~ k2 ~~~|

                 m q'' = -k (q - e) - c q'      one cart; k = k1 + k2
    M q'' = -K (q - e) - C q'                   two carts

The coordinates are the positions along the track, one number for each cart. The track leaves no
other freedom, so this is the natural choice: in the plane, each cart would have a second
coordinate and a constraint that removes it again, and nothing measured would depend on either.

What can be found. Positions alone know no force: only ratios of stiffness, damping and mass show.
The mass of the (first) cart is the unit here, so stiffnesses are k/m1 [1/s^2] and dampings c/m
[1/s]. Of one cart between two springs only the sum of both shows. Of two carts all three springs
show, and the ratio of the masses too: one force of the coupling spring accelerates both. That
takes both modes to be in the motion. The places where the springs are at rest do not show, only
the positions of equilibrium e. The initial state of every trial is found as well.

The file: a first line that names the columns (`% x v` or `% x1 x2 v1 v2`), then rows of trial
number, time [s], position of each cart, and columns that are not used (velocities: numerical
derivatives of the positions, which hold nothing new).

    python examples/identify_air_track.py --data real_linear_h_1.txt
"""

import argparse
import math
import pathlib
import sys
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.identify import LeastSquares, least_squares

MIN_ROWS = 20  # in a trial
OUTLIER = 5.0  # in robust standard deviations


class Effects(NamedTuple):
    """What the model leaves out, zero unless a test asks. All are relative: 1 is as large as the
    spring force, for the last three as the motion."""

    dry_friction: Array | float = 0.0
    air_drag: Array | float = 0.0
    uneven_springs: Array | float = 0.0
    stiffening_springs: Array | float = 0.0
    oblique_camera: Array | float = 0.0
    drifting_origin: Array | float = 0.0
    drifting_clock: Array | float = 0.0


EFFECTS = {
    "dry_friction": "dry friction, of constant size",
    "air_drag": "drag that grows with speed squared",
    "uneven_springs": "springs: a quadratic term",
    "stiffening_springs": "springs: a cubic term",
    "oblique_camera": "oblique camera: picture uneven along x",
    "drifting_origin": "origin of the positions drifts",
    "drifting_clock": "clock gains or loses more and more",
}


class AirTrack(mbd.AbstractSystem):
    """One or two carts between springs, q = positions, in units of the first cart's mass.

    - `masses`: shape `(n,)`, the first one is 1.
    - `outer`: stiffness between each cart and its end of the track, shape `(n,)` [1/s^2].
    - `coupling`: stiffness between the carts, shape `(n - 1,)` [1/s^2].
    - `damping`: of each cart, shape `(n,)` [1/s].
    - `equilibrium`: shape `(n,)`.
    - `size`, `speed`: typical displacement and speed, which only scale `effects`.
    """

    masses: Float[Array, " n"]
    outer: Float[Array, " n"]
    coupling: Float[Array, " m"]
    damping: Float[Array, " n"]
    equilibrium: Float[Array, " n"]
    size: Array = eqx.field(converter=jnp.asarray, default=1.0)
    speed: Array = eqx.field(converter=jnp.asarray, default=1.0)
    effects: Effects = Effects()

    def mass_matrix(self, q):
        return jnp.diag(self.masses)

    def force(self, t, q, v, u):
        stretch = q - self.equilibrium
        springs = self.outer * self.spring(stretch)
        pull = self.coupling * self.spring(jnp.diff(stretch))
        towards = jnp.zeros_like(q).at[:-1].add(pull).at[1:].add(-pull)
        return towards - springs - self.masses * self.friction(v)

    def spring(self, stretch):
        """Force over stiffness."""
        x = stretch / self.size
        uneven, cubic = self.effects.uneven_springs, self.effects.stiffening_springs
        return stretch + self.size * (uneven * x**2 + cubic * x**3)

    def friction(self, v):
        """Force over mass."""
        x = v / self.speed
        strength = self.speed**2 / self.size  # of the spring force, over mass
        drag = self.effects.air_drag * x * jnp.abs(x)
        return self.damping * v + strength * (drag + self.effects.dry_friction * jnp.tanh(20 * x))


class Trials(NamedTuple):
    """Measured motions, each from its own first row on; shorter ones are filled up to the
    longest by rows of weight 0. `start`: the times of the first rows."""

    name: tuple[str, ...]
    start: np.ndarray  # (trials,)
    time: np.ndarray  # (trials, rows)
    position: np.ndarray  # (trials, rows, carts)
    weight: np.ndarray  # (trials, rows)

    @property
    def carts(self) -> int:
        return self.position.shape[2]

    @property
    def count(self) -> int:
        """Number of measured positions in use."""
        return int(self.weight.sum()) * self.carts

    @property
    def interval(self) -> float:
        """Median time between rows [s]."""
        steps = np.diff(self.time, axis=1)
        return float(np.median(steps[steps > 0]))

    @property
    def size(self) -> float:
        """Largest displacement from the mean."""
        used = self.position[self.weight > 0]
        return float(np.max(np.abs(used - used.mean(axis=0))))


def read_trials(path: pathlib.Path, carts: int | None = None) -> Trials:
    """**Raises:** `ValueError`, naming file and line, for anything but a table of numbers with
    increasing times in each trial; `OSError` without the file."""
    names, table, lines = [], [], []
    with open(path, encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            words = text.replace(",", " ").split()
            if not words:
                continue
            if not table and not is_number(words[0]):
                names = [word.lstrip("%#") for word in words if word.strip("%#")]
                continue
            if not all(map(is_number, words)):
                wrong = next(word for word in words if not is_number(word))
                raise ValueError(f"{path}, line {line}: `{wrong}` is not a finite number.")
            if table and len(words) != len(table[0]):
                raise ValueError(
                    f"{path}, line {line}: {len(words)} columns, where the first row has "
                    f"{len(table[0])}."
                )
            table.append([float(word) for word in words])
            lines.append(line)
    if not table:
        raise ValueError(f"{path} has no rows of numbers.")
    values = np.array(table)
    if carts is None:
        # Positions are named x, x1, x2; without names, half of the columns are velocities.
        carts = sum(name[:1] == "x" for name in names) or (values.shape[1] - 2) // 2
    if carts not in (1, 2) or values.shape[1] < 2 + carts:
        raise ValueError(
            f"{path}: cannot tell one or two carts from {values.shape[1]} columns named "
            f"{names}. A row is: trial, time, positions (x or x1 x2), others. Try --carts."
        )

    trials = []
    for number in dict.fromkeys(values[:, 0]):
        rows = np.flatnonzero(values[:, 0] == number)
        if len(rows) < MIN_ROWS:
            raise ValueError(
                f"{path}: trial {number:g} has {len(rows)} rows; give at least {MIN_ROWS}."
            )
        late = np.flatnonzero(np.diff(values[rows, 1]) <= 0)
        if late.size:
            raise ValueError(
                f"{path}, line {lines[rows[late[0] + 1]]}: time must increase within a trial, but "
                f"goes from {values[rows[late[0]], 1]:g} s to {values[rows[late[0] + 1], 1]:g} s."
            )
        trials.append((f"{number:g}", values[rows, 1], values[rows, 2 : 2 + carts]))
    return make_trials(trials)


def is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def make_trials(trials) -> Trials:
    """From a list of (name, times, positions)."""
    longest = max(len(time) for _, time, _ in trials)

    def filled(x):
        return np.concatenate([x, np.repeat(x[-1:], longest - len(x), axis=0)])

    return Trials(
        tuple(name for name, _, _ in trials),
        np.array([time[0] for _, time, _ in trials]),
        np.stack([filled(time - time[0]) for _, time, _ in trials]),
        np.stack([filled(position) for _, _, position in trials]),
        np.stack([np.arange(longest) < len(time) for _, time, _ in trials]).astype(float),
    )


class Scales(NamedTuple):
    """Units in which the unknowns are numbers of about one."""

    size: float
    speed: float


def system_of(unknowns, scales: Scales, effects: Effects = Effects()) -> AirTrack:
    """The unknowns, as the optimiser has them, to the system. Logarithms keep stiffnesses and
    masses positive. Damping may turn out negative: that would tell of a wrong model."""
    one = jnp.ones(1)
    return AirTrack(
        masses=jnp.concatenate([one, jnp.exp(unknowns["mass_ratio"])]),
        outer=jnp.exp(unknowns["outer"]),
        coupling=jnp.exp(unknowns["coupling"]),
        damping=unknowns["damping"],
        equilibrium=scales.size * unknowns["equilibrium"],
        size=scales.size,
        speed=scales.speed,
        effects=effects,
    )


def residuals_for(trials: Trials, scales: Scales):
    """The function `(unknowns, (position, weight)) -> weight (computed - measured)`, flattened,
    of all trials at once. Times are closed over, as constants."""
    dt = trials.interval / 4  # fine enough for any motion that the measurements can show
    steps = math.ceil(trials.time.max() / dt - 1e-6)

    def motion(system, q0, v0, times):
        return mbd.simulate(
            system,
            mbd.UdwadiaKalaba(),  # there is nothing to enforce
            mbd.State(0.0, q0, v0),
            dt=dt,
            num_steps=steps,
            saveat=diffrax.SaveAt(ts=times),
            throw=False,
        )

    def residuals(unknowns, data):
        position, weight = data
        effects = unknowns.get("effects", Effects())
        system = system_of(unknowns, scales, effects)
        q0, v0 = scales.size * unknowns["position"], scales.speed * unknowns["velocity"]
        sol = jax.vmap(motion, in_axes=(None, 0, 0, 0))(system, q0, v0, jnp.asarray(trials.time))
        seen = sol.q + camera(system, effects, jnp.asarray(trials.time)[..., None], sol.q, sol.v)
        return jnp.ravel(weight[..., None] * (seen - position))

    return residuals


def camera(system: AirTrack, effects: Effects, t, q, v):
    """How far a position is seen from where it is, by the effects of observation."""
    x, s = (q - system.equilibrium[None, None]) / system.size, t / jnp.max(t)
    picture = effects.oblique_camera * x**2 + effects.drifting_origin * s
    return system.size * (picture + effects.drifting_clock * s**2 * v / system.speed)


def first_guesses(trials: Trials):
    """Unknowns to start from, by linear regression without differentiating noise, and the scales.

    With a smooth function w that vanishes at the ends of a window, integrating
    q'' + C q' + K q = K e twice by parts gives

        int w'' q = C int w' q - K int w q + K e int w,

    linear in C, K and K e, one equation for each window. A window must be long enough to average
    out the noise and short enough for the fastest motion, so there is one guess for each of
    several lengths.

    Reference: Shinbrot (1957), On the analysis of linear and nonlinear systems, Trans. ASME 79.
    """
    guesses, n = [], trials.carts
    for half in (8, 12, 16, 24, 32, 48):
        K, C, e = regression(trials, half * trials.interval)
        if K is None:
            continue
        smallest = 1e-2 * np.abs(np.diag(K)).max()
        if n == 1:
            outer, coupling, ratio = [max(K[0, 0], smallest)], [], []
        else:
            to_first, to_second = max(-K[0, 1], smallest), max(-K[1, 0], smallest)
            ratio = [to_first / to_second]  # both are the coupling spring, over m1 and over m2
            outer = [K[0, 0] - to_first, ratio[0] * (K[1, 1] - to_second)]
            outer, coupling = np.maximum(outer, smallest), [to_first]
        speed = trials.size * math.sqrt(np.abs(np.diag(K)).max())
        starts = [
            np.polynomial.polynomial.polyfit(time[:6], position[:6], 2)
            for time, position in zip(trials.time, trials.position)
        ]
        guesses.append(
            (
                {
                    "outer": np.log(outer),
                    "coupling": np.log(coupling),
                    "mass_ratio": np.log(ratio),
                    "damping": np.maximum(np.diag(C), 0.0),
                    "equilibrium": e / trials.size,
                    "position": np.stack([start[0] for start in starts]) / trials.size,
                    "velocity": np.stack([start[1] for start in starts]),
                },
                speed,
            )
        )
    if not guesses:
        raise ValueError("The trials are too short to guess a frequency from them.")
    # One scale of speed for all, so that they are compared by the same compiled function.
    scales = Scales(trials.size, float(np.median([speed for _, speed in guesses])))
    return [{**guess, "velocity": guess["velocity"] / scales.speed} for guess, _ in guesses], scales


def regression(trials: Trials, half: float):
    """(K, C, e) from windows of length 2 half, or Nones where these do not tell."""
    n, A, b = trials.carts, [], []
    for time, position, weight in zip(trials.time, trials.position, trials.weight):
        t, q = time[weight > 0], position[weight > 0]
        for centre in np.arange(half, t[-1] - half, half / 4):
            s = (t - centre) / half
            inside = np.abs(s) < 1
            s, rows = s[inside], q[inside]
            p = 1 - s**2
            tests = p**4, -8 * s * p**3 / half, (48 * s**2 * p**2 - 8 * p**3) / half**2
            w, w1, w2 = (np.trapezoid(f[:, None] * rows, t[inside], axis=0) for f in tests)
            A.append([*w, *w1, np.trapezoid(p**4, t[inside])])
            b.append(w2)
    if len(A) < 2 * (2 * n + 1):
        return None, None, None
    X = np.linalg.lstsq(np.array(A), np.array(b), rcond=None)[0].T
    K, C = -X[:, :n], X[:, n : 2 * n]
    return K, C, np.linalg.solve(K, X[:, -1])


def identify(trials: Trials, progress: bool = True):
    """(fit, scales, residual function): all trials at once, from the best of the first guesses.

    A guess is judged by a few iterations on the first quarter of the trials, where a frequency
    that is somewhat off has not lost the phase yet."""
    guesses, scales = first_guesses(trials)
    residuals = residuals_for(trials, scales)
    early = trials.weight * (trials.time <= trials.time.max() / 4)
    options = dict(scale=trials.size, progress=progress)
    candidates = [
        least_squares(
            residuals,
            guess,
            (trials.position, early),
            count=int(early.sum()) * trials.carts,
            max_steps=10,
            label=f"guess {i} of {len(guesses)}",
            **options,
        )
        for i, guess in enumerate(guesses, 1)
    ]
    best = min(candidates, key=lambda candidate: candidate.rms)
    data = (trials.position, trials.weight)
    result = least_squares(
        residuals, best.value, data, count=trials.count, label="all rows", **options
    )
    return result, scales, residuals


def per_row(residuals, trials: Trials) -> np.ndarray:
    """Residuals with the shape of the positions."""
    return np.reshape(residuals, trials.position.shape)


def without_outliers(trials: Trials, result: LeastSquares) -> Trials:
    """The same trials, rows that are far from the fit taken out of use: farther than `OUTLIER`
    robust standard deviations, or between such a row and the end of the trial if that is near."""
    error = np.abs(per_row(result.residuals, trials)).max(axis=2)
    used = trials.weight > 0
    spread = 1.4826 * np.median(np.abs(per_row(result.residuals, trials)[used]))
    far = used & (error > OUTLIER * spread)
    for k in range(len(far)):
        last = np.flatnonzero(used[k])[-1]
        if far[k, max(last - 5, 0) : last + 1].any():
            # The end is off: from where the residuals first leave the usual range for good.
            usual = np.flatnonzero(error[k, : last + 1] < 2 * spread)
            far[k, usual[-1] + 1 : last + 1] = True
    return trials._replace(weight=np.where(far, 0.0, trials.weight))


def quantities(unknowns, scales: Scales) -> dict[str, tuple[Array, str]]:
    """What the unknowns mean: name -> (value, unit)."""
    system = system_of(unknowns, scales)
    if system.masses.size == 1:
        omega2 = system.outer
        rows = {"stiffness k/m": (system.outer[0], "1/s^2")}
        rows["damping c/m"] = (system.damping[0], "1/s")
        rows["equilibrium"] = (system.equilibrium[0], "units")
    else:
        (k1, k2), (kc,), (_, mass) = system.outer, system.coupling, system.masses
        rows = {
            "outer spring of cart 1, k1/m1": (k1, "1/s^2"),
            "coupling spring, kc/m1": (kc, "1/s^2"),
            "outer spring of cart 2, k2/m1": (k2, "1/s^2"),
            "mass of cart 2, m2/m1": (mass, "1"),
            "ratio of outer springs, k2/k1": (k2 / k1, "1"),
            "damping of cart 1, c1/m1": (system.damping[0], "1/s"),
            "damping of cart 2, c2/m2": (system.damping[1], "1/s"),
            "equilibrium of cart 1": (system.equilibrium[0], "units"),
            "equilibrium of cart 2": (system.equilibrium[1], "units"),
        }
        # Roots of det(K - omega^2 M) = 0.
        a, d = k1 + kc, (k2 + kc) / mass
        root = jnp.sqrt((a - d) ** 2 / 4 + kc**2 / mass)
        omega2 = jnp.stack([(a + d) / 2 - root, (a + d) / 2 + root])
    for i, omega in enumerate(jnp.sqrt(omega2), 1):
        which = f" of mode {i}" if omega2.size > 1 else ""
        rows["natural frequency" + which] = (omega, "rad/s")
        rows["  period" + which] = (2 * jnp.pi / omega, "s")
    return rows


def with_sigmas(result: LeastSquares, scales: Scales) -> dict[str, tuple[float, float, str]]:
    """name -> (value, one sigma, unit), by linear propagation of the covariance."""
    flat, unravel = ravel_pytree(result.value)
    units = {}

    def values(flat):
        rows = quantities(unravel(flat), scales)
        units.update({name: unit for name, (_, unit) in rows.items()})
        found = jnp.stack([value for value, _ in rows.values()])
        return found, found

    D, found = jax.jit(jax.jacfwd(values, has_aux=True))(flat)
    sigmas = np.sqrt(np.diag(D @ result.covariance @ D.T))
    return {
        name: (float(value), float(sigma), unit)
        for (name, unit), value, sigma in zip(units.items(), found, sigmas)
    }


def missing_effects(
    trials: Trials, result: LeastSquares, residuals
) -> dict[str, tuple[float, float, float]]:
    """Would the fit be better with an effect that the model leaves out? name -> (size, size over
    its sigma, rms residual with it), each effect alone, to first order: one Gauss-Newton step,
    with the derivatives of the motion with respect to effects of size zero."""
    data = trials.position, trials.weight

    def with_effects(sizes):
        return residuals({**result.value, "effects": Effects(*sizes)}, data)

    columns = jax.jit(jax.jacfwd(with_effects))(jnp.zeros(len(EFFECTS)))
    r, count = np.asarray(result.residuals), trials.count
    Q, _ = np.linalg.qr(result.jacobian)
    tested = {}
    for name, column in zip(EFFECTS, np.asarray(columns).T):
        column = column - Q @ (Q.T @ column)  # what the unknowns cannot do as well
        size = -(column @ r) / (column @ column)
        left = r + size * column
        sigma = np.linalg.norm(left) / math.sqrt(count - Q.shape[1] - 1) / np.linalg.norm(column)
        tested[name] = float(size), float(size / sigma), np.linalg.norm(left) / math.sqrt(count)
    return tested


def neighbour_correlation(trials: Trials, result: LeastSquares) -> float:
    """Correlation of each residual with the one before it."""
    errors, w = per_row(result.residuals, trials), trials.weight[..., None]
    both = w[:, 1:] * w[:, :-1]
    return float((both * errors[:, 1:] * errors[:, :-1]).sum() / (w * errors**2).sum())


def resolution(trials: Trials) -> float:
    """The unit to which positions were rounded, 0 if none is seen."""
    steps = np.diff(np.unique(trials.position[trials.weight > 0]))
    unit = steps.min() if steps.size else 0.0
    whole = trials.position / unit if unit else np.array([0.5])
    return float(unit) if np.allclose(whole, np.round(whole), atol=1e-6) else 0.0


def report(trials: Trials, whole: Trials, result: LeastSquares, scales: Scales, tested) -> None:
    print(f"\n{'':34}{'estimate':>10}   one sigma")
    for name, (value, sigma, unit) in with_sigmas(result, scales).items():
        digits = max(0, 1 - math.floor(math.log10(sigma))) if sigma > 0 else 6
        print(f"{name:34}{value:10.{digits}f}   +- {sigma:.{digits}f} {unit}")

    errors = per_row(result.residuals, trials)
    print(f"\n{'residual':34}{result.rms:10.3f}   units rms", end="")
    print(f" = {100 * result.rms / trials.size:.2f} % of the largest displacement")
    for k, name in enumerate(trials.name):
        by_cart = np.sqrt((errors[k] ** 2).sum(axis=0) / trials.weight[k].sum())
        print(f"  trial {name:26}", *(f"{rms:10.3f}" for rms in by_cart))
    if unit := resolution(whole):
        print(f"{'  of which rounding of positions':34}{unit / math.sqrt(12):10.3f}")
    r = neighbour_correlation(trials, result)
    print(f"{'  correlation of neighbours':34}{r:10.2f}")
    if r > 0.1:
        print(
            "  Residuals resemble their neighbours, so there is less information in them than the\n"
            f"  sigmas above take for granted: these are up to {math.sqrt((1 + r) / (1 - r)):.1f} "
            "times larger."
        )
    print("\nLeft out of the model; would one of these improve it? (alone, to first order)")
    for name, (size, sigmas, rms) in tested.items():
        print(f"  {EFFECTS[name]:40}{100 * size:+8.3f} % {sigmas:+7.1f} sigma   rms {rms:.3f}")
    limit = 3 * math.sqrt((1 + max(r, 0)) / (1 - max(r, 0)))
    seen = {name: row for name, row in tested.items() if abs(row[1]) > limit}
    if not seen:
        print(f"None is seen (beyond {limit:.1f} sigma, correlation allowed for).")
    else:
        best = min(seen, key=lambda name: seen[name][2])
        gain = 100 * (1 - seen[best][2] / result.rms)
        print(
            f"Seen (beyond {limit:.1f} sigma, correlation allowed for): "
            f"{', '.join(name.replace('_', ' ') for name in seen)}.\nThe residual would fall by "
            f"{gain:.1f} % at most, with: {EFFECTS[best]}."
        )
    print(f"\n{result.iterations} iterations, {result.seconds:.1f} s in the last fit")
    if not result.converged:
        print("NOT CONVERGED: do not trust the figures above.")


def report_outliers(before: Trials, after: Trials, result: LeastSquares) -> None:
    for k, name in enumerate(before.name):
        rows = np.flatnonzero(before.weight[k] != after.weight[k])
        if not rows.size:
            continue
        error = -per_row(result.residuals, before)[k, rows]
        mean = ", ".join(f"{x:+.1f}" for x in error.mean(axis=0))
        times = before.start[k] + before.time[k, rows]
        print(
            f"trial {name}: {rows.size} rows between t = {times[0]:.3f} s and {times[-1]:.3f} s "
            f"are off by {mean} units on average\n  and are left out (--keep-outliers keeps them)."
        )
        if before.carts == 2 and np.all(error.min(axis=0) * error.max(axis=0) > 0):
            if np.ptp(error.mean(axis=0)) < 0.3 * np.abs(error.mean()):
                print("  Both carts by the same: camera or track moved, rather than the carts.")


def draw(trials: Trials, whole: Trials, error: np.ndarray):
    """All trials with the fit, and `error`, computed minus measured, also of rows left out."""
    left_out = (whole.weight > 0) & (trials.weight == 0)
    count = len(trials.name)
    figure = plt.figure(figsize=(12, 1 + 5.5 * count), layout="constrained")
    grid = figure.subplots(2 * count, 1, height_ratios=(2.2, 1) * count, squeeze=False)[:, 0]
    for k in range(count):
        motion, residual = grid[2 * k : 2 * k + 2]
        residual.sharex(motion)
        real, used, out = whole.weight[k] > 0, trials.weight[k] > 0, left_out[k]
        t = trials.start[k] + trials.time[k]
        for j in range(trials.carts):
            colour, cart = f"C{j}", f" cart {j + 1}" if trials.carts > 1 else ""
            measured, off = trials.position[k, :, j], -error[k, :, j]
            motion.plot(t[used], measured[used], ".", color=colour, ms=5, label="measured" + cart)
            motion.plot(t[out], measured[out], "x", color=colour, ms=5)
            residual.plot(t[used], off[used], ".-", color=colour, ms=3, lw=0.4)
            residual.plot(t[out], off[out], "x", color=colour, ms=5)
            motion.plot(t[real], (measured - off)[real], "k", lw=0.8)
        motion.plot([], [], "k", lw=0.8, label="fitted")
        if out.any():
            motion.plot([], [], "kx", ms=5, label="left out of the fit")
        motion.set(ylabel="position [units]", title=f"trial {trials.name[k]}")
        motion.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=5, frameon=False)
        rms = np.sqrt(np.mean(error[k][used] ** 2))
        residual.axhspan(-2 * rms, 2 * rms, color="0.5", alpha=0.15, lw=0)
        residual.set(ylabel="measured\n- fitted [units]", xlabel="time [s]")
        for axis in (motion, residual):
            axis.grid(alpha=0.3)
    figure.align_ylabels()
    return figure


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=pathlib.Path, required=True, metavar="FILE", help="measurements")
    add("--carts", type=int, choices=(1, 2), help="if the columns do not tell")
    add("--until", type=float, metavar="T", help="use only rows up to this time [s]")
    add("--keep-outliers", action="store_true", help="use rows that are far from the fit, too")
    add("--output", type=pathlib.Path, metavar="PNG", default="identify_air_track.png")
    options = parser.parse_args()
    try:
        whole = trials = read_trials(options.data, options.carts)
        if options.until is not None:
            early = trials.start[:, None] + trials.time <= options.until
            trials = trials._replace(weight=trials.weight * early)
            if trials.weight.sum(axis=1).min() < MIN_ROWS:
                raise ValueError(f"--until {options.until:g} leaves too few rows.")
        noun = "trial" if len(trials.name) == 1 else "trials"
        print(
            f"{options.data}: {len(trials.name)} {noun} of {trials.carts} cart(s), "
            f"{trials.count} positions, every {1e3 * trials.interval:.0f} ms",
            flush=True,
        )
        result, scales, residuals = identify(trials)
        for _ in range(0 if options.keep_outliers else 3):
            cleaned = without_outliers(trials, result)
            if cleaned.count == trials.count:
                break
            report_outliers(trials, cleaned, result)
            trials = cleaned
            data = (trials.position, trials.weight)
            again = dict(scale=trials.size, count=trials.count, label="without these")
            result = least_squares(residuals, result.value, data, **again)
        tested = missing_effects(trials, result, residuals)
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    report(trials, whole, result, scales, tested)
    everywhere = jax.jit(residuals)(result.value, (whole.position, whole.weight))
    draw(trials, whole, per_row(everywhere, whole)).savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
