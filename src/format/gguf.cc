#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "format/gguf_part.h"

namespace quire {

using namespace gguf_detail;

namespace {

uint32_t split_count(const GgufPart& part) { return structural<uint16_t>(part, "split.count").value_or(1); }

// NAME-00002-of-00003.gguf
struct SplitName {
  std::string prefix;  // NAME
  uint32_t number = 0, count = 0;

  std::string of(uint32_t n) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, n, count); }
};

std::optional<SplitName> split_name(const std::string& path) {
  constexpr size_t kTail = std::string_view("-00001-of-00001.gguf").size();
  if (path.size() < kTail) return std::nullopt;
  const size_t at = path.size() - kTail;
  SplitName name;
  name.prefix = path.substr(0, at);
  const auto digits = [&](size_t offset, uint32_t& n) {
    return std::from_chars(&path[at + offset], &path[at + offset] + 5, n).ptr == &path[at + offset] + 5;
  };
  if (!digits(1, name.number) || !digits(10, name.count) || name.of(name.number) != path) return std::nullopt;
  if (name.number == 0 || name.number > name.count) return std::nullopt;
  return name;
}

void check_split(const GgufPart& part, uint32_t number, uint32_t count) {
  if (split_count(part) != count) {
    throw invalid("{}: key \"split.count\": {}, but the file is one of {} parts", part.file, split_count(part), count);
  }
  const auto no = structural<uint32_t>(part, "split.no");
  if (!no || *no != number - 1) {
    throw invalid("{}: key \"split.no\": expected {} as in the file's name (counted from 0), found {}", part.file,
                  number - 1, no ? std::to_string(*no) : "no such key");
  }
}

// Reads a file's header into `header`, as much of the file as it takes.
GgufPart read_part(const MappedFile& file, std::vector<std::byte>& header) {
  constexpr size_t kFirstRead = size_t{1} << 20;      // more than the header of a small vocabulary
  constexpr size_t kLongestHeader = size_t{1} << 30;  // a hundred times that of the largest known vocabulary
  const size_t size = file.bytes().size();
  for (size_t most = kFirstRead; most <= kLongestHeader; most *= 2) {
    header.resize(std::min(size, most));
    file.read(0, header);
    if (auto part = read_gguf_part(header, file.bytes(), file.path().string())) return *std::move(part);
  }
  throw invalid("{}: its keys and names of tensors take more than {} MiB", file.path().string(), kLongestHeader >> 20);
}

}  // namespace

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string file) {
  GgufPart part = *read_gguf_part(bytes, bytes, std::move(file));
  if (split_count(part) > 1)
    throw invalid("{}: this is one of {} parts; open it as a file", part.file, split_count(part));
  Gguf gguf;
  gguf.add_part(std::move(part));
  return gguf;
}

Gguf Gguf::open(const std::filesystem::path& path) {
  Gguf gguf;
  const auto add = [&](MappedFile file) {
    GgufPart part = read_part(file, gguf.headers_.emplace_back());
    gguf.mappings_.push_back(std::move(file));
    return part;
  };
  GgufPart given = add(MappedFile(path));
  const uint32_t count = split_count(given);
  if (count <= 1) {
    gguf.add_part(std::move(given));
    return gguf;
  }

  const auto name = split_name(path.string());
  if (!name || name->count != count) {
    throw invalid("{}: key \"split.count\": the file is one of {} parts, but is not named NAME-00001-of-{:05}.gguf",
                  path.string(), count, count);
  }
  gguf.mappings_.clear();  // the given part is read again in its order
  gguf.headers_.clear();
  std::optional<uint64_t> tensors;
  for (uint32_t number = 1; number <= count; ++number) {
    GgufPart part = add(MappedFile(name->of(number)));
    check_split(part, number, count);
    if (!tensors) tensors = structural<uint64_t>(part, "split.tensors.count");
    gguf.add_part(std::move(part));
  }
  if (tensors && *tensors != gguf.tensors_.size()) {
    throw invalid("{}: key \"split.tensors.count\": {}, but the {} parts hold {} tensors", gguf.file_, *tensors, count,
                  gguf.tensors_.size());
  }
  return gguf;
}

void Gguf::add_part(GgufPart part) {
  if (file_.empty()) {
    file_ = part.file;
    version_ = part.version;
    keys_ = std::move(part.keys);
    values_ = std::move(part.values);
  }
  // Views of names move with their strings, so the index is rebuilt (a file has few parts).
  std::ranges::move(part.tensors, std::back_inserter(tensors_));
  tensor_index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      throw invalid("{}: tensor {} appears twice", part.file, quote(tensors_[i].name));
    }
  }
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufValue& Gguf::at(std::string_view key) const {
  if (const GgufValue* value = find(key)) return *value;
  throw invalid("{}: key {} is missing", file_, quote(key));
}

const TensorView* Gguf::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

std::vector<std::string_view> Gguf::strings(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::ARRAY || value.element != GgufType::STRING) {
    throw wrong_type(file_, key, "an array of STRING", value);
  }
  std::vector<std::string_view> out;
  out.reserve(value.count);
  for (auto left = value.bytes; out.size() < value.count;) {  // each element: length, characters
    const auto size = load<uint64_t>(left);
    out.push_back(text(left.subspan(sizeof size, size)));
    left = left.subspan(sizeof size + size);
  }
  return out;
}

template <class T>
T Gguf::get(std::string_view key) const {
  return convert<T>(at(key), file_, key);
}

template <class T>
std::vector<T> Gguf::numbers(std::string_view key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::ARRAY) throw wrong_type(file_, key, "an array", value);
  std::vector<T> out;
  out.reserve(value.count);
  const size_t size = least_bytes(value.element);
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto number = scalar<T>(value.element, value.bytes.subspan(i * size), file_, key);
    if (!number) throw wrong_type(file_, key, fmt::format("an array of {}", kWanted<T>), value);
    out.push_back(*number);
  }
  return out;
}

#define QUIRE_NUMBER(T)                            \
  template T Gguf::get<T>(std::string_view) const; \
  template std::vector<T> Gguf::numbers<T>(std::string_view) const;
QUIRE_NUMBER(bool)
QUIRE_NUMBER(int8_t)
QUIRE_NUMBER(uint8_t)
QUIRE_NUMBER(int16_t)
QUIRE_NUMBER(uint16_t)
QUIRE_NUMBER(int32_t)
QUIRE_NUMBER(uint32_t)
QUIRE_NUMBER(int64_t)
QUIRE_NUMBER(uint64_t)
QUIRE_NUMBER(float)
QUIRE_NUMBER(double)
#undef QUIRE_NUMBER
template std::string Gguf::get<std::string>(std::string_view) const;
template std::string_view Gguf::get<std::string_view>(std::string_view) const;

}  // namespace quire
