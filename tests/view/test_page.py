"""The content of the pages of `view`: nodes, poses, curves, arrows and size."""

import html
import sys
from http.client import HTTPConnection

import equinox as eqx
import numpy as np
import pytest
from refusals import check_refused, refusals
from swinging import (
    LOWER,
    TIMES,
    UPPER,
    ball,
    content,
    coordinates,
    double_pendulum,
    solution,
    solution_of,
)

import jaxmbd as mbd

viser = pytest.importorskip("viser", reason="the viewer needs viser: pip install jaxmbd[view]")

# Pages hold numbers in single precision.
CLOSE = dict(rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def pendulum():
    return double_pendulum()


@pytest.fixture(scope="module")
def motion(pendulum):
    return solution(mechanism=pendulum)


@pytest.fixture(scope="module")
def page(pendulum, motion):
    motions = {"first": motion, "second": (pendulum, solution(mechanism=pendulum, shift=0.1))}
    return mbd.view(pendulum, motions, visuals=[ball()], trails=["lower"], title="a <b>")


@pytest.fixture(scope="module")
def header(page):
    return content(page.html)


def test_poses_are_those_of_the_solution(header, motion):
    assert header["pictures"] == len(TIMES)  # not more than there are saved times
    assert (header["start"], header["end"]) == (TIMES[0], TIMES[-1])
    found = header["runs"][0]["poses"].reshape(len(TIMES), 2, 7)
    expected = np.moveaxis(np.asarray(motion.q).reshape(len(TIMES), 7, 2), 1, 2)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_between_saved_times_poses_are_interpolated(pendulum):
    # Two saved times do not make more than two pictures, but uneven ones are filled up.
    times = np.concatenate([[0.0, 0.3], np.linspace(1.0, 2.0, 11)])
    motion = solution(times, pendulum)
    header = content(mbd.view(pendulum, motion, fps=10.0, forces=False).html)
    assert header["pictures"] == 21
    found = header["runs"][0]["poses"].reshape(21, 2, 7)
    q = coordinates(times)[0].reshape(-1, 7, 2)
    middle = 1 / 3 * q[0] + 2 / 3 * q[1]  # at 0.2 s
    middle[3:] /= np.linalg.norm(middle[3:], axis=0)
    np.testing.assert_allclose(found[2], middle.T, **CLOSE)


def test_signs_of_quaternions_do_not_matter(pendulum, motion, header):
    q = np.array(motion.q).reshape(-1, 7, 2)
    q[10:20, 3:, 0] *= -1
    flipped = solution_of(TIMES, q.reshape(len(TIMES), -1), motion.v, motion.multipliers)
    found = content(mbd.view(pendulum, flipped).html)["runs"][0]["poses"]
    np.testing.assert_allclose(found, header["runs"][0]["poses"], **CLOSE)


def test_nodes_of_the_scene(header):
    nodes = {m["name"]: m for m in header["messages"] if "props" in m}
    first, second = header["runs"]
    assert [body["name"] for body in first["bodies"]] == ["upper", "lower", "ground"]
    assert all(body["node"] in nodes for run in header["runs"] for body in run["bodies"])
    # The ball on the lower body, bars on the upper one, pins, supports, and the spring.
    shapes = [x["type"] for name, x in nodes.items() if name.startswith(first["root"] + "/")]
    assert shapes.count("IcosphereMessage") == 2  # the ball, and the centre of the upper body
    assert shapes.count("SkinnedMeshMessage") == 1
    assert set(first["owners"].values()) == {"upper", "lower", "hinge", "elbow", "spring"}
    assert set(first["groups"]) == {"bodies", "joints", "springs", "names", "axes"}
    # The second run has bodies and springs only.
    assert set(second["groups"]) == {"bodies", "springs"}
    balls = [x for x in nodes.values() if x["type"] == "IcosphereMessage"]
    assert [255, 0, 0] in [x["props"]["color"] for x in balls]


def test_a_spring_stretches_between_its_points(header):
    (link,) = header["runs"][0]["links"]
    expected = [[2, 0.6, 0.0, 0.0], [1, 0.0, 0.0, -LOWER / 2]]
    np.testing.assert_allclose(link["ends"], expected, atol=1e-12)


def test_curves_are_those_of_the_reports(header, pendulum, motion):
    curves = {(c["kind"], c["name"]): c["values"] for c in header["runs"][0]["curves"]}
    path = mbd.reports.joint_path(pendulum, motion, "elbow")
    np.testing.assert_allclose(curves["angle [rad]", "elbow"], np.asarray(path)[:, 0], **CLOSE)
    # Energies of rods in the plane, and of the spring.
    q, v = np.asarray(motion.q).reshape(-1, 7, 2), np.asarray(motion.v).reshape(-1, 6, 2)
    moment = (0.04**2 + UPPER**2) / 12
    kinetic = (np.sum(v[:, :3] ** 2, axis=(1, 2)) + moment * np.sum(v[:, 4] ** 2, axis=1)) / 2
    stretch = np.linalg.norm(coordinates(TIMES)[1] - [0.6, 0, 0], axis=1) - 0.3
    total = kinetic + 9.81 * np.sum(q[:, 2], axis=1) + 10.0 * stretch**2
    np.testing.assert_allclose(curves["energy [J]", "kinetic"], kinetic, rtol=1e-5)
    np.testing.assert_allclose(curves["energy [J]", "total"], total, rtol=1e-5)


@eqx.filter_jit
def reactions(mechanism, motion):
    return [mbd.reports.reactions(mechanism, motion, joint) for joint in ("hinge", "elbow")]


def test_forces_of_joints_are_those_of_the_reports(header, pendulum, motion):
    (arrows,) = header["runs"][0]["arrows"]
    vectors = arrows["vectors"].reshape(len(TIMES), 2, 3)
    curves = {(c["kind"], c["name"]): c["values"] for c in header["runs"][0]["curves"]}
    for i, (joint, wrench) in enumerate(zip(("hinge", "elbow"), reactions(pendulum, motion))):
        np.testing.assert_allclose(vectors[:, i], wrench.force, **CLOSE)
        # The arrow starts at the joint: on the upper body's or the lower body's upper end.
        body, *point = arrows["on"][i]
        np.testing.assert_allclose(point, [0, 0, (UPPER if body == 0 else LOWER) / 2], atol=1e-12)
        expected = np.linalg.norm(np.asarray(wrench.torque), axis=1)
        np.testing.assert_allclose(
            curves["joint torque [N m]", joint], expected, rtol=1e-5, atol=1e-5
        )


def test_the_page_needs_no_other_file(page):
    assert "<title>a &lt;b&gt;</title>" in page.html
    head = page.html[: page.html.index("<script")]
    assert "http://" not in head.replace("http://www.w3.org", "") and "src=" not in head


def test_a_pose_alone_has_no_time(pendulum):
    header = content(mbd.view(pendulum).html)
    assert header["pictures"] == 1 and header["runs"][0]["curves"] == []
    state = mbd.State(0.0, coordinates(TIMES[:1])[0][0], np.zeros(12))
    found = content(mbd.view(pendulum, state).html)["runs"][0]["poses"].reshape(2, 7)
    np.testing.assert_allclose(found, np.asarray(state.q).reshape(7, 2).T, **CLOSE)


def test_after_a_failure_only_the_motion_before_it_is_plotted(pendulum, motion):
    q = np.array(motion.q)
    q[20:] = q[20]  # held
    failed = solution_of(TIMES, q, motion.v, motion.multipliers, mbd.RESULTS.nonfinite_state)
    assert content(mbd.view(pendulum, failed, forces=False).html)["end"] == TIMES[20]


@pytest.mark.slow
def test_thirty_bodies_over_ten_seconds_take_less_than_3_mb():
    inertia, y = mbd.Inertia.box(size=[0.04, 0.04, 0.1], mass=1.0), [0.0, 1.0, 0.0]
    bodies = [mbd.Body(f"{i}", inertia, position=[0, 0, -0.1 * i - 0.05]) for i in range(30)]
    joints = [
        mbd.Revolute(f"hinge {i}", *ends, point=[0, 0, -0.1 * i], axis=y)
        for i, ends in enumerate(zip(["ground", *bodies[:-1]], bodies, strict=True))
    ]
    chain = mbd.Mechanism(bodies, joints)
    random, times = np.random.default_rng(0), np.linspace(0, 10, 601)
    # Noise in all numbers compresses as little as any motion.
    q = np.asarray(chain.state().q) + 0.1 * random.normal(size=(601, 210))
    lam, v = random.normal(size=(601, 150)), random.normal(size=(601, 180))
    page = mbd.view(chain, solution_of(times, q, v, lam))
    assert content(page.html)["pictures"] == 601
    assert len(page.html) - len(mbd.view(double_pendulum()).html) < 3e6


def test_saving(page, tmp_path):
    path = page.save(tmp_path / "motion.html")
    assert path.read_text(encoding="utf-8") == page.html
    check_refused(lambda: page.save(tmp_path / "motion.gif"), "`path` must end in .html")
    check_refused(lambda: page.save(tmp_path / "no" / "motion.html"), "folder that is there")


def test_serving_and_notebooks(page):
    host, port = page.serve().removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/")
    assert connection.getresponse().read().decode() == page.html
    page.close()
    cell = page._repr_html_()
    assert cell.startswith("<iframe srcdoc=") and html.escape(page.html, quote=True) in cell


def test_without_viser_the_remedy_is_named(pendulum, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r"pip install jaxmbd\[view\]"):
        mbd.view(pendulum)


@refusals(
    ("one saved time", "only one saved time", lambda: _view(solution(TIMES[:1]))),
    ("no motions", "There is no motion", lambda: _view({})),
    ("another thing", "must be a `Solution` or a `State`", lambda: _view({"a": 3.0})),
    ("another mechanism", "must belong to a `Mechanism`", lambda: _view({"a": (3, solution())})),
    ("unknown body", 'There is no body "hand"', lambda: _view(solution(), trails=["hand"])),
    ("controls", "are for a `Stepper`", lambda: _view(solution(), controls={"u": (0, 1)})),
    ("visuals", "bodies of the mechanism", lambda: _view(None, visuals=[ball("hand")])),
    ("fps", "`fps`", lambda: _view(None, fps=0.0)),
)
def test_bad_inputs(words, call):
    check_refused(call, words)


def _view(motion, **options):
    return mbd.view(double_pendulum(), motion, **options)
