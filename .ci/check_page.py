#!/usr/bin/env python3
"""Check in Chromium that pages open without an error, show all their pictures and load nothing but themselves.

    python .ci/check_page.py [--chromium PROGRAM] PAGE...

Before it trusts itself it opens pages that are wrong on purpose, one for each kind of fault, and a page that is not.
Chromium is told what to do, and says what happened, over a pair of pipes (the DevTools protocol); host names lead
nowhere in it, so that nothing is really fetched from outside, whatever a page asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 60  # for any one answer; a cold start on a busy machine takes some
FLAGS = (
    "--headless",
    "--no-sandbox",  # root cannot have it, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers often have next to none
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and writes answers to 4.
ON_PIPES = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'

DOT = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
HEAD = "<!DOCTYPE html><title>A page</title>"
POLICY = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
OUTSIDE = "http://outside.invalid"
GOOD_PAGE = f'{HEAD}<p>Fine.<img src="{DOT}">'
# What is wrong with a page, the fault that must be found, and the page.
BAD_PAGES = (
    ("external picture", "loads", f'{HEAD}<img src="{OUTSIDE}/a.png">'),
    ("picture far below", "loads", f'{HEAD}<p style="height:9000px">x<p><img loading=lazy src="{OUTSIDE}/a.png">'),
    ("picture that a policy blocks", "console", f'{HEAD}{POLICY}<img src="{OUTSIDE}/a.png">'),
    ("external style", "loads", f'{HEAD}<link rel=stylesheet href="{OUTSIDE}/a.css">x'),
    (
        "external font",
        "loads",
        f"{HEAD}<style>@font-face{{font-family:f;src:url({OUTSIDE}/f)}}p{{font-family:f}}</style><p>x",
    ),
    ("external frame", "loads", f'{HEAD}x<iframe src="{OUTSIDE}/"></iframe>'),
    ("picture in a file beside it", "loads", f'{HEAD}<img src="beside.gif">'),
    ("connection ahead of use", "reaches", f'{HEAD}<link rel=preconnect href="{OUTSIDE}">x'),
    ("request of a script", "loads", f'{HEAD}x<script>fetch("{OUTSIDE}/").catch(() => 0)</script>'),
    ("socket of a script", "connects", f'{HEAD}x<script>new WebSocket("ws://outside.invalid/")</script>'),
    ("script error", "script error", f"{HEAD}x<script>missing()</script>"),
    ("rejected promise", "script error", f"{HEAD}x<script>Promise.reject(new Error('no'))</script>"),
    ("message of an error", "console", f"{HEAD}x<script>console.error('wrong')</script>"),
    ("broken picture", "picture", f'{HEAD}<img src="data:image/png;base64,AAAA">'),
    ("missing title", "no title", "<!DOCTYPE html><p>x"),
    ("empty page", "nothing on it", HEAD),
)
# What is looked at once the page stands: what it does not show is an error that nobody reports.
LOOK = """({
    title: document.title,
    height: document.body.innerText.trim().length + document.images.length,
    broken: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt || i.src.slice(0, 60)),
    hints: [...document.querySelectorAll('link[rel~=preconnect], link[rel~=dns-prefetch], link[rel~=prefetch]')]
        .map(link => link.outerHTML),
})"""


class Browser:
    """A Chromium that is told what to do over two pipes, one message after another, each ended by a zero byte."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._left = b""
        self._number = 0
        self.events: deque[dict[str, Any]] = deque()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; what happens meanwhile is kept as events."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_until_idle(self, session: str, loader: str | None = None) -> list[dict[str, Any]]:
        """Give all events of a session until the page that *loader* loads, or any, asks for nothing more."""
        seen = []
        while True:
            event = self.events.popleft() if self.events else self._read()
            if event.get("sessionId") != session:
                continue
            seen.append(event)
            life = event["params"] if event["method"] == "Page.lifecycleEvent" else {}
            if life.get("name") == "networkIdle" and loader in {None, life["loaderId"]}:
                return seen

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._left:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {SECONDS} s")
            more = os.read(self._answers, 1 << 20)
            if not more:
                raise EOFError("Chromium has ended")
            self._left += more
        message, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def running(program: str) -> Iterator[Browser]:
    """Run a Chromium with an empty profile beside the body; show what it said if the body fails."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile() as log:
        read_commands, commands = os.pipe()
        answers, write_answers = os.pipe()
        command = (program, *FLAGS, f"--user-data-dir={profile}", "about:blank")
        process = subprocess.Popen(
            ["bash", "-c", ON_PIPES, "bash", str(read_commands), str(write_answers), *command],
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        os.close(read_commands)
        os.close(write_answers)
        try:
            browser = Browser(commands, answers)
            yield browser
            browser.call("Browser.close")
            process.wait(SECONDS)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.kill()
            process.wait()
            os.close(commands)
            os.close(answers)


def faults_of(browser: Browser, page: Path) -> list[str]:
    """Open *page*, wait until it asks for nothing more, and list what is wrong with it."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Runtime", "Log", "Network", "Page"):
        browser.call(f"{domain}.enable", session)
    # As high as pages get: what lies far below, and is loaded only when it comes into sight, is in sight.
    size = {"width": 1280, "height": 16_000, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", session, **size)
    browser.call("Page.setLifecycleEventsEnabled", session, enabled=True)
    browser.wait_until_idle(session)  # the empty page
    address = page.resolve().as_uri()
    answer = browser.call("Page.navigate", session, url=address)
    if "errorText" in answer:
        return [f"cannot be opened: {answer['errorText']}"]
    faults: list[str] = []
    for event in browser.wait_until_idle(session, answer["loaderId"]):
        faults += fault_in(event["method"], event["params"], address)
    look = browser.call("Runtime.evaluate", session, expression=LOOK, returnByValue=True)["result"]["value"]
    faults += [] if look["title"] else ["no title"]
    faults += [] if look["height"] else ["nothing on it"]
    faults += [f"picture not shown: {name}" for name in look["broken"]]
    faults += [f"reaches outside: {link}" for link in look["hints"]]
    browser.call("Target.closeTarget", targetId=target)
    return faults


def fault_in(method: str, event: dict[str, Any], address: str) -> Iterator[str]:
    """Say what an event of the browser tells against the page at *address*."""
    match method:
        case "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            yield f"script error: {details.get('exception', {}).get('description', details['text'])}"
        case "Runtime.consoleAPICalled" if event["type"] in {"error", "assert"}:
            yield f"console: {' '.join(str(one.get('value', one.get('description'))) for one in event['args'])}"
        case "Log.entryAdded" if event["entry"]["level"] == "error":
            yield f"console: {event['entry']['text']}"
        case "Network.requestWillBeSent":
            url = event["request"]["url"]
            if url.partition("#")[0] != address and not url.startswith("data:"):
                yield f"loads {url}"
        case "Network.webSocketCreated":
            yield f"connects to {event['url']}"


def test_oneself(browser: Browser) -> None:
    """Open pages with known faults, and one without."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        Path(folder, "beside.gif").write_bytes(b"GIF89a")
        page.write_text(GOOD_PAGE, "utf-8")
        if faults := faults_of(browser, page):
            raise SystemExit(f"check_page.py itself is broken: it finds these faults in a good page: {faults}")
        for name, fault, text in BAD_PAGES:
            page.write_text(text, "utf-8")
            faults = faults_of(browser, page)
            if not any(one.startswith(fault) for one in faults):
                raise SystemExit(f"check_page.py itself is broken: for {name}, it finds {faults}, not '{fault}'")
    print(f"check_page.py finds each of {len(BAD_PAGES)} kinds of faults, and none in a good page.")


def main() -> int:
    """Check pages; the exit code is 1 if any has a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium", metavar="PROGRAM")
    options = parser.parse_args()
    with running(options.chromium) as browser:
        test_oneself(browser)
        found = {page: faults_of(browser, page) for page in options.pages}
    for page, faults in found.items():
        print(f"{page.name}: {'opens, and loads nothing but itself' if not faults else ''}", *faults, sep="\n  ")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
