// links: text
// Any bytes as a tokenizer.json give an Error, or a tokenizer that encodes and decodes without crashing.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const quire::Tokenizer tokenizer = quire::Tokenizer::from_hf_json(input, "fuzz");
    for (const std::string_view text : {std::string_view("Hello, 12345 wörld \n\n<s>ab"), input.substr(0, 300)}) {
      const quire::TokenIds ids = tokenizer.encode(text, {.add_special = true});
      tokenizer.decode(ids);
      tokenizer.decode(ids, {.skip_special = true});
    }
    tokenizer.encode_pair(input.substr(0, 100), "ab wörld", 20);  // many tokenizers have no template for a pair
  } catch (const quire::Error&) {
  }
  return 0;
}
