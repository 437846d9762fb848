// Safetensors files: one file, or shards listed in an index.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files/mapped_file.h"
#include "format/tensor_view.h"

namespace quire {

// Owns the mappings of all shards. Views are valid as long as the object, also after a move.
// Opening checks the whole header as the safetensors library does (types, shapes, no gap, no overlap, nothing after the
// last tensor); a broken file is an Error that names file, tensor, value and reason.
class Safetensors {
 public:
  // A .safetensors file, a model.safetensors.index.json, or a directory: its model.safetensors, else what its index names,
  // else all its safetensors files.
  static Safetensors open(const std::filesystem::path& path);
  // One whole file in memory that outlives the result; `file` is its name in messages.
  static Safetensors parse(std::span<const std::byte> bytes, std::string file);

  Safetensors(Safetensors&&) = default;
  Safetensors& operator=(Safetensors&&) = default;

  // Takes the other file's tensors, too, with `prefix` before their names.
  void append(Safetensors other, const std::string& prefix);

  const std::string& file() const { return file_; }  // the file or the index, for messages

  // In the order of the data; shards in the order of their names. With an index, exactly the tensors of its weight_map.
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* find_tensor(std::string_view name) const;
  std::span<const MappedFile> mappings() const { return mappings_; }  // one for each shard; none after parse()

  // "__metadata__" of the file, or of all shards; if they differ, the first shard's value.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  Safetensors() = default;
  static Safetensors open_index(const std::filesystem::path& path);
  static Safetensors open_folder(const std::filesystem::path& path);
  // Takes the tensors that are `wanted`, and removes their names from it.
  void add_shard(MappedFile file, std::set<std::string>* wanted = nullptr);
  void index_tensors();

  std::string file_;
  std::vector<MappedFile> mappings_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace quire
