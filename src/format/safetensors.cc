#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
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

std::map<std::string, std::string> read_texts(const Json& entry, const std::string& file) {
  if (!entry.is_object()) throw invalid("{}: __metadata__ is not an object", file);
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw invalid("{}: __metadata__: the value of {} is not a string", file, quote(key));
    out.emplace(key, value.get_ref<const std::string&>());
  }
  return out;
}

TensorView view_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
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

// The length of the header, which the file's first bytes give.
uint64_t header_length(std::span<const std::byte> begin, uint64_t file_bytes, const std::string& file) {
  refuse_lfs_pointer(begin, file);
  uint64_t length = 0;
  if (file_bytes < sizeof length) {
    throw invalid("{}: not a safetensors file: it has {} bytes, but the length of the header alone takes 8", file,
                  file_bytes);
  }
  std::memcpy(&length, begin.data(), sizeof length);
  const uint64_t rest = file_bytes - sizeof length;
  if (length > kMaxHeaderBytes || length > rest) {
    throw invalid("{}: not a safetensors file: the header length {} at offset 0 exceeds {}", file, length,
                  length > rest ? fmt::format("the file ({} bytes)", file_bytes)
                                : fmt::format("the allowed {} bytes", kMaxHeaderBytes));
  }
  return length;
}

// header: a copy, so that nothing changes once it is checked, or that of the file itself. data: what follows it.
File read_file(std::string_view header, std::span<const std::byte> data, const std::string& file) {
  if (!header.starts_with('{'))
    throw invalid("{}: not a safetensors file: the header at offset 8 is not a JSON object", file);
  const Json root = parse_json(header, file + ": header", {.unique_keys = true});

  File out;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      out.metadata = read_texts(entry, file);
    } else {
      out.tensors.push_back(view_tensor(name, entry, data, file));
    }
  }
  // Empty tensors come before the tensor that begins at the same place.
  std::ranges::sort(out.tensors, {}, [](const TensorView& t) { return std::pair(t.bytes.data(), t.bytes.size()); });
  check_layout(out.tensors, data, file);
  return out;
}

File read_file(const MappedFile& mapping) {
  const std::string file = mapping.path().string();
  const size_t size = mapping.bytes().size();
  std::array<std::byte, 64> begin{};
  const auto first = std::span(begin).first(std::min(size, begin.size()));
  mapping.read(0, first);
  std::string header(header_length(first, size, file), '\0');
  mapping.read(sizeof(uint64_t), std::as_writable_bytes(std::span(header)));
  return read_file(header, mapping.bytes().subspan(sizeof(uint64_t) + header.size()), file);
}

// The index may only name files in its own folder.
void check_shard_name(const std::string& shard, std::string_view tensor, const std::string& index) {
  if (!is_plain_file_name(shard))
    throw invalid("{}: weight_map: tensor {}: {} is not a plain file name", index, quote(tensor), quote(shard));
}

// model-00002-of-00003.safetensors: 3; nullopt for other names.
std::optional<int> shard_count(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view kTail = "-00001-of-00001.safetensors";
  if (name.size() < kTail.size()) return std::nullopt;
  const size_t at = name.size() - kTail.size();
  int count = 0;
  const char* const end = &name[at] + 15;
  if (name.compare(at + 6, 4, "-of-") != 0 || std::from_chars(end - 5, end, count).ptr != end) return std::nullopt;
  return count;
}

// The safetensors files of a folder, in the order of their names. Mistral's own format (consolidated*) holds the same
// weights again, under other names.
std::vector<std::filesystem::path> shards_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all, shards;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator at(folder, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    if (at->path().extension() == ".safetensors") all.push_back(at->path());
  }
  std::ranges::sort(all);
  std::ranges::copy_if(all, std::back_inserter(shards), [](const std::filesystem::path& file) {
    return !file.filename().string().starts_with("consolidated");
  });
  if (shards.empty()) throw not_found("{}: holds no safetensors files", folder.string());
  const auto numbered = std::ranges::find_if(shards, [](const auto& file) { return shard_count(file).has_value(); });
  if (numbered == shards.end()) return shards;
  const int count = *shard_count(*numbered);
  if (const auto has = std::ranges::count_if(shards, [&](const auto& file) { return shard_count(file) == count; });
      has != count)
    throw invalid("{}: holds {} of the {} files that {} is one of", folder.string(), has, count,
                  numbered->filename().string());
  return shards;
}

}  // namespace

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string file) {
  const uint64_t length = header_length(bytes, bytes.size(), file);
  const auto header = bytes.subspan(sizeof length, length);
  Safetensors out;
  File content = read_file({reinterpret_cast<const char*>(header.data()), header.size()},
                           bytes.subspan(sizeof length + length), file);
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
    return open_folder(path);
  }
  if (path.extension() == ".json") return open_index(path);
  Safetensors out;
  out.file_ = path.string();
  out.add_shard(MappedFile(path));
  out.index_tensors();
  return out;
}

// Shards of which no index says what they hold: all of them, as vLLM does.
Safetensors Safetensors::open_folder(const std::filesystem::path& path) {
  Safetensors out;
  out.file_ = path.string();
  for (const std::filesystem::path& shard : shards_of(path)) out.add_shard(MappedFile(shard));
  out.index_tensors();
  if (out.tensor_index_.size() < out.tensors_.size()) {
    std::set<std::string_view> seen;
    const auto twice =
        std::ranges::find_if(out.tensors_, [&](const TensorView& t) { return !seen.insert(t.name).second; });
    throw invalid(
        "{}: tensor {} is in two of its safetensors files, and no model.safetensors.index.json says which one counts",
        out.file_, quote(twice->name));
  }
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
    const std::string file = (path.parent_path() / name).string();
    out.add_shard(MappedFile(file), &wanted);
    if (!wanted.empty()) {
      throw invalid("{}: weight_map: tensor {} is not in {} ({} missing)", out.file_, quote(*wanted.begin()), file,
                    wanted.size());
    }
  }
  out.index_tensors();
  return out;
}

void Safetensors::add_shard(MappedFile file, std::set<std::string>* wanted) {
  File content = read_file(file);
  for (TensorView& tensor : content.tensors) {
    if (!wanted || wanted->erase(tensor.name) == 1) tensors_.push_back(std::move(tensor));
  }
  metadata_.merge(content.metadata);
  mappings_.push_back(std::move(file));
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
