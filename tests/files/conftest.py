"""Each test of files makes them in a folder of its own."""

from __future__ import annotations

from tests.transcripts import in_a_folder_of_its_own  # noqa: F401 - It is a fixture.
