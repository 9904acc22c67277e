"""Where the operator's encryption keys come from: a variable, a file, or a command's output."""

from __future__ import annotations

import logging
import shlex
import stat
import subprocess
from pathlib import Path

from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.encryption import EncryptingCodec, read_keys
from sk_agents.private_files import changeable_by_others

logger = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0


def configured_codec(settings: Settings) -> EncryptingCodec:
    """How threads are written with the keys that the settings name.

    Raises:
        ConfigurationError: they name none, or what they name cannot be read or holds no keys.
    """
    if settings.encryption_keys is not None:
        text, source = settings.encryption_keys.get_secret_value(), "TA_ENCRYPTION_KEYS"
    elif settings.encryption_keys_file is not None:
        text, source = _of_file(settings.encryption_keys_file), "TA_ENCRYPTION_KEYS_FILE"
    elif settings.encryption_keys_command is not None:
        text, source = _of_command(settings.encryption_keys_command), "TA_ENCRYPTION_KEYS_COMMAND"
    else:
        raise ConfigurationError(
            "There are no encryption keys: set TA_ENCRYPTION_KEYS, TA_ENCRYPTION_KEYS_FILE or "
            "TA_ENCRYPTION_KEYS_COMMAND; `teal encryption-key` makes a key"
        )
    return EncryptingCodec(read_keys(text, source))


def _of_file(path: Path) -> str:
    try:
        if (part := changeable_by_others(path.resolve())) is not None:
            raise ConfigurationError(
                f"TA_ENCRYPTION_KEYS_FILE: every user of this machine can change '{part}': "
                "chmod o-w it"
            )
        if path.stat().st_mode & stat.S_IROTH:
            logger.warning(
                "TA_ENCRYPTION_KEYS_FILE can be read by every user of this machine",
                extra={"file": str(path)},
            )
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigurationError(f"TA_ENCRYPTION_KEYS_FILE: {path}: {reason}") from None


def _of_command(command: str) -> str:
    """Without a shell: what the command prints on standard output; its errors go to ours."""
    name = "TA_ENCRYPTION_KEYS_COMMAND"
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=True,
        )
        return done.stdout.decode("ascii")
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{name}: no answer within {COMMAND_SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(f"{name}: ended with the status {error.returncode}") from None
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be run: {error.strerror}") from None
    except (ValueError, UnicodeDecodeError):
        raise ConfigurationError(f"{name}: cannot be read, or printed something else") from None
