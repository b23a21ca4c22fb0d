"""Checks of the number of steps and of the memory before anything is computed."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from ._compiler import refuted
from ._types import DType, RealScalarLike

MOST_STEPS = 2**31 - 1  # the largest 32-bit integer


def check_steps(steps: float | int) -> None:
    """Check that a loop can count this many steps.

    **Raises:** `ValueError`, which says what to change."""
    if steps > MOST_STEPS:
        shown = f"{steps:.3g}" if steps < 1e300 else "Very many"
        raise ValueError(
            f"{shown} steps are requested, but a simulation takes at most {MOST_STEPS}. Give a "
            "larger `dt`, an earlier `t1` or fewer `num_steps`, or simulate in parts, each from "
            "the last state of the one before."
        )


def check_resolved(t0: RealScalarLike, t1: RealScalarLike, dt: Any, dtype: DType) -> None:
    """Check that t + dt differs from t in this dtype. Traced times are not checked.

    **Raises:** `ValueError`, which says what to change."""
    if refuted(
        lambda t0, t1, dt: ~(dt < jnp.finfo(dtype).eps / 2 * max(abs(t0), abs(t1))), t0, t1, dt
    ):
        latest = max(abs(float(t0)), abs(float(t1)))
        raise ValueError(
            f"`dt` = {float(dt):g} is lost beside t = {latest:g} in {jnp.dtype(dtype).name}, which "
            "tells times apart to 16 digits in float64 and 7 in float32. Give a larger `dt`, count "
            "time from a later zero, or use float64."
        )


def check_fits(
    count: float | int, what: str, remedy: str, available: float | int | None = None
) -> None:
    """Check that `count` bytes fit into the `available` ones, by default on the device.

    **Raises:** `ValueError`. Its message begins with `what` ("Outputs take") and ends with the
    remedy."""
    if count < 2**20:
        return  # asking the device takes longer than such an allocation
    available = available_bytes(jax.local_devices()[:1]) if available is None else available
    if count > available:
        raise ValueError(
            f"{what} at least {format_bytes(count)} of memory, but there are "
            f"{format_bytes(available)}: {remedy}."
        )


def available_bytes(devices: list[Any]) -> float | int:
    """The free memory of each of `devices` [bytes]; infinite if it is not known."""
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if devices[0].platform == "cpu":
        return host_bytes() / len(devices)
    return float("inf")


def host_bytes() -> float | int:
    """The free memory of this computer [bytes]; infinite if it is not known."""
    meminfo = pathlib.Path("/proc/meminfo")  # on Linux, in KiB
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        if "MemAvailable" in lines:
            return 1024 * int(lines["MemAvailable"].split()[0])
    return float("inf")


def format_bytes(count: float | int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError
