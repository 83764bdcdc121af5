"""The error that is the user's to mend."""

import re

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)[.]? \(_ssl")
"""How OpenSSL says that a certificate is not trusted, and why."""


class UserError(Exception):
    """Something outside the program is wrong; the message names it and says what was expected or what to do."""


class Unreachable(UserError):
    """A server cannot be reached, which may pass."""
