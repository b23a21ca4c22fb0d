"""A stepper that runs while its mechanism is shown."""

import threading
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import is_known, to_jax
from .._inputs import checked, positive
from .._mechanism import Mechanism
from .._mechanism.appearance import BODIES, body_frames
from .._methods import StepperState
from .._results import RESULTS, succeeded
from .._step import Stepper, as_control
from .._system import State
from ..identify import Leaves, leaf
from .page import quiet_server, stop_quietly
from .run import along
from .scene import WORLD, Extent, add_ground, build, stretch
from .solids import turned

# Seconds of the motion that the plot shows, and the most samples of it.
_SPAN, _SAMPLES = 10.0, 600


class Live:
    """A mechanism that moves in the browser while a `Stepper` runs, from `view`:

        live = mbd.view(mbd.Stepper(arm, mbd.VelocityImpulse()), controls={"motor": (-5.0, 5.0)})
        live.show()                 # opens the browser; press Run there
        live.stop()

    The page has buttons to run, pause and start again, and sliders for the speed, the controls and
    the parameters. Or let your own loop do the steps:

        for _ in range(1000):
            state = stepper.step(state, dt)
            live.update(state)

    **Fields:** `address` of the page; `state`: the present `StepperState`; `controls` and
    `parameters`: name -> present value. Each may be set.
    """

    @checked
    def __init__(
        self,
        stepper: Stepper,
        state: State | None = None,
        *,
        dt: Annotated[float, positive] = 1e-3,
        controls: Mapping[str, Sequence[float]] | None = None,
        control: Callable[..., Any] | None = None,
        parameters: Mapping[str, Sequence[float]] | None = None,
        speed: Annotated[float, positive] = 1.0,
        fps: Annotated[float, positive] = 30.0,
        visuals: tuple = (),
    ):
        """**Arguments:**

        - `stepper`: of a `Mechanism`. `state`: the start, by default as the bodies were given.
        - `dt`: the step [s]. `speed`: seconds of the motion per second. `fps`: pictures per second.
        - `controls`: name -> (lowest, highest) value. The control u is the array of their values,
          which start at 0 or at the bound nearest to it. `control`: a function of the values by
          name that returns another u.
        - `parameters`: path of a number of the mechanism, as in `mbd.identify.Leaves` -> (lowest,
          highest) value. They start at the values in the mechanism.
        - `visuals`: as in `view`.

        **Raises:** `ValueError` for a stepper of another system, for bounds that are no pair in
        ascending order, and for a path that leads to no single number.
        """
        if not isinstance(stepper.system, Mechanism):
            raise ValueError(
                "The stepper must be of a `Mechanism` to be viewed, but its system is "
                f"{type(stepper.system).__name__}."
            )
        self._stepper, self.mechanism = stepper, stepper.system
        given = self.mechanism.state() if state is None else state
        self._start = State(given.t, given.q, given.v, angles=given.angles, z=given.z)
        self.dt, self.speed, self._fps, self._control = dt, speed, fps, control
        bounds = {name: _bounds("controls", name, x) for name, x in (controls or {}).items()}
        self.controls = {name: min(max(0.0, low), high) for name, (low, high) in bounds.items()}
        limits = {path: _bounds("parameters", path, x) for path, x in (parameters or {}).items()}
        self.parameters = {path: _number(self.mechanism, path) for path in limits}
        self._leaves = Leaves(self.mechanism)
        self.state: StepperState = stepper.init(self._start)
        self._running, self._ended = False, threading.Event()
        self._lock = threading.RLock()
        self._past: deque = deque(maxlen=_SAMPLES)
        self._server = quiet_server()
        self.address = f"http://{self._server.get_host()}:{self._server.get_port()}"
        self._build(visuals)
        self._build_controls(bounds, limits)
        self.update(self.state)
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    # --- what the user calls ----------------------------------------------------------------------

    def show(self) -> str:
        """Open the page in the browser and return its address."""
        webbrowser.open(self.address)
        return self.address

    def run(self) -> None:
        """Let the time go on."""
        self._running = True
        self._button.label = "Pause"

    def pause(self) -> None:
        """Let the time stand still."""
        self._running = False
        self._button.label = "Run"

    def reset(self) -> None:
        """Go back to the start, with the present parameters."""
        with self._lock:
            self._past.clear()
            self.state = self._present().init(self._start)
            self.update(self.state)

    def stop(self) -> None:
        """End the server and its page."""
        self._ended.set()
        self._thread.join(timeout=10)
        stop_quietly(self._server)

    def advance(self, duration: float) -> StepperState:
        """Do the steps of a `duration` [s] with the present controls and parameters, show the state
        and return it."""
        steps = max(round(duration / self.dt), 1)
        with self._lock:
            h = to_jax(self.dt, self.state.q.dtype)
            self.state = _steps(self._present(), self.state, h, self._input(), to_jax(steps))
            self.update(self.state)
        return self.state

    def update(self, state: State) -> None:
        """Show a state."""
        q = np.asarray(state.q, float)
        frames = body_frames(self.mechanism, q[None])
        with self._server.atomic():
            shift = np.zeros(3)
            if self._follow.value != "nothing":
                shift = self._anchor - frames[self._follow.value].origin[0]
            self._world.position = shift
            for name, handle in self._bodies.items():
                handle.position = frames[name].origin[0]
                handle.wxyz = turned(frames[name].axes[0])
            for handle, link in self._links:
                a, b = (frames[name].at(point)[0, 0] for name, point in link.ends)
                stretch(handle, a, b)
        self._show_numbers(state)

    # --- inside -----------------------------------------------------------------------------------

    def _present(self) -> Stepper:
        """The stepper with the present parameters."""
        if not self.parameters:
            return self._stepper
        dtype = self.state.q.dtype
        values = {path: jnp.asarray(x, dtype) for path, x in self.parameters.items()}
        return eqx.tree_at(lambda s: s.system, self._stepper, self._leaves(values))

    def _input(self) -> Any:
        dtype = self.state.q.dtype
        if self._control is not None:
            return as_control(self._control(dict(self.controls)), dtype)
        if not self.controls:
            return None
        return as_control(jnp.asarray(list(self.controls.values()), dtype), dtype)

    def _loop(self) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            if self._running:
                self.advance(self.speed / self._fps)
                if not succeeded(self.state.result):
                    self.pause()
            self._ended.wait(max(1 / self._fps - (time.monotonic() - begun), 1e-3))

    def _build(self, visuals: tuple) -> None:
        scene, q = self._server.scene, np.asarray(self._start.q, float)[None]
        extent = Extent([(self.mechanism, q)])
        extent.include(self.mechanism, q, visuals)
        scene.set_up_direction(extent.up)
        extent.aim(self._server)
        self._world = scene.add_frame(WORLD, show_axes=False)
        figure = build(scene, f"{WORLD}/0", self.mechanism, q, visuals, extent)
        add_ground(scene, extent, figure.floor)
        find = scene.get_handle_by_name
        movable = set(self.mechanism.body_stack.names)
        self._bodies: dict[str, Any] = {
            name: find(x) for name, x in figure.bodies.items() if name in movable
        }
        self._links: Any = [(find(node), link) for node, link in figure.links]
        self._groups = {group: [find(x) for x in nodes] for group, nodes in figure.groups.items()}
        for node, name in figure.owners.items():
            handle: Any = find(node)
            if hasattr(handle, "on_click"):  # lines have none
                handle.on_click(lambda _, name=name: self._select(name))
        self._anchor = extent.middle

    def _build_controls(self, bounds: Mapping, limits: Mapping) -> None:
        gui = self._server.gui
        gui.configure_theme(show_logo=False, show_share_button=False)
        self._button = gui.add_button("Run")
        self._button.on_click(lambda _: self.pause() if self._running else self.run())
        gui.add_button("Start again").on_click(lambda _: self.reset())
        slider = gui.add_slider("speed", 0.01, 4.0, 0.01, min(max(self.speed, 0.01), 4.0))
        slider.on_update(lambda event: setattr(self, "speed", event.target.value))
        names = list(self._bodies)
        self._follow = gui.add_dropdown("follow", ("nothing", *names), initial_value="nothing")
        self._follow.on_update(lambda _: self._set_anchor())
        self._text = gui.add_markdown("")
        for title, values, ranges in (
            ("Controls", self.controls, bounds),
            ("Parameters", self.parameters, limits),
        ):
            if ranges:
                with gui.add_folder(title):
                    for name, (low, high) in ranges.items():
                        self._add_slider(values, name, low, high)
        with gui.add_folder("Show"):
            for group, handles in self._groups.items():
                hidden = group in ("names", "axes")
                box = gui.add_checkbox(group, initial_value=not hidden)
                box.on_update(lambda event, handles=handles: _set_visible(handles, event))
        self._plot = None
        self._selected: str | None = None

    def _add_slider(self, values: dict[str, float], name: str, low: float, high: float) -> None:
        start = min(max(values[name], low), high)
        handle = self._server.gui.add_slider(name, low, high, (high - low) / 500, start)
        handle.on_update(lambda event: values.__setitem__(name, event.target.value))

    def _set_anchor(self) -> None:
        if self._follow.value != "nothing":
            q = np.asarray(self.state.q, float)[None]
            self._anchor = body_frames(self.mechanism, q)[self._follow.value].origin[0]
        self.update(self.state)

    def _select(self, name: str) -> None:
        self._selected = name
        self._show_numbers(self.state)

    def _show_numbers(self, state: Any) -> None:
        """Write the time and the numbers of the selected element, and go on with the plot."""
        m, t = self.mechanism, float(state.t)
        t_one, q_one, v_one = (to_jax(np.asarray(x)[None]) for x in (t, state.q, state.v))
        found = along(m, t_one, q_one, v_one, None)
        lines = [f"**t = {t:.3f} s**"]
        result = getattr(state, "result", RESULTS.successful)
        if not succeeded(result):
            lines.append(f"stopped: {RESULTS[result]}")
        name = self._selected
        if name in self._bodies:
            position = body_frames(m, np.asarray(state.q, float)[None])[name].origin[0]
            lines.append(f"**{name}**: position {', '.join(f'{x:.4f}' for x in position)} m")
        elif name is not None:
            numbers = found.coordinates.get(name, np.zeros((1, 0)))[0]
            lines.append(f"**{name}** {', '.join(f'{x:.4f}' for x in numbers)}")
        self._text.content = "\n\n".join(lines)
        curves = {
            name if x.shape[1] == 1 else f"{name} {i + 1}": float(x[0, i])
            for name, x in found.coordinates.items()
            for i in range(x.shape[1])
        }
        energy = sum(float(x[0]) for x in found.energies.values())
        self._go_on(t, curves or {"energy [J]": energy})

    def _go_on(self, t: float, values: dict[str, float]) -> None:
        if self._past and t == self._past[-1][0]:
            return
        if self._past and t < self._past[-1][0]:
            self._past.clear()
        self._past.append((t, *list(values.values())[:8]))
        while self._past and self._past[0][0] < t - _SPAN:
            self._past.popleft()
        data = tuple(np.array(column) for column in zip(*self._past, strict=True))
        if self._plot is None:
            names = list(values)[:8]
            series: Any = [{"label": "t [s]"}]
            series += [
                {"label": name, "stroke": BODIES[i % len(BODIES)], "width": 2}
                for i, name in enumerate(names)
            ]
            scales: Any = {"x": {"time": False}}
            title = "joint coordinates [m, rad]"
            self._plot = self._server.gui.add_uplot(
                data, tuple(series), scales=scales, title=title, aspect=1.4
            )
        else:
            self._plot.data = data


def _set_visible(handles: Sequence[Any], event: Any) -> None:
    for handle in handles:
        handle.visible = event.target.value


def _bounds(what: str, name: str, pair: Any) -> tuple[float, float]:
    values = np.asarray(pair, float)
    if values.shape != (2,) or not np.all(np.isfinite(values)) or not values[0] < values[1]:
        raise ValueError(
            f"Argument `{what}` must have a pair (lowest, highest) of finite numbers for each "
            f'name, but "{name}" has {pair!r}.'
        )
    return float(values[0]), float(values[1])


def _number(mechanism: Mechanism, path: str) -> float:
    value = leaf(mechanism, path)
    if not is_known(value) or np.ndim(value) != 0:
        raise ValueError(
            f"Argument `parameters` must have paths of single numbers, but `{path}` has the shape "
            f"{np.shape(value)}."
        )
    return float(value)


@eqx.filter_jit
def _steps(stepper, state, h, control, count):
    return jax.lax.fori_loop(0, count, lambda _, s: stepper.step(s, h, control), state)
