#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "base/error.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

using nlohmann::json;

struct Broken {
  const char* name;
  std::function<void(json&)> breaks;
  const char* says;  // part of the message
};

json component(const char* type) { return {{"type", type}}; }
json nested(const char* list, int depth) {
  json inner = component("Nothing");
  for (int i = 0; i < depth; ++i) inner = {{"type", "Sequence"}, {list, {inner}}};
  return inner;
}

const Broken kBroken[] = {
    {"NoModel", [](json& j) { j.erase("model"); }, "model is missing"},
    {"ModelIsNotAnObject", [](json& j) { j["model"] = 5; }, "model: expected an object, found 5"},
    {"RootIsNotAnObject", [](json& j) { j = json::array(); }, "sample: expected an object"},
    {"UnknownModel", [](json& j) { j["model"]["type"] = "WordLevel"; }, "the model \"WordLevel\""},
    {"ModelTypeIsNotAString", [](json& j) { j["model"]["type"] = 3; }, "model.type: expected a string"},
    {"NoTypeNoMergesNoScores",
     [](json& j) {
       j["model"] = {{"vocab", {{"a", 0}}}};
     },
     "type is missing"},
    {"NoVocabulary", [](json& j) { j["model"].erase("vocab"); }, "vocab is missing"},
    {"EmptyVocabulary", [](json& j) { j["model"]["vocab"] = json::object(); }, "vocab: is empty"},
    {"VocabularyIsNotAnObject", [](json& j) { j["model"]["vocab"] = "abc"; }, "model.vocab: expected an object"},
    {"IdIsNotAnInteger", [](json& j) { j["model"]["vocab"]["x"] = 1.5; }, "vocab.x: expected an integer"},
    {"IdIsNegative", [](json& j) { j["model"]["vocab"]["x"] = -1; }, ", found -1"},
    {"IdIsHuge", [](json& j) { j["model"]["vocab"]["xy"] = 4000000000u; }, ", found 4000000000"},
    {"IdIsBeyond64Bits", [](json& j) { j["model"]["vocab"]["xy"] = ~uint64_t{0}; }, "expected an integer from"},
    {"TwoTokensOneId", [](json& j) { j["model"]["vocab"]["xyz"] = 65; }, "id 65 is"},
    {"NoMerges", [](json& j) { j["model"].erase("merges"); }, "merges is missing"},
    {"MergesIsNotAnArray", [](json& j) { j["model"]["merges"] = json::object(); }, "merges: expected an array"},
    {"MergeOfOne", [](json& j) { j["model"]["merges"][0] = "ab"; }, "merges[0]: \"ab\" is not two tokens"},
    {"MergeOfThree", [](json& j) { j["model"]["merges"][1] = "a b c"; }, "merges[1]: \"a b c\" is not two"},
    {"MergeListOfThree",
     [](json& j) {
       j["model"]["merges"][0] = {"a", "b", "c"};
     },
     "expected [left, right]"},
    {"MergeOfNumbers",
     [](json& j) {
       j["model"]["merges"][0] = {1, 2};
     },
     "merges[0][0]: expected a string"},
    {"MergeIsNumber", [](json& j) { j["model"]["merges"][0] = 7; }, "merges[0]: expected an array"},
    {"MergeOfUnknown", [](json& j) { j["model"]["merges"][0] = "a qq"; }, "\"qq\" is not in the vocabulary"},
    {"MergeToUnknown", [](json& j) { j["model"]["merges"][0] = "a b"; }, "\"ab\" is not in the vocabulary"},
    {"Dropout", [](json& j) { j["model"]["dropout"] = 0.1; }, "dropout"},
    {"FlagIsNotABoolean", [](json& j) { j["model"]["byte_fallback"] = 1; }, "byte_fallback: expected true or false"},
    {"UnknownTokenIsNotInTheVocabulary", [](json& j) { j["model"]["unk_token"] = "<unk>"; },
     "\"<unk>\" is not in the vocabulary"},
    {"AddedTokensIsNotAnArray", [](json& j) { j["added_tokens"] = 1; }, "added_tokens: expected an array"},
    {"AddedTokenWithoutContent", [](json& j) { j["added_tokens"][0].erase("content"); }, "content is missing"},
    {"AddedTokenWithoutId", [](json& j) { j["added_tokens"][0].erase("id"); }, "id is missing"},
    {"AddedTokenIsHuge", [](json& j) { j["added_tokens"][0]["content"] = std::string(5000, 'a'); }, "has 5000 bytes"},
    {"AddedTokenReusesAnId", [](json& j) { j["added_tokens"][0]["id"] = 3; }, "id 3 is"},
    {"AddedTokenWithHugeId", [](json& j) { j["added_tokens"][0]["id"] = 1 << 30; }, "expected an integer from"},
    {"AddedTokenSpecialIsText", [](json& j) { j["added_tokens"][0]["special"] = "yes"; }, "special: expected true"},
    {"UnknownNormalizer", [](json& j) { j["normalizer"] = component("Rot13"); }, "the normalizer \"Rot13\""},
    {"NormalizerWithoutType", [](json& j) { j["normalizer"] = json::object(); }, "normalizer.type is missing"},
    {"NormalizersTooDeep", [](json& j) { j["normalizer"] = nested("normalizers", 20); }, "nested deeper than 16"},
    {"SequenceWithoutList", [](json& j) { j["normalizer"] = component("Sequence"); }, "normalizers is missing"},
    {"PrependWithoutText", [](json& j) { j["normalizer"] = component("Prepend"); }, "prepend is missing"},
    {"ReplaceWithoutPattern",
     [](json& j) {
       j["normalizer"] = {{"type", "Replace"}, {"pattern", json::object()}, {"content", ""}};
     },
     "has neither \"String\" nor \"Regex\""},
    {"CharsMapIsNotBase64",
     [](json& j) {
       j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "#"}};
     },
     "not base64"},
    {"CharsMapTooShort",
     [](json& j) {
       j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA="}};
     },
     "has 2 bytes"},
    {"CharsMapHasAWrongSize",
     [](json& j) {
       j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "/////wAA"}};
     },
     "its array needs"},
    {"UnknownPreTokenizer", [](json& j) { j["pre_tokenizer"] = component("Magic"); }, "the pre-tokenizer \"Magic\""},
    {"PreTokenizersTooDeep", [](json& j) { j["pre_tokenizer"] = nested("pretokenizers", 20); },
     "nested deeper than 16"},
    {"PatternDoesNotCompile",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
     },
     "pattern does not compile"},
    {"PatternIntersectsClasses",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}, {"behavior", "Isolated"}};
     },
     "intersection"},
    {"PatternIsHuge",
     [](json& j) {
       j["pre_tokenizer"] = {
           {"type", "Split"}, {"pattern", {{"Regex", std::string(100000, 'a')}}}, {"behavior", "Isolated"}};
     },
     "a pattern of 100000 bytes"},
    {"UnknownBehavior",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}};
     },
     "unknown behavior \"Sideways\""},
    {"MetaspaceOfTwoCharacters",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
     },
     "expected one character"},
    {"MetaspaceScheme",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "often"}};
     },
     "unknown prepend_scheme"},
    {"FixedLengthZero",
     [](json& j) {
       j["pre_tokenizer"] = {{"type", "FixedLength"}, {"length", 0}};
     },
     ", found 0"},
    {"DecoderProducesTooMuch",
     [](json& j) {
       j["decoder"] = {{"type", "Replace"}, {"pattern", {{"Regex", "."}}}, {"content", std::string(4000, 'x')}};
     },
     "decoder: produces more than"},
    {"UnknownDecoder", [](json& j) { j["decoder"] = component("CTC"); }, "the decoder \"CTC\""},
    {"StripAfterFuse",
     [](json& j) {
       j["decoder"] = {
           {"type", "Sequence"},
           {"decoders", {component("Fuse"), {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}}}}};
     },
     "cannot strip the end"},
    {"ReplaceAfterFuse",
     [](json& j) {
       j["decoder"] = {{"type", "Sequence"}, {"decoders", {component("Fuse"), component("Replace")}}};
     },
     "\"Replace\" after Fuse"},
    {"WordPieceWithoutUnknownToken", [](json& j) { j = word_piece_json({}), j["model"].erase("unk_token"); },
     "model.unk_token is missing"},
    {"WordPieceUnknownTokenIsNotInTheVocabulary",
     [](json& j) { j = word_piece_json({}), j["model"]["unk_token"] = "<unk>"; },
     "unk_token: \"<unk>\" is not in the vocabulary"},
    {"WordPieceWithoutPrefix", [](json& j) { j = word_piece_json({}), j["model"].erase("continuing_subword_prefix"); },
     "continuing_subword_prefix is missing"},
    {"WordPiecePrefixIsANumber", [](json& j) { j = word_piece_json({}), j["model"]["continuing_subword_prefix"] = 2; },
     "continuing_subword_prefix: expected a string"},
    {"WordPieceWithoutLimit", [](json& j) { j = word_piece_json({}), j["model"].erase("max_input_chars_per_word"); },
     "max_input_chars_per_word is missing"},
    {"WordPieceLimitIsNegative", [](json& j) { j = word_piece_json({}), j["model"]["max_input_chars_per_word"] = -1; },
     "max_input_chars_per_word: expected an integer"},
    {"WordPieceVocabularyIsAnArray", [](json& j) { j = word_piece_json({}), j["model"]["vocab"] = json::array(); },
     "model.vocab: expected an object"},
    {"WordPieceTokenIsHuge", [](json& j) { j = word_piece_json({std::string(5000, 'a')}); }, "has 5000 bytes"},
    {"WordPieceDecoderCleanupIsText", [](json& j) { j = word_piece_json({}), j["decoder"]["cleanup"] = "no"; },
     "decoder.cleanup: expected true or false"},
    {"BertNormalizerFlagIsANumber", [](json& j) { j = word_piece_json({}), j["normalizer"]["lowercase"] = 1; },
     "normalizer.lowercase: expected true or false"},
    {"BertProcessingWithIdOutside",
     [](json& j) {
       j = word_piece_json({}), j["post_processor"]["sep"] = {"[SEP]", 99};
     },
     "token 99 is not in the vocabulary"},
    {"BertProcessingWithoutCls", [](json& j) { j = word_piece_json({}), j["post_processor"].erase("cls"); },
     "post_processor.cls is missing"},
    {"PairTemplateWithUnknownToken",
     [](json& j) {
       const json a = {{"Sequence", {{"id", "A"}}}}, b = {{"Sequence", {{"id", "B"}}}};
       j["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {a}},
                              {"pair", {a, {{"SpecialToken", {{"id", "<s>"}}}}, b}},
                              {"special_tokens", json::object()}};
     },
     "special_tokens.<s> is missing"},
    {"UnknownPostProcessor", [](json& j) { j["post_processor"] = component("Odd"); }, "the post-processor \"Odd\""},
    {"TemplateWithoutText",
     [](json& j) {
       j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", json::array()}};
     },
     "lacks the text"},
    {"TemplateWithUnknownToken",
     [](json& j) {
       j["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                              {"special_tokens", json::object()}};
     },
     "<s> is missing"},
    {"TemplateWithIdOutside",
     [](json& j) {
       j["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                              {"special_tokens", {{"<s>", {{"ids", {99999}}}}}}};
     },
     "token 99999 is not in the vocabulary"},
    {"BertProcessingWithoutIds",
     [](json& j) {
       j["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"a"}}, {"cls", {"a"}}};
     },
     "expected [token, id]"},
    {"UnigramWithoutScores", [](json& j) { j["model"] = json::parse(R"({"type": "Unigram", "vocab": [["a"]]})"); },
     "expected [token, score]"},
    {"UnigramScoreIsText", [](json& j) { j["model"] = json::parse(R"({"type": "Unigram", "vocab": [["a", "b"]]})"); },
     "expected a number"},
    {"UnigramUnknownOutside",
     [](json& j) { j["model"] = json::parse(R"({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1})"); },
     ", found 1"},
    {"UnigramWithoutTokens",
     [](json& j) {
       j["model"] = {{"type", "Unigram"}, {"vocab", json::array()}};
     },
     "vocab: is empty"},
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenTokenizerJson : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenTokenizerJson, IsAClearError) {
  json j = byte_level_json();
  GetParam().breaks(j);
  try {
    tokenizer_of(j);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().says), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).rfind("sample", 0), 0u) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, BrokenTokenizerJson, ::testing::ValuesIn(kBroken),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BrokenTokenizerJsonText, TruncatedAnywhereIsAClearError) {
  const std::string whole = byte_level_json().dump();
  for (size_t length = 0; length < whole.size(); length += 97) {
    EXPECT_THROW(Tokenizer::from_hf_json(whole.substr(0, length), "sample"), Error) << length;
  }
  EXPECT_THROW(Tokenizer::from_hf_json("\xFF\xFE", "sample"), Error);
  EXPECT_THROW(Tokenizer::from_hf_json(std::string(200000, '['), "sample"), Error);
  EXPECT_THROW(Tokenizer::from_hf_json(std::string(200000, '[') + std::string(200000, ']'), "sample"), Error);
}

TEST(TokenizerConfig, NamesSpecialTokens) {
  const std::string json = byte_level_json().dump();
  const Tokenizer plain = Tokenizer::from_hf_json(json, "sample");
  EXPECT_FALSE(plain.bos());
  EXPECT_EQ(plain.eot(), plain.find("<|end|>"));
  const Tokenizer named = Tokenizer::from_hf_json(
      json, "sample", R"({"bos_token": {"content": "<|bos|>"}, "eos_token": "<|end|>", "pad_token": null})");
  EXPECT_EQ(named.bos(), named.find("<|bos|>"));
  EXPECT_EQ(named.eos(), named.find("<|end|>"));
  EXPECT_FALSE(named.pad());
  EXPECT_TRUE(std::ranges::binary_search(named.end_of_generation(), *named.eos()));
  EXPECT_FALSE(named.adds_bos());
  EXPECT_THROW(Tokenizer::from_hf_json(json, "sample", R"({"bos_token": 5})"), Error);
}

}  // namespace
}  // namespace quire
