"""Settings shared by all tests."""

from hypothesis import settings

# A busy machine must not turn a correct property into a failure.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")
