// A GGUF file's metadata on their way to another.
#pragma once

#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace quire {

// Adds all keys but those of the file's layout (alignment, parts) and of how its tensors were quantized, with these
// numbers for the types of the new file's.
void copy_metadata(const Gguf& from, int file_type, int quantization_version, GgufHeader& header);

}  // namespace quire
