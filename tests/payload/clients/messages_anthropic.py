"""Sends what users of the anthropic client send: system prompts of every shape, tools, pictures, streams, an agent's markers."""

import base64
import json
import os
import random

from anthropic import Anthropic

target, key = os.environ["TARGET"], os.environ.get("ROUTER_KEY", "no-key-needed")
client = Anthropic(base_url=target, api_key=key, max_retries=0)
picture = base64.b64encode(random.Random(8).randbytes(20_000)).decode()
marker = "x-anthropic-billing-header: cc_version=2.1.3.a1b; cc_entrypoint=cli; cch={:05x};"
ask = {"model": "mock-model", "max_tokens": 12}
hello = [{"role": "user", "content": "Hello — 你好 \U0001f600 \"there\"."}]


def read(**more) -> None:
    with client.messages.stream(**ask, **more) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == final.content[0].text != ""
    assert final.usage.output_tokens > 0


assert client.messages.create(**ask, messages=hello).content[0].text
read(messages=hello, system="You are kind.")

# An agent's turns: its marker changes with each of them.
for turn in range(3):
    system = [
        {"type": "text", "text": marker.format(turn * 4099)},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ]
    user_id = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "5f3c-agent"})
    read(messages=hello, system=system, metadata={"user_id": user_id})
client.messages.create(**ask, messages=hello, system=marker.format(1) + "\nYou are an agent.")
client.messages.create(
    **ask,
    messages=[{"role": "user", "content": marker.format(2) + " Hello."}],
    extra_headers={"x-claude-code-session-id": "code-1"},
)
client.messages.create(**ask, messages=hello, metadata={"user_id": "user_1_account_2_session_3"})

# A message of the role `system` among the others.
client.messages.create(
    **ask,
    system="A",
    messages=[*hello, {"role": "system", "content": "B"}, {"role": "system", "content": [{"type": "text", "text": "C"}]}],
)

# Tools and a picture, as turns go on.
tools = [{"name": "read_file", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}]
messages = [
    {
        "role": "user",
        "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}},
            {"type": "text", "text": "What is it?"},
        ],
    }
]
for number in range(3):
    client.messages.create(**ask, messages=messages, tools=tools)
    messages += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": f"toolu_{number}", "name": "read_file", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "text"}]},
    ]
read(messages=messages, tools=tools)
print("ok: anthropic for Python")
