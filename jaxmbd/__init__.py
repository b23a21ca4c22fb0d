"""Differentiable simulation of constrained multibody systems.

Importing it sets options of XLA and JAX, unless they are set already (`_compiler/process.py`). They
must be set before JAX is used.
"""

from importlib import metadata as _metadata

from . import _compiler as _compiler  # first, before any array is made
from . import analysis as analysis
from . import contacts as contacts
from . import coordinates as coordinates
from . import estimate as estimate
from . import forces as forces
from . import identify as identify
from . import io as io
from . import joints as joints
from . import methods as methods
from . import plots as plots
from . import reports as reports
from . import rollout as rollout
from . import rotations as rotations
from . import shapes as shapes
from . import solvers as solvers
from . import trajopt as trajopt
from ._assemble import assemble as assemble
from ._compilation_cache import CompilationCache as CompilationCache
from ._compilation_cache import compilation_cache as compilation_cache
from ._contact import ContactLaw as ContactLaw
from ._contact import Located as Located
from ._coordinates import Plain as Plain
from ._coordinates import Product as Product
from ._coordinates import QuaternionBody as QuaternionBody
from ._coordinates import QuaternionWorld as QuaternionWorld
from ._lagrangian import LagrangianSystem as LagrangianSystem
from ._lanes import jacfwd as jacfwd
from ._linalg import Cholesky as Cholesky
from ._linalg import Pseudoinverse as Pseudoinverse
from ._mechanism import Body as Body
from ._mechanism import Box as Box
from ._mechanism import Bushing as Bushing
from ._mechanism import Capsule as Capsule
from ._mechanism import Constraint as Constraint
from ._mechanism import Contact as Contact
from ._mechanism import Cylinder as Cylinder
from ._mechanism import Cylindrical as Cylindrical
from ._mechanism import Distance as Distance
from ._mechanism import Drag as Drag
from ._mechanism import Fixed as Fixed
from ._mechanism import Force as Force
from ._mechanism import FromControl as FromControl
from ._mechanism import Gap as Gap
from ._mechanism import Gear as Gear
from ._mechanism import HalfSpace as HalfSpace
from ._mechanism import Inertia as Inertia
from ._mechanism import JointLimit as JointLimit
from ._mechanism import LinearActuator as LinearActuator
from ._mechanism import Mechanism as Mechanism
from ._mechanism import Motor as Motor
from ._mechanism import OfJoint as OfJoint
from ._mechanism import Planar as Planar
from ._mechanism import Plane as Plane
from ._mechanism import PointForce as PointForce
from ._mechanism import Pose as Pose
from ._mechanism import PrescribedMotion as PrescribedMotion
from ._mechanism import Prismatic as Prismatic
from ._mechanism import Revolute as Revolute
from ._mechanism import Screw as Screw
from ._mechanism import SlidingFriction as SlidingFriction
from ._mechanism import Sphere as Sphere
from ._mechanism import Spherical as Spherical
from ._mechanism import Spring as Spring
from ._mechanism import Torque as Torque
from ._mechanism import TorsionSpring as TorsionSpring
from ._mechanism import TurningFriction as TurningFriction
from ._mechanism import Twist as Twist
from ._mechanism import Universal as Universal
from ._mechanism import close_joints as close_joints
from ._mechanism import contacts_among as contacts_among
from ._mechanism import place_bodies as place_bodies
from ._methods import RK4 as RK4
from ._methods import AugmentedLagrangian as AugmentedLagrangian
from ._methods import ContactImpulse as ContactImpulse
from ._methods import GeneralisedAlpha as GeneralisedAlpha
from ._methods import ImplicitPenalty as ImplicitPenalty
from ._methods import IndependentCoordinates as IndependentCoordinates
from ._methods import LagrangeMultipliers as LagrangeMultipliers
from ._methods import Projection as Projection
from ._methods import UdwadiaKalaba as UdwadiaKalaba
from ._methods import Variational as Variational
from ._methods import VelocityImpulse as VelocityImpulse
from ._methods import evaluate as evaluate
from ._raising import raise_if_failed as raise_if_failed
from ._results import RESULTS as RESULTS
from ._simulate import Solution as Solution
from ._simulate import simulate as simulate
from ._step import Sampled as Sampled
from ._step import Stepper as Stepper
from ._system import AbstractSystem as AbstractSystem
from ._system import State as State
from ._view import Live as Live
from ._view import Page as Page
from ._view import view as view
from .io import load as load
from .io import save as save

try:
    __version__ = _metadata.version("jaxmbd")
except _metadata.PackageNotFoundError:  # a checkout on Python's path
    __version__ = "unknown"
