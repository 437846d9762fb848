#include "model/convert/copy_metadata.h"

namespace quire {

void copy_metadata(const Gguf& from, int file_type, int quantization_version, GgufHeader& header) {
  for (const std::string_view key : from.keys()) {
    if (key == "general.alignment" || key.starts_with("split.") || key == "general.file_type" ||
        key == "general.quantization_version" || key.starts_with("quantize."))
      continue;
    header.copy(key, *from.find(key));
  }
  header.u32("general.file_type", file_type);
  header.u32("general.quantization_version", quantization_version);
}

}  // namespace quire
