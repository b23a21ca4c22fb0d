"""The group of commands, and how its errors are told."""

import warnings
from typing import Any

import click

from .compare import compare
from .fit import fit
from .inspection import inspect
from .simulation import simulate
from .viewing import view


class _Group(click.Group):
    """Commands whose errors are one line, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, ImportError, OSError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise click.ClickException(" ".join(lines) or type(error).__name__) from error


@click.group(
    cls=_Group,
    epilog="Exit codes: 0 success, 1 bad model or data, 2 wrong usage, 3 the numerical result is "
    "not to be trusted.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="jaxmbd")
def cli() -> None:
    """Look at models of mechanisms, simulate and view them, and fit their parameters.

    MODEL is a file in MJCF, URDF or SDF, or one that `mbd.save` has written.

    \b
    Examples:
      jaxmbd inspect robot.xml
      jaxmbd view robot.xml
      jaxmbd simulate robot.xml --t1 5 --output run.npz
      jaxmbd view run.npz
    """


def _told(message: Any, *_: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


for command in (inspect, simulate, view, fit, compare):
    cli.add_command(command)


def main() -> None:
    """The entry point of the program."""
    import jax

    import jaxmbd

    jax.config.update("jax_enable_x64", True)
    jaxmbd.compilation_cache()
    warnings.showwarning = _told
    cli.main(prog_name="jaxmbd")
