"""Build the site of the documentation in build/site, strictly, and check that nothing on it leads nowhere or outside.

    python docs/make/build_site.py

1. The pages are gathered in build/docs: those of docs/, the files at the top of the checkout that readers look for, a
   page for each program of docs/examples, and llms.txt, a list of all pages for language models. The checkout itself
   stays readable: links that lead out of docs/ there are turned into links that hold on the site. A picture is copied;
   a link to a source file becomes the name of the file.
2. Zensical builds them, in strict mode: a link to a page that does not exist ends the build.
3. Each built page is read: it loads nothing from another host, and each link to another page or place finds it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "build"
TOP: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PICTURES: Final = {".png", ".svg"}
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
BAR: Final = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
FENCE: Final = re.compile(r"^(```+)[^\n]*\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
# Tags that load something as soon as the page opens, and the attribute with its address.
LOADS: Final = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "script": "src",
    "source": "src",
    "video": "src",
}
HARMLESS_RELATIONS: Final = {"author", "canonical", "license", "next", "prev"}  # of <link>: named, never loaded


def gather(into: Path) -> None:
    """Write all pages and pictures of the site to the folder *into*."""
    for source in sorted(DOCS.rglob("*")):
        if source.suffix in {".md", *PICTURES, ".txt"} and source.is_file():
            _put(source, into / source.relative_to(DOCS), into)
    for name in TOP:
        _put(ROOT / name, into / name, into)
    for program in sorted((DOCS / "examples").glob("*.py")):
        page = into / "examples" / f"{program.stem}.md"
        page.write_text(_page_of(program), encoding="utf-8")


def list_of_pages(nav: list[Any], pages: Path) -> str:
    """Return the text of llms.txt (see llmstxt.org): each page of the navigation, with its title and first sentence."""
    lines = ["# dagrun", "", f"> {_first_sentence((pages / 'index.md').read_text(encoding='utf-8'))}"]
    for entry in nav:
        if isinstance(entry, dict):
            ((section, content),) = entry.items()
            paths = [path for path in _entries(content) if path.endswith(".md")]
            lines += ["", f"## {section}", ""] * (paths != ["index.md"])
            for path in paths if paths != ["index.md"] else ():
                text = (pages / path).read_text(encoding="utf-8")
                title = re.search(r"^# (.+)$", text, re.MULTILINE)
                lines.append(
                    f"- [{title[1] if title else path}]({path[:-3]}.html): {_first_sentence(text)}".rstrip(": ")
                )
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    for paragraph in FENCE.sub("", text).split("\n\n"):
        if not paragraph.startswith(("#", "<!--", ":::", "|", "!", "- ")) and paragraph.strip():
            plain = LINK.sub(r"\2", " ".join(paragraph.split()))
            return re.split(r"(?<=\.) ", plain)[0]
    return ""


def _put(source: Path, page: Path, into: Path) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".md":
        page.write_text(turned(source.read_text(encoding="utf-8"), source, page, into), encoding="utf-8")
    else:
        shutil.copyfile(source, page)


def turned(text: str, source: Path, page: Path, into: Path) -> str:
    """Return the text of a page of the checkout with links that hold where the page is on the site.

    Args:
        text: The text of the page.
        source: The page in the checkout.
        page: The page below *into*.
        into: The folder of the site's pages; pictures from other folders are copied to it.
    """

    def turn(found: re.Match[str]) -> str:
        mark, label, address = found.groups()
        target, _, place = address.partition("#")
        if not target or "://" in address or address.startswith("mailto:"):
            return found[0]
        home = _home_of((source.parent / target).resolve(), into)
        if home is None:
            return label if "`" in label else f"`{label}`"
        return f"{mark}[{label}]({os.path.relpath(home, page.parent)}{'#' * bool(place)}{place})"

    # In a table, forges want a bar in code escaped, which Python-Markdown would show.
    return _outside_of_code(
        text, lambda prose: BAR.sub(lambda code: code[0].replace("\\|", "|"), LINK.sub(turn, prose))
    )


def _home_of(target: Path, into: Path) -> Path | None:
    """Where a file of the checkout is on the site; `None` if it has no place there."""
    if target.is_relative_to(DOCS):
        if target.suffix == ".py" and target.parent.name == "examples":
            return into / "examples" / f"{target.stem}.md"
        return into / target.relative_to(DOCS) if target.suffix in {".md", ".txt", *PICTURES} else None
    if target.parent == ROOT and target.name in TOP:
        return into / target.name
    if target.name == "README.md" and target.parent == ROOT:
        return into / "index.md"
    if target.suffix in PICTURES and target.is_file():
        copy = into / "pictures" / target.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, copy)
        return copy
    return None


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts, start = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, change(text[start:])])


def _page_of(program: Path) -> str:
    text = program.read_text(encoding="utf-8")
    title = program.stem.replace("_", " ").capitalize()
    return f"# {title}\n\nThe file `docs/examples/{program.name}` of the checkout.\n\n```python\n{text.rstrip()}\n```\n"


def with_every_page(nav: list[Any], pages: Path) -> list[Any]:
    """Return the navigation with the pages of each section's folder that it does not name, at the end of the section.

    Args:
        nav: The navigation of ``mkdocs.yml``; a section has an entry ``folder/index.md``, or is named after its folder.
        pages: The folder of the site's pages.
    """
    named = {entry for entry in _entries(nav) if entry.endswith(".md")}
    folders = {"Tutorials": "tutorials", "How-to": "how-to", "Explanation": "explanation", "Reference": "reference"}
    full: list[Any] = []
    for entry in nav:
        ((title, content),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        folder = pages / folders.get(title or "", "examples" if title == "Examples" else "-")
        more = sorted(path.relative_to(pages).as_posix() for path in folder.glob("*.md"))
        more = [path for path in more if path not in named]
        full.append({title: [*content, *more]} if more else entry)
    return full


def _entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _entries(entry)


class Page(HTMLParser):
    """The addresses that a built page loads or links to, and the places in it that a link can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag loads, links to and is called."""
        facts = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := facts.get(name))}
        address = facts.get(LOADS.get(tag, "")) or ""
        if tag == "a" and facts.get("href"):
            self.links.append(facts["href"] or "")
        elif address and not (set((facts.get("rel") or "").split()) & HARMLESS_RELATIONS):
            self.loads.append(address)


def faults_of(site: Path) -> list[str]:
    """Return what is wrong with the pages of a built site, one sentence for each fault."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        faults += [f"{name} loads {address}" for address in page.loads if urlsplit(address).netloc]
        base = site if path.name == "404.html" else path.parent
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (base / unquote(parts.path).lstrip("/")).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                faults.append(f"{name} links to {address}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                faults.append(f"{name} links to {address}, but there is no such place on that page")
    for style in sorted(site.rglob("*.css")):
        outside = re.findall(r"(?:url\(|@import\s*)[\"']?((?:https?:)?//[^\"')]+)", style.read_text(encoding="utf-8"))
        faults += [f"{style.relative_to(site)} loads {address}" for address in outside]
    return faults


def main() -> int:
    """Gather, build and check; return the exit code."""
    pages, site = BUILD / "docs", BUILD / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    gather(pages)
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings["nav"] = with_every_page(settings["nav"], pages)
    for plugin in settings["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    (pages / "llms.txt").write_text(list_of_pages(settings["nav"], pages), encoding="utf-8")
    config = BUILD / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean", "-f", config],
        cwd=BUILD,
        check=False,
    )
    if built.returncode:
        return built.returncode
    faults = faults_of(site)
    print("\n".join(faults) or f"{len(list(site.rglob('*.html')))} pages in {site.relative_to(ROOT)}; no faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
