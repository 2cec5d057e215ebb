"""Plans of escala itself."""
