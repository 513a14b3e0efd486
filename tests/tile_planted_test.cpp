// SPDX-License-Identifier: Apache-2.0
// Programs that are wrong end in the right error, whatever the order of cores and copies, and what
// JAX's interpret mode says of the same ones (tests/tile_goldens/planted_bugs.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/tile_fixture.hpp"
#include "tests/tile_planted/programs.hpp"

namespace tessera::tile {
namespace {

std::vector<test::Planted> all_planted() {
  auto programs = test::planted_copies();
  for (auto more : {test::planted_cores(), test::planted_grids()})
    programs.insert(programs.end(), more.begin(), more.end());
  return programs;
}

TEST(TilePlanted, EndAsTheyShould) {
  for (const test::Planted& planted : all_planted()) {
    SCOPED_TRACE(planted.name);
    test::for_each_order([&](const MachineOptions& options) {
      try {
        planted.run(options);
        if (planted.kind) ADD_FAILURE() << "no error";
      } catch (const TileError& error) {
        ASSERT_TRUE(planted.kind) << error.what();
        const bool late = planted.on_wait && options.dma == DmaMode::on_wait;
        EXPECT_STREQ(to_string(error.kind()), to_string(late ? *planted.on_wait : *planted.kind))
            << error.what();
        EXPECT_NE(std::string(error.what()).find(planted.in_message), std::string::npos)
            << "no " << planted.in_message << " in: " << error.what();
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
}

// `tile_planted_test --gtest_filter=*Table*` prints it; docs/tile_reference.md has it by error.
TEST(TilePlanted, TableBesideJax) {
  std::ifstream stream(TESSERA_GOLDENS "/planted_bugs.json");
  const auto golden = nlohmann::json::parse(stream)["verdicts"];
  std::set<std::string> names;
  for (const test::Planted& planted : all_planted()) {
    names.insert(planted.name);
    ASSERT_TRUE(golden.contains(planted.name)) << planted.name;
    const auto& jax = golden[planted.name];
    const auto head = [](const std::string& verdict) {
      return verdict.substr(0, verdict.find(':'));
    };
    fmt::print("| {} | {} | {} | {} |\n", planted.name,
               planted.kind ? to_string(*planted.kind) : planted.outcome,
               head(jax["default"].get<std::string>()), head(jax["races"].get<std::string>()));
  }
  EXPECT_EQ(names.size(), golden.size());
  EXPECT_GE(names.size(), 25u);
}

}  // namespace
}  // namespace tessera::tile
