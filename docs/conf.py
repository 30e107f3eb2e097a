"""Configuration of the documentation site. `make docs` builds it; a warning is an error."""

import __future__

import os
import re
import sys
import tomllib
import types
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
package = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]

project = "ringreel"
author = "The ringreel developers"
copyright = f"2026, {author}"
release = version = package["version"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["requirements.txt", "_build"]
nitpicky = True

html_theme = "furo"
html_title = f"ringreel {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": package["repository"], "source_branch": "main", "source_directory": "docs/"}

# Pages are Markdown. Headings get the anchors that GitHub gives them, so that links work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# The notebook is stored with its output; a test runs it again.
nb_execution_mode = "off"

# The package is imported from its sources, so that no compiler is needed. Its stub replaces the compiled module, and
# optional packages are mocked.
class Stub(SourceFileLoader):
    """Loads `_ringreel.pyi` as the module that it describes."""

    def source_to_code(self, data: bytes, path: str) -> types.CodeType:
        """Compiles the stub, in which annotations may name what is defined below them."""
        return compile(data, path, "exec", __future__.annotations.compiler_flag)

    def exec_module(self, module: types.ModuleType) -> None:
        """Adds what the stub only declares."""
        module.__dict__["__version__"] = version
        super().exec_module(module)


class StubFinder(MetaPathFinder):
    """Finds the compiled module's stub."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns how the stub is loaded."""
        if name != "ringreel._ringreel":
            return None
        return spec_from_loader(name, Stub(name, str(ROOT / "python" / "ringreel" / "_ringreel.pyi")))


sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "python"))
sys.meta_path.insert(0, StubFinder())
autodoc_mock_imports = ["torch", "ml_dtypes", "grain", "cv2", "PIL"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = True

# Names of types that have no page here.
nitpick_ignore_regex = [(r"py:.*", r"(?!ringreel\.).*"), (r"py:.*", r"ringreel\.(_|torch\.torch).*")]

# Pages outside docs/ that are part of the site, and where.
INCLUDED = {
    ROOT / "format/SPEC.md": HERE / "reference/format.md",
    ROOT / "format/RECORDIO.md": HERE / "reference/recordio.md",
}
INCLUDE = re.compile(r"```\{include\} (\S+)\n```\n")
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)([^)\s]*\))")


def link_to_repository(text: str, folder: Path, page: Path) -> str:
    """Makes links in `text`, relative to `folder`, fit the site's page `page`.

    Links to files outside docs/ become links to the repository, where those files are shown.
    """

    def replace(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_relative_to(HERE):
            return match[0]
        if target in INCLUDED:
            return match[1] + os.path.relpath(INCLUDED[target], page.parent) + match[3]
        if not target.exists():
            raise FileNotFoundError(f"{folder}: a link leads to {match[2]}, which does not exist")
        return f"{match[1]}{package['repository']}/blob/main/{target.relative_to(ROOT)}{match[3]}"

    return LINK.sub(replace, text)


def on_source_read(app: Sphinx, document: str, source: list[str]) -> None:
    """Puts included pages in, and rewrites links, before a page is parsed."""
    page = Path(app.env.doc2path(document))
    if page.suffix != ".md":
        return

    def include(match: re.Match[str]) -> str:
        path = (page.parent / match[1]).resolve()
        return link_to_repository(path.read_text(encoding="utf-8"), path.parent, page)

    source[0] = INCLUDE.sub(include, link_to_repository(source[0], page.parent, page))


def setup(app: Sphinx) -> None:
    """Registers what happens to each page."""
    app.connect("source-read", on_source_read)
