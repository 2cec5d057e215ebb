"""Seconds and joules of one client's round, phase by phase. Knows columns; no fleet, no clock, no cohort.

All arguments are numbers or arrays that broadcast; a last axis may hold low, mid and high.
"""

from typing import Final

import numpy as np

from escala.federated.ranges import Range
from escala.model.columns import F64, I64

# Assumption: what the radio of a battery-powered device draws above idle while it sends or receives; power
# profiles of Android give radios some hundred mA at 3.8 V. What is wired has it in its idle power.
RADIO_W: Final = Range(low=0.5, mid=1.0, high=2.0)
# Assumption until it is measured: headers, names, signatures and framing of one message in one direction.
MESSAGE_OVERHEAD_BYTES: Final = 4096


def transfer_s(sent_bytes: F64 | float, bytes_per_s: F64, latency_s: F64) -> F64:
    """Latency + bytes / rate."""
    return np.asarray(latency_s + sent_bytes / bytes_per_s)


def shared_rate(own_bytes_per_s: F64, server_bytes_per_s: F64 | float, clients: int) -> F64:
    """The rate of the client's link, or its part of the server's where that is less; all transfer at once."""
    return np.minimum(own_bytes_per_s, server_bytes_per_s / max(clients, 1))


def training_s(samples: I64 | F64, epochs: int, sample_s: F64) -> F64:
    """Samples * epochs * time of one training sample; a last batch that is not full takes its share."""
    return np.asarray(samples * epochs * sample_s)


def working_j(work_s: F64, compute_w: F64, idle_w: F64) -> F64:
    """Start and training: (power above idle + idle power) * seconds."""
    return np.asarray((compute_w + idle_w) * work_s)


def moving_j(
    transfer_s: F64, idle_w: F64, radio_w: F64 | float, sent_bytes: F64, energy_j_per_byte: F64
) -> F64:
    """A transfer: (idle power + radio) * seconds of the device + energy of a byte on its way * bytes."""
    return np.asarray((idle_w + radio_w) * transfer_s + energy_j_per_byte * sent_bytes)


def waiting_j(wait_s: F64, idle_w: F64) -> F64:
    """Waiting for others: idle power * seconds."""
    return np.asarray(idle_w * wait_s)


def serving_j(round_s: F64 | float, power_w: F64, pue: float) -> F64:
    """The server of a round: power while the round lasts * PUE."""
    return np.asarray(power_w * pue * round_s)
