"""Model ship in a towing tank: prescribed heave, free pitch, everything else held by a mount.

The ship is a rigid body in roll-pitch-yaw coordinates, with its angular velocity in world axes as
velocity, so q' = N(q) v. The mount holds roll, yaw, x and y and moves z like h(t): five
constraints, one of them driven. Oblique waves push sideways, and the asymmetric hull couples
heave and pitch. A rigid mount (a continuous method and a velocity impulse) is compared with a
compliant one, whose springs are integrated implicitly.

The rigid mount leaves one equation, I theta'' + d theta' + c theta = -k h(t), with a closed form.

Reference: the example of Castro (2025), Notes on constrained multibody dynamics, section 1.

    python examples/ship_in_towing_tank.py --output ship_in_towing_tank.png
"""

import argparse
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd


def parameter(default):
    return eqx.field(converter=jnp.asarray, default=default)


class Ship(mbd.AbstractSystem):
    """q = (roll, pitch, yaw, x, y, z), v = (omega_world, velocity); z upwards from where the ship
    floats. Added masses are in the inertia. u: wave moment and force, world axes, shape (6,)."""

    mass: Array = parameter(60.0)
    inertia: Array = parameter((2.0, 30.0, 30.0))  # principal, body axes [kg m^2]
    heave_stiffness: Array = parameter(5.9e3)  # hydrostatic [N/m]
    pitch_stiffness: Array = parameter(1.2e3)  # hydrostatic [N m/rad]
    coupling: Array = parameter(300.0)  # of heave and pitch [N/rad]
    pitch_damping: Array = parameter(40.0)  # [N m s/rad]
    drag: Array = parameter(20.0)  # [N]
    heave_amplitude: Array = parameter(0.05)  # [m]
    heave_frequency: Array = parameter(5.0)  # [rad/s]

    coordinates = mbd.Product(mbd.coordinates.RollPitchYawWorld(), mbd.Plain(3))

    def heave(self, t):
        """h(t), prescribed by the carriage."""
        return self.heave_amplitude * jnp.sin(self.heave_frequency * t)

    def constraint(self, q, t):
        roll, _, yaw, x, y, z = q
        return jnp.stack([roll, yaw, x, y, z - self.heave(t)])

    def inertia_world(self, q):
        R = rotation(q[:3])
        return R @ (self.inertia[:, None] * R.T)

    def mass_matrix(self, q):
        zero = jnp.zeros((3, 3), q.dtype)
        translation = self.mass * jnp.eye(3, dtype=q.dtype)
        return jnp.block([[self.inertia_world(q), zero], [zero, translation]])

    def force(self, t, q, v, u):
        omega = v[:3]
        _, pitch, yaw, _, _, z = q
        _, pitch_rate, *_ = self.qdot(q, v)
        gyroscopic = -jnp.cross(omega, self.inertia_world(q) @ omega)
        # The water's moment works on pitch' = -sin(yaw) omega_x + cos(yaw) omega_y.
        moment = -self.pitch_stiffness * pitch - self.coupling * z - self.pitch_damping * pitch_rate
        pitch_axis = jnp.stack([-jnp.sin(yaw), jnp.cos(yaw), jnp.zeros_like(yaw)])
        lift = -self.heave_stiffness * z - self.coupling * pitch
        force = jnp.stack([-self.drag, jnp.zeros_like(lift), lift])
        f = jnp.concatenate([gyroscopic + moment * pitch_axis, force])
        return f if u is None else f + u


def rotation(angles):
    """R = Rz(yaw) Ry(pitch) Rx(roll), from body to world axes."""
    (sr, sp, sy), (cr, cp, cy) = jnp.sin(angles), jnp.cos(angles)
    return jnp.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def waves(t, q, v):
    """Oblique waves: rolling and yawing moments [N m] and a side force [N], at 3 rad/s."""
    return jnp.array([3.0, 0.0, 8.0, 0.0, 25.0, 0.0]) * jnp.sin(3.0 * t)


# Compliant mount, in the order of the constraints: roll, yaw [N m/rad], x, y, z [N/m].
STIFFNESS = np.array([2e3, 2e3, 6e3, 6e3, 3e4])
DAMPING = np.array([20.0, 80.0, 200.0, 200.0, 500.0])
START_PITCH = np.radians(3.0)


def exact_pitch(ship, t):
    """Pitch with the rigid mount, released at rest from `START_PITCH`: the response to
    h = Im(A exp(i w t)) plus a decaying oscillation."""
    inertia, c, d = ship.inertia[1], ship.pitch_stiffness, ship.pitch_damping
    w = ship.heave_frequency
    response = -ship.coupling * ship.heave_amplitude / (c - inertia * w**2 + 1j * w * d)
    rate = (-d + np.sqrt(complex(d**2 - 4 * inertia * c))) / (2 * inertia)
    # Re(a exp(rate t)) takes up what the steady response leaves of the initial state.
    position, velocity = START_PITCH - response.imag, -(1j * w * response).imag
    a = complex(position, (rate.real * position - velocity) / rate.imag)
    steady = (response * np.exp(1j * w * np.asarray(t))).imag
    return steady + (a * np.exp(rate * np.asarray(t))).real


def steady_amplitudes(ship):
    """Amplitudes of heave and pitch with the compliant mount, once the start has died out."""
    w, k, d = ship.heave_frequency, STIFFNESS[4], DAMPING[4]
    dynamic = np.array(
        [
            [ship.heave_stiffness + k - ship.mass * w**2 + 1j * w * d, ship.coupling],
            [
                ship.coupling,
                ship.pitch_stiffness - ship.inertia[1] * w**2 + 1j * w * ship.pitch_damping,
            ],
        ]
    )
    return np.abs(np.linalg.solve(dynamic, [(k + 1j * w * d) * ship.heave_amplitude, 0]))


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    output = pathlib.Path(__file__).parent / "output/ship_in_towing_tank.png"
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    ship, t1, dt = Ship(), 20.0, 1e-3
    # Only the pitch is free to choose: `assemble` finds the vertical speed that h(t) asks for.
    start = mbd.assemble(ship, [0.0, START_PITCH, 0.0, 0.0, 0.0, 0.0])
    methods = {
        "rigid, Udwadia-Kalaba": mbd.UdwadiaKalaba(mbd.Cholesky()),
        "rigid, velocity impulse": mbd.VelocityImpulse(mbd.Cholesky()),
        "compliant, implicit penalty": mbd.ImplicitPenalty(STIFFNESS, DAMPING),
    }
    motions = {}
    for name, method in methods.items():
        motions[name] = mbd.simulate(
            ship,
            method,
            start,
            t1=t1,
            dt=dt,
            control=waves,
            saveat=diffrax.SaveAt(steps=10),
            progress=diffrax.TqdmProgressMeter(),
        )

    print(f"{t1:g} s in steps of {dt} s; pitch against the closed form of the rigid mount:")
    for name in list(methods)[:2]:
        sol = motions[name]
        error = np.abs(np.asarray(sol.q)[:, 1] - exact_pitch(ship, sol.t)).max()
        print(f"  {name:24s} error {error:.1e} rad, |Phi| {sol.phi_norm.max():.1e}")
    compliant = motions["compliant, implicit penalty"]
    last = np.asarray(compliant.t) > t1 - 2 * np.pi / float(ship.heave_frequency)
    found = np.ptp(np.asarray(compliant.q)[last][:, [5, 1]], axis=0) / 2
    exact = steady_amplitudes(ship)
    print("compliant mount, steady amplitudes against the frequency response:")
    print(f"  heave {found[0]:.5f} m ({exact[0]:.5f}, carriage {ship.heave_amplitude:.5f})")
    print(f"  pitch {np.degrees(found[1]):.4f} degrees ({np.degrees(exact[1]):.4f})")

    draw(ship, motions).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(ship, motions):
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    pitch, heave, force, deflection = figure.subplots(2, 2).flat
    rigid, impulse, compliant = motions
    styles = {rigid: "C0-", impulse: "C2--", compliant: "C1-"}
    t = np.asarray(motions[rigid].t)
    shown = t <= 8

    for name, style in styles.items():
        sol = motions[name]
        q, lam = np.asarray(sol.q)[shown], np.asarray(sol.multipliers)[shown]
        pitch.plot(t[shown], np.degrees(q[:, 1]), style, label=name)
        heave.plot(t[shown], 1e3 * q[:, 5], style, label=name)
        force.plot(t[shown], lam[:, 4], style, label=name)
    pitch.plot(t[shown], np.degrees(exact_pitch(ship, t[shown])), "k:", label="closed form, rigid")
    pitch.set(title="Pitch", xlabel="t [s]", ylabel="pitch [degrees]")
    pitch.legend(fontsize="small")
    heave.plot(t[shown], 1e3 * ship.heave(t[shown]), "k:", label="carriage, h(t)")
    heave.set(title="Heave", xlabel="t [s]", ylabel="z [mm]")
    force.set(title="Vertical force of the mount on the ship", xlabel="t [s]", ylabel="[N]")

    q = np.asarray(motions[compliant].q)[shown]
    deflection.plot(t[shown], 1e3 * q[:, 3], label="x [mm], drag")
    deflection.plot(t[shown], 1e3 * q[:, 4], label="y [mm], waves")
    deflection.plot(t[shown], 1e1 * np.degrees(q[:, 2]), label="yaw [0.1 degrees], waves")
    deflection.plot(t[shown], 1e1 * np.degrees(q[:, 0]), label="roll [0.1 degrees], waves")
    deflection.set(title="Deflections of the compliant mount", xlabel="t [s]")
    deflection.set_ylim(-6.5, 9)
    deflection.legend(fontsize="small", loc="upper right", ncols=2)
    for axis in (pitch, heave, force, deflection):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
