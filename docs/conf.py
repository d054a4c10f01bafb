"""Configuration of the documentation site. `make docs` builds it; warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import dudx  # noqa: E402  (from this repository)

project = "dudx"
author = "The dudx authors"
copyright = "2026, the dudx authors"
release = version = dudx.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Docstrings write names of the library in single backquotes, as in Markdown.
default_role = "code"

html_theme = "furo"
html_title = f"dudx {version}"
html_static_path = ["_static"]
html_css_files = ["phone.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7fb2ec", "color-brand-content": "#7fb2ec"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def fences(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Convert fenced code blocks of docstrings to reStructuredText."""
    inside, written = False, []
    for line in lines:
        if line.strip().startswith("```"):
            inside = not inside
            written += [".. code-block:: python", ""] if inside else [""]
        else:
            written.append(f"    {line}" if inside else line)
    lines[:] = written


def unbroken(app: object, document: nodes.document) -> None:
    """Put a no-break space between a number and its per cent sign."""
    for text in list(document.findall(nodes.Text)):
        if " %" in text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(text.replace(" %", "\N{NO-BREAK SPACE}%")))


def setup(app: object) -> None:
    """Connect the handlers; docstrings are converted before napoleon parses them at priority 500."""
    app.connect("autodoc-process-docstring", fences, priority=400)  # type: ignore[attr-defined]
    app.connect("doctree-read", unbroken)  # type: ignore[attr-defined]
