"""`teal encrypt` or `teal rekey` in small steps, as a process to be killed: it says each step."""

import sys

from sk_agents.persistence import store_encryption
from sk_agents.persistence.sqlite import encrypting
from tests.stores.encrypted import codec


def say(done: int, total: int) -> None:
    sys.stdout.write(f"{done} {total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    encrypting.BATCH_BYTES = 1
    encrypting.BATCH_THREADS = 1
    work, url, *keys = sys.argv[1:]
    say(0, 0)
    getattr(store_encryption, f"{work}_store")(url, codec(*keys), say)
    sys.stdout.write("done\n")
