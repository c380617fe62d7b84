"""Sends what users of the openai client send: chats with tools and pictures, streams, completions, embeddings, responses."""

import base64
import json
import os
import random

from openai import OpenAI

target, key = os.environ["TARGET"], os.environ.get("ROUTER_KEY", "no-key-needed")
client = OpenAI(base_url=f"{target}/v1", api_key=key, max_retries=0)
picture = base64.b64encode(random.Random(7).randbytes(30_000)).decode()
tools = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": 'Reads a file. "stream_options": {"include_usage": false} is only text here.',
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "stream_options": {"type": "null"}},
                "required": ["path"],
            },
        },
    },
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}},
]


def read(stream) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


# A conversation of several turns, and text that must not be touched.
conversation = [
    {"role": "system", "content": "You are kind.\nYou say “hello” — 你好, \U0001f600, \\ and \"quotes\"."},
    {"role": "user", "content": "Tell me something."},
]
for turn in range(4):
    answer = client.chat.completions.create(
        model="mock-model", messages=conversation, temperature=0.7000000000000001, seed=9007199254740993, user="bob"
    )
    assert answer.choices[0].message.content
    conversation += [
        {"role": "assistant", "content": answer.choices[0].message.content},
        {"role": "user", "content": f"Go on, {turn}.\t\u0000end"},
    ]

# Streams, with and without usage, with options of their own.
assert read(client.chat.completions.create(model="mock-model", messages=conversation, stream=True))
for options in ({"include_usage": True}, {"include_usage": False}, {"include_obfuscation": False}):
    stream = client.chat.completions.create(
        model="mock-model", messages=conversation, stream=True, stream_options=options, max_completion_tokens=5
    )
    usage = [chunk.usage for chunk in stream][-1]
    assert (usage is not None) == options.get("include_usage", False), (options, usage)

# Tools, as an agent uses them: ids of its own for each call, answers by id.
for model in ("mock-model", "kimi-k2.6", "moonshotai/kimi-k2.5"):
    messages = [{"role": "user", "content": "Read a.txt, then list the folder."}]
    for number, name in enumerate(("read_file", "bash", "read_file")):
        call = {
            "id": f"call_{number:02}xyz",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps({"path": f"{number}.txt"})},
        }
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": f"the content, {call['id']}"},
        ]
        client.chat.completions.create(model=model, messages=messages, tools=tools, parallel_tool_calls=False)
    assert read(client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True))

# A picture, sessions in every place where this client can put one.
parts = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}", "detail": "low"}},
]
ask = {"model": "mock-model", "messages": [{"role": "user", "content": parts}]}
client.chat.completions.create(**ask, metadata={"session_id": "meta-1", "user_id": "u"}, user="bob")
client.chat.completions.create(**ask, metadata={"user_id": json.dumps({"session_id": "inner-1", "device": 1})})
client.chat.completions.create(**ask, extra_body={"litellm_metadata": {"session_id": 12345678901234567890}})
client.chat.completions.create(**ask, prompt_cache_key="cache-1", safety_identifier="s")
client.chat.completions.create(**ask, extra_headers={"x-session-id": "header-1"}, user="bob")
client.chat.completions.create(
    model="mock-model",
    messages=[{"role": "user", "content": "As JSON."}],
    response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    logprobs=True,
    top_logprobs=2,
    stop=["\n\n", "END"],
    logit_bias={"50256": -100},
)

# The other APIs.
assert client.completions.create(model="mock-model", prompt="Once upon a time", max_tokens=4).choices[0].text
for chunk in client.completions.create(model="mock-model", prompt=["Once", "upon"], stream=True):
    assert chunk.object == "text_completion"
assert client.embeddings.create(model="mock-model", input=["one", "two"], user="bob").data
# Its answers are echoes here: what counts is what was sent.
responses = client.responses.with_raw_response
responses.create(model="mock-model", input="Hello.", conversation="conv_1", instructions="Be kind.")
responses.create(model="mock-model", input=[{"role": "user", "content": "Hi."}], previous_response_id="resp_1")
responses.create(model="mock-model", input="Hello.", prompt_cache_key="cache-2", reasoning={"effort": "low"})
print("ok: openai for Python")
