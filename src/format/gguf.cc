#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "format/names.h"

namespace quire {

// Views into the file's bytes; `tensors` own their names.
struct GgufPart {
  std::string file;
  uint32_t version = 0;
  std::vector<std::string_view> keys;
  std::unordered_map<std::string_view, GgufValue> values;
  std::vector<TensorView> tensors;
};

namespace {

constexpr int kMaxDimensions = 4;        // ggml's own bound
constexpr int kMaxArrayDepth = 4;        // no writer nests at all; scanning recurses
constexpr size_t kMaxNameBytes = 65535;  // the format's bound for keys

// By value of GgufType.
struct TypeRow {
  std::string_view name;
  size_t bytes;  // of a scalar; of a string or an array, the least it can take
};
constexpr auto kTypeRows = std::to_array<TypeRow>({
    {"U8", 1},
    {"I8", 1},
    {"U16", 2},
    {"I16", 2},
    {"U32", 4},
    {"I32", 4},
    {"F32", 4},
    {"BOOL", 1},
    {"STRING", 8},
    {"ARRAY", 12},
    {"U64", 8},
    {"I64", 8},
    {"F64", 8},
});
size_t least_bytes(GgufType type) { return kTypeRows[static_cast<size_t>(type)].bytes; }

template <class T>
T load(std::span<const std::byte> bytes) {
  assert(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Walks over a file's bytes; whatever would pass their end is an Error.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  size_t offset() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  // What is being read, for messages: `kind` "key", `name` as in the file.
  void set_subject(std::string_view kind, std::string_view name) { kind_ = kind, name_ = name; }

  template <class... A>
  Error wrong(size_t offset, fmt::format_string<A...> reason, A&&... a) const {
    const std::string subject = kind_.empty() ? "" : fmt::format("{} {} ", kind_, quote(name_));
    return invalid("{}: {}at offset {}: {}", file_, subject, offset, fmt::format(reason, std::forward<A>(a)...));
  }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) throw wrong(at_, "{} takes {} bytes, but only {} are left in the file", what, count, left());
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  // A count of things that take at least `each` bytes: refused here if the rest of the file cannot hold them.
  uint64_t count(size_t each, std::string_view what) {
    const auto n = number<uint64_t>(what);
    if (n > left() / each) {
      throw wrong(at_ - sizeof n, "{} is {}, but the {} bytes left in the file hold at most {}", what, n, left(),
                  left() / each);
    }
    return n;
  }
  std::string_view string(std::string_view what) { return text(take(number<uint64_t>("a string's length"), what)); }
  std::string_view name(std::string_view what) {
    const size_t start = at_;
    const std::string_view s = string(what);
    if (s.empty()) throw wrong(start, "{} is empty", what);
    if (s.size() > kMaxNameBytes)
      throw wrong(start, "{} has {} bytes, at most {} are allowed", what, s.size(), kMaxNameBytes);
    if (!is_utf8(s)) throw wrong(start, "{} {} is not valid UTF-8", what, quote(s));
    return s;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_, kind_, name_;
  size_t at_ = 0;
};

GgufType read_type(Cursor& in, std::string_view what) {
  const auto id = in.number<uint32_t>(what);
  if (id >= kTypeRows.size()) throw in.wrong(in.offset() - sizeof id, "{} is {}, known are 0 to 12", what, id);
  return static_cast<GgufType>(id);
}

void check_bools(const Cursor& in, std::span<const std::byte> bytes) {
  const auto bad = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return;
  const auto index = static_cast<size_t>(bad - bytes.begin());
  throw in.wrong(in.offset() - bytes.size() + index, "a BOOL is {}, allowed are 0 and 1", static_cast<int>(*bad));
}

GgufValue read_value(Cursor& in, GgufType type, std::span<const std::byte> all, int depth) {
  GgufValue value;
  value.type = type;
  if (type == GgufType::STRING) {
    value.bytes = in.take(in.number<uint64_t>("a string's length"), "a string");
    return value;
  }
  if (type != GgufType::ARRAY) {
    value.bytes = in.take(least_bytes(type), name(type));
    if (type == GgufType::BOOL) check_bools(in, value.bytes);
    return value;
  }
  if (depth == kMaxArrayDepth) throw in.wrong(in.offset(), "arrays nest deeper than {}", kMaxArrayDepth);
  value.element = read_type(in, "an array's element type");
  value.count = in.count(least_bytes(value.element), "an array's length");
  const size_t start = in.offset();
  if (value.element == GgufType::STRING) {
    for (uint64_t i = 0; i < value.count; ++i) in.string("a string of the array");
  } else if (value.element == GgufType::ARRAY) {
    for (uint64_t i = 0; i < value.count; ++i) read_value(in, GgufType::ARRAY, all, depth + 1);
  } else {
    in.take(value.count * least_bytes(value.element), "an array");
  }
  value.bytes = all.subspan(start, in.offset() - start);
  if (value.element == GgufType::BOOL) check_bools(in, value.bytes);
  return value;
}

std::string describe(const GgufValue& value) {
  if (value.type != GgufType::ARRAY) return std::string(name(value.type));
  return fmt::format("an array of {}", name(value.element));
}

Error wrong_type(std::string_view file, std::string_view key, std::string_view wanted, const GgufValue& value) {
  return invalid("{}: key {}: expected {}, found {}", file, quote(key), wanted, describe(value));
}

template <class T>
constexpr std::string_view kWanted = std::is_same_v<T, bool>       ? "BOOL"
                                     : std::is_integral_v<T>       ? "an integer"
                                     : std::is_floating_point_v<T> ? "F32 or F64"
                                                                   : "STRING";

template <class T>
T narrow(auto number, std::string_view file, std::string_view key) {
  if (!std::in_range<T>(number)) {
    throw invalid("{}: key {}: {} is out of range, allowed are {} to {}", file, quote(key), number,
                  std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  return static_cast<T>(number);
}

// One scalar of `type` at the beginning of `bytes` as a T, nothing if the types do not go together.
template <class T>
std::optional<T> scalar(GgufType type, std::span<const std::byte> bytes, std::string_view file, std::string_view key) {
  if constexpr (std::is_same_v<T, bool>) {
    if (type == GgufType::BOOL) return load<uint8_t>(bytes) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    switch (type) {
      case GgufType::U8:
        return narrow<T>(load<uint8_t>(bytes), file, key);
      case GgufType::I8:
        return narrow<T>(load<int8_t>(bytes), file, key);
      case GgufType::U16:
        return narrow<T>(load<uint16_t>(bytes), file, key);
      case GgufType::I16:
        return narrow<T>(load<int16_t>(bytes), file, key);
      case GgufType::U32:
        return narrow<T>(load<uint32_t>(bytes), file, key);
      case GgufType::I32:
        return narrow<T>(load<int32_t>(bytes), file, key);
      case GgufType::U64:
        return narrow<T>(load<uint64_t>(bytes), file, key);
      case GgufType::I64:
        return narrow<T>(load<int64_t>(bytes), file, key);
      default:
        break;
    }
  } else {
    if (type == GgufType::F32) return static_cast<T>(load<float>(bytes));
    if (type == GgufType::F64) return static_cast<T>(load<double>(bytes));
  }
  return std::nullopt;
}

template <class T>
T convert(const GgufValue& value, std::string_view file, std::string_view key) {
  if constexpr (std::is_constructible_v<T, std::string_view>) {
    if (value.type == GgufType::STRING) return T(text(value.bytes));
  } else if (value.type != GgufType::STRING && value.type != GgufType::ARRAY) {
    if (const auto number = scalar<T>(value.type, value.bytes, file, key)) return *number;
  }
  throw wrong_type(file, key, kWanted<T>, value);
}

// A value that Quire itself needs to read the file.
template <class T>
std::optional<T> structural(const GgufPart& part, std::string_view key) {
  const auto found = part.values.find(key);
  if (found == part.values.end()) return std::nullopt;
  return convert<T>(found->second, part.file, key);
}

void read_header(Cursor& in, GgufPart& part) {
  const auto magic = in.take(4, "the magic \"GGUF\"");
  if (text(magic) != "GGUF") throw in.wrong(0, "not a GGUF file: it begins with {}, not \"GGUF\"", quote(text(magic)));
  part.version = in.number<uint32_t>("the version");
  if ((part.version & 0xffff) == 0 && part.version != 0) {
    throw unsupported("{}: version {:#x} at offset 4: the file is big-endian; only little-endian GGUF is read",
                      part.file, part.version);
  }
  if (part.version != 2 && part.version != 3) {
    throw unsupported("{}: version {} at offset 4: only GGUF versions 2 and 3 are read; convert the model again",
                      part.file, part.version);
  }
}

void read_metadata(Cursor& in, std::span<const std::byte> bytes, uint64_t count, GgufPart& part) {
  for (uint64_t i = 0; i < count; ++i) {
    const size_t start = in.offset();
    const std::string_view key = in.name("a key");
    in.set_subject("key", key);
    const GgufValue value = read_value(in, read_type(in, "the value's type"), bytes, 0);
    if (!part.values.emplace(key, value).second) throw in.wrong(start, "the key stands twice");
    in.set_subject("", "");
    part.keys.push_back(key);
  }
}

uint64_t alignment_of(const GgufPart& part) {
  const uint32_t alignment = structural<uint32_t>(part, "general.alignment").value_or(32);
  if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
    throw invalid("{}: key \"general.alignment\": {} is not a power of two from 8 up", part.file, alignment);
  }
  return alignment;
}

struct Place {
  uint64_t begin = 0, end = 0;  // bytes from the beginning of the data
  size_t tensor = 0;
};

Place read_tensor(Cursor& in, uint64_t alignment, TensorView& tensor) {
  tensor.name = in.name("a tensor's name");
  in.set_subject("tensor", tensor.name);
  const auto dimensions = in.number<uint32_t>("the number of dimensions");
  if (dimensions > kMaxDimensions) {
    throw in.wrong(in.offset() - 4, "{} dimensions, at most {} are allowed", dimensions, kMaxDimensions);
  }
  for (uint32_t d = 0; d < dimensions; ++d) {
    tensor.shape.push_back(in.number<uint64_t>("a dimension"));
    if (tensor.shape.back() == 0) throw in.wrong(in.offset() - 8, "dimension {} is 0", d);
  }
  std::ranges::reverse(tensor.shape);
  const auto id = in.number<uint32_t>("the tensor's type");
  const auto type = tensor_type_from_ggml(id);
  if (!type) throw in.wrong(in.offset() - 4, "tensor type {} is unknown, known are 0 to 42", id);
  tensor.type = *type;
  const auto size = tensor_bytes(*type, tensor.shape);
  if (!size) {
    throw in.wrong(in.offset() - 4, "shape [{}] does not go with type {}: {}", fmt::join(tensor.shape, ", "),
                   name(*type),
                   (tensor.shape.empty() ? 1 : tensor.shape.back()) % info(*type).block_elements != 0
                       ? fmt::format("rows are whole blocks of {}", info(*type).block_elements)
                       : "the size overflows 64 bits");
  }
  const auto begin = in.number<uint64_t>("the tensor's offset");
  if (begin % alignment != 0) {
    throw in.wrong(in.offset() - 8, "data offset {} is no multiple of the alignment {}", begin, alignment);
  }
  if (*size > std::numeric_limits<uint64_t>::max() - begin) {
    throw in.wrong(in.offset() - 8, "data offset {} plus {} bytes overflows 64 bits", begin, *size);
  }
  return {begin, begin + *size, 0};
}

void read_tensors(Cursor& in, std::span<const std::byte> bytes, uint64_t count, GgufPart& part) {
  const uint64_t alignment = alignment_of(part);
  std::vector<Place> places;
  for (uint64_t i = 0; i < count; ++i) {
    Place place = read_tensor(in, alignment, part.tensors.emplace_back());
    place.tensor = i;
    places.push_back(place);
    in.set_subject("", "");
  }

  const uint64_t start = (in.offset() + alignment - 1) / alignment * alignment;
  const uint64_t available = bytes.size() > start ? bytes.size() - start : 0;
  for (const Place& p : places) {
    TensorView& tensor = part.tensors[p.tensor];
    if (p.end > available) {
      throw invalid(
          "{}: tensor {}: its data, {} bytes at {} + {}, passes the end of the file ({} bytes); was it cut off?",
          part.file, quote(tensor.name), p.end - p.begin, start, p.begin, bytes.size());
    }
    tensor.bytes = bytes.subspan(start + p.begin, p.end - p.begin);
  }
  std::ranges::sort(places, {}, &Place::begin);
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end) {
      throw invalid("{}: tensor {}: its data at offset {} overlaps that of {}, which ends at {}", part.file,
                    quote(part.tensors[places[i].tensor].name), places[i].begin,
                    quote(part.tensors[places[i - 1].tensor].name), places[i - 1].end);
    }
  }
}

GgufPart read_part(std::span<const std::byte> bytes, std::string file) {
  GgufPart part;
  part.file = std::move(file);
  Cursor in(bytes, part.file);
  read_header(in, part);
  // The least a tensor takes: a name's length and a byte, dimensions, type, offset; a key: length, a byte, type, a
  // byte.
  const uint64_t tensors = in.count(8 + 1 + 4 + 4 + 8, "the number of tensors");
  const uint64_t keys = in.count(8 + 1 + 4 + 1, "the number of keys");
  read_metadata(in, bytes, keys, part);
  read_tensors(in, bytes, tensors, part);
  return part;
}

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

}  // namespace

std::string_view name(GgufType type) { return kTypeRows[static_cast<size_t>(type)].name; }

std::vector<GgufValue> GgufValue::elements() const {
  assert(type == GgufType::ARRAY);
  Cursor in(bytes, "");
  std::vector<GgufValue> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(read_value(in, element, bytes, 0));
  return out;
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string file) {
  GgufPart part = read_part(bytes, std::move(file));
  if (split_count(part) > 1) throw invalid("{}: one of {} parts; open it as a file", part.file, split_count(part));
  Gguf gguf;
  gguf.add_part(std::move(part));
  return gguf;
}

Gguf Gguf::open(const std::filesystem::path& path) {
  const auto read = [](const MappedFile& file) { return read_part(file.bytes(), file.path().string()); };
  Gguf gguf;
  MappedFile given(path);
  GgufPart given_part = read(given);
  const uint32_t count = split_count(given_part);
  if (count <= 1) {
    gguf.mappings_.push_back(std::move(given));
    gguf.add_part(std::move(given_part));
    return gguf;
  }

  const auto name = split_name(path.string());
  if (!name || name->count != count) {
    throw invalid("{}: key \"split.count\": the file is one of {} parts, but is not named NAME-00001-of-{:05}.gguf",
                  path.string(), count, count);
  }
  std::optional<uint64_t> tensors;
  for (uint32_t number = 1; number <= count; ++number) {
    const bool is_given = number == name->number;
    MappedFile file = is_given ? std::move(given) : MappedFile(name->of(number));
    GgufPart part = is_given ? std::move(given_part) : read(file);
    check_split(part, number, count);
    if (!tensors) tensors = structural<uint64_t>(part, "split.tensors.count");
    gguf.mappings_.push_back(std::move(file));
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
  // Views of names move with their strings: the index is built anew (a file has a few parts).
  std::ranges::move(part.tensors, std::back_inserter(tensors_));
  tensor_index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      throw invalid("{}: tensor {} stands twice", part.file, quote(tensors_[i].name));
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
  Cursor in(value.bytes, file_);
  for (uint64_t i = 0; i < value.count; ++i) out.push_back(in.string("a string"));
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
