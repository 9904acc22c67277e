"""Programs that try to get out of a sandbox, or to take more than their share.

Each prints `OUT` if it got through, and `HELD` if every attempt was refused.
"""

import textwrap

_ATTEMPT = """
import os, sys
def attempt(*acts):
    for act in acts:
        try:
            act()
        except (OSError, MemoryError, ValueError) as error:
            continue
        print("OUT", flush=True)
        sys.exit(3)
    print("HELD", flush=True)
"""


def attempt(source: str) -> str:
    return _ATTEMPT + textwrap.dedent(source)
