"""The names of the columns that the store itself adds to rows. No visible column may have one of them.

| column | part of | meaning |
| --- | --- | --- |
| `__state` | a stored row | the state kept beside the visible columns, as one struct |
| `__weight` | a change | +1: the row is inserted, −1: it is retracted |
| `_commit_version`, `_commit_timestamp` | a change | the commit that made it |
| `__exists` | a settled row | false: the key is deleted |
| `__old` | a settled row | the row stored before, NULL when the key was absent; its last two fields are its place: |
| `__file`, `__position` | a stored row | its data file as a URL, and its number in that file, from 0 |
"""

from __future__ import annotations

STATE = "__state"
WEIGHT = "__weight"
VERSION = "_commit_version"
TIMESTAMP = "_commit_timestamp"
EXISTS = "__exists"
OLD = "__old"
FILE = "__file"
POSITION = "__position"
