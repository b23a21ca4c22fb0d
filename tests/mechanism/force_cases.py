"""Force elements of every kind between three bodies at random poses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from joint_kinds import random_pose
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Z = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]
AXIS = [0.6, 0.0, 0.8]
TIME = np.asarray(0.7)
CONTROL = np.array([9.0, -0.4, 1.5, 0.3])
GRAVITY = np.array([0.3, -9.0, 2.0])


def random_body(name, rng):
    inertia = BOX.moved([0.1, -0.2, 0.05])
    v, omega = rng.normal(size=(2, 3))
    pose = random_pose(rng)._asdict()
    return mbd.Body(name, inertia, velocity=v, angular_velocity=omega, **pose)


def definite(seed):
    A = np.random.default_rng(seed).normal(size=(6, 6))
    return A @ A.T


class Tether(eqx.Module):
    """A user's force: b and c are drawn to a, with a force that depends on time and control."""

    pull: jax.Array

    def __call__(self, poses, twists, t, u):
        to_b, to_c = (self.pull * u[2] * t * (p.position - poses[0].position) for p in poses[1:])
        drag = -self.pull * twists[1].angular
        arms = [p.position - poses[0].position for p in poses[1:]]
        back = mbd.rotations.cross(arms[0], to_b) + mbd.rotations.cross(arms[1], to_c) - drag
        return (to_b + to_c, back), (-to_b, drag), (-to_c, jnp.zeros_like(drag))


def quartic(x):
    return 7.0 * x**4 + x**3


def progressive(x, rate):
    return 2.0 * rate * jnp.abs(rate) + 0.3 * x * x * rate


PARAMETERS = {
    "bushing": dict(
        stiffness=np.array([10.0, 20.0, 30.0, 1.0, 2.0, 4.0]),
        damping=np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        preload=np.array([1.0, -2.0, 3.0, 0.1, 0.2, -0.3]),
    ),
    "full bushing": dict(stiffness=definite(0), damping=definite(1), preload=np.ones(6)),
    "drag": dict(linear=0.3, quadratic=0.2, angular=0.1, wind=np.array([0.5, -1.0, 2.0])),
    "push": dict(force_world=np.array([1.0, 2.0, 3.0]), force_body=np.array([-1.0, 0.5, 4.0]),
                 point=np.array([-1.2, 0.4, 0.7])),
    "twist": dict(torque_world=np.array([0.3, 0.2, 0.1]), torque_body=np.array([1.0, -0.5, 0.4])),
}  # fmt: skip


def everything(bodies):
    """One element of every kind: between the first three bodies, and on the next two from
    outside."""
    rng, p = np.random.default_rng(1), PARAMETERS
    a, b, c, d, e = bodies
    hinge = lambda: dict(point=rng.normal(size=3), axis=AXIS)  # noqa: E731
    slide = lambda: dict(points=rng.normal(size=(2, 3)), axis=AXIS)  # noqa: E731
    frames = lambda: dict(frame_a=random_pose(rng), frame_b=random_pose(rng))  # noqa: E731
    forces = [
        mbd.Spring("spring", c, b, points=rng.normal(size=(2, 3)), stiffness=3.0, damping=0.1,
                   rest_length=1.0, potential=quartic, law=progressive,
                   actuator=mbd.FromControl(3, gear=2.0)),
        mbd.TorsionSpring("torsion", a, c, **hinge(), stiffness=1.0, damping=0.2, rest_angle=-0.3,
                          potential=quartic, law=progressive, actuator=jnp.sin),
        mbd.Bushing("bushing", "a", "c", **frames(), **p["bushing"]),
        mbd.Bushing("full bushing", "b", "a", **frames(), **p["full bushing"]),
        mbd.TurningFriction("turning friction", c, a, **hinge(), viscous=0.3, dry=1.7, speed=0.1),
        mbd.SlidingFriction("sliding friction", a, b, **slide(), viscous=0.2, dry=0.7, speed=0.2),
        mbd.Motor("motor", a, b, **hinge(), index=1, gear=3.0),
        mbd.LinearActuator("actuator", b, c, **slide(), index=2, gear=-2.0),
        mbd.Force("tether", [a, "b", c], Tether(np.asarray(0.8))),
        mbd.Drag("drag", d, **p["drag"]),
        mbd.PointForce("push", e, **p["push"]),
        mbd.Torque("twist", "d", **p["twist"]),
    ]  # fmt: skip
    return mbd.Mechanism(bodies, (), forces, gravity=GRAVITY)


def world(body):
    """Pose as SciPy knows it."""
    position, p = map(np.asarray, body.pose)
    return position, Rotation.from_quat(p, scalar_first=True)
