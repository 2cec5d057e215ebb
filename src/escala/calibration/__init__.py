"""Published measurements and what each of them says: rows, and readings as problem, plan and quantity.

Rows are facts as printed; a reading adds what the source leaves out and flags it. Nothing is fitted here.
"""

from escala.calibration.rows import Fault, Row, Rows, read_rows

__all__ = ["Fault", "Row", "Rows", "read_rows"]
