"""A contract of import-linter: what a package shows, its `__init__` shows."""

import ast
import pathlib

from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils


class FacesContract(Contract):
    """A module is imported only within its package. Everything else imports from the `__init__`."""

    type_name = "faces"
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph, verbose):
        removal = contract_utils.remove_ignored_imports_and_report(
            graph, self.ignore_imports, contract_utils.AlertLevel.ERROR
        )
        past = []
        for module in graph.modules:
            package = module.rpartition(".")[0]
            if not package or graph.find_children(module):
                continue
            for importer in graph.find_modules_that_directly_import(module):
                if f"{importer}.".startswith(f"{package}."):
                    continue
                for at in graph.get_import_details(importer=importer, imported=module):
                    if not _is_from_face(at["line_contents"], package, module):
                        past.append(f"{importer} -> {module} (line {at['line_number']})")
        return ContractCheck(
            kept=not past,
            warnings=list(removal.warnings),
            ignored_import_count=removal.ignored_import_count,
            metadata={"past": sorted(past)},
        )

    def render_broken_contract(self, check):
        output.print_error("Imported past the face of a package:", bold=False)
        for line in check.metadata["past"]:
            output.print_error(f"- {line}", bold=False)


def _is_from_face(line: str, package: str, module: str) -> bool:
    """Whether it is a name of the face. `from .._equations import equations` is taken for an import
    of the module `equations`, but is one of the function, if the face imports that by name."""
    source = line.split()[1].rpartition(".")[2]
    return source == package.rpartition(".")[2] and module.rpartition(".")[2] in _shown(package)


def _shown(package: str) -> set[str]:
    face = pathlib.Path(*package.split("."), "__init__.py")
    imports = [x for x in ast.parse(face.read_text()).body if isinstance(x, ast.ImportFrom)]
    return {name.asname or name.name for x in imports for name in x.names}
