"""Plans for other tools: which target can express a plan, and the nearest plan that each can."""
