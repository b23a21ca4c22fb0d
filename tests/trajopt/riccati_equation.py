"""The linear regulator of the masses by Riccati's equation."""

import numpy as np
import scipy.linalg
from trajopt_problems import Q, R, runge_kutta

DT = 0.1


def riccati(dt=DT):
    """P of the endless horizon and its gain, for costs dt (x^T Q x + u^T R u)."""
    A, B = runge_kutta(dt)
    P = scipy.linalg.solve_discrete_are(A, B, dt * Q, dt * R)
    return P, np.linalg.solve(dt * R + B.T @ P @ B, B.T @ P @ A)
