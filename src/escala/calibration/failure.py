"""Why a row cannot be scored, as an exception inside this package. Knows no row."""


class Unreadable(Exception):
    """A row that problem, plan or published quantity cannot be made of; its text is the reason."""
