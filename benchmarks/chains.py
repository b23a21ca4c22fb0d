"""Cost of a step of chains of N hinged links and of a four-bar, compared with other simulators.

All simulators run in one process, on all cores, in float64. The method is of first order
(`VelocityImpulse`). The step is 2 ms for chains (`--dt`: long chains need smaller steps) and 1 ms
for the four-bar. Compare ratios, not microseconds. The table has microseconds per step and body,
seconds to compile, the largest violation of the joints in metres, the time of a gradient relative
to the forward time with its compilation and memory, and a batch. Simulators that are not installed
are reported and left out. MuJoCo MJX runs with and without XLA's fusion.

    python benchmarks/chains.py
    python benchmarks/chains.py --links 5 20 80 --batch 256
    python benchmarks/chains.py --links 200 320 1000 --dt 2e-4
    taskset -c 0 python benchmarks/chains.py   # one core

The four-bar is measured with hinges in space and as a mechanism in a plane.

The chain: links of 0.3 m and 1 kg hang from the ground on hinges about x and y in turn, with
0.2 N m s of damping each, and start at 0.1 rad and 0.2 rad/s in each joint. The four-bar: ground
1.0 m, crank 0.3, coupler 0.9 and rocker 0.7 of 1 kg/m, from a crank angle of 60 degrees.
"""

import argparse
import os
import platform
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measuring import NO_FUSION, Simulation, best_of, compare, measure
from tqdm import tqdm

import jaxmbd as mbd

LENGTH, MASS, DAMPING, ANGLE, RATE = 0.3, 1.0, 0.2, 0.1, 0.2
INERTIA = (MASS * LENGTH**2 / 12, MASS * LENGTH**2 / 12, 0.001)


def axis_of(i: int) -> np.ndarray:
    return np.eye(3)[i % 2]


# --- jaxmbd -------------------------------------------------------------------------------------


def chain(n: int) -> mbd.Mechanism:
    bodies, joints, dampers = [], [], []
    end, velocity, omega = np.zeros(3), np.zeros(3), np.zeros(3)
    turn, before = jnp.array([1.0, 0, 0, 0]), "ground"
    for i in range(n):
        axis = np.asarray(mbd.rotations.quaternion_rotate(turn, jnp.asarray(axis_of(i))))
        turn = mbd.rotations.quaternion_product(
            turn, mbd.rotations.quaternion_exp(jnp.asarray(ANGLE * axis_of(i)))
        )
        omega = omega + RATE * axis
        half = np.asarray(mbd.rotations.quaternion_rotate(turn, jnp.array([0, 0, -LENGTH / 2])))
        body = mbd.Body(
            f"link {i}",
            mbd.Inertia(MASS, INERTIA),
            position=end + half,
            orientation=turn,
            velocity=velocity + np.cross(omega, half),
            angular_velocity=omega,
        )
        frame = dict(point=end, axis=axis)
        bodies.append(body)
        joints.append(mbd.Revolute(f"hinge {i}", before, body, **frame))
        dampers.append(mbd.forces.JointFriction(joints[-1], viscous=DAMPING))
        end, velocity, before = end + 2 * half, velocity + np.cross(omega, 2 * half), body
    return mbd.Mechanism(bodies, joints, dampers)


def four_bar_points() -> list[np.ndarray]:
    """A, B, C, D in the plane of x and z."""
    a, d = np.zeros(3), np.array([1.0, 0, 0])
    b = 0.3 * np.array([np.cos(np.pi / 3), 0, np.sin(np.pi / 3)])
    across = d - b
    r = np.linalg.norm(across)
    x = (0.9**2 - 0.7**2 + r**2) / (2 * r)
    e = across / r
    c = b + x * e + np.sqrt(0.9**2 - x**2) * np.array([-e[2], 0, e[0]])
    return [a, b, c, d]


def four_bar(plane: mbd.Plane | None = None) -> mbd.Mechanism:
    points = four_bar_points()
    bodies = []
    for name, p, q in zip(("crank", "coupler", "rocker"), points, points[1:], strict=False):
        length = np.linalg.norm(q - p)
        inertia = mbd.Inertia(length, [length**3 / 12] * 3)
        bodies.append(mbd.Body(name, inertia, position=(p + q) / 2))
    crank, coupler, rocker = bodies
    ends = [("ground", crank), (crank, coupler), (coupler, rocker), (rocker, "ground")]
    joints = [
        mbd.Revolute(name, *pair, point=point, axis=[0.0, 1.0, 0.0])
        for name, pair, point in zip("ABCD", ends, points, strict=True)
    ]
    return mbd.Mechanism(bodies, joints, plane=plane)


def violation(value: jax.Array) -> dict[str, float]:
    return {"violation": float(value)}


def own(mechanism: mbd.Mechanism, dt: float, steps: int) -> Simulation:
    start = mechanism.state()

    def end(x):
        moved = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
        state = mbd.State(0.0, start.q, start.v * x[1])
        sol = mbd.simulate(moved, mbd.VelocityImpulse(), state, dt=dt, num_steps=steps, throw=False)
        return jnp.sum(sol.q[-1] ** 2), sol.phi_norm[-1]

    return end


# --- others -------------------------------------------------------------------------------------


def mjcf_chain(n: int, dt: float) -> str:
    begin, finish = "", ""
    for i in range(n):
        x, y, z = axis_of(i)
        begin += (
            f'<body pos="0 0 {-LENGTH if i else 0}"><joint type="hinge" axis="{x} {y} {z}" '
            f'damping="{DAMPING}"/><inertial pos="0 0 {-LENGTH / 2}" mass="{MASS}" '
            f'diaginertia="{INERTIA[0]} {INERTIA[1]} {INERTIA[2]}"/>'
            f'<geom type="capsule" size="0.02" fromto="0 0 0 0 0 {-LENGTH}" contype="0" '
            'conaffinity="0"/>'
        )
        finish += "</body>"
    option = f'<option timestep="{dt}" gravity="0 0 -9.81"/>'
    return f"<mujoco>{option}<worldbody>{begin}{finish}</worldbody></mujoco>"


def mjcf_four_bar(dt: float) -> str:
    """Two branches from the ground, the crank with the coupler and the rocker, connected at their
    tips."""
    a, b, c, d = four_bar_points()

    def bar(name, start, finish, at, inner=""):
        x, _, z = finish - start
        length = float(np.hypot(x, z))
        inertia = length**3 / 12
        return (
            f'<body name="{name}" pos="{at[0]} 0 {at[2]}"><joint type="hinge" axis="0 1 0"/>'
            f'<inertial pos="{x / 2} 0 {z / 2}" mass="{length}" '
            f'diaginertia="{inertia} {inertia} {inertia}"/>'
            f'<geom type="capsule" size="0.01" fromto="0 0 0 {x} 0 {z}" contype="0" '
            f'conaffinity="0"/><site name="tip of {name}" pos="{x} 0 {z}"/>{inner}</body>'
        )

    coupler = bar("coupler", b, c, b - a)
    x, _, z = c - b
    option = f'<option timestep="{dt}" gravity="0 0 -9.81" iterations="4" ls_iterations="8"/>'
    return (
        f"<mujoco>{option}<worldbody>{bar('crank', a, b, a, coupler)}{bar('rocker', d, c, d)}"
        f'</worldbody><equality><connect body1="coupler" body2="rocker" anchor="{x} 0 {z}"/>'
        "</equality></mujoco>"
    )


def sdf_chain(n: int) -> str:
    parts, before = "", "base"
    for i in range(n):
        x, y, z = axis_of(i)
        parts += (
            f'<joint name="j{i}" type="revolute"><parent>{before}</parent><child>l{i}</child><axis>'
            f"<xyz>{x} {y} {z}</xyz><limit><lower>-1e16</lower><upper>1e16</upper></limit>"
            f"<dynamics><spring_reference>0</spring_reference><spring_stiffness>0</spring_stiffness>"
            f"<damping>{DAMPING}</damping><friction>0</friction></dynamics></axis></joint>"
        )
        moments = "".join(
            f"<i{k}>{v}</i{k}>" for k, v in zip(("xx", "yy", "zz"), INERTIA, strict=True)
        )
        parts += (
            f'<link name="l{i}"><pose>0 0 {-LENGTH * i} 0 0 0</pose><inertial>'
            f"<pose>0 0 {-LENGTH / 2} 0 0 0</pose><mass>{MASS}</mass><inertia>{moments}"
            "<ixy>0</ixy><ixz>0</ixz><iyz>0</iyz></inertia></inertial></link>"
        )
        before = f"l{i}"
    base = (
        '<link name="base"><inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz>'
        "<ixy>0</ixy><ixz>0</ixz><iyz>0</iyz></inertia></inertial></link>"
        '<joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>'
    )
    return f'<sdf version="1.7"><model name="chain">{base}{parts}</model></sdf>'


def mujoco_in_c(xml: str, steps: int, q: Any, v: Any) -> dict[str, Any]:
    import mujoco

    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)

    def run():
        mujoco.mj_resetData(model, data)
        data.qpos[:] += q
        data.qvel[:] = v
        mujoco.mj_step(model, data, nstep=steps)
        return 0

    row = {"steps_per_s": steps / best_of(run)}
    if model.neq:
        run()
        row["violation"] = float(np.max(np.abs(data.efc_pos[: 3 * model.neq])))
    return row


def mjx(xml: str, steps: int, q: Any, v: Any) -> Simulation:
    import mujoco
    from mujoco import mjx

    model = mujoco.MjModel.from_xml_string(xml)
    system = mjx.put_model(model)
    data = mjx.make_data(system)
    tips = [model.site(f"tip of {name}").id for name in ("coupler", "rocker")] if model.neq else []

    def end(x):
        pulled = system.replace(opt=system.opt.replace(gravity=system.opt.gravity * x[0]))
        start = data.replace(qpos=data.qpos + q, qvel=jnp.full(model.nv, v) * x[1])

        def step(data, _):
            data = mjx.step(pulled, data)
            gap = data.site_xpos[tips[0]] - data.site_xpos[tips[1]] if tips else jnp.zeros(3)
            return data, jnp.max(jnp.abs(gap))

        data_end, gaps = jax.lax.scan(step, start, None, length=steps)
        return jnp.sum(data_end.qpos**2), jnp.max(gaps)

    return end


def brax(n: int, dt: float, steps: int) -> Simulation:
    from brax.generalized import pipeline
    from brax.io import mjcf

    system = mjcf.loads(mjcf_chain(n, dt))
    to_double = lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    action = jnp.zeros(system.act_size())

    def end(x):
        pulled = system.replace(gravity=system.gravity * x[0])
        state = pipeline.init(pulled, jnp.full(n, ANGLE), jnp.full(n, RATE) * x[1])
        state = jax.tree.map(to_double, state)

        def step(state, _):
            after = pipeline.step(pulled, state, action)
            return jax.tree.map(lambda a, b: a.astype(b.dtype), after, state), None

        after, _ = jax.lax.scan(step, state, None, length=steps)
        return jnp.sum(after.q**2), jnp.zeros(())  # minimal coordinates: no joint can open

    return end


def jaxsim(n: int, dt: float, steps: int) -> Simulation:
    import jaxsim.api as js

    model = js.model.JaxSimModel.build_from_model_description(
        sdf_chain(n), is_urdf=False, time_step=dt
    )

    def end(x):
        data = js.data.JaxSimModelData.build(
            model=model,
            joint_positions=jnp.full(n, ANGLE),
            joint_velocities=jnp.full(n, RATE) * x[1],
        )
        after, _ = jax.lax.scan(lambda d, _: (js.model.step(model, d), None), data, length=steps)
        return jnp.sum(after.joint_positions**2), jnp.zeros(())

    return end


def exudyn(n: int, dt: float, steps: int) -> dict[str, Any]:
    """In redundant coordinates. `n` = 0 is the four-bar, in the plane."""
    import exudyn as exu
    from exudyn import utilities as parts

    mbs = exu.SystemContainer().AddSystem()
    if n:
        before = mbs.CreateGround()
        for i in range(n):
            inertia = parts.RigidBodyInertia(mass=MASS, inertiaTensor=np.diag(INERTIA))
            body = mbs.CreateRigidBody(
                inertia=inertia,
                referencePosition=[0, 0, -LENGTH * (i + 0.5)],
                gravity=[0, 0, -9.81],
            )
            mbs.CreateRevoluteJoint(
                bodyNumbers=[before, body],
                position=[0, 0, -LENGTH * i],
                axis=list(axis_of(i)),
                show=False,
            )
            before = body
    else:
        _exudyn_four_bar(mbs, parts)
    mbs.Assemble()
    settings = exu.SimulationSettings()
    settings.timeIntegration.numberOfSteps = steps
    settings.timeIntegration.endTime = dt * steps
    settings.timeIntegration.verboseMode = 0
    settings.timeIntegration.newton.useModifiedNewton = True
    settings.solutionSettings.writeSolutionToFile = False
    if n > 10:
        settings.linearSolverType = exu.LinearSolverType.EigenSparse
    solver = exu.DynamicSolverType.TrapezoidalIndex2
    return {
        "steps_per_s": steps / best_of(lambda: mbs.SolveDynamic(settings, solverType=solver) and 0)
    }


def _exudyn_four_bar(mbs: Any, parts: Any) -> None:
    ground = mbs.AddObject(parts.ObjectGround())
    a, b, c, d = (point[[0, 2]] for point in four_bar_points())

    def bar(p, q):
        x, z = q - p
        length = float(np.hypot(x, z))
        node = parts.NodeRigidBody2D(referenceCoordinates=[*((p + q) / 2), float(np.arctan2(z, x))])
        body = mbs.AddObject(
            parts.ObjectRigidBody2D(
                physicsMass=length, physicsInertia=length**3 / 12, nodeNumber=mbs.AddNode(node)
            )
        )
        middle = mbs.AddMarker(parts.MarkerBodyPosition(bodyNumber=body))
        mbs.AddLoad(parts.Force(markerNumber=middle, loadVector=[0, -9.81 * length, 0]))
        return [
            mbs.AddMarker(parts.MarkerBodyPosition(bodyNumber=body, localPosition=[x, 0, 0]))
            for x in (-length / 2, length / 2)
        ]

    def fixed(p):
        place = parts.MarkerBodyPosition(bodyNumber=ground, localPosition=[*p, 0])
        return mbs.AddMarker(place)

    crank, coupler, rocker = bar(a, b), bar(b, c), bar(d, c)
    for pair in (
        (fixed(a), crank[0]),
        (crank[1], coupler[0]),
        (coupler[1], rocker[1]),
        (rocker[0], fixed(d)),
    ):
        mbs.AddObject(parts.RevoluteJoint2D(markerNumbers=list(pair)))


# --- the runs -----------------------------------------------------------------------------------


def chain_peers(n: int, dt: float, steps: int, batch: int, gradient: bool) -> dict[str, Callable]:
    """For each simulator that runs at this size, the function that measures it."""
    few, options = max(20, steps // 4), dict(batch=batch, gradient=gradient)

    def in_jax(make, count, compiler=None):
        return lambda: measure(make(count), count, violation, **options, options=compiler)

    peers: dict[str, Callable] = {
        "MuJoCo C": lambda: mujoco_in_c(mjcf_chain(n, dt), steps, ANGLE, RATE)
    }
    if n <= 20:
        rollout = lambda count: mjx(mjcf_chain(n, dt), count, ANGLE, RATE)  # noqa: E731
        # With fusion MJX recomputes so much at N = 20 that a step takes 0.1 s.
        peers["MuJoCo MJX"] = in_jax(rollout, few if n <= 5 else 20)
        peers["MJX, no fusion"] = in_jax(rollout, few, NO_FUSION)
        peers["Brax generalized"] = in_jax(lambda count: brax(n, dt, count), few)
    if n <= 80:
        peers["JaxSim"] = in_jax(lambda count: jaxsim(n, dt, count), few)
        peers["Exudyn"] = lambda: exudyn(n, dt, steps)
    return peers


def four_bar_peers(dt: float, steps: int) -> dict[str, Callable]:
    xml = mjcf_four_bar(dt)

    def in_mjx(compiler=None):
        return lambda: measure(mjx(xml, steps, 0.0, 0.0), steps, violation, options=compiler)

    return {
        "MuJoCo C": lambda: mujoco_in_c(xml, steps, 0.0, 0.0),
        "MuJoCo MJX": in_mjx(),
        "MJX, no fusion": in_mjx(NO_FUSION),
        "Exudyn": lambda: exudyn(0, dt, steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, nargs="*", default=[5, 20, 80, 320])
    parser.add_argument("--batch", type=int, default=0, help="size of a batch of chains of five")
    parser.add_argument("--dt", type=float, default=2e-3, help="step of the chains [s]")
    parser.add_argument("--gradient-up-to", type=int, default=5, metavar="N")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64")
    for n in tqdm(options.links, desc="chains"):
        steps = max(100, 20000 // (n + 5))
        batch, gradient = options.batch if n == 5 else 0, n <= options.gradient_up_to
        row = measure(
            own(chain(n), options.dt, steps), steps, violation, batch=batch, gradient=gradient
        )
        compare(f"chain of {n}", n, row, chain_peers(n, options.dt, steps, batch, gradient))
    steps = 2000
    row = measure(own(four_bar(), 1e-3, steps), steps, violation)
    flat = own(four_bar(mbd.Plane(normal=[0.0, -1.0, 0.0])), 1e-3, steps)
    in_plane = {"jaxmbd in a plane": lambda: measure(flat, steps, violation)}
    compare("four-bar", 3, row, in_plane | four_bar_peers(1e-3, steps))


if __name__ == "__main__":
    main()
