#include <gtest/gtest.h>

#include <string>

#include "error_of.h"
#include "gguf_samples.h"
#include "text/tokenizer/pair.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

using nlohmann::json;

json sequence(const char* id, int type) { return {{"Sequence", {{"id", id}, {"type_id", type}}}}; }
json special(const char* token, int type) { return {{"SpecialToken", {{"id", token}, {"type_id", type}}}}; }

// A template with the given pieces for a pair; the tokens are a 4, b 5.
Tokenizer with_pair(json pieces) {
  json j = word_piece_json({"a", "b"});
  j["post_processor"] = {{"type", "TemplateProcessing"},
                         {"single", {sequence("A", 0)}},
                         {"pair", std::move(pieces)},
                         {"special_tokens", {{"S", {{"ids", {3, 3}}}}, {"C", {{"ids", {2}}}}}}};
  return tokenizer_of(j);
}

std::string error_of_pair(const Tokenizer& t, size_t most = 0) {
  return error_of([&] { t.encode_pair("a", "b", most); });
}

TEST(Pair, IsFramedAsBertFramesIt) {
  const TokenPair pair = tokenizer_of(word_piece_json({"a", "b"})).encode_pair("a a", "b");
  EXPECT_EQ(pair.ids, (TokenIds{2, 4, 4, 3, 5, 3}));
  EXPECT_EQ(pair.second, 4u);
}

TEST(Pair, IsFramedAsRobertaFramesIt) {
  json j = word_piece_json({"a", "b"});
  j["post_processor"]["type"] = "RobertaProcessing";
  const TokenPair pair = tokenizer_of(j).encode_pair("a", "b");
  EXPECT_EQ(pair.ids, (TokenIds{2, 4, 3, 3, 5, 3}));
  EXPECT_EQ(pair.second, pair.ids.size()) << "RoBERTa has no second type";
}

TEST(Pair, FollowsTheTemplate) {
  const TokenPair pair =
      with_pair({special("C", 0), sequence("A", 0), special("S", 1), sequence("B", 1)}).encode_pair("a", "b b");
  EXPECT_EQ(pair.ids, (TokenIds{2, 4, 3, 3, 5, 5}));
  EXPECT_EQ(pair.second, 2u) << "a separator may have type 1";
  const TokenPair plain = with_pair({sequence("A", 0), sequence("B", 0)}).encode_pair("a", "b");
  EXPECT_EQ(plain.ids, (TokenIds{4, 5}));
  EXPECT_EQ(plain.second, 2u);
  const TokenPair empty = with_pair({sequence("A", 0), sequence("B", 1)}).encode_pair("a", "");
  EXPECT_EQ(empty.ids, (TokenIds{4}));
  EXPECT_EQ(empty.second, 1u);
}

TEST(Pair, TakesSpecialTokensInTheTextsAsPlainTextUnlessAsked) {
  const Tokenizer t = tokenizer_of(word_piece_json({"a", "b", "[", "]", "sep"}));
  EXPECT_EQ(t.encode_pair("a", "[SEP]").ids, (TokenIds{2, 4, 3, 6, 8, 7, 3}));
  EXPECT_EQ(t.encode_pair("a", "[SEP]", 0, true).ids, (TokenIds{2, 4, 3, 3, 3}));
}

TEST(Pair, IsCutToALength) {
  const Tokenizer t = tokenizer_of(word_piece_json({"a", "b"}));
  EXPECT_EQ(t.encode_pair("a", "b b b b", 6).ids, (TokenIds{2, 4, 3, 5, 5, 3}));
  EXPECT_EQ(t.encode_pair("a", "b b b b", 6).second, 3u);
  EXPECT_EQ(t.encode_pair("a a a a", "b b b b", 8).ids, (TokenIds{2, 4, 4, 3, 5, 5, 5, 3}));
  EXPECT_EQ(t.encode_pair("a", "b", 100).ids, (TokenIds{2, 4, 3, 5, 3}));
  EXPECT_EQ(t.encode_pair("a", "b", 3).ids, (TokenIds{2, 3, 3}));
  EXPECT_NE(error_of_pair(t, 2).find("at most 2 tokens: the 3 tokens around"), std::string::npos);
}

// The definition: the longer text loses its last token until the two fit.
TEST(Pair, LosesTokensOfItsLongerText) {
  for (size_t a = 0; a < 12; ++a) {
    for (size_t b = 0; b < 12; ++b) {
      for (size_t most = 0; most < 26; ++most) {
        size_t first = a, second = b;
        while (first + second > most) --(first > second || (first == second && a <= b) ? first : second);
        const PairLengths cut = cut_pair(a, b, most);
        EXPECT_EQ(cut.first, first) << a << " and " << b << " to " << most;
        EXPECT_EQ(cut.second, second) << a << " and " << b << " to " << most;
      }
    }
  }
  EXPECT_EQ(cut_pair(SIZE_MAX, SIZE_MAX, 4).second, 2u);
}

TEST(Pair, NeedsATemplate) {
  json j = word_piece_json({"a", "b"});
  j.erase("post_processor");
  EXPECT_EQ(error_of_pair(tokenizer_of(j)),
            "sample: this model has no template for a pair of texts: post_processor is missing");
  j["post_processor"] = {{"type", "ByteLevel"}};
  EXPECT_NE(error_of_pair(tokenizer_of(j)).find("post_processor adds no tokens"), std::string::npos);
  EXPECT_NE(error_of_pair(with_pair(nullptr)).find("post_processor.pair is missing"), std::string::npos);
  EXPECT_NE(error_of_pair(with_pair(json::array({sequence("A", 0)}))).find("post_processor.pair lacks a text"),
            std::string::npos);
  EXPECT_NE(error_of_pair(with_pair({sequence("B", 0), sequence("A", 0)})).find("not A, then B"), std::string::npos);
  EXPECT_NE(error_of_pair(with_pair({sequence("A", 0), sequence("A", 0)})).find("not A, then B"), std::string::npos);
  EXPECT_NE(error_of_pair(with_pair({sequence("A", 1), sequence("B", 0)})).find("pair[1]: type ids are not 0, then 1"),
            std::string::npos);
  EXPECT_NE(error_of_pair(with_pair({sequence("A", 0), sequence("B", 2)})).find("pair[1]: type ids are not 0, then 1"),
            std::string::npos);
  const json bert = word_piece_json({})["post_processor"];
  j["post_processor"] = {{"type", "Sequence"}, {"processors", {bert, bert}}};
  EXPECT_NE(error_of_pair(tokenizer_of(j)).find("has several templates"), std::string::npos);
}

TEST(Pair, OfAGgufFileIsFramedAsLlamaServerFramesIt) {
  Sample bert = word_piece({"▁a", "▁b"});
  EXPECT_EQ(bert.make().encode_pair("a", "b").ids, (TokenIds{2, 4, 3, 5})) << "llama.cpp's defaults add only SEP";
  bert.vocabulary.add_eos = true;
  bert.vocabulary.add_sep = false;
  const TokenPair pair = bert.make().encode_pair("a", "b");
  EXPECT_EQ(pair.ids, (TokenIds{2, 4, 3, 5, 3})) << "as converted files say";
  EXPECT_EQ(pair.second, 3u) << "BERT was trained with type 1 for the second text, which llama.cpp ignores";
  bert.vocabulary.eos.reset();
  EXPECT_EQ(bert.make().encode_pair("a", "b").ids, pair.ids) << "SEP stands in for a missing EOS";

  Sample xlm = xlm_roberta();
  EXPECT_EQ(xlm.make().encode("a", {.add_special = true}), (TokenIds{0, 6, 2}));
  EXPECT_EQ(xlm.make().encode_pair("a", "aa").ids, (TokenIds{0, 6, 2, 2, 6, 5, 2}));
  EXPECT_EQ(xlm.make().encode_pair(" a  a ", "").ids, (TokenIds{0, 6, 6, 2, 2, 2}));
}

TEST(Pair, OfAGgufFileNeedsASeparator) {
  const auto missing = [](Sample s) { return error_of_pair(s.make()); };
  EXPECT_NE(missing(sentence_piece()).find("nothing separates the texts"), std::string::npos);
  Sample s = sentence_piece();
  s.vocabulary.add_sep = true;
  EXPECT_NE(missing(s).find("tokenizer.ggml.seperator_token_id is missing"), std::string::npos);
  Sample roberta = byte_level();
  roberta.vocabulary.pre = "roberta-bpe";  // adds SEP
  roberta.vocabulary.sep = roberta.add("</s>", 3);
  EXPECT_EQ(roberta.make().encode_pair("x", "y").ids, (TokenIds{'x', 257, 'y'}));
}

}  // namespace
}  // namespace quire
