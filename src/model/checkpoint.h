// A model's files on disk, a GGUF or a Hugging Face directory, behind one interface.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/safetensors.h"

namespace quire {

class Checkpoint {
 public:
  // A .gguf file, or a directory with config.json. Tensors of sentence-transformers' modules have their folder's name
  // before their own: "2_Dense.linear.weight". Throws Error (kNotFound, kInvalid).
  static Checkpoint open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::string file() const { return path_.string(); }  // for messages
  const Gguf* gguf() const { return gguf_ ? &*gguf_ : nullptr; }
  const HfConfig* hf() const { return hf_ ? &*hf_ : nullptr; }

  std::span<const TensorView> tensors() const { return gguf_ ? gguf_->tensors() : safetensors_->tensors(); }
  const TensorView* find_tensor(std::string_view name) const {
    return gguf_ ? gguf_->find_tensor(name) : safetensors_->find_tensor(name);
  }
  std::span<const MappedFile> mappings() const { return gguf_ ? gguf_->mappings() : safetensors_->mappings(); }
  // Whether a file is one of the model's, under whatever name: writing to it would destroy the model.
  bool reads(const std::filesystem::path& file) const;
  // Throws Error if a file of tensors was written to, cut or unreadable since it was opened. To be called once tensors have
  // been read.
  void check_unchanged() const { quire::check_unchanged(mappings()); }

 private:
  std::filesystem::path path_;
  std::optional<Gguf> gguf_;
  std::optional<HfConfig> hf_;
  std::optional<Safetensors> safetensors_;
};

}  // namespace quire
