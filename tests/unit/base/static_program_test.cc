#include "base/static_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace quire {
namespace {

std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) variables.emplace_back(*variable);
  return variables;
}

// Tests have shared libraries; ./dev package --check runs a static program.
TEST(StaticProgram, LeavesProgramsWithSharedLibrariesAlone) {
  EXPECT_FALSE(is_static_program());
  const auto before = environment();
  adapt_static_program();
  EXPECT_EQ(environment(), before);
}

}  // namespace
}  // namespace quire
