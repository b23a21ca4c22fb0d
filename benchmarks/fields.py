"""What becomes of each field of MuJoCo's compiled model when `mbd.load` reads a file:

    python benchmarks/fields.py

It prints, for the installed version, every field of MjModel, of MjOption and every flag, and
whether it is read, told or without effect on motions. The lists are in `jaxmbd/io/fields.py`, and
`tests/io/test_fields.py` tests that they are complete."""

import mujoco

from jaxmbd.io import fields


def main() -> None:
    m = mujoco.MjSpec().compile()
    flags = [*fields.flags_of(mujoco, "DSBL_"), *fields.flags_of(mujoco, "ENBL_")]
    found = [
        ("MjModel", fields.fields_of(m), fields.classification),
        ("MjOption", fields.fields_of(m.opt), fields.classification_of_option),
        ("flag", flags, fields.classification_of_flag),
    ]
    print(f"MuJoCo {mujoco.__version__}\n")
    for of, names, kind_of in found:
        for name in names:
            size = of == "MjModel" and fields.is_size(name, getattr(m, name))
            print(f"{of:9} {name:28} {'length of other fields' if size else kind_of(name)}")


if __name__ == "__main__":
    main()
