"""Force elements of every kind between three bodies at random poses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Z = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]
AXIS = [0.6, 0.0, 0.8]
UNIT = jnp.array([1.0, 0.0, 0.0, 0.0])
TIME = jnp.asarray(0.7)
CONTROL = jnp.array([9.0, -0.4, 1.5, 0.3])


def random_body(name, rng):
    p = rng.normal(size=4)
    return mbd.Body(
        name,
        BOX.moved([0.1, -0.2, 0.05]),
        position=rng.normal(size=3),
        orientation=p / np.linalg.norm(p),
        velocity=rng.normal(size=3),
        angular_velocity=rng.normal(size=3),
    )


def random_pose(rng, dtype=float):
    p = rng.normal(size=4)
    return mbd.Pose(jnp.asarray(rng.normal(size=3), dtype), jnp.asarray(p / np.linalg.norm(p)))


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


ENDS = np.random.default_rng(2).normal(size=(3, 2, 3))

# Parameters of one element of every kind, between the bodies a, b, c of `internal` and `external`.
PARAMETERS = {
    "spring": dict(stiffness=30.0, damping=2.0, rest_length=0.4, points=ENDS[0]),
    "rich spring": dict(stiffness=3.0, damping=0.1, rest_length=1.0),
    "torsion": dict(stiffness=5.0, damping=0.3, rest_angle=0.2, axis=np.array(AXIS)),
    "rich torsion": dict(stiffness=1.0, damping=0.2, rest_angle=-0.3),
    "bushing": dict(
        stiffness=np.array([10.0, 20.0, 30.0, 1.0, 2.0, 4.0]),
        damping=np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        preload=np.array([1.0, -2.0, 3.0, 0.1, 0.2, -0.3]),
    ),
    "full bushing": dict(stiffness=definite(0), damping=definite(1), preload=np.ones(6)),
    "turning friction": dict(viscous=0.3, dry=1.7, speed=0.1),
    "sliding friction": dict(viscous=0.2, dry=0.7, speed=0.2, points=ENDS[1], axis=np.array(AXIS)),
    "motor": dict(gear=3.0),
    "actuator": dict(gear=-2.0),
    "tether": dict(pull=0.8),
    "drag": dict(linear=0.3, quadratic=0.2, angular=0.1, wind=np.array([0.5, -1.0, 2.0])),
    "push": dict(force_world=np.array([1.0, 2.0, 3.0]), force_body=np.array([-1.0, 0.5, 4.0]),
                 point=ENDS[2, 0]),
    "thrust": dict(gear=np.array([0.5, 0.1, -2.0])),
    "twist": dict(torque_world=np.array([0.3, 0.2, 0.1]), torque_body=np.array([1.0, -0.5, 0.4])),
}  # fmt: skip
PARAMETERS = jax.tree.map(jnp.asarray, PARAMETERS)
EXTERNAL = ("drag", "push", "thrust", "twist")


def internal(bodies, p):
    rng = np.random.default_rng(1)
    a, b, c = bodies
    points = iter(rng.normal(size=(5, 2, 3)))
    hinge = lambda: dict(point=rng.normal(size=3), axis=AXIS)  # noqa: E731
    frames = lambda: dict(frame_a=random_pose(rng), frame_b=random_pose(rng))  # noqa: E731
    return [
        mbd.Spring("spring", a, b, **p["spring"]),
        mbd.Spring("rich spring", c, b, points=next(points), **p["rich spring"],
                   potential=quartic, law=progressive, actuator=mbd.FromControl(3, gear=2.0)),
        mbd.TorsionSpring("torsion", b, c, point=rng.normal(size=3), **p["torsion"]),
        mbd.TorsionSpring("rich torsion", a, c, **hinge(), **p["rich torsion"],
                          potential=quartic, law=progressive, actuator=jnp.sin),
        mbd.Bushing("bushing", "a", "c", **frames(), **p["bushing"]),
        mbd.Bushing("full bushing", "b", "a", **frames(), **p["full bushing"]),
        mbd.TurningFriction("turning friction", c, a, **hinge(), **p["turning friction"]),
        mbd.SlidingFriction("sliding friction", a, b, **p["sliding friction"]),
        mbd.Motor("motor", a, b, **hinge(), index=1, **p["motor"]),
        mbd.LinearActuator("actuator", b, c, points=next(points), axis=AXIS, index=2,
                           **p["actuator"]),
        mbd.Force("tether", [a, "b", c], Tether(p["tether"]["pull"])),
    ]  # fmt: skip


def external(bodies, p):
    a, b, c = bodies
    return [
        mbd.Drag("drag", a, **p["drag"]),
        mbd.PointForce("push", b, **p["push"]),
        mbd.PointForce("thrust", c, force_body=mbd.FromControl(0, **p["thrust"])),
        mbd.Torque("twist", "a", **p["twist"]),
    ]


def everything(bodies, p=PARAMETERS):
    forces = internal(bodies, p) + external(bodies, p)
    assert {force.name for force in forces} == set(PARAMETERS)
    return mbd.Mechanism(bodies, (), forces, gravity=[0, 0, 0])


def quiet(bodies):
    return mbd.Mechanism(bodies, gravity=[0, 0, 0])


def world(body):
    """Pose as SciPy knows it."""
    p = np.array(body.pose.orientation)
    return np.array(body.pose.position), Rotation.from_quat(p, scalar_first=True)
