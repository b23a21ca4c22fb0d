"""The fields of MuJoCo's compiled model: which are read, which are told, and which do not act.

A field that is in none of the lists, such as one of a later version of MuJoCo, is told where it
differs from the value of an element that the file leaves as it is."""

import functools
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import numpy as np

from .source import Source


class Reads(NamedTuple):
    """What `load` is asked to read."""

    contacts: bool
    limits: bool


class Told(NamedTuple):
    """A field that is told: `why`, and whether element i acts by it, `None` for always."""

    why: str
    acts: Callable[[Source, int, Reads], Any] | None = None


def _names(groups: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{start}{end}" for start, ends in groups.items() for end in ends.split())


# --- conditions ----------------------------------------------------------------------------------


def _limited(source: Source, j: int, reads: Reads) -> Any:
    return reads.limits and "limit" not in source.off and source.m.jnt_limited[j]


def _tendon_limited(source: Source, k: int, reads: Reads) -> Any:
    return reads.limits and "limit" not in source.off and source.m.tendon_limited[k]


def _rubs(source: Source, i: int, reads: Reads) -> Any:
    del reads
    return "frictionloss" not in source.off and source.m.dof_frictionloss[i]


def _tendon_rubs(source: Source, k: int, reads: Reads) -> Any:
    del reads
    return "frictionloss" not in source.off and source.m.tendon_frictionloss[k]


def _held(source: Source, k: int, reads: Reads) -> Any:
    del reads
    return "equality" not in source.off and source.m.eq_active0[k]


def _touches(source: Source, g: int, reads: Reads) -> Any:
    m = source.m
    able = m.geom_contype[g] or m.geom_conaffinity[g] or g in m.pair_geom1 or g in m.pair_geom2
    return reads.contacts and "contact" not in source.off and able


def _soft_geom(source: Source, g: int, reads: Reads) -> Any:
    return _touches(source, g, reads) and not overridden(source)


def _paired(source: Source, k: int, reads: Reads) -> Any:
    del k
    return reads.contacts and "contact" not in source.off


def _soft_pair(source: Source, k: int, reads: Reads) -> Any:
    return _paired(source, k, reads) and not overridden(source)


def _overrides(source: Source, i: int, reads: Reads) -> Any:
    return _paired(source, i, reads) and overridden(source)


def _in_medium(source: Source, i: int, reads: Reads) -> Any:
    del i, reads
    return source.m.opt.density or source.m.opt.viscosity


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
        "actuator_": "trntype dyntype gaintype biastype ctrladr ctrlnum trnid gainprm biasprm "
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

TOLD: dict[str, Told] = {
    "body_plugin": Told(_PLUGIN),
    "jnt_solref": Told(_LIMIT, _limited),
    "jnt_solimp": Told(_LIMIT, _limited),
    "jnt_stiffnesspoly": Told("the nonlinear terms of its stiffness"),
    "jnt_plasticadr": Told("the yielding of its spring"),
    "dof_dampingpoly": Told("the nonlinear terms of its damping"),
    "dof_solref": Told(_FRICTION, _rubs),
    "dof_solimp": Told(_FRICTION, _rubs),
    "geom_solref": Told(_CONTACT, _soft_geom),
    "geom_solimp": Told(_CONTACT, _soft_geom),
    "geom_adhesion": Told("the adhesion of its contacts", _touches),
    "geom_fluid": Told("the forces of the medium on its shape", _in_medium),
    "geom_plugin": Told(_PLUGIN),
    "pair_solref": Told(_CONTACT, _soft_pair),
    "pair_solreffriction": Told(_CONTACT, _soft_pair),
    "pair_solimp": Told(_CONTACT, _soft_pair),
    "pair_adhesion": Told("the adhesion of its contacts", _paired),
    "eq_solref": Told(_EQUALITY, _held),
    "eq_solimp": Told(_EQUALITY, _held),
    "tendon_stiffnesspoly": Told("the nonlinear terms of its stiffness"),
    "tendon_dampingpoly": Told("the nonlinear terms of its damping"),
    "tendon_plasticadr": Told("the yielding of its spring"),
    "tendon_solref_lim": Told(_LIMIT, _tendon_limited),
    "tendon_solimp_lim": Told(_LIMIT, _tendon_limited),
    "tendon_solref_fri": Told(_FRICTION, _tendon_rubs),
    "tendon_solimp_fri": Told(_FRICTION, _tendon_rubs),
    "actuator_delay": Told("its delay"),
    "actuator_dampingpoly": Told("the nonlinear terms of its damping"),
    "sensor_cutoff": Told("the limits of its reading"),
    "sensor_delay": Told("its delay"),
    "sensor_interval": Told("the interval of its readings"),
    "sensor_plugin": Told(_PLUGIN),
    "key_act": Told("the activation of actuators"),
}

# Fields that act only with another one, which is told.
TOLD_WITH: dict[str, str] = {
    "jnt_springyield": "jnt_plasticadr",
    "tendon_springyield": "tendon_plasticadr",
    "key_plastic": "jnt_plasticadr",
    "key_mpos": "body_mocapid",
    "key_mquat": "body_mocapid",
    "actuator_history": "actuator_delay",
    "actuator_historyadr": "actuator_delay",
    "sensor_history": "sensor_delay",
    "sensor_historyadr": "sensor_delay",
    **{
        f"actuator_{name}": "actuator_dyntype"
        for name in "actadr actnum dynprm actlimited actrange actearly".split()
    },
    "actuator_cranklength": "actuator_trntype",
    "actuator_lengthrange": "actuator_gaintype",
    "actuator_ctrlspec": "actuator_gaintype",
    "sensor_intprm": "sensor_type",
    "plugin": "nplugin",
}

_WHOLE = {"flex": "nflex", "plugin_": "nplugin"}

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
        "actuator_": "outadr outnum user acc0 length0",
        # `noise` is what the author expects, and MuJoCo adds none.
        "sensor_": "datatype needstage reftype dim adr noise user",
        "mesh_": "bvhadr bvhnum octadr octnum normaladr normalnum normal texcoordadr texcoordnum "
        "texcoord facenormal facetexcoord graphadr graph scale pos quat pathadr polynum polyadr "
        "polynormal polyvertadr polyvertnum polyvert polymapadr polymapnum polymap extrema",
        "hfield_": "pathadr",
        "name_": "lightadr meshadr skinadr hfieldadr texadr matadr excludeadr numericadr textadr "
        "tupleadr pluginadr",
    }
)

_UNSEEN = (
    *("bvh_", "oct_", "cam_", "light_", "skin_", "tex_", "mat_", "numeric_", "text_", "tuple_"),
    *("ten_J_", "B_", "M_", "D_", "efm0_", "efmC_"),
)

OPTIONS_READ = frozenset(
    "timestep gravity disableflags enableflags disableactuator o_margin o_friction".split()
)
OPTIONS_TOLD: dict[str, Told] = {
    "density": Told("the forces of a medium on the bodies"),
    "viscosity": Told("the forces of a medium on the bodies"),
    "wind": Told("the velocity of the medium", _in_medium),
    "o_solref": Told(_CONTACT, _overrides),
    "o_solimp": Told(_CONTACT, _overrides),
}
# How MuJoCo solves, and the field of magnetometers, which are told.
OPTIONS_WITHOUT_EFFECT = frozenset(
    "impratio tolerance ls_tolerance noslip_tolerance ccd_tolerance sleep_tolerance magnetic "
    "integrator cone jacobian solver iterations ls_iterations noslip_iterations ccd_iterations "
    "sdf_initpoints sdf_iterations".split()
)

FLAGS_READ = frozenset(
    "DSBL_CONSTRAINT DSBL_EQUALITY DSBL_FRICTIONLOSS DSBL_LIMIT DSBL_CONTACT DSBL_SPRING "
    "DSBL_DAMPER DSBL_GRAVITY DSBL_FILTERPARENT DSBL_ACTUATION ENBL_OVERRIDE".split()
)
FLAGS_TOLD = {"ENBL_SLEEP": "bodies that come to rest do not fall asleep here"}
FLAGS_WITHOUT_EFFECT = frozenset(
    "DSBL_CLAMPCTRL DSBL_WARMSTART DSBL_REFSAFE DSBL_SENSOR DSBL_MIDPHASE DSBL_EULERDAMP "
    "DSBL_AUTORESET DSBL_NATIVECCD DSBL_ISLAND DSBL_MULTICCD ENBL_ENERGY ENBL_FWDINV "
    "ENBL_INVDISCRETE ENBL_DIAGEXACT ENBL_IPC ENBL_SPECULATIVE".split()
)


def classification(name: str) -> str:
    """ "read", "told", "without effect", or "unknown" for a field of the compiled model."""
    if name in READ:
        return "read"
    if name in TOLD or name in TOLD_WITH or name.startswith(tuple(_WHOLE)):
        return "told"
    if name in WITHOUT_EFFECT or name.startswith(_UNSEEN):
        return "without effect"
    return "unknown"


def classification_of_option(name: str) -> str:
    """The same for a field of its options."""
    return _listed(name, OPTIONS_READ, OPTIONS_TOLD, OPTIONS_WITHOUT_EFFECT)


def classification_of_flag(name: str) -> str:
    """The same for a bit of its flags, such as "DSBL_CONTACT"."""
    return _listed(name, FLAGS_READ, FLAGS_TOLD, FLAGS_WITHOUT_EFFECT)


def _listed(
    name: str, read: Container[str], told: Container[str], without_effect: Container[str]
) -> str:
    lists = {"read": read, "told": told, "without effect": without_effect}
    return next((word for word, names in lists.items() if name in names), "unknown")


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

_KINDS = {
    "body": "body",
    "jnt": "joint",
    "geom": "geom",
    "site": "site",
    "tendon": "tendon",
    "actuator": "actuator",
    "eq": "equality",
    "sensor": "sensor",
    "key": "key",
    "pair": "pair",
    "cam": "camera",
}


@functools.cache
def _plain(mujoco: Any) -> Any:
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


def flags_of(mujoco: Any, start: str) -> list[str]:
    """The names of the flags that disable, "DSBL_", or enable, "ENBL_"."""
    members = getattr(mujoco, f"mjt{_FLAG_TYPES[start]}").__members__
    return [name.removeprefix("mj") for name in members if name.startswith(f"mj{start}")]


def is_size(name: str, value: Any) -> bool:
    """Whether a field of a compiled model is the length of others."""
    return name.startswith("n") and isinstance(value, int) and not isinstance(value, bool)


def tell(source: Source, reads: Reads) -> None:
    """Note all fields that are not read and differ from those of a default model."""
    m, plain = source.m, _plain(source.mujoco)
    for k in range(m.nflex):
        source.drop("flex", k, "deformable bodies")
    if m.nplugin:
        source.drop_option("plugins", f"{m.nplugin} of them")
    _tell_options(source, plain, reads)
    for name in fields_of(m):
        known = TOLD.get(name)
        if known is None and classification(name) != "unknown":
            continue
        value = getattr(m, name)
        if not is_size(name, value):
            told = known or Told(f"its field {name}, which is new")
            _tell_field(source, name, value, getattr(plain, name), told, reads)


def _tell_field(
    source: Source, name: str, value: Any, usual: Any, told: Told, reads: Reads
) -> None:
    prefix, _, _ = name.partition("_")
    kind = "joint" if prefix == "dof" else _KINDS.get(prefix)
    if kind is None or not isinstance(value, np.ndarray) or len(value) != _count(source, prefix):
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
        if told.acts is None or told.acts(source, i, reads):
            source.drop(kind, int(source.m.dof_jntid[i]) if prefix == "dof" else i, told.why)


def _count(source: Source, prefix: str) -> int:
    if prefix == "dof":
        return source.m.nv
    return source.count(_KINDS[prefix])


def _tell_options(source: Source, plain: Any, reads: Reads) -> None:
    opt, usual = source.m.opt, plain.opt
    for name in fields_of(opt):
        known = OPTIONS_TOLD.get(name)
        if known is None and classification_of_option(name) != "unknown":
            continue
        told = known or Told("it is new")
        if not np.array_equal(getattr(opt, name), getattr(usual, name)):
            if told.acts is None or told.acts(source, 0, reads):
                source.drop_option(name, told.why)
    for start, flags in (("DSBL_", opt.disableflags), ("ENBL_", opt.enableflags)):
        for name in flags_of(source.mujoco, start):
            bit = getattr(source.mujoco, f"mjt{_FLAG_TYPES[start]}").__members__[f"mj{name}"]
            if flags & int(bit) and classification_of_flag(name) in ("told", "unknown"):
                source.drop_option(name, FLAGS_TOLD.get(name, "it is new"))
