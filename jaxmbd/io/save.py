"""Saving of models and motions, and a file of our own that holds a mechanism exactly.

It is JSON and not TOML: the standard library writes JSON, it has a value for "nothing", and deeply
nested records stay readable in it. Numbers are written with as many digits as make them the same
when read again, and infinite ones as text.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._inputs import checked
from .._mechanism import Mechanism, Plane, replaced
from .loaded import Loaded, parts
from .mjcf import write_mjcf
from .trajectories import write_trajectory

_MODELS, _MOTIONS = (".json", ".xml"), (".npz", ".csv", ".zarr")


@checked
def save(model: Mechanism | Loaded, path: Any, solution: Any = None) -> None:
    """Save a model, or a motion of it. The end of the name says how:

    - `.json`: our own format, exact. `mbd.load` returns the same model, bit for bit.
    - `.xml`: MJCF, for MuJoCo. What MJCF cannot say is told in one warning.
    - `.npz`, `.csv`, `.zarr`: the motion `solution`, with the times `t`, `q`, `v`, and for a model
      that was loaded from a file also `qpos` and `qvel`. `mbd.io.load_trajectory` reads it. NPZ and
      Zarr also hold multipliers, violations, and the forces and loads of contacts. NPZ names the
      model's file, so that `jaxmbd view` shows it.

    **Arguments:** `model`: a `Mechanism`, or what `load` returned; `path`; `solution` of `simulate`
    with saved times.

    **Raises:** `ValueError` for another end of the name, for a motion without `solution`, and in
    `.json` for elements with functions."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix in _MOTIONS:
        if solution is None:
            raise ValueError(f"{file} is for a motion: give the `solution` of `simulate`.")
        write_trajectory(file, model, solution)
        return
    if suffix not in _MODELS:
        raise ValueError(
            f"{file} must end in one of {[*_MODELS]} for a model or {[*_MOTIONS]} for a motion."
        )
    if solution is not None:
        raise ValueError(f"{file} is for a model: save the `solution` as one of {[*_MOTIONS]}.")
    if suffix == ".json":
        write_exactly(model, file)
    else:
        write_mjcf(model, file)


_FORMAT, _VERSION = "jaxmbd", 1


def write_exactly(model: Mechanism | Loaded, path: Path) -> None:
    """Write a mechanism, or all that was loaded from a file.

    **Raises:** `ValueError` for elements with functions, and of classes of the user."""
    mechanism, loaded = parts(model)
    if mechanism.switches:
        raise ValueError(
            f"The mechanism has switches, {sorted(mechanism.switches)}, which are functions and "
            "cannot be written: add them to the mechanism after loading."
        )
    dtype = str(mechanism.gravity.dtype)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "dtype": dtype,
        "mechanism": _of_mechanism(mechanism, dtype),
    }
    if loaded is not None:
        content["file"] = {
            field.name: _written(getattr(loaded, field.name), dtype, f"`{field.name}`")
            for field in dataclasses.fields(loaded)
            if field.name != "mechanism"
        }
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_exactly(path: Path) -> Loaded:
    """What `write_exactly` has written.

    **Raises:** `ValueError` for another file."""
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r} to load a model from.")
    try:
        content = json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON file: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path} is not written by `mbd.save`: it has no format {_FORMAT!r}.")
    if content.get("version") != _VERSION:
        raise ValueError(
            f"{path} has the version {content.get('version')!r}, but this jaxmbd reads {_VERSION}."
        )
    dtype = content["dtype"]
    if jnp.asarray(0.0, jnp.result_type(float)).dtype != dtype:
        raise ValueError(
            f"{path} holds {dtype} numbers, but JAX now works with {jnp.result_type(float)}: call "
            f'jax.config.update("jax_enable_x64", {dtype == "float64"}) first.'
        )
    kinds = _kinds()
    parts = {
        name: _read(value, dtype, kinds, str(path)) for name, value in content["mechanism"].items()
    }
    mechanism = Mechanism(**parts)
    if "file" not in content:
        return Loaded(mechanism, mechanism.state(), source=str(path))
    known = {field.name for field in dataclasses.fields(Loaded)}
    fields = {
        name: _read(value, dtype, kinds, str(path))
        for name, value in content["file"].items()
        if name in known
    }
    return Loaded(mechanism=mechanism, **fields)


def _of_mechanism(mechanism: Mechanism, dtype: str) -> dict[str, Any]:
    groups = ("bodies", "joints", "forces", "contacts")
    found: dict[str, Any] = {
        group: {
            "tuple": [
                _written(element, dtype, f'{type(element).__name__} "{element.name}"')
                for element in getattr(mechanism, group)
            ]
        }
        for group in groups
    }
    found["gravity"] = _written(mechanism.gravity, dtype, "gravity")
    if mechanism.plane is not None:
        axes = (mechanism.plane.normal, mechanism.plane.x_axis)
        found["plane"] = {"plane": [list(axis) for axis in axes]}
    found["contact_budget"] = _written(mechanism.contact_budget, dtype, "contact_budget")
    return found


# --- values --------------------------------------------------------------------------------------
#
# A number or a list is an array of JAX of the common dtype. Everything else says what it is.


def _written(x: Any, dtype: str, what: str) -> Any:
    match x:
        case None | str() | bool():
            return x
        case jax.Array() if x.dtype == dtype and (x.ndim or np.isfinite(np.asarray(x))):
            return _numbers(x)
        case jax.Array() | np.ndarray():
            kind = "numpy" if type(x) is np.ndarray else "jax"
            return {kind: _numbers(x), "dtype": str(x.dtype), "shape": x.shape}
        case int():
            return {"int": x}
        case float():
            return {"float": _numbers(x)}
        case dict():
            return {"dict": {key: _written(value, dtype, what) for key, value in x.items()}}
        case tuple() if hasattr(x, "_asdict"):
            fields = x._asdict()  # pyright: ignore[reportAttributeAccessIssue]
        case tuple() | list():
            return {"tuple": [_written(value, dtype, what) for value in x]}
        case eqx.Module() if type(x) is not jax.tree_util.Partial:
            fields = {field.name: getattr(x, field.name) for field in dataclasses.fields(x)}
        case _:
            raise ValueError(
                f"{what} holds a function, {x!r}, which a file cannot hold: add this element to "
                "the mechanism after loading."
            )
    name = type(x).__name__
    if _kinds().get(name) is not type(x):
        raise ValueError(
            f"{what} is or holds a {name}, a class of yours, which a file cannot hold: add it to "
            "the mechanism after loading."
        )
    return {"class": name} | {k: _written(value, dtype, what) for k, value in fields.items()}


def _read(x: Any, dtype: str, kinds: dict[str, type], path: str) -> Any:
    def read(value: Any) -> Any:
        return _read(value, dtype, kinds, path)

    match x:
        case None | str() | bool():
            return x
        case {"class": name, **fields}:
            if name not in kinds:
                raise ValueError(f"{path} holds a {name}, which this jaxmbd does not know.")
            values, kind = {key: read(value) for key, value in fields.items()}, kinds[name]
            if issubclass(kind, tuple):
                return kind(**values)
            # Not by the constructor, which takes other arguments and would round some of them.
            return replaced(object.__new__(kind), **values)
        case {"tuple": values}:
            return tuple(map(read, values))
        case {"dict": values}:
            return {key: read(value) for key, value in values.items()}
        case {"plane": axes}:
            return Plane(*axes)
        case {"int": value}:
            return int(value)
        case {"float": value}:
            return float(value)
        case {"dtype": own, "shape": shape, **values}:
            ((kind, value),) = values.items()
            table = np.array(value, own).reshape(shape)
            return jnp.asarray(table, table.dtype) if kind == "jax" else table
        case _:
            return jnp.asarray(np.array(x, dtype), dtype)


def _numbers(x: Any) -> Any:
    """Lists of numbers, with infinite ones as text, which JSON can hold."""
    x = np.asarray(x)
    if x.dtype.kind != "f" or np.all(np.isfinite(x)):
        return x.tolist()
    return np.where(np.isfinite(x), x.astype(object), x.astype(str)).tolist()


def _kinds() -> dict[str, type]:
    """All classes of jaxmbd that a mechanism may hold, by name."""
    from .._mechanism import Pose, Twist
    from .._system import State
    from .loaded import Branch, Control, FileJoint, Visual

    found: dict[str, type] = {
        kind.__name__: kind for kind in (Pose, Twist, Branch, Control, FileJoint, Visual, State)
    }
    waiting = [eqx.Module]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("jaxmbd."):
            found.setdefault(kind.__name__, kind)
    return found
