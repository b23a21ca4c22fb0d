"""What several commands share: models, methods, controls, and options."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import click
import numpy as np

from . import runs

METHODS = {
    "velocity-impulse": "VelocityImpulse",
    "contact-impulse": "ContactImpulse",
    "udwadia-kalaba": "UdwadiaKalaba",
    "lagrange-multipliers": "LagrangeMultipliers",
}

# Which contacts are kept: all, those with floors, or none, also none of the limits of joints.
CONTACTS = ("all", "floor", "none")

# Joints that are open by less need not be closed [m, rad].
_CLOSED = 1e-10

# Exit code of results that are not to be trusted.
DOUBTFUL = 3


class Model(NamedTuple):
    """A loaded model, with the options of the command line applied."""

    loaded: Any
    state: Any
    control: np.ndarray

    @property
    def mechanism(self) -> Any:
        return self.loaded.mechanism


def load(
    path: str,
    keyframe: str | None = None,
    control: Sequence[str] = (),
    contacts: str = "all",
    start: Sequence[str] = (),
) -> Model:
    """Load a model. `control` and `start` have entries NAME=VALUE, and `contacts` is one of
    `CONTACTS`."""
    import jaxmbd as mbd

    loaded = mbd.load(path, contacts=contacts != "none", limits=contacts != "none")
    if contacts == "floor":
        loaded = _on_floors(loaded)
    state, values = loaded.state, np.zeros(len(loaded.controls))
    if keyframe is not None:
        if keyframe not in loaded.keyframes:
            raise ValueError(
                f"{path} has no keyframe {keyframe!r}: its keyframes are "
                f"{sorted(loaded.keyframes) or 'none'}."
            )
        state = loaded.keyframes[keyframe]
        values = np.array(loaded.key_controls.get(keyframe, values), float)
    if start:
        state = _placed(loaded, state, start)
    names = [entry.name for entry in loaded.controls]
    for text in control:
        name, value = _assigned("--control", "control", names, text)
        values[names.index(name)] = value
    return Model(loaded, state, values)


def _assigned(option: str, kind: str, known: Sequence[str], text: str) -> tuple[str, float]:
    """The name and the number of `text`, NAME=VALUE.

    **Raises:** `ValueError` for anything else, and for a name that is not known."""
    name, sign, value = text.rpartition("=")
    if not sign or name not in known:
        raise ValueError(
            f"{option} must be NAME=VALUE with a {kind} of the model, which are "
            f"{known or 'none'}, but is {text!r}."
        )
    return name, number(option, value)


def _placed(loaded: Any, state: Any, start: Sequence[str]) -> Any:
    """The state with joints at other coordinates, and loops and couplings closed from there.

    **Raises:** `ValueError` for unknown names, and where the joints cannot be closed."""
    import jaxmbd as mbd

    mechanism = loaded.mechanism
    known = runs.columns(loaded)
    if not loaded.joints:  # of SDFormat
        known = [j.name for j in mechanism.joints if j.count()]
    values = {}
    for text in start:
        name, value = _assigned("--start", "coordinate", known, text)
        values[name] = value
    if not loaded.joints:
        return mbd.close_joints(mechanism, mbd.place_bodies(mechanism, values))
    qpos, qvel = (np.array(x) for x in loaded.qpos_qvel(state))
    qpos[[known.index(name) for name in values]] = list(values.values())
    placed = loaded.state_from(qpos, qvel, t=float(state.t))
    phi = np.asarray(mechanism.constraint(placed.q, placed.t))
    if np.max(np.abs(phi), initial=0.0) < _CLOSED:
        return placed
    moved = [j for j in loaded.joints if {*runs.columns_of(j)} & values.keys() and j.joint]
    return mbd.close_joints(mechanism, placed, keep=[*dict.fromkeys(j.joint for j in moved)])


def _on_floors(loaded: Any) -> Any:
    """The model without contacts between other shapes than floors, for example of a robot with
    itself, which are most of the work."""
    import jaxmbd as mbd

    floors = (mbd.HalfSpace, mbd.shapes.HeightField)
    contacts = loaded.mechanism.contacts
    kept = [
        contact.name
        for contact in contacts
        if not isinstance(contact, mbd.Contact)
        or any(isinstance(shape, floors) for shape in (contact.shape_a, contact.shape_b))
    ]
    left = len(contacts) - len(kept)
    if left:
        told = f"{left} contacts without a floor are left out: --contacts all keeps them"
        click.echo(told, err=True)
    return with_contacts(loaded, kept)


def with_contacts(loaded: Any, names: Sequence[str]) -> Any:
    """The model with only these contacts."""
    import jaxmbd as mbd

    mechanism = loaded.mechanism
    kept = [contact for contact in mechanism.contacts if contact.name in names]
    if len(kept) == len(mechanism.contacts):
        return loaded
    fewer = mbd.Mechanism(
        mechanism.bodies,
        mechanism.joints,
        mechanism.forces,
        kept,
        gravity=mechanism.gravity,
        switches=mechanism.switches,
        plane=mechanism.plane,
    )
    return dataclasses.replace(loaded, mechanism=fewer)


def number(option: str, text: str) -> float:
    """A finite number. **Raises:** `ValueError` that names the option."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ValueError(f"{option} needs a finite number, but has {text!r}.")
    return value


def method_of(name: str | None, mechanism: Any) -> Any:
    """The enforcement method by its name; by default one that suits the mechanism."""
    import jaxmbd as mbd

    if name is None:
        name = "contact-impulse" if mechanism.contacts else "velocity-impulse"
    return getattr(mbd.methods, METHODS[name])()


def verdict(solution: Any) -> str | None:
    """What went wrong in a simulation, or `None`."""
    from .._results import RESULTS, succeeded  # JAX is slow to import

    if bool(succeeded(solution.result)):
        return None
    return str(RESULTS[solution.result])


def give_up(message: str) -> NoReturn:
    """End with the code for results that are not to be trusted."""
    click.echo(f"Error: {message}", err=True)
    sys.exit(DOUBTFUL)


# --- options --------------------------------------------------------------------------------------

model_argument = click.argument("model", type=click.Path())


class Options(NamedTuple):
    """The options of all commands that simulate."""

    t1: float
    dt: float | None
    method: str | None
    keyframe: str | None
    start: Sequence[str]
    control: Sequence[str]
    rate: float
    progress: bool | None
    contacts: str

    def load(self, path: str) -> Model:
        """Load a model."""
        return load(path, self.keyframe, self.control, self.contacts, self.start)

    def step(self, model: Model) -> float:
        """The step [s]."""
        return float(model.loaded.dt) if self.dt is None else self.dt

    def motion(self, model: Model) -> Any:
        """Simulate a model and save about `rate` states per second. A failure is no error: see the
        result of the solution."""
        import diffrax

        import jaxmbd as mbd

        t1, dt, rate = self.t1, self.step(model), self.rate
        if not t1 > 0 or not dt > 0 or not rate > 0:
            raise ValueError(f"--t1, --dt and --rate must be positive, but are {t1}, {dt}, {rate}.")
        # On the grid of the steps, since times between them would need steps of their own.
        every = max(round(1 / (rate * dt)), 1)
        bar = shown(self.progress)
        return mbd.simulate(
            model.mechanism,
            method_of(self.method, model.mechanism),
            model.state,
            t1=float(model.state.t) + t1,
            dt=dt,
            control=model.loaded.control(model.control) if len(model.control) else None,
            saveat=diffrax.SaveAt(t0=True, t1=True, steps=every),
            progress=diffrax.TqdmProgressMeter() if bar else diffrax.NoProgressMeter(),
            throw=False,
        )


def simulation_options(contacts: str) -> Callable[[Callable], Callable]:
    """The `options` of all commands that simulate, with a default of the contacts to keep."""
    given = (
        click.option("--t1", type=float, default=5.0, show_default=True, help="Duration [s]."),
        click.option("--dt", type=float, help="Step [s]; by default the model's."),
        click.option(
            "--method",
            type=click.Choice(list(METHODS)),
            help="Enforcement method; by default contact-impulse for models with contacts, "
            "velocity-impulse for others.",
        ),
        click.option("--keyframe", help="Start in this keyframe of the model."),
        click.option(
            "--start",
            multiple=True,
            metavar="NAME=VALUE",
            help="Coordinate of a joint at the start [rad, m]. May be repeated. Loops are "
            "closed from there.",
        ),
        click.option(
            "--control",
            multiple=True,
            metavar="NAME=VALUE",
            help="Constant value of a control; by default 0. May be repeated.",
        ),
        click.option(
            "--rate", type=float, default=60.0, show_default=True, help="Saved states per s."
        ),
        click.option(
            "--progress/--no-progress", default=None, help="Show a bar; by default in terminals."
        ),
        click.option(
            "--contacts",
            type=click.Choice(CONTACTS),
            default=contacts,
            show_default=True,
            help="Contacts to keep: all; those with floors (planes, height fields); or none, and "
            "no limits of joints. Fewer are compiled sooner.",
        ),
    )

    def decorated(function):
        @functools.wraps(function)
        def collected(**arguments):
            options = Options(**{name: arguments.pop(name) for name in Options._fields})
            return function(options=options, **arguments)

        for option in reversed(given):
            collected = option(collected)
        return collected

    return decorated


def shown(progress: bool | None) -> bool:
    """Whether progress is shown."""
    return sys.stderr.isatty() if progress is None else progress
