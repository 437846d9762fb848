// llama.cpp's pre-tokenizers (LLAMA_VOCAB_PRE_TYPE_* there) as patterns for PCRE2. If llama.cpp differs from a model's
// own tokenizer, this follows llama.cpp.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

// Each pattern splits the parts that the previous patterns produced. Matching and other parts are all kept.
struct Cut {
  std::string_view pattern;
  bool groups_of_three = false;
};

struct Recipe {
  std::array<Cut, 6> cuts;  // ends at the first empty one
  bool byte_level = true;
};

// Splits off English contractions, ignoring case.
#define QUIRE_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define QUIRE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define QUIRE_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define QUIRE_SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits3 = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3 = QUIRE_CONTRACTION "|" QUIRE_WORD R"(|\p{N}{1,3})" QUIRE_SYMBOLS QUIRE_SPACES;
constexpr std::string_view kQwen2 = QUIRE_CONTRACTION "|" QUIRE_WORD R"(|\p{N})" QUIRE_SYMBOLS QUIRE_SPACES;
constexpr std::string_view kMiniCpm5 = QUIRE_CONTRACTION "|" QUIRE_WORD R"(|\p{N}+)" QUIRE_SYMBOLS QUIRE_SPACES;
constexpr std::string_view kUfakZeka = QUIRE_WORD R"(|\p{N})" QUIRE_SYMBOLS QUIRE_SPACES;
constexpr std::string_view kQwen35 =
    QUIRE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" QUIRE_SPACES;
constexpr std::string_view kSeedCoder =
    QUIRE_CONTRACTION "|" QUIRE_WORD R"(|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)" QUIRE_SPACES;
constexpr std::string_view kBailing =
    QUIRE_CONTRACTION "|" QUIRE_WORD R"(|\p{N})" QUIRE_SYMBOLS R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 = QUIRE_CONTRACTION
    "|" QUIRE_WORD R"(|\p{N}{1,3})" QUIRE_SYMBOLS
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
// Possessive quantifiers never backtrack: nothing after them could match, and long words need no stack.
constexpr std::string_view kExaoneMoe =
    QUIRE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                      R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// llama.cpp has no classes for upper and lower case: it uses "letters except a-z" and "letters except A-Z".
#define QUIRE_UPPER R"([^\P{L}a-z])"
#define QUIRE_LOWER R"([^\P{L}A-Z])"
#define QUIRE_CASED(upper, lower, tail) \
  R"([^\r\n\p{L}\p{N}]?)" upper "*" lower "+" tail R"(|[^\r\n\p{L}\p{N}]?)" upper "+" lower "*" tail
#define QUIRE_SYMBOLS_SLASH R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
constexpr std::string_view kTekken =
    QUIRE_CASED(QUIRE_UPPER, QUIRE_LOWER, "") R"(|\p{N})" QUIRE_SYMBOLS_SLASH QUIRE_SPACES;
constexpr std::string_view kGpt4o = QUIRE_CASED(
    QUIRE_UPPER, QUIRE_LOWER, "(?:" QUIRE_CONTRACTION ")?") R"(|\p{N}{1,3})" QUIRE_SYMBOLS_SLASH QUIRE_SPACES;
// llama.cpp reads \p{Lu} and the like as \p{L}.
#define QUIRE_LETTER_OR_MARK R"([\p{L}\p{M}])"
constexpr std::string_view kTinyAya =
    QUIRE_CASED(QUIRE_LETTER_OR_MARK, QUIRE_LETTER_OR_MARK,
                "(?:" QUIRE_CONTRACTION ")?") R"(|\p{N}{1,3})" QUIRE_SYMBOLS_SLASH QUIRE_SPACES;

// To llama.cpp ~ is not a symbol (\p{S}). Punctuation and symbols without it, and its complement without line breaks:
#define QUIRE_PUNCTUATION_SYMBOL R"([^\p{L}\p{M}\p{N}\p{Z}\p{C}~])"
#define QUIRE_BEFORE_WORD R"([\p{M}\p{N}\p{Z}\p{Cf}\p{Cn}\p{Co}\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f~])"
#define QUIRE_DEEPSEEK3_WORD R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)" QUIRE_BEFORE_WORD R"(?[\p{L}\p{M}]+)"
constexpr std::string_view kDeepSeek3 = QUIRE_DEEPSEEK3_WORD "| ?" QUIRE_PUNCTUATION_SYMBOL R"(+[\r\n]*)" QUIRE_SPACES;
constexpr std::string_view kSpark25 = QUIRE_DEEPSEEK3_WORD "| ?" QUIRE_PUNCTUATION_SYMBOL R"(+|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kHanKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";

#define QUIRE_HAN \
  R"(\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F})"
constexpr std::string_view kKimiK2 = "[" QUIRE_HAN R"(]+|[^\r\n\p{L}\p{N}]?(?:(?![)" QUIRE_HAN
                                     R"(])\p{L})++(?:)" QUIRE_CONTRACTION R"()?|\p{N}{1,3})" QUIRE_SYMBOLS QUIRE_SPACES;

constexpr std::string_view kLatinGreekCyrillic =
    R"(\s?[A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF}\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D}\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5}\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kCjk = R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
// "\s+$", tried only at the start of a run of spaces.
constexpr std::string_view kSpacesAtEnd = R"((?<!\s)\s++\z)";

constexpr Recipe kGpt2{{{{kGpt2Pattern}}}};
constexpr Recipe kDigitsThenGpt2{{{{kDigit}, {kGpt2Pattern}}}};
constexpr Recipe kBloom{{{{R"( ?[^(\s|.,!?…。，、।۔،)]+)"}}}};
constexpr Recipe kDeepSeek3Recipe{{{{kDigits3}, {kHanKana}, {kDeepSeek3}}}};
constexpr Recipe kLines{{{{R"([^\n]+|[\n]+)"}}}, false};
constexpr Recipe kDefault{{{{R"([\p{P}$+<=>^~|]+)"}, {kGpt2Pattern}, {R"(\p{N}+)"}, {"[0-9][0-9][0-9]"}}}};

struct Named {
  std::string_view names;  // separated by spaces
  Recipe recipe;
  bool ignore_merges = false, add_bos = false, add_sep = false;
};

const Named kTable[] = {
    {"default", kDefault},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", {{{{kLlama3}}}}, true, true},
    {"smaug-bpe dbrx glm4 chatglm-bpe", {{{{kLlama3}}}}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", {{{{kQwen2}}}}},
    {"qwen35", {{{{kQwen35}}}}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 mpt olmo jais "
     "trillion granite-docling",
     kGpt2},
    {"jina-v1-en jina-v2-code roberta-bpe", kGpt2, false, false, true},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", kDigitsThenGpt2},
    {"falcon", {{{{R"([\p{P}$+<=>^~|`]+)"}, {kGpt2Pattern}, {"[0-9][0-9][0-9]"}}}}},
    {"deepseek-llm",
     {{{{"[\r\n]"},
        {kLatinGreekCyrillic},
        {R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"},
        {kSpacesAtEnd},
        {kCjk},
        {R"(\p{N}+)"}}}}},
    {"deepseek-coder", {{{{"[\r\n]"}, {R"(\s?\p{L}+)"}, {R"(\s?\p{P}+)"}, {kCjk}, {kDigit}}}}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", kDeepSeek3Recipe},
    {"spark2_5", {{{{kDigits3}, {kHanKana}, {kSpark25}, {kDigit}}}}},
    {"tekken", {{{{kTekken}}}}, true, true},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {{{{kGpt4o}}}}},
    {"tiny_aya cohere2moe", {{{{"(?<![0-9])[0-9]++(?![A-Za-z_])", true}, {kTinyAya}}}}},
    {"kimi-k2", {{{{kKimiK2}}}}},
    {"poro-chat bloom gpt3-finnish", kBloom},
    {"viking", {{{{R"( ?[^(\s|.,!?…。，、।۔،)]+)"}, {kDigit}}}}},
    {"jais-2", {{{{kJais2}}}}},
    {"bailingmoe bailingmoe2 llada-moe", {{{{kBailing}}}}},
    {"seed-coder", {{{{kSeedCoder}}}}},
    {"ufakzeka", {{{{kUfakZeka}}}}},
    {"minicpm5", {{{{kDigits3}, {kMiniCpm5}}}}, true},
    {"laguna", {{{{R"([^\n]+|[\n]+)"}, {kQwen2}}}}},
    {"exaone-moe", {{{{kExaoneMoe}}}}},
    {"afmoe", {{{{R"(\p{N}+)", true}, {kAfmoeScripts}, {kDeepSeek3}}}}},
    {"chameleon",
     {{{{"<sentinel:[0-9]+>"},
        {"IMGIMG[A-I]{1,4}Z"},
        {"[\t\n]|    |  "},
        {kDigit},
        {R"([\p{P}!-/:-@\[-`{-~])"},
        {kGpt2Pattern}}}},
     false,
     true},
    {"gemma4 granite-embed-multi-311m", kLines, false, true},
    {"sarvam-moe", kLines},
};

// Files without a pre-tokenizer's name are from before May 2024, so only the families of that time matter. Each is told by
// tokens that no other vocabulary has: `text` at `id` (-1: anywhere), and `also` anywhere.
struct KnownVocabulary {
  std::string_view pre, text;
  TokenId id = -1;
  std::string_view also = {};
};
constexpr KnownVocabulary kKnownVocabularies[] = {
    {"llama-bpe", "<|begin_of_text|>", -1, "<|start_header_id|>"},
    {"command-r", "<|START_OF_TURN_TOKEN|>", -1, "<|CHATBOT_TOKEN|>"},
    {"falcon", ">>TITLE<<", -1, ">>ABSTRACT<<"},
    {"starcoder", "<|endoftext|>", 0, "<issue_start>"},
    {"stablelm2", "<|endoftext|>", 100257, "<issue_start>"},
    {"qwen2", "<|endoftext|>", 151643},
    {"gpt-2", "<|endoftext|>", 50256},
    {"gpt-2", "<|endoftext|>", 0, "<|padding|>"},  // GPT-NeoX
    {"deepseek-llm", "<｜begin▁of▁sentence｜>", 100000},
    {"deepseek-coder", "<｜begin▁of▁sentence｜>", 32013},
};

bool names_contain(std::string_view names, std::string_view name) {
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(' ', at), names.size());
    if (names.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::string_view> gguf_pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const Named& entry : kTable) names.push_back(entry.names.substr(0, entry.names.find(' ')));
  return names;
}

std::string_view recognize_pretokenizer(const GgufVocabulary& vocabulary,
                                        const std::unordered_map<std::string_view, TokenId>& ids) {
  for (const std::string_view architecture : {"bloom", "dbrx"}) {  // the only ones with these vocabularies
    if (vocabulary.architecture == architecture) return architecture;
  }
  for (const KnownVocabulary& known : kKnownVocabularies) {
    const auto found = ids.find(known.text);
    if (found == ids.end() || (known.id >= 0 && found->second != known.id)) continue;
    if (known.also.empty() || ids.contains(known.also)) return known.pre;
  }
  return "";
}

GgufPreTokenizer gguf_pretokenizer(std::string_view pre, const std::string& where) {
  const std::string_view wanted = pre.empty() ? "default" : pre;
  for (const Named& entry : kTable) {
    if (!names_contain(entry.names, wanted)) continue;
    GgufPreTokenizer result;
    result.byte_level = entry.recipe.byte_level;
    result.ignore_merges = entry.ignore_merges;
    result.add_bos = entry.add_bos;
    result.add_sep = entry.add_sep;
    for (const Cut& cut : entry.recipe.cuts) {
      if (cut.pattern.empty()) break;
      result.steps.steps.emplace_back(
          SplitByRegex{.regex = Regex(cut.pattern, where), .groups_of_three = cut.groups_of_three});
    }
    return result;
  }
  throw unsupported("{}: unknown pre-tokenizer \"{}\" (tokenizer.ggml.pre)", where, pre);
}

}  // namespace quire
