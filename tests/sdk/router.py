"""What the scripts share: where the replicas are, and how one says what it checked."""

import os
import sys

REPLICAS = [f"http://{address}" for address in os.environ["ROUTER_REPLICAS"].split(",")]
KEY = os.environ.get("ROUTER_KEY", "no-key-needed")


def check(claim: bool, what: str, *details: object) -> None:
    """Ends the script with code 1 unless the claim is true."""
    if not claim:
        print("FAIL:", what, *details, file=sys.stderr)
        sys.exit(1)
    print("ok:", what)
