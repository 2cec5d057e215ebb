"""From a problem to plans: the space, the search over it and the timeline of one plan."""
