"""What holds for all tests: an interrupt reaches the processes that a test starts.

A shell that starts the tests in the background leaves SIGINT ignored, and children inherit that.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
