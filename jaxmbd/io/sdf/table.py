"""Every element and attribute of SDFormat 1.12, and what becomes of each.

A block of the table describes an element. Its lines say what becomes of the names below it, or
below a path in it:

- `read`: it is in the mechanism, or the reader itself tells why it is not;
- `block`: it is read, and has a block of its own (`axis2` that of `axis`);
- `none`: it has no effect on motions;
- `told`: it is listed in `Loaded.dropped`, if it differs from the format's default after "=".

`@` marks attributes, and `/` an element with all that is below it. What the table does not know is
told.

The names and defaults come from the specification, http://sdformat.org/spec. Names that older
versions of the format have are at the end of their lines.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .document import Node

_TABLE = """
sdf
  read: @version
  block: world model
  none: light/
  told: actor/
world
  read: gravity
  block: include physics frame joint model
  none: @name audio/ magnetic_field atmosphere/ gui/ scene/ light/ road/ spherical_coordinates/
  told: actor/ plugin/ state/ population/
  wind told: linear_velocity=0,0,0
include
  read: @merge uri name static placement_frame
  block: pose
  none: namespace
  told: model_state/ plugin/
model
  read: @name @canonical_link @placement_frame static self_collide
  block: frame pose link joint include model
  none: @namespace allow_auto_disable
  told: plugin/ gripper/ model_state/ enable_wind=false
frame
  read: @name @attached_to
  block: pose
pose
  read: @relative_to @rotation_format @degrees @frame
link
  read: @name gravity self_collide
  block: pose inertial collision visual
  none: must_be_base_link projector/ audio_sink/ audio_source/ battery/ light/ particle_emitter/
  told: enable_wind=false kinematic=false sensor/
  velocity_decay told: linear=0 angular=0
inertial
  read: @auto mass density
  told: auto_inertia_params/
  pose read: @rotation_format @degrees
  pose told: @relative_to @frame
  inertia read: ixx ixy ixz iyy iyz izz
  fluid_added_mass told: xx=0 xy=0 xz=0 xp=0 xq=0 xr=0 yy=0 yz=0 yp=0 yq=0 yr=0 zz=0 zp=0 zq=0 zr=0
  fluid_added_mass told: pp=0 pq=0 pr=0 qq=0 qr=0 rr=0
collision
  read: @name density
  block: pose geometry surface
  none: laser_retro max_contacts
  told: auto_inertia_params/
geometry
  none: empty
  told: heightmap/ image/ mesh/ polyline/
  box read: size
  capsule read: radius length
  cone read: radius length
  cylinder read: radius length
  ellipsoid read: radii
  plane read: normal size
  sphere read: radius
surface
  bounce read: restitution_coefficient threshold
  friction/torsional told: coefficient=1 use_patch_radius=true patch_radius=0 surface_radius=0
  friction/torsional/ode told: slip=0
  friction/ode read: mu mu2
  friction/ode told: fdir1=0,0,0 slip1=0 slip2=0
  friction/bullet told: friction=1 friction2=1 fdir1=0,0,0 rolling_friction=1
  contact read: collide_without_contact collide_bitmask category_bitmask
  contact none: collide_without_contact_bitmask
  contact told: poissons_ratio=0.3 elastic_modulus=-1
  contact/ode told: soft_cfm=0 soft_erp=0.2 kp=1e12 kd=1 max_vel=0.01 min_depth=0
  contact/bullet told: soft_cfm=0 soft_erp=0.2 kp=1e12 kd=1 split_impulse=true
  contact/bullet told: split_impulse_penetration_threshold=-0.01
  soft_contact/dart told: bone_attachment=100 stiffness=100 damping=10 flesh_mass_fraction=0.05
joint
  read: @name @type parent child gearbox_ratio gearbox_reference_body thread_pitch
  read: screw_thread_pitch
  block: axis axis2 pose
  told: sensor/
  physics none: provide_feedback
  physics/simbody none: must_be_loop_joint
  physics/ode none: implicit_spring_damper provide_feedback
  physics/ode told: cfm_damping=false fudge_factor=0 cfm=0 erp=0.2 bounce=0 max_force=0 velocity=0
  physics/ode/limit told: cfm=0 erp=0.2
  physics/ode/suspension told: cfm=0 erp=0.2
axis
  read: use_parent_model_frame
  told: initial_position=0
  xyz read: @expressed_in
  dynamics read: damping friction spring_reference spring_stiffness
  limit read: lower upper
  limit told: effort=unlimited velocity=unlimited stiffness=1e8 dissipation=1
  mimic read: @joint @axis multiplier offset reference
visual
  read: @name transparency
  block: pose geometry
  none: cast_shadows laser_retro visibility_flags meta/
  told: plugin/
  material read: ambient diffuse
  material none: script/ shader/ render_order lighting specular shininess emissive double_sided pbr/
physics
  read: @default max_step_size gravity
  none: @name @type real_time_factor real_time_update_rate max_contacts magnetic_field update_rate
  dart none: solver/ collision_detector
  simbody none: min_step_size accuracy
  simbody told: max_transient_velocity=0.01
  simbody/contact told: stiffness=1e8 dissipation=100 plastic_coef_restitution=0.5
  simbody/contact told: plastic_impact_velocity=0.5 static_friction=0.9 dynamic_friction=0.9
  simbody/contact told: viscous_friction=0 override_impact_capture_velocity=0.001
  simbody/contact told: override_stiction_transition_velocity=0.001
  bullet read: dt
  bullet none: solver/
  bullet/constraints told: cfm=0 erp=0.2 contact_surface_layer=0.001 split_impulse=true
  bullet/constraints told: split_impulse_penetration_threshold=-0.01
  ode/solver read: dt
  ode/solver none: type min_step_size island_threads iters precon_iters sor
  ode/solver none: thread_position_correction
  ode/solver told: use_dynamic_moi_rescaling=false friction_model=pyramid_model
  ode/constraints told: cfm=0 erp=0.2 contact_max_correcting_vel=100 contact_surface_layer=0.001
"""


class Entry(NamedTuple):
    """What becomes of an element or an attribute.

    **Fields:** `verdict`: "read", "told" or "none"; `default` of what is told; `whole`: whether
    this holds for all below it too; `below`: the entries there by name.
    """

    verdict: str
    default: str
    whole: bool
    below: dict[str, "Entry"]


def _read() -> Entry:
    return Entry("read", "", False, {})


@functools.cache
def table() -> dict[str, Entry]:
    """The entries of each block. They are shared, so that a block may hold itself."""
    blocks: dict[str, Entry] = {}
    block = _read()
    for line in _TABLE.strip().splitlines():
        if not line.startswith(" "):
            block = blocks.setdefault(line, _read())
            continue
        head, names = line.split(":")
        *path, verdict = head.replace("/", " ").split()
        entry = block
        for name in path:
            entry = entry.below.setdefault(name, _read())
        for name in names.split():
            if verdict == "block":
                entry.below[name] = blocks.setdefault(name.rstrip("2"), _read())
                continue
            name, _, default = name.partition("=")
            made = Entry(verdict, default.replace(",", " "), name.endswith("/"), {})
            entry.below[name.rstrip("/")] = made
    return blocks


def untold(node: Node, block: str, counts: Callable[[Node], bool]) -> Iterator[tuple[Node, str]]:
    """Each element that is not read and differs from its default, and why it is told.

    **Arguments:** `block` of the table that describes `node`; `counts`: whether to look into an
    element."""
    yield from _below(node, table()[block], counts)


def _below(node: Node, entry: Entry, counts: Callable[[Node], bool]) -> Iterator[tuple[Node, str]]:
    for name, value in node.attributes.items():
        if name.split(":")[0] == "xmlns":
            continue
        known = entry.below.get(f"@{name}")
        if known is None:
            yield node, f'has {name}="{value}", which is no attribute of SDFormat 1.12'
        elif known.verdict == "told" and not _same(value, known.default):
            yield node, f'has {name}="{value}", which is not read'
    for child in filter(counts, node.children):
        known = entry.below.get(child.tag)
        if known is None:
            yield child, "is no element of SDFormat 1.12"
        elif known.verdict == "told" and known.whole:
            yield child, "is not read"
        elif known.verdict != "none":
            text = " ".join(child.text.split())
            if known.verdict == "told" and text and not _same(text, known.default):
                yield child, f"{text} is not read"
            yield from _below(child, known, counts)


def _same(text: str, default: str) -> bool:
    """Whether a text says what the default says."""
    said = text.strip().lower()
    if default in ("true", "false"):
        return said in ({"true", "1"} if default == "true" else {"false", "0"})
    try:
        numbers = [float(word) for word in said.split()]
        if default == "unlimited":  # negative numbers and large ones mean so, too
            return len(numbers) == 1 and (numbers[0] < 0 or numbers[0] >= 1e10)
        return numbers == [float(word) for word in default.split()]
    except ValueError:
        return said == default
