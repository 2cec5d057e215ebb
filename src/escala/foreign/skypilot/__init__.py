"""SkyPilot's tasks."""
