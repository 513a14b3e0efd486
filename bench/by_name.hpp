// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::bench {

/// Things, arrays for the most part, by the names of an operator's arguments.
template <class T>
class ByName {
 public:
  /// An empty one where there is none of this name.
  const T& operator[](std::string_view name) const {
    static const T none;
    const auto found = things_.find(name);
    return found == things_.end() ? none : found->second;
  }
  T& set(std::string_view name, T thing) {
    return things_.insert_or_assign(std::string(name), std::move(thing)).first->second;
  }
  auto begin() const { return things_.begin(); }
  auto end() const { return things_.end(); }

 private:
  std::map<std::string, T, std::less<>> things_;
};

}  // namespace tessera::bench
