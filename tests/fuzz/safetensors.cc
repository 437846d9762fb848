// links: format
// Any bytes give an Error, or a file whose tensors can all be read. Bytes that are JSON also go through the accessor.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "format/hf_config.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = quire::Safetensors::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
    volatile unsigned sum = 0;
    for (const auto& tensor : file.tensors()) {
      if (file.find_tensor(tensor.name) != &tensor) __builtin_trap();
      for (const std::byte b : tensor.bytes) sum = sum + static_cast<unsigned>(b);
    }
  } catch (const quire::Error&) {
  }
  try {
    const auto json = quire::JsonField::parse({reinterpret_cast<const char*>(data), size}, "config.json").object();
    quire::end_tokens({json, std::nullopt, std::nullopt});
    if (json.has("a")) json.at("a").get<std::vector<float>>("b");
  } catch (const quire::Error&) {
  }
  return 0;
}
