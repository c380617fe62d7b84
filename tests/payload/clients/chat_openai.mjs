// Sends what users of the openai package send: several turns, tools, a picture, streams, completions, embeddings, responses.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.TARGET}/v1`,
  apiKey: process.env.ROUTER_KEY ?? "no-key-needed",
  maxRetries: 0,
});
const chat = client.chat.completions;
const picture = Buffer.from(Uint8Array.from({ length: 20_000 }, (_, at) => (at * at + 7) % 251)).toString("base64");

const read = async (stream) => {
  let text = "";
  let usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return { text, usage };
};

const messages = [
  { role: "developer", content: "Be kind. “Hello” — 你好 😀 \\ \"quotes\"\u2028" },
  { role: "user", content: "Tell me something." },
];
for (let turn = 0; turn < 3; turn += 1) {
  const answer = await chat.create({ model: "mock-model", messages, user: "bob", metadata: { session_id: "node-1" } });
  messages.push({ role: "assistant", content: answer.choices[0].message.content }, { role: "user", content: `On, ${turn}.` });
}
const plain = await read(await chat.create({ model: "mock-model", messages, stream: true }));
assert.ok(plain.text.length > 0 && plain.usage === undefined, "a stream has usage only when asked for");
const asked = await read(
  await chat.create({ model: "mock-model", messages, stream: true, stream_options: { include_usage: true } }),
);
assert.ok(asked.usage.completion_tokens > 0);

for (const model of ["mock-model", "Kimi-K2.6"]) {
  const calls = ["read_file", "bash"].map((name, at) => ({
    id: `call_${at}${model.length}`,
    type: "function",
    function: { name, arguments: JSON.stringify({ path: `${at}`, id: "call_0" }) },
  }));
  const withTools = [
    { role: "user", content: "Go." },
    { role: "assistant", content: "", tool_calls: calls },
    ...calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: `answer to ${id}` })),
  ];
  const tools = calls.map(({ function: { name } }) => ({
    type: "function",
    function: { name, parameters: { type: "object", properties: {} } },
  }));
  await chat.create({ model, messages: withTools, tools, tool_choice: "auto" });
  await read(await chat.create({ model, messages: withTools, tools, stream: true }));
}
await chat.create({
  model: "mock-model",
  messages: [
    {
      role: "user",
      content: [
        { type: "text", text: "What is this?" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
      ],
    },
  ],
  prompt_cache_key: "node-cache",
});
await client.completions.create({ model: "mock-model", prompt: "Once upon a time", max_tokens: 4 });
await client.embeddings.create({ model: "mock-model", input: ["one", "two"], encoding_format: "float" });
await client.responses.create({ model: "mock-model", input: "Hello.", conversation: { id: "conv_2" } }).asResponse();
await client.responses
  .create({ model: "mock-model", input: [{ role: "user", content: [{ type: "input_text", text: "Hi." }] }], user: "bob" })
  .asResponse();
console.log("ok: openai for Node.js");
