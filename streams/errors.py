"""The error that is the user's to mend."""


class UserError(Exception):
    """Something outside the program is wrong; the message names it and says what was expected or what to do."""
