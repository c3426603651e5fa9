"""The page for people who open the server in a browser: try, compare, watch. Its assets are in `assets`."""
