#include "base/text/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

const std::vector<std::string> kNames = {"run", "serve", "smollm2", "gemma3-270m", "--temperature", "--temp"};

TEST(Nearest, CorrectsTypos) {
  EXPECT_EQ(nearest("runn", kNames), "run");
  EXPECT_EQ(nearest("rnu", kNames), "run");
  EXPECT_EQ(nearest("smolm2", kNames), "smollm2");
  EXPECT_EQ(nearest("--temprature", kNames), "--temperature");
}

TEST(Nearest, CompletesBeginnings) { EXPECT_EQ(nearest("gemma", kNames), "gemma3-270m"); }

TEST(Nearest, FindsNothingForOtherWords) {
  for (const std::string& word : {std::string("list"), std::string("x"), std::string(), std::string(5000, 'a')})
    EXPECT_EQ(nearest(word, kNames), "") << word;
}

TEST(Nearest, AsksWhetherANameWasMeant) {
  EXPECT_EQ(did_you_mean("runn", kNames), " Did you mean run?");
  EXPECT_EQ(did_you_mean("list", kNames), "");
}

}  // namespace
}  // namespace quire
