"""The verdict on an optimisation, in words."""

import equinox as eqx


class STATUS(eqx.Enumeration):
    """The verdict on an optimisation, one for each problem of a batch. `STATUS[plan.status]` is the
    verdict in words."""

    converged = "Converged: the tolerances are met."
    running = "Not finished: the limit of iterations was reached first."
    stuck = (
        "No step improves the cost any further, though the tolerance is not met. The tolerance may "
        "be below what rounding allows, or the costs have kinks."
    )
    infeasible = (
        "The conditions `final` or `path` are violated beyond the tolerance, and larger penalties "
        "do not help. They may contradict the bounds or the dynamics."
    )
    failed_start = (
        "The motion under the first guess failed or is not finite, or the states of the guess "
        "could not be joined to one motion. Choose another guess, more `substeps`, or another "
        "`enforcement`. A motion also fails where an angle that a spring, a limit, an actuator or "
        "a coupling reads passes half a turn from its `middle`, see `turns_not_counted`."
    )
    unstable = (
        "The motion is unstable: small errors grow so much on the way that the controls of the "
        "plan do not lead along it. Follow it with feedback, as `ilqr` and `mbd.analysis.lqr` give "
        "it, plan over a shorter time, or, if it is stiff, take more `substeps`."
    )
    turns_not_counted = (
        "An angle that a spring, a limit, an actuator or a coupling reads passes half a turn from "
        "its `middle`, where the plan takes it for another angle, or turns by more than half a "
        "turn in an interval. Give the problem the `angles` of the middle of the motion, "
        "`mbd.State(t, q, v, angles=...)`, so that all of it is within half a turn of them; or "
        "more `steps`; or plan shorter motions, one after the other."
    )
    astray = (
        "The plan does not hold the plant: it costs far more than those before it, or its final "
        "cost is far above that of the state in which it begins, and searches from other guesses "
        "found no better one. Choose a longer horizon, wider bounds, another `guess`, or a model "
        "that is nearer to the plant."
    )
    performed = "Simulated under a given control, not optimised."
