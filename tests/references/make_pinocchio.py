"""Reference values of an arm and of a closed loop by Pinocchio, a library of rigid-body algorithms
in the coordinates of joints (Carpentier et al., 2019).

    pip install pin scipy numpy
    python make_pinocchio.py        # writes pinocchio.json

- `arm`: seven hinges and slides one after the other. Mass matrix (CRBA), joint forces of given
  motions (RNEA) and of poses at rest, accelerations under given joint forces (ABA) and their
  derivatives.
- `floating`: a body that nothing holds, with two arms. Accelerations under given joint forces.
- `loop`: a crank, a universal joint of two hinges with a body between them, a coupler, and a rocker
  with a ball joint to the coupler. Accelerations and the force in the ball joint by Pinocchio's
  constrained dynamics, their derivatives, and the kinematics with the crank driven at constant
  speed. Derivatives by q are differences of the accelerations, since
  `computeConstraintDynamicsDerivatives` of Pinocchio 4.1.0 returned others for this loop.

`reference_file.py` tells how bodies and joints are given.
"""

import numpy as np
import pinocchio as pin
import scipy
import scipy.optimize
from reference_file import random_body, write

GRAVITY = [0.6, -1.1, -9.7]


def built(tree):
    model, free = pin.Model(), pin.JointModelFreeFlyer
    model.gravity.linear = np.array(tree["gravity"])
    kinds = {"revolute": pin.JointModelRZ, "prismatic": pin.JointModelPZ, "free": free}
    for body in tree["bodies"]:
        parent = 0 if body["parent"] == "ground" else model.getJointId(body["parent"])
        w, x, y, z = body["quaternion"]
        place = pin.SE3(pin.Quaternion(w, x, y, z).matrix(), np.array(body["position"]))
        joint = model.addJoint(parent, kinds[body["joint"]](), place, body["name"])
        inertia = pin.Inertia(body["mass"], np.array(body["center"]), np.array(body["tensor"]))
        model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
    return model


def moving_bodies(model, q, v, a):
    """Pose, velocities and accelerations of the frame of each body, in the axes of the world."""
    data = model.createData()
    pin.forwardKinematics(model, data, q, v, a)
    world, found = pin.LOCAL_WORLD_ALIGNED, []
    for i in range(1, model.njoints):
        x, y, z, w = pin.Quaternion(data.oMi[i].rotation).coeffs()
        twist = pin.getVelocity(model, data, i, world)
        rate = pin.getClassicalAcceleration(model, data, i, world)
        found.append({"pose": [*data.oMi[i].translation, w, x, y, z]})
        found[-1]["twist"] = [*twist.linear, *twist.angular]
        found[-1]["acceleration"] = [*rate.linear, *rate.angular]
    return found


def symmetric(upper):
    """The whole matrix of its upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T


def arm():
    random = np.random.default_rng(24)
    kinds = ["revolute", "revolute", "prismatic", "revolute", "revolute", "prismatic", "revolute"]
    names = ["ground", *(f"link {i}" for i in range(len(kinds)))]
    bodies = [random_body(random, *x) for x in zip(names[1:], names, kinds)]
    tree = {"gravity": GRAVITY, "bodies": bodies, "motors": [{"joint": x} for x in names[1:]]}
    model = built(tree)
    data, states = model.createData(), []
    for _ in range(3):
        q, v, a, tau = random.uniform(-1.5, 1.5, size=(4, model.nv)).round(3)
        force = pin.rnea(model, data, q, v, a)
        held = pin.computeGeneralizedGravity(model, data, q)
        mass = symmetric(pin.crba(model, data, q))
        forward = {"force": tau, "acceleration": pin.aba(model, data, q, v, tau)}
        by_q, by_v, by_tau = (x.copy() for x in pin.computeABADerivatives(model, data, q, v, tau))
        forward |= {"by_q": by_q, "by_v": by_v, "by_force": symmetric(by_tau)}
        found = {"q": q, "v": v, "mass_matrix": mass}
        found |= {"inverse_dynamics": {"acceleration": a, "force": force}, "force_at_rest": held}
        found |= {"forward_dynamics": forward, "bodies": moving_bodies(model, q, v, a)}
        states.append(found)
    return {"tree": tree, "states": states}


def floating():
    random = np.random.default_rng(31)
    bodies = [
        random_body(random, "base", "ground", "free", np.zeros(3), [1, 0, 0, 0]),
        random_body(random, "left", "base", "revolute"),
        random_body(random, "right", "base", "revolute"),
        random_body(random, "slide", "right", "prismatic"),
    ]
    motors = [{"joint": name} for name in ("left", "right", "slide")]
    tree = {"gravity": GRAVITY, "bodies": bodies, "motors": motors}
    model, states = built(tree), []
    for _ in range(2):
        q = pin.normalize(model, random.uniform(-1.0, 1.0, size=model.nq))
        v, force = random.uniform(-2.0, 2.0, size=model.nv), random.uniform(-5.0, 5.0, size=3)
        ddq = pin.aba(model, model.createData(), q, v, np.concatenate([np.zeros(6), force]))
        states.append({"force": force, "bodies": moving_bodies(model, q, v, ddq)})
    return {"tree": tree, "states": states}


class Loop:
    """A tree whose last body is held to the last but one at a point of both."""

    def __init__(self, tree, ball):
        self.model = built(tree)
        self.data = self.model.createData()
        self.joints = i, j = [self.model.getJointId(name) for name in ball]
        self.places = a, b = [pin.SE3(np.eye(3), np.array(point)) for point in ball.values()]
        kind = pin.ContactType.CONTACT_3D
        held = pin.RigidConstraintModel(kind, self.model, i, a, j, b, pin.LOCAL)
        held.setBaumgarteCorrectorParameters(pin.BaumgarteCorrectorParameters(0.0, 0.0))
        self.held, self.held_data = [held], [held.createData()]
        # Not regularised: the three rows are independent.
        self.settings = pin.ProximalSettings(1e-14, 1e-14, 0.0, 1)
        pin.initConstraintDynamics(self.model, self.data, self.held, self.held_data)

    def gap(self, q):
        pin.forwardKinematics(self.model, self.data, q)
        a, b = (self.data.oMi[k] * place for k, place in zip(self.joints, self.places))
        return a.translation - b.translation

    def points(self):
        """What asks of a joint in the axes of the world, and the arm from it to its point."""
        for k, place in zip(self.joints, self.places):
            given = self.model, self.data, k, pin.LOCAL_WORLD_ALIGNED
            yield given, self.data.oMi[k].rotation @ place.translation

    def jacobian(self, q):
        """The derivative of the gap by q."""
        pin.computeJointJacobians(self.model, self.data, q)
        rates = []
        for given, arm in self.points():
            rows = pin.getJointJacobian(*given)
            rates.append(rows[:3] - pin.skew(arm) @ rows[3:])
        return rates[0] - rates[1]

    def closed(self, q, drive):
        """q with the first coordinate kept, and the velocity with this rate of it."""
        for _ in range(20):
            step = np.linalg.solve(self.jacobian(q)[:, 1:], self.gap(q))
            q = q - np.concatenate([[0.0], step])
        assert np.abs(self.gap(q)).max() < 1e-14
        J = self.jacobian(q)
        v = np.concatenate([[drive], -np.linalg.solve(J[:, 1:], J[:, 0] * drive)])
        return q, v

    def driven(self, q, v):
        """The accelerations of the joints if that of the first is zero."""
        pin.forwardKinematics(self.model, self.data, q, v, 0 * v)
        rates = []
        for given, arm in self.points():
            twist, rate = pin.getVelocity(*given), pin.getClassicalAcceleration(*given)
            turning = np.cross(twist.angular, np.cross(twist.angular, arm))
            rates.append(rate.linear + np.cross(rate.angular, arm) + turning)
        found = -np.linalg.solve(self.jacobian(q)[:, 1:], rates[0] - rates[1])
        return np.concatenate([[0.0], found])

    def acceleration(self, q, v, tau):
        given = self.held, self.held_data, self.settings
        return pin.constraintDynamics(self.model, self.data, q, v, tau, *given).copy()


def differences(function, x, h=0.01):
    """The derivative by differences of eighth order."""
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    columns = [
        sum(w / h * (function(x + k * h * e) - function(x - k * h * e)) for k, w in weights.items())
        for e in np.eye(x.size)
    ]
    return np.stack(columns, axis=1)


def loop():
    random = np.random.default_rng(7)
    half = np.sqrt(0.5)
    bodies = [
        # The crank turns about z, the rocker about the x axis of the world.
        random_body(random, "crank", "ground", "revolute", [0.0, 0.0, 0.0], [1, 0, 0, 0]),
        random_body(random, "cross", "crank", "revolute", [0.3, 0.0, 0.1], [half, half, 0, 0]),
        random_body(random, "coupler", "cross", "revolute", [0.0, 0.0, 0.0], [half, 0, half, 0]),
        random_body(random, "rocker", "ground", "revolute", [0.8, 0.5, -0.2], [half, 0, half, 0]),
    ]
    ball = {"coupler": [0.2, 0.85, 0.3], "rocker": [-0.6, 0.1, 0.0]}
    motors = [{"joint": body["name"]} for body in bodies]
    tree = {"gravity": GRAVITY, "bodies": bodies, "motors": motors}
    system = Loop(tree, ball)
    start = scipy.optimize.least_squares(
        lambda x: system.gap(np.array([0.4, *x])), [0.5, 0.5, 0.5], xtol=1e-15, ftol=1e-15
    )
    q, v = system.closed(np.array([0.4, *start.x]), 3.0)
    tau = np.array([1.5, -0.7, 0.4, 0.9])
    ddq = system.acceleration(q, v, tau)
    force = system.data.lambda_c.copy()
    given = system.model, system.data, system.held, system.held_data, system.settings
    derivatives = pin.computeConstraintDynamicsDerivatives(*given)
    _, by_v, by_tau = (x.copy() for x in derivatives[:3])
    by_q = differences(lambda q: system.acceleration(q, v, tau), q)
    check = differences(lambda v: system.acceleration(q, v, tau), v)
    assert np.abs(by_v - check).max() < 1e-9, by_v - check

    found = {"q": q, "v": v, "force": tau, "acceleration": ddq}
    found |= {"by_q": by_q, "by_v": by_v, "by_force": by_tau}
    found |= {"ball_force_in_axes_of_coupler": force}
    found |= {"bodies": moving_bodies(system.model, q, v, ddq)}
    angles, driven, near = 0.4 + 0.15 * np.arange(6), [], q
    for angle in angles:
        near, rates = system.closed(np.concatenate([[angle], near[1:]]), 3.0)
        turning = system.driven(near, rates)
        driven.append({"q": near, "bodies": moving_bodies(system.model, near, rates, turning)})
    turned = {"joint": "crank", "rate": 3.0, "values": angles, "samples": driven}
    return {"tree": tree, "ball": ball, "state": found, "driven": turned}


if __name__ == "__main__":
    codes = ("pin", pin.__version__), ("scipy", scipy.__version__)
    write({f.__name__: f() for f in (arm, floating, loop)}, "pinocchio.json", *codes)
