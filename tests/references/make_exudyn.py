"""Reference values by Exudyn, which has the coordinates of bodies, as here (Gerstmayr, 2023).

    pip install exudyn scipy numpy
    python make_exudyn.py        # writes exudyn.json

- `planar`: a four-bar in a plane, whose crank is mounted on a carriage that slides, with a pendulum
  at its coupler and damped springs: three freedoms.
- `spatial`: three bodies of arbitrary inertia in a row, with two hinges between them, whose ends
  ball joints hold to the ground, and damped springs: two freedoms.

Of both: where they rest and the forces in the joints there; and the eigenvalues without gravity in
the pose in which they are given, with springs of just that length. Exudyn's eigenvalues do not
include that forces in joints turn with the bodies. So they are exact only where there are none.

- `disc`: the motion of a disc that rolls and leans.

The poses of bodies, and the points and axes of joints, are in the world, where the bodies are
given; those of springs are in their bodies. Centres of mass and inertia tensors are in the axes of
the bodies, and tensors are about the centres of mass. Everything is in SI units.
"""

import exudyn
import numpy as np
import scipy
from exudyn import utilities as parts
from reference_file import eigenvalues, random_body, spring_between, write

GRAVITY = 9.81


def turned(quaternion):
    return parts.EulerParameters2RotationMatrix(np.array(quaternion))


def place_of(system, name):
    """Where a body is given, and its axes."""
    body = next(x for x in system["bodies"] if x["name"] == name)
    return body["position"], turned(body["quaternion"])


def length_of(system, spring):
    """The distance of the ends of a spring where the bodies are given."""
    ends = []
    for name, point in zip(spring["bodies"], spring["points"]):
        if name == "ground":
            ends.append(np.array(point))
        else:
            place, turn = place_of(system, name)
            ends.append(place + turn @ point)
    return float(np.linalg.norm(ends[1] - ends[0]))


def built(system, planar, loaded):
    """The system, its bodies and its joints; without loads, springs have the lengths they need."""
    mbs = exudyn.SystemContainer().AddSystem()
    down = np.array(system["gravity"]) if loaded else np.zeros(3)
    bodies, joints = {"ground": mbs.CreateGround()}, {}
    for body in system["bodies"]:
        make = planar_body if planar else spatial_body
        bodies[body["name"]] = make(mbs, body, list(down))
    for joint in system["joints"]:
        ends = [bodies[name] for name in joint["bodies"]]
        make = planar_joint if planar else spatial_joint
        joints[joint["name"]] = make(mbs, joint, ends, system)
    for spring in system["springs"]:
        given = {x: spring[x] for x in ("stiffness", "damping")}
        given |= {f"localPosition{i}": list(point) for i, point in enumerate(spring["points"])}
        given["referenceLength"] = spring["rest_length" if loaded else "length_as_given"]
        mbs.CreateSpringDamper(itemNumbers=[bodies[name] for name in spring["bodies"]], **given)
    mbs.Assemble()
    return mbs, bodies, joints


def spatial_body(mbs, body, gravity, kind=exudyn.NodeType.RotationRxyz, **moving):
    numbers = {"mass": body["mass"], "com": np.array(body["center"])}
    tensor = {"inertiaTensor": np.array(body["tensor"]), "inertiaTensorAtCOM": True}
    place = {"referencePosition": list(body["position"])}
    place["referenceRotationMatrix"] = turned(body["quaternion"])
    inertia = parts.RigidBodyInertia(**numbers, **tensor)
    return mbs.CreateRigidBody(**place, **moving, inertia=inertia, gravity=gravity, nodeType=kind)


def spatial_joint(mbs, joint, ends, system):
    place = {"itemNumbers": ends, "position": list(joint["point"])}
    if joint["kind"] == "revolute":
        return mbs.CreateRevoluteJoint(**place, axis=list(joint["axis"]))
    return mbs.CreateSphericalJoint(**place)


def planar_body(mbs, body, gravity):
    (w, _, _, z), (x, y, _), mass = body["quaternion"], body["center"], body["mass"]
    place = [*body["position"][:2], 2 * np.arctan2(z, w)]
    node = mbs.AddNode(parts.NodeRigidBody2D(referenceCoordinates=place))
    about_origin = body["tensor"][2][2] + mass * (x**2 + y**2)
    numbers = {"mass": mass, "inertia": about_origin, "centerOfMass": [x, y]}
    number = mbs.AddObject(parts.ObjectRigidBody2D(**numbers, nodeNumber=node))
    middle = parts.MarkerBodyPosition(bodyNumber=number, localPosition=[x, y, 0])
    weight = [mass * g for g in gravity]
    mbs.AddLoad(parts.Force(markerNumber=mbs.AddMarker(middle), loadVector=weight))
    return number


def planar_joint(mbs, joint, ends, system):
    markers, turns = [], []
    for end, name in zip(ends, joint["bodies"]):
        place, turn = np.zeros(3), np.eye(3)
        if name != "ground":
            place, turn = place_of(system, name)
        local = turn.T @ (np.array(joint["point"]) - place)
        markers.append(mbs.AddMarker(parts.MarkerBodyRigid(bodyNumber=end, localPosition=local)))
        turns.append(turn)
    if joint["kind"] == "revolute":
        return mbs.AddObject(parts.RevoluteJoint2D(markerNumbers=markers))
    axis = turns[0].T @ joint["axis"]
    normal = turns[1].T @ np.cross([0, 0, 1], joint["axis"])
    axes = {"axisMarker0": axis, "normalMarker1": normal}
    return mbs.AddObject(parts.PrismaticJoint2D(markerNumbers=markers, **axes))


def at_rest(system, planar):
    mbs, bodies, joints = built(system, planar, loaded=True)
    settings = exudyn.SimulationSettings()
    settings.solution.file.write = False
    static, newton = settings.staticSolver, settings.staticSolver.newton
    static.verboseMode, static.numberOfLoadSteps = 0, 10
    newton.relativeTolerance, newton.absoluteTolerance = 1e-14, 1e-11
    newton.maxIterations = 1000
    assert mbs.SolveStatic(settings)
    kind, found = exudyn.OutputVariableType, {}
    for body in system["bodies"]:
        number = bodies[body["name"]]
        place = mbs.GetObjectOutputBody(number, kind.Position)
        matrix = mbs.GetObjectOutputBody(number, kind.RotationMatrix).reshape(3, 3)
        found[body["name"]] = {"position": place, "axes": matrix}
    return mbs, found, joints


def all_of(system, rest, forces, planar):
    found = {"system": system, "rest": rest, "forces": forces}
    return found | {"eigenvalues": eigenvalues_of(built(system, planar, loaded=False)[0])}


def motion(build, end):
    """The body at the end of a motion from where it is given, of what `build` makes: by the
    trapezoidal rule, with the error of second order extrapolated, which leaves 1e-12."""
    coarse, fine = (moved(*build(), end, steps) for steps in (2000, 4000))
    return {"end": end} | {key: (4 * x - coarse[key]) / 3 for key, x in fine.items()}


def moved(mbs, body, end, steps):
    """What the body is after a number of steps."""
    settings = exudyn.SimulationSettings()
    settings.solution.file.write = False
    moving, newton = settings.timeIntegration, settings.timeIntegration.newton
    moving.verboseMode, moving.numberOfSteps, moving.endTime = 0, steps, end
    newton.relativeTolerance, newton.absoluteTolerance = 1e-13, 1e-12
    assert mbs.SolveDynamic(settings, solverType=exudyn.DynamicSolverType.TrapezoidalIndex2)
    kind = exudyn.OutputVariableType
    kinds = kind.Position, kind.RotationMatrix, kind.Velocity, kind.AngularVelocity
    given = [mbs.GetObjectOutputBody(body, x) for x in kinds]
    found = dict(zip(("position", "axes", "velocity", "angular_velocity"), given))
    return found | {"axes": found["axes"].reshape(3, 3)}


def eigenvalues_of(mbs):
    options = dict(computeComplexEigenvalues=True, useAbsoluteValues=False)
    return eigenvalues(mbs.ComputeODE2Eigenvalues(**options)[0])


def body_in_plane(random, name, point, angle):
    made = random_body(random, name, None, None)
    center, tensor = np.array([*made["center"][:2], 0.0]), made["tensor"][2][2] * np.eye(3)
    turn = np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
    inertia = {"name": name, "mass": made["mass"], "center": center, "tensor": tensor}
    return inertia | {"position": np.array([*point, 0.0]), "quaternion": turn}


def joint(name, kind, a, b, **place):
    return {"name": name, "kind": kind, "bodies": [a, b], **place}


def system_of(gravity, bodies, joints, springs):
    """The system, whose springs have rest lengths that are close to the lengths they have."""
    system = {"gravity": gravity, "bodies": bodies, "joints": joints, "springs": springs}
    for spring in springs:
        length = length_of(system, spring)
        spring |= {"rest_length": round(length - 0.03, 2), "length_as_given": length}
    return system


def disc(end=0.5):
    """A thin disc that rolls on the ground z = 0 and leans, with its centre of mass beside its
    centre: its motion."""
    radius, body = 0.3, {"mass": 2.0, "tensor": np.diag([0.1, 0.06, 0.05])}
    lean, spin = np.array([np.cos(0.2), 0.0, np.sin(0.2), 0.0]), np.array([4.0, 0.5, -0.6])
    axis = turned(lean)[:, 0]
    height = radius * np.hypot(axis[0], axis[1])
    # From the centre to the lowest point of the rim, which rests.
    arm = radius * np.array([axis[0] * axis[2], axis[1] * axis[2], -1 + axis[2] ** 2])
    arm = arm / np.hypot(axis[0], axis[1])
    velocity = -np.cross(spin, arm)
    place = {"position": np.array([0.0, 0.0, height]), "quaternion": lean}
    body = body | {"center": np.array([0.03, 0.02, -0.05])} | place

    def build():
        mbs, kind = exudyn.SystemContainer().AddSystem(), exudyn.NodeType.RotationEulerParameters
        moving = {"initialVelocity": list(velocity), "initialAngularVelocity": list(spin)}
        number = spatial_body(mbs, body, [0.0, 0.0, -GRAVITY], kind, **moving)
        ends = mbs.CreateGround(), number
        markers = [mbs.AddMarker(parts.MarkerBodyRigid(bodyNumber=x)) for x in ends]
        mbs.AddObject(parts.RollingDiscJoint(markerNumbers=markers, discRadius=radius))
        mbs.Assemble()
        return mbs, number

    found = {"velocity": velocity, "angular_velocity": spin, "motion": motion(build, end)}
    return {"radius": radius} | body | found


def planar():
    random = np.random.default_rng(4)
    A, D = np.array([0.1, 0.05]), np.array([1.1, -0.1])
    B = A + 0.4 * np.array([np.cos(1.1), np.sin(1.1)])
    C = D + 0.7 * np.array([np.cos(1.5), np.sin(1.5)])
    P = (B + C) / 2 + np.array([0.05, -0.1])
    names = ["carriage", "crank", "coupler", "rocker", "pendulum"]
    places = [np.zeros(2), A, B, D, P]
    angles = [0.0, 1.1, 0.3, 1.5, -1.4]
    bodies = [body_in_plane(random, *x) for x in zip(names, places, angles)]

    def hinge(name, a, b, point):
        return joint(name, "revolute", a, b, point=[*point, 0.0], axis=[0.0, 0.0, 1.0])

    along = [np.cos(0.2), np.sin(0.2), 0.0]
    joints = [
        joint("guide", "prismatic", "ground", "carriage", point=[0.0, 0.0, 0.0], axis=along),
        hinge("A", "carriage", "crank", A),
        hinge("B", "crank", "coupler", B),
        hinge("C", "coupler", "rocker", C),
        hinge("D", "ground", "rocker", D),
        hinge("P", "coupler", "pendulum", P),
    ]
    springs = [
        spring_between(["ground", "carriage"], [[-0.6, 0.1, 0], [-0.1, 0.02, 0]], 300.0, 4.0),
        spring_between(["ground", "coupler"], [[0.4, 1.2, 0], [0.2, 0.1, 0]], 150.0, 2.0),
        spring_between(["rocker", "pendulum"], [[0.1, 0.2, 0], [0.3, 0.05, 0]], 40.0, 3.0),
    ]
    system = system_of([0.0, -GRAVITY, 0.0], bodies, joints, springs)
    mbs, rest, made = at_rest(system, True)
    forces = {}
    for name, number in made.items():
        places = mbs.systemData.GetObjectLTGAE(number)
        x, y = mbs.systemData.GetAECoordinates()[places]
        # The guide has a force normal to its axis and a torque instead.
        forces[name] = x * np.cross([0, 0, 1], along) if name == "guide" else [x, y, 0.0]
    return all_of(system, rest, forces, True)


def spatial():
    random = np.random.default_rng(6)
    points = np.array([[0, 0, 0], [0.5, 0.2, -0.3], [1.0, -0.1, -0.4], [1.4, 0.1, 0.1]])
    bodies = []
    for i in range(3):
        made = random_body(random, f"link {i}", None, None, points[i] + [0.1, 0.0, 0.05])
        made["quaternion"] = made["quaternion"] * np.sign(made["quaternion"][0])
        bodies.append({key: made[key] for key in made if key not in ("parent", "joint")})
    axes = random.normal(size=(2, 3))
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    joints = [
        joint("first", "ball", "ground", "link 0", point=points[0]),
        joint("second", "revolute", "link 0", "link 1", point=points[1], axis=axes[0]),
        joint("third", "revolute", "link 1", "link 2", point=points[2], axis=axes[1]),
        joint("last", "ball", "link 2", "ground", point=points[3]),
    ]
    springs = [
        spring_between(["ground", "link 1"], [[0.7, 0.6, 0.5], [0.1, 0.1, -0.1]], 90.0, 2.0),
        spring_between(["link 0", "link 2"], [[0.1, -0.2, 0.1], [-0.1, 0.1, 0.2]], 60.0, 1.0),
        spring_between(["ground", "link 2"], [[1.2, -0.7, 0.0], [0.0, 0.1, -0.2]], 50.0, 1.5),
    ]
    system = system_of([0.0, 0.0, -GRAVITY], bodies, joints, springs)
    mbs, rest, made = at_rest(system, False)
    kind, forces = exudyn.OutputVariableType, {}
    for name, number in made.items():
        if name in ("first", "last"):
            forces[name] = mbs.GetObjectOutput(number, kind.Force)
        else:
            # The force is in the frame of the hinge on the first body. What is called a torque are
            # the multipliers of x1 . z0 = 0 and y1 . z0 = 0, with the axes on both bodies.
            first, second = (
                mbs.GetMarkerOutput(marker, kind.RotationMatrix).reshape(3, 3)
                for marker in mbs.GetObject(number)["markerNumbers"]
            )
            along_x, along_y, _ = mbs.GetObjectOutput(number, kind.TorqueLocal)
            force = first @ mbs.GetObjectOutput(number, kind.ForceLocal)
            torque = second @ [along_y, -along_x, 0.0]
            forces[name] = np.concatenate([force, torque])
    return all_of(system, rest, forces, False)


if __name__ == "__main__":
    codes = ("exudyn", exudyn.__version__), ("scipy", scipy.__version__)
    write({f.__name__: f() for f in (planar, spatial, disc)}, "exudyn.json", *codes)
