// links: grammar
// Any text, as a regex, compiles to a grammar without dead ends or fails with an Error, within bounds.
#include "grammar_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::grammar;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    walk(compile_regex(text, fuzz_limits()), text);
  } catch (const quire::Error&) {
  }
  return 0;
}
