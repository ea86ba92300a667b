"""The full screen: views over the library's results, through which keys lead.

`view` says what a screen is, and one file each has the screens: `matrix`, `row`, `pair`, `whole`, `chapter`, `find`.
`desk` holds what they share; `jobs` runs passes in the background. These know no textual: `app` shows the desk on a
terminal, with `paint` and `terminal`.
"""
