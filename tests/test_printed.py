"""Results print as sentences: each class that a public function returns, and each verdict."""

import inspect
import re
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from analysis_systems import Springs

import jaxmbd as mbd
from jaxmbd import analysis
from jaxmbd._compiler import to_jax

ROOMS = (
    mbd.analysis,
    mbd.estimate,
    mbd.identify,
    mbd.io,
    mbd.reports,
    mbd.rollout,
    mbd.trajopt,
    mbd.plots,
)

# What is no result: what the user builds models of, vectors that print their numbers as tuples do,
# and the pieces of algebra that new methods take apart.
NO_RESULTS = set(
    "Mechanism Body Inertia Contact CoordinateConstraint NearContacts PairPlan OfJoint Plane "
    "CoordinateSpring CoordinateActuator Chart Bases Basis Images LinearMap "
    "PiecewiseConstant PiecewiseLinear PiecewiseQuadratic Course Drive Bodies FlatBodies "
    "JointReading BodyTables ContactSet LogDensity Parameter Clock SimulationProblem Step "
    "Pose Twist Wrench BodyIndices ContactPoints "
    "Point Motion Dependents Correction ContactRows ContactLaw BlockDiagonal BlockRows BlockRoot "
    "CoupledBlocks ConstraintEquations ConstraintOperator ConstraintRows "
    "Live Page CompilationCache Loaded RESULTS".split()
)


def classes(hint):
    """Classes of this package in an annotation."""
    if inspect.isclass(hint) and hint.__module__.startswith("jaxmbd"):
        yield hint
    for part in typing.get_args(hint):
        yield from classes(part)


def returned(function):
    """Those that a function returns."""
    plain = inspect.unwrap(function)
    hint = plain.__annotations__.get("return")
    if isinstance(hint, str):
        hint = eval(hint, {**vars(mbd), **plain.__globals__})
    return set(classes(hint))


def results():
    """What public functions return and what public classes call a report or a result, with what
    their methods return and what is public in their fields."""
    every = [x for room in (mbd, *ROOMS) for name, x in vars(room).items() if name[0] != "_"]
    known = {thing for thing in every if inspect.isclass(thing)}
    new = {cls for cls in known if re.match("The (result|report) of", cls.__doc__ or "")}
    new = new.union(*(returned(thing) for thing in every if inspect.isfunction(thing)))
    found = set()
    while new:
        cls = new.pop()
        if cls in found or cls.__name__ in NO_RESULTS or cls.__name__.startswith("Abstract"):
            continue
        found.add(cls)
        for name, thing in vars(cls).items():
            function = thing.fget if isinstance(thing, property) else thing
            if not name.startswith("_") and inspect.isfunction(function):
                new |= returned(function)
        fields = inspect.get_annotations(cls).values()
        new |= known & {part for field in fields for part in classes(field)}
    return found


def test_each_result_prints_sentences():
    """None prints like a tuple, a dataclass or a module of arrays. `repr` is the same text."""
    found = {cls.__name__: cls for cls in results()}
    assert {"EquilibriumReport", "Kinematics"} <= set(found) and len(found) > 35
    assert not [name for name, cls in found.items() if cls.__str__ is not cls.__repr__]


def batch(*results):
    return jax.tree.map(lambda *x: to_jax(np.stack(x)), *results)


GOOD, BAD = mbd.RESULTS.successful, mbd.RESULTS.equilibrium_not_found


def report(result=GOOD, **fields):
    none = np.zeros((0, 3))
    usual = dict(multipliers=np.zeros(1), residual=np.array(2e-9), iterations=np.array(7))
    usual |= dict(contact_force=none, gap=none[:, 0], share=none[:, 0])
    given = {**usual, "stiffness": np.array([9.81, np.inf]), **fields}
    return analysis.EquilibriumReport(**jax.tree.map(to_jax, given), result=result)


def test_equilibria():
    text = str(report())
    assert text.startswith("equilibrium found: stable, the smallest stiffness is 9.81 1/s^2")
    assert "after 7 iterations" in text
    assert "equilibrium found: unstable" in str(report(stiffness=np.array([-1.0, 3.0])))
    assert str(report(BAD)).startswith("no equilibrium found: No equilibrium was found. The forces")
    force, share = np.array([[0.0, 0, 0], [5.0, 1, 0]]), np.array([0.0, 0.4])
    text = str(report(contact_force=force, gap=share, share=share))
    assert "1 of 2 contacts carry load" in text and "contact 1: 5 N, 40% of the" in text
    state = mbd.State(0.0, np.zeros(2), np.zeros(2), report())
    assert "q = [0., 0.]" in str(state) and "equilibrium found" in repr(state)
    several = batch(report(), report(BAD), report())
    assert str(several).startswith("2 of 3 successful: equilibrium found\n1 (1): No equilibrium")


def kinematics(*results):
    n = len(results)
    table, values = np.zeros((n, 2)), np.linspace(0.0, 1.0, n)
    numbers = values, values, table, table, table, np.linspace(0.5, 0.1, n), np.ones(n)
    return analysis.Kinematics(*map(to_jax, numbers), batch(*results))


def test_kinematics():
    assert str(kinematics(GOOD, GOOD, GOOD)).splitlines() == [
        "3 poses of a driven system, over 0 to 1",
        "3 of 3 successful: the drive determines the motion",
        "closest to a dead point at sample 2, 1: ratio 0.1",
    ]
    text = str(kinematics(GOOD, mbd.RESULTS.dead_point))
    assert "1 of 2 successful" in text and "1 (1): The driven Jacobian is singular" in text


def test_motions():
    t, still, none = map(to_jax, (np.arange(3.0), np.zeros((3, 2)), np.zeros((3, 0))))
    stats = {"num_steps": to_jax(np.array(20))}
    text = str(mbd.Solution(t, still, still, none, t, t, None, stats, GOOD))
    assert "motion from 0 to 2 s, 3 saved times\nsuccessful" in text and "num steps: 20" in text


def test_within_jit():
    """Where numbers are traced, results print their shapes."""
    seen = []

    def look(x):
        found = eqx.tree_at(lambda found: found.residual, report(), x)
        seen.append(str(eqx.tree_at(lambda found: found.result._value, found, x)))
        seen.append(str(mbd.State(0.0, jnp.stack([x, x]), jnp.stack([x, x]))))
        return x

    jax.make_jaxpr(look)(1.0)
    assert "EquilibriumReport of traced numbers" in seen[0] and "residual ()" in seen[0]
    assert "State of traced numbers" in seen[1] and "q (2,)" in seen[1]


def test_verdicts():
    assert str(GOOD) == "jaxmbd.RESULTS<successful>" and mbd.RESULTS[GOOD] == "successful"
    text = str(batch(GOOD, mbd.RESULTS.dead_point))
    assert "'successful'" in text and "The driven Jacobian" in text
    jax.make_jaxpr(lambda code: str(jax.tree.map(lambda _: code, GOOD)) and code)(1)


def test_linear_models():
    """Counted in words, with poles."""
    one, zero = np.eye(1), np.zeros(1)
    model = analysis.linearise(Springs(one, 4 * one, 0 * one), mbd.State(0.0, zero, zero), one[0])
    assert str(model).startswith("linear model: 2 deviations, 1 input, ")
    assert "successful" in str(model) and "2.j" in str(model)
