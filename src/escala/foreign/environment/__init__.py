"""Variables of the environment, wherever a job sets them."""
