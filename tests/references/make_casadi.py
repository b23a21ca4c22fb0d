"""Reference values by CasADi (Andersson et al., 2019) with the interior-point optimiser IPOPT
(Waechter and Biegler, 2006).

    pip install casadi numpy
    python make_casadi.py        # writes casadi.json

A cart with two stacked pendulums is held upright. All states and controls of a plan are unknowns,
and the steps of RK4 with a control held through each are equations, so errors do not grow during
the search. The least cost of the first plan is that for the model. The motion is that of a plant
which is heavier and is pushed by a gust from 0.5 to 0.6 s, with a plan in each interval. The costs
of the coordinates and speeds are `weights`, and ten times these at the end; that of the force is
`effort`; costs are summed by left rectangles.
"""

import casadi
import numpy as np
from reference_file import write

DT, STEPS, LIMIT, PERIODS, G = 0.03, 40, 25.0, 60, 9.81
WEIGHTS = [1.0, 10.0, 10.0, 0.1, 0.1, 0.1], [1.0, 20.0, 20.0, 0.3, 0.3, 0.3]
NAMES = "lean", "masses", "lengths", "weights", "effort", "gust", "heavier"
REPORTED = [0.1, -0.06], [1.0, 0.25, 0.15], [0.5, 0.45], WEIGHTS[0], 0.01, 10.0, 1.04
SHORT = [0.08, 0.12], [1.1, 0.2, 0.25], [0.4, 0.4], WEIGHTS[1], 0.003, -8.0, 0.95
REPORTED, SHORT = (dict(zip(NAMES, case)) for case in (REPORTED, SHORT))
CASES = {"reported": REPORTED, "short": SHORT, "from rest": REPORTED | {"lean": [0.0, 0.0]}}


def rates(x, u, gust, p):
    a, b, wa, wb = x[1], x[2], x[4], x[5]
    cart, upper, outer, l1, l2 = (p[i] for i in range(5))
    carried, twist = upper + outer, outer * l1 * l2 * casadi.sin(a - b)
    near, far = carried * l1, outer * l2
    na, fb, both = near * casadi.cos(a), far * casadi.cos(b), far * l1 * casadi.cos(a - b)
    M = casadi.blockcat([[cart + carried, na, fb], [na, near * l1, both], [fb, both, far * l2]])
    f = casadi.vertcat(
        u + gust + near * casadi.sin(a) * wa**2 + far * casadi.sin(b) * wb**2,
        near * G * casadi.sin(a) - twist * wb**2,
        far * G * casadi.sin(b) + twist * wa**2,
    )
    return casadi.vertcat(x[3:], casadi.solve(M, f))


def step():
    """One step of RK4, with the gust at its begin, middle and end."""
    x, u, p = casadi.SX.sym("x", 6), casadi.SX.sym("u"), casadi.SX.sym("p", 5)
    gust = casadi.SX.sym("gust", 3)
    k1 = rates(x, u, gust[0], p)
    k2 = rates(x + DT / 2 * k1, u, gust[1], p)
    k3 = rates(x + DT / 2 * k2, u, gust[1], p)
    k4 = rates(x + DT * k3, u, gust[2], p)
    return casadi.Function("step", [x, u, gust, p], [x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)])


def optimiser(step):
    x, u = casadi.SX.sym("x", 6, STEPS + 1), casadi.SX.sym("u", 1, STEPS)
    p, start, weights = casadi.SX.sym("p", 5), casadi.SX.sym("start", 6), casadi.SX.sym("w", 6)
    effort = casadi.SX.sym("effort")
    cost, rows = 10 * casadi.dot(x[:, STEPS], weights * x[:, STEPS]), [x[:, 0] - start]
    for k in range(STEPS):
        cost += DT * (casadi.dot(x[:, k], weights * x[:, k]) + effort * u[k] ** 2)
        rows.append(x[:, k + 1] - step(x[:, k], u[k], [0, 0, 0], p))
    given = casadi.vertcat(p, start, weights, effort)
    program = {"x": casadi.veccat(x, u), "p": given, "f": cost, "g": casadi.vertcat(*rows)}
    options = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-10}
    return casadi.nlpsol("plan", "ipopt", program, options)


def plan(solve, case, start, guess):
    parameters = [*case["masses"], *case["lengths"], *start, *case["weights"], case["effort"]]
    n = 6 * (STEPS + 1)
    bounds = np.append(np.full(n, np.inf), np.full(STEPS, LIMIT))
    found = solve(x0=guess, p=parameters, lbg=0, ubg=0, lbx=-bounds, ubx=bounds)
    assert solve.stats()["success"]
    z = np.array(found["x"]).ravel()
    return float(found["f"]), z[:n].reshape(-1, 6), z[n:]


def pursued(case):
    """The cost of the first plan, and the cost and states of the motion."""
    move, motion, costs, paid = step(), [], [], 0
    solve, x = optimiser(move), np.array([0, *case["lean"], 0, 0, 0])
    masses = case["heavier"] * np.array(case["masses"])
    guess = np.append(np.tile(x, STEPS + 1), np.zeros(STEPS))
    for k in range(PERIODS):
        motion.append(x)
        cost, states, u = plan(solve, case, x, guess)
        costs.append(cost)
        paid += DT * (x @ (case["weights"] * x) + case["effort"] * u[0] ** 2)
        times = (k + np.array([0, 0.5, 1])) * DT
        gust = np.where((times >= 0.5) & (times < 0.6), case["gust"], 0.0)
        x = np.array(move(x, u[0], gust, [*masses, *case["lengths"]])).ravel()
        states, u = np.vstack([x, states[2:], states[-1:]]), np.append(u[1:], u[-1:])
        guess = np.append(states.ravel(), u)
    motion = np.array([*motion, x])
    found = {"plan": costs[0], "last": costs[-1], "cost": float(paid)}
    return case | found | {"leans": float(np.abs(motion[:, 1:3]).max()), "end": motion[-1]}


grid = {"dt": DT, "steps": STEPS, "limit": LIMIT, "periods": PERIODS, "gravity": G}
cases = {name: pursued(case) for name, case in CASES.items()}
write({"grid": grid, "stacked": cases}, "casadi.json", ("casadi", casadi.__version__))
