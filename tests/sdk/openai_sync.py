"""The synchronous openai client: streamed and not, models, embeddings, a session by header and by body."""

from openai import OpenAI

from router import KEY, REPLICAS, check

clients = [OpenAI(base_url=f"{replica}/v1", api_key=KEY, max_retries=0) for replica in REPLICAS]
messages = [{"role": "user", "content": "Tell me something about routers."}]

for number, client in enumerate(clients):
    whole = client.chat.completions.create(model="mock-model", messages=messages)
    check(bool(whole.choices[0].message.content), f"replica {number}: an answer")
    check(whole.usage.completion_tokens > 0, f"replica {number}: its usage")

    pieces, usage = [], None
    stream = client.chat.completions.create(
        model="mock-model", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            pieces.append(chunk.choices[0].delta.content)
        usage = chunk.usage or usage
    check(len(pieces) > 1, f"replica {number}: a stream of several pieces", pieces)
    check("".join(pieces) == whole.choices[0].message.content, f"replica {number}: the same text streamed and not")
    check(usage is not None and usage.completion_tokens == whole.usage.completion_tokens, f"replica {number}: usage")

    check(any(model.id == "mock-model" for model in client.models.list()), f"replica {number}: the model list")

# One session, alternating replicas: by header, and by `prompt_cache_key` in the body.
by_header = {"extra_headers": {"x-session-id": "sdk-header"}}
for name, extra in (("header", by_header), ("body", {"prompt_cache_key": "sdk-body"})):
    peers, sessions, conversation = set(), set(), list(messages)
    for turn in range(6):
        raw = clients[turn % len(clients)].chat.completions.with_raw_response.create(
            model="mock-model", messages=conversation, **extra
        )
        peers.add(raw.headers["x-routed-peer"])
        sessions.add(raw.headers["x-routed-session"])
        answer = raw.parse().choices[0].message.content
        conversation += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"go on, {turn}"}]
    check(len(peers) == 1 and len(sessions) == 1, f"a session by {name} stays on one engine", peers, sessions)
