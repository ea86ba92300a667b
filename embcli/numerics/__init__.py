"""What several verbs compute of rows: the search for the nearest ones, statistics, and the steps of a real model."""
