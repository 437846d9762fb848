// links: format quant
// Any bytes give an Error, or a file whose values and tensors can all be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "format/gguf.h"
#include "quant/blocks.h"

namespace {

void ignoring_errors(auto&& call) {
  try {
    call();
  } catch (const quire::Error&) {
  }
}

void visit(const quire::GgufValue& value) {
  if (value.type != quire::GgufType::ARRAY) return;
  for (const auto& element : value.elements()) visit(element);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ignoring_errors([&] {
    const auto gguf = quire::Gguf::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    for (const std::string_view key : gguf.keys()) {
      visit(*gguf.find(key));
      ignoring_errors([&] { gguf.get<std::string_view>(key); });
      ignoring_errors([&] { gguf.get<bool>(key); });
      ignoring_errors([&] { gguf.get<uint8_t>(key); });
      ignoring_errors([&] { gguf.get<int32_t>(key); });
      ignoring_errors([&] { gguf.get<uint64_t>(key); });
      ignoring_errors([&] { gguf.get_or<float>(key, 0); });
      ignoring_errors([&] { gguf.strings(key); });
      ignoring_errors([&] { gguf.numbers<bool>(key); });
      ignoring_errors([&] { gguf.numbers<int16_t>(key); });
      ignoring_errors([&] { gguf.numbers<uint64_t>(key); });
      ignoring_errors([&] { gguf.numbers<double>(key); });
    }
    for (const auto& tensor : gguf.tensors()) {
      const auto& type = quire::info(tensor.type);
      std::vector<float> values(std::min<size_t>(tensor.bytes.size() / type.block_bytes, 64) * type.block_elements);
      const auto blocks = tensor.bytes.first(values.size() / type.block_elements * type.block_bytes);
      ignoring_errors([&] { quire::dequantize(tensor.type, blocks, values); });
      if (gguf.find_tensor(tensor.name) != &tensor) __builtin_trap();
    }
  });
  return 0;
}
