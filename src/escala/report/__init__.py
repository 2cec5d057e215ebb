"""What people and programs see of a result: views with derived numbers, tables, files. Predicts nothing."""
