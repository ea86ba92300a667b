"""The full screen: a textual app whose screens show a matrix, a search, or a row.

`embcli explore` opens it. Nothing else imports it, so that textual is needed only there.
"""
