"""Settings shared by all tests."""

import signal

from hypothesis import settings

# A busy machine must not turn a correct property into a failure.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

# A shell starts what runs in its background deaf to interrupts, and programs inherit that: those
# that the tests interrupt would not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
