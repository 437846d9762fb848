// Describes a model file as a JSON value.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace quire {

// Opens a GGUF file, a Hugging Face directory, a .safetensors file or its index; reads no weights. Throws Error if the
// file is broken. If Quire merely does not support the model, leaves out what it cannot tell and gives the reason in
// "runs".
//   {"file", "format", "name", "architecture", "parameters", "file_bytes",
//    "sizes": {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context"},
//    "rope", "sliding_window", "pooling", "quantization",
//    "tensor_types": [{"type", "tensors", "elements", "bytes"}], "tokenizer", "chat_template", "memory",
//    "runs": {"ok", "why_not"}, "metadata", "tensors"}
// Metadata arrays longer than `longest_array` are {"array_of": "STRING", "count": 49152}.
nlohmann::ordered_json inspect(const std::filesystem::path& path, size_t longest_array);

}  // namespace quire
