"""Settings shared by all tests."""

import os
import signal

from hypothesis import settings

from tests.debian import announcement
from tests.forked_python import use_forks
from tests.memory import use_memory
from tests.patience import TEST_SECONDS, VARIABLE, seconds

# A busy machine must not turn a correct property into a failure.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

use_memory()
use_forks()

# A shell starts what runs in its background deaf to interrupts, and programs inherit that: those
# that the tests interrupt would not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where bounds are stretched, a whole test's is too.
if os.environ.get(VARIABLE):
    os.environ.setdefault("PYTEST_TIMEOUT", str(seconds(TEST_SECONDS)))


def pytest_report_header() -> str | None:
    return announcement()
