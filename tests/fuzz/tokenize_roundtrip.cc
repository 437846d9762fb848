// links: text
// Byte-level BPE restores every well-formed text, whatever its merges, and streaming gives the same text as decoding.
// The first bytes choose the merges and the pre-tokenizer, the rest is the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace quire;

Tokenizer make(const std::string& choices) {
  static const char* const kPre[] = {"gpt-2",       "llama-bpe", "qwen2",      "smollm", "deepseek-llm",
                                     "deepseek-v3", "tekken",    "gpt-4o",     "falcon", "default",
                                     "kimi-k2",     "tiny_aya",  "exaone-moe", "afmoe"};
  std::vector<std::string> texts, merges;
  for (int b = 0; b < 256; ++b) texts.push_back(bytes_to_alphabet(std::string(1, static_cast<char>(b))));
  for (size_t i = 1; i + 1 < choices.size(); i += 2) {
    const std::string left = texts[static_cast<unsigned char>(choices[i]) % texts.size()];
    const std::string right = texts[static_cast<unsigned char>(choices[i + 1]) % texts.size()];
    bool known = false;
    for (const std::string& text : texts) known = known || text == left + right;
    if (known) continue;
    merges.push_back(left + " " + right);
    texts.push_back(left + right);
  }
  merges.push_back("a b");
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = kPre[static_cast<unsigned char>(choices[0]) % std::size(kPre)];
  vocabulary.add_bos = false;
  vocabulary.tokens.assign(texts.begin(), texts.end());
  vocabulary.merges.assign(merges.begin(), merges.end());
  return Tokenizer::from_gguf(vocabulary, "fuzz");
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChoices = 9;
  if (size < kChoices) return 0;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const Tokenizer tokenizer = make(input.substr(0, kChoices));
  const std::string text = input.substr(kChoices);
  const TokenIds ids = tokenizer.encode(text);
  require(tokenizer.decode(ids) == lossy_utf8_bytewise(text));
  // The bytes of the text as ids: any byte sequence.
  for (const TokenIds& stream : {ids, TokenIds(data + kChoices, data + size)}) {
    Detokenizer detokenizer(tokenizer);
    std::string joined;
    for (TokenId id : stream) {
      const std::string piece = detokenizer.push(id);
      require(is_utf8(piece));
      joined += piece;
    }
    joined += detokenizer.finish();
    require(joined == tokenizer.decode(stream));
    std::string bytes;
    for (TokenId id : stream) bytes += tokenizer.token_bytes(id);
    require(joined == lossy_utf8(bytes));
  }
  return 0;
}
