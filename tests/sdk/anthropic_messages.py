"""The anthropic client: messages streamed and not, its key header, its errors."""

import anthropic
from anthropic import Anthropic

from router import KEY, REPLICAS, check

clients = [Anthropic(base_url=replica, api_key=KEY, max_retries=0) for replica in REPLICAS]
ask = {"model": "mock-model", "max_tokens": 12, "messages": [{"role": "user", "content": "Hello there."}]}

for number, client in enumerate(clients):
    whole = client.messages.create(**ask)
    check(whole.content[0].text != "", f"replica {number}: an answer")
    check(whole.usage.output_tokens > 0, f"replica {number}: its usage")
    with client.messages.stream(**ask) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    check(len(pieces) > 1, f"replica {number}: a stream of several pieces", pieces)
    check("".join(pieces) == final.content[0].text == whole.content[0].text, f"replica {number}: the same text")

peers = set()
for turn in range(6):
    raw = clients[turn % len(clients)].messages.with_raw_response.create(
        metadata={"user_id": "user_1_account_2_session_3"}, **ask
    )
    check(raw.headers["x-routed-source"] == "body.metadata.user_id[plain]", "the session is found", dict(raw.headers))
    peers.add(raw.headers["x-routed-peer"])
check(len(peers) == 1, "turns of one user stay on one engine", peers)

try:
    Anthropic(base_url=REPLICAS[0], api_key="sk-wrong", max_retries=0).messages.create(**ask)
    check(False, "a wrong key is refused")
except anthropic.AuthenticationError as error:
    check(error.body["type"] == "error", "a wrong key is an AuthenticationError in Anthropic's shape", error.body)
