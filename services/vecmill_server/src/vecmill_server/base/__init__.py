"""What all rooms of the server use: settings, errors, JSON, budgets."""
