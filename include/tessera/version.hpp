// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one place that holds the version (SemVer); CMake reads these three lines.
#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

/// Marks the symbols that the shared library exports; everything else is hidden.
#if defined(_WIN32)
#define TESSERA_API
#else
#define TESSERA_API __attribute__((visibility("default")))
#endif

namespace tessera {

/// "major.minor.patch" of the library that is linked (the macros are those of the headers).
TESSERA_API const char* version() noexcept;

/// The git revision the library was built from, or "unknown".
TESSERA_API const char* revision() noexcept;

/// Build type, compiler and options the library was built with, as one line for reports.
TESSERA_API const char* build_description() noexcept;

}  // namespace tessera
