#include "cli/chat/repetition.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

// `before` different tokens, then `copies` of a block of `block` different tokens.
std::vector<TokenId> answer_of(int before, int block, int copies) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < before; ++i) tokens.push_back(1000 + i);
  for (int i = 0; i < block * copies; ++i) tokens.push_back(i % block);
  return tokens;
}

TEST(Repetition, FindsLoopsOfAllLengths) {
  for (const int block : {1, 2, 7, 8, 16, 40, kLongestLoop}) {
    const int copies = std::max(kLoopCopies, (kLoopTokens + block - 1) / block);
    EXPECT_TRUE(ends_in_loop(answer_of(5, block, copies))) << block;
    EXPECT_FALSE(ends_in_loop(answer_of(0, block, copies - 1))) << block;
  }
  EXPECT_FALSE(ends_in_loop(answer_of(0, kLongestLoop + 1, kLoopCopies)));
}

TEST(Repetition, IgnoresALoopThatHasEnded) {
  std::vector<TokenId> tokens = answer_of(0, 8, 20);
  tokens.push_back(9999);
  EXPECT_FALSE(ends_in_loop(tokens));
}

TEST(Repetition, NeedsExactCopies) {
  std::vector<TokenId> tokens = answer_of(0, 8, 20);
  for (size_t i = 3; i < tokens.size(); i += 8) tokens[i] = static_cast<TokenId>(2000 + i);  // a numbered list
  EXPECT_FALSE(ends_in_loop(tokens));
  EXPECT_FALSE(ends_in_loop({}));
}

}  // namespace
}  // namespace quire
