// The files of a LoRA adapter: pairs of matrices, and the modules that they change (arXiv 2106.09685).
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/tensors.h"

namespace quire {

// A module's results get scale * B (A x) added.
struct AdapterPair {
  std::string module;      // as in the model's files, without ".weight": model.layers.0.self_attn.q_proj, blk.0.attn_q
  const TensorView* down;  // A [rank, inputs]
  const TensorView* up;    // B [outputs, rank]
  float scale;
  const TensorView* magnitude =
      nullptr;  // [outputs]: the adapter is decomposed (DoRA: arXiv 2402.09353); null: it is not

  int rank() const { return static_cast<int>(down->shape[0]); }
};

// Owns the mapped files. Views are valid as long as the object, also after a move.
class AdapterFiles {
 public:
  // A directory of PEFT (adapter_config.json, adapter_model.safetensors), or a GGUF file of llama.cpp. Throws Error: not an
  // adapter, not a LoRA adapter, tensors that do not make pairs, or a setting that Quire does not apply.
  static AdapterFiles open(const std::filesystem::path& path);

  const std::string& file() const { return file_; }  // for messages
  FileKind kind() const { return gguf_ ? FileKind::kGguf : FileKind::kHf; }
  // The model's general.architecture, if the file is a GGUF file.
  const std::string& architecture() const { return architecture_; }
  std::span<const AdapterPair> pairs() const { return pairs_; }  // by module
  std::span<const MappedFile> mappings() const { return gguf_ ? gguf_->mappings() : safetensors_->mappings(); }

 private:
  void read_peft(const std::filesystem::path& folder);
  void read_gguf(const std::filesystem::path& path);

  std::string file_, architecture_;
  std::optional<Gguf> gguf_;
  std::optional<Safetensors> safetensors_;
  std::vector<AdapterPair> pairs_;
};

}  // namespace quire
