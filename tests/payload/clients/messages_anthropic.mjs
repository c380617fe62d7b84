// Sends what users of the @anthropic-ai/sdk package send: system prompts, tools, streams, an agent's marker and session.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: process.env.TARGET,
  apiKey: process.env.ROUTER_KEY ?? "no-key-needed",
  maxRetries: 0,
});
const ask = { model: "mock-model", max_tokens: 12 };
const messages = [{ role: "user", content: "Hello — 你好 😀 \"there\"." }];
const marker = (turn) => `x-anthropic-billing-header: cc_version=2.1.9; cc_entrypoint=sdk-ts; cch=${turn}f;`;

const read = async (body, options) => {
  const stream = client.messages.stream({ ...ask, ...body }, options);
  const final = await stream.finalMessage();
  assert.ok(final.content[0].text.length > 0 && final.usage.output_tokens > 0);
};

await client.messages.create({ ...ask, messages });
await read({ messages, system: "Be kind." });
for (let turn = 0; turn < 3; turn += 1) {
  const system = [
    { type: "text", text: marker(turn) },
    { type: "text", text: "You are an agent.", cache_control: { type: "ephemeral", ttl: "1h" } },
  ];
  const metadata = { user_id: JSON.stringify({ device_id: "d", session_id: "node-agent" }) };
  await read({ messages, system, metadata }, { headers: { "x-claude-code-session-id": "node-code" } });
}
const tools = [{ name: "read_file", input_schema: { type: "object", properties: {} } }];
const turns = [
  ...messages,
  { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "read_file", input: { a: 1.5 } }] },
  { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: "t" }] }] },
];
await read({ messages: turns, tools });
await client.messages.create({ ...ask, system: [], messages: [...turns, { role: "system", content: "Be short." }] });
console.log("ok: @anthropic-ai/sdk");
