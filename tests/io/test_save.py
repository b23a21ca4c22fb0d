"""Models and motions written and read again."""

from collections import namedtuple

import jax
import numpy as np
import pytest
from inline_models import ARM, EQUALITIES, JOINTS, accelerations, mujoco, random_state, spec_of
from refusals import check_refused

import jaxmbd as mbd

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")


def assert_same_bits(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("text", [ARM, JOINTS, EQUALITIES], ids=["arm", "joints", "equalities"])
def test_json_is_exact(text, tmp_path):
    """The same structure and the same bits, so the same accelerations."""
    loaded = mbd.load(spec_of(text))
    mbd.save(loaded, tmp_path / "model.json")
    same = mbd.load(tmp_path / "model.json")
    assert_same_bits((loaded.mechanism, loaded.state), (same.mechanism, same.state))
    assert same.controls == loaded.controls and same.dropped == loaded.dropped
    assert same.dt == loaded.dt and list(same.sensors) == list(loaded.sensors)
    assert [v.kind for v in same.visuals] == [v.kind for v in loaded.visuals]
    qpos = np.linspace(0.1, 0.4, loaded.sizes[0])
    np.testing.assert_array_equal(same.state_from(qpos).q, loaded.state_from(qpos).q)


def test_a_mechanism_of_ones_own_is_written_exactly(tmp_path):
    """Not only what files of models hold."""
    hinge = mbd.Revolute("hinge", "ground", BODY, **ABOUT_Y, limits=(-1, np.inf))
    mechanism = mbd.Mechanism([BODY], [hinge], [mbd.Drag("drag", BODY, linear=0.1)])
    mbd.save(mechanism, tmp_path / "own.json")
    assert_same_bits(mechanism, mbd.load(tmp_path / "own.json").mechanism)


def test_functions_are_refused(tmp_path):
    push = mbd.PointForce("push", BODY, force_world=lambda t: np.ones(3))
    mechanism = mbd.Mechanism([BODY], forces=[push])
    for suffix, words in (
        ("json", 'PointForce "push" holds a function'),
        ("stl", "must end in one of"),
        ("csv", "give the `solution`"),
    ):
        check_refused(lambda x=suffix: mbd.save(mechanism, tmp_path / f"own.{x}"), words)


@pytest.mark.parametrize("text", [ARM, JOINTS], ids=["arm", "joints"])
def test_mjcf_moves_alike(text, tmp_path):
    """MuJoCo computes the same accelerations from what it is given back, at other names and
    frames. Tendons, springs of ball joints and forces in world axes are told as missing."""
    if text is JOINTS:
        text = text[: text.index("<tendon>")] + "</mujoco>"
    text = text.replace(' damping="0.2" stiffness="2"', "").replace(' gravcomp="0.7"', "")
    spec = spec_of(text)
    mbd.save(mbd.load(spec), tmp_path / "model.xml")
    again = mujoco.MjSpec.from_file(str(tmp_path / "model.xml"))
    before, after = (spec_of(text, soft=False), again)
    after.option.disableflags = before.option.disableflags
    m, n = before.compile(), after.compile()
    d, e = mujoco.MjData(m), mujoco.MjData(n)
    bodies = [m.body(b).name for b in range(1, m.nbody) if m.body_jntnum[b]]
    rng = np.random.default_rng(0)
    for _ in range(5):
        random_state(m, d, rng)
        turned = np.zeros(m.nv)
        mujoco.mj_differentiatePos(m, turned, 1.0, m.qpos0, d.qpos)
        mujoco.mj_resetData(n, e)
        mujoco.mj_integratePos(n, e.qpos, turned, 1.0)
        e.qvel[:], e.ctrl[:] = d.qvel, d.ctrl
        # The floor of the first model has no body of its own name in the second.
        theirs, ours = accelerations(m, d, bodies), accelerations(n, e, bodies)
        np.testing.assert_allclose(ours, theirs, atol=1e-11 * max(1.0, np.abs(theirs).max()))


def test_contacts_limits_and_loops_are_written(tmp_path):
    m = written(mbd.load(spec_of(ARM)), tmp_path / "arm.xml")
    assert m.npair == 3 and m.jnt_limited.tolist() == [True, False]
    with pytest.warns(UserWarning, match='CoordinateConstraint "geared"'):
        m = written(mbd.load(spec_of(EQUALITIES)), tmp_path / "loops.xml")
    kinds = "JOINT", "JOINT", "WELD", "WELD", "CONNECT"
    assert m.eq_type.tolist() == [int(getattr(mujoco.mjtEq, f"mjEQ_{kind}")) for kind in kinds]


ABOUT_Y = dict(point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
BODY = mbd.Body("b", mbd.Inertia.box(size=[0.3, 0.1, 0.1], mass=1 / 3), position=[0.15, 0, 0])


def written(mechanism, path):
    """What MuJoCo makes of it."""
    mbd.save(mechanism, path)
    return mujoco.MjModel.from_xml_path(str(path))


def test_springs_of_one_hinge_add(tmp_path):
    """2 (x - 0.5) + 6 (x + 0.1) = 8 (x - 0.05)."""
    springs = [
        mbd.TorsionSpring(name, "ground", BODY, stiffness=stiffness, rest_angle=rest, **ABOUT_Y)
        for name, stiffness, rest in (("s", 2.0, 0.5), ("t", 6.0, -0.1))
    ]
    hinge = mbd.Revolute("h", "ground", BODY, **ABOUT_Y)
    m = written(mbd.Mechanism([BODY], [hinge], springs), tmp_path / "two.xml")
    np.testing.assert_allclose([m.jnt_stiffness[0], m.qpos_spring[0]], [8.0, 0.05], rtol=1e-14)


def test_limits_of_one_hinge_meet(tmp_path):
    """The narrower ones count, and a law that MJCF cannot hold is told."""
    hinge = mbd.Revolute("h", "ground", BODY, **ABOUT_Y, limits=[-1.0, 1.0])
    wide = mbd.contacts.CoordinateLimit("wide", mbd.OfJoint(hinge), lower=-0.5, upper=2.0)
    limits = [mbd.JointLimit(hinge, restitution=0.5), wide]
    mechanism = mbd.Mechanism([BODY], [hinge], contacts=limits)
    with pytest.warns(UserWarning, match='JointLimit "h": its restitution'):
        m = written(mechanism, tmp_path / "two.xml")
    np.testing.assert_allclose(m.jnt_range[0], [-0.5, 1.0])


Motion = namedtuple("Motion", "t q v result")  # what a trajectory reads of a solution


@pytest.fixture(scope="module")
def motion():
    loaded = mbd.load(spec_of(ARM))
    states = [loaded.state_from([0.1 * i, 0.3], [1 / 3, float(i)]) for i in range(3)]
    q, v = (np.stack([getattr(state, name) for state in states]) for name in "qv")
    return loaded, Motion(np.arange(3) / 7, q, v, mbd.RESULTS.successful)


@pytest.mark.parametrize("suffix", ["npz", "csv", "zarr"])
def test_motions_come_back(motion, suffix, tmp_path):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    loaded, sol = motion
    mbd.save(loaded, tmp_path / f"motion.{suffix}", sol)
    found = mbd.io.load_trajectory(tmp_path / f"motion.{suffix}")
    for one, other in zip((found.t, found.q, found.v), sol, strict=False):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.columns["qpos"], loaded.qpos_qvel(sol)[0])


def test_a_failed_motion_is_told(motion, tmp_path):
    loaded, solution = motion
    failed = solution._replace(result=mbd.RESULTS.nonfinite_state)
    with pytest.warns(UserWarning, match="(?s)simulation failed, and motion.csv holds.*NaN"):
        mbd.save(loaded, tmp_path / "motion.csv", failed)
