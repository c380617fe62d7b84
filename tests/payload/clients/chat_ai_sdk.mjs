// Sends what users of the ai package send through its provider for servers that speak OpenAI's API.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, streamText, tool } from "ai";

const provider = createOpenAICompatible({
  name: "router",
  baseURL: `${process.env.TARGET}/v1`,
  apiKey: process.env.ROUTER_KEY ?? "no-key-needed",
  includeUsage: process.env.INCLUDE_USAGE === "1",
  headers: { "x-session-affinity": "ai-1" },
});
const tools = {
  weather: tool({ description: "Weather.", inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } } }) }),
};
const messages = [
  { role: "user", content: [{ type: "text", text: "Weather? “你好” 😀" }, { type: "image", image: new Uint8Array(9_000).fill(9), mediaType: "image/png" }] },
  { role: "assistant", content: [{ type: "tool-call", toolCallId: "call_ai", toolName: "weather", input: { city: "Bonn" } }] },
  { role: "tool", content: [{ type: "tool-result", toolCallId: "call_ai", toolName: "weather", output: { type: "text", value: "sun" } }] },
];
for (const model of ["mock-model", "kimi-k2.6"]) {
  const whole = await generateText({ model: provider.chatModel(model), system: "Be kind.", messages, tools, maxRetries: 0 });
  assert.ok(whole.text.length > 0);
  const stream = streamText({ model: provider.chatModel(model), messages, tools, maxRetries: 0, temperature: 0.3 });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.ok(text.length > 0);
}
const completion = await generateText({ model: provider.completionModel("mock-model"), prompt: "Once", maxRetries: 0 });
assert.ok(completion.text.length > 0);
const { embeddings } = await embedMany({ model: provider.textEmbeddingModel("mock-model"), values: ["a", "b"], maxRetries: 0 });
assert.equal(embeddings.length, 2);
console.log("ok: ai with @ai-sdk/openai-compatible");
