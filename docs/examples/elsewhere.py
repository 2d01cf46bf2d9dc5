"""Steps that run in another process, which may be on another machine: an executor, and the program at its other end."""

import subprocess
import sys
import tempfile
from functools import partial

import anyio

import dagrun
from dagrun.executors import wire


@dagrun.tool(effect="read")
async def weigh(parcel: str, context: dagrun.ToolContext = dagrun.PROVIDED) -> int:
    """Weigh a parcel, where the scales are."""
    context.progress(0.5, f"{parcel} is on the scales")
    return len(parcel)


class Elsewhere:
    """Runs steps at the other end of a socket, over one connection for each call."""

    accepts = staticmethod(wire.refusal_of)

    def __init__(self, path: str) -> None:
        self.path = path

    async def call(self, call: dagrun.extend.ToolCall) -> object:
        request = await wire.request(call)
        try:
            socket = await anyio.connect_unix(self.path)
        except OSError as error:  # a ToolError says that nothing has happened
            raise dagrun.ToolError(f"nobody listens at {self.path}", retryable=True) from error
        async with socket:
            stream = wire.MessageStream(socket)
            receive, stop = partial(stream.receive, call), socket.send_eof
            try:
                await stream.send(request.data)
                return await wire.answer_of(call, receive, stop, place="the other end")
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
                raise dagrun.extend.WorkerLost(f"the other end of {self.path} has gone") from error

    async def aclose(self) -> None:
        pass


async def listen(path: str) -> None:
    """Make all calls that come: the program at the other end."""
    async with await anyio.create_unix_listener(path, mode=0o600) as listener:  # who can open it can run code here
        print("listening", flush=True)
        await listener.serve(wire.CallServer().serve_stream)


async def use(path: str) -> None:
    parcels = weigh.options(executor="far").each(["books", "lamp"]).step(parcel=dagrun.item)
    result = await dagrun.run(dagrun.plan(output=parcels), executors={"far": Elsewhere(path)})
    print(result.output)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        with subprocess.Popen([sys.executable, __file__, path], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            anyio.run(use, path)
            other.terminate()


if __name__ == "__main__":
    import elsewhere  # under this name, the other process can import the tool, too

    anyio.run(elsewhere.listen, sys.argv[1]) if sys.argv[1:] else elsewhere.main()
# prints: [5, 4]
