#include "model/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include "../format/gguf_bytes.h"

namespace quire {
namespace {

// The vocabulary of a file that has these keys.
FimTokens fim_of(const std::vector<std::pair<std::string, uint32_t>>& keys) {
  GgufBytes bytes(0, keys.size() + 2);
  bytes.key("tokenizer.ggml.model", GgufType::STRING).string("gpt2");
  bytes.array("tokenizer.ggml.tokens", GgufType::STRING, 1).string("a");
  for (const auto& [key, id] : keys) bytes.key("tokenizer.ggml." + key, GgufType::U32).number(id);
  bytes.pad();
  return read_gguf_vocabulary(Gguf::parse(std::as_bytes(std::span(bytes.text())), "m.gguf")).fim;
}

TEST(GgufVocabulary, HasTheTokensForFillingInTheMiddle) {
  const FimTokens fim = fim_of({{"fim_pre_token_id", 1},
                                {"fim_suf_token_id", 2},
                                {"fim_mid_token_id", 3},
                                {"fim_pad_token_id", 4},
                                {"fim_rep_token_id", 5},
                                {"fim_sep_token_id", 6}});
  EXPECT_EQ(fim.prefix, 1);
  EXPECT_EQ(fim.suffix, 2);
  EXPECT_EQ(fim.middle, 3);
  EXPECT_EQ(fim.pad, 4);
  EXPECT_EQ(fim.repository, 5);
  EXPECT_EQ(fim.file, 6);
}

TEST(GgufVocabulary, KnowsTheOlderNamesOfTheseTokens) {
  const FimTokens fim = fim_of({{"prefix_token_id", 1}, {"suffix_token_id", 2}, {"middle_token_id", 3}});
  EXPECT_EQ(fim.prefix, 1);
  EXPECT_EQ(fim.suffix, 2);
  EXPECT_EQ(fim.middle, 3);
  EXPECT_EQ(fim_of({{"prefix_token_id", 1}, {"fim_pre_token_id", 7}}).prefix, 7);
  EXPECT_EQ(fim_of({{"fim_pre_token_id", 0xFFFFFFFF}}).prefix, std::nullopt) << "as files write \"none\"";
  EXPECT_EQ(fim_of({}).prefix, std::nullopt);
}

}  // namespace
}  // namespace quire
