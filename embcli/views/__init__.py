"""How the result of each verb looks on a page."""
