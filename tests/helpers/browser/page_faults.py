"""Find what is wrong with a page: errors, words on the console, broken pictures, and anything that it asks for.

    python tests/helpers/browser/page_faults.py PAGE...

Host names lead nowhere in the browser, so nothing is fetched from outside, whatever a page asks for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from browsing import Pages, browsing

# What is looked at once the page stands: what it does not show is an error that nobody reports.
LOOK: Final = """() => ({
    title: document.title,
    size: document.body.innerText.trim().length + document.images.length,
    broken: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt || i.src.slice(0, 60)),
    hints: [...document.querySelectorAll('link[rel~=preconnect], link[rel~=dns-prefetch], link[rel~=prefetch]')]
        .map(link => link.outerHTML),
})"""


def faults_of(pages: Pages, path: Path) -> list[str]:
    """Return the faults of a page, a sentence each; none if it is good."""
    page = pages.open(path, offline=False)
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.reload()  # now that sockets are seen, too
    page.evaluate("scrollTo(0, document.body.scrollHeight)")  # pictures far below are loaded only then
    page.wait_for_timeout(100)
    seen, found = pages.seen[page], page.evaluate(LOOK)
    own = path.absolute().as_uri()
    faults = [f"loads {url}" for url in dict.fromkeys(seen.requests) if url != own and not url.startswith("data:")]
    faults += [f"connects to {url}" for url in sockets]
    faults += [f"reaches out: {hint}" for hint in found["hints"]]
    faults += [f"script error: {text}" for text in seen.errors]
    faults += [f"console: {text}" for text in seen.console]
    faults += [f"picture that is broken: {name}" for name in found["broken"]]
    faults += ["no title"] * (not found["title"]) + ["nothing on it"] * (not found["size"])
    page.context.close()
    return faults


def main(names: list[str]) -> int:
    """Check pages; the exit code is 1 if any has a fault."""
    with browsing() as pages:
        found = {name: faults_of(pages, Path(name)) for name in names}
    for name, faults in found.items():
        verdict = "has faults" if faults else "opens, and loads nothing but itself"
        sys.stdout.write("\n  ".join([f"{name}: {verdict}", *faults]) + "\n")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
