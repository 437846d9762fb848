#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "json/field.h"

namespace quire {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the safetensors library's own bound

struct File {
  std::vector<TensorView> tensors;
  std::map<std::string, std::string> metadata;
};

// The place, as messages name it.
std::string at_tensor(const std::string& file, const std::string& tensor, std::string_view field) {
  return fmt::format("{}: tensor {}: {}", file, quote(tensor), field);
}

// An array of unsigned integers: shape or data_offsets.
std::vector<uint64_t> unsigned_array(const Json& entry, const char* field, const std::string& file,
                                     const std::string& tensor) {
  const auto found = entry.find(field);
  if (found == entry.end()) throw invalid("{} is missing", at_tensor(file, tensor, field));
  if (!found->is_array()) throw invalid("{} is not an array", at_tensor(file, tensor, field));
  std::vector<uint64_t> out;
  for (const Json& number : *found) {
    if (!number.is_number_unsigned()) {
      throw invalid("{}: expected integers from 0 to 2^64-1, found {}", at_tensor(file, tensor, field),
                    number.is_structured() ? "an array or object" : quote(number.dump()));
    }
    out.push_back(number.get<uint64_t>());
  }
  return out;
}

std::map<std::string, std::string> read_metadata(const Json& entry, const std::string& file) {
  if (!entry.is_object()) throw invalid("{}: __metadata__ is not an object", file);
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw invalid("{}: __metadata__: the value of {} is not a string", file, quote(key));
    out.emplace(key, value.get_ref<const std::string&>());
  }
  return out;
}

TensorView read_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
                       const std::string& file) {
  if (!entry.is_object()) throw invalid("{} is not an object", at_tensor(file, name, "its entry"));
  TensorView tensor;
  tensor.name = name;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    throw invalid("{} is missing or not a string", at_tensor(file, name, "dtype"));
  }
  const auto& type_name = dtype->get_ref<const std::string&>();
  const auto type = tensor_type_from_name(type_name);
  const bool is_block_type = type && info(*type).ggml_id >= 0 && info(*type).block_elements > 1;
  if (!type || is_block_type) throw invalid("{} {} is unknown", at_tensor(file, name, "dtype"), quote(type_name));
  tensor.type = *type;
  tensor.shape = unsigned_array(entry, "shape", file, name);
  const auto size = tensor_bytes(*type, tensor.shape);
  if (!size) {
    throw invalid("{} [{}] overflows 64 bits or does not fit dtype {}", at_tensor(file, name, "shape"),
                  fmt::join(tensor.shape, ", "), type_name);
  }
  const auto offsets = unsigned_array(entry, "data_offsets", file, name);
  if (offsets.size() != 2) {
    throw invalid("{} has {} numbers, expected 2", at_tensor(file, name, "data_offsets"), offsets.size());
  }
  const uint64_t begin = offsets[0], end = offsets[1];
  if (begin > end || end > data.size()) {
    throw invalid("{} [{}, {}] does not lie within the {} bytes of data; was the file cut off?",
                  at_tensor(file, name, "data_offsets"), begin, end, data.size());
  }
  if (end - begin != *size) {
    throw invalid("{} [{}, {}] spans {} bytes, but shape [{}] of {} takes {}", at_tensor(file, name, "data_offsets"),
                  begin, end, end - begin, fmt::join(tensor.shape, ", "), type_name, *size);
  }
  tensor.bytes = data.subspan(begin, *size);
  return tensor;
}

// Tensors fill the data without gaps, so that nothing can hide between or after them.
void check_layout(const std::vector<TensorView>& tensors, std::span<const std::byte> data, const std::string& file) {
  const std::byte* expected = data.data();
  for (const TensorView& t : tensors) {
    if (t.bytes.data() != expected) {
      throw invalid("{} begin at {}, but the previous tensor ends at {}: {}", at_tensor(file, t.name, "data_offsets"),
                    t.bytes.data() - data.data(), expected - data.data(),
                    t.bytes.data() < expected ? "they overlap" : "there is a gap");
    }
    expected = t.bytes.data() + t.bytes.size();
  }
  if (const auto rest = data.data() + data.size() - expected; rest != 0) {
    throw invalid("{}: {} bytes after the last tensor do not belong to any tensor", file, rest);
  }
}

File read_file(std::span<const std::byte> bytes, const std::string& file) {
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) {
    throw invalid("{}: not a safetensors file: it has {} bytes, but the length of the header alone takes 8", file,
                  bytes.size());
  }
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const uint64_t rest = bytes.size() - sizeof header_size;
  if (header_size > kMaxHeaderBytes || header_size > rest) {
    throw invalid("{}: not a safetensors file: the header length {} at offset 0 exceeds {}", file, header_size,
                  header_size > rest ? fmt::format("the file ({} bytes)", bytes.size())
                                     : fmt::format("the allowed {} bytes", kMaxHeaderBytes));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  const auto data = bytes.subspan(8 + header_size);
  if (!header.starts_with('{'))
    throw invalid("{}: not a safetensors file: the header at offset 8 is not a JSON object", file);
  const Json root = parse_json(header, file + ": header", {.unique_keys = true});

  File out;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      out.metadata = read_metadata(entry, file);
    } else {
      out.tensors.push_back(read_tensor(name, entry, data, file));
    }
  }
  // Empty tensors come before the tensor that begins at the same place.
  std::ranges::sort(out.tensors, {}, [](const TensorView& t) { return std::pair(t.bytes.data(), t.bytes.size()); });
  check_layout(out.tensors, data, file);
  return out;
}

// The index may only name files in its own folder.
void check_shard_name(const std::string& shard, std::string_view tensor, const std::string& index) {
  if (!is_plain_file_name(shard))
    throw invalid("{}: weight_map: tensor {}: {} is not a plain file name", index, quote(tensor), quote(shard));
}

}  // namespace

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string file) {
  Safetensors out;
  File content = read_file(bytes, file);
  out.file_ = std::move(file);
  out.tensors_ = std::move(content.tensors);
  out.metadata_ = std::move(content.metadata);
  out.index_tensors();
  return out;
}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  std::error_code unreadable;  // opening the file gives the better error
  if (std::filesystem::is_directory(path, unreadable)) {
    for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
      if (std::filesystem::exists(path / name, unreadable)) return open(path / name);
    }
    throw not_found("{}: holds neither model.safetensors nor model.safetensors.index.json", path.string());
  }
  if (path.extension() == ".json") return open_index(path);
  MappedFile file(path);
  Safetensors out = parse(file.bytes(), path.string());
  out.mappings_.push_back(std::move(file));
  return out;
}

Safetensors Safetensors::open_index(const std::filesystem::path& path) {
  Safetensors out;
  out.file_ = path.string();
  const JsonField index = JsonField::read(path);
  const JsonField weight_map = index.at("weight_map").object();
  std::map<std::string, std::set<std::string>> shards;  // file name -> tensors
  for (const auto& [tensor, shard] : weight_map.members()) {
    const std::string& name = shard.string();
    check_shard_name(name, tensor, out.file_);
    shards[name].emplace(tensor);
  }
  for (auto& [name, wanted] : shards) {
    MappedFile mapping(path.parent_path() / name);
    File content = read_file(mapping.bytes(), mapping.path().string());
    for (TensorView& tensor : content.tensors) {
      if (wanted.erase(tensor.name) == 1) out.tensors_.push_back(std::move(tensor));
    }
    if (!wanted.empty()) {
      throw invalid("{}: weight_map: tensor {} is not in {} ({} missing)", out.file_, quote(*wanted.begin()),
                    mapping.path().string(), wanted.size());
    }
    out.metadata_.merge(content.metadata);
    out.mappings_.push_back(std::move(mapping));
  }
  out.index_tensors();
  return out;
}

void Safetensors::append(Safetensors other, const std::string& prefix) {
  for (TensorView& tensor : other.tensors_) {
    tensor.name = prefix + tensor.name;
    tensors_.push_back(std::move(tensor));
  }
  for (MappedFile& mapping : other.mappings_) mappings_.push_back(std::move(mapping));
  index_tensors();
}

void Safetensors::index_tensors() {
  tensor_index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) tensor_index_.emplace(tensors_[i].name, i);
}

const TensorView* Safetensors::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace quire
