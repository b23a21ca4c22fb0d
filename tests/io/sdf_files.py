"""Files in SDFormat for tests."""

LINK = """
<link name="{name}"><pose>{pose}</pose>
  <inertial><pose>0.1 0 0 0 0 0.3</pose><mass>2</mass>
    <inertia><ixx>0.01</ixx><iyy>0.02</iyy><izz>0.025</izz><ixy>0</ixy><ixz>0</ixz><iyz>0</iyz></inertia>
  </inertial>
  <visual name="{name} box"><geometry><box><size>0.2 0.1 0.1</size></box></geometry></visual>
</link>"""
HINGE = """
<joint name="{name}" type="revolute"><parent>{parent}</parent><child>{child}</child>
  <pose>{pose}</pose><axis><xyz>0 1 0</xyz>{more}</axis></joint>"""
ORIGIN = "0 0 0 0 0 0"


def hinge(name="j", child="a", parent="world", more="", pose=ORIGIN, kind="revolute"):
    """A joint about or along y."""
    text = HINGE.format(name=name, parent=parent, child=child, pose=pose, more=more)
    return text.replace("revolute", kind)


def link(name="a", inside="", pose=ORIGIN):
    """A link with a mass, and more in it."""
    return LINK.format(name=name, pose=pose).replace("</link>", f"{inside}</link>")


def collision(shape, inside="", name="c"):
    """A <collision> of a shape."""
    return f'<collision name="{name}"><geometry>{shape}</geometry>{inside}</collision>'


def model(inside, name="m"):
    """A <model> without a file around it."""
    return f'<model name="{name}">{inside}</model>'


def sdf(inside, version="1.6"):
    """A file with one model."""
    return f'<sdf version="{version}">{model(inside)}</sdf>'


def world(inside, version="1.12"):
    """A file with a world."""
    return f'<sdf version="{version}"><world name="w">{inside}</world></sdf>'
