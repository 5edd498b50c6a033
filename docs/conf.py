"""Sphinx configuration; `make docs` builds without warnings."""

import sys
from pathlib import Path

import dl2env

sys.path.insert(0, str(Path(__file__).parent))

project = "dl2env"
author = "The dl2env developers"
copyright = f"2026, {author}"
version = release = dl2env.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "markdown_docstrings",
]
exclude_patterns = ["_build", "api/modules.rst"]
html_theme = "furo"
html_title = f"dl2env {version}"

# The reference is made from the source at every build, so that no page has to list the modules.
apidoc_modules = [
    {
        "path": "../dl2env",
        "destination": "api",
        "separate_modules": True,
        "module_first": True,
        "automodule_options": {"members"},
    }
]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# Attributes stay inside the docstring of their class instead of becoming entries of their own beside the fields.
napoleon_use_ivar = True

# Annotations are bare class names, which are ambiguous where a package re-exports a class of its modules.
suppress_warnings = ["ref.python"]

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
