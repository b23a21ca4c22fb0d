"""A double pendulum whose motion is written down, so that no simulation is compiled."""

import base64
import gzip
import json
import re

import jax
import numpy as np

import jaxmbd as mbd
from jaxmbd.io import Visual

UPPER, LOWER = 0.5, 0.4
TIMES = np.linspace(0.0, 2.0, 41)


def angles(t):
    """Of both bodies against the vertical."""
    return 0.9 * np.cos(3.0 * t), 0.5 * np.sin(7.0 * t) - 0.4


def double_pendulum():
    """Rods of two bodies that swing in the xz plane, with a spring to the ground."""
    rod = mbd.Inertia.box(size=[0.04, 0.04, UPPER], mass=1.0)
    upper = mbd.Body("upper", rod, position=[0.0, 0.0, -UPPER / 2])
    lower = mbd.Body("lower", rod, position=[0.0, 0.0, -UPPER - LOWER / 2])
    y = dict(axis=[0.0, 1.0, 0.0])
    hinge = mbd.Revolute("hinge", "ground", upper, point=[0.0, 0.0, 0.0], **y)
    elbow = mbd.Revolute("elbow", upper, lower, point=[0.0, 0.0, -UPPER], **y)
    ends = [[0.6, 0.0, 0.0], [0.0, 0.0, -UPPER - LOWER]]
    spring = mbd.Spring("spring", "ground", lower, points=ends, stiffness=20.0, rest_length=0.3)
    return mbd.Mechanism([upper, lower], [hinge, elbow], [spring])


def coordinates(t):
    """q at the times t, and the end of the lower rod."""
    a, b = angles(t)
    o = np.zeros_like(a)
    # A rotation about -y by an angle moves a hanging rod towards +x.
    first = UPPER / 2 * np.stack([np.sin(a), o, -np.cos(a)])
    joint = 2 * first
    down = np.stack([np.sin(b), o, -np.cos(b)])
    second = joint + LOWER / 2 * down
    turns = [np.stack([np.cos(x / 2), o, -np.sin(x / 2), o]) for x in (a, b)]
    table = np.stack([np.concatenate(pair) for pair in zip((first, second), turns)], axis=1)
    return np.moveaxis(table, -1, 0).reshape(len(t), -1), (joint + LOWER * down).T


def solution(times=TIMES, mechanism=None, seed=0, shift=0.0):
    """The motion as a `Solution`, with arbitrary multipliers."""
    q, _ = coordinates(times + shift)
    step = 1e-6
    later, earlier = (coordinates(times + shift + s)[0].reshape(-1, 7, 2) for s in (step, -step))
    v = np.zeros((len(times), 6, 2))
    v[:, :3] = (later - earlier)[:, :3] / (2 * step)
    after, before = (np.stack(angles(times + shift + s), axis=1) for s in (step, -step))
    v[:, 4] = -(after - before) / (2 * step)
    rows = (mechanism or double_pendulum()).row_count
    lam = np.random.default_rng(seed).normal(size=(len(times), rows))
    return solution_of(times, q, v.reshape(len(times), -1), lam)


def solution_of(t, q, v, lam, result=mbd.RESULTS.successful):
    zero = np.zeros(len(t))
    fields = dict(t=t, q=q, v=v, multipliers=lam, phi_norm=zero, phidot_norm=zero)
    return mbd.Solution(**jax.device_put(fields), ys=None, stats={}, result=result)


def ball(body="lower", position=(0.0, 0.0, -LOWER / 2), color=(1.0, 0.0, 0.0, 1.0)):
    """A coloured ball, which is easy to find in a picture."""
    place = np.asarray(position), np.array([1.0, 0, 0, 0])
    return Visual("ball", body, "sphere", (0.04,), None, None, *place, color, 0)


def content(html):
    """The header of a page, with its arrays in place."""
    text = re.search(r'id="jaxmbd-content">([^<]*)<', html)[1]
    raw = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + length])
    arrays = [
        np.frombuffer(raw, kind, count, 4 + length + start)
        for kind, start, count in header.pop("arrays")
    ]

    def fill(x):
        if isinstance(x, dict) and "__array__" in x:
            return arrays[x["__array__"]]
        if isinstance(x, dict):
            return {name: fill(value) for name, value in x.items()}
        return [fill(value) for value in x] if isinstance(x, list) else x

    return fill(header)
