"""What the canonical systems ask of the compiler, compared with the committed table `sizes.json`.

Time to compile follows the instructions of the program, and time to run follows what XLA cannot
compile as one function. Unlike seconds, their numbers are the same on every machine.

    python benchmarks/sizes.py            # the table, and what has changed
    python benchmarks/sizes.py --check    # ends in an error if a number has grown
    python benchmarks/sizes.py --renew    # writes the table; commit it with the reason
    python benchmarks/sizes.py bead box   # some of the systems

Each system is simulated for the first time in a process, as a user calls `simulate`. For some of
them the gradient of the end by two parameters is compiled as well. Counted are

- `programs`: how many programs the first call compiles,
- `equations`: of the traced program, before the compiler,
- `instructions`: of the largest of them after XLA's optimisation,
- `loops`, and those that are `not whole`, of which each operation is dispatched on its own,
- `calls`: of libraries, and scatters and sorts; a single one keeps the loops around it from being
  compiled whole.
"""

import argparse
import json
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What comes after the instructions, in LLVM, takes most of the time and changes none of them.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import equinox as eqx
import jax
import jax._src.compiler as compiler  # JAX tells how often it compiles, and not what
import jax.numpy as jnp
import jaxlib.version
from chains import chain, four_bar
from tqdm import tqdm

import jaxmbd as mbd

TABLE = pathlib.Path(__file__).with_name("sizes.json")
RENEW = "python benchmarks/sizes.py --renew"
# Shares by which a number may differ from the table.
ABOVE, BELOW = 0.02, 0.05


# --- systems -------------------------------------------------------------------------------------


class Bead(mbd.AbstractSystem):
    """On a helical wire that turns and breathes: three coordinates, two moving rows."""

    pitch: jax.Array

    def mass_matrix(self, q):
        return 0.2 * jnp.eye(3)

    def force(self, t, q, v, u):
        return 0.2 * jnp.array([0.0, 0.0, -9.81])

    def constraint(self, q, t):
        a = 2 * jnp.pi * q[2] / self.pitch + 2 * t + 0.3 * jnp.sin(5 * t)
        radius = 0.3 * (1 + 0.1 * jnp.sin(3 * t))
        return jnp.stack([q[0] - radius * jnp.cos(a), q[1] - radius * jnp.sin(a)])


def bead_at_rest() -> mbd.State:
    """Carried along by the wire."""
    height = {"fixed": [2], "fixed_velocities": [2]}
    return mbd.assemble(Bead(jnp.array(0.5)), jnp.array([0.3, 0.0, 1.0]), jnp.zeros(3), **height)


def six_joints() -> mbd.Mechanism:
    """As many kinds of joints in one chain."""
    box = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=1.0)
    b = [mbd.Body(f"{i}", box, position=[0.15 + 0.3 * i, 0.0, 0.0]) for i in range(6)]
    x, y, z = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    joints = [
        mbd.Revolute("hinge", "ground", b[0], point=[0.0, 0.0, 0.0], axis=y),
        mbd.Universal("cardan", b[0], b[1], point=[0.3, 0.0, 0.0], axes=[y, z]),
        mbd.Spherical("ball", b[1], b[2], point=[0.6, 0.0, 0.0]),
        mbd.Cylindrical("sleeve", b[2], b[3], point=[0.9, 0.0, 0.0], axis=x),
        mbd.Prismatic("slide", b[3], b[4], point=[1.2, 0.0, 0.0], axis=x),
        mbd.Fixed("weld", b[4], b[5], point=[1.5, 0.0, 0.0]),
    ]
    return mbd.Mechanism(b, joints)


def on_floor(shape: mbd.shapes.AbstractShape, height: float) -> mbd.Mechanism:
    inertia = mbd.Inertia.box(size=[0.2, 0.2, 0.1], mass=1.0)
    body = mbd.Body("body", inertia, position=[0.0, 0.0, height], velocity=[1.0, 0.0, 0.0])
    touch = mbd.Contact(
        "floor", "ground", body, mbd.HalfSpace(), shape, friction=0.4, restitution=0.5
    )
    return mbd.Mechanism([body], contacts=[touch])


# --- what is counted -----------------------------------------------------------------------------


class Case(NamedTuple):
    """`run`: the first call of a user. `end`: of two parameters, near 1."""

    run: Callable[[], Any]
    end: Callable[[Any], Any]
    differentiated: bool = True


def simulated(
    system: Any, state: mbd.State, method: Any, dt: float, scaled: str, **options: Any
) -> Case:
    def motion(system, state):
        return mbd.simulate(system, method, state, dt=dt, num_steps=200, throw=False)

    def end(x):
        changed = eqx.tree_at(lambda s: getattr(s, scaled), system, replace_fn=lambda a: a * x[0])
        return jnp.sum(motion(changed, mbd.State(0.0, state.q, state.v * x[1])).q[-1] ** 2)

    return Case(lambda: motion(system, state), end, **options)


def of_mechanism(mechanism: mbd.Mechanism, method: Any, dt: float = 1e-3, **options: Any) -> Case:
    return simulated(mechanism, mechanism.state(), method, dt, "gravity", **options)


def in_lanes() -> Case:
    """Samples of the chain side by side in the vector lanes."""
    mechanism = chain(5)
    start = mechanism.state()

    def end(x):
        state = mbd.State(0.0, start.q, start.v * x)
        options = {"dt": 2e-3, "num_steps": 200, "throw": False}
        return mbd.simulate(mechanism, mbd.VelocityImpulse(), state, **options).q[-1]

    samples = jnp.linspace(0.5, 1.5, 64)

    def run():
        return mbd.rollout.run(lambda x, key: end(x), samples, progress=False).outputs

    return Case(run, lambda x: end(x[0]), differentiated=False)


LOCATED = mbd.ContactImpulse(impacts=mbd.Located(2))
CASES: dict[str, Callable[[], Case]] = {
    "bead": lambda: simulated(
        Bead(jnp.array(0.5)), bead_at_rest(), mbd.UdwadiaKalaba(), 1e-3, "pitch"
    ),
    "chain5": lambda: of_mechanism(chain(5), mbd.VelocityImpulse(), 2e-3),
    "chain5_rk4": lambda: of_mechanism(chain(5), mbd.UdwadiaKalaba(), 2e-3, differentiated=False),
    "four_bar": lambda: of_mechanism(four_bar(), mbd.VelocityImpulse()),
    "six_joints": lambda: of_mechanism(six_joints(), mbd.VelocityImpulse(), differentiated=False),
    "box": lambda: of_mechanism(
        on_floor(mbd.Box(size=[0.4, 0.4, 0.2]), 0.05), mbd.ContactImpulse(), differentiated=False
    ),
    "impact": lambda: of_mechanism(on_floor(mbd.Sphere(0.1), 0.11), LOCATED),
    "lanes": in_lanes,
}


class Compiled:
    """A context that keeps the optimised text of each program that is compiled within it."""

    def __enter__(self):
        jax.clear_caches()
        self.texts, self._ask = [], compiler.compile_or_get_cached

        def noted(*args, **kwargs):
            made = self._ask(*args, **kwargs)
            self.texts.append(made.hlo_modules()[0].to_string())
            return made

        compiler.compile_or_get_cached = noted
        return self

    def __exit__(self, *_):
        compiler.compile_or_get_cached = self._ask

    def counts(self) -> dict[str, int]:
        text = max(self.texts, key=len)
        loops = text.count(" while(")
        return {
            "programs": len(self.texts),
            "instructions": text.count(" = "),
            "loops": loops,
            "not whole": loops - text.count('xla_cpu_small_call="true"'),
            "calls": len(re.findall(r" (?:custom-call|scatter|sort|fft)\(|kind=kCustom", text)),
        }


def equations(jaxpr: Any) -> int:
    """With those of the programs within it."""
    count = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                count += equations(getattr(inner, "jaxpr", inner))
    return count


def _is_program(x: Any) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def counts(name: str) -> dict[str, dict[str, int]]:
    """Of the motion and of its gradient."""
    case, x = CASES[name](), jnp.ones(2)
    with Compiled() as compiled:
        jax.block_until_ready(case.run())
    traced = jax.jit(case.end).trace(x)
    found = {name: compiled.counts() | {"equations": equations(traced.jaxpr.jaxpr)}}
    if case.differentiated:
        traced = jax.jit(jax.grad(case.end)).trace(x)
        with Compiled() as compiled:
            traced.lower().compile()
        more = {"equations": equations(traced.jaxpr.jaxpr)}
        found[f"{name}, gradient"] = compiled.counts() | more
    return found


# --- the table -----------------------------------------------------------------------------------


def changes(before: dict[str, int], now: dict[str, int], same_compiler: bool) -> dict[str, str]:
    """Numbers that have grown or shrunk more than they may, each as `grown` or `shrunk`."""
    found = {}
    for name, new in now.items():
        old = before[name]
        exact = name in ("programs", "not whole", "calls")
        # Another compiler makes other instructions, but is to compile all loops whole as well.
        if not same_compiler and not exact:
            continue
        above, below = (0.0, 0.0) if exact else (ABOVE, BELOW)
        if new > old * (1 + above):
            found[name] = "grown"
        elif new < old * (1 - below):
            found[name] = "shrunk"
    return found


def shown(rows: dict[str, dict[str, int]], before: dict[str, dict[str, int]]) -> str:
    """The table, with the numbers of before where they differ."""
    columns = list(next(iter(rows.values())))
    lines = [" ".join([f"{'':22s}", *(f"{column:>17s}" for column in columns)])]
    for case, row in rows.items():
        cells = []
        for column, new in row.items():
            old = before.get(case, {}).get(column, new)
            cells.append(f"{new}" if old == new else f"{new} ({old})")
        lines.append(" ".join([f"{case:22s}", *(f"{cell:>17s}" for cell in cells)]))
    return "\n".join(lines)


def written(table: dict[str, Any]) -> str:
    """As JSON, with a line for each case."""
    rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in table["cases"].items())
    return f'{{"jaxlib": {json.dumps(table["jaxlib"])}, "cases": {{\n{rows}\n}}}}\n'


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="SYSTEM", help=", ".join(CASES))
    parser.add_argument(
        "--check", action="store_true", help="end in an error if a number has grown"
    )
    parser.add_argument("--renew", action="store_true", help="write the table")
    options = parser.parse_args()
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"jaxlib": "", "cases": {}}
    before = table["cases"]
    compiler_now = jaxlib.version.__version__
    same = table["jaxlib"] == compiler_now
    rows = {}
    for name in tqdm(options.cases or CASES, unit="system", disable=None):
        rows |= counts(name)
    print(shown(rows, before))
    if options.renew:
        kept = {k: v for k, v in before.items() if same and k not in rows}
        cases = {k: (rows | kept)[k] for k in [*before, *rows] if k in rows or k in kept}
        TABLE.write_text(written({"jaxlib": compiler_now, "cases": cases}))
        print(f"written to {TABLE}")
        return
    if not same:
        print(f"The table is of jaxlib {table['jaxlib']}, and this is {compiler_now}: only what is")
        print("not compiled whole and the number of programs are compared.")
    found = set()
    for case, row in rows.items():
        if case not in before:
            print(f"{case} is not in the table.")
            found.add("grown")
            continue
        for name, how in changes(before[case], row, same).items():
            print(f"{case}: {name} {how} from {before[case][name]} to {row[name]}")
            found.add(how)
    if "grown" in found:
        print(f"If it is worth that, renew the table and say why in the commit: {RENEW}")
    elif found:
        print(f"Renew the table, so that it stays that small: {RENEW}")
    raise SystemExit(int("grown" in found and options.check))


if __name__ == "__main__":
    main()
