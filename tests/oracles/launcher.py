"""Accelerate's launcher on a machine without devices: what a file becomes for the processes of a job."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from unittest import mock


def launched(file: Path, *options: str) -> argparse.Namespace:
    """The options that the launcher makes of a file, as on a machine with eight devices with bf16."""
    from accelerate.commands import launch

    parser = launch.launch_command_parser()
    given = parser.parse_args([*options, "--config_file", str(file), "train.py"])
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.device_count", return_value=8),
        mock.patch.object(launch, "is_bf16_available", return_value=True),
    ):
        found, defaults, is_from_file = launch._validate_launch_command(given)
    fields = list(defaults.deepspeed_config) + (["mixed_precision"] if is_from_file else [])
    found.deepspeed_fields_from_accelerate_config = ",".join(fields)
    return found


def environment(given: argparse.Namespace) -> Mapping[str, str]:
    """The variables that the processes get; no device is there to be asked for fp8."""
    from accelerate.utils import launch

    with (
        mock.patch.object(launch, "is_fp8_available", return_value=True),
        mock.patch.object(launch, "is_port_in_use", return_value=False),
    ):
        if given.use_deepspeed:
            return launch.prepare_deepspeed_cmd_env(given)[1]
        return launch.prepare_multi_gpu_env(given)
