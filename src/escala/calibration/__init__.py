"""Published measurements and what each of them says: rows, and readings as problem, plan and quantity.

Rows are facts as printed; a reading adds what the source leaves out and flags it. Nothing is fitted here.
"""

from escala.calibration.published import Convention, Quantity
from escala.calibration.reading import Reading, Skip, read
from escala.calibration.rows import Fault, Row, Rows
from escala.calibration.software import Counter, Traits
from escala.calibration.tables import read_rows

__all__ = [
    "Convention",
    "Counter",
    "Fault",
    "Quantity",
    "Reading",
    "Row",
    "Rows",
    "Skip",
    "Traits",
    "read",
    "read_rows",
]
