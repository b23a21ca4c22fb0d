"""The page: the client of viser, the scene, the motions, and the controls of `page.js`."""

import contextlib
import html
import io
import pathlib
import socket
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._pages import Content, embedded
from .run import Run
from .scene import WORLD, Extent, Figure

if TYPE_CHECKING:
    from viser import ViserServer

Header = dict[str, Any]


def viser() -> ModuleType:
    """Import viser. **Raises:** `ImportError` that names the remedy."""
    try:
        import viser
    except ImportError as error:
        raise ImportError(
            "The viewer needs viser. Install it with `pip install jaxmbd[view]`."
        ) from error
    return viser


_HERE = pathlib.Path(__file__).parent
# The longest arrow of most pictures, as a fraction of the scene.
_ARROW = 0.25


def scene_messages(server: "ViserServer", content: Content) -> list[Header]:
    """The scene of a server as the messages that viser's client understands."""
    import msgspec
    import zstandard

    packed = server.get_scene_serializer().serialize()
    size = int.from_bytes(packed[:8], "little")
    raw = zstandard.ZstdDecompressor().decompress(packed[8:], max_output_size=size)
    length = int.from_bytes(raw[:8], "little")
    found = msgspec.msgpack.decode(raw[8 : 8 + length])
    start, kept = 8 + length, []
    for count in found["binaryBufferLengths"]:
        start += -start % 8
        kept.append(raw[start : start + count])
        start += count
    known: dict[tuple[int, str], Any] = {}

    def with_arrays(x: Any) -> Any:
        if isinstance(x, dict) and "__binary_index" in x:
            key = x["__binary_index"], x["dtype"]
            if key not in known:
                known[key] = content.add(np.frombuffer(kept[key[0]], key[1]), key[1])
            return known[key]
        if isinstance(x, dict):
            return {name: with_arrays(value) for name, value in x.items()}
        if isinstance(x, list):
            return [with_arrays(value) for value in x]
        return x

    return [with_arrays(message) for _, message in found["messages"]]


def quiet_server() -> "ViserServer":
    """A viser server that only this machine reaches, on a free port, without its banner."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with contextlib.redirect_stdout(io.StringIO()):
        return viser().ViserServer(host="127.0.0.1", port=port, verbose=False)


def stop_quietly(server: "ViserServer") -> None:
    """Stop a viser server, without its message."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def run_header(content: Content, run: Run, figure: Figure, extent: Extent, first: int) -> Header:
    """The part of the header about one run, whose first curve has the number `first`."""
    names = list(figure.bodies)  # the ground last
    table = np.moveaxis(np.asarray(run.mechanism.pose_table(run.q)), 1, 2)  # (pictures, bodies, 7)
    index = {name: i for i, name in enumerate(names)}
    links = [
        {
            "node": node,
            "ends": [[index[name], *map(float, point)] for name, point in link.ends],
        }
        for node, link in figure.links
    ]
    return {
        "name": run.name,
        "root": figure.root,
        "bodies": [{"name": name, "node": figure.bodies[name]} for name in names],
        "poses": content.add(table),
        "links": links,
        "arrows": _arrows(content, run, figure, extent, index),
        "owners": figure.owners,
        "groups": figure.groups,
        "about": _descriptions(run),
        "curves": [
            {
                "kind": curve.kind,
                "name": curve.name,
                "values": content.add(curve.values),
                "number": first + i,
            }
            for i, curve in enumerate(run.curves)
        ],
    }


def _arrows(
    content: Content, run: Run, figure: Figure, extent: Extent, index: dict[str, int]
) -> list[Header]:
    """Arrows of contacts, with tails in the world, and of joints, with tails on bodies."""
    found = []
    if run.contacts is not None:
        at, force, idle = run.contacts.at, run.contacts.force, run.contacts.idle
        force = np.where(idle[..., None], 0.0, force)
        found.append(
            {
                "node": f"{figure.root}/contact forces",
                "group": "contact forces",
                "tails": content.add(at),
                "vectors": content.add(force),
                "count": force.shape[1],
                "scale": _scale(force, extent),
            }
        )
    if run.loads:
        force = np.stack([load.force for load in run.loads.values()], axis=1)
        found.append(
            {
                "node": f"{figure.root}/joint forces",
                "group": "joint forces",
                "on": [[index[x.body], *map(float, x.point)] for x in run.loads.values()],
                "vectors": content.add(force),
                "count": force.shape[1],
                "scale": _scale(force, extent),
            }
        )
    return found


def _scale(force: np.ndarray, extent: Extent) -> float:
    """Length of arrows [m/N]. Most pictures have a largest arrow below `_ARROW`. Impacts may have
    longer ones, since otherwise nobody would see the others."""
    largest = np.max(np.linalg.norm(force, axis=-1), axis=1, initial=0.0)
    usual = float(np.quantile(largest[largest > 0], 0.8)) if np.any(largest > 0) else 0.0
    return _ARROW * extent.length / usual if usual > 0 else 0.0


def _descriptions(run: Run) -> dict[str, list[str]]:
    """Element -> lines that describe it."""
    found = {}
    for body in run.mechanism.bodies:
        mass = f"mass {float(body.inertia.mass):.6g} kg"
        moments = np.linalg.eigvalsh(np.asarray(body.inertia.tensor, float))
        principal = ", ".join(f"{x:.4g}" for x in moments)
        found[body.name] = ["Body", mass, f"principal moments {principal} kg m²"]
    for element in (*run.mechanism.joints, *run.mechanism.forces, *run.mechanism.contacts):
        bodies = dict.fromkeys(element.bodies)
        between = " – ".join(bodies) if len(bodies) < 5 else f"{len(bodies)} bodies"
        found[element.name] = [f"{type(element).__name__} between {between}"]
    for force in run.mechanism.forces:
        for name in ("stiffness", "damping", "rest"):
            value = getattr(force, name, None)
            if value is not None and np.ndim(value) == 0:
                found[force.name].append(f"{name} {float(value):.6g}")
    return found


def page(content: Content, header: Header, title: str) -> str:
    """The whole page as text."""
    package = pathlib.Path(str(viser().__file__)).parent
    client = package / "client" / "build" / "index.html"
    if not client.is_file():
        raise FileNotFoundError(
            f"viser is installed without its client {client}. Install it again: "
            "`pip install --force-reinstall viser`."
        )
    text = client.read_text(encoding="utf-8")
    style, script = ((_HERE / f"page.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    own = embedded(content, header, style, script)
    text = text.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>", 1)
    # Before viser's client starts, since the page stands in for its server.
    return text.replace("<head>", "<head><!-- jaxmbd -->" + own, 1)


def header_of(
    messages: list[Header], times: np.ndarray, runs: list[dict], extent: Extent, **rest: Any
) -> Header:
    """The header of the page."""
    return {
        "messages": messages,
        "start": float(times[0]),
        "end": float(times[-1]),
        "pictures": len(times),
        "runs": runs,
        "world": WORLD,
        "size": extent.size,
        "length": extent.length,
    } | rest
