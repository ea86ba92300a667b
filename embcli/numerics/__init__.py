"""What several verbs compute of rows: the nearest ones, statistics, and a real model's steps.

The functions take layers or arrays, and return numbers; pages and words are the verbs' part.
"""
