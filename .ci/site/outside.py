"""Hook of MkDocs: pages for the files outside docs/ that its pages link to, so that every link stays on the site.

On a code host such a link opens the file. A built site has no such file, so each gets a page with its text, and the
links are pointed there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
"""Documents beside docs/ with their place on the site; each has a page, linked or not."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "bash", ".json": "json"}


def place(path: str) -> str:
    """Where on the site the page of a file is, by its path in the repository."""
    if path in PAGES:
        return PAGES[path]
    if path == "LICENSE":
        return "project/licence.md"
    name = path.removesuffix(".md").replace(".", "_")
    return f"{name}.md" if path.startswith("examples/") else f"source/{name}.md"


def target_of(page: str, link: str) -> str | None:
    """The file outside docs/ that a page's link leads to, by its path in the repository; None for all others."""
    if "://" in link or link.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    if path.startswith(("docs/", "..")) or not (ROOT / path).is_file():
        return None
    return path


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    wanted = {*PAGES, "LICENSE", *(f"examples/{p.name}" for p in (ROOT / "examples").glob("*.*"))}
    for file in list(files.documentation_pages()):
        for found in LINK.finditer(file.content_string):
            if path := target_of(file.src_uri, found[1]):
                wanted.add(path)
    for path in sorted(wanted - {"README.md", "examples/README.md"}):
        files.append(File.generated(config, place(path), content=_page(path)))
    files.append(File.generated(config, "examples/index.md", content=_page("examples/README.md")))
    return files


def _page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        here = "docs/" + ("examples/index.md" if path == "examples/README.md" else place(path))
        return LINK.sub(lambda m: _moved(m, posixpath.dirname(path), posixpath.dirname(here)), text)
    if path == "LICENSE":
        return f"# Licence\n\n```text\n{text}```\n"
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {Path(path).name}\n\n`{path}` in the repository.\n\n````{language}\n{text}````\n"


def _moved(found: re.Match[str], before: str, after: str) -> str:
    """A link of a document that stands elsewhere on the site than in the repository."""
    if "://" in found[1]:
        return found[0]
    path = posixpath.normpath(posixpath.join(before, found[1]))
    return posixpath.relpath(path, after) + (found[2] or "")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Point the links at the pages that were made."""
    here = page.file.src_uri

    def there(found: re.Match[str]) -> str:
        path = target_of(here, found[1])
        if path is None:
            return found[0]
        made = "examples/index.md" if path == "examples/README.md" else place(path)
        return posixpath.relpath(made, posixpath.dirname(here) or ".")

    return LINK.sub(there, markdown)
