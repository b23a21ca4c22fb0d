from .read import read_sdf as read_sdf
