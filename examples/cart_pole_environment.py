"""Reinforcement learning on 1024 poles at once, each on a cart between two walls.

A policy learns to keep the pole up, once by derivatives through the motion and once by a policy
gradient that sees nothing but rewards. `--output FILE` draws how both learn.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from tqdm import trange

import jaxmbd as mbd

BATCH, STEPS, DT, EPISODE = 1024, 64, 0.02, 3.0  # samples, steps of a rollout, s, s
WALL, LENGTH, POLE, CART, GRAVITY = 0.8, 0.5, 0.1, 1.0, 9.81  # m, m, kg, kg, m/s^2
FORCE, NOISE, DISCOUNT = 10.0, 0.3, 0.98  # N, of the policy in units of FORCE, of a step


# --8<-- [start:environment]
class CartPole(mbd.AbstractSystem):
    """q = (position of the cart, angle of the pole from above). The mass of the pole is at
    its tip."""

    def mass_matrix(self, q):
        c, one = POLE * LENGTH * jnp.cos(q[1]), jnp.ones_like(q[0])
        return jnp.array([[(CART + POLE) * one, c], [c, POLE * LENGTH**2 * one]])

    def force(self, t, q, v, u):
        push = FORCE * jnp.clip(u, -1.0, 1.0)
        push += POLE * LENGTH * jnp.sin(q[1]) * v[1] ** 2
        return jnp.stack([push, POLE * GRAVITY * LENGTH * jnp.sin(q[1])])

    def gap(self, q, t):
        tip = q[0] + LENGTH * jnp.sin(q[1])
        return jnp.stack([WALL - tip, WALL + tip])

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=0.5)


class Environment(eqx.Module):
    """`reset` and `step` of one sample; `jax.vmap` makes them those of a batch."""

    stepper: mbd.Stepper = mbd.Stepper(CartPole(), mbd.ContactImpulse())

    def reset(self, key):
        q, v = jax.random.uniform(key, (2, 2), minval=-0.2, maxval=0.2)
        return self.stepper.init(mbd.State(0.0, q, v))

    def step(self, state, u, key):
        """The next state, the reward for it, and whether the pole fell. Then, and in time, it
        starts anew."""
        state = self.stepper.step(state, DT, u)
        fallen = (jnp.cos(state.q[1]) < 0) | (state.result != mbd.RESULTS.successful)
        effort = jnp.sum(state.q**2) + 0.01 * jnp.sum(state.v**2) + 0.1 * u**2
        reward = 1.0 - effort - jnp.where(fallen, 9.0, 0.0)
        over = fallen | (state.t > EPISODE)
        state = jax.tree.map(lambda a, b: jnp.where(over, a, b), self.reset(key), state)
        return state, reward, fallen


# --8<-- [end:environment]


def rollout(environment, policy, states, key):
    """The states after a rollout, and of each step what was seen, done and earned, and whether
    the pole fell."""

    step_of_all = jax.vmap(mbd.rollout.kernel(environment.step))  # on GPUs one kernel

    def step(states, key):
        seen = jnp.concatenate([states.q, states.v], axis=1)
        noise, *fresh = jax.random.split(key, 1 + len(seen))
        u = jax.vmap(policy)(seen) + NOISE * jax.random.normal(noise, (len(seen),))
        states, reward, fallen = step_of_all(states, u, jnp.stack(fresh))
        return states, (seen, u, reward, fallen)

    return jax.lax.scan(step, states, jax.random.split(key, STEPS))


def by_derivatives(policy, environment, states, key):
    """Minus the mean reward, as a function of all that the policy does to the motion."""
    states, (_, _, reward, _) = rollout(environment, policy, states, key)
    return -jnp.mean(reward), (states, jnp.mean(reward))


def by_rewards(policy, environment, states, key):
    """Williams (1992): log-probabilities of what was done, weighted by what was earned later."""
    states, (seen, u, reward, fallen) = jax.lax.stop_gradient(
        rollout(environment, policy, states, key)
    )

    def before(later, now):
        reward, fallen = now
        return (earned := reward + DISCOUNT * jnp.where(fallen, 0.0, later)), earned

    _, earned = jax.lax.scan(before, jnp.zeros(len(u[0])), (reward, fallen), reverse=True)
    weight = (earned - earned.mean(axis=1, keepdims=True)) / (earned.std() + 1e-6)
    log_probability = -((u - jax.vmap(jax.vmap(policy))(seen)) ** 2) / (2 * NOISE**2)
    return -jnp.mean(weight * log_probability), (states, jnp.mean(reward))


def learn(loss, iterations, seed=0):
    """Mean rewards of the iterations, and the policy."""
    environment, optimiser = (
        Environment(),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)),
    )
    keys = jax.random.split(jax.random.key(seed), BATCH + iterations + 1)
    policy = eqx.nn.MLP(4, "scalar", 32, 1, jnp.tanh, key=keys[-1])

    @eqx.filter_jit
    def improve(policy, memory, states, key):
        grads, (states, reward) = eqx.filter_grad(loss, has_aux=True)(
            policy, environment, states, key
        )
        updates, memory = optimiser.update(grads, memory)
        return eqx.apply_updates(policy, updates), memory, jax.lax.stop_gradient(states), reward

    states, memory = (
        jax.vmap(environment.reset)(keys[:BATCH]),
        optimiser.init(eqx.filter(policy, eqx.is_array)),
    )
    rewards = []
    with trange(iterations, desc=loss.__name__) as bar:
        for key in keys[BATCH:-1]:
            policy, memory, states, reward = improve(policy, memory, states, key)
            rewards.append(float(reward))
            bar.set_postfix(reward=f"{rewards[-1]:.3f}")
            bar.update()
    return rewards, policy


def time_up(policy, seed=1, steps=500):
    """Mean time that the pole stays up [s], of at most 10 s, without noise."""
    environment = Environment()

    @eqx.filter_jit
    def up(policy, key):
        def step(carry, _):
            state, still = carry
            state = environment.stepper.step(state, DT, policy(jnp.concatenate([state.q, state.v])))
            still = still & (jnp.cos(state.q[1]) > 0)
            return (state, still), still

        _, still = jax.lax.scan(step, (environment.reset(key), True), None, length=steps)
        return steps * DT * jnp.mean(still)

    return float(
        jnp.mean(jax.vmap(up, (None, 0))(policy, jax.random.split(jax.random.key(seed), 64)))
    )


def draw(found, file):
    import matplotlib.pyplot as plt

    for name, rewards in found.items():
        plt.plot(rewards, label=name.replace("_", " "))
    plt.xlabel(f"iteration of {BATCH} x {STEPS} steps")
    plt.ylabel("mean reward")
    plt.legend()
    plt.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--output", help="file to draw into")
    args = parser.parse_args()
    found = {}
    for loss in (by_derivatives, by_rewards):
        found[loss.__name__], policy = learn(loss, args.iterations)
        first, *_, last = found[loss.__name__]
        print(f"{loss.__name__}: mean reward {first:.3f} at first and {last:.3f} at last")
        print(f"    The pole stays up for {time_up(policy):.1f} of 10 s.")
    if args.output:
        draw(found, args.output)


if __name__ == "__main__":
    main()
