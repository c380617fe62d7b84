"""Clients of the router for the compose trial: conversations of several turns, each streamed answer checked to its end.

A request counts as failed when anything at all is wrong with it; nothing is sent a second time. Needs Python alone.
"""

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

HOST = "127.0.0.1"
TURNS = 5
# Longer than the longest answer, its wait in the queue included.
TIMEOUT_S = 40


@dataclass
class Period:
    """What the clients saw between two points of the trial."""

    name: str
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    longest_first_byte_s: float = 0.0
    retried_inside: int = 0
    held_connects: int = 0
    longest_hold_s: float = 0.0


class Load:
    """Runs conversations until stopped. `set_period` begins a new count and returns the old one."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key
        self.lock = threading.Lock()
        self.period = Period("start")
        self.stopping = threading.Event()
        # While the only load balancer restarts, nobody listens: clients then open their next connection as soon as one
        # can be had. Those that had to wait are counted and shown.
        self.holds_connects = threading.Event()
        self.peers: dict[str, list[str]] = defaultdict(list)
        self.modes: Counter[str] = Counter()
        self.numbers = itertools.count(1)
        self.threads: list[threading.Thread] = []

    def start(self, chats: int, long_chats: int) -> None:
        for number in range(chats + long_chats):
            # Some keep their connection for a conversation, some open one for each request.
            work = self._long if number >= chats else self._short
            thread = threading.Thread(target=work, args=(number % 3 != 0,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self) -> Period:
        """Every request that was begun is brought to its end."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S * 2)
            if thread.is_alive():
                self._fail("a client did not come to its end")
        return self.set_period("end")

    def set_period(self, name: str) -> Period:
        with self.lock:
            period, self.period = self.period, Period(name)
            return period

    def requests_so_far(self) -> int:
        with self.lock:
            return self.period.requests

    def failures_so_far(self) -> int:
        with self.lock:
            return len(self.period.failures)

    def _short(self, keeps_connection: bool) -> None:
        # 16 to 48 tokens at 10 ms.
        self._converse(keeps_connection, lambda: random.randint(16, 48), pause_s=0.05)

    def _long(self, keeps_connection: bool) -> None:
        # 7 to 9 s: longer than a replica's drain delay, so that its end is waited for.
        self._converse(keeps_connection, lambda: random.randint(700, 900), pause_s=0.05)

    def _converse(self, keeps_connection: bool, tokens, pause_s: float) -> None:
        while not self.stopping.is_set():
            session = f"conversation-{next(self.numbers)}"
            messages = [{"role": "system", "content": f"You are {session}. " * 20}]
            connection = None
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"Turn {turn}: go on."})
                try:
                    if connection is None:
                        connection = self._connect()
                    text = self._turn(connection, session, messages, tokens())
                    messages.append({"role": "assistant", "content": text})
                except Exception as error:  # noqa: BLE001  # whatever it is, the request failed
                    self._fail(f"{session} turn {turn}: {type(error).__name__}: {error}")
                    connection = None
                    time.sleep(0.2)
                if connection is not None and not keeps_connection:
                    connection.close()
                    connection = None
                time.sleep(pause_s)
                if self.stopping.is_set():
                    break
            if connection is not None:
                connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        began, refused = time.monotonic(), 0
        while True:
            connection = http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT_S)
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                if not self.holds_connects.is_set() or time.monotonic() - began > TIMEOUT_S:
                    raise
                refused += 1
                time.sleep(0.05)
        if refused:
            with self.lock:
                self.period.held_connects += 1
                self.period.longest_hold_s = max(self.period.longest_hold_s, time.monotonic() - began)
        return connection

    def _turn(self, connection: http.client.HTTPConnection, session: str, messages: list, tokens: int) -> str:
        if connection.sock is None:
            # The last answer said that its connection closes.
            connection.sock = self._connect().sock
        body = {"model": "mock-model", "messages": messages, "stream": True, "max_tokens": tokens}
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self.key}",
            "X-Session-Id": session,
        }
        began = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read(300)!r}")
        first_byte = time.monotonic() - began
        words, is_done = [], False
        for line in response:
            if line.startswith(b"data: [DONE]"):
                is_done = True
            elif line.startswith(b"data: "):
                for choice in json.loads(line[6:])["choices"]:
                    words.append(choice["delta"].get("content") or "")
        words = [word for word in words if word]
        if not is_done or len(words) != tokens:
            raise ValueError(f"the stream broke after {len(words)} of {tokens} tokens")
        with self.lock:
            self.period.requests += 1
            self.period.longest_first_byte_s = max(self.period.longest_first_byte_s, first_byte)
            self.period.retried_inside += int(response.getheader("X-Routed-Retries") or 0)
            self.peers[session].append(response.getheader("X-Routed-Peer") or "")
            self.modes[response.getheader("X-Routed-Mode") or ""] += 1
        return "".join(words)

    def _fail(self, text: str) -> None:
        with self.lock:
            self.period.failures.append(text)


def arrival_times(port: int, key: str, tokens: int) -> list[float]:
    """When the parts of one streamed answer arrived, in seconds after its request."""
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    messages = [{"role": "user", "content": "Count."}]
    body = {"model": "mock-model", "messages": messages, "stream": True, "max_tokens": tokens}
    began = time.monotonic()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    times = [time.monotonic() - began for line in response if line.startswith(b"data: ")]
    connection.close()
    return times
