"""What the other rooms stand on, and what knows no model: settings, options, errors, JSON, names of headers,
the configuration file, the byte budget, transactions.
"""
