"""The commands of `jaxmbd` on one small model. All that simulate share one compiled program."""

import dataclasses
import re
import warnings

import equinox as eqx
import jax
import numpy as np
import pytest
from click.testing import CliRunner

import jaxmbd as mbd
from jaxmbd._command_line import models, runs
from jaxmbd._command_line.commands import cli
from jaxmbd._command_line.fit import _Entry
from jaxmbd._compiler import to_jax

pytest.importorskip("mujoco", reason="models are read with MuJoCo: pip install jaxmbd[io]")

MODEL = """
<mujoco model="arm">
  <option timestep="0.002" integrator="RK4"/>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1" contype="0" conaffinity="0"/>
      <body name="forearm" pos="0.4 0 0">
        <joint name="elbow" axis="0 1 0" damping="0.02"/>
        <site name="hand"/>
        <geom type="box" pos="0.15 0 0" size="0.15 0.02 0.02" mass="0.6" contype="0"
              conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="drive" joint="elbow" ctrlrange="-2 2"/></actuator>
  <sensor><gyro name="gyro" site="hand"/></sensor>
  <keyframe><key name="up" qpos="-1.2 0.3" ctrl="0.5"/></keyframe>
</mujoco>
"""
SIMULATION = ["--t1", "0.5", "--control", "drive=0.5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "arm.xml").write_text(MODEL)
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """Run a command in the folder of the model, and check its exit code."""

    def run(*arguments, code=0):
        monkeypatch.chdir(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(cli, [str(x) for x in arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


def refused(run, words, *arguments, code=1):
    """One line with these words."""
    output = run(*arguments, code=code)
    assert output.count("\n") == 1 and output.startswith("Error: "), output
    assert re.search(words, output), output


@pytest.mark.parametrize("command", [(), *((x,) for x in cli.commands)])
def test_help_has_examples(run, command):
    assert re.search(r"Examples?:\n\s+jaxmbd ", run(*command, "--help"))


def test_inspect(run):
    told = run("inspect", "arm.xml")
    for text in ("upper  1 kg", "shoulder  Revolute, ground - upper", "2 freedoms", "0 redundant"):
        assert text in told
    assert "mass         1.6 kg" in told and "drive  -2 to 2" in told and "keyframes    up" in told
    # 0.2 m and 0.55 m along the arm, 1 m high.
    x, y, z = map(float, re.search(r"centre +(.*) m", told)[1].split(", "))
    np.testing.assert_allclose((x, y, z), ((0.2 + 0.6 * 0.55) / 1.6, 0, 1), atol=1e-6)


def test_models_of_save_are_read(run, folder):
    mbd.save(mbd.load(folder / "arm.xml"), folder / "arm.json")
    told = run("inspect", "arm.json")
    assert "shoulder  Revolute, ground - upper" in told and "drive  -2 to 2" in told
    refused(run, "MuJoCo reads MJCF and URDF", "compare", "arm.json")


def test_simulate_writes_the_motion(run, folder):
    told = run("simulate", "arm.xml", *SIMULATION, "--output", "run.npz")
    assert "simulated 0.5 s" in told and "wrote run.npz" in told
    run("simulate", "arm.xml", *SIMULATION, "--output", "run.csv")
    with np.load(folder / "run.npz") as file:
        t, q = file["t"], file["q"]
    assert t[0] == 0 and t[-1] == pytest.approx(0.5) and np.all(np.diff(t) > 0)
    with open(folder / "run.csv") as file:
        assert file.readline().strip() == "t,shoulder,elbow"
        table = np.loadtxt(file, delimiter=",")
    loaded = mbd.load(folder / "arm.xml")
    angle = loaded.mechanism.joint_coordinates(to_jax(q), "elbow")
    np.testing.assert_allclose(table[:, 0], t)
    np.testing.assert_allclose(table[:, 2], np.asarray(angle)[:, 0], atol=1e-12)


def test_view_shows_a_motion_from_a_file(run, folder):
    pytest.importorskip("viser", reason="the viewer needs viser: pip install jaxmbd[view]")
    run("simulate", "arm.xml", *SIMULATION, "--output", "run.npz")
    assert "wrote page.html" in run("view", "run.npz", "--output", "page.html")
    assert "jaxmbd-content" in (folder / "page.html").read_text(encoding="utf-8")


def test_a_failed_motion_stays_failed_in_its_file(run, folder, monkeypatch):
    simulate = models.Options.motion

    def failed(*arguments):
        solution = simulate(*arguments)
        return eqx.tree_at(lambda s: s.result, solution, mbd.RESULTS.nonfinite_state)

    with monkeypatch.context() as patch:
        patch.setattr(models.Options, "motion", failed)
        arguments = ("arm.xml", *SIMULATION, "--output", "failed.npz")
        assert "is held from there" in run("simulate", *arguments, code=models.DOUBTFUL)
    model, contacts, solution = runs.read(str(folder / "failed.npz"), None)
    assert contacts == [] and model.endswith("arm.xml")
    assert models.verdict(solution) == mbd.RESULTS[mbd.RESULTS.nonfinite_state]


def test_all_numbers_of_a_motion_come_back(run, folder):
    """`jaxmbd simulate` and `mbd.save` write one format."""
    run("simulate", "arm.xml", *SIMULATION, "--output", "run.npz")
    _, _, motion = runs.read(str(folder / "run.npz"), None)
    numbers = np.random.default_rng(0).normal(size=(3, len(motion.t), 2, 3))
    loads = mbd.reports.ContactLoads(*map(to_jax, numbers))
    motion = dataclasses.replace(motion, contact_force=loads.mean, contact_loads=loads)
    mbd.save(mbd.load(folder / "arm.xml"), folder / "saved.npz", motion)
    model, _, again = runs.read(str(folder / "saved.npz"), None)
    assert model.endswith("arm.xml")
    before, after = (jax.tree.leaves(x) for x in (motion, again))
    assert len(before) == 11
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)


def test_compare_with_mujoco(run):
    told = run("compare", "arm.xml", *SIMULATION)
    largest = float(re.search(r"largest difference (\S+),", told)[1])
    # A step of first order against RK4: within a few steps of 0.002 s times rates of 5 rad/s.
    assert 0 < largest < 0.03
    told = run("compare", "arm.xml", *SIMULATION, "--tolerance", "1e-9", code=models.DOUBTFUL)
    assert "more than 1e-09" in told


@pytest.mark.parametrize(
    "words, arguments",
    [
        ("no file 'none.xml'", ["inspect", "none.xml"]),
        ("no keyframe 'down'.*up", ["simulate", "arm.xml", "--keyframe", "down"]),
        ("NAME=VALUE.*drive", ["simulate", "arm.xml", "--control", "motor=1"]),
        ("NAME=VALUE.*shoulder.*elbow", ["simulate", "arm.xml", "--start", "knee=1"]),
        ("--start needs a finite number", ["simulate", "arm.xml", "--start", "elbow=far"]),
        ("must be positive", ["simulate", "arm.xml", "--t1", "-1"]),
        ("must end in .npz or .csv or .zarr", ["simulate", "arm.xml", "--output", "run.txt"]),
        ("folder that is there", ["simulate", "arm.xml", "--output", "no/run.npz"]),
        ("no file 'none.npz'", ["view", "none.npz"]),
        ("no motion of `jaxmbd simulate`", ["view", "other.npz"]),
        ("must end in .html", ["view", "arm.xml", "--output", "page.gif"]),
    ],
)
def test_errors_are_one_line_with_code_1(run, folder, words, arguments):
    np.savez(folder / "other.npz", x=np.zeros(3))
    refused(run, words, *arguments)


def test_contacts_to_keep(folder, capsys):
    ball = '<body pos="{} 0 1"><freejoint/><geom name="{}" size="0.1"/></body>'
    bodies = '<geom name="floor" type="plane" size="1 1 1"/>'
    bodies += ball.format(0, "a") + ball.format(1, "b")
    text = f'<mujoco><option gravity="0 1 -2"/><worldbody>{bodies}</worldbody></mujoco>'
    (folder / "balls.xml").write_text(text)
    path = str(folder / "balls.xml")
    assert len(models.load(path).mechanism.contacts) == 3
    kept = models.load(path, contacts="floor").mechanism
    assert len(kept.contacts) == 2
    np.testing.assert_array_equal(kept.gravity, [0.0, 1.0, -2.0])
    assert "1 contacts without a floor are left out" in capsys.readouterr().err
    assert len(models.load(path, contacts="none").mechanism.contacts) == 0


def test_a_start_is_a_pose_of_the_joints(folder):
    """From the pose of the file or a keyframe, each coordinate by its name."""
    path = str(folder / "arm.xml")
    for keyframe, expected in ((None, [0.0, 0.3]), ("up", [-1.2, 0.3])):
        found = models.load(path, keyframe, start=["elbow=0.3"])
        np.testing.assert_allclose(found.loaded.qpos_qvel(found.state)[0], expected, atol=1e-12)


@pytest.fixture
def closed(monkeypatch):
    """What the loops were closed from, and what was kept."""
    asked = {}
    monkeypatch.setattr(mbd, "place_bodies", lambda mechanism, values: values)
    monkeypatch.setattr(mbd, "close_joints", lambda _, start, **x: asked.update(start=start, **x))
    return asked


def test_a_start_closes_the_loops(folder, closed):
    """The joint that is turned stays."""
    pin = '<equality><connect name="pin" body1="forearm" anchor="0.3 0 0"/></equality>'
    (folder / "pinned.xml").write_text(MODEL.replace("<keyframe>", f"{pin}<keyframe>"))
    found = models.load(str(folder / "pinned.xml"), contacts="none", start=["shoulder=0.4"])
    qpos, _ = found.loaded.qpos_qvel(closed["start"])
    np.testing.assert_allclose(qpos, [0.4, 0.0], atol=1e-12)
    assert closed["keep"] == ["shoulder"]


def test_a_start_of_a_model_without_a_tree(folder, closed):
    """Of SDFormat, whose joints have names but no place in qpos."""
    link = """<link name="{0}"><pose>0 0 {1} 0 0 0</pose><inertial/></link>"""
    hinge = """<joint name="{0}" type="revolute"><parent>{1}</parent><child>{2}</child>
      <axis><xyz>0 1 0</xyz></axis></joint>"""
    parts = link.format("one", 0) + link.format("two", 1)
    parts += hinge.format("a", "world", "one") + hinge.format("b", "one", "two")
    (folder / "two.sdf").write_text(f'<sdf version="1.9"><model name="two">{parts}</model></sdf>')
    models.load(str(folder / "two.sdf"), contacts="none", start=["b=0.5"])
    assert closed == {"start": {"b": 0.5}}


@pytest.mark.slow
def test_fit_finds_a_mass(run, folder):
    """From angles of a motion with a forearm of 0.9 kg."""
    (folder / "heavy.xml").write_text(MODEL.replace('mass="0.6"', 'mass="0.9"'))
    run("simulate", "heavy.xml", *SIMULATION, "--output", "heavy.csv")
    header, *lines = (folder / "heavy.csv").read_text().splitlines()
    rows = [f"{header},control:drive", *(f"{line},0.5" for line in lines[::10])]
    (folder / "data.csv").write_text("\n".join(rows))
    toml = '[parameters]\n"bodies[forearm].inertia.mass" = {lower = 0.1, upper = 5.0}\n'
    (folder / "mass.toml").write_text(toml)
    given = ["fit", "arm.xml", "--data", "data.csv", "--parameters", "mass.toml"]
    told = run(*given, "--output", "mass.json", "--report", "mass.html")
    estimate = mbd.identify.load_estimate(folder / "mass.json")
    assert estimate["values"]["bodies[forearm].inertia.mass"] == pytest.approx(0.9, abs=1e-3)
    assert "arm.xml fitted to data.csv" in (folder / "mass.html").read_text(encoding="utf-8")
    refused(run, "--report must end in .html", *given, "--report", "mass.pdf")
    mass = float(re.search(r"inertia\.mass +(\S+)", told)[1])
    assert mass == pytest.approx(0.9, abs=1e-3)


GRAVITY, ROWS = "[parameters]\ngravity = {}\n", "t,elbow\n0,0\n1,0\n"
BOTH = GRAVITY.replace("{}", "{lower=-1, upper=1, positive=true}")


@pytest.mark.parametrize(
    "words, toml, data",
    [
        ("is no TOML", "[parameters", ROWS),
        ("table .parameters.", "x = 3\n", ROWS),
        ("both `lower` and `upper`", "[parameters]\ngravity = {lower=1}\n", ROWS),
        ("bounds and `positive`", BOTH, ROWS),
        ("There is no parameter", "[parameters]\nmass = {}\n", ROWS),
        ('column "t"', GRAVITY, "time,elbow\n0,0\n1,0\n"),
        ('column "knee"', GRAVITY, "t,knee\n0,0\n1,0\n"),
        (r'bad.csv has a column "gyro\[x\]".* name of a sensor', GRAVITY, "t,gyro[x]\n0,0\n1,0\n"),
        (r'bad.csv has a column "gyro\[-1\]"', GRAVITY, "t,gyro[-1]\n0,0\n1,0\n"),
        ("'x' in row 3", GRAVITY, "t,elbow\n0,0\n1,x\n"),
        ("3 cells in row 2", GRAVITY, "t,elbow\n0,0,3\n1,0\n"),
        ("at least two rows", GRAVITY, "t,elbow\n0,0\n"),
        ("no measurement", GRAVITY, "t\n0\n1\n"),
    ],
)
def test_bad_data_is_told_in_one_line(run, folder, words, toml, data):
    (folder / "bad.toml").write_text(toml)
    (folder / "bad.csv").write_text(data)
    refused(run, words, "fit", "arm.xml", "--data", "bad.csv", "--parameters", "bad.toml")


def test_a_column_is_one_number_of_its_sensor():
    """Where JAX would return the last one."""

    def entry(column, numbers):
        return _Entry("data.csv", column, lambda sample: np.arange(numbers))

    entries = [entry("gyro[2]", 3), entry("angle", 1), entry("angle[0]", 1)]
    found = jax.jit(lambda t: [read(t) for read in entries])(0.0)
    assert list(map(float, found)) == [2.0, 0.0, 0.0]
    with pytest.raises(ValueError, match=r'data.csv .*"gyro\[3\]", but its sensor has 3 numbers'):
        jax.eval_shape(entry("gyro[3]", 3), 0.0)
    with pytest.raises(ValueError, match=r'"gyro" for a sensor with 3 numbers: add \[0\]'):
        jax.eval_shape(entry("gyro", 3), 0.0)
