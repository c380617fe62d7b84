"""Each refusal becomes the SDK's own exception for it, with a message and a code; the SDK's retries are obeyed."""

import json
import os
import threading
import time
import urllib.request

import openai
from openai import OpenAI

from router import KEY, REPLICAS, check

ENGINE = os.environ["MOCK_ENGINE"]
ask = {"model": "mock-model", "messages": [{"role": "user", "content": "x"}]}


def client(**options) -> OpenAI:
    return OpenAI(**({"base_url": f"{REPLICAS[0]}/v1", "api_key": KEY, "max_retries": 0} | options))


def control(word: str) -> None:
    request = urllib.request.Request(f"http://{ENGINE}/_mock/{word}", data=b"{}", method="POST")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()


def in_flight() -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return json.load(opener.open(f"http://{ENGINE}/_mock/stats"))["in_flight"]


def raised(call) -> Exception:
    try:
        call()
    except openai.APIStatusError as error:
        return error
    return RuntimeError("no error at all")


check(bool(client().chat.completions.create(**ask).choices), "the control: a good request is answered")

wrong_key = raised(lambda: client(api_key="sk-wrong").chat.completions.create(**ask))
check(isinstance(wrong_key, openai.AuthenticationError), "a wrong key is an AuthenticationError", repr(wrong_key))
check(bool(wrong_key.body and wrong_key.body.get("message")), "with a message", wrong_key.body)

nowhere = raised(lambda: client(base_url=f"{REPLICAS[0]}/nobody/v1").chat.completions.create(**ask))
check(isinstance(nowhere, openai.NotFoundError), "an unknown route is a NotFoundError", repr(nowhere))

bad = raised(lambda: client().chat.completions.create(model="mock-model", messages="not a list"))
check(isinstance(bad, openai.BadRequestError), "the engine's own refusal comes through", repr(bad))

by_model = client(base_url=f"{REPLICAS[0]}/models/v1")
unknown = raised(lambda: by_model.chat.completions.create(**ask | {"model": "nobody's"}))
check(isinstance(unknown, openai.BadRequestError), "an unknown model is a BadRequestError", repr(unknown))
check(unknown.type == "model_not_supported", "of its type", unknown.body)
check(unknown.body["details"]["supported_models"] == ["mock-model"], "which names those that there are", unknown.body)
check([model.id for model in by_model.models.list()] == ["mock-model"], "as the list of models does")
check(bool(by_model.chat.completions.create(**ask).choices), "the control: a known model is answered")

# The only slot is held: the next request is refused, and one that may retry succeeds after the slot is free.
control("hold")
holder = threading.Thread(target=lambda: client().chat.completions.create(**ask))
holder.start()
while in_flight() == 0:
    time.sleep(0.02)
busy = raised(lambda: client().chat.completions.create(**ask))
check(isinstance(busy, openai.RateLimitError), "a full pool is a RateLimitError", repr(busy))
check(busy.response.headers.get("retry-after") == "1", "which says when to come back", dict(busy.response.headers))
check(busy.code == "queue_full", "and why", busy.code)
threading.Timer(0.3, lambda: control("release")).start()
retried = client(max_retries=4).chat.completions.create(**ask)
check(bool(retried.choices), "the SDK's own retries find the free slot")
holder.join()
