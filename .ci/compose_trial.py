"""Tries the compose file as the README has it: up, a key, a request; then each service is restarted, the dataplanes are
scaled and both engines drained while clients talk through the load balancer. Ends with code 1 when one request failed
or one claim does not hold. Called by `.ci/compose` inside its namespaces, in a copy of the repository.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from compose_load import Load, Period, arrival_times

PORT = 8080
IMAGE = "router:local"
BASE = "debian:bookworm-slim"
MAX_IMAGE_MB = 60
# `docker compose` or `docker-compose`. DOCKER_HOST names the engine.
COMPOSE = os.environ["COMPOSE"].split()
CHATS, LONG_CHATS = 10, 2
# Longer than the longest answer.
SETTLE_S = 12

started = time.monotonic()
complaints: list[str] = []


def step(text: str) -> None:
    print(f"--- {text} (after {time.monotonic() - started:.0f} s)", flush=True)


def claim(holds: bool, text: str) -> None:
    print(f"    {'ok' if holds else 'NOT SO'}: {text}", flush=True)
    if not holds:
        complaints.append(text)


def run(*command: str) -> str:
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def compose(*arguments: str) -> str:
    return run(*COMPOSE, *arguments)


def routerctl(*arguments: str) -> str:
    """As the README: the operator's tool inside the control plane's container, which has the token."""
    return compose("exec", "-T", "controlplane", "routerctl", *arguments)


def containers(service: str | None = None, everything: bool = False) -> list[dict]:
    filters = ["--filter", f"label=com.docker.compose.service={service}"] if service else []
    ids = run("docker", "ps", "-q", *(["-a"] if everything else []), *filters).split()
    return json.loads(run("docker", "inspect", *ids)) if ids else []


def service_of(container: dict) -> str:
    return container["Config"]["Labels"]["com.docker.compose.service"]


def await_true(what: str, question, limit_s: float = 90) -> None:
    until = time.monotonic() + limit_s
    while not question():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.3)


def await_healthy(count: int) -> None:
    def healthy() -> int:
        return sum(c["State"].get("Health", {}).get("Status") == "healthy" for c in containers())

    await_true(f"{count} healthy containers", lambda: healthy() == count)


def servers_up() -> int:
    """Replicas that the load balancer sends requests to."""
    with urllib.request.urlopen("http://127.0.0.1:8404/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return len(re.findall(r'^haproxy_server_status\{[^}]*state="UP"[^}]*\} 1$', text, re.MULTILINE))


def build() -> None:
    step("docker build")
    began = time.monotonic()
    run("docker", "build", "-t", IMAGE, "-f", "deploy/Dockerfile", ".")
    took = time.monotonic() - began
    image, base = (json.loads(run("docker", "inspect", name))[0] for name in (IMAGE, BASE))
    own_mb = (image["Size"] - base["Size"]) / 1e6
    claim(own_mb < MAX_IMAGE_MB, f"built in {took:.0f} s; {own_mb:.1f} MB without its base, under {MAX_IMAGE_MB}")
    config = image["Config"]
    claim(config["User"] == "10001:10001", "the image's user is not root")
    has_check = "check" in config["Healthcheck"]["Test"]
    claim(config["StopSignal"] == "SIGTERM" and has_check, "SIGTERM stops it, and it has a health check")
    # Of its own: compose.yaml gives each service a check of its port. Elsewhere it must find out which role runs.
    alone = run("docker", "run", "-d", "--read-only", IMAGE, "mock-engine", "--listen", "0.0.0.0:19001").strip()
    health = lambda: json.loads(run("docker", "inspect", alone))[0]["State"]["Health"]["Status"]
    await_true("the image's own health check", lambda: health() == "healthy", 30)
    claim(True, "which tells that an engine that runs alone is healthy")
    run("docker", "rm", "-f", alone)


def make_env() -> None:
    step("routerctl env init, in a container")
    user = f"{os.getuid()}:{os.getgid()}"
    here = ["-v", f"{os.getcwd()}:/here", "-w", "/here"]
    print("    " + run("docker", "run", "--rm", *here, "--user", user, IMAGE, "env", "init"), end="")
    claim(os.stat(".env").st_mode & 0o777 == 0o600, ".env is its owner's alone")
    secrets = [line.partition("=")[2] for line in Path(".env").read_text().splitlines() if re.match(r"\w+=.{20}", line)]
    claim(len(secrets) == 2 and len(set(secrets)) == 2, "both secrets are made, and differ")


def up() -> None:
    step("docker compose up")
    # The engines' answers may be as long as a request asks for; in all else it is the file as it stands.
    long_answers = {"environment": {"ROUTER_MOCK_TOKENS": "1000"}}
    Path("trial.yaml").write_text(json.dumps({"services": {"engine-1": long_answers, "engine-2": long_answers}}))
    os.environ["COMPOSE_FILE"] = "compose.yaml:trial.yaml"
    began = time.monotonic()
    compose("up", "-d")
    await_healthy(7)
    took = time.monotonic() - began
    claim(servers_up() == 2, f"all 7 containers healthy in {took:.0f} s, both replicas in the load balancer")
    for c in containers():
        host = c["HostConfig"]
        as_said = host["ReadonlyRootfs"] and host["RestartPolicy"]["Name"] == "unless-stopped" and c["State"]["Health"]
        claim(bool(as_said), f"{service_of(c)}: read-only, started again when it ends, with a health check")
    published = {
        (service_of(c), binding["HostIp"], binding["HostPort"])
        for c in containers()
        for bindings in (c["NetworkSettings"]["Ports"] or {}).values()
        for binding in bindings or []
    }
    inner = ", ".join(sorted(f"{service} {port}" for service, ip, port in published if ip == "127.0.0.1"))
    outer = {(service, port) for service, ip, port in published if ip != "127.0.0.1"}
    claim(outer == {("loadbalancer", str(PORT))}, f"one published port; on loopback: {inner}")


def first_request() -> str:
    step("a key, a request, a route")
    key = json.loads(routerctl("-o", "json", "key", "add", "trial"))["secret"]
    chat = '{"model": "mock-model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
    curl = ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", chat]
    url = f"http://127.0.0.1:{PORT}/v1/chat/completions"

    def status(*more: str, url: str = url) -> str:
        return run(*curl, *more, url).rsplit("\n", 1)[1]

    claim(status() == "401", "without a key: 401")
    claim(status("-H", f"Authorization: Bearer {key}") == "200", "with the key: 200")
    routerctl("route", "add", "chat", "--backend", "engine-1:19001", "--backend", "engine-2:19002")
    added = status("-H", f"Authorization: Bearer {key}", url=f"http://127.0.0.1:{PORT}/chat/v1/chat/completions")
    claim(added == "200", "routerctl route add: the new route answers at once")
    routerctl("route", "remove", "chat", "--yes")
    return key


def real_time(key: str) -> None:
    tokens = 100
    times = arrival_times(PORT, key, tokens)
    spread, gap = times[-1] - times[0], max(b - a for a, b in zip(times, times[1:]))
    seen = f"{len(times)} events over {spread:.2f} s, first after {times[0]:.2f} s, longest gap {gap * 1e3:.0f} ms"
    # One token each 10 ms. A buffer on the way would bring them at once, or in lumps.
    claim(len(times) == tokens + 3 and spread > 0.8 and gap < 0.4, f"SSE in real time: {seen}")


class Trial:
    def __init__(self, load: Load) -> None:
        self.load = load
        self.total = Period("total")

    @contextmanager
    def during(self, what: str):
        """A step under load. Requests must go on through it and after it, and none may fail."""
        step(what)
        # What ended between this step and the one before counts too.
        self.add(self.load.set_period(what))
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        # And those that were under way come to their end.
        seen = self.load.requests_so_far()
        enough = seen + 4 * CHATS
        await_true("more requests", lambda: self.load.requests_so_far() >= enough or self.load.failures_so_far() > 3)
        self.count(self.load.set_period(f"after: {what}"), took)

    def count(self, period: Period, took: float) -> None:
        seen = f"{period.requests} requests, {len(period.failures)} failed; step {took:.1f} s"
        seen += f"; longest first byte {period.longest_first_byte_s:.2f} s; {period.retried_inside} router retries"
        if period.held_connects:
            seen += f"; {period.held_connects} clients found nobody listening, for up to {period.longest_hold_s:.1f} s"
        print(f"    {seen}")
        self.add(period)

    def add(self, period: Period) -> None:
        if period.failures:
            claim(False, f"{len(period.failures)} of {period.requests} requests failed in: {period.name}")
        for text in period.failures[:5]:
            print(f"        {text}")
        self.total.requests += period.requests
        self.total.failures += period.failures

    def settle(self) -> None:
        """Until every conversation of before has had an answer."""
        time.sleep(SETTLE_S)

    def restart(self, container: dict, name: str) -> None:
        with self.during(f"restart {name}"):
            run("docker", "restart", "-t", "65", container["Id"])
            await_healthy(7)

    def away(self, service: str, seconds: float) -> None:
        """Longer than a restart: its name is gone from the name server meanwhile, its address may be another."""
        with self.during(f"{service} stopped, {seconds:.0f} s, started"):
            stopped = containers(service)[0]["Id"]
            run("docker", "stop", stopped)
            time.sleep(seconds)
            run("docker", "start", stopped)
            await_healthy(7)

    def scale(self, count: int) -> None:
        before = len(containers("dataplane"))
        with self.during(f"docker compose up --scale dataplane={count} (from {before})"):
            compose("up", "-d", "--no-recreate", "--scale", f"dataplane={count}")
            await_healthy(5 + count)
            await_true(f"{count} replicas in the load balancer", lambda: servers_up() == count)
        served = {c["Name"]: replica_requests(c) for c in containers("dataplane")}
        claim(len(served) == count and all(served.values()), f"each replica serves: {sorted(served.values())} requests")

    def drain_and_restart(self, engine: str, port: int) -> None:
        with self.during(f"routerctl drain --port {port} --wait, restart {engine}, undrain"):
            routerctl("drain", "--port", str(port), "--wait", "--timeout", "60s")
            run("docker", "restart", containers(engine)[0]["Id"])
            await_healthy(7)
            routerctl("undrain", "--port", str(port))

    def reload_balancer(self) -> None:
        with self.during("reload the load balancer (docker compose kill -s HUP loadbalancer)"):
            for _ in range(3):
                compose("kill", "-s", "HUP", "loadbalancer")
                time.sleep(3)

    def restart_balancer(self) -> None:
        # The only load balancer is the one single point: while it restarts, nobody listens on the port. Clients wait
        # with their next connection; whatever was sent must be answered whole.
        self.load.holds_connects.set()
        self.restart(containers("loadbalancer")[0], "loadbalancer (the single point: its port refuses meanwhile)")
        self.load.holds_connects.clear()

    def affinity(self) -> list[str]:
        """The sessions that moved since the last call."""
        peers = {session: list(dict.fromkeys(turns)) for session, turns in self.load.peers.items() if len(turns) > 1}
        engines = {peer for found in peers.values() for peer in found}
        moved = [session for session, found in peers.items() if len(found) > 1]
        stayed = f"{len(peers) - len(moved)} of {len(peers)} sessions of several turns stayed on one engine"
        print(f"    {stayed}; {sum(self.load.modes.values())} requests: {dict(self.load.modes)}")
        claim(len(engines) == 2, f"both engines serve: {', '.join(sorted(engines))}")
        self.load.peers.clear()
        self.load.modes.clear()
        return moved


def replica_requests(container: dict) -> int:
    port = container["NetworkSettings"]["Ports"]["8090/tcp"][0]["HostPort"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("router_requests_total")))


def under_load(key: str) -> None:
    load = Load(PORT, key)
    load.start(CHATS, LONG_CHATS)
    trial = Trial(load)
    try:
        with trial.during("load through the load balancer, nothing else"):
            time.sleep(8)
        trial.scale(5)
        trial.settle()
        trial.scale(2)
        trial.restart(containers("postgres")[0], "postgres")
        trial.away("postgres", 1)
        trial.restart(containers("controlplane")[0], "controlplane")
        trial.away("controlplane", 1)
        for replica in containers("dataplane"):
            trial.restart(replica, replica["Name"].lstrip("/"))
        trial.reload_balancer()
        trial.restart_balancer()
        step("affinity until here")
        claim(not trial.affinity(), "no session moved: not by scaling, not by a restart of anything but an engine")
        trial.drain_and_restart("engine-2", 19002)
        trial.drain_and_restart("engine-1", 19001)
        step("affinity over the drains")
        claim(bool(trial.affinity()), "sessions of a drained engine moved, and were answered")
    finally:
        trial.count(load.stop(), 0)
    claim(not trial.total.failures, f"in all: {trial.total.requests} requests, {len(trial.total.failures)} failed")


def down() -> None:
    step("docker compose down -v")
    compose("down", "-v")
    left = [*containers(everything=True), *run("docker", "volume", "ls", "-q").split()]
    claim(not left, "no container and no volume is left")


def main() -> int:
    try:
        build()
        make_env()
        up()
        key = first_request()
        real_time(key)
        under_load(key)
    except Exception as error:  # noqa: BLE001  # the logs of all services are what explains it
        complaints.append(f"the trial broke off: {error}")
    if complaints:
        print(subprocess.run([*COMPOSE, "logs", "--no-color", "--tail", "60"], text=True, capture_output=True).stdout)
    else:
        down()
    for text in complaints:
        print(f"FAILED: {text}")
    print("compose trial:", "failed" if complaints else "passed")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
