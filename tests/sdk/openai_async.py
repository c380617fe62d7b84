"""100 sessions of several turns at the same time, through both replicas in turn: each stays on one engine."""

import asyncio

from openai import AsyncOpenAI

from router import KEY, REPLICAS, check

SESSIONS = 100
TURNS = 4


async def converse(clients: list, number: int) -> set:
    """One session's conversation; the engines that it met."""
    peers = set()
    messages = [{"role": "user", "content": f"I am session {number}. " + "Some context to remember. " * 20}]
    for turn in range(TURNS):
        client = clients[(number + turn) % len(clients)]
        call = dict(model="mock-model", messages=messages, extra_headers={"x-session-id": f"session-{number}"})
        if turn % 2:
            raw = await client.chat.completions.with_raw_response.create(stream=True, **call)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in raw.parse() if chunk.choices]
            text = "".join(pieces)
        else:
            raw = await client.chat.completions.with_raw_response.create(**call)
            text = raw.parse().choices[0].message.content
        check_text = bool(text)
        if not check_text:
            check(False, f"session {number}, turn {turn}: an answer")
        peers.add(raw.headers["x-routed-peer"])
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"Turn {turn}: go on."}]
    return peers


async def main() -> None:
    clients = [AsyncOpenAI(base_url=f"{replica}/v1", api_key=KEY, max_retries=0, timeout=90) for replica in REPLICAS]
    met = await asyncio.gather(*(converse(clients, number) for number in range(SESSIONS)))
    wanderers = {number: peers for number, peers in enumerate(met) if len(peers) != 1}
    check(not wanderers, f"each of {SESSIONS} sessions stayed on one engine through {len(clients)} replicas", wanderers)
    used = set().union(*met)
    check(len(used) == 3, "the control: together they use every engine", used)
    for client in clients:
        await client.close()


asyncio.run(main())
