"""Find the stiffness and damping of a flexible support from measured positions.

A slider-crank runs up through the resonance of its own support:

              crank, driven by a constant torque
             o--.__
      slider /     `--.__  rod
    support o             `--o slider ->  x      guide: y = 0
         |  ^ y
      spring, damper (unknown)

The bearing block of the crank (the support) slides vertically on a spring and a damper. Both are
unknown; all else is known. Measured are the support's height y and the slider's position x.

Why this is well posed. Stiffness shows in the static deflection under gravity, in the frequency
of the support's free vibration, and in the amplitude below resonance; damping in the decay of the
free vibration and in the height of the resonance. The unbalanced crank excites all of them,
provided that the record holds several periods of the support and that the crank passes its
resonance. Far above resonance the support moves as the masses dictate and both parameters fade
from the data; the one-sigma intervals tell.

The mechanism is written in redundant coordinates, as one would write any other: positions and
angles of all bodies, ten numbers, tied by eight equations. The measurements come from elsewhere:
by default the script makes them with SciPy from equations in two minimal coordinates, derived
separately, plus noise.

    python examples/identify_spring_damper.py                     # makes its own measurements
    python examples/identify_spring_damper.py --data my.csv       # uses yours
"""

import argparse
import csv
import math
import pathlib
import re
import sys
from functools import partial
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array
from scipy.integrate import solve_ivp

import jaxmbd as mbd
from jaxmbd.identify import LeastSquares, least_squares

# The columns of the measurements and what their units are worth in SI.
TIME_UNITS = {"s": 1.0, "ms": 1e-3}
LENGTH_UNITS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}
COLUMNS = {"time": TIME_UNITS, "support_y": LENGTH_UNITS, "slider_x": LENGTH_UNITS}
MIN_ROWS = 10

HORIZONS = (0.1, 0.2, 0.4, 1.0)  # parts of the record that are fitted one after the other

TRUTH = {"stiffness": 6000.0, "damping": 40.0}
GUESS = {"stiffness": 1500.0, "damping": 160.0}  # both wrong by a factor of four
UNITS = {"stiffness": "N/m", "damping": "N s/m"}


class SliderCrank(mbd.AbstractSystem):
    """Crank, rod and slider whose crank bearing sits on a vertical spring and damper.

    Natural coordinates: q = (support, pin, slider), the positions (x, y) of the crank bearing, of
    the pin between crank and rod, and of the slider. Crank and rod are uniform bars; in the
    positions of its ends, the mass matrix of a bar is constant and its angle never appears. SI.
    """

    stiffness: Array = eqx.field(converter=jnp.asarray)
    damping: Array = eqx.field(converter=jnp.asarray)
    crank_length: Array = eqx.field(converter=jnp.asarray, default=0.1)
    rod_length: Array = eqx.field(converter=jnp.asarray, default=0.3)
    support_mass: Array = eqx.field(converter=jnp.asarray, default=2.0)
    crank_mass: Array = eqx.field(converter=jnp.asarray, default=1.0)
    rod_mass: Array = eqx.field(converter=jnp.asarray, default=0.8)
    slider_mass: Array = eqx.field(converter=jnp.asarray, default=0.7)
    flywheel_inertia: Array = eqx.field(converter=jnp.asarray, default=0.05)
    torque: Array = eqx.field(converter=jnp.asarray, default=1.0)
    gravity: Array = eqx.field(converter=jnp.asarray, default=9.81)

    def mass_matrix(self, q):
        m1, m2 = self.crank_mass, self.rod_mass
        J = self.flywheel_inertia / self.crank_length**2
        of_points = [
            [self.support_mass + m1 / 3 + J, m1 / 6 - J, 0.0],
            [m1 / 6 - J, (m1 + m2) / 3 + J, m2 / 6],
            [0.0, m2 / 6, m2 / 3 + self.slider_mass],
        ]
        return jnp.kron(jnp.asarray(of_points, q.dtype), jnp.eye(2, dtype=q.dtype))

    def force(self, t, q, v, u):
        support, pin, _ = q.reshape(3, 2)
        weight = -self.gravity * self.mass_matrix(q) @ jnp.tile(jnp.array([0, 1], q.dtype), 3)
        spring_damper = -self.stiffness * support[1] - self.damping * v[1]
        arm = pin - support
        couple = self.torque / self.crank_length**2 * jnp.stack([-arm[1], arm[0]])
        return weight.at[1].add(spring_damper).at[2:4].add(couple).at[0:2].add(-couple)

    def constraint(self, q, t):
        support, pin, slider = q.reshape(3, 2)
        crank, rod = pin - support, slider - pin
        return jnp.stack(
            [
                support[0],  # the support moves up and down only
                crank @ crank - self.crank_length**2,
                rod @ rod - self.rod_length**2,
                slider[1],  # guide of the slider
            ]
        )


class Start(NamedTuple):
    """The state at the first measurement, in minimal coordinates."""

    angle: float = 0.5  # of the crank, from the x axis [rad]
    speed: float = 12.0  # of the crank [rad/s]
    y: float = 0.0  # height of the support [m]; 0 on the slider's line, the spring unstretched
    ydot: float = 0.0  # [m/s]


def place(system: SliderCrank, angle, y):
    """q from the crank angle and the height of the support."""
    support = jnp.stack([jnp.zeros_like(y), y])
    pin = support + system.crank_length * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    reach = jnp.sqrt(system.rod_length**2 - pin[1] ** 2)
    return jnp.concatenate([support, pin, jnp.stack([pin[0] + reach, jnp.zeros_like(y)])])


def consistent_state(system: SliderCrank, start: Start) -> mbd.State:
    """q and v at time 0, both on the constraints, and differentiable in `start`."""
    angle, speed, y, ydot = map(jnp.asarray, start)
    return mbd.State(0.0, *jax.jvp(partial(place, system), (angle, y), (speed, ydot)))


class Measurements(NamedTuple):
    """Times from the first row on, shape `(n,)` [s], and what was measured then: height of the
    support and position of the slider, shape `(n, 2)` [m]."""

    time: np.ndarray
    position: np.ndarray


def residuals_for(system: SliderCrank, start: Start, times, dt: float = 2e-3):
    """The function `(unknowns, (position, weight)) -> weight (computed - measured position)` [m],
    flattened. Position has shape `(n, 2)`, as in `Measurements`; one weight for each of n times.

    unknowns = {"stiffness": log k, "damping": log d}, and "start" if that is to be found as well.
    The logarithms keep both positive and make a factor the natural step. What is
    known, the rest of the mechanism and the times, is closed over: as constants it makes the
    compiled function smaller, and compiling two to three times quicker.
    """
    steps = max(1, math.ceil(times[-1] / dt - 1e-6))

    def residuals(unknowns, data):
        position, weight = data
        flexible = eqx.tree_at(
            lambda s: (s.stiffness, s.damping),
            system,
            (jnp.exp(unknowns["stiffness"]), jnp.exp(unknowns["damping"])),
        )
        sol = mbd.simulate(
            flexible,
            mbd.UdwadiaKalaba(solver=mbd.Cholesky()),  # the four rows are independent
            consistent_state(system, unknowns.get("start", start)),
            dt=dt,
            num_steps=steps,
            saveat=diffrax.SaveAt(ts=times),
            throw=False,  # a trial step too far then counts as a bad fit, not as an error
        )
        support_y, slider_x = sol.q[:, 1], sol.q[:, 4]
        computed = jnp.stack([support_y, slider_x], axis=1)
        return jnp.ravel(weight[:, None] * (computed - position))

    return residuals


def identify(
    residuals,
    measured: Measurements,
    guess: dict[str, float] = GUESS,
    start: Start | None = None,
    **options,
) -> LeastSquares:
    """Stiffness and damping (their logarithms) and, if `start` guesses it, also the start.

    A wrong frequency shifts the phase more and more: late in the record, a poor guess can be off
    by whole periods, and the sum of squares has a local minimum at each. So the first part of the
    record is fitted alone, then more of it. Only weights change, and nothing is compiled anew.
    """
    unknowns = {name: math.log(value) for name, value in guess.items()}
    if start is not None:
        unknowns["start"] = start
    scale = float(np.std(measured.position - measured.position.mean(axis=0)))
    rows = len(measured.time)
    iterations, seconds, first = 0, 0.0, unknowns
    for part in HORIZONS:
        used = max(math.ceil(part * rows), min(MIN_ROWS, rows))
        result = least_squares(
            residuals,
            unknowns,
            (measured.position, (np.arange(rows) < used).astype(float)),
            scale=scale,
            count=2 * used,
            tolerance=1e-9 if part == 1 else 1e-3,
            label=f"first {100 * part:3.0f} %",
            **options,
        )
        unknowns = result.value
        iterations, seconds = iterations + result.iterations, seconds + result.seconds
    # For the picture: the whole motion of the guess, from what is compiled already.
    every = (measured.position, np.ones(rows))
    guessed = least_squares(residuals, first, every, scale=scale, max_steps=1, progress=False)
    return result._replace(
        iterations=iterations, seconds=seconds, first_residuals=guessed.first_residuals
    )


def independent_motion(system: SliderCrank, start: Start, times) -> np.ndarray:
    """Height of the support and position of the slider at `times`, by SciPy, in two minimal
    coordinates p = (crank angle theta, height y), with an error of about 1e-11 m.

    Every body velocity that carries inertia is w = A(p) p', its acceleration A p'' + b, so that
    A^T W A p'' = A^T (F - W b). With the height s = y + r sin(theta) of the crank pin the rod's
    angle phi follows from l sin(phi) = -s, and from differentiating twice
    l cos(phi) phi'' = l sin(phi) phi'^2 + r sin(theta) theta'^2 - y'' - r cos(theta) theta''.
    """
    values = {name: float(value) for name, value in vars(system).items()}
    r, length, g = values["crank_length"], values["rod_length"], values["gravity"]
    m_support, m_crank = values["support_mass"], values["crank_mass"]
    m_rod, m_slider = values["rod_mass"], values["slider_mass"]
    inertia_crank = m_crank * r**2 / 12 + values["flywheel_inertia"]
    inertia_rod = m_rod * length**2 / 12
    # Of support (y), crank (x, y, angle), rod (x, y, angle), slider (x).
    weights = np.array(
        [m_support, m_crank, m_crank, inertia_crank, m_rod, m_rod, inertia_rod, m_slider]
    )
    gravity = -g * np.array([m_support, 0, m_crank, 0, 0, m_rod, 0, 0])

    def rates(t, state):
        theta, y, omega, ydot = state
        s, c = r * np.sin(theta), r * np.cos(theta)
        rise = y + s
        run = np.sqrt(length**2 - rise**2)  # l cos(phi)
        phi_theta, phi_y = -c / run, -1 / run
        phidot = phi_theta * omega + phi_y * ydot
        phi_bias = (s * omega**2 - rise * phidot**2) / run
        A = np.array(
            [
                [0, 1],
                [-s / 2, 0],
                [c / 2, 1],
                [1, 0],
                [-s + rise / 2 * phi_theta, rise / 2 * phi_y],
                [c / 2, 1 / 2],
                [phi_theta, phi_y],
                [-s + rise * phi_theta, rise * phi_y],
            ]
        )
        b = np.array(
            [
                0,
                -c / 2 * omega**2,
                -s / 2 * omega**2,
                0,
                -c * omega**2 - run / 2 * phidot**2 + rise / 2 * phi_bias,
                -s / 2 * omega**2,
                phi_bias,
                -c * omega**2 - run * phidot**2 + rise * phi_bias,
            ]
        )
        spring_damper = -values["stiffness"] * y - values["damping"] * ydot
        applied = np.array([values["torque"], spring_damper])
        M = A.T @ (weights[:, None] * A)
        return [omega, ydot, *np.linalg.solve(M, A.T @ (gravity - weights * b) + applied)]

    begin = [start.angle, start.y, start.speed, start.ydot]
    motion = solve_ivp(rates, (0, times[-1]), begin, "DOP853", t_eval=times, rtol=1e-11, atol=1e-12)
    theta, y = motion.y[:2]
    x = r * np.cos(theta) + np.sqrt(length**2 - (y + r * np.sin(theta)) ** 2)
    return np.stack([y, x], axis=1)


def synthetic_measurements(
    system: SliderCrank, start: Start, noise: float, seed: int, times=None
) -> Measurements:
    """Those of the independent integration, with normally distributed errors of size `noise`."""
    times = np.linspace(0, 2.5, 251) if times is None else np.asarray(times)
    exact = independent_motion(system, start, times)
    return Measurements(times, exact + noise * np.random.default_rng(seed).normal(size=exact.shape))


def write_measurements(path: pathlib.Path, measured: Measurements) -> None:
    header = ["time [s]", "support_y [m]", "slider_x [m]"]
    table = np.column_stack(measured)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([f"{value:.9g}" for value in row] for row in table)


def read_measurements(path: pathlib.Path) -> Measurements:
    """**Raises:** `ValueError`, naming the file, the line and the remedy, for anything but a
    table of numbers with the three columns and increasing times; `OSError` without the file."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [(i, row) for i, row in enumerate(csv.reader(file), 1) if any(map(str.strip, row))]
    if not rows:
        raise ValueError(f"{path} is empty.")
    header = rows[0][1]
    places = {}
    for place, title in enumerate(header):
        match = re.fullmatch(r"\s*(\w+)\s*(?:[\[(]\s*(\w*)\s*[\])])?\s*", title)
        name, unit = match.groups() if match else (title.strip(), None)
        if name not in COLUMNS:
            continue  # other columns may be there
        units = COLUMNS[name]
        if name in places:
            raise ValueError(f"{path}: column `{name}` appears twice in the header.")
        if unit is not None and unit not in units:
            raise ValueError(
                f"{path}: column `{name}` is in [{unit}], but must be in one of {list(units)}."
            )
        places[name] = place, units[unit] if unit else 1.0
    missing = [name for name in COLUMNS if name not in places]
    if missing:
        raise ValueError(
            f"{path}: no column {' and no column '.join(f'`{name}`' for name in missing)}. The "
            f"header must name {', '.join(COLUMNS)}, with units as in `time [s]`, but is "
            f"`{','.join(header)}`."
        )

    table = []
    for line, row in rows[1:]:
        for name, (place, unit) in places.items():
            text = row[place].strip() if place < len(row) else ""
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise ValueError(
                    f"{path}, line {line}: `{name}` is `{text}`, not a finite number. Leave out "
                    "rows without measurement."
                )
            table.append(value * unit)
    values = np.reshape(table, (-1, len(places)))
    order = list(places).index
    time = values[:, order("time")]
    if len(values) < MIN_ROWS:
        raise ValueError(f"{path} has {len(values)} rows of numbers; give at least {MIN_ROWS}.")
    late = np.flatnonzero(np.diff(time) <= 0)
    if late.size:
        raise ValueError(
            f"{path}, line {rows[late[0] + 2][0]}: time must increase from row to row, but goes "
            f"from {time[late[0]]:g} s to {time[late[0] + 1]:g} s."
        )
    position = np.stack([values[:, order("support_y")], values[:, order("slider_x")]], axis=1)
    return Measurements(time - time[0], position)


def report(result: LeastSquares, guess: dict[str, float], truth: dict[str, float] | None) -> None:
    """Print the estimates with their intervals, and whether they hold the truth."""
    print(f"\n{'':18}{'guess':>9}{'truth':>10}{'estimate':>12}   one sigma")
    for name, unit in UNITS.items():
        value = math.exp(result.value[name])
        relative = float(result.sigma[name])  # of the logarithm
        line = f"{name + ' [' + unit + ']':18}{guess[name]:9.5g}"
        line += f"{truth[name]:10.5g}" if truth else f"{'?':>10}"
        line += f"{value:12.2f}   +- {relative * value:.2f} ({100 * relative:.2g} %)"
        if truth:
            line += f", off by {(value - truth[name]) / (relative * value):+.1f} sigma"
        print(line)
    if "start" in result.value:
        for name, value, sigma in zip(Start._fields, result.value["start"], result.sigma["start"]):
            print(f"start: {name:30}{value:19.4f}   +- {sigma:.4f}")
    by_signal = 1e3 * np.sqrt(np.mean(np.reshape(result.residuals, (-1, 2)) ** 2, axis=0))
    print(f"residual           {1e3 * result.rms:.3f} mm rms")
    print(f"                   {by_signal[0]:.3f} mm support, {by_signal[1]:.3f} mm slider")
    C = joint_covariance(result)
    correlation = C[0, 1] / math.sqrt(C[0, 0] * C[1, 1])
    print(f"correlation        {correlation:+.2f} between damping and stiffness")
    print(
        f"effort             {result.iterations} iterations, {result.seconds:.1f} s with compiling"
    )
    if not result.converged:
        print("NOT CONVERGED: do not trust the figures above; try another --guess.")
    if truth:
        distance = distance_to(truth, result)
        within = next((n for n in (1, 2, 3) if distance <= n), None)
        verdict = f"within {within} sigma" if within else "OUTSIDE of three sigma"
        print(f"The truth lies {verdict}: at {distance:.2f} sigma, both parameters taken together.")


def joint_covariance(result: LeastSquares) -> np.ndarray:
    """Of the logarithms of (damping, stiffness), shape `(2, 2)`. The unknowns are in the order of
    their sorted names: damping first, stiffness last, the start between them."""
    return np.asarray(result.covariance)[np.ix_([0, -1], [0, -1])]


def distance_to(truth: dict[str, float], result: LeastSquares) -> float:
    """Mahalanobis' distance from the estimate: one is the ellipse of one sigma."""
    off = [result.value[name] - math.log(truth[name]) for name in ("damping", "stiffness")]
    return math.sqrt(np.dot(off, np.linalg.solve(joint_covariance(result), off)))


def draw(measurements: Measurements, result: LeastSquares, guess, truth):
    """Measured against fitted motion (and that of the guess), residuals, confidence."""
    t, measured = measurements
    errors = np.reshape(result.residuals, measured.shape)
    first = measured + np.reshape(result.first_residuals, measured.shape)
    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    axes = left.subplots(4, 1, sharex=True, height_ratios=(3, 1, 3, 1))
    for k, name in enumerate(("height of the support", "position of the slider")):
        motion, residual = axes[2 * k : 2 * k + 2]
        motion.plot(t, 1e3 * first[:, k], "--", color="0.6", lw=1, label="first guess")
        motion.plot(t, 1e3 * (measured + errors)[:, k], "C0", lw=1.2, label="fitted")
        motion.plot(t, 1e3 * measured[:, k], ".", color="C3", ms=3.5, label="measured")
        motion.set(ylabel="[mm]", title=name)
        residual.axhspan(-2e3 * result.rms, 2e3 * result.rms, color="C0", alpha=0.12, lw=0)
        residual.plot(t, -1e3 * errors[:, k], ".", color="C3", ms=3)
        residual.set(ylabel="measured\n- fitted [mm]")
        limit = 1e3 * max(4 * result.rms, 1.1 * np.abs(errors).max())
        residual.set_ylim(-limit, limit)
        for axis in (motion, residual):
            axis.grid(alpha=0.3)
    axes[0].legend(loc="upper left", ncols=3)
    axes[-1].set_xlabel("time [s]")
    left.align_ylabels(axes)

    region, zoom = right.subplots(2, 1)
    k, d = (math.exp(result.value[name]) for name in ("stiffness", "damping"))
    d_circle, k_circle = np.linalg.cholesky(joint_covariance(result)) @ circle()
    region.loglog(guess["stiffness"], guess["damping"], "o", color="0.5", label="first guess")
    region.loglog(k, d, "C0o", label="estimate")
    if truth:
        region.loglog(truth["stiffness"], truth["damping"], "k+", ms=14, label="truth")
    region.set(title="from the guess to the estimate")
    region.legend()
    for n in (1, 2, 3):
        label = f"{n} sigma"
        zoom.plot(k * np.exp(n * k_circle), d * np.exp(n * d_circle), "C0", lw=1.8 / n, label=label)
    zoom.plot(k, d, "C0o")
    if truth:
        zoom.plot(truth["stiffness"], truth["damping"], "k+", ms=14, label="truth")
    zoom.set(title="confidence around the estimate")
    zoom.legend()
    for axis in (region, zoom):
        axis.set(xlabel="stiffness [N/m]", ylabel="damping [N s/m]")
        axis.grid(alpha=0.3, which="both")
    return figure


def circle():
    angle = np.linspace(0, 2 * np.pi, 200)
    return np.stack([np.cos(angle), np.sin(angle)])


def arguments():
    names = [name for name in SliderCrank.__dataclass_fields__ if name not in TRUTH]
    parser = argparse.ArgumentParser(
        description=__doc__.partition("Why this")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The CSV file has a header with the columns `time [s]`, `support_y [m]` (height of\n"
        "the support above the slider's line) and `slider_x [m]` (position of the slider from\n"
        "the support's axis), in any order, with units s, ms, m, cm or mm; then one row for each\n"
        "measurement, times increasing. The mechanism starts at the first row.\n\n"
        f"NAME is one of {', '.join(names)} (SI units).",
    )
    add = parser.add_argument
    add("--data", type=pathlib.Path, metavar="CSV", help="measurements (default: make some)")
    add("--write-data", type=pathlib.Path, metavar="CSV", default="identify_spring_damper.csv",
        help="where the script's own measurements go (default: %(default)s)")  # fmt: skip
    add("--noise", type=float, default=2e-4, help="in these, one sigma [m] (%(default)s)")
    add("--seed", type=int, default=2, help="of this noise (%(default)s)")
    add("--guess", type=float, nargs=2, metavar=("K", "D"), default=tuple(GUESS.values()),
        help="where the search starts [N/m, N s/m] (%(default)s)")  # fmt: skip
    add("--truth", type=float, nargs=2, metavar=("K", "D"),
        help="what --data was made with, if known")  # fmt: skip
    add("--start", type=float, nargs=4, metavar=("ANGLE", "SPEED", "Y", "YDOT"), default=Start(),
        help="of crank and support at the first row [rad, rad/s, m, m/s]")  # fmt: skip
    add("--fit-start", action="store_true", help="find these as well, --start being the guess")
    add("--set", nargs="*", metavar="NAME=VALUE", default=[], help="change the mechanism")
    add("--dt", type=float, default=2e-3, help="step of the simulation [s] (%(default)s)")
    add("--output", type=pathlib.Path, metavar="PNG", default="identify_spring_damper.png")
    return parser, names


def mechanism(settings: list[str], names: list[str], parameters: dict[str, float]) -> SliderCrank:
    """**Raises:** `ValueError` unless each setting is NAME=VALUE."""
    values = dict(parameters)
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in names:
            raise ValueError(f"--set {setting}: NAME must be one of {', '.join(names)}.")
        try:
            values[name] = float(value)
        except ValueError:
            raise ValueError(f"--set {setting}: VALUE must be a number.") from None
    return SliderCrank(**values)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser, names = arguments()
    options = parser.parse_args()
    guess = dict(zip(TRUTH, options.guess))
    truth = dict(zip(TRUTH, options.truth)) if options.truth else None
    start = Start(*options.start)
    try:
        if min(options.guess) <= 0:
            raise ValueError("--guess: stiffness and damping must be positive.")
        system = mechanism(options.set, names, TRUTH)
        if options.data is None:
            truth = TRUTH
            made = synthetic_measurements(system, start, options.noise, options.seed)
            write_measurements(options.write_data, made)
        source = options.write_data if options.data is None else options.data
        measured = read_measurements(source)
        print(f"{source}: {len(measured.time)} rows over {measured.time[-1]:g} s", flush=True)
        residuals = residuals_for(system, start, measured.time, options.dt)
        result = identify(residuals, measured, guess, start if options.fit_start else None)
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    report(result, guess, truth)

    figure = draw(measured, result, guess, truth)
    figure.savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
