"""Reference values by Drake, whose `MultibodyPlant` has the coordinates of joints (Tedrake and the
Drake Development Team, 2019).

    pip install drake numpy
    python make_drake.py        # writes drake.json

- `joints`: a screw, a universal joint and a ball joint one after the other, and a planar joint,
  with a damped spring between their ends. Accelerations of the bodies and reactions of the joints.
- `file`: accelerations of `arm.sdf`, which has places, axes and angles in many of the ways that
  SDFormat allows.
- `cart_pole`, `acrobot`: bodies of arbitrary inertia, upright, with motors behind gears whose
  rotors have inertia. The linear model, by Drake's automatic differentiation, and the optimal
  feedback for weights of the displacements and velocities of the bodies.
- `hanging`: two hinges and a slide with springs and dampers between bodies and at the joints. Where
  it rests, the reactions there, and the eigenvalues of the linear model with and without damping.

`reference_file.py` tells how bodies and joints are given.
"""

import copy
import importlib.metadata
import pathlib

import numpy as np
import pydrake.all as drake
from reference_file import eigenvalues, random_body, spring_between, write

GRAVITY = np.array([0.6, -1.1, -9.7])
HALF = np.sqrt(0.5)


def joint_of(body, parent, child):
    z = [0.0, 0.0, 1.0]
    kind, *numbers = {
        "revolute": (drake.RevoluteJoint, z),
        "prismatic": (drake.PrismaticJoint, z),
        "screw": (drake.ScrewJoint, body.get("pitch"), 0.0),
        "universal": (drake.UniversalJoint,),
        "ball": (drake.BallRpyJoint,),
        "planar": (drake.PlanarJoint,),
    }[body["joint"]]
    return kind(body["name"], parent, child, *numbers)


class Plant:
    """A plant in Drake, and what is asked of it: of a tree of bodies, or of those with the names
    in a file."""

    def __init__(self, tree, path=None):
        self.plant = plant = drake.MultibodyPlant(0.0)
        plant.mutable_gravity_field().set_gravity_vector(tree["gravity"])
        self.bodies = {"ground": plant.world_body()}
        for body in tree["bodies"] if path is None else []:
            (xx, xy, xz), (_, yy, yz), (_, _, zz) = body["tensor"]
            tensor = drake.RotationalInertia(xx, yy, zz, xy, xz, yz)
            inertia = drake.SpatialInertia.MakeFromCentralInertia(
                body["mass"], body["center"], tensor
            )
            made = plant.AddRigidBody(body["name"], inertia)
            place = drake.RigidTransform(drake.Quaternion(body["quaternion"]), body["position"])
            parent = self.bodies[body["parent"]].body_frame()
            before = plant.AddFrame(drake.FixedOffsetFrame(f"before {body['name']}", parent, place))
            plant.AddJoint(joint_of(body, before, made.body_frame()))
            self.bodies[body["name"]] = made
        for motor in tree.get("motors", []):
            joint = plant.GetJointByName(motor["joint"])
            actuator = plant.AddJointActuator(motor["joint"], joint)
            actuator.set_default_gear_ratio(motor["gear"])
            actuator.set_default_rotor_inertia(motor["rotor_inertia"])
        for spring in tree.get("springs", []):
            (a, b), (p, q) = (self.bodies[x] for x in spring["bodies"]), spring["points"]
            numbers = (spring[x] for x in ("rest_length", "stiffness", "damping"))
            plant.AddForceElement(drake.LinearSpringDamper(a, p, b, q, *numbers))
        for name, spring in tree.get("joint_springs", {}).items():
            joint = plant.GetJointByName(name)
            slides = isinstance(joint, drake.PrismaticJoint)
            kind = drake.PrismaticSpring if slides else drake.RevoluteSpring
            plant.AddForceElement(kind(joint, spring["rest"], spring["stiffness"]))
            joint.set_default_damping(spring["damping"])
        if path is not None:
            drake.Parser(plant).AddModels(str(path))
            self.bodies = {name: plant.GetBodyByName(name) for name in tree["bodies"]}
        self.names = [name for name in self.bodies if name != "ground"]
        plant.Finalize()
        self.context = plant.CreateDefaultContext()
        if plant.num_actuators():
            force = np.zeros(plant.num_actuators())
            plant.get_actuation_input_port().FixValue(self.context, force)

    def at(self, q, v):
        self.plant.SetPositionsAndVelocities(self.context, np.concatenate([q, v]))
        return self.context

    def moving_bodies(self):
        """Pose, velocities and accelerations of the frame of each body, in world axes, and the
        force and torque of its joint on it, at its origin and in its axes."""
        plant, context, found = self.plant, self.context, []
        reactions = plant.get_reaction_forces_output_port().Eval(context)
        joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
        for name in self.names:
            body = self.bodies[name]
            pose = plant.EvalBodyPoseInWorld(context, body)
            joint = next(x for x in joints if x.child_body().name() == name)
            orientation = pose.rotation().ToQuaternion().wxyz()
            spatial = {
                "twist": plant.EvalBodySpatialVelocityInWorld(context, body),
                "acceleration": plant.EvalBodySpatialAccelerationInWorld(context, body),
                "reaction": reactions[joint.index()],
            }
            found.append({"pose": np.concatenate([pose.translation(), orientation])})
            for key, x in spatial.items():
                found[-1][key] = np.concatenate([x.translational(), x.rotational()])
        return found

    def jacobian(self):
        """The velocities and angular velocities of all bodies by those of the joints."""
        rows, world = [], self.plant.world_frame()
        for name in self.names:
            frame = self.bodies[name].body_frame()
            turn_and_shift = self.plant.CalcJacobianSpatialVelocity(
                self.context, drake.JacobianWrtVariable.kV, frame, [0, 0, 0], world, world
            )
            rows += [turn_and_shift[3:], turn_and_shift[:3]]
        return np.concatenate(rows)


def joints():
    random = np.random.default_rng(11)
    bodies = [
        random_body(random, "nut", "ground", "screw", pitch=0.4),
        random_body(random, "shaft", "nut", "universal"),
        random_body(random, "end", "shaft", "ball"),
        random_body(random, "puck", "ground", "planar"),
    ]
    points = [[0.1, -0.2, 0.3], [-0.1, 0.2, 0.1]]
    springs = [spring_between(["end", "puck"], points, 80.0, 3.0, rest_length=0.5)]
    tree = {"gravity": GRAVITY, "bodies": bodies, "springs": springs}
    system = Plant(tree)
    states = []
    for _ in range(3):
        q, v = random.uniform(-1.2, 1.2, size=(2, 9)).round(3)
        system.at(q, v)
        named = {}
        for joint in map(system.plant.GetJointByName, system.names):
            named[joint.name()] = q[joint.position_start() :][: joint.num_positions()]
        states.append({"q": named, "bodies": system.moving_bodies()})
    return {"tree": tree, "states": states}


def file():
    random = np.random.default_rng(29)
    path = pathlib.Path(__file__).with_name("arm.sdf")
    names = ["base", "slider", "nut", "shaft", "hand"]
    # The gravity of SDFormat where a file says nothing.
    system = Plant({"bodies": names, "gravity": [0.0, 0.0, -9.8]}, path)
    states = []
    for _ in range(2):
        system.at(*random.uniform(-1.2, 1.2, size=(2, 8)).round(3))
        states.append({"bodies": system.moving_bodies()})
    return {"states": states}


def feedback(tree, q, driven):
    """The linear model and the optimal feedback about a pose of equilibrium, by the inputs before
    the gears."""
    random = np.random.default_rng(5)
    system = Plant(tree)
    plant, context = system.plant, system.at(np.array(q), np.zeros(len(q)))
    port = plant.get_actuation_input_port().get_index()
    linear = drake.Linearize(plant, context, port, drake.OutputPortSelection.kNoOutput)
    gear = np.array([motor["gear"] for motor in tree["motors"]])
    A, B = linear.A(), linear.B() * gear
    T = system.jacobian()
    by_body, weight = random.uniform(0.1, 5.0, size=(2, len(T))).round(2), 0.3
    zero = np.zeros((len(q), len(q)))
    Q = np.block([[T.T * by_body[0] @ T, zero], [zero, T.T * by_body[1] @ T]])
    K, S = drake.LinearQuadraticRegulator(A, B, Q, weight * np.eye(len(gear)))
    weights = by_body.reshape(2, -1, 6)
    found = {"tree": tree, "q": np.array(q), "driven": driven, "A": A, "B": B}
    found |= dict(zip(("weights_of_displacements", "weights_of_velocities"), weights))
    found |= {"weight_of_input": weight, "gain": K, "value": S}
    return found | {"bodies": system.moving_bodies()}


def upright(bodies):
    """Bodies whose centres of mass are above their hinges where the coordinates are 0. There the x,
    y and z axes of bodies on hinges are the x, -z and y axes of the world."""
    for body in bodies:
        if body["joint"] == "revolute":
            body["center"] = np.array([0.0, -abs(body["center"][1]) - 0.2, body["center"][2]])
    return bodies


def driven(bodies, q, joint, **motor):
    tree = {"gravity": np.array([0, 0, -9.81]), "bodies": upright(bodies)}
    return feedback(tree | {"motors": [{"joint": joint, **motor}]}, q, joint)


def cart_pole():
    random = np.random.default_rng(2)
    along_x, to_y = [HALF, 0, HALF, 0], [0.5, -0.5, -0.5, -0.5]
    bodies = [
        random_body(random, "cart", "ground", "prismatic", np.zeros(3), along_x),
        random_body(random, "pole", "cart", "revolute", np.array([-0.1, 0.2, 0]), to_y),
    ]
    return driven(bodies, [0.0, 0.0], "cart", gear=4.0, rotor_inertia=0.02)


def acrobot():
    random = np.random.default_rng(3)
    about_y = [HALF, -HALF, 0, 0]
    bodies = [
        random_body(random, "upper", "ground", "revolute", np.zeros(3), about_y),
        random_body(random, "lower", "upper", "revolute", np.array([0, -0.5, 0.1]), [1, 0, 0, 0]),
    ]
    return driven(bodies, [0.0, 0.0], "lower", gear=10.0, rotor_inertia=0.003)


def hanging():
    random = np.random.default_rng(8)
    bodies = [
        random_body(random, "upper", "ground", "revolute"),
        random_body(random, "lower", "upper", "revolute"),
        random_body(random, "slide", "lower", "prismatic"),
    ]
    points = lambda: random.uniform(-0.4, 0.4, size=(2, 3)).round(2)  # noqa: E731
    springs = [
        spring_between(["ground", "lower"], points(), 120.0, 2.0, rest_length=0.3),
        spring_between(["upper", "slide"], points(), 60.0, 5.0, rest_length=0.5),
    ]
    at_joints = {
        "upper": {"stiffness": 9.0, "damping": 0.4, "rest": 0.3},
        "slide": {"stiffness": 150.0, "damping": 1.5, "rest": -0.1},
    }
    tree = {"gravity": GRAVITY, "bodies": bodies, "springs": springs, "joint_springs": at_joints}
    system = Plant(tree)
    exact = system.plant.ToAutoDiffXd()
    context, q = exact.CreateDefaultContext(), np.array([0.2, -0.3, 0.05])
    for _ in range(100):
        x = drake.InitializeAutoDiff(np.concatenate([q, np.zeros(3)]))
        exact.SetPositionsAndVelocities(context, x[:, 0])
        forces = drake.MultibodyForces_[drake.AutoDiffXd](exact)
        exact.CalcForceElementsContribution(context, forces)
        left = exact.CalcInverseDynamics(context, np.full(3, drake.AutoDiffXd(0.0)), forces)
        value, slope = drake.ExtractValue(left)[:, 0], drake.ExtractGradient(left)[:, :3]
        # Downhill: the eigenvalues of the stiffness by their size.
        size, axes = np.linalg.eigh((slope + slope.T) / 2)
        if np.abs(value).max() > 0.1:
            q = q - np.clip(axes / np.abs(size) @ axes.T @ value, -0.1, 0.1)
        else:
            q = q - np.linalg.solve(slope, value)
    assert np.abs(value).max() < 1e-12 and size.min() > 0, (value, size)
    system.at(q, np.zeros(3))
    bodies = system.moving_bodies()
    # Drake's reactions include the springs at the joints.
    for body, about, entry in ((bodies[0], "upper", 5), (bodies[2], "slide", 2)):
        held = at_joints[about]
        place = system.plant.GetJointByName(about).position_start()
        body["reaction"][entry] -= held["stiffness"] * (held["rest"] - q[place])
        assert abs(body["reaction"][entry]) < 1e-12
    none = drake.InputPortSelection.kNoInput, drake.OutputPortSelection.kNoOutput
    damped = drake.Linearize(system.plant, system.context, *none).A()
    free = copy.deepcopy(tree)
    for each in [*free["springs"], *free["joint_springs"].values()]:
        each["damping"] = 0.0
    undamped = Plant(free)
    undamped.at(q, np.zeros(3))
    A = drake.Linearize(undamped.plant, undamped.context, *none).A()
    stiffness = np.sort(np.linalg.eigvals(-A[3:, :3]).real)
    found = {"eigenvalues": eigenvalues(np.linalg.eigvals(damped)), "stiffness": stiffness}
    return {"tree": tree, "q": q, "bodies": bodies} | found


if __name__ == "__main__":
    made = (joints, file, cart_pole, acrobot, hanging)
    version = importlib.metadata.version("drake")
    write({f.__name__: f() for f in made}, "drake.json", ("drake", version))
