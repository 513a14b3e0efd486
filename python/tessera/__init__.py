# SPDX-License-Identifier: Apache-2.0
"""OpenCL compute kernels for the last layer of a language model, from Python.

Each operator is a module of this package with the functions `forward`, `backward`,
`value_and_grad`, `plan` and others, by the names of the C++ library; docs/python.md is the guide.
Importing it touches no driver and imports no framework.
"""

import sys as _sys

from . import _core
from ._core import *  # noqa: F403
from ._core import __version__, build_description, operators, revision

for _name in operators:
    _operator = getattr(_core, _name)
    _operator.__name__ = f"tessera.{_name}"
    globals()[_name] = _sys.modules[f"tessera.{_name}"] = _operator

__all__ = [name for name in dir(_core) if not name.startswith("_")]
__all__ += ["__version__", "build_description", "revision"]
