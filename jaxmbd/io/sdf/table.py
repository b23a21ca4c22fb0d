"""Every element and attribute of SDFormat 1.12, and what becomes of each.

A line of the table is a name, indented below the element that it belongs to, and one of

- `read`: it is in the mechanism, or the reader itself tells why it is not;
- `told`, with the format's default: what differs from it is listed in `Loaded.dropped`;
- `none`: it has no effect on motions.

`@` marks attributes, `/` an element with all that is below it, `> block` one that is described
once. What the table does not know is told.

The names and defaults are those of the specification, http://sdformat.org/spec. Names that older
versions of the format have are at the end of their blocks.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .document import Node

_TABLE = """
sdf
  @version read
  world read > world
  model read > model
  actor/ told
  light/ none
world
  @name none
  audio/ none
  wind read
    linear_velocity told 0 0 0
  include read > include
  gravity read
  magnetic_field none
  atmosphere/ none
  gui/ none
  physics read > physics
  scene/ none
  light/ none
  frame read > frame
  joint read > joint
  model read > model
  actor/ told
  plugin/ told
  road/ none
  spherical_coordinates/ none
  state/ told
  population/ told
include
  @merge read
  uri read
  name read
  namespace none
  static read
  model_state/ told
  pose read > pose
  plugin/ told
  placement_frame read
model
  @name read
  @namespace none
  @canonical_link read
  @placement_frame read
  static read
  self_collide read
  allow_auto_disable none
  frame read > frame
  pose read > pose
  link read > link
  joint read > joint
  plugin/ told
  gripper/ told
  include read > include
  model read > model
  model_state/ told
  enable_wind told false
frame
  @name read
  @attached_to read
  pose read > pose
pose
  @relative_to read
  @rotation_format read
  @degrees read
  @frame read
link
  @name read
  gravity read
  enable_wind told false
  self_collide read
  kinematic told false
  must_be_base_link none
  velocity_decay read
    linear told 0
    angular told 0
  pose read > pose
  inertial read > inertial
  collision read > collision
  visual read > visual
  sensor/ told
  projector/ none
  audio_sink/ none
  audio_source/ none
  battery/ none
  light/ none
  particle_emitter/ none
inertial
  @auto read
  mass read
  density read
  auto_inertia_params/ told
  pose read
    @relative_to told
    @rotation_format read
    @degrees read
    @frame told
  inertia read
    ixx read
    ixy read
    ixz read
    iyy read
    iyz read
    izz read
  fluid_added_mass read
    xx told 0
    xy told 0
    xz told 0
    xp told 0
    xq told 0
    xr told 0
    yy told 0
    yz told 0
    yp told 0
    yq told 0
    yr told 0
    zz told 0
    zp told 0
    zq told 0
    zr told 0
    pp told 0
    pq told 0
    pr told 0
    qq told 0
    qr told 0
    rr told 0
collision
  @name read
  laser_retro none
  max_contacts none
  density read
  auto_inertia_params/ told
  pose read > pose
  geometry read > geometry
  surface read > surface
geometry
  empty none
  box read
    size read
  capsule read
    radius read
    length read
  cone read
    radius read
    length read
  cylinder read
    radius read
    length read
  ellipsoid read
    radii read
  heightmap/ told
  image/ told
  mesh/ told
  plane read
    normal read
    size read
  polyline/ told
  sphere read
    radius read
surface
  bounce read
    restitution_coefficient read
    threshold read
  friction read
    torsional read
      coefficient told 1
      use_patch_radius told true
      patch_radius told 0
      surface_radius told 0
      ode read
        slip told 0
    ode read
      mu read
      mu2 read
      fdir1 told 0 0 0
      slip1 told 0
      slip2 told 0
    bullet read
      friction told 1
      friction2 told 1
      fdir1 told 0 0 0
      rolling_friction told 1
  contact read
    collide_without_contact read
    collide_without_contact_bitmask none
    collide_bitmask read
    category_bitmask read
    poissons_ratio told 0.3
    elastic_modulus told -1
    ode read
      soft_cfm told 0
      soft_erp told 0.2
      kp told 1e12
      kd told 1
      max_vel told 0.01
      min_depth told 0
    bullet read
      soft_cfm told 0
      soft_erp told 0.2
      kp told 1e12
      kd told 1
      split_impulse told true
      split_impulse_penetration_threshold told -0.01
  soft_contact read
    dart read
      bone_attachment told 100
      stiffness told 100
      damping told 10
      flesh_mass_fraction told 0.05
joint
  @name read
  @type read
  parent read
  child read
  gearbox_ratio read
  gearbox_reference_body read
  thread_pitch read
  screw_thread_pitch read
  axis read > axis
  axis2 read > axis
  physics read
    simbody read
      must_be_loop_joint none
    ode read
      cfm_damping told false
      implicit_spring_damper none
      fudge_factor told 0
      cfm told 0
      erp told 0.2
      bounce told 0
      max_force told 0
      velocity told 0
      limit read
        cfm told 0
        erp told 0.2
      suspension read
        cfm told 0
        erp told 0.2
      provide_feedback none
    provide_feedback none
  pose read > pose
  sensor/ told
axis
  xyz read
    @expressed_in read
  dynamics read
    damping read
    friction read
    spring_reference read
    spring_stiffness read
  limit read
    lower read
    upper read
    effort told unlimited
    velocity told unlimited
    stiffness told 1e8
    dissipation told 1
  mimic read
    @joint read
    @axis read
    multiplier read
    offset read
    reference read
  initial_position told 0
  use_parent_model_frame read
visual
  @name read
  cast_shadows none
  laser_retro none
  transparency read
  visibility_flags none
  meta/ none
  pose read > pose
  material read
    script/ none
    shader/ none
    render_order none
    lighting none
    ambient read
    diffuse read
    specular none
    shininess none
    emissive none
    double_sided none
    pbr/ none
  geometry read > geometry
  plugin/ told
physics
  @name none
  @default read
  @type none
  max_step_size read
  real_time_factor none
  real_time_update_rate none
  max_contacts none
  dart read
    solver/ none
    collision_detector none
  simbody read
    min_step_size none
    accuracy none
    max_transient_velocity told 0.01
    contact read
      stiffness told 1e8
      dissipation told 100
      plastic_coef_restitution told 0.5
      plastic_impact_velocity told 0.5
      static_friction told 0.9
      dynamic_friction told 0.9
      viscous_friction told 0
      override_impact_capture_velocity told 0.001
      override_stiction_transition_velocity told 0.001
  bullet read
    solver/ none
    constraints read
      cfm told 0
      erp told 0.2
      contact_surface_layer told 0.001
      split_impulse told true
      split_impulse_penetration_threshold told -0.01
    dt read
  ode read
    solver read
      type none
      min_step_size none
      island_threads none
      iters none
      precon_iters none
      sor none
      thread_position_correction none
      use_dynamic_moi_rescaling told false
      friction_model told pyramid_model
      dt read
    constraints read
      cfm told 0
      erp told 0.2
      contact_max_correcting_vel told 100
      contact_surface_layer told 0.001
  gravity read
  magnetic_field none
  update_rate none
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


@functools.cache
def table() -> dict[str, Entry]:
    """The entries of each block."""
    blocks: dict[str, Entry] = {}
    links: list[tuple[dict[str, Entry], str]] = []
    stack: list[dict[str, Entry]] = []
    for line in _TABLE.strip().splitlines():
        depth, words = (len(line) - len(line.lstrip())) // 2, line.split()
        below: dict[str, Entry] = {}
        if not depth:
            blocks[words[0]] = Entry("read", "", False, below)
            stack = [below]
            continue
        name, verdict, *rest = words
        if rest[:1] == [">"]:
            links.append((below, rest[1]))
            rest = []
        del stack[depth:]
        stack[-1][name.rstrip("/")] = Entry(verdict, " ".join(rest), name.endswith("/"), below)
        stack.append(below)
    for below, block in links:
        # Shared, so that a block may hold itself.
        below["> "] = blocks[block]
    return blocks


def entry_below(entry: Entry, name: str) -> Entry | None:
    """The entry of a name below another; `None` if the format has none."""
    return (entry.below["> "].below if "> " in entry.below else entry.below).get(name)


def untold(node: Node, block: str, counts: Callable[[Node], bool]) -> Iterator[tuple[Node, str]]:
    """Each element that is not read and differs from its default, and why it is told.

    **Arguments:** `block` of the table that describes `node`; `counts`: whether to look into an
    element."""
    yield from _below(node, table()[block], counts)


def _below(node: Node, entry: Entry, counts: Callable[[Node], bool]) -> Iterator[tuple[Node, str]]:
    for name, value in node.attributes.items():
        if name.split(":")[0] == "xmlns":
            continue
        known = entry_below(entry, f"@{name}")
        if known is None:
            yield node, f'has {name}="{value}", which is no attribute of SDFormat 1.12'
        elif known.verdict == "told" and not _same(value, known.default):
            yield node, f'has {name}="{value}", which is not read'
    for child in node.children:
        known = entry_below(entry, child.tag)
        if not counts(child):
            continue
        if known is None:
            yield child, "is no element of SDFormat 1.12"
        elif known.verdict == "told" and known.whole:
            yield child, "is not read"
        elif known.verdict == "told":
            if child.text.strip() and not _same(child.text, known.default):
                yield child, f"{' '.join(child.text.split())} is not read"
            yield from _below(child, known, counts)
        elif known.verdict == "read":
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
