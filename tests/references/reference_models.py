"""Reads the reference values, and builds the mechanisms that they are about."""

import functools
import json
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd

JOINTS = {
    "revolute": mbd.Revolute,
    "prismatic": mbd.Prismatic,
    "universal": mbd.Universal,
    "ball": mbd.Spherical,
    "planar": mbd.Planar,
    "screw": mbd.Screw,
}


@functools.cache
def read(name):
    """The reference values of a file, with arrays in place of lists of numbers."""
    return _arrays(json.loads(pathlib.Path(__file__).with_name(name).read_text()))


def _arrays(x):
    if isinstance(x, dict):
        return {key: _arrays(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_arrays(y) for y in x] if isinstance(x[0], dict | str) else np.array(x)
    return x


def frames(a, b):
    """The frames of a joint or force element, from points or poses on its two bodies."""
    unturned = np.array([1.0, 0.0, 0.0, 0.0])
    ends = (x if isinstance(x, mbd.Pose) else mbd.Pose(x, unturned) for x in (a, b))
    return dict(zip(("frame_a", "frame_b"), ends))


def some(given, *names):
    """Those of some numbers that are given."""
    return {x: given[x] for x in names if x in given}


def mechanism_of(tree, ball=None):
    """The mechanism of a tree of bodies, see `reference_file.py`. Joints have the names of their
    bodies. `ball`: the points of two bodies that a ball joint holds together."""
    bodies, joints, forces = [], {}, []
    for body in tree["bodies"]:
        name, inertia = body["name"], mbd.Inertia(body["mass"], body["tensor"], body["center"])
        bodies.append(mbd.Body(name, inertia))
        if body["joint"] != "free":
            place = frames(mbd.Pose(body["position"], body["quaternion"]), np.zeros(3))
            options = place | some(body, "pitch")
            joints[name] = JOINTS[body["joint"]](name, body["parent"], name, **options)
    for i, motor in enumerate(tree.get("motors", [])):
        joint = joints[motor["joint"]]
        kind = mbd.Motor if isinstance(joint, mbd.Revolute) else mbd.LinearActuator
        options = frames(*joint.frames) | some(motor, "gear", "rotor_inertia")
        forces.append(kind(f"motor {i}", *joint.bodies, index=i, **options))
    for i, spring in enumerate(tree.get("springs", [])):
        options = some(spring, "stiffness", "damping", "rest_length") | frames(*spring["points"])
        forces.append(mbd.Spring(f"spring {i}", *spring["bodies"], **options))
    for name, spring in tree.get("joint_springs", {}).items():
        joint, options = joints[name], some(spring, "stiffness", "damping")
        if isinstance(joint, mbd.Revolute):
            options |= frames(*joint.frames) | {"rest_angle": spring["rest"]}
            forces.append(mbd.TorsionSpring(f"at {name}", *joint.bodies, **options))
        else:
            options["rest"] = spring["rest"]
            forces.append(mbd.forces.CoordinateSpring(f"at {name}", mbd.OfJoint(joint), **options))
    joints = list(joints.values())
    if ball is not None:
        joints.append(mbd.Spherical("ball", *ball, **frames(*ball.values())))
    return mbd.Mechanism(bodies, joints, forces, gravity=tree["gravity"])


def motion_of(mechanism, samples):
    """The states of several samples together, and their v'."""
    found = [coordinates_of(mechanism, *tables(sample["bodies"])) for sample in samples]
    q, v, rates = (np.stack(x) for x in zip(*found, strict=True))
    return mbd.State(np.zeros(len(q)), q, v), rates


@eqx.filter_jit
def reactions_of(mechanism, q, v, multipliers, joints, body=None):
    """Force and torque of the joints on their second bodies in the axes of the world, on their
    "own" bodies in the axes of these, or on and in a named body, by one program."""
    found = []
    for name in joints:
        on = mechanism.joint(name).bodies[1] if body in (None, "own") else body
        options = dict(on=on, frame=on if body else None)
        held = mbd.reports.reactions(mechanism, mbd.State(0.0, q, v), name, multipliers, **options)
        found.append(jnp.concatenate([held.force, held.torque]))
    return found


def close(found, expected, rtol=1e-11):
    """Equal to a share of the largest number. Rounding grows to 1e-12 of it in these systems."""
    np.testing.assert_allclose(found, expected, atol=rtol * np.abs(expected).max(), rtol=0)


def tables(bodies):
    """Poses, twists and accelerations of bodies as the tables that `coordinates_of` takes."""
    kinds = "pose", "twist", "acceleration"
    return (np.array([body[x] for body in bodies]).T for x in kinds)


@eqx.filter_jit
def coordinates_of(mechanism, poses, twists, accelerations):
    rates = mechanism.coordinates_of(poses, accelerations)[1]
    return *mechanism.coordinates_of(poses, twists), rates


def state_of(mechanism, bodies):
    """The state in which the bodies have the poses and twists of the reference, and v' there."""
    q, v, rates = coordinates_of(mechanism, *tables(bodies))
    return mbd.State(0.0, q, v), np.asarray(rates)


def body_velocities(tree, x):
    """The velocities of all bodies, from the coordinates of the joints and their rates x = (c, c'):
    what the bodies of the tree do by hand, without the mechanism."""
    size, found = len(tree["bodies"]), {}
    found["ground"] = (jnp.eye(3), jnp.zeros(3), jnp.zeros(3))
    cross = mbd.rotations.cross
    for i, body in enumerate(tree["bodies"]):
        turn, linear, angular = found[body["parent"]]
        arm = turn @ jnp.array(body["position"])
        turn = turn @ mbd.rotations.quaternion_to_matrix(jnp.array(body["quaternion"]))
        linear, axis = linear + cross(angular, arm), turn[:, 2]
        if body["joint"] == "prismatic":
            linear = linear + cross(angular, axis * x[i]) + axis * x[size + i]
        else:
            c, s, zero = jnp.cos(x[i]), jnp.sin(x[i]), jnp.zeros(())
            about_z = jnp.stack([c, -s, zero, s, c, zero, zero, zero, zero + 1]).reshape(3, 3)
            turn, angular = turn @ about_z, angular + axis * x[size + i]
        found[body["name"]] = (turn, linear, angular)
    moving = [jnp.concatenate(found[body["name"]][1:]) for body in tree["bodies"]]
    return jnp.stack(moving, axis=1).ravel()


def complex_of(given):
    return given["real"] + 1j * given["imag"]


def in_joints(tree):
    """A function of (c, c') and (c', c'') that gives X in (dp, dv) = X (dc, dc'), and its rate."""

    def X(x):
        of_x = jax.jacfwd(lambda x: body_velocities(tree, x))(x)
        size = x.size // 2
        T = of_x[:, size:]
        return jnp.concatenate([jnp.concatenate([T, 0 * T], axis=1), of_x])

    return jax.jit(lambda x, dx: jax.jvp(X, (x,), (dx,)))
