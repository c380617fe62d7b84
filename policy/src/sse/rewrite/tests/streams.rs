//! Streams as engines send them.

/// vLLM: a role, reasoning, text, a tool call, the end, usage, with everything that only vLLM has.
pub(super) const VLLM: &str = concat!(
    r#"data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}"#,
    "\n\n",
    r#"data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"reasoning":"Überlegung: 你好 😀"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    "\n\n",
    ": heartbeat\n\n",
    r#"data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"content":"say \"logprobs\":null\n\u00e9"},"logprobs":{"content":[{"token":"é","logprob":-0.00012340000000000001,"bytes":[195,169],"top_logprobs":[]}]},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\":\"/tmp/ß\"}"}}]},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-32B","choices":[],"usage":{"prompt_tokens":50,"total_tokens":70,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":48,"created_cache_tokens":2,"multimodal_tokens":null}},"actual_usage":{"prompt_tokens":2}}"#,
    "\n\ndata: [DONE]\n\n",
);

/// SGLang: no space after the colon, CRLF, and a text of two lines for one event.
pub(super) const SGLANG: &str = concat!(
    ": ok\r\n\r\n",
    "id: 1\r\nevent: message\r\n",
    r#"data:{"id":"a1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}"#,
    "\r\n\r\n",
    r#"data:{"id":"a1","choices":[{"index":0,"delta":{"content":"µ→𝄞"},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":null}"#,
    "\r\n\r\n",
    "data: {\"choices\":[\r\ndata: ],\"logprobs\":null}\r\n\r\n",
    r#"data:{"id":"a1","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":null}}"#,
    "\r\n\r\nretry: 10\r\n\r\ndata: [DONE]\r\n\r\n",
);

/// OpenAI: nothing to rewrite but a tier, and an error in the midst. It ends without an ending.
pub(super) const OPENAI: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"hi"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3"}"#,
    "\n\n",
    "data: {\"error\":{\"message\":\"the server had an error\",\"code\":500,\"logprobs\":null}}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n",
    "data: \"logprobs\"\n\ndata:\n\ndata: [DONE]\r\ndata: {\"choices\":[],\"logprobs\":null}",
);

/// Recorded with curl from `routerctl mock-engine --tokens 6`, asked for a stream with its usage.
pub(super) const RECORDED: &str = include_str!("recorded.sse");

pub(super) const ALL: [&str; 4] = [VLLM, SGLANG, OPENAI, RECORDED];
