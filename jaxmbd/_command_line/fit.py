"""`jaxmbd fit`."""

import functools
import pathlib
import re
import tomllib
from typing import Any

import click
import numpy as np

from .._results import succeeded
from . import runs
from .models import give_up, load, model_argument, shown

_EXAMPLE = 'such as: [parameters] "bodies[forearm].inertia.mass" = {lower = 0.1, upper = 5.0}'


@click.command()
@model_argument
@click.option("--data", required=True, type=click.Path(), help="CSV of the measurements.")
@click.option("--parameters", required=True, type=click.Path(), help="TOML of what is unknown.")
@click.option("--dt", type=float, help="Step [s]; by default the model's.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write the estimate, as .json.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a page of it, as .html.")
@click.option("--progress/--no-progress", default=None, help="Show a bar; by default in terminals.")
def fit(model, data, parameters, dt, output, report, progress) -> None:
    """Fit parameters of MODEL to measurements.

    The first row of the CSV has names: "t" for the time [s], names of hinges and slides for their
    coordinates [rad, m], names of sensors of the model (with [0], [1] for several numbers), and
    "control:NAME" for controls. Empty cells are missing. The motion starts in the pose of the first
    row, at rest; with start = "unknown" in the TOML its start is fitted too.

    \b
    The TOML names paths of numbers of the mechanism, with any of guess, lower and upper, positive:
      start = "unknown"
      [parameters]
      "bodies[forearm].inertia.mass" = {lower = 0.1, upper = 5.0}
      "forces[spring].stiffness" = {guess = 100.0, positive = true}

    \b
    Examples:
      jaxmbd fit arm.xml --data measured.csv --parameters unknown.toml
      jaxmbd fit arm.xml --data measured.csv --parameters unknown.toml --report fit.html
    """
    import jaxmbd as mbd
    from jaxmbd import identify

    if output is not None:
        runs.check_output(output, ".json")
    if report is not None:
        runs.check_output(report, ".html", option="--report")
    found = load(model)
    choice, start = _choice(parameters, found.mechanism)
    record, sensors = _record(data, found)
    step = found.loaded.dt if dt is None else dt
    estimate = identify.fit(
        found.mechanism,
        choice,
        record,
        sensors,
        dt=step,
        start=start,
        progress=shown(progress),
    )
    click.echo(str(estimate))
    if output is not None:
        estimate.save(output)
        click.echo(f"wrote {output}")
    if report is not None:
        view = functools.partial(mbd.view, visuals=found.loaded.visuals)
        title = f"{pathlib.Path(model).name} fitted to {pathlib.Path(data).name}"
        identify.report(estimate, view=view, title=title).save(report)
        click.echo(f"wrote {report}")
    if not succeeded(estimate.result):
        give_up("the search did not converge: give better guesses or bounds.")


def _choice(path: str, mechanism: Any) -> tuple[dict[str, Any], Any]:
    """The parameters, and what is known of the start."""
    from jaxmbd import identify

    try:
        table = tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from None
    given, start = table.pop("parameters", None), table.pop("start", "known")
    if not isinstance(given, dict) or not given or table or start not in ("known", "unknown"):
        raise ValueError(
            f'{path} must have a table [parameters] and at most start = "known" or "unknown", '
            f"{_EXAMPLE}."
        )
    chosen = {}
    for name, options in given.items():
        known = {"guess", "lower", "upper", "positive"}
        if not isinstance(options, dict) or not set(options) <= known:
            raise ValueError(f"{path} must give `{name}` a table of {sorted(known)}, {_EXAMPLE}.")
        if ("lower" in options) != ("upper" in options):
            raise ValueError(f"{path} gives `{name}` one bound: give both `lower` and `upper`.")
        if "lower" in options and options.get("positive"):
            raise ValueError(
                f"{path} gives `{name}` bounds and `positive`: give one of them, since a `lower` "
                "bound above 0 keeps it positive."
            )
        transform = identify.Free()
        if "lower" in options:
            transform = identify.Bounded(options["lower"], options["upper"])
        elif options.get("positive"):
            transform = identify.Positive()
        guess = options.get("guess", np.asarray(identify.leaf(mechanism, name)))
        chosen[name] = identify.Parameter(np.asarray(guess, float), transform)
    unknown = identify.UnknownStart() if start == "unknown" else None
    return chosen, unknown


def _record(path: str, found: Any) -> tuple[Any, dict[str, Any]]:
    """The measurements of a CSV, and the sensors of its columns."""
    import jax.numpy as jnp

    from jaxmbd import identify

    loaded = found.loaded
    names, table = _table(path)
    if "t" not in names:
        raise ValueError(f'{path} must have a column "t" with the time [s], but has {names}.')
    time = table[:, names.index("t")]
    joints = {j.name: j for j in loaded.joints if j.kind in ("hinge", "slide")}
    inputs = [entry.name for entry in loaded.controls]
    values, measured, sensors = np.zeros((len(time), len(inputs))), [], {}
    qpos, _ = (np.array(x) for x in loaded.qpos_qvel(loaded.state))
    for name, column in zip(names, table.T, strict=True):
        owner = name.partition("[")[0]
        if name == "t":
            continue
        if name.startswith("control:") and name.removeprefix("control:") in inputs:
            values[:, inputs.index(name.removeprefix("control:"))] = column
            continue
        if name in joints:
            sensors[name] = loaded.reading(name)
            if np.isfinite(column[0]):
                qpos[joints[name].qpos] = column[0]
        elif owner in loaded.sensors:
            sensors[name] = _Entry(path, name, loaded.sensors[owner])
        else:
            raise ValueError(
                f'{path} has a column "{name}", which is no hinge or slide among {list(joints)}, '
                f"no sensor among {list(loaded.sensors)}, and no control among "
                f"{[f'control:{x}' for x in inputs]}."
            )
        measured.append(column)
    if not measured:
        raise ValueError(f"{path} has no measurement: add a column for a joint or a sensor.")
    readings = np.stack(measured, axis=1)
    control = identify.MeasuredInput(time, values) if inputs else None
    state = loaded.state_from(jnp.asarray(qpos), t=float(time[0]))
    weights = np.isfinite(readings).astype(float)
    record = identify.Record(
        time, readings, state, control=control, weights=weights, name=pathlib.Path(path).name
    )
    return record, sensors


def _table(path: str) -> tuple[list[str], np.ndarray]:
    """Names and numbers of a CSV; NaN for empty cells."""
    lines = pathlib.Path(path).read_text(encoding="utf-8-sig").splitlines()
    rows = [line.split(",") for line in lines if line.strip()]
    if len(rows) < 3:
        raise ValueError(f"{path} must have a row of names and at least two rows of numbers.")
    names = [cell.strip().strip('"') for cell in rows[0]]
    table = np.full((len(rows) - 1, len(names)), np.nan)
    for i, row in enumerate(rows[1:]):
        if len(row) != len(names):
            raise ValueError(
                f"{path} has {len(row)} cells in row {i + 2}, but {len(names)} names above."
            )
        for j, cell in enumerate(row):
            try:
                table[i, j] = float(cell) if cell.strip() else np.nan
            except ValueError:
                raise ValueError(
                    f'{path} has {cell.strip()!r} in row {i + 2}, column "{names[j]}", where a '
                    "number is needed."
                ) from None
    return names, table


class _Entry:
    """One number of a sensor, which a column names."""

    def __init__(self, path: str, column: str, sensor: Any):
        self.sensor, self.what = sensor, f'{path} has a column "{column}"'
        found = re.fullmatch(r"[^\[]*(\[(\d+)\])?", column)
        if found is None:
            raise ValueError(
                f"{self.what}, which must be the name of a sensor, followed by [0], [1] and so on "
                "if it has several numbers."
            )
        self.index = None if found[2] is None else int(found[2])

    def __call__(self, sample: Any) -> Any:
        import jax.numpy as jnp

        numbers = jnp.ravel(jnp.asarray(self.sensor(sample)))
        if self.index is None and numbers.size != 1:
            raise ValueError(f"{self.what} for a sensor with {numbers.size} numbers: add [0], [1].")
        # JAX would return the last number for an index beyond the end.
        if self.index is not None and self.index >= numbers.size:
            raise ValueError(
                f"{self.what}, but its sensor has {numbers.size} numbers, counted from [0]."
            )
        return numbers[self.index or 0]
