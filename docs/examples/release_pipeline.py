"""A release pipeline: builds side by side, tests on a flaky runner, a person before the release, and one upload.

The process is "lost" after the question was asked: the run waits in its journal, and another call resumes it, with the
answer. What had succeeded is not done again, and the upload happens once.
"""

import tempfile

import dagrun

CALLS: list[str] = []
flaky = {"linux": 1}  # how often the tests of a platform still fail for a reason that is not the code


@dagrun.tool(effect="pure")
def build(platform: str) -> str:
    """Build the package for a platform."""
    CALLS.append(f"build {platform}")
    return f"app-{platform}.zip"


@dagrun.tool(effect="read")
def test(package: str, platform: str) -> int:
    """Run the tests of a package, and return how many passed."""
    CALLS.append(f"test {platform}")
    if flaky.get(platform, 0):
        flaky[platform] -= 1
        raise ConnectionError("the runner has gone away")
    return 214


@dagrun.tool(effect="idempotent", needs_approval=True)
def upload(packages: dict[str, str], version: str) -> str:
    """Upload the packages. The server knows the key of the call, and takes each key once."""
    CALLS.append(f"upload {len(packages)} packages")
    return f"released {version}"


TOOLS = [build, test, upload]


def make_plan() -> dagrun.Plan:
    """Build and test for each platform; upload when all tests have passed."""
    packages = {name: build.options(id=f"build-{name}").step(platform=name) for name in ("linux", "windows", "macos")}
    tests = [
        test.options(id=f"test-{name}", retry=dagrun.RetryRule(max_attempts=3, first_delay=0.05)).step(
            package=package, platform=name
        )
        for name, package in packages.items()
    ]
    return dagrun.plan(output=upload.options(id="upload", depends_on=tests).step(packages=packages, version="2.1.0"))


async def yes(question: dagrun.Question) -> dagrun.Answer:
    """A person who looks at the exact arguments."""
    return dagrun.Answer("approve", by="release manager")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = await dagrun.run(make_plan(), run_id="release-2.1.0", journal=dagrun.SQLiteJournal(folder))
        print(first.status, "-", first.reason)
        print("calls so far:", len(CALLS), "- uploads:", sum("upload" in call for call in CALLS))

        journal = dagrun.SQLiteJournal(folder)  # in another process, a day later
        async with dagrun.resume("release-2.1.0", journal=journal, tools=TOOLS, approver=yes) as run:
            result = await run.result()
        print(result.status, "-", result.output)
        print("calls in all:", len(CALLS), "- uploads:", sum("upload" in call for call in CALLS))


if __name__ == "__main__":
    import anyio

    anyio.run(main)

# prints: waiting - nobody is there to answer about upload
# prints: calls so far: 7 - uploads: 0
# prints: succeeded - released 2.1.0
# prints: calls in all: 8 - uploads: 1
