#!/usr/bin/env python3
"""Checks of the workspace that need no compiler: sizes, dependency directions, licences, duplicates, unused dependencies.

Works offline, from `cargo metadata` and the sources. Says everything that is wrong before it ends with code 1.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = tomllib.loads((ROOT / ".ci/deny.toml").read_text())
MAX_LINES = 450

# Which members each member may depend on. `dev` holds for its tests alone.
DIRECTIONS = {
    "router-policy": {"normal": set(), "dev": set()},
    "router-proto": {"normal": {"router-policy"}, "dev": set()},
    "router-dataplane": {"normal": {"router-policy", "router-proto"}, "dev": {"router-tests"}},
    "router-controlplane": {"normal": {"router-policy", "router-proto"}, "dev": {"router-tests"}},
    "router-cli": {
        "normal": {"router-policy", "router-proto", "router-dataplane", "router-controlplane"},
        "dev": {"router-tests"},
    },
    "router-tests": {"normal": {"router-policy", "router-proto"}, "dev": set()},
}

# Words that may stand only in these places of the sources (without comments).
ONLY_IN = {
    r"\bsqlx\b": ["controlplane/src/store", "controlplane/src/ownership"],
    r"\banyhow\b": ["cli/", "tests/"],
}

# Used by code that the build generates.
USED_BY_GENERATED_CODE = {"router-proto": {"prost", "tonic-prost"}}

complaints: list[str] = []


def complain(text: str) -> None:
    complaints.append(text)


def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    for target in RULES["graph"]["targets"]:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.rs") if "target" not in path.relative_to(ROOT).parts)


def without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def check_sizes(members: list[dict]) -> None:
    files = [path for member in members for path in sources(Path(member["manifest_path"]).parent)]
    for path in files:
        lines = path.read_text().count("\n")
        if lines > MAX_LINES:
            complain(f"{path.relative_to(ROOT)}: {lines} lines, at most {MAX_LINES}; split it by behaviour")
    print(f"sizes: {len(files)} files of at most {MAX_LINES} lines")


def check_directions(members: list[dict]) -> None:
    names = {member["name"] for member in members}
    for name in sorted(names ^ DIRECTIONS.keys()):
        complain(f"{name}: not both a member and in DIRECTIONS of .ci/check.py")
    for member in members:
        allowed = DIRECTIONS.get(member["name"], {"normal": set(), "dev": set()})
        for dependency in member["dependencies"]:
            kind = "dev" if dependency["kind"] == "dev" else "normal"
            may = allowed["normal"] | (allowed["dev"] if kind == "dev" else set())
            if dependency["name"] in names and dependency["name"] not in may:
                complain(f"{member['name']} must not depend on {dependency['name']} ({kind})")
        for path in sources(Path(member["manifest_path"]).parent):
            place = path.relative_to(ROOT).as_posix()
            text = without_comments(path.read_text())
            for word, places in ONLY_IN.items():
                if re.search(word, text) and not any(place.startswith(allowed) for allowed in places):
                    complain(f"{place}: {word} belongs in {', '.join(places)} only")
    print("directions: each member knows only those that it may")


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Evaluates an SPDX expression; AND binds tighter than OR, `/` is an old way to write OR."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    place = 0

    def either() -> bool:
        nonlocal place
        value = both()
        while place < len(tokens) and tokens[place] == "OR":
            place += 1
            value = both() or value
        return value

    def both() -> bool:
        nonlocal place
        value = one()
        while place < len(tokens) and tokens[place] == "AND":
            place += 1
            value = one() and value
        return value

    def one() -> bool:
        nonlocal place
        token = tokens[place]
        place += 1
        if token == "(":
            value = either()
            place += 1
            return value
        if place < len(tokens) and tokens[place] == "WITH":
            # An exception only grants more.
            place += 2
        return token in allowed

    return either()


def check_licences(packages: list[dict]) -> None:
    allowed = set(RULES["licenses"]["allow"])
    for package in packages:
        licence = package["license"]
        if licence is None or not is_allowed(licence, allowed):
            complain(f"{package['name']} {package['version']}: licence {licence} is not in .ci/deny.toml")
    print(f"licences: {len(packages)} packages")


def check_bans(packages: list[dict]) -> None:
    denied = {rule["crate"]: rule["reason"] for rule in RULES["bans"]["deny"]}
    skipped = {rule["crate"]: rule["reason"] for rule in RULES["bans"]["skip"]}
    versions: dict[str, list[str]] = {}
    for package in packages:
        versions.setdefault(package["name"], []).append(package["version"])
        if package["name"] in denied:
            complain(f"{package['name']} is banned: {denied[package['name']]}")
        if package["source"] is not None and not package["source"].startswith("registry+"):
            complain(f"{package['name']}: from {package['source']}; packages come from the registry only")
    used = set()
    for name, found in sorted(versions.items()):
        # All but the newest need a reason.
        newest = max(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)[:3]])
        for version in sorted(set(found) - {newest}):
            key = f"{name}@{version}"
            used.add(key)
            if not skipped.get(key):
                complain(f"{name}: {', '.join(sorted(found))}; one version, or `{key}` with a reason in .ci/deny.toml")
    for key in sorted(skipped.keys() - used):
        complain(f".ci/deny.toml: {key} is no duplicate any more")
    print(f"duplicates: {len(used)}, each with its reason")


def check_unused(members: list[dict]) -> None:
    count = 0
    for member in members:
        folder = Path(member["manifest_path"]).parent
        text = "\n".join(without_comments(path.read_text()) for path in sources(folder))
        ignored = USED_BY_GENERATED_CODE.get(member["name"], set())
        for dependency in member["dependencies"]:
            count += 1
            word = (dependency["rename"] or dependency["name"]).replace("-", "_")
            if dependency["name"] not in ignored and not re.search(rf"\b{word}\b", text):
                complain(f"{member['name']}: {dependency['name']} is a dependency and is not used")
    print(f"unused: none of {count} dependencies")


def main() -> int:
    workspace = metadata()
    ids = set(workspace["workspace_members"])
    members = [package for package in workspace["packages"] if package["id"] in ids]
    resolved = {node["id"] for node in workspace["resolve"]["nodes"]}
    packages = [package for package in workspace["packages"] if package["id"] in resolved]
    check_sizes(members)
    check_directions(members)
    check_licences(packages)
    check_bans(packages)
    check_unused(members)
    for complaint in complaints:
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
