"""What each verb works out: its result as frozen data."""
