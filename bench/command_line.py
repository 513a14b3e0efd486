# SPDX-License-Identifier: Apache-2.0
"""Commands as they are written into results: without the folders of the machine that ran them."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
_PATH = re.compile(r"(?:(?<=[=,:])|^)/[^=,:]*")


def _shorter(match):
    path = pathlib.PurePosixPath(match.group())
    for root in (ROOT, pathlib.Path.cwd()):
        if path.is_relative_to(root) and path != root:
            return str(path.relative_to(root))
    return path.name


def command_text(words):
    """The words as one line: a path in this source tree or the current folder is relative to it; of
    any other absolute path the last part is left. "--out=/a/b" is seen, too."""
    return " ".join(_PATH.sub(_shorter, str(word)) for word in words)
