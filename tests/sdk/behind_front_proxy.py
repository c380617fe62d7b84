"""Conversations through one address without a pause, until stdin ends.

Prints `progress N` as answers come, and `failed {json}` for each request that did not end well: which backend it was on, if
it was known, and whether its answer had begun.
"""

import asyncio
import json
import os
import sys

from openai import AsyncOpenAI

from router import KEY

SESSIONS = 12
done = 0


def succeeded() -> None:
    global done
    done += 1
    print("progress", done, flush=True)


def failed(number: int, is_stream: bool, peer: str | None, error: BaseException) -> None:
    what = {"session": number, "is_stream": is_stream, "begun_on": peer, "error": repr(error)}
    print("failed", json.dumps(what), flush=True)


async def converse(client: AsyncOpenAI, number: int, stop: asyncio.Event) -> None:
    turn = 0
    messages = [{"role": "user", "content": f"I am session {number}."}]
    while not stop.is_set():
        is_stream = (number + turn) % 2 == 0
        turn += 1
        call = dict(model="mock-model", messages=messages, extra_headers={"x-session-affinity": f"session-{number}"})
        peer = None
        try:
            if is_stream:
                raw = await client.chat.completions.with_raw_response.create(stream=True, **call)
                peer = raw.headers["x-routed-peer"]
                finish = None
                async for chunk in raw.parse():
                    if chunk.choices:
                        finish = chunk.choices[0].finish_reason or finish
                if finish is None:
                    raise RuntimeError("the stream ended without a finish reason")
            else:
                await client.chat.completions.create(**call)
        except Exception as error:  # whatever the SDK makes of it
            failed(number, is_stream, peer, error)
            await asyncio.sleep(0.05)
        else:
            succeeded()


async def main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
    base = f"http://{os.environ['ROUTER_FRONT']}/v1"
    client = AsyncOpenAI(base_url=base, api_key=KEY, max_retries=0, timeout=60)
    await asyncio.gather(*(converse(client, number, stop) for number in range(SESSIONS)))
    await client.close()
    print("end", done, flush=True)


asyncio.run(main())
