"""Quaternions, rotation matrices and angles."""

from ._coordinates import cross as cross
from ._coordinates import quaternion_conjugate as quaternion_conjugate
from ._coordinates import quaternion_exp as quaternion_exp
from ._coordinates import quaternion_from_matrix as quaternion_from_matrix
from ._coordinates import quaternion_log as quaternion_log
from ._coordinates import quaternion_product as quaternion_product
from ._coordinates import quaternion_rotate as quaternion_rotate
from ._coordinates import quaternion_to_matrix as quaternion_to_matrix
from ._coordinates import quaternion_to_rpy as quaternion_to_rpy
from ._coordinates import rpy_to_matrix as rpy_to_matrix
from ._coordinates import rpy_to_quaternion as rpy_to_quaternion
from ._coordinates import skew as skew
