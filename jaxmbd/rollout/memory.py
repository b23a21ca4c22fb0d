"""How many bytes there are, and how many a compiled function needs."""

import pathlib
from typing import Any

import jax

_SHARE = 0.5  # of what is free: the rest is for transfers, and for others


def free_bytes(devices: list[Any]) -> float:
    """What each of `devices` may use; infinite if nothing is known of them."""
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return _SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    meminfo = pathlib.Path("/proc/meminfo")  # of Linux, in KiB
    if devices[0].platform == "cpu" and meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        if "MemAvailable" in lines:
            return _SHARE * 1024 * int(lines["MemAvailable"].split()[0]) / len(devices)
    return float("inf")


def bytes_of(compiled: jax.stages.Compiled) -> int:
    """Of each device, for one call of `compiled` while the outputs of another one are still there;
    0 where the compiler does not tell."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    outputs = analysis.output_size_in_bytes
    return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + 2 * outputs


def in_words(count: float | int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError
