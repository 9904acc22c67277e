"""Which authorities the tests and their programs trust: one, which has signed nothing.

The machine's own are a hundred and more, and to read them takes 15 ms of work: at each start of a
server where a variable names them, and for each client of the tests, although all of them talk to
loopback. A test of TLS names an authority of its own.
"""

import os
from pathlib import Path

VARIABLE = "SSL_CERT_FILE"
# Where the workers of a session, too, find what the machine's was.
KEPT = "TEAL_TEST_MACHINES_AUTHORITIES"
ONE = Path(__file__).with_name("one_authority.pem")


def trust_one() -> None:
    """For this process and those that it starts."""
    os.environ.setdefault(KEPT, os.environ.get(VARIABLE, ""))
    os.environ[VARIABLE] = str(ONE)


def environment_of_the_machine() -> dict[str, str]:
    """For a program that installs something: it talks to a registry."""
    environment = {**os.environ, VARIABLE: os.environ[KEPT]}
    if not environment[VARIABLE]:
        del environment[VARIABLE]
    return environment
