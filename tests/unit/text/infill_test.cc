#include "text/infill.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "gguf_samples.h"

namespace quire {
namespace {

TokenIds joined(std::initializer_list<TokenIds> parts) {
  TokenIds all;
  for (const TokenIds& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The ids of bytes, in a byte-level vocabulary.
TokenIds bytes(std::string_view text) {
  TokenIds ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

struct Family {
  const char *prefix, *suffix, *middle;
};

TEST(Infill, PutsTheSuffixBeforeTheAnswerInTheTokensOfEachFamily) {
  for (const Family& family :
       {Family{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        Family{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, Family{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
        Family{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
        Family{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, Family{"<PRE>", "<SUF>", "<MID>"}}) {
    Sample s = byte_level();
    const TokenId prefix = s.add(family.prefix, 3), suffix = s.add(family.suffix, 3), middle = s.add(family.middle, 3);
    const Tokenizer t = s.make();
    EXPECT_TRUE(can_infill(t)) << family.prefix;
    EXPECT_EQ(encode_infill(t, {.prefix = "f(", .suffix = ")\n"}),
              joined({{prefix}, bytes("f("), {suffix}, bytes(")\n"), {middle}}))
        << family.prefix;
    EXPECT_EQ(encode_infill(t, {}), (TokenIds{prefix, suffix, middle})) << "at the beginning of an empty file";
  }
}

TEST(Infill, PutsTheSuffixFirstForCodestral) {
  Sample s = byte_level();
  const TokenId prefix = s.add("[PREFIX]", 3), suffix = s.add("[SUFFIX]", 3);
  s.add("[MIDDLE]", 3);
  const Tokenizer t = s.make();
  EXPECT_EQ(encode_infill(t, {.prefix = "f(", .suffix = ")"}), joined({{suffix}, bytes(")"), {prefix}, bytes("f(")}));
}

// CodeLlama: the text before the gap begins with SentencePiece's space, as in training, and the one after it does not.
TEST(Infill, AddsNoSpaceAfterTheGap) {
  Sample s = sentence_piece();
  const TokenId prefix = s.add("▁<PRE>", 3), suffix = s.add("▁<SUF>", 3), middle = s.add("▁<MID>", 3),
                end = s.add("▁<EOT>", 3);
  const Tokenizer t = s.make();
  EXPECT_EQ(encode_infill(t, {.prefix = "ab", .suffix = "ab"}),
            (TokenIds{1, prefix, *t.find("▁a"), *t.find("b"), suffix, *t.find("ab"), middle}));
  EXPECT_EQ(encode_infill(t, {.prefix = "a", .suffix = " a", .add_bos = false}),
            (TokenIds{prefix, *t.find("▁a"), suffix, *t.find("▁a"), middle}));
  EXPECT_EQ(infill_ends(t), TokenIds{end});
}

TEST(Infill, TakesTheTokensThatTheFileNames) {
  Sample s = byte_level();
  const TokenId other = s.add("<fim_prefix>", 3);
  s.vocabulary.fim.prefix = s.add("<1>", 3);
  s.vocabulary.fim.suffix = s.add("<2>", 3);
  s.vocabulary.fim.middle = s.add("<3>", 3);
  const Tokenizer t = s.make();
  EXPECT_EQ(encode_infill(t, {.prefix = "a", .suffix = "b"}), (TokenIds{other + 1, 'a', other + 2, 'b', other + 3}));
  s.vocabulary.fim.prefix = 1 << 20;
  EXPECT_EQ(encode_infill(s.make(), {.prefix = "a", .suffix = "b"}).front(), other) << "an id outside is ignored";
}

TEST(Infill, LeavesSpecialTokensInTextsText) {
  Sample s = byte_level();
  for (const char* name : {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}) s.add(name, 4);
  const Tokenizer t = s.make();
  const TokenIds ids = encode_infill(t, {.prefix = "a<fim_suffix>b", .suffix = "<fim_middle><fim_middle>"});
  EXPECT_EQ(ids, joined({{257}, bytes("a<fim_suffix>b"), {258}, bytes("<fim_middle><fim_middle>"), {259}}));
}

// As in Qwen's tokenizer.json, where these tokens are not special and so match in every text.
TEST(Infill, LeavesAddedTokensThatAreNotSpecialText) {
  nlohmann::json json = byte_level_json();
  const int first = json["added_tokens"].back()["id"].get<int>() + 1;
  int next = first;
  for (const char* name : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}) {
    json["added_tokens"].push_back({{"id", next++}, {"content", name}, {"special", false}, {"normalized", false}});
  }
  const Tokenizer t = tokenizer_of(json);
  ASSERT_EQ(t.encode("<|fim_suffix|>", {.parse_special = false}), TokenIds{first + 1});
  EXPECT_EQ(encode_infill(t, {.prefix = "<|fim_suffix|><|fim_prefix|>", .suffix = "x"}),
            joined({{first}, bytes("<|fim_suffix|><|fim_prefix|>"), {first + 1}, bytes("x"), {first + 2}}));
}

TEST(Infill, ShowsOtherFilesAsTheFamilyMarksThem) {
  Sample s = byte_level();
  const TokenId prefix = s.add("<|fim_prefix|>", 3), suffix = s.add("<|fim_suffix|>", 3),
                middle = s.add("<|fim_middle|>", 3);
  const InfillInput input{.prefix = "p", .suffix = "s", .files = {{"a.py", "A"}, {"b.py", "B\n"}}};
  EXPECT_EQ(encode_infill(s.make(), input), joined({bytes("a.py\nA\nb.py\nB\n"), {prefix, 'p', suffix, 's', middle}}));
  const TokenId repository = s.add("<|repo_name|>", 3), file = s.add("<|file_sep|>", 3);
  const Tokenizer t = s.make();
  EXPECT_EQ(encode_infill(t, input), joined({{repository},
                                             bytes("project\n"),
                                             {file},
                                             bytes("a.py\nA\n"),
                                             {file},
                                             bytes("b.py\nB\n"),
                                             {file},
                                             bytes("filename\n"),
                                             {prefix, 'p', suffix, 's', middle}}));
  EXPECT_EQ(infill_ends(t), (TokenIds{repository, file}));
}

TEST(Infill, NeedsTheTokensForIt) {
  Sample s = byte_level();
  EXPECT_FALSE(can_infill(s.make()));
  s.add("<fim_prefix>", 3);
  s.add("<fim_suffix>", 3);
  EXPECT_FALSE(can_infill(s.make())) << "without the middle";
  EXPECT_THROW(encode_infill(s.make(), {.prefix = "a", .suffix = "b"}), Error);
}

}  // namespace
}  // namespace quire
