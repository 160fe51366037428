"""Tests of the rig's pure parts: `cd bench && python3 -m unittest discover -t . -s tests`."""
