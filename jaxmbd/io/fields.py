"""The fields of MuJoCo's compiled model: which are read, which are told, and which do not act.

A field that is in none of the lists, such as one of a later version of MuJoCo, is told where it
differs from the value of an element that the file leaves as it is."""

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .drives import REMEDY
from .source import KINDS, MjModel, Source

# Whether element i acts by a field.
_Acts: TypeAlias = Callable[[Source, int], bool]


class Told(NamedTuple):
    """A field that is told: `why`, and whether element i acts by it, `None` for always."""

    why: str
    acts: _Acts | None = None


def _names(groups: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{start}{end}" for start, ends in groups.items() for end in ends.split())


# --- conditions ----------------------------------------------------------------------------------


def _if(switch: str, field: str) -> _Acts:
    """Not switched off, and another field of the element is not 0."""
    return lambda source, i: switch not in source.off and getattr(source.m, field)[i]


def _touches(source: Source, g: int) -> bool:
    m = source.m
    able = m.geom_contype[g] or m.geom_conaffinity[g] or g in m.pair_geom1 or g in m.pair_geom2
    return "contact" not in source.off and bool(able)


def _paired(source: Source, _: int) -> bool:
    return "contact" not in source.off


def _unless_overridden(acts: _Acts) -> _Acts:
    return lambda source, i: acts(source, i) and not overridden(source)


def _overrides(source: Source, i: int) -> bool:
    return _paired(source, i) and overridden(source)


def _in_medium(source: Source, _: int) -> bool:
    return bool(source.m.opt.density or source.m.opt.viscosity)


def _unread(source: Source, _: int) -> bool:
    return not source.lags


def overridden(source: Source) -> bool:
    """Whether the options replace margins, friction and softness of all contacts."""
    return bool(source.m.opt.enableflags & int(source.mujoco.mjtEnableBit.mjENBL_OVERRIDE))


# --- the lists -----------------------------------------------------------------------------------

READ = _names(
    {
        "": "qpos0 qpos_spring names opt exclude_signature mat_rgba",
        "body_": "parentid jntnum jntadr pos quat ipos iquat mass inertia gravcomp mocapid",
        "jnt_": "type qposadr dofadr bodyid limited actfrclimited actgravcomp pos axis stiffness "
        "range actfrcrange margin",
        "dof_": "frictionloss armature damping invweight0 jntid",
        "geom_": "type contype conaffinity condim bodyid dataid priority size pos quat friction "
        "margin surfacevel matid group rgba rbound",
        "site_": "bodyid pos quat",
        "mesh_": "vert vertadr vertnum face faceadr facenum",
        "hfield_": "size nrow ncol adr data",
        "pair_": "dim geom1 geom2 margin friction",
        "eq_": "type obj1id obj2id objtype active0 data",
        "tendon_": "adr num limited actfrclimited range actfrcrange margin stiffness damping "
        "armature frictionloss lengthspring length0 invweight0",
        "wrap_": "type objid prm",
        "actuator_": "trntype dyntype dynprm gaintype biastype ctrladr ctrlnum ctrlspec trnid "
        "gainprm biasprm actlimited actrange actadr "
        "damping armature group forcelimited forcerange ctrllimited ctrlrange gear plugin",
        "sensor_": "type objtype objid refid",
        "key_": "time qpos qvel ctrl",
        "name_": "bodyadr jntadr geomadr siteadr tendonadr actuatoradr eqadr sensoradr keyadr "
        "pairadr camadr flexadr",
    }
)

_LIMIT = "the softness of its limit, which is rigid here"
_FRICTION = "the softness of its dry friction"
_EQUALITY = "its softness, which is exact here"
_CONTACT = "the softness of its contacts, which are rigid here"
_PLUGIN = "its plugin"

TOLD = {
    name: Told(why, acts)
    for why, acts, names in (
        (_PLUGIN, None, "body_plugin geom_plugin sensor_plugin"),
        (_LIMIT, _if("limit", "jnt_limited"), "jnt_solref jnt_solimp"),
        (_LIMIT, _if("limit", "tendon_limited"), "tendon_solref_lim tendon_solimp_lim"),
        (_FRICTION, _if("frictionloss", "dof_frictionloss"), "dof_solref dof_solimp"),
        (
            _FRICTION,
            _if("frictionloss", "tendon_frictionloss"),
            "tendon_solref_fri tendon_solimp_fri",
        ),
        (_EQUALITY, _if("equality", "eq_active0"), "eq_solref eq_solimp"),
        (_CONTACT, _unless_overridden(_touches), "geom_solref geom_solimp"),
        (_CONTACT, _unless_overridden(_paired), "pair_solref pair_solreffriction pair_solimp"),
        ("the adhesion of its contacts", _touches, "geom_adhesion"),
        ("the adhesion of its contacts", _paired, "pair_adhesion"),
        ("the forces of the medium on its shape", _in_medium, "geom_fluid"),
        ("the nonlinear terms of its stiffness", None, "jnt_stiffnesspoly tendon_stiffnesspoly"),
        (
            "the nonlinear terms of its damping",
            None,
            "dof_dampingpoly tendon_dampingpoly actuator_dampingpoly",
        ),
        ("the yielding of its spring", None, "jnt_plasticadr tendon_plasticadr"),
        ("its delay", None, "actuator_delay sensor_delay"),
        ("the limits of its reading", None, "sensor_cutoff"),
        ("the interval of its readings", None, "sensor_interval"),
        (f"the activation of actuators{REMEDY}", _unread, "key_act"),
    )
    for name in names.split()
}

# Names, addresses, sizes of the memory, what the compiler derives, what is only drawn, and data
# that only the author of the file reads.
WITHOUT_EFFECT = _names(
    {
        "": "vis stat names_map paths signature text_data mapM2M mapM2D mapD2M "
        "flg_gravcomp flg_surfacevel flg_adhesion",
        "body_": "rootid weldid dofnum dofadr treeid geomnum geomadr simple sameframe subtreemass "
        "invweight0 margin user contype conaffinity bvhadr bvhnum",
        "jnt_": "actuatorid group user",
        "dof_": "bodyid parentid treeid Madr simplenum M0 length",
        "tree_": "bodyadr bodynum dofadr dofnum sleep_policy",
        # `gap` is where contacts are looked for, and `solmix` mixes the softness of two geoms.
        "geom_": "sameframe castshadow solmix aabb gap user",
        "site_": "type dataid matid group sameframe size user rgba",
        "pair_": "signature gap",
        "tendon_": "type matid actuatorid group treenum treeid width user rgba",
        # `actearly` shifts the activation by a step of MuJoCo.
        "actuator_": "outadr outnum user acc0 length0 actearly",
        # `noise` is what the author expects, and MuJoCo adds none.
        "sensor_": "datatype needstage reftype dim adr noise user",
        "mesh_": "bvhadr bvhnum octadr octnum normaladr normalnum normal texcoordadr texcoordnum "
        "texcoord facenormal facetexcoord graphadr graph scale pos quat pathadr polynum polyadr "
        "polynormal polyvertadr polyvertnum polyvert polymapadr polymapnum polymap extrema",
        "hfield_": "pathadr",
        "name_": "lightadr meshadr skinadr hfieldadr texadr matadr excludeadr numericadr textadr "
        "tupleadr pluginadr",
    }
) | _names(
    # What acts only with another field, which is told.
    {
        "jnt_": "springyield",
        "tendon_": "springyield",
        "key_": "plastic mpos mquat",
        "actuator_": "history historyadr actnum cranklength lengthrange",
        "sensor_": "history historyadr intprm",
    }
)

# Groups of fields without effect, and of what is told as a whole.
_UNSEEN = (
    *("bvh_", "oct_", "cam_", "light_", "skin_", "tex_", "mat_", "numeric_", "text_", "tuple_"),
    *("ten_J_", "B_", "M_", "D_", "efm0_", "efmC_", "flex", "plugin"),
)

OPTIONS_TOLD: dict[str, Told] = {
    "density": Told("the forces of a medium on the bodies"),
    "viscosity": Told("the forces of a medium on the bodies"),
    "wind": Told("the velocity of the medium", _in_medium),
    "o_solref": Told(_CONTACT, _overrides),
    "o_solimp": Told(_CONTACT, _overrides),
}
# What is read; how MuJoCo solves; and the field of magnetometers, which are told.
OPTIONS_NOT_TOLD = frozenset(
    "timestep gravity disableflags enableflags disableactuator o_margin o_friction "
    "impratio tolerance ls_tolerance noslip_tolerance ccd_tolerance sleep_tolerance "
    "integrator cone jacobian solver iterations ls_iterations noslip_iterations ccd_iterations "
    "sdf_initpoints sdf_iterations magnetic".split()
)

FLAGS_TOLD = {"ENBL_SLEEP": "bodies that come to rest do not fall asleep here"}
# What is read, and how MuJoCo solves.
FLAGS_NOT_TOLD = frozenset(
    "DSBL_CONSTRAINT DSBL_EQUALITY DSBL_FRICTIONLOSS DSBL_LIMIT DSBL_CONTACT DSBL_SPRING "
    "DSBL_DAMPER DSBL_GRAVITY DSBL_FILTERPARENT DSBL_ACTUATION ENBL_OVERRIDE "
    "DSBL_CLAMPCTRL DSBL_WARMSTART DSBL_REFSAFE DSBL_SENSOR DSBL_MIDPHASE DSBL_EULERDAMP "
    "DSBL_AUTORESET DSBL_NATIVECCD DSBL_ISLAND DSBL_MULTICCD ENBL_ENERGY ENBL_FWDINV "
    "ENBL_INVDISCRETE ENBL_DIAGEXACT ENBL_IPC ENBL_SPECULATIVE".split()
)


def is_not_told(name: str) -> bool:
    """Whether a field of the compiled model is known, and nothing is said of it."""
    return name in READ or name in WITHOUT_EFFECT or name.startswith(_UNSEEN)


# --- telling -------------------------------------------------------------------------------------

# One element of each kind, with nothing but what it needs.
_PLAIN = """
<mujoco>
  <worldbody>
    <camera/> <light/> <site name="s"/>
    <body><joint name="j"/><geom name="g" size="1"/><geom name="h" size="1"/></body>
  </worldbody>
  <contact><pair geom1="g" geom2="h"/></contact>
  <tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>
  <equality><joint joint1="j"/></equality>
  <actuator><motor joint="j"/></actuator>
  <sensor><jointpos joint="j"/></sensor>
  <keyframe><key/></keyframe>
</mujoco>
"""

_KINDS = {prefix: kind for kind, (prefix, _) in KINDS.items()}


@functools.cache
def _plain(mujoco: ModuleType) -> MjModel:
    """A model of which every element is as it is by default."""
    return mujoco.MjModel.from_xml_string(_PLAIN)


def fields_of(thing: Any) -> list[str]:
    """The fields of a compiled model, or of its options."""
    return [
        name
        for name in dir(thing)
        if not name.startswith("_") and not callable(getattr(thing, name))
    ]


_FLAG_TYPES = {"DSBL_": "DisableBit", "ENBL_": "EnableBit"}


def flags_of(mujoco: ModuleType, start: str) -> list[str]:
    """The names of the flags that disable, "DSBL_", or enable, "ENBL_"."""
    members = getattr(mujoco, f"mjt{_FLAG_TYPES[start]}").__members__
    return [name.removeprefix("mj") for name in members if name.startswith(f"mj{start}")]


def is_size(name: str, value: Any) -> bool:
    """Whether a field of a compiled model is the length of others."""
    return name.startswith("n") and isinstance(value, int) and not isinstance(value, bool)


def tell(source: Source) -> None:
    """Note all fields that are not read and differ from a default model."""
    m, plain = source.m, _plain(source.mujoco)
    for k in range(m.nflex):
        source.drop("flex", k, "deformable bodies")
    if m.nplugin:
        source.drop_option("plugins", f"{m.nplugin} of them")
    _tell_options(source, plain)
    for name in fields_of(m):
        value = getattr(m, name)
        if name in TOLD or not (is_not_told(name) or is_size(name, value)):
            told = TOLD.get(name, Told(f"its field {name}, which is new"))
            _tell_field(source, name, value, getattr(plain, name), told)


def _tell_field(source: Source, name: str, value: Any, usual: Any, told: Told) -> None:
    prefix, _, _ = name.partition("_")
    kind, count = _KINDS.get(prefix), source.m.nv
    if prefix == "dof":
        kind = "joint"
    elif kind is not None:
        count = source.count(kind)
    if kind is None or not isinstance(value, np.ndarray) or len(value) != count:
        if not np.array_equal(value, usual) and np.any(value):
            source.drop_option(name, told.why)
        return
    if not value.size:
        return
    usual = np.asarray(usual[0] if len(usual) else 0)
    if value.shape[1:] != usual.shape:
        usual = np.zeros(value.shape[1:])
    differs = np.any((value != usual).reshape(len(value), -1), axis=1)
    for i in map(int, np.flatnonzero(differs)):
        if told.acts is None or told.acts(source, i):
            source.drop(kind, int(source.m.dof_jntid[i]) if prefix == "dof" else i, told.why)


def _tell_options(source: Source, plain: MjModel) -> None:
    opt = source.m.opt
    for name in fields_of(opt):
        told = OPTIONS_TOLD.get(name, Told("it is new"))
        if name in OPTIONS_NOT_TOLD or np.array_equal(getattr(opt, name), getattr(plain.opt, name)):
            continue
        if told.acts is None or told.acts(source, 0):
            source.drop_option(name, told.why)
    for start, flags in (("DSBL_", opt.disableflags), ("ENBL_", opt.enableflags)):
        for name in flags_of(source.mujoco, start):
            bit = getattr(source.mujoco, f"mjt{_FLAG_TYPES[start]}").__members__[f"mj{name}"]
            if flags & int(bit) and name not in FLAGS_NOT_TOLD:
                source.drop_option(name, FLAGS_TOLD.get(name, "it is new"))
